"""Format the record of ``headway.jobs.traces.inspect``, what a trace holds, as lines for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.units import format_duration, seconds

Record = Mapping[str, Any]

CHART_COLUMNS = 72
CHART_ROWS = 6
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_BAR = 24
_LONGEST_NAME = 30
_OWNERS = (
    *(("tenants", "tenants"), ("users", "users"), ("partitions", "partitions"), ("qos", "QOS")),
    *(("gpu_types", "GPU types"), ("models", "models")),
)
_OUTCOMES = (("finishes", "finish"), ("fails", "fail"), ("cancelled", "are cancelled"))


def lines(record: Record, name: str) -> list[str]:
    """Return what is in the trace ``name``, the most important first."""
    body = _of_requests(record) if record.get("requests") else _of_jobs(record) if record.get("jobs") else ()
    return [f"{name}: {record['format']}", *_counts(record), *body, *_odd(record), *_dropped(record)]


def _of_jobs(record: Record) -> Iterator[str]:
    yield from _sizes(record)
    yield from _load(record)
    parts = [f"{part} {_time(record[f'duration_{part}_s'])}" for part in ("p50", "p90", "p99", "max")]
    yield f"  {'durations':<13} {', '.join(parts)}"
    yield from _owners(record)
    yield from _outcomes(record)
    yield from _estimates(record)


def _of_requests(record: Record) -> Iterator[str]:
    for key, title in (("input_tokens", "input tokens"), ("output_tokens", "output tokens")):
        parts = ", ".join(f"{part} {record[f'{key}_{part}']:,.0f}" for part in ("mean", "p50", "p90", "p99", "max"))
        yield f"  {title:<13} {parts}"
    mean, peak = record["requests_per_second_mean"], record["requests_per_second_peak"]
    if mean is not None:
        yield f"  {'rate':<13} {mean:.3g} requests a second, {peak:,.0f} in the busiest"
    if record["blocks"]:
        share = 100 * record["blocks_seen_before"] / record["blocks"]
        yield f"  {'prefixes':<13} {share:.1f} % of {record['blocks']:,} blocks were in an earlier request too"
    yield ""
    yield from _chart_of(record, "submissions", "requests", "Requests over time")


def _counts(record: Record) -> Iterator[str]:
    what = "requests" if "requests" in record else "jobs"
    yield f"  {'rows':<13} {record['rows']:,}: {record[what]:,} {what}, {record['dropped']:,} dropped{_held(record)}"
    dates = f", {record['first_date']} to {record['last_date']}" if record.get("first_date") else ""
    yield f"  {'span':<13} {_time(record['span_s'])} from the first to the last submission{dates}"


def _time(value_s: float) -> str:
    return format_duration(seconds(float(value_s)))


def _sizes(record: Record) -> Iterator[str]:
    hours, offered = record["gpu_hours"], record["offered_gpus"]
    steady = "" if offered is None else f": as much as {offered:,.1f} GPUs busy all the time"
    if hours or not record["cpu_hours"]:
        yield f"  {'GPU time':<13} {hours:,.0f} GPU-hours{steady}"
    if record["cpu_hours"]:
        yield f"  {'CPU time':<13} {record['cpu_hours']:,.0f} CPU-hours"
    if "load" in record and record["load"] is not None:
        yield (
            f"  {'load':<13} {record['load']:.2f} on {record['gpus']:,} GPUs; "
            f"more is wanted {100 * record['over_share']:.0f} % of the time"
        )
    yield ""
    yield f"  {'GPUs a job':>16} {'jobs':>10} {'of jobs':>8} {'of GPU time':>12}"
    for label, jobs, share, time_share in _grouped(record["widths"]):
        bar = "█" * round(_BAR * time_share)
        yield f"  {label:>16} {jobs:>10,} {100 * share:>6.1f} % {100 * time_share:>10.1f} % {bar}".rstrip()
    yield ""


def _grouped(widths: Sequence[Record]) -> list[tuple[str, int, float, float]]:
    """Return a row for each power of two, and one for what lies between two of them."""
    rows: dict[str, list[float]] = {}
    for each in widths:
        sums = rows.setdefault(_label(each["gpus"]), [0, 0.0, 0.0])
        for at, key in enumerate(("jobs", "jobs_share", "gpu_hours_share")):
            sums[at] += each[key]
    return [(label, int(jobs), share, time_share) for label, (jobs, share, time_share) in rows.items()]


def _label(gpus: float) -> str:
    if not gpus:
        return "none (CPU only)"
    if gpus < 1:
        return "part of one"
    whole = int(gpus)
    below = 1 << (whole.bit_length() - 1)
    if whole == below:
        return f"{whole:,}"
    return "3" if below == 2 else f"{below + 1:,} to {2 * below - 1:,}"


def _load(record: Record) -> Iterator[str]:
    if record["wanted_gpus_mean"] is None or not record["gpus_max"]:
        return
    title = (
        f"GPUs wanted if every job ran from its submission on: mean {record['wanted_gpus_mean']:,.1f}, "
        f"peak {record['wanted_gpus_peak']:,.0f}"
    )
    yield from _chart_of(record, "wanted_gpus", "GPUs", title)


def _chart_of(record: Record, key: str, unit: str, title: str) -> Iterator[str]:
    values = record[key]
    if len(values) < 2:
        return
    together = -(-len(values) // CHART_COLUMNS)
    parts = [values[at : at + together] for at in range(0, len(values), together)]
    heights = [sum(part) / (1 if key == "submissions" else len(part)) for part in parts]
    column = _time(record["step_s"] * together).removesuffix(" 0h").removesuffix(" 00m").removesuffix(" 00s")
    yield f"  {title} ({unit} a column of {column})"
    yield from chart(heights)
    yield f"  {'':>9} └{'─' * len(heights)}"
    first, last = "0", _time(record["span_s"])
    if record.get("first_date") and len(heights) > 2 * len("2026-03-01"):
        first, last = (record[key].partition("T")[0] for key in ("first_date", "last_date"))
    yield f"  {'':>10} {first}{last:>{max(len(heights) - len(first), 1)}}"
    yield ""


def chart(values: Sequence[float], rows: int = CHART_ROWS) -> Iterator[str]:
    """Yield values as columns of blocks, the largest as high as the chart, with the scale at the left."""
    top = max(values) or 1.0
    eighths = [max(round(8 * rows * value / top), 1 if value > 0 else 0) for value in values]
    for row in reversed(range(rows)):
        value = top * (row + 1) / rows
        shown = f"{value:,.0f}" if 10 <= value < 10**6 else f"{value:.2g}"
        label = shown if row in (rows - 1, rows // 2 - 1) else ""
        blocks = "".join(_EIGHTHS[min(max(each - 8 * row, 0), 8)] for each in eighths)
        yield f"  {label:>9} {'┤' if label else '│'}{blocks}".rstrip()


def _owners(record: Record) -> Iterator[str]:
    by_time = record["gpu_hours"] > 0
    for key, title in _OWNERS:
        owners = record[key]
        if not owners["count"]:
            continue
        shares = [owner["gpu_hours_share"] if by_time else owner["jobs"] / record["jobs"] for owner in owners["top"]]
        names = [_short(owner["name"]) for owner in owners["top"]]
        top = ", ".join(f"{name} {100 * share:.0f} %" for name, share in zip(names, shares, strict=True))
        more = ", …" if owners["count"] > len(owners["top"]) else ""
        yield f"  {title:<13} {owners['count']:,}; of the {'GPU time' if by_time else 'jobs'}: {top}{more}"


def _short(name: str) -> str:
    """Return a name on one line, cut where it is too long."""
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else line[:_LONGEST_NAME] + "…"


def _outcomes(record: Record) -> Iterator[str]:
    parts = [
        f"{100 * outcome['jobs_share']:.1f} % {verb} ({100 * outcome['gpu_hours_share']:.1f} % of the GPU time)"
        for key, verb in _OUTCOMES
        if (outcome := record["outcomes"][key])["jobs"]
    ]
    all_finish = record["outcomes"]["finishes"]["jobs"] == record["jobs"]
    told = "all jobs finish, or the trace does not say" if all_finish else ", ".join(parts)
    yield f"  {'outcomes':<13} {told}"


def _estimates(record: Record) -> Iterator[str]:
    given = record["estimates"]
    if given["jobs"]:
        yield (
            f"  {'estimates':<13} {100 * given['jobs_share']:.1f} % of jobs; estimate / run time: p50 "
            f"{given['ratio_p50']:,.2f}, p90 {given['ratio_p90']:,.1f}; {given['too_short']:,} too short"
        )


def _odd(record: Record) -> Iterator[str]:
    told = [*record["notes"], *(oddity["line"] for oddity in record["oddities"])]
    if told:
        yield ""
        yield "  To know"
        yield from (f"  - {line}" for line in told)


def _held(record: Record) -> str:
    """Return how many jobs the dropped rows stand for, where that is more than their number."""
    jobs = record.get("dropped_jobs", record["dropped"])
    return f" ({jobs:,} jobs)" if jobs > record["dropped"] else ""


def _dropped(record: Record) -> Iterator[str]:
    if not record["dropped"]:
        return
    yield ""
    yield f"  {record['dropped']:,} row{'s' if record['dropped'] > 1 else ''} dropped"
    for rule in record["dropped_by_rule"]:
        shown = ", ".join(f"line {each['line']}: {each['value']!r}" for each in rule["examples"])
        more = ", …" if rule["rows"] > len(rule["examples"]) else ""
        yield f"  - {rule['rows']:,} × {rule['column']} {rule['rule']} ({shown}{more})"
