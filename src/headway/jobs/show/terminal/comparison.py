"""Make terminal tables: runs side by side, and the parts that policies are made of."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_type_hints

from rich.table import Table
from rich.text import Text

from headway.errors import ExperimentError, unknown_name
from headway.fleet.policies import registry as serving
from headway.gpu.policies import registry as kernels
from headway.jobs.metrics.changes import changes
from headway.jobs.metrics.cost import with_sum
from headway.jobs.metrics.groups import GROUPS as MEMBERS, TITLES
from headway.jobs.metrics.waits.by_limit import folded
from headway.jobs.policies import registry
from headway.show.formatting import level_of, signed
from headway.show.names import shortened
from headway.show.terminal import fitted, framed
from headway.show.time_unit import in_unit, time_unit
from headway.units import format_duration, seconds

Row = Mapping[str, Any]
GROUPS = ("tenant", "partition", "qos", "user", "gpu-type", "level", "limit")
RECORDED = "recorded"
"""What the past of the site is called beside runs."""
_COLUMNS = (
    *("policy", "jobs", "JCT mean", "p50", "p99", "wait", "makespan", "tail", "GPU use", "fragm.", "preempt."),
    *("moves", "lost GPU-h", "jobs/s"),
)
_EXPENDABLE = (
    *("jobs/s", "lost GPU-h", "tail", "makespan", "fragm.", "moves", "preempt.", "memory", "CPUs", "jobs", "p50"),
    *("GPU use", "seeds", "JCT {level}", "change {level}"),
)
"""What a narrow terminal does without, the first of them first."""

_PARTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("order", registry.ORDERS),
    ("backfill", registry.BACKFILLS),
    ("placement", registry.PLACEMENTS),
    ("migration", registry.MIGRATIONS),
    ("allocation", registry.ALLOCATIONS),
    ("serving", serving.POLICIES),
    ("kernels", kernels.POLICIES),
)
_TERMS = (
    ("preemption", "preempt", "A job is preempted for one that comes before it, whatever the order's default."),
    ("preemption", "no-preempt", "No job is preempted for another, whatever the order's default."),
    ("timing", "quantum", "quantum(5m): a started job is not preempted before it has run this long."),
    ("timing", "round", "round(5m): decide at multiples of this only."),
)


def comparison(rows: Sequence[Row], leave_out: Sequence[str] = ()) -> Table:
    """Return one line a run; times as people say them, the best mean JCT and wait set off."""
    shown = {name: cells for name, cells in _columns(rows).items() if cells and name not in leave_out}
    words = [name for name in shown if name in ("variant", "policy")]
    table = framed(words, [name for name in shown if name not in words])
    if past := next((row[RECORDED] for row in rows if row.get(RECORDED)), None):
        table.add_row(*_past_cells(past, rows, list(shown), words))
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*cells)
    return table


def _past_cells(past: Row, rows: Sequence[Row], heads: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the line of the recorded past; what the log does not tell is left empty."""
    jct, wait = _unit(rows, "jct_mean_s"), _unit(rows, "wait_mean_s")
    cells = {
        words[0]: RECORDED,
        "jobs": f"{past['jobs']:,}",
        "JCT mean": in_unit(past["jct_mean_s"], *jct),
        "p50": in_unit(past["jct_p50_s"], *jct),
        "p99": in_unit(past["jct_p99_s"], *jct),
        "wait": in_unit(past["wait_mean_s"], *wait),
        "GPU use": _share(past["gpu_utilisation_while_arriving"]),
    }
    return [cells.get(head, "") for head in heads]


def fitting(rows: Sequence[Row], width: int) -> tuple[Table, int]:
    """Return the comparison in so many columns of text, and how many columns of the table were left out for that."""
    there = [name for name, cells in _columns(rows).items() if cells]
    expendable = [name for each in _EXPENDABLE if (name := each.format(level=level_of(rows))) in there]
    return fitted(partial(comparison, rows), expendable, width)


def legend(rows: Sequence[Row], table: Table) -> str:
    """Return a line on the time over which use is counted; empty where the table shows no use."""
    shown = [str(column.header) for column in table.columns]
    used = [name for name in ("GPU use", "CPUs", "memory") if name in shown]
    if not used:
        return ""
    if all(row.get("tail_s") == row["makespan_s"] for row in rows):
        return f"{', '.join(used)}: over the makespan, all jobs arriving at once"
    rest = "; tail: from there to the last completion" if "tail" in shown else ""
    return f"{', '.join(used)}: while jobs arrive, from the first submission to the last{rest}"


def _columns(rows: Sequence[Row]) -> dict[str, Sequence[Text | str]]:
    """Return all columns by name; one that says nothing about these runs has no cells."""
    plain = dict(zip(_COLUMNS, zip(*(_cells(row, rows) for row in rows), strict=True), strict=True))
    baseline, against = _against(rows)
    level = level_of(rows)
    sure = any(row.get("jct_mean_low_s") is not None for row in rows)
    sure_change = any(row.get("jct_change_low") is not None for row in rows)
    several = any(row.get("seeds", 1) > 1 for row in rows)
    divided = any(row.get("allocation") for row in rows)
    return {
        "variant": _labels(rows),
        "policy": _policies(rows),
        "jobs": plain["jobs"],
        "seeds": [str(row.get("seeds", 1)) for row in rows] if several else [],
        "JCT mean": plain["JCT mean"],
        f"JCT {level}": [_range(row, "jct_mean", rows) for row in rows] if sure else [],
        f"vs {baseline}": [_change(value) for value in against] if len(rows) > 1 else [],
        f"change {level}": [_change_range(row) for row in rows] if sure_change else [],
        **{name: plain[name] for name in _COLUMNS[3:9]},
        "CPUs": [_share(row.get("cpu_utilisation_while_arriving")) for row in rows] if divided else [],
        "memory": [_share(row.get("memory_utilisation_while_arriving")) for row in rows] if divided else [],
        **{name: plain[name] for name in _COLUMNS[9:]},
    }


def _labels(rows: Sequence[Row]) -> list[str]:
    """Return what runs are called, where one has a name; the others by their policy."""
    if not any(row.get("variant") for row in rows):
        return []
    return [str(row.get("variant") or short) for row, short in zip(rows, _policies(rows), strict=True)]


def _policies(rows: Sequence[Row]) -> list[str]:
    return shortened([str(row["policy"]) for row in rows])


def _against(rows: Sequence[Row]) -> tuple[str, list[float | None]]:
    """Return the name of the run that the others are compared with, and how far each is from it."""
    names = [str(row.get("variant") or row["policy"]) for row in rows]
    named = next((str(row["baseline"]) for row in rows if row.get("baseline")), "")
    if not named or not all("jct_change" in row for row in rows):
        return "first", changes(rows, "jct_mean_s")
    short = dict(zip(names, shortened(names), strict=True)).get(named, named)
    return "first" if named == names[0] else short, [row["jct_change"] for row in rows]


def _range(row: Row, stem: str, rows: Sequence[Row]) -> str:
    low, high = row.get(f"{stem}_low_s"), row.get(f"{stem}_high_s")
    size = _unit(rows, f"{stem}_s")[1]
    return "–" if low is None or high is None else f"[{low / size:,.2f}, {high / size:,.2f}]"


def _change_range(row: Row) -> str:
    low, high = row.get("jct_change_low"), row.get("jct_change_high")
    return "" if low is None or high is None else f"[{signed(low)}, {signed(high)}]"


def _change(value: float | None, digits: int = 1) -> str:
    """Return a change as a percentage with its sign; what rounds to nothing has none."""
    return "" if value is None else f"{signed(value, digits)} %"


def _cells(row: Row, rows: Sequence[Row]) -> list[Text | str]:
    measured = row.get("measured_jobs", row["jobs"])
    jobs = _count(measured)
    if row["unfinished"]:
        jobs = f"{_count(measured - row['unfinished'])} of {jobs}"
    if measured != row["jobs"]:
        jobs = f"{jobs} of {_count(row['jobs'])}"
    return [
        str(row["policy"]),
        jobs,
        _best(row, rows, "jct_mean_s"),
        in_unit(row["jct_p50_s"], *_unit(rows, "jct_mean_s")),
        in_unit(row["jct_p99_s"], *_unit(rows, "jct_mean_s")),
        _best(row, rows, "wait_mean_s"),
        _whole(row["makespan_s"]),
        _whole(row.get("tail_s")),
        _share(row.get("gpu_utilisation_while_arriving")),
        _share(row["fragmentation_mean"]),
        _count(row["preemptions"]),
        _count(row["migrations"]),
        f"{row['lost_gpu_hours']:,.1f}",
        f"{row['jobs_per_s']:,.0f}",
    ]


def _count(value: float) -> str:
    """Return a number of things; a mean over seeds need not be whole."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _best(row: Row, rows: Sequence[Row], key: str) -> Text:
    values = [other[key] for other in rows if other[key] is not None]
    best = len(rows) > 1 and row[key] is not None and row[key] == min(values)
    return Text(in_unit(row[key], *_unit(rows, key)), style="bold green" if best else "")


def _unit(rows: Sequence[Row], key: str) -> tuple[str, int]:
    return time_unit(max((row[key] or 0 for row in rows), default=0))


def _whole(value: float | None) -> str:
    return "–" if value is None else format_duration(seconds(float(value)))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def check_groups(groups: Sequence[str]) -> None:
    """Refuse a group that there is no table for, before anything runs."""
    for group in groups:
        if group not in GROUPS:
            raise ExperimentError(unknown_name("--by", group, GROUPS))


def several(group: str) -> str:
    """Return the key of the list of members of a group."""
    return "limits" if group == "limit" else MEMBERS[_column(group)]


def _column(group: str) -> str:
    return group.replace("-", "_")


def has_group(rows: Sequence[Row], group: str) -> bool:
    """Return whether the results say anything by this group."""
    return group == "level" or any(row.get(several(group)) for row in rows)


def grouped(rows: Sequence[Row], group: str) -> list[Table]:
    """Return tables with one line a member and one column a run: mean JCT and wait; fragmentation by level, or waiting
    by limit."""
    if group == "level":
        table = _grouped_table("fragmentation, mean over time by level", group, rows)
        for name, values in _levels(rows):
            table.add_row(name, *map(_share, values))
        return [table]
    if group == "limit":
        table = _grouped_table("job-hours waited by limit", group, rows)
        for name, values in _limits(rows):
            table.add_row(name, *(_hours(value, values[0]) for value in values))
        return [table]
    return [_members_table(rows, group, what, key) for what, key in (("JCT", "jct_mean_s"), ("wait", "wait_mean_s"))]


def _grouped_table(title: str, group: str, rows: Sequence[Row], *more: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column(TITLES.get(group.replace("-", "_"), group), no_wrap=True)
    for name in (*more, *shortened([str(row.get("variant") or row["policy"]) for row in rows])):
        table.add_column(name, justify="right")
    return table


def _members_table(rows: Sequence[Row], group: str, what: str, key: str) -> Table:
    """Return the mean of one time by member; the recorded past, where it is known, stands before the runs."""
    past = next((row[RECORDED] for row in rows if row.get(RECORDED)), None)
    before = [] if past is None else [RECORDED]
    title = f"mean {what} by {TITLES.get(group.replace('-', '_'), group)}"
    table = _grouped_table(title, group, rows, "jobs", *before)
    was = {} if past is None else {str(each[_column(group)]): each for each in past[several(group)]}
    for name, jobs, values in _members(rows, group, key):
        first = values[0] if past is None else was.get(name, {}).get(key)
        shown = [_hours(value, first) for value in values]
        table.add_row(name, f"{jobs:,}", *([_hours(first, None)] if before else []), *shown)
    return table


def costs(rows: Sequence[Row]) -> Table:
    """Return GPU-hours, cost and energy by type of GPU, a line a run and type."""
    table = framed(["run", "GPU type"], ["GPU-hours", "cost", "energy"], "what the GPUs that were held cost")
    names = shortened([str(row.get("variant") or row["policy"]) for row in rows])
    for name, row in zip(names, rows, strict=True):
        for each in with_sum(row):
            spent, energy = each.get("cost"), each.get("energy_kwh")
            cells = ("–" if spent is None else f"{spent:,.2f}", "–" if energy is None else f"{energy:,.1f} kWh")
            table.add_row(name, each["gpu_type"], f"{each['gpu_hours']:,.1f}", *cells)
    return table


def _levels(rows: Sequence[Row]) -> Iterator[tuple[str, list[float | None]]]:
    for key in dict.fromkeys(key for row in rows for key in row):
        if key.startswith("fragmentation_") and key != "fragmentation_mean":
            yield key.removeprefix("fragmentation_"), [row.get(key) for row in rows]
    yield "fgd's measure", [row.get("fgd_fragmentation") for row in rows]


def _limits(rows: Sequence[Row]) -> Iterator[tuple[str, list[float | None]]]:
    """Yield the time waited behind each limit in each run, the longest first; throttles of arrays are one."""
    listed = [folded(row.get("limits", ())).items() for row in rows]
    waited = [{name: each["job_hours"] * 3600 for name, each in limits} for limits in listed]
    most = {name: max(each.get(name, 0.0) for each in waited) for limits in waited for name in limits}
    for name in sorted(most, key=lambda name: (-most[name], name)):
        yield name, [each.get(name, 0.0) for each in waited]


def _members(rows: Sequence[Row], group: str, key: str) -> Iterator[tuple[str, int, list[float | None]]]:
    by_name: dict[str, list[Row | None]] = {}
    for position, row in enumerate(rows):
        for member in row.get(several(group), ()):
            by_name.setdefault(str(member[_column(group)]), [None] * len(rows))[position] = member
    for name, members in sorted(by_name.items()):
        jobs = max(member["jobs"] for member in members if member)
        yield name or "(any)", jobs, [member[key] if member else None for member in members]


def _hours(value: float | None, first: float | None) -> str:
    if value is None:
        return "–"
    change = "" if first is None or value is first or not first else f" ({_change(value / first - 1, 0)})"
    return f"{value / 3600:,.2f} h{change}"


def parts() -> list[dict[str, Any]]:
    """Return every part a policy can be made of: kind, name, what it does, its options and their defaults."""
    classes = [
        {
            "kind": kind,
            "name": name,
            "description": (inspect.getdoc(part) or "").partition("\n")[0].replace("``", ""),
            "preempts": bool(getattr(part, "preempts", False)),
            "options": _options(part),
        }
        for kind, table in _PARTS
        for name, part in table.items()
    ]
    terms = [
        {"kind": kind, "name": name, "description": description, "preempts": name == "preempt", "options": {}}
        for kind, name, description in _TERMS
    ]
    return classes + terms


def _options(part: Any) -> dict[str, str]:
    hints = get_type_hints(part.__init__)
    options = {}
    for name, parameter in inspect.signature(part).parameters.items():
        if name in hints and parameter.default is not inspect.Parameter.empty:
            options[name] = registry.written(parameter.default, hints[name])
    return options


def parts_table() -> Table:
    """Return the same for a terminal."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("kind", "name", "what it does", "options (defaults)"):
        table.add_column(name, no_wrap=name in ("kind", "name"))
    before = ""
    for part in parts():
        if before and part["kind"] != before:
            table.add_section()
        options = ", ".join(f"{key}={value}" for key, value in part["options"].items())
        preempts = " Preempts by default." if part["preempts"] and "preempt" not in part["description"] else ""
        kind = part["kind"] if part["kind"] != before else ""
        table.add_row(kind, part["name"], part["description"] + preempts, options)
        before = part["kind"]
    return table
