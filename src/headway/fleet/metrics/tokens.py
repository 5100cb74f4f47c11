"""Metrics of requests that generate: times to the first token and per output token, tokens a second, and the cache.

Each answered request counts with its last task that generates, in the order of its graph: that is the one whose tokens
its user sees. In a fleet without generating functions there are no such numbers.
"""

from typing import Any, NamedTuple

import numpy as np

from headway.fleet.metrics.ledger import BoolArray, Ledger
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.rows import Kind
from headway.statistics.series import FloatArray, IntArray, joined
from headway.units import SECOND


def generates(catalogue: Catalogue) -> bool:
    """Return whether any function generates."""
    return any(function.generate is not None for function in catalogue.functions)


class TokenTimes(NamedTuple):
    """Times of the tokens of each request, by its place in the workload."""

    seen: BoolArray
    """Whether it was answered, with a first token."""
    several: BoolArray
    """Whether further tokens followed."""
    to_first_s: FloatArray
    """From its arrival to its first token; meaningless where that was not seen."""
    per_token_s: FloatArray
    """Mean time of a further token; meaningless without any."""


def token_times(ledger: Ledger) -> TokenTimes:
    """Return the times to the first token and per further token of all requests."""
    first, end = _first_and_end(ledger)
    seen, further = ledger.answered & (first >= 0), ledger.output_tokens - 1
    each = (end - first) / np.maximum(further, 1) / SECOND
    return TokenTimes(seen, seen & (further > 0), (first - ledger.arrival) / SECOND, each)


def tokens(ledger: Ledger, measured: BoolArray) -> dict[str, Any]:
    """Return the numbers about tokens; empty where no function generates."""
    if not generates(ledger.catalogue):
        return {}
    times = token_times(ledger)
    seen, several = measured & times.seen, measured & times.several
    to_first, each = times.to_first_s, times.per_token_s
    graphs = ledger.catalogue.graphs
    return {
        **_spread("ttft", to_first[seen]),
        **_spread("tpot", each[several]),
        **_all_deadlines(ledger, measured, to_first, each),
        "ttft_hit_rate": _hits(ledger, seen, to_first, [graph.ttft for graph in graphs]),
        "tpot_hit_rate": _hits(ledger, several, each, [graph.tpot for graph in graphs]),
        "output_tokens_per_s": _output(ledger) * SECOND / ledger.span if ledger.span else 0.0,
        "kv_cache_peak_bytes": _cache_peak(ledger),
        "prompt_tokens_cached": _cached(ledger, measured),
    }


def _first_and_end(ledger: Ledger) -> tuple[IntArray, IntArray]:
    """Return by request when its last generating task had its first token, and when it ended; -1 where it did not."""
    functions, graphs = ledger.catalogue.functions, ledger.catalogue.graphs
    last = [
        next((task for task in reversed(graph.order) if functions[graph.functions[task]].generate is not None), -1)
        for graph in graphs
    ]
    rows = ledger.rows(Kind.FIRST_TOKEN)
    requests = ledger.positions(rows)
    shown = ledger.detail[rows] == np.array(last, dtype=np.int64)[ledger.graph[requests]]
    rows, requests = rows[shown], requests[shown]
    first = np.full(len(ledger.graph), -1, dtype=np.int64)
    end = first.copy()
    first[requests] = ledger.time[rows]  # a task that was lost has several: the last counts
    end[requests] = ledger.batch_end[ledger.batch_at(rows)]
    return first, end


def _spread(name: str, values: FloatArray) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys((f"{name}_mean_s", f"{name}_p50_s", f"{name}_p99_s"))
    p50, p99 = np.percentile(values, (50, 99))
    return {f"{name}_mean_s": float(values.mean()), f"{name}_p50_s": float(p50), f"{name}_p99_s": float(p99)}


def _hits(ledger: Ledger, among: BoolArray, values: FloatArray, deadlines: list[int]) -> float | None:
    """Return the share of answered requests within the deadlines of their graphs; None where none has one."""
    limits = (np.array(deadlines, dtype=np.int64) / SECOND)[ledger.graph]
    bound = among & (limits > 0)
    return float((values[bound] <= limits[bound]).mean()) if bound.any() else None


def _all_deadlines(ledger: Ledger, measured: BoolArray, to_first: FloatArray, each: FloatArray) -> dict[str, Any]:
    """Return the share of requests that kept every deadline that they have, and how many a second did.

    Empty where no graph has a deadline for tokens: then the numbers of whole answers say it.
    """
    graphs = ledger.catalogue.graphs
    if not any(graph.ttft or graph.tpot for graph in graphs):
        return {}
    first_limit, each_limit = (
        (np.array(limits, dtype=np.int64) / SECOND)[ledger.graph]
        for limits in ([graph.ttft for graph in graphs], [graph.tpot for graph in graphs])
    )
    bound = measured & (ledger.ended_by > 0) & ((ledger.deadline > 0) | (first_limit > 0) | (each_limit > 0))
    kept = ledger.answered & ((ledger.deadline == 0) | (ledger.end <= ledger.deadline))
    kept &= (first_limit == 0) | (to_first <= first_limit)
    kept &= (each_limit == 0) | (ledger.output_tokens < 2) | (each <= each_limit)
    span = ledger.measured_span(measured)
    return {
        "deadlines_hit_rate": float(kept[bound].mean()) if bound.any() else None,
        "deadlines_goodput_per_s": int((kept & measured).sum()) * SECOND / span if span else 0.0,
    }


def _generating(ledger: Ledger) -> BoolArray:
    """Return whether each batch is of a function that generates."""
    kinds = np.array([function.generate is not None for function in ledger.catalogue.functions], dtype=np.bool_)
    generating: BoolArray = kinds[ledger.function]
    return generating


def _output(ledger: Ledger) -> int:
    """Return the tokens of all tasks that generated and ended."""
    ended = (_generating(ledger) & ledger.finished)[ledger.run_batch]
    return int(ledger.output_tokens[ledger.run_request[ended]].sum())


def _hits_of_batches(ledger: Ledger) -> IntArray:
    """Return by batch how many tokens of its prompt were in the cache."""
    hits = np.zeros(len(ledger.began), dtype=np.int64)
    rows = ledger.rows(Kind.LOADED)
    hits[ledger.batch_at(rows)] = ledger.detail[rows]
    return hits


def _cached(ledger: Ledger, measured: BoolArray) -> float | None:
    """Return the share of prompt tokens of measured requests that were in the cache; None where none was computed."""
    hits = _hits_of_batches(ledger)
    runs = measured[ledger.run_request] & (_generating(ledger) & ledger.finished)[ledger.run_batch]
    prompts = int(ledger.prompt_tokens[ledger.run_request[runs]].sum())
    return float(hits[ledger.run_batch[runs]].sum() / prompts) if prompts else None


def _cache_peak(ledger: Ledger) -> int:
    """Return the most bytes of keys and values that all engines held together."""
    runs = _generating(ledger)[ledger.run_batch]
    batches, requests = ledger.run_batch[runs], ledger.run_request[runs]
    per_token = np.array([f.generate.kv_bytes_per_token if f.generate else 0 for f in ledger.catalogue.functions])
    tokens_held = (ledger.prompt_tokens + ledger.output_tokens)[requests] - _hits_of_batches(ledger)[batches]
    held = per_token[ledger.function[batches]] * tokens_held
    series = joined([ledger.computed_from[batches], ledger.batch_end[batches]], [held, -held])
    return int(series.peak(0, ledger.horizon))
