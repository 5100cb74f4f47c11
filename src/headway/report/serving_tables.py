"""Runs of a fleet side by side, for a terminal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from headway.report.names import shortened
from headway.units import format_size

Row = Mapping[str, Any]


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}×"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{1000 * value:.0f} ms" if value < 10 else f"{value:.1f} s"


def _usd(value: float | None) -> str:
    return "" if value is None else f"${1000 * value:.4f}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _bytes(value: float | None) -> str:
    return "" if value is None else format_size(round(value))


def _change(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"


_COLUMNS: tuple[tuple[str, str, Callable[[Any], str], int], ...] = (
    ("requests", "requests", _count, 0),
    ("slow-down", "slowdown_mean", _ratio, -1),
    ("p50", "slowdown_p50", _ratio, 0),
    ("p95", "slowdown_p95", _ratio, 0),
    ("latency p50", "latency_p50_s", _seconds, 0),
    ("p99", "latency_p99_s", _seconds, 0),
    ("in time", "slo_hit_rate", _share, 1),
    ("dropped", "dropped", _count, 0),
    ("$/1000", "cost_per_request_usd", _usd, -1),
    ("slow-down against", "slowdown_change", _change, 0),
    ("cost against", "cost_change", _change, 0),
    ("cache hits", "cache_hit_rate", _share, 0),
    ("fetched", "bytes_fetched", _bytes, 0),
    ("workers", "workers_used", _count, 0),
    ("GPU use", "gpu_utilisation", _share, 0),
    ("batch", "batch_mean", lambda value: "" if value is None else f"{value:.2f}", 0),
    ("tasks/s", "tasks_per_s", _count, 0),
)
"""Heading, key, how it is written, and which end is best: 1 the largest, -1 the smallest, 0 neither."""

FORMATS: Mapping[str, Callable[[Any], str]] = {**{key: written for _, key, written, _ in _COLUMNS}, "messages": _count}
"""How each number is written, by its key."""


def comparison(rows: Sequence[Row]) -> Table:
    """One line a run; the best slow-down, hit rate and cost set off. Columns that nobody has are left out."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = [str(row.get("variant") or row["policy"]) for row in rows]
    table.add_column("variant" if any("variant" in row for row in rows) else "policy", no_wrap=True)
    shown = [column for column in _COLUMNS if any(row.get(column[1]) is not None for row in rows)]
    shown = [column for column in shown if column[1] != "dropped" or any(row["dropped"] for row in rows)]
    for heading, key, _, _ in shown:
        baseline = f" {rows[0]['baseline']}" if key.endswith("_change") else ""
        table.add_column(heading + baseline, justify="right", no_wrap=True)
    for name, row in zip(shortened(names), rows, strict=True):
        cells: list[str | Text] = [name]
        for _, key, written, best in shown:
            known = [other[key] for other in rows if other.get(key) is not None]
            value = row.get(key)
            text = written(value)
            is_best = best and len(rows) > 1 and value == (max(known) if best > 0 else min(known))
            cells.append(Text(text, style="bold green") if is_best else text)
        table.add_row(*cells)
    return table


def graphs(row: Row) -> Table:
    """One run, a line a graph."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = (
        ("graph", "graph", str),
        ("requests", "requests", _count),
        ("slow-down", "slowdown_mean", _ratio),
        ("latency p99", "latency_p99_s", _seconds),
        ("in time", "slo_hit_rate", _share),
        ("$/1000", "cost_per_request_usd", _usd),
    )
    for heading, _, _ in columns:
        table.add_column(heading, justify="left" if heading == "graph" else "right", no_wrap=True)
    for each in row.get("graphs", ()):
        table.add_row(*(written(each.get(key)) for _, key, written in columns))
    return table
