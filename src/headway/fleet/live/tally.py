"""What a server has counted, as it is shown by its status, and what can be told of its workers and requests."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any

from headway.fleet.live.request_counts import percentile
from headway.fleet.live.workers import payload
from headway.fleet.live.workers.messages import Beat
from headway.fleet.live.workers.payload import Payload
from headway.fleet.live.workers.process import Connection
from headway.fleet.model.graph import Graph
from headway.fleet.model.request import Request
from headway.fleet.state.requeststate import DONE, Stage
from headway.fleet.state.state import ServingState
from headway.units import SECOND, format_duration

LATENCIES = 4096
"""The latencies of so many last answers are kept."""
LATE = "late"
"""How the reason of a late request begins."""
_STAGES = {named: named.name.lower() for named in Stage}
_MUCH_LONGER = 10
"""A batch that takes so many times what is usual hangs."""
_RUNS = 256
"""The run times of so many last batches of a function are kept."""


@dataclass
class Tally:
    """What a server has done so far, by graph."""

    accepted: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    in_time: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    latencies: deque[int] = field(default_factory=lambda: deque(maxlen=LATENCIES))
    drift: dict[str, deque[float]] = field(default_factory=dict)
    """By function: what its last batches took over what was expected."""
    worker_ends: Counter[int] = field(default_factory=Counter)

    def note_run(self, function: str, ratio: float) -> None:
        """Note what a batch took over what was expected."""
        self.drift.setdefault(function, deque(maxlen=_RUNS)).append(ratio)

    def patience(self, function: str, expected: int, least: int) -> int:
        """Return how long a batch may take before it hangs; see ``Options.hang_after``."""
        if not (ratios := self.drift.get(function)):
            return _MUCH_LONGER * max(expected, least)
        return max(least, round(_MUCH_LONGER * expected * max(1.0, median(ratios))))

    def shown(self, graphs: Sequence[str]) -> dict[str, Any]:
        """Return the counts of each graph, percentiles of the last latencies, and the drift of each function."""
        latencies, percents = sorted(self.latencies), (50, 90, 99)
        counted = [each.name for each in fields(self) if each.name in _OF_GRAPHS]
        return {
            "graphs": {graph: {key: getattr(self, key)[graph] for key in counted} for graph in graphs},
            "latency_s": {f"p{each}": percentile(latencies, each) / SECOND if latencies else None for each in percents},
            "drift": {function: median(ratios) for function, ratios in self.drift.items()},
        }


_OF_GRAPHS = ("accepted", "answered", "in_time", "late", "refused", "failed")


def status_of_workers(
    state: ServingState, processes: Sequence[Connection], beats: Sequence[Beat]
) -> list[dict[str, Any]]:
    """Return what can be seen of each worker."""
    pairs = zip(processes, beats, strict=True)
    return [_status_of_worker(state, index, process, beat) for index, (process, beat) in enumerate(pairs)]


def _status_of_worker(state: ServingState, index: int, process: Connection, beat: Beat) -> dict[str, Any]:
    worker = state.workers[index]
    return {
        "name": worker.worker.name,
        "up": worker.up and process.hello is not None,
        "pid": process.pid,
        "starts": process.starts,
        "queued": len(worker.queue),
        "running": sum(len(batch.tasks) for batch in worker.running.values()),
        "resident": [state.catalogue.models[model].name for model in worker.memory.order],
        "memory_bytes": worker.worker.gpu.memory_bytes,
        "booked_bytes": worker.memory.capacity_bytes - worker.memory.free_bytes,
        "used_bytes": beat.used_bytes,
        "device_bytes": beat.device_bytes,
    }


def what_is_late(state: ServingState, request: int, now: int) -> str:
    """Return what a late request waits for."""
    if (rs := state.requests.get(request)) is None:
        return f"{LATE}: it was not decided about"
    parts = []
    for task, stage in enumerate(rs.stage):
        if stage not in (DONE, Stage.WAITING):
            where = f" on {state.workers[rs.worker[task]].worker.name}" if rs.worker[task] >= 0 else ""
            since = format_duration(max(0, now - rs.since[task]))
            parts.append(f"{rs.graph.tasks[task].name} is {_STAGES[stage]}{where} for {since}")
    return f"{LATE}: {'; '.join(parts) or 'no task of it can run'}"


def answer_of(graph: Graph, results: Sequence[Payload]) -> Any:
    """Return the result of the last task of a graph; of several last tasks theirs by name."""
    values = [payload.unpack(result) for result in results]
    if len(values) == 1:
        return values[0]
    names = [task.name for task, after in zip(graph.tasks, graph.successors, strict=True) if not after]
    return dict(zip(names, values, strict=True))


def too_short(state: ServingState, request: Request, guesses: str = "") -> str:
    """Return why no fleet like this could answer a request in time, however long one waits; empty: it could.

    ``guesses`` says which times nobody measured.
    """
    allowed, graph = request.deadline - request.arrival, state.catalogue.graphs[request.graph]
    if not request.deadline or allowed >= (least := state.latency.fastest_path(graph)):
        return ""
    takes = f"{graph.name} takes {format_duration(least)} at least"
    known = f" ({guesses})" if guesses else ""
    return f"{LATE}: its deadline of {format_duration(allowed)} cannot be kept: {takes}{known}"


def hung(state: ServingState, now: int, least: int, tally: Tally) -> Iterator[tuple[int, str]]:
    """Yield the workers with a batch that takes longer than one has patience for, and which."""
    for worker in state.workers:
        for batch in worker.running.values():
            name, took = state.catalogue.functions[batch.function].name, now - batch.began
            if took > tally.patience(name, batch.end - batch.began, least):
                yield worker.id, f"hangs in {name} for {format_duration(took)}"
                break
