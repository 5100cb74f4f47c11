"""Make the terminal tables of a what-if: without and with the changes, by tenant, and the jobs most affected."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from headway.jobs.metrics.groups import GROUPS, TITLES
from headway.show.formatting import signed
from headway.show.terminal import framed
from headway.show.time_unit import in_unit, time_unit
from headway.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND, format_duration, seconds

Row = Mapping[str, Any]
MOST_TENANTS = 40
"""So many have a line in the terminal, those with most jobs; all are in the JSON."""
_LINES = (
    ("JCT mean", "jct_mean_s"),
    ("JCT p50", "jct_p50_s"),
    ("JCT p99", "jct_p99_s"),
    ("wait mean", "wait_mean_s"),
    ("wait p99", "wait_p99_s"),
    ("last job ends at", "end_s"),
    ("GPUs", "gpus"),
    ("GPU use from there on", "gpu_utilisation"),
    ("preemptions", "preemptions"),
    ("moves", "migrations"),
    ("evictions", "evictions"),
    ("node failures", "node_failures"),
    ("ended without a start", "never_started"),
)
_ALWAYS = ("jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s", "wait_p99_s", "end_s", "gpu_utilisation")
"""What has a line even when it is 0 or stays as it was."""


_SHOWN = ((DAY, HOUR), (HOUR, MINUTE), (MINUTE, SECOND), (10 * SECOND, 10 * MILLISECOND), (SECOND, MILLISECOND))
"""From which length on a duration is shown to which unit."""


def tables(difference: Row) -> Iterator[Table]:
    """Yield all of it: the whole, tenants where there are several, jobs that gain and jobs that lose."""
    yield _whole(difference)
    for group, key in GROUPS.items():
        if len(difference.get(key, ())) > 1:
            yield _members(difference, group, key)
    for key, title in (("gain", "jobs that gain most"), ("lose", "jobs that lose most")):
        if difference[key]:
            yield _jobs(difference[key], title)


def _whole(difference: Row) -> Table:
    sure = _range(difference)
    table = framed([""], ["before", "after", "change", *([_level(difference)] if sure else [])])
    before, after = difference["before"], difference["after"]
    for name, key in _LINES:
        if key in _ALWAYS or before[key] != after[key]:
            cells = (_said(key, before[key], before), _said(key, after[key], before))
            changed = _change(difference["change"][key], less_is_better=key.endswith("_s"))
            table.add_row(name, *cells, changed, *([sure] if sure and key == "jct_mean_s" else []))
    return table


def _level(difference: Row) -> str:
    """Return the confidence level of the intervals as the head of their column."""
    return f"{100 * (difference['confidence'] or 0):.4g} %"


def _range(row: Row) -> str:
    """Return where the change of the mean JCT lies; empty where there is no saying."""
    low, high = row["jct_change_low"], row["jct_change_high"]
    return "" if low is None or high is None else f"[{signed(low)}, {signed(high)}]"


def _duration(value_s: float | None) -> str:
    """Return a duration rounded to the unit that is shown; a dash where there is none."""
    if value_s is None:
        return "–"
    time = seconds(float(value_s))
    unit = next((unit for least, unit in _SHOWN if time >= least), 1)
    return format_duration((time + unit // 2) // unit * unit)


def _said(key: str, value: float | None, before: Row) -> str:
    if value is None:
        return "–"
    if key == "end_s":
        return _duration(value)
    if key == "gpu_utilisation":
        return f"{100 * value:.1f} %"
    return in_unit(value, *time_unit(before[key] or 0)) if key.endswith("_s") else f"{value:,}"


def _members(difference: Row, group: str, key: str) -> Table:
    rows: Sequence[Row] = difference[key]
    most = sorted(rows, key=lambda row: -int(row["jobs"] + row["left_out"]))[:MOST_TENANTS]
    shown = sorted(most, key=lambda row: str(row[group]))
    more = f", the {MOST_TENANTS} of {len(rows)} with most jobs" if len(rows) > MOST_TENANTS else ""
    sure = any(_range(row) for row in shown)
    of_jct = ["JCT before", "after", "change", *([_level(difference)] if sure else [])]
    gone = ["never run"] if any(row["left_out"] for row in shown) else []
    heads = ["jobs", *gone, *of_jct, "wait before", "after", "change"]
    called = TITLES.get(group, group)
    table = framed([called], heads, f"by {called}{more}")
    units = {time: time_unit(max((row[f"{time}_before_s"] or 0) for row in shown)) for time in ("jct", "wait")}
    for row in shown:
        cells: list[str | Text] = [
            str(row[group]) or "(any)",
            f"{row['jobs']:,}",
            *([f"{row['left_out']:,}"] if gone else []),
        ]
        for time, unit in units.items():
            cells += [in_unit(row[f"{time}_before_s"], *unit), in_unit(row[f"{time}_after_s"], *unit)]
            cells.append(_change(row[f"{time}_change"], less_is_better=True))
            cells += [_range(row)] if sure and time == "jct" else []
        table.add_row(*cells)
    return table


def _jobs(rows: Sequence[Row], title: str) -> Table:
    table = framed(["job", "tenant"], ["GPUs", "JCT before", "after", "difference"], title)
    for row in rows:
        before, after = row["jct_before_s"], row["jct_after_s"]
        if row["never_runs"]:
            differs = Text("never runs", "red")
        else:
            sign, style = ("-", "green") if after < before else ("+", "red")
            differs = Text(sign + _duration(abs(after - before)), style)
        table.add_row(
            str(row["job"]), str(row["tenant"]), f"{row['gpus']:g}", _duration(before), _duration(after), differs
        )
    return table


def _change(value: float | None, *, less_is_better: bool) -> Text:
    if value is None:
        return Text("")
    text = signed(value)
    coloured = less_is_better and float(text) != 0
    return Text(f"{text} %", style=("green" if value < 0 else "red") if coloured else "")
