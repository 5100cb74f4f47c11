"""Make the terminal table of capacity plans: how many workers of which kind are enough, and the best in a sentence."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from headway.units import counted

Row = Mapping[str, Any]
_HEADINGS = ("workers", "in time", "dropped", "latency p99", "GPU use", "$/hour", "$/1000 requests", "one fewer")


def table(rows: Sequence[Row]) -> Table:
    """Return one line a plan."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("worker", no_wrap=True)
    for heading in _HEADINGS:
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        latency, cost, fewer = row["latency_p99_s"], row["cost_per_request_usd"], row["slo_hit_rate_one_fewer"]
        shown.add_row(
            row["worker"],
            f"{row['workers']:,}",
            f"{100 * row['slo_hit_rate']:.1f} %",
            _dropped(row),
            "" if latency is None else f"{1000 * latency:,.0f} ms",
            f"{100 * row['gpu_utilisation']:.0f} %",
            f"{row['cost_hour_usd']:,.2f}",
            "" if cost is None else f"{1000 * cost:.3f}",
            "" if fewer is None else f"{100 * fewer:.1f} % in time",
        )
    return shown


def sentence(rows: Sequence[Row]) -> str:
    """Return the first plan in a sentence, and by how much the next one is dearer."""
    best = rows[0]
    workers = f"{counted(best['workers'], 'worker')} with {best['worker']}"
    in_time = f"{100 * best['slo_hit_rate']:.1f} % in time, {_dropped(best)} dropped"
    told = f"{workers}: {in_time}, at ${best['cost_hour_usd']:,.2f} an hour"
    if len(rows) > 1 and rows[1]["workers"] and best["cost_hour_usd"]:
        more = rows[1]["cost_hour_usd"] / best["cost_hour_usd"] - 1
        told += f"; {rows[1]['gpu']} instead costs {100 * more:.0f} % more"
    return told


def notes(rows: Sequence[Row]) -> list[str]:
    """Return which kinds cannot do it and why, and which drops do not count."""
    lines = [f"note: {row['worker']} cannot do it: {row['why_not']}" for row in rows if row["why_not"]]
    if rows[0]["dropped_at_start"]:
        early = f"{rows[0]['dropped_at_start']:,} of the {rows[0]['dropped']:,} dropped arrived before their functions"
        lines.append(f"note: {early} could have started; they do not count, all others that were dropped do")
    return lines


def _dropped(row: Row) -> str:
    return f"{row['dropped']:,} of {row['requests']:,}"
