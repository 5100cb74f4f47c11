"""Make terminal tables that compare runs of a fleet."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.table import Table
from rich.text import Text

from headway.show.formatting import clipped, dollars, level_of, short_time, signed
from headway.show.names import labels, shortened
from headway.show.terminal import fitted, framed
from headway.units import format_size

Row = Mapping[str, Any]


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}×" if value < 1000 else f"{value:,.0f}×"


def seconds_told(value: float | None) -> str:
    """Return a latency: in milliseconds below ten seconds, with three digits below ten of those."""
    if value is None:
        return ""
    if value < 0.01:
        return short_time(value)
    return f"{1000 * value:,.0f} ms" if value < 10 else f"{value:,.1f} s"


def _short(value: float | None) -> str:
    """Return a time that may be far below a millisecond, with three digits."""
    return seconds_told(value) if value is None or value >= 1 else short_time(value)


def _usd(value: float | None) -> str:
    """Return what 1,000 requests cost."""
    return "" if value is None else f"${dollars(1000 * value, 4 if value < 0.01 else 2)}"


def _rent(value: float | None) -> str:
    return "" if value is None else f"${dollars(value, 4 if value < 0.1 else 2)}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _bytes(value: float | None) -> str:
    return "" if value is None else format_size(round(value))


def change_text(value: float | None) -> str:
    """Return a change with its sign; what rounds to 0 has none."""
    return "" if value is None else f"{signed(value)} %"


def _text(value: str | None) -> str:
    return value or ""


def _mean(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


_COLUMNS: tuple[tuple[str, str, Callable[[Any], str], int], ...] = (
    ("requests", "requests", _count, 0),
    ("measured", "measured", _count, 0),
    ("seeds", "seeds", _count, 0),
    ("slow-down", "slowdown_mean", _ratio, -1),
    ("{level}", "slowdown_mean_range", _text, 0),
    ("vs {baseline}", "slowdown_change", change_text, 0),
    ("p50", "slowdown_p50", _ratio, 0),
    ("p95", "slowdown_p95", _ratio, 0),
    ("latency p50", "latency_p50_s", seconds_told, 0),
    ("p99", "latency_p99_s", seconds_told, 0),
    ("in time", "slo_hit_rate", _share, 1),
    ("first token", "ttft_mean_s", seconds_told, -1),
    ("p99", "ttft_p99_s", seconds_told, 0),
    ("in time", "ttft_hit_rate", _share, 0),
    ("per token", "tpot_mean_s", _short, -1),
    ("p99", "tpot_p99_s", _short, 0),
    ("in time", "tpot_hit_rate", _share, 0),
    ("tokens/s", "output_tokens_per_s", _count, 0),
    ("kv peak", "kv_cache_peak_bytes", _bytes, 0),
    ("cached", "prompt_tokens_cached", _share, 0),
    ("dropped", "dropped_when", _text, 0),
    ("unfinished", "unfinished", _count, 0),
    ("lost tasks", "lost_tasks", _count, 0),
    ("$/1000", "cost_per_request_usd", _usd, -1),
    ("$ vs {baseline}", "cost_change", change_text, 0),
    ("rent", "cost_rent_usd", _rent, 0),
    ("cache hits", "cache_hit_rate", _share, 0),
    ("fetched", "bytes_fetched", _bytes, 0),
    ("cold starts", "cold_starts", _count, 0),
    ("workers used", "workers_used", _count, 0),
    ("GPU use", "gpu_utilisation", _share, 0),
    ("batch", "batch_mean", _mean, 0),
    ("controller", "controller_utilisation", _share, 0),
    ("decision wait", "decision_wait_mean_s", _short, 0),
    ("stale", "stale_actions", _count, 0),
    ("states", "states_evaluated", _count, 0),
    ("tasks/s", "tasks_per_s", _count, 0),
)
"""Heading, key, how it is written, and which end is best: 1 the largest, -1 the smallest, 0 neither."""
_EXPENDABLE = (
    "states_evaluated",
    *("kv_cache_peak_bytes", "prompt_tokens_cached", "tpot_hit_rate", "ttft_hit_rate", "tpot_p99_s", "ttft_p99_s"),
    *("tasks_per_s", "cost_rent_usd", "cold_starts", "bytes_fetched", "batch_mean", "workers_used", "lost_tasks"),
    "gpu_utilisation",
    *("slowdown_p50", "cache_hit_rate", "latency_p50_s", "cost_change", "slowdown_p95", "slowdown_change", "measured"),
    "requests",
)
"""What a narrow terminal does without, the first of them first."""
_NOTHING: Mapping[str, float] = {
    **dict.fromkeys(("unfinished", "lost_tasks", "cold_starts", "bytes_fetched", "states_evaluated"), 0),
    "prompt_tokens_cached": 0,
    "batch_mean": 1,
    "seeds": 1,
}
"""What a column need not say where all runs have it."""
MOST_TENANTS = 20
"""Tenants that a terminal and a page show."""
FORMATS: Mapping[str, Callable[[Any], str]] = {
    **{key: written for _, key, written, _ in _COLUMNS},
    "dropped_of_all": _text,
    "workers_mean": _mean,
}
"""How each number is written, by its key."""


def telling(rows: Sequence[Row], key: str) -> bool:
    """Return whether a column says anything about these runs."""
    return any(row.get(key) is not None and row[key] != _NOTHING.get(key) for row in rows)


def with_texts(row: Row) -> Row:
    """Return the row with some numbers as text: requests dropped of all, and the interval of the mean slow-down.

    Drops are told wherever there are deadlines, though there be none: what is in time is of measured requests alone.
    """
    low, high = row.get("slowdown_mean_low"), row.get("slowdown_mean_high")
    ranged = {} if low is None or high is None else {"slowdown_mean_range": f"[{low:.2f}, {high:.2f}]"}
    told = row.get("dropped") is not None and (row["dropped"] or row.get("slo_hit_rate") is not None)
    if not told:
        return {**row, **ranged}
    early = f", {row['dropped_warmup']:,.0f} in the warm-up" if row.get("dropped_warmup") else ""
    return {**row, **ranged, "dropped_of_all": dropped_of_all(row), "dropped_when": f"{dropped_of_all(row)}{early}"}


def dropped_of_all(row: Row) -> str:
    """Return how many requests were dropped of all that arrived, those of the warm-up among them."""
    return f"{row['dropped']:,.0f} of {row['requests']:,.0f}"


def comparison(rows: Sequence[Row], leave_out: Sequence[str] = ()) -> Table:
    """Return one line a run; the best slow-down, hit rate and cost set off. Columns that nobody has are left out."""
    rows = [with_texts(row) for row in rows]
    names = shortened(labels(rows))
    shown = [column for column in _COLUMNS if telling(rows, column[1]) and column[1] not in leave_out]
    baseline = baseline_name(rows, names)
    first = "variant" if any("variant" in row for row in rows) else "policy"
    filled = {"baseline": baseline, "level": level_of(rows)}
    table = framed([first], [heading.format(**filled) for heading, _, _, _ in shown])
    for name, row in zip(names, rows, strict=True):
        table.add_row(clipped(name), *(_cell(row, rows, *column[1:]) for column in shown))
    return table


def fitting(rows: Sequence[Row], width: int) -> tuple[Table, int]:
    """Return the comparison in so many columns of text, and how many columns of the table were left out for that."""
    rows = [with_texts(row) for row in rows]
    return fitted(partial(comparison, rows), [key for key in _EXPENDABLE if telling(rows, key)], width)


def baseline_name(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return the run that changes are against, by its short name; the first goes without one."""
    whole = labels(rows)
    named = str(rows[0].get("baseline", "")) if rows else ""
    if named in whole:
        return clipped(names[whole.index(named)]) if whole.index(named) else "first"
    return clipped(named) or "first"  # of a sweep: one value of what varies


def _cell(row: Row, rows: Sequence[Row], key: str, written: Callable[[Any], str], best: int) -> Text:
    value = row.get(key)
    if value is None:
        return Text("")
    known = [other[key] for other in rows if other.get(key) is not None]
    is_best = best and len(rows) > 1 and known and value == (max(known) if best > 0 else min(known))
    return Text(written(value), style="bold green" if is_best else "")


def parts(key: str, groups: Sequence[Row]) -> Table:
    """Return one run, a line a graph, class or tenant; of many the ones with the most requests."""
    columns = (
        ("requests", "requests", _count),
        ("measured", "measured", _count),
        ("slow-down", "slowdown_mean", _ratio),
        ("latency p50", "latency_p50_s", seconds_told),
        ("p99" if key != "graph" else "latency p99", "latency_p99_s", seconds_told),
        ("in time", "slo_hit_rate", _share),
        ("dropped", "dropped_when", _text),
        ("$/1000", "cost_per_request_usd", _usd),
    )
    if key == "tenant" and len(groups) > MOST_TENANTS:
        groups = sorted(groups, key=lambda group: -group["requests"])[:MOST_TENANTS]
    rows = [with_texts(group) for group in groups]
    shown = [column for column in columns if any(row.get(column[1]) is not None for row in rows)]
    table = framed([key], [heading for heading, _, _ in shown])
    for row in rows:
        table.add_row(clipped(str(row[key])), *(written(row.get(number)) for _, number, written in shown))
    return table
