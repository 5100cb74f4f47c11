"""Several runs side by side: the numbers of each, and how far it is from a baseline. Rows are ready to be printed.

It takes the flat objects that ``--json`` prints, so what a table shows is what a script reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.errors import ExperimentError, unknown_name
from headway.units import SECOND, format_duration

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """One number of a comparison: its key in the flat object, its heading, how it is written, what is better."""

    key: str
    heading: str
    form: str
    """``time`` (seconds), ``percent`` (a share), ``count``, ``hours``, ``factor``."""
    better: str = ""
    """``less``, ``more``, or empty where neither is better."""


COLUMNS = (
    Column("jct_mean_s", "JCT mean", "time", "less"),
    Column("jct_p50_s", "JCT p50", "time", "less"),
    Column("jct_p99_s", "JCT p99", "time", "less"),
    Column("wait_mean_s", "wait mean", "time", "less"),
    Column("ftf_mean", "fairness rho", "factor", "less"),
    Column("makespan_s", "makespan", "time", "less"),
    Column("gpu_utilisation", "GPUs used", "percent", "more"),
    Column("fragmentation_mean", "fragmented", "percent", "less"),
    Column("preemptions", "preempted", "count"),
    Column("migrations", "migrated", "count"),
    Column("lost_gpu_hours", "GPU-hours lost", "hours", "less"),
)
"""What a comparison shows unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run of a comparison."""

    policy: str
    values: dict[str, float | None]
    change: dict[str, float | None]
    """Relative to the baseline: -0.25 is a quarter less. None for the baseline itself, and where it is 0 or unknown."""
    baseline: bool


def compare(
    runs: Sequence[Mapping[str, Value]], baseline: str | None = None, columns: Sequence[Column] = COLUMNS
) -> list[Row]:
    """One row a run, in the order given; the baseline is the first run, or the one with that policy."""
    names = [str(run["policy"]) for run in runs]
    if baseline is not None and baseline not in names:
        raise ExperimentError(unknown_name("baseline", baseline, names))
    position = names.index(baseline) if baseline is not None else 0
    rows = []
    for index, run in enumerate(runs):
        values = {column.key: _number(run, column.key) for column in columns}
        reference = {column.key: _number(runs[position], column.key) for column in columns}
        change = {key: None if index == position else _change(values[key], reference[key]) for key in values}
        rows.append(Row(names[index], values, change, index == position))
    return rows


def best(rows: Sequence[Row], column: Column) -> float | None:
    """The best value in a column; None where neither more nor less is better or nothing is known."""
    known = [value for row in rows if (value := row.values[column.key]) is not None]
    if not known or not column.better:
        return None
    return min(known) if column.better == "less" else max(known)


def printed(rows: Sequence[Row], columns: Sequence[Column] = COLUMNS) -> tuple[list[str], list[list[str]]]:
    """Headings, and one line of texts a row: the value, and in brackets how far it is from the baseline."""
    lines = []
    for row in rows:
        cells = [row.policy]
        for column in columns:
            text = written(row.values[column.key], column.form)
            change = row.change[column.key]
            cells.append(text if change is None else f"{text} ({change * 100:+.1f} %)")
        lines.append(cells)
    return ["policy", *(column.heading for column in columns)], lines


def written(value: float | None, form: str) -> str:
    """A number as a person reads it."""
    if value is None:
        return "–"
    match form:
        case "time":
            return format_duration(round(value * SECOND))
        case "percent":
            return f"{value * 100:.1f} %"
        case "hours":
            return f"{value:,.1f}"
        case "factor":
            return f"{value:.2f}"
        case _:
            return f"{value:,.0f}"


def _number(run: Mapping[str, Value], key: str) -> float | None:
    value = run.get(key)
    return None if value is None or isinstance(value, str) else value


def _change(value: float | None, reference: float | None) -> float | None:
    return None if value is None or not reference else value / reference - 1
