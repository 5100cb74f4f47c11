"""Rank policies that served the same requests: most requests in time first, then least cost."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
NEAR_HITS = 0.002
"""Shares of requests in time that differ by no more than this count as equal."""
NEAR_COST = 1.02
"""So do costs up to this multiple of the least."""


def best(rows: Sequence[Row]) -> list[Row]:
    """Return the best of some rows, the cheapest first: none has clearly more requests in time, or as many for less.

    ``rows``: runs of the same requests under several policies. Those without a number are left out. Without deadlines
    the least mean slow-down is best.
    """
    if not any(row.get("slo_hit_rate") is not None for row in rows):
        known = [row for row in rows if row.get("slowdown_mean") is not None]
        least = min((row["slowdown_mean"] for row in known), default=0.0)
        return [row for row in known if row["slowdown_mean"] == least]
    known = [row for row in rows if row.get("slo_hit_rate") is not None and row.get("cost_per_request_usd") is not None]
    most = max((row["slo_hit_rate"] for row in known), default=0.0)
    near = [row for row in known if row["slo_hit_rate"] >= most - NEAR_HITS - 1e-12]
    cheapest = min((row["cost_per_request_usd"] for row in near), default=0.0)
    chosen = [row for row in near if row["cost_per_request_usd"] <= NEAR_COST * cheapest]
    return sorted(chosen, key=lambda row: row["cost_per_request_usd"])
