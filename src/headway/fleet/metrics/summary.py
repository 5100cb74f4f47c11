"""Summary of a serving run: the numbers that a table shows and ``--json`` prints.

Definitions: docs/reference/fleet-metrics.md.

Numbers about requests (latency, slow-down, deadlines, cost of one, cache hits, edges) leave out the warm-up. Numbers
about machines (bytes, utilisation, total cost) are of the whole run.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from headway.core.tape import Tape
from headway.fleet.metrics.controller import controller_numbers
from headway.fleet.metrics.cost import Costs, costs
from headway.fleet.metrics.groups import GroupRows
from headway.fleet.metrics.ledger import BoolArray, Ledger
from headway.fleet.metrics.memory import bytes_fetched, memory_held, prefetches_used
from headway.fleet.metrics.rent import rent_usd, rented_time
from headway.fleet.metrics.tokens import tokens
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import NO_GROUPS, Groups, Request
from headway.fleet.model.rows import Kind
from headway.statistics.series import FloatArray, IntArray, exact_dot
from headway.units import SECOND


def summarise(
    catalogue: Catalogue,
    fleet: Fleet,
    requests: Sequence[Request],
    tape: Tape,
    *,
    latency: LatencyModel,
    warmup: float = 0.1,
    policy: str = "",
    groups: Groups = NO_GROUPS,
) -> dict[str, Any]:
    """Return all numbers of one run, interrupted or not.

    ``warmup``: share of the first requests, not measured. ``groups``: names of classes and tenants.
    """
    ledger = Ledger(catalogue, fleet, requests, tape)
    measured = ledger.arrived.copy()
    measured[: int(warmup * len(requests) + 1e-9)] = False
    ideal = critical_paths(catalogue, latency)
    cost = costs(ledger)
    answered = int(ledger.answered.sum())
    rows = GroupRows(ledger, measured, ideal, cost)
    return {
        "policy": policy,
        "requests": int(ledger.arrived.sum()),
        "measured": int(measured.sum()),
        "completed": answered,
        "dropped": int(ledger.dropped.sum()),
        "dropped_warmup": int((ledger.dropped & ~measured).sum()),
        "unfinished": int((ledger.arrived & (ledger.ended_by == 0)).sum()),
        **_of_requests(ledger, measured, ideal),
        **_of_tasks(ledger, measured),
        **_of_machines(ledger),
        **tokens(ledger, measured),
        "cost_per_request_usd": _paid(ledger, measured, cost),
        "cost_total_usd": cost.total_usd,
        "cost_keepalive_usd": cost.keepalive_usd,
        "cost_fleet_usd": cost.fleet_usd,
        **_of_rent(ledger),
        "makespan_s": ledger.span / SECOND,
        **controller_numbers(ledger, tape),
        "graphs": rows.graphs(),
        **rows.named(groups),
    }


def messages(tape: Tape, pushes: int, workers: int, *, central: bool = False) -> int:
    """Return the number of messages: rows pushed to all other workers or to the planner, and inputs that were sent."""
    kind, value = tape.column("kind"), tape.column("value")
    sent = (kind == Kind.TASK_ARRIVED) | ((kind == Kind.STALE) & (value == Kind.TASK_ARRIVED))
    pulled = (kind == Kind.TASK) & (value > tape.column("time"))
    return pushes * (1 if central else workers - 1) + int(sent.sum()) + int(pulled.sum())


def critical_paths(catalogue: Catalogue, latency: LatencyModel) -> IntArray:
    """Return by graph its critical path at least configurations, each task alone and on its fastest GPU."""
    return np.array([latency.critical_path(graph) for graph in catalogue.graphs], dtype=np.int64)


def _spread(values: FloatArray, *percents: int) -> list[float | None]:
    """Return the mean and some percentiles, which interpolate linearly; None over nothing."""
    if not len(values):
        return [None] * (1 + len(percents))
    return [float(values.mean()), *(float(value) for value in np.percentile(values, percents))]


def _of_requests(ledger: Ledger, measured: BoolArray, ideal: IntArray) -> dict[str, Any]:
    done = measured & ledger.answered
    latencies = ledger.latency[done] / SECOND
    slow = ledger.latency[done] / ideal[ledger.graph[done]]
    in_time = done & ((ledger.deadline == 0) | (ledger.end <= ledger.deadline))
    span = ledger.measured_span(measured)
    slow_keys = ("slowdown_mean", "slowdown_p50", "slowdown_p95")
    latency_keys = ("latency_mean_s", "latency_p50_s", "latency_p95_s", "latency_p99_s")
    return {
        **dict(zip(slow_keys, _spread(slow, 50, 95), strict=True)),
        **dict(zip(latency_keys, _spread(latencies, 50, 95, 99), strict=True)),
        "goodput_per_s": int(in_time.sum()) * SECOND / span if span else 0.0,
        "slo_hit_rate": hit_rate(ledger, measured),
    }


def hit_rate(ledger: Ledger, measured: BoolArray) -> float | None:
    """Return the share of requests answered by their deadline; None where none has one.

    Requests that are open when the tape ends, before their deadline, do not count.
    """
    bound = measured & (ledger.deadline > 0)
    bound &= (ledger.ended_by > 0) | (ledger.deadline <= ledger.horizon)
    hits = bound & ledger.answered & (ledger.end <= ledger.deadline)
    return float(hits.sum() / bound.sum()) if bound.any() else None


def _of_rent(ledger: Ledger) -> dict[str, Any]:
    """Return what the workers cost while they were rented, how many that were on average, and hits for a dollar."""
    rented = rented_time(ledger)
    rent = rent_usd(ledger, rented)
    in_time = ledger.answered & ((ledger.deadline == 0) | (ledger.end <= ledger.deadline))
    return {
        "cost_rent_usd": rent,
        "workers_mean": int(rented.sum()) / ledger.span if ledger.span else None,
        "hits_per_usd": int(in_time.sum()) / rent if rent else None,
    }


def _of_tasks(ledger: Ledger, measured: BoolArray) -> dict[str, Any]:
    modelled = np.array([bool(function.models) for function in ledger.catalogue.functions], dtype=np.bool_)
    counted = measured[ledger.run_request] & modelled[ledger.function[ledger.run_batch]]
    hits = counted & (ledger.loads[ledger.run_batch] == 0)
    lost = int(ledger.batch_size[ledger.lost].sum())
    lost += int((ledger.value[ledger.rows(Kind.LOST)] == 1).sum())
    return {
        "cache_hit_rate": float(hits.sum() / counted.sum()) if counted.any() else None,
        "edges_kept": edges_kept(ledger, measured),
        "tasks": int(ledger.batch_size[ledger.finished].sum()),
        "lost_tasks": lost,
        "moves": ledger.count(Kind.MOVE),
        "batch_mean": float(ledger.batch_size.mean()) if len(ledger.batch_size) else None,
        "batch_p50": float(np.median(ledger.batch_size)) if len(ledger.batch_size) else None,
        "batch_max": int(ledger.batch_size.max()) if len(ledger.batch_size) else None,
        "cold_starts": ledger.count(Kind.COLD),
    }


def edges_kept(ledger: Ledger, measured: BoolArray) -> float | None:
    """Return the share of edges of answered requests whose two tasks ran on one worker; None without edges."""
    kept = total = 0
    done = measured & ledger.answered
    for index, graph in enumerate(ledger.catalogue.graphs):
        first = ledger.first_task[:-1][done & (ledger.graph == index)]
        for source, target in graph.edges:
            kept += int((ledger.ran_at[first + source] == ledger.ran_at[first + target]).sum())
            total += len(first)
    return kept / total if total else None


def _of_machines(ledger: Ledger) -> dict[str, Any]:
    workers, span = ledger.fleet.workers, ledger.span
    slices = sum(worker.gpu.slices for worker in workers)
    capacity_bytes = sum(worker.gpu.memory_bytes for worker in workers)
    held = exact_dot(ledger.slices, ledger.batch_end - ledger.began)
    computed = exact_dot(ledger.slices, ledger.batch_end - ledger.computed_from)
    return {
        "bytes_fetched": bytes_fetched(ledger),
        "evictions": ledger.count(Kind.EVICT, Kind.EVICTED),
        "prefetches": ledger.count(Kind.FETCH),
        "prefetches_used": prefetches_used(ledger),
        "workers_used": len(np.unique(ledger.worker)),
        "gpu_utilisation": held / (slices * span) if slices * span else 0.0,
        "effective_gpu_utilisation": computed / (slices * span) if slices * span else 0.0,
        "memory_utilisation": memory_held(ledger).mean(ledger.start, ledger.horizon) / max(capacity_bytes, 1),
    }


def _paid(ledger: Ledger, chosen: BoolArray, cost: Costs) -> float | None:
    """Return the cost of an answered request, with the cost of unanswered ones shared; None where none was answered."""
    answered = int((chosen & ledger.answered).sum())
    return float(cost.requests_usd[chosen].sum()) / answered if answered else None
