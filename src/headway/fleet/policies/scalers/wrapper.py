"""Compose a scaler with any policy: the scaler's actions first, then those of the policy.

The policy knows nothing of it: a worker that is off, starting or draining is down for it. Where requests wait and
nothing is under way, another worker is started whatever the scaler says: the policy may want a configuration that only
fits there. Once all are on, no wake-up is asked for: a policy that lets requests wait for ever is still noticed.
"""

from collections.abc import Iterable, Iterator

from headway.fleet.model.actions import Action, DrainWorker, DropRequest, StartWorker, StopWorker, WakeAt
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.policies.scalers.kinds import Kinds
from headway.fleet.policies.scalers.parts import Scaler, Seen
from headway.fleet.policies.scalers.use import use_of
from headway.fleet.state import power
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Power, WorkerState


class Autoscaled(ServingPolicy):
    """A policy on a fleet that a scaler sizes."""

    name = "autoscaled"

    def __init__(self, policy: ServingPolicy, scaler: Scaler) -> None:
        self.policy = policy
        self.scaler = scaler
        self.name = policy.name  # type: ignore[misc]
        self.central = policy.central  # type: ignore[misc]

    def bind(self, state: ServingState) -> None:
        """Bind scaler and policy; begin without anything seen."""
        self.policy.bind(state)
        scaler = self.scaler
        self._kinds = Kinds(state.catalogue, state.fleet, state.latency, scaler.least, scaler.most)
        scaler.bind(state, self._kinds)
        self._asked_at = self._seen_at = -1
        self._next = 0
        self._busy = self._usable = 0.0
        """Workers busy and usable since the last instant."""
        self._seen = self._nothing(state)
        self._deadlines: dict[int, tuple[int, int]] = {}
        """By open request: its graph and deadline."""
        self._draining: dict[int, None] = {}
        self._rescued: dict[int, None] = {}
        """Workers that were started for requests that waited in vain; they stay until nothing waits."""

    @property
    def states_evaluated(self) -> int:
        """Return what the policy evaluated; scalers do not search."""
        return self.policy.states_evaluated

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Yield the actions of the scaler, where it is time for them, then those of the policy."""
        self._observe(now, state)
        if now >= self._next:
            yield from self._scale(now, state)
        for index in [i for i in self._draining if power.is_drained(state, state.workers[i])]:
            del self._draining[index]
            yield StopWorker(index)
        for action in self.policy.decide(now, state):
            if type(action) is DropRequest and action.request in self._deadlines:
                self._end(action.request, in_time=False)
            yield action
        self._usable = self._busy = 0.0
        for worker in state.workers:
            if worker.up:
                self._usable += 1
                self._busy += use_of(worker, state.catalogue)

    # --- what happened ----------------------------------------------------------------------------------------

    def _nothing(self, state: ServingState) -> Seen:
        graphs = len(state.catalogue.graphs)
        return Seen(0, [0] * graphs, [0] * graphs)

    def _observe(self, now: int, state: ServingState) -> None:
        """Add what happened since the last instant."""
        seen = self._seen
        if self._seen_at >= 0:
            passed = now - self._seen_at
            seen.busy_workers += self._busy * passed
            seen.usable_workers += self._usable * passed
        self._seen_at = now
        for request in state.landed:
            if (rs := state.requests.get(request)) is not None:
                seen.arrived[rs.request.graph] += 1
                self._deadlines[request] = rs.request.graph, rs.request.deadline
        for request, _ in state.ended:
            if request not in state.requests and request in self._deadlines:
                graph, deadline = self._deadlines[request]
                seen.answered[graph] += 1
                self._end(request, in_time=not deadline or now <= deadline)

    def _end(self, request: int, *, in_time: bool) -> None:
        _, deadline = self._deadlines.pop(request)
        if deadline:
            self._seen.ended += 1
            self._seen.missed += not in_time

    # --- what is wanted ---------------------------------------------------------------------------------------

    def _scale(self, now: int, state: ServingState) -> Iterator[Action]:
        """Ask the scaler, start and drain workers, and ask for the next wake-up."""
        changed = False
        if self._asked_at >= 0 and (duration := now - self._asked_at) > 0:
            seen = self._seen
            seen.duration = duration
            seen.busy_workers /= duration
            seen.usable_workers /= duration
            seen.open_tasks = _open_tasks(state)
            workers = state.workers
            rented = [[workers[i] for i in kind.workers if _counts(workers[i])] for kind in self._kinds.kinds]
            seen.rented = [len(of_kind) for of_kind in rented]
            seen.starting = sum(worker.power is Power.STARTING for of_kind in rented for worker in of_kind)
            wanted = self._kinds.bounded(self.scaler.scale(now, state, seen))
            stuck = bool(state.requests) and not any(map(_is_under_way, workers))
            if not _waits(state):
                self._rescued.clear()
            for kind, of_kind, count in zip(self._kinds.kinds, rented, wanted, strict=True):
                for action in self._changes(state, kind.workers, of_kind, count):
                    changed = True
                    yield action
            idle = _idle(state, range(len(workers)))
            if stuck and idle and not changed:
                changed, self._rescued[idle[0]] = True, None
                self._draining.pop(idle[0], None)
                yield StartWorker(idle[0])
            self._seen = self._nothing(state)
        self._asked_at = now
        self._next = now + self.scaler.every
        rescue = bool(state.requests) and bool(_idle(state, range(len(state.workers))))
        if changed or rescue or state.to_come or any(map(_is_under_way, state.workers)):
            yield WakeAt(self._next)

    def _changes(
        self, state: ServingState, all_of_kind: tuple[int, ...], rented: list[WorkerState], wanted: int
    ) -> Iterator[Action]:
        """Yield the starts or stops that bring the workers of a kind to a number."""
        for index in _idle(state, all_of_kind)[: max(0, wanted - len(rented))]:
            self._draining.pop(index, None)
            yield StartWorker(index)
        spare = [worker for worker in rented if worker.id not in self._rescued]
        for worker in sorted(spare, key=_keep)[: max(0, len(rented) - wanted)]:
            if worker.power is Power.STARTING:
                yield StopWorker(worker.id)
            else:
                yield DrainWorker(worker.id)
                self._draining[worker.id] = None


def _idle(state: ServingState, workers: Iterable[int]) -> list[int]:
    """Return the workers that can be started: those that drain first, for they need no time."""
    able = [i for i in workers if state.workers[i].power in (Power.DRAINING, Power.OFF)]
    return sorted(able, key=lambda index: state.workers[index].power is Power.OFF)


def _counts(worker: WorkerState) -> bool:
    """Return whether a worker is rented and can be used, now or once it has started; a failed one cannot."""
    return worker.up or worker.power is Power.STARTING


def _keep(worker: WorkerState) -> tuple[bool, int, int]:
    """Return the order in which workers are given up: starting ones, then those with the fewest tasks."""
    tasks = len(worker.running) + len(worker.queue) + len(worker.sent)
    return worker.up, tasks, -worker.id


def _is_under_way(worker: WorkerState) -> bool:
    return bool(worker.power is Power.STARTING or worker.running or worker.starting or worker.fetches or worker.sent)


def _waits(state: ServingState) -> int:
    """Return how many tasks could run now and do not."""
    queued = sum(len(worker.queue) for worker in state.workers)
    return queued + sum(len(requests) for requests in state.ready.values())


def _open_tasks(state: ServingState) -> int:
    """Return how many tasks wait for a worker or run."""
    return _waits(state) + sum(len(batch.tasks) for worker in state.workers for batch in worker.running.values())
