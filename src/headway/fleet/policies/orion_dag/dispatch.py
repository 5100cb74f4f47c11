"""Queues, placement and processes of ``orion-dag``: the part of the provider, of which Orion knows nothing.

A bundle that is ready runs on the first worker with an idle process of its function and enough free CPUs, slices and
memory. Where there is none, it waits for a process that is starting ("almost warm"); a new one is started if fewer are
starting than bundles wait. Bundles are served oldest first. One that does not fit is overtaken by others; after
``OVERTAKEN`` one of the workers that can hold it is kept free for it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headway.fleet.model.actions import Action, RunBatch
from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.graph import Graph
from headway.fleet.policies.central.any_worker import SameSpeed, hosts_of
from headway.fleet.policies.central.locality import bytes_to_read
from headway.fleet.policies.central.pool import fits
from headway.fleet.policies.central.processes import least_loaded, start
from headway.fleet.policies.orion_dag.planning import Bundle, Plan
from headway.fleet.state.requeststate import READY, RequestState
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import TaskId, WorkerState
from headway.units import SECOND

OVERTAKEN = SECOND


class Kind(NamedTuple):
    """Bundles of one queue need the same."""

    function: int
    calls: int
    cpus: int
    slices: int


def kind_of(graph: Graph, bundle: Bundle) -> Kind:
    """Return what a bundle needs."""
    _, cpus, slices = bundle.option.configuration
    return Kind(graph.functions[bundle.tasks[0]], len(bundle.tasks), cpus, slices)


class Entry(NamedTuple):
    """A bundle that waits."""

    number: int
    since: int
    request: int
    bundle: Bundle


class Queues:
    """The bundles that are ready, and the processes that they wait for."""

    def __init__(self, *, locality: bool = False) -> None:
        """Begin without bundles. ``locality``: prefer the worker that has to read least."""
        self._locality = locality
        self._queues: dict[Kind, deque[Entry]] = {}
        self._queued: dict[TaskId, None] = {}
        self._number = 0
        self._hosts: dict[Kind, tuple[int, ...]] = {}
        self._speeds = SameSpeed()
        self._kept: dict[Kind, int] = {}
        """Workers that are kept free for the first bundle of a queue."""

    def add(self, now: int, rs: RequestState, plan: Plan, tasks: Iterable[int]) -> None:
        """Queue those of a request's tasks that are ready; a bundle of which only a part is ready as single tasks."""
        request = rs.request.id
        ready = [task for task in tasks if rs.stage[task] is READY and (request, task) not in self._queued]
        for bundle in plan.bundles if ready else ():
            present = tuple(task for task in bundle.tasks if task in ready)
            whole = len(present) == len(bundle.tasks)
            for part in [bundle] if whole else [Bundle((task,), plan.sizes[task]) for task in present]:
                self._number += 1
                self._queues.setdefault(kind_of(rs.graph, part), deque()).append(
                    Entry(self._number, now, request, part)
                )
                self._queued.update(((request, task), None) for task in part.tasks)

    def waiting(self, function: int) -> int:
        """Return how many bundles of a function wait."""
        return sum(len(queue) for kind, queue in self._queues.items() if kind.function == function)

    def serve(self, now: int, state: ServingState) -> Iterator[Action]:
        """Run bundles, oldest first, where they fit; start processes for those that lack one."""
        stuck: set[Kind] = set()
        self._kept = {kind: index for kind, index in self._kept.items() if state.workers[index].up}
        while heads := [(queue[0].number, kind) for kind, queue in self._queues.items() if queue and kind not in stuck]:
            kind = min(heads)[1]
            entry = self._queues[kind][0]
            if not self._is_ready(state, entry):
                self._forget(kind)  # a worker failed: it is queued again when it is ready again
                continue
            room = list(self._room(state, kind))
            needs_process = state.catalogue.functions[kind.function].cold_start
            warm = [place for place in room if not needs_process or place[0].warm >> kind.function & 1]
            if warm:
                tasks = tuple((entry.request, task) for task in entry.bundle.tasks)
                far = bytes_to_read(state, tasks) if self._locality else None
                worker, evict, size = warm[0] if far is None else min(warm, key=lambda place: far[place[0].id])
                self._forget(kind)
                yield RunBatch(worker.id, tasks, size.cpus, size.slices, evict)
                continue
            stuck.add(kind)
            if room:
                missing = self.waiting(kind.function) - self.starting(state, kind)
                for worker in least_loaded(state, [place[0] for place in room], kind.function, missing):
                    yield from start(state, worker, kind.function)
            elif now - entry.since > OVERTAKEN and kind not in self._kept:
                self._keep_one(state, kind)

    def starting(self, state: ServingState, kind: Kind) -> int:
        """Return how many processes that a bundle could use are starting."""
        hosts = [state.workers[index] for index in self.hosts(state, kind)]
        return sum(list(worker.starting.values()).count(kind.function) for worker in hosts if worker.starting)

    def start_ahead(self, state: ServingState, kind: Kind, expected: int) -> Iterator[Action]:
        """Start processes where fewer are idle or starting than bundles wait for one or expect one."""
        hosts = [state.workers[index] for index in self.hosts(state, kind)]
        idle = sum(len(worker.idle.get(kind.function, ())) for worker in hosts)
        missing = expected + self.waiting(kind.function) - idle - self.starting(state, kind)
        for worker in least_loaded(state, [worker for worker in hosts if worker.up], kind.function, missing):
            yield from start(state, worker, kind.function)

    def _keep_one(self, state: ServingState, kind: Kind) -> None:
        """Keep the freest worker that can hold a bundle for it."""
        others = set(self._kept.values())
        free = [state.workers[index] for index in self.hosts(state, kind) if index not in others]
        up = [worker for worker in free if worker.up]
        if up:
            self._kept[kind] = max(up, key=lambda worker: (worker.slices_free, -worker.id)).id

    def hosts(self, state: ServingState, kind: Kind) -> tuple[int, ...]:
        """Return the workers that can run a bundle when they are empty."""
        if (known := self._hosts.get(kind)) is None:
            known = self._hosts[kind] = hosts_of(state, kind.function, Configuration(*kind[1:]))
        return known

    def _room(self, state: ServingState, kind: Kind) -> Iterator[tuple[WorkerState, tuple[int, ...], Configuration]]:
        """Yield the workers where a bundle fits now, the models to evict there, and its size there."""
        function, planned = kind.function, Configuration(*kind[1:])
        kept = {index for other, index in self._kept.items() if other != kind}
        for index in self.hosts(state, kind):
            worker = state.workers[index]
            if index in kept or not worker.up or (planned.slices and not worker.slices_free):
                continue
            size = self._speeds.on(state, index, function, planned)
            if worker.slices_free >= size.slices and worker.cpus_free >= size.cpus:
                evict = fits(state, worker, function, *size)
                if evict is not None:
                    yield worker, evict, size

    def _is_ready(self, state: ServingState, entry: Entry) -> bool:
        rs = state.requests.get(entry.request)
        return rs is not None and all(rs.stage[task] is READY for task in entry.bundle.tasks)

    def _forget(self, kind: Kind) -> None:
        entry = self._queues[kind].popleft()
        self._kept.pop(kind, None)
        for task in entry.bundle.tasks:
            self._queued.pop((entry.request, task), None)
