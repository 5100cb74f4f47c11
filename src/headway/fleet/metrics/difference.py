"""Compare two runs of a fleet over the same requests: the numbers of both, graph by graph, and who gains and loses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.core.tape import Tape
from headway.fleet.metrics.ledger import BoolArray, Ledger
from headway.fleet.metrics.summary import summarise
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import Request
from headway.statistics.replications import change
from headway.statistics.series import FloatArray
from headway.units import SECOND

KEYS = (
    *("slo_hit_rate", "dropped", "slowdown_mean", "slowdown_p95", "latency_mean_s", "latency_p50_s", "latency_p99_s"),
    *("cache_hit_rate", "cold_starts", "evictions", "gpu_utilisation", "workers_used", "cost_per_request_usd"),
    *("cost_total_usd", "cost_rent_usd", "workers_mean", "makespan_s"),
)
"""Numbers that are told of both runs."""
TOKEN_KEYS = (
    *("ttft_mean_s", "ttft_p50_s", "ttft_p99_s", "ttft_hit_rate", "tpot_mean_s", "tpot_p50_s", "tpot_p99_s"),
    *("tpot_hit_rate", "output_tokens_per_s", "kv_cache_peak_bytes", "prompt_tokens_cached"),
)
"""Those of requests that generate."""
MOST_NAMED = 10
_SMALLEST_S = 1e-6
"""A request is sooner or later by at least so much."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs."""

    catalogue: Catalogue
    fleet: Fleet
    requests: Sequence[Request]
    tape: Tape
    latency: LatencyModel
    warmup: float


def difference(before: Side, after: Side) -> dict[str, Any]:
    """Return the numbers of both runs with the relative change, by graph too, and the requests most affected."""
    sides = {"before": before, "after": after}
    rows = {
        name: summarise(side.catalogue, side.fleet, side.requests, side.tape, latency=side.latency, warmup=side.warmup)
        for name, side in sides.items()
    }
    ledgers = {name: Ledger(side.catalogue, side.fleet, side.requests, side.tape) for name, side in sides.items()}
    both, gains = _gains(ledgers["before"], ledgers["after"], int(before.warmup * len(before.requests) + 1e-9))
    whole = {
        name: {
            "workers": len(sides[name].fleet.workers),
            **{key: row[key] for key in (*KEYS, *TOKEN_KEYS) if key in row},
        }
        for name, row in rows.items()
    }
    order = np.argsort(-gains, kind="stable")
    return {
        "requests": rows["before"]["measured"],
        "completed": int(both.sum()),
        "better": int((gains > _SMALLEST_S).sum()),
        "worse": int((gains < -_SMALLEST_S).sum()),
        **whole,
        "change": {key: change(whole["after"][key], value) for key, value in whole["before"].items()},
        "graphs": _graphs(rows["before"]["graphs"], rows["after"]["graphs"]),
        "gain": [_named(ledgers, int(at)) for at in order[:MOST_NAMED] if gains[at] > _SMALLEST_S],
        "lose": [_named(ledgers, int(at)) for at in order[::-1][:MOST_NAMED] if gains[at] < -_SMALLEST_S],
    }


def _gains(before: Ledger, after: Ledger, skip: int) -> tuple[BoolArray, FloatArray]:
    """Return which measured requests were answered both ways, and by how many seconds each is sooner; 0 for others."""
    both = before.answered & after.answered
    both[:skip] = False
    gains = np.where(both, (before.latency - after.latency) / SECOND, 0.0)
    return both, gains


def _graphs(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = ("slo_hit_rate", "dropped", "slowdown_mean", "latency_p99_s", "cost_per_request_usd")
    return [
        {
            "graph": one["graph"],
            "requests": one["requests"],
            **{f"{key}_before": one[key] for key in keys},
            **{f"{key}_after": other[key] for key in keys},
        }
        for one, other in zip(before, after, strict=True)
        if one["requests"]
    ]


def _named(ledgers: dict[str, Ledger], at: int) -> dict[str, Any]:
    before, after = ledgers["before"], ledgers["after"]
    return {
        "request": at,
        "graph": before.catalogue.graphs[int(before.graph[at])].name,
        "latency_before_s": float(before.latency[at]) / SECOND,
        "latency_after_s": float(after.latency[at]) / SECOND,
    }
