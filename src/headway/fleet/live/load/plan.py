"""Draw what is sent to a server under test: when, for which graph, with which input and deadline."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headway.errors import ExperimentError, ServeError, TraceError, unknown_name
from headway.fleet.live.load.arrivals import arrivals_within
from headway.fleet.live.load.sender import Plan, read_inputs
from headway.streams import stream


def plan_of(
    status: Mapping[str, Any],
    graphs: Sequence[str],
    *,
    arrivals: str,
    rate: float | None,
    duration: int,
    seed: int,
    inputs: Sequence[str] = (),
    deadline: int = 0,
    notes: list[str],
) -> Plan:
    """Return the requests of a load; ``status`` is the server's, and ``inputs`` are FILE or GRAPH=FILE."""
    if duration <= 0:
        raise ExperimentError("--duration: longer than nothing, like 60s")
    known: list[str] = list(status.get("graphs", ()))
    for name in graphs:
        if name not in known:
            raise ServeError(unknown_name("graph", name, known))
    chosen = list(dict.fromkeys(graphs)) or known
    times, trace = arrivals_within(arrivals, rate, duration, seed, notes)
    if not len(times):
        raise ExperimentError("no request arrives within --duration: raise --rate, or let it last longer")
    if trace is not None and trace.graphs and not graphs:
        named = list(trace.graphs[: len(times)])
        if unknown := sorted(set(named) - set(known)):
            raise TraceError(f"trace {arrivals}: {unknown_name('graph', unknown[0], known)}")
    else:
        drawn = stream(seed, "load.graphs").integers(len(chosen), size=len(times))
        named = [chosen[number] for number in drawn.tolist()]
    own = status.get("slo_ns", {})
    return Plan(
        np.rint(times).astype(np.int64),
        named,
        {name: _inputs(name, inputs, status.get("examples", {}), notes) for name in dict.fromkeys(named)},
        {name: deadline or int(own.get(name, 0)) for name in dict.fromkeys(named)},
    )


def _named(text: str) -> tuple[str, str]:
    graph, _, path = text.partition("=")
    return graph, path


def _inputs(graph: str, given: Sequence[str], examples: Mapping[str, Any], notes: list[str]) -> list[Any]:
    """Return the inputs of a graph: those of its file, of a file for all, else the example of the application."""
    files = dict(("", text) if "=" not in text else _named(text) for text in given)
    if (path := files.get(graph, files.get(""))) is not None:
        return read_inputs(path)
    if graph in examples:
        return [examples[graph]]
    notes.append(f"graph {graph}: the application has no example and --input is not given: its input is null")
    return [None]
