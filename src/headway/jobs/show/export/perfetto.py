"""Write a run as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: Chrome's trace events as JSON.

A process is a node and a thread one of its GPUs; a slice is a job that holds it. Times are microseconds, with decimals
where the run has nanoseconds. Failures, drains, preemptions and moves are instants, a move also an arrow from where the
job ran to where it went on. The process ``cluster`` carries the counters. Lines are made one at a time: a trace is
never in memory as a whole.
"""

import json
from collections.abc import Callable, Iterator
from itertools import chain, count

import numpy as np

from headway.jobs.metrics.fragmentation import fragmentation
from headway.jobs.metrics.host import at_first
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.timeline import timeline
from headway.jobs.model.rows import FOR_OTHERS, Kind
from headway.jobs.show.export.gpu_lanes import Slots, slots
from headway.show.trace_events import counter, instant, microseconds, named, ordered, whole_file
from headway.statistics.series import IntArray, Series
from headway.units import SECOND, WHOLE_GPU_MILLI

CLUSTER_PID = 1
FIRST_NODE_PID = 2
MOST_POINTS = 20_000
"""Points of a counter; of more the lowest and the highest of each short while stay."""
ENDED = {
    0: "running",
    int(Kind.FINISHED): "finished",
    int(Kind.FAILED): "failed",
    int(Kind.CANCELLED): "cancelled",
    int(Kind.PREEMPT): "preempted",
    int(Kind.REQUEUE): "requeued",
    int(Kind.KILL): "preempted for good",
    int(Kind.EVICTED): "evicted",
    int(Kind.MIGRATE): "moved",
}
_NODE_EVENTS = {
    int(Kind.NODE_FAILED): "node failed",
    int(Kind.NODE_DRAINED): "node drained",
    int(Kind.NODE_RECOVERED): "node back",
}
_TOLD_EVERY = 8192
"""Events between two words on how far it is."""


def trace_events(ledger: Ledger, title: str = "", tell: Callable[[float], None] | None = None) -> Iterator[str]:
    """Yield the file, piece by piece; ``tell`` hears which share of it is made."""
    held = slots(ledger)
    threads = _Threads(ledger, held)
    parts = (
        _names(ledger, threads),
        _slices(ledger, held, threads),
        _moments(ledger, held, threads),
        _counters(ledger),
    )
    nearly_all = len(held.hold) + 2 * len(threads.named)
    for made, piece in enumerate(whole_file(chain.from_iterable(parts), title)):
        yield piece
        if tell is not None and made % _TOLD_EVERY == 1:
            tell(min(1.0, made / nearly_all))


class _Threads:
    """A number of its own for each GPU and lane; those of a node follow one another."""

    def __init__(self, ledger: Ledger, held: Slots) -> None:
        lanes: dict[tuple[int, int], int] = {}
        crowded = held.lane > 0
        for node, gpu, lane in zip(
            held.node[crowded].tolist(), held.gpu[crowded].tolist(), held.lane[crowded].tolist(), strict=True
        ):
            lanes[node, gpu] = max(lanes.get((node, gpu), 0), lane)
        bare = set(held.node[ledger.gpus[ledger.hold_job[held.hold]] == 0].tolist())
        # no thread has the number of a process: viewers take such a one for its main thread and put it first
        numbers = count(FIRST_NODE_PID + len(ledger.cluster.nodes))
        self.first: dict[tuple[int, int], int] = {}
        """The thread of each (node, GPU); those of its other lanes come right after it."""
        self.named: list[tuple[int, int, str]] = []
        """(pid, tid, name)"""
        for node, machine in enumerate(ledger.cluster.nodes):
            for gpu in range(machine.gpus + (node in bare)):
                for lane in range(lanes.get((node, gpu), 0) + 1):
                    tid = next(numbers)
                    self.first.setdefault((node, gpu), tid)
                    name = f"GPU {gpu}" if gpu < machine.gpus else "without GPU"
                    self.named.append((FIRST_NODE_PID + node, tid, f"{name}, {lane + 1}" if lane else name))
            if (node, 0) not in self.first:
                self.first[node, 0] = tid = next(numbers)
                self.named.append((FIRST_NODE_PID + node, tid, "no GPU"))

    def of(self, held: Slots, slot: int) -> tuple[int, int]:
        """Return the process and the thread that a slot is drawn on."""
        node, gpu, lane = int(held.node[slot]), int(held.gpu[slot]), int(held.lane[slot])
        return FIRST_NODE_PID + node, self.first[node, gpu] + lane


def _names(ledger: Ledger, threads: _Threads) -> Iterator[str]:
    yield named("process_name", CLUSTER_PID, 0, "cluster")
    for index, node in enumerate(ledger.cluster.nodes):
        where = " ".join(node.path)
        pid = FIRST_NODE_PID + index
        yield named("process_name", pid, 0, f"{node.name} ({where})" if where else node.name)
        yield ordered("process", pid)
    for pid, tid, name in threads.named:
        yield named("thread_name", pid, tid, name)
        yield ordered("thread", pid, tid)


# --- holds ----------------------------------------------------------------------------------------------------


def waited_before(ledger: Ledger) -> IntArray:
    """Return nanoseconds that its job waited right before each hold; 0 after a move."""
    again = np.append(False, ledger.hold_job[1:] == ledger.hold_job[:-1])[: len(ledger.hold_job)]
    before = np.where(again, np.append(0, ledger.hold_end[:-1])[: len(again)], ledger.submit[ledger.hold_job])
    gap: IntArray = ledger.hold_start - before
    return gap


def _slices(ledger: Ledger, held: Slots, threads: _Threads) -> Iterator[str]:
    describe = _described(ledger)
    start, end = ledger.hold_start.tolist(), ledger.hold_end.tolist()
    told: dict[int, str] = {}
    for hold, node, gpu, lane in zip(
        held.hold.tolist(), held.node.tolist(), held.gpu.tolist(), held.lane.tolist(), strict=True
    ):
        if (rest := told.get(hold)) is None:
            span = f'"ts":{microseconds(start[hold])},"dur":{microseconds(end[hold] - start[hold])}'
            rest = told[hold] = f"{span},{describe(hold)}"
        yield f'{{"ph":"X","cat":"hold","pid":{FIRST_NODE_PID + node},"tid":{threads.first[node, gpu] + lane},{rest}}}'


def _described(ledger: Ledger) -> Callable[[int], str]:
    """Return the name and the arguments of a hold's slices."""
    tenants: dict[str, str] = {}
    job_of, waited = ledger.hold_job.tolist(), waited_before(ledger).tolist()
    still, closed_by = ledger.standstill.tolist(), ledger.hold_closed_by.tolist()
    granted = _granted(ledger)

    def describe(hold: int) -> str:
        job = ledger.jobs[job_of[hold]]
        if (tenant := tenants.get(job.tenant)) is None:
            tenant = tenants[job.tenant] = json.dumps(job.tenant)
        more = f',"standstill_s":{still[hold] / SECOND!r}' if still[hold] else ""
        more += f',"share":{job.gpu_milli / WHOLE_GPU_MILLI!r}' if job.shared else ""
        more += granted.get(hold, "")
        name = json.dumps(f"job {job.name or job.id}")
        return (
            f'"name":{name},"args":{{"job":{job.id},"tenant":{tenant},"gpus":{job.gpus},'
            f'"wait_s":{waited[hold] / SECOND!r},"ended":"{ENDED[closed_by[hold]]}"{more}}}'
        )

    return describe


def _granted(ledger: Ledger) -> dict[int, str]:
    """Return what jobs were given when they started, where the tape says it, as arguments of a slice."""
    given, (cpu_milli, memory_bytes, _) = at_first(ledger)
    holds = np.flatnonzero(given)
    return {
        hold: f',"cpus":{cpu / 1000!r},"memory_gb":{memory / 10**9!r}'
        for hold, cpu, memory in zip(
            holds.tolist(), cpu_milli[holds].tolist(), memory_bytes[holds].tolist(), strict=True
        )
    }


# --- moments --------------------------------------------------------------------------------------------------


def _moments(ledger: Ledger, held: Slots, threads: _Threads) -> Iterator[str]:
    for row in ledger.rows(Kind.NODE_FAILED, Kind.NODE_DRAINED, Kind.NODE_RECOVERED).tolist():
        node = int(ledger.subject[row])
        name = _NODE_EVENTS[int(ledger.kind[row])]
        yield instant(name, "p", int(ledger.time[row]), FIRST_NODE_PID + node, threads.first[node, 0])
    holds, slot_of = np.unique(held.hold, return_index=True)
    first_slot = dict(zip(holds.tolist(), slot_of.tolist(), strict=True))
    kinds = (Kind.MIGRATE, Kind.EVICTED, *FOR_OTHERS)
    for hold in np.flatnonzero(np.isin(ledger.hold_closed_by, [int(kind) for kind in kinds])).tolist():
        if hold not in first_slot:
            continue  # over before any time passed
        time = int(ledger.hold_end[hold])
        pid, tid = threads.of(held, first_slot[hold])
        job = ledger.jobs[int(ledger.hold_job[hold])]
        what = ENDED[int(ledger.hold_closed_by[hold])]
        yield instant(f"job {job.name or job.id} {what}", "t", time, pid, tid)
        if what == "moved" and hold + 1 in first_slot:
            flow = f'"name":"move","cat":"move","id":{int(ledger.hold_lease[hold + 1])}'
            to_pid, to_tid = threads.of(held, first_slot[hold + 1])
            yield f'{{"ph":"s",{flow},"pid":{pid},"tid":{tid},"ts":{microseconds(time - 1)}}}'
            yield f'{{"ph":"f","bp":"e",{flow},"pid":{to_pid},"tid":{to_tid},"ts":{microseconds(time)}}}'


# --- counters -------------------------------------------------------------------------------------------------


def _counters(ledger: Ledger) -> Iterator[str]:
    lines = timeline(ledger)
    shares = fragmentation(ledger)
    for name, what, series in (
        ("queue", "jobs", lines.waiting),
        ("queued for", "GPUs", lines.waiting_gpus),  # viewers put the two words together
        ("allocated", "GPUs", lines.allocated),
        ("in service", "GPUs", lines.gpus_up),
        ("fragmentation", "share", shares.levels["node"]),
        ("CPUs", "in use", lines.cpus),
        ("memory", "GB in use", _giga(lines.memory_bytes)),
        ("storage", "GB/s in use", _giga(lines.storage)),
    ):
        if series is None:
            continue
        for time, value in thinned(series, MOST_POINTS):
            yield counter(name, what, CLUSTER_PID, time, value)


def _giga(series: Series | None) -> Series | None:
    """Return bytes as GB."""
    return None if series is None else Series(series.times, series.values, 10**9)


def thinned(series: Series, most: int) -> Iterator[tuple[int, float]]:
    """Yield a step function's points; of more than ``most`` the lowest and the highest of each run of neighbours."""
    values = series.values / series.unit
    kept = np.arange(len(series))
    if len(series) > most:
        width = -(-2 * len(series) // most)
        edges = range(0, len(series), width)
        lows = [edge + int(np.argmin(values[edge : edge + width])) for edge in edges]
        highs = [edge + int(np.argmax(values[edge : edge + width])) for edge in edges]
        kept = np.unique(np.array([0, *lows, *highs, len(series) - 1]))
    yield from zip(series.times[kept].tolist(), values[kept].tolist(), strict=True)
