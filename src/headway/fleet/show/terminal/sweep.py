"""Make the table of a sweep over fleets with deadlines: requests in time and their cost, with intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from headway.fleet.show.terminal.ranking import NEAR_COST, NEAR_HITS, best
from headway.show.formatting import clipped, dollars
from headway.show.terminal import framed
from headway.units import counted

Row = Mapping[str, Any]
POLICY = "policy.name"
Groups = dict[tuple[str, ...], list[Row]]


def pivot(rows: Sequence[Row], across: str) -> Table | None:
    """Return a line for each combination of the other keys and value of ``across``; the best of each set off.

    None: nothing is compared, nothing else varies, or there are no deadlines.
    """
    others = [key for key in rows[0]["values"] if key != across]
    if not across or not others or not any(row.get("slo_hit_rate") is not None for row in rows):
        return None
    level = next((row["confidence"] for row in rows if row.get("confidence")), None)
    interval = f" [{100 * level:.4g} % interval]" if level else ""
    names = [key.rpartition(".")[2] for key in (*others, "policy" if across == POLICY else across)]
    table = framed(names, [f"in time{interval}", f"$/1000{interval}", "dropped", "best"])
    for values, group in _groups(rows, across).items():
        chosen = best(group) if len(group) > 1 else []
        for row in group:
            is_best = any(row is other for other in chosen)
            cells = (_hits(row), _usd(row), f"{row.get('dropped') or 0:,.0f}", "best" if is_best else "")
            style = "bold green" if is_best else ""
            table.add_row(
                *map(clipped, (*values, str(row["values"][across]))), *(Text(cell, style=style) for cell in cells)
            )
    return table


def remarks(rows: Sequence[Row]) -> list[str]:
    """Return which values of the compared key are best in how many combinations of the others; with deadlines only."""
    across = POLICY
    if not rows or across not in rows[0]["values"] or not any(row.get("slo_hit_rate") is not None for row in rows):
        return []
    groups = [group for group in _groups(rows, across).values() if len(group) > 1]
    counts: dict[str, int] = {}
    for group in groups:
        for row in best(group):
            counts[str(row["values"][across])] = counts.get(str(row["values"][across]), 0) + 1
    if not counts:
        return []
    told = ", ".join(f"{name} in {counts[name]:,}" for name in sorted(counts, key=lambda name: -counts[name]))
    rule = f"most in time (within {100 * NEAR_HITS:g} points), then cheapest (within {100 * NEAR_COST - 100:g} %)"
    return [f"best of {counted(len(groups), 'combination')}: {told}; {rule}"]


def _groups(rows: Sequence[Row], across: str) -> Groups:
    """Return the rows by the values of the other keys."""
    groups: Groups = {}
    for row in rows:
        groups.setdefault(tuple(str(value) for key, value in row["values"].items() if key != across), []).append(row)
    return groups


def _hits(row: Row) -> str:
    """Return the share in time, and its interval within what a share can be."""
    if row.get("slo_hit_rate") is None:
        return "–"
    low, high = row.get("slo_hit_rate_low"), row.get("slo_hit_rate_high")
    text = f"{100 * row['slo_hit_rate']:.2f} %"
    return text if low is None or high is None else f"{text} [{100 * max(low, 0):.2f}, {100 * min(high, 1):.2f}]"


def _usd(row: Row) -> str:
    """Return what 1,000 requests cost, and its interval."""
    if row.get("cost_per_request_usd") is None:
        return "–"
    low, high = row.get("cost_per_request_usd_low"), row.get("cost_per_request_usd_high")
    text = dollars(1000 * row["cost_per_request_usd"], 4)
    return (
        text if low is None or high is None else f"{text} [{dollars(1000 * max(low, 0), 4)}, {dollars(1000 * high, 4)}]"
    )
