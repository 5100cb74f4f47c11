"""fast-gshare: replicas with a share of a GPU each, scaled by the rate of their function (FaST-GShare, ICPP 2023).

Each stage of a pipeline is a function with its own deadline: its share of the request's, by mean service time. Every
10 s its rate is compared with what its pods can serve, and pods are added or removed (``planner``). They are placed by
maximal rectangles (``rectangles``, ``pods``). A pod takes a batch when enough tasks wait, or when the first has waited
for what its budget leaves. Nothing is known of other stages, of queues or of the deadline as a whole.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from typing import Any, ClassVar

from headway.errors import ExperimentError
from headway.fleet.model.actions import Action, RunBatch, StopInstance, WakeAt
from headway.fleet.policies.central.forming import Key, Wakes
from headway.fleet.policies.central.fronts import NEVER, options_on
from headway.fleet.policies.central.pool import fits
from headway.fleet.policies.central.processes import start
from headway.fleet.policies.esg.stagewise import shares_by_mean
from headway.fleet.policies.fast_gshare.planner import (
    Share,
    in_time,
    most_efficient,
    scale_down,
    scale_up,
    shares_of,
    with_cpus_by_slice,
)
from headway.fleet.policies.fast_gshare.pods import Pod, Pods
from headway.fleet.policies.options import check_choice, check_durations, check_least
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.requeststate import READY
from headway.fleet.state.state import ServingState
from headway.units import SECOND, Duration

ANY, SHARE = "any", "share"
EVERY = Duration(10 * SECOND)


@dataclass(eq=False)
class FastGshare(ServingPolicy):
    """Scales the pods of each stage by its rate, and serves it with them alone."""

    name = "fast-gshare"
    central = True
    authors: ClassVar[dict[str, Any]] = {"band": 0.2, "residual": False}
    """As in the published autoscaler."""
    every: Duration = EVERY
    band: float = 0.0
    residual: bool = True
    wait: bool = True
    cpus: str = SHARE
    least: int = field(default=1, kw_only=True)
    prewarm: bool = field(default=True, kw_only=True)
    states_evaluated: int = field(default=0, init=False)
    """Shares that were looked at for new pods since ``bind``."""

    def __post_init__(self) -> None:
        """Raise for an option that makes no sense."""
        check_least(self, {"band": 0, "least": 0})
        check_durations(self, "every")
        check_choice(self, "cpus", SHARE, ANY)

    def bind(self, state: ServingState) -> None:
        """Compute the shares of all functions and the budgets of all stages; start without pods."""
        self._pods = Pods(state)
        self.states_evaluated = 0
        options = [options_on(state, function) for function in range(len(state.catalogue.functions))]
        self._budgets = shares_by_mean(state, options)
        """By graph and task: the part of the deadline."""
        rate = Fraction(sum(w.worker.cpus for w in state.workers), sum(w.worker.gpu.slices for w in state.workers))
        self._shares: list[tuple[Share, ...]] = []
        for function, known in enumerate(options):
            cells = {o.configuration: o.time for o in known if self._pods.is_possible(function, o.configuration)}
            kind = state.catalogue.functions[function]
            if kind.generate is not None and not all(cell.slices for cell in cells):
                raise ExperimentError(
                    f"function {kind.name}: takes no slices, and {self.name} places pods by their slices; give it some "
                    "(generate.slices), or take another policy"
                )
            if not cells:
                raise ExperimentError(f"function {kind.name}: no worker can hold any of its configurations")
            self._shares.append(shares_of(cells if self.cpus == ANY else with_cpus_by_slice(cells, rate)))
        self._arrived: Counter[Key] = Counter()
        """Tasks that became ready since the last look at the rates."""
        self._deadlines: dict[int, int] = {}
        """By graph: the least time from arrival to deadline, of the last interval that had any."""
        self._fresh_deadlines: dict[int, int] = {}
        self._next_look = 0
        self._wakes: Wakes[Key] = Wakes()

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Scale when it is time; serve each stage with its pods, the stage that waits longest first."""
        self._wakes.due(now)  # every stage is looked at anyway
        new_graphs = self._count(state)
        yield from self._clear(state)
        if self._next_look and now >= self._next_look:
            yield from self._scale(now, state)
        if not self._next_look and state.requests:
            self._next_look = now - now % self.every + self.every
            yield WakeAt(self._next_look)
        if self.prewarm:
            for graph in new_graphs:
                for task in range(len(state.catalogue.graphs[graph].tasks)):
                    if not self._pods.by_stage.get((graph, task)):
                        yield from self._add(now, state, (graph, task), self._best((graph, task), state))
        heads = sorted((next(iter(ready.values())), key) for key, ready in state.ready.items() if ready)
        for since, key in heads:
            if not self._pods.by_stage.get(key):
                yield from self._deploy(now, state, key, since)
            yield from self._serve(now, state, key)

    def _count(self, state: ServingState) -> list[int]:
        """Count what became ready, and note deadlines; return the graphs whose requests are the first."""
        ready: set[tuple[int, int]] = set()
        new: dict[int, None] = {}
        for request in state.landed:
            rs = state.requests[request]
            ready.update((request, task) for task in rs.graph.entries)
            graph, deadline = rs.request.graph, rs.request.deadline - rs.request.arrival
            if not self._pods.by_stage.get((graph, rs.graph.entries[0])):
                new[graph] = None
            if rs.request.deadline:
                self._fresh_deadlines[graph] = min(deadline, self._fresh_deadlines.get(graph, deadline))
        for request, task in state.ended:
            if (open_request := state.requests.get(request)) is not None:
                successors = open_request.graph.successors[task]
                ready.update((request, after) for after in successors if open_request.stage[after] is READY)
        self._arrived.update((state.requests[request].request.graph, task) for request, task in ready)
        return list(new)

    # --- number of pods ---------------------------------------------------------------------------------------

    def _scale(self, now: int, state: ServingState) -> Iterator[Action]:
        """Compare each stage's rate with its pods' throughput; add or remove pods."""
        self._deadlines.update(self._fresh_deadlines)
        stages = sorted(self._pods.by_stage.keys() | self._arrived.keys())
        for key in stages:  # first what is too much: it makes room
            missing, dead = self._missing(key)
            if missing < -dead:
                least = max(self.least, 1) if state.ready.get(key) else self.least
                yield from self._remove(state, self._pods.by_stage[key], -missing, least)
        for key in stages:
            missing, dead = self._missing(key)
            if missing > dead:
                for share, count in scale_up(self._in_time(key, state), missing, residual=self.residual):
                    yield from self._add(now, state, key, share, count)
        idle = not state.requests and all(len(pods) <= self.least for pods in self._pods.by_stage.values())
        self._next_look = 0 if idle else now - now % self.every + self.every
        if not idle:
            yield WakeAt(self._next_look)
        self._arrived.clear()
        self._fresh_deadlines.clear()

    def _missing(self, key: Key) -> tuple[Fraction, Fraction]:
        """Return by how much a stage's rate exceeds its pods' throughput, and by how much it may."""
        capacity = sum((pod.share.throughput for pod in self._pods.by_stage.get(key, ())), Fraction())
        return Fraction(self._arrived[key] * SECOND, self.every) - capacity, Fraction(self.band) * capacity

    def _remove(self, state: ServingState, pods: Sequence[Pod], surplus: Fraction, least: int) -> Iterator[Action]:
        """Remove pods for a surplus of throughput; of equal ones those that run nothing first."""
        held = Counter(pod.share for pod in pods)
        for share, count in scale_down(held, surplus, least).items():
            equal = sorted((pod for pod in pods if pod.share == share), key=lambda pod: pod.is_busy(state))
            for pod in equal[:count]:
                self._pods.retire(pod)
        yield from self._clear(state)

    def _clear(self, state: ServingState) -> Iterator[Action]:
        """Remove pods on failed workers, and retired ones whose batch has ended; stop their processes."""
        for worker in state.workers:
            if not worker.up and self._pods.by_worker[worker.id]:
                for pod in [pod for pod in self._pods.by_worker[worker.id] if pod not in self._pods.retiring]:
                    self._pods.retire(pod)
        for pod in [pod for pod in self._pods.retiring if not pod.is_busy(state)]:
            self._pods.remove(pod)
            worker = state.workers[pod.worker]
            surplus = worker.processes(pod.function) > self._pods.processes_wanted(pod.worker, pod.function)
            if surplus and worker.idle.get(pod.function):
                yield StopInstance(pod.worker, pod.function)

    def _add(self, now: int, state: ServingState, key: Key, share: Share, count: int = 1) -> Iterator[Action]:
        """Place pods where they fit best, while they fit anywhere, and start their processes."""
        function = state.catalogue.graphs[key[0]].functions[key[1]]
        for _ in range(count):
            if (found := self._pods.find(function, share, state.workers)) is None:
                return
            pod = self._pods.add(now, key, function, share, found)
            worker = state.workers[pod.worker]
            wanted = self._pods.processes_wanted(pod.worker, function)
            if state.catalogue.functions[function].cold_start and worker.processes(function) < wanted:
                yield from start(state, worker, function)

    def _deploy(self, now: int, state: ServingState, key: Key, since: int) -> Iterator[Action]:
        """Place the first pod of a stage whose tasks wait; where there is no room, in the place of idle pods.

        Those of stages whose tasks have waited longer stay.
        """
        function = state.catalogue.graphs[key[0]].functions[key[1]]
        smallest = min(self._shares[function], key=lambda share: (share.resource, share))
        for share in (self._best(key, state), smallest):
            yield from self._add(now, state, key, share)
            if self._pods.by_stage.get(key):
                return
        for share in (self._best(key, state), smallest):
            victims = [self._victims(state, worker.id, function, share, (since, key)) for worker in state.workers]
            if possible := [pods for pods in victims if pods]:
                for pod in min(possible, key=len):
                    self._pods.retire(pod)
                yield from self._clear(state)
                yield from self._add(now, state, key, share)
                return

    def _victims(
        self, state: ServingState, worker: int, function: int, share: Share, head: tuple[int, Key]
    ) -> list[Pod]:
        """Return idle pods in whose place a pod fits on a worker, least recently used first; none: it does not."""
        victims: list[Pod] = []
        idle = [pod for pod in self._pods.by_worker[worker] if not pod.is_busy(state)]
        for pod in sorted(idle, key=lambda pod: pod.used):
            ready = state.ready.get(pod.stage)
            if not ready or (next(iter(ready.values())), pod.stage) > head:
                victims.append(pod)
                if self._pods.find(function, share, (state.workers[worker],), victims) is not None:
                    return victims
        return []

    def _best(self, key: Key, state: ServingState) -> Share:
        return most_efficient(self._in_time(key, state))

    def _in_time(self, key: Key, state: ServingState) -> list[Share]:
        """Return the shares that meet a stage's budget."""
        graph, task = key
        deadline = self._fresh_deadlines.get(graph) or self._deadlines.get(graph)
        budget = int(self._budgets[graph][task] * deadline) if deadline else NEVER
        shares = self._shares[state.catalogue.graphs[graph].functions[task]]
        self.states_evaluated += len(shares)
        return in_time(shares, budget)

    # --- batches ----------------------------------------------------------------------------------------------

    def _serve(self, now: int, state: ServingState, key: Key) -> Iterator[Action]:
        """Run a batch on each free pod whose batch is full or has waited enough; wake for the next that will have."""
        ready, wake = state.ready[key], NEVER
        kind = state.catalogue.functions[state.catalogue.graphs[key[0]].functions[key[1]]]
        for pod in self._pods.by_stage.get(key, ()):
            if not ready:
                break
            worker = state.workers[pod.worker]
            starting = (
                kind.cold_start and not worker.warm >> pod.function & 1 and pod.function in worker.starting.values()
            )
            if starting or pod.is_busy(state):
                continue
            if len(ready) < pod.share.configuration.batch and (due := self._due(state, key, pod.share)) > now:
                wake = min(wake, due)
            elif (batch := self._batch(state, key, pod, ready)) is not None:
                yield batch
                if state.leases in worker.running:  # else it was refused
                    pod.lease, pod.used = state.leases, now
        if ready and wake < NEVER:
            yield from self._wakes.hold(key, wake)

    def _due(self, state: ServingState, key: Key, share: Share) -> int:
        """Return until when the first task of a stage may wait for others; without a deadline it need not."""
        graph, task = key
        request, since = next(iter(state.ready[key].items()))
        asked = state.requests[request].request
        if not self.wait or not asked.deadline:
            return since
        return since + int(self._budgets[graph][task] * (asked.deadline - asked.arrival)) - share.time

    def _batch(self, state: ServingState, key: Key, pod: Pod, ready: Mapping[int, int]) -> RunBatch | None:
        """Return a batch of the first tasks of a stage on a pod; None: memory or a MIG place is not free now."""
        requests = list(islice(ready, pod.share.configuration.batch))
        cell = pod.sizes[next(size for size in pod.sizes if size >= len(requests))]
        worker = state.workers[pod.worker]
        if worker.slices_free < cell.slices or worker.cpus_free < cell.cpus:
            return None
        evict = fits(state, worker, pod.function, len(requests), cell.cpus, cell.slices)
        if evict is None:
            return None
        return RunBatch(pod.worker, tuple((request, key[1]) for request in requests), cell.cpus, cell.slices, evict)
