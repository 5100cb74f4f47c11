"""A stage: one task of a graph as INFless sees it, a function with an SLO, a measured rate and instances."""

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from headway.fleet.model.catalogue import Function
from headway.fleet.policies.central.forming import Key
from headway.fleet.policies.infless.dispatch import Dispatch, divide
from headway.fleet.policies.infless.idle import IdleTimes, Windows
from headway.fleet.policies.infless.planner import Planned
from headway.streams import small_stream
from headway.units import SECOND

NO_BATCH = -1


@dataclass(slots=True, eq=False)
class Instance:
    """A process with a batch size, CPUs and slices of its own, and a queue."""

    stage: "Stage"
    plan: Planned
    first: bool
    """Whether it is the one that every stage keeps."""
    mask: int | None
    """Its places on the GPU, as bits; None: it was too large for what was free, and reserves nothing."""
    ready: bool
    """Whether its process has been up; before that the lottery leaves it out."""
    parked: bool = False
    """Whether its process was stopped by the keep-alive."""
    queue: dict[int, int] = field(default_factory=dict)
    """Requests, and since when they are here."""
    start: int = NO_BATCH
    """The lease of its first process."""
    lease: int = NO_BATCH
    """The batch that it runs."""
    idle_rounds: int = 0

    @property
    def due(self) -> int:
        """Return when the batch that forms must run, full or not; its queue must not be empty."""
        return next(iter(self.queue.values())) + self.plan.rates.timeout

    def is_idle(self) -> bool:
        """Return whether nothing runs or waits here."""
        return self.lease == NO_BATCH and not self.queue


class Stage:
    """The instances of one stage, and its requests."""

    def __init__(self, key: Key, function: int, kind: Function, slo: int, seed: int) -> None:
        self.key = key
        self.function = function
        self.kind = kind
        self.slo = slo
        self.instances: list[Instance] = []
        self.backlog: dict[int, None] = {}
        """The queue of the virtual instance: requests that no instance has taken yet, oldest first."""
        self.waiting: set[int] = set()
        """All requests in its queues."""
        self.idle_times = IdleTimes()
        self.idle_since: int | None = None
        """When its last task ended; None: it has some, or had none yet."""
        self._arrivals: deque[int] = deque()
        self._began: int | None = None
        self._lottery: Any = small_stream(seed, f"infless {key[0]}:{key[1]}")
        self._ready: list[Instance] = []
        self._dispatch = Dispatch(())

    def rate(self, now: int, window: int) -> float:
        """Return the requests a second of the last ``window``; of what has passed, if that is less, but a second."""
        arrivals = self._arrivals
        while arrivals and arrivals[0] <= now - window:
            arrivals.popleft()
        began = now if self._began is None else self._began
        return len(arrivals) * SECOND / max(min(SECOND, window), min(window, now - began))

    def update_weights(self, now: int, window: int) -> None:
        """Divide the rate anew over the instances that are up."""
        ready = [instance for instance in self.instances if instance.ready]
        stopped = self._dispatch.stopped if ready == self._ready else None
        self._ready = ready
        self._dispatch = divide(self.rate(now, window), [instance.plan.rates for instance in ready], stopped)

    def has_weight(self, instance: Instance) -> bool:
        """Return whether the lottery may give requests to an instance."""
        return any(w > 0.0 and i is instance for w, i in zip(self._dispatch.weights, self._ready, strict=True))

    def join(self, now: int, request: int) -> Instance | None:
        """Queue a request that became ready; return its instance. None: none takes it."""
        self._arrivals.append(now)
        self._began = now if self._began is None else self._began
        if self.idle_since is not None:
            self.idle_times.add(now, now - self.idle_since)
            self.idle_since = None
        self.waiting.add(request)
        instance = self._draw()
        if instance is None:
            self.backlog[request] = None
        else:
            instance.queue[request] = now
        return instance

    def _draw(self) -> Instance | None:
        weights, excess, _ = self._dispatch
        left = self._lottery.random() * (sum(weights) + excess)
        for instance, weight in zip(self._ready, weights, strict=True):
            if left < weight:
                return instance
            left -= weight
        return self._ready[0] if self._ready and not excess else None

    def fill(self, now: int, instance: Instance, ready: Container[int]) -> None:
        """Complete the next batch of an instance with requests that no instance has taken; drop what is not ready."""
        batch = instance.plan.cell.configuration.batch
        while gone := [request for request in islice(instance.queue, batch) if request not in ready]:
            for request in gone:
                del instance.queue[request]
                self.waiting.discard(request)
        while self.backlog and len(instance.queue) < batch:
            request = next(iter(self.backlog))
            del self.backlog[request]
            if request in ready:
                instance.queue[request] = now
            else:
                self.waiting.discard(request)

    def lose(self, instance: Instance) -> None:
        """Remove an instance whose worker failed; what waited there is first in the backlog."""
        self.instances.remove(instance)
        self.backlog = dict.fromkeys((*instance.queue, *self.backlog))
        instance.queue = {}

    def note_end(self, now: int) -> None:
        """Begin an idle time if nothing runs or waits."""
        if self.idle_since is None and not self.waiting and all(i.lease == NO_BATCH for i in self.instances):
            self.idle_since = now

    def idle_time(self, now: int) -> int:
        """Return for how long nothing has run or waited; 0 where something does."""
        return 0 if self.idle_since is None else now - self.idle_since

    def windows(self, now: int, gamma: float) -> Windows | None:
        """Return when an idle stage should have a process; None: it is not idle, needs none, or is not known yet."""
        if self.idle_since is None or not self.kind.cold_start:
            return None
        return self.idle_times.windows(now, gamma)
