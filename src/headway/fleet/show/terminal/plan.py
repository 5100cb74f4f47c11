"""Make the terminal table of capacity plans: how many workers of which kind are enough, and the best in a sentence."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from headway.fleet.show.terminal.comparison import seconds_told
from headway.show.formatting import dollars
from headway.show.terminal import framed
from headway.units import counted

Row = Mapping[str, Any]
_HEADINGS = ("workers", "in time", "dropped", "latency p99", "GPU use", "$/hour", "$/1000 requests", "one fewer")


def of_policies(rows: Sequence[Row]) -> list[Table | str]:
    """Return the table of all plans that are enough, and a line on each policy that has none."""
    enough = [row for row in rows if row["workers"]]
    policies = dict.fromkeys(row["policy"] for row in rows)
    if len(policies) == 1:
        return [table(enough)]
    none = [policy for policy in policies if policy not in {row["policy"] for row in enough}]
    return [
        table(enough, several=True),
        *(f"{policy}: no number of workers that was tried is enough" for policy in none),
    ]


def table(rows: Sequence[Row], *, several: bool = False) -> Table:
    """Return one line a plan; of several policies, with their names and slow-downs."""
    slow = ["slow-down mean", "p95"] if several else []
    shown = framed([*(["policy"] if several else []), "worker"], [*_HEADINGS[:2], *slow, *_HEADINGS[2:]])
    for row in rows:
        latency, cost, fewer = row["latency_p99_s"], row["cost_per_request_usd"], row["slo_hit_rate_one_fewer"]
        slowdowns = [_times(row["slowdown_mean"]), _times(row["slowdown_p95"])] if several else []
        shown.add_row(
            *([row["policy"]] if several else []),
            row["worker"],
            f"{row['workers']:,}",
            f"{100 * row['slo_hit_rate']:.1f} %",
            *slowdowns,
            _dropped(row),
            seconds_told(latency),
            f"{100 * row['gpu_utilisation']:.0f} %",
            dollars(row["cost_hour_usd"]),
            "" if cost is None else dollars(1000 * cost, 3),
            "" if fewer is None else f"{100 * fewer:.1f} % in time",
        )
    return shown


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}×"


def sentences(rows: Sequence[Row]) -> list[str]:
    """Return the answer: the best plan of one policy, or what each of several needs at least."""
    best: dict[str, Row] = {}
    for row in rows:
        best.setdefault(row["policy"], row)
    if len(best) == 1:
        return [sentence(rows)]
    able = sorted((row for row in best.values() if row["workers"]), key=lambda row: float(row["cost_hour_usd"]))
    first = able[0]
    told = [
        f"{first['policy']} needs {counted(first['workers'], 'worker')}, ${dollars(first['cost_hour_usd'])} an hour"
    ]
    told += [
        f"{row['policy']} {row['workers']:,} ({row['cost_hour_usd'] / first['cost_hour_usd']:.2f} times the cost)"
        for row in able[1:]
    ]
    return ["; ".join(told)]


def sentence(rows: Sequence[Row]) -> str:
    """Return the first plan in a sentence, and by how much the next one is dearer."""
    best = rows[0]
    workers = f"{counted(best['workers'], 'worker')} with {best['worker']}"
    in_time = f"{100 * best['slo_hit_rate']:.1f} % in time, {_dropped(best)} dropped"
    told = f"{workers}: {in_time}, at ${dollars(best['cost_hour_usd'])} an hour"
    if len(rows) > 1 and rows[1]["workers"] and best["cost_hour_usd"]:
        more = rows[1]["cost_hour_usd"] / best["cost_hour_usd"] - 1
        told += f"; {rows[1]['gpu']} instead costs {100 * more:.0f} % more"
    return told


def notes(rows: Sequence[Row]) -> list[str]:
    """Return which kinds cannot do it and why, and which drops do not count."""
    several = len({row["policy"] for row in rows}) > 1
    whose = [f"{row['policy']}, {row['worker']}" if several else row["worker"] for row in rows]
    lines = [
        f"note: {who} cannot do it: {row['why_not']}" for who, row in zip(whose, rows, strict=True) if row["why_not"]
    ]
    if rows[0]["dropped_at_start"]:
        early = f"{rows[0]['dropped_at_start']:,} of the {rows[0]['dropped']:,} dropped arrived before their functions"
        lines.append(f"note: {early} could have started; they do not count, all others that were dropped do")
    return lines


def _dropped(row: Row) -> str:
    return f"{row['dropped']:,} of {row['requests']:,}"
