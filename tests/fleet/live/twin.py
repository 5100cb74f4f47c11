"""Stub workers: on a virtual clock they answer orders of a live fleet after the times that its state expects."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from headway.core.clock import VirtualClock
from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.fleet.live.fleet import LiveFleet
from headway.fleet.live.workers.messages import Fetch, Fetched, Finished, Loaded, Order, Run
from headway.fleet.live.workers.payload import Payload
from headway.fleet.model.actions import Action
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.events import Event, WorkerFailed, WorkerRecovered
from headway.fleet.model.fleet import Links
from headway.fleet.model.request import Request
from headway.fleet.policies.registry import build
from headway.fleet.state.state import ServingState
from tests.fleet.worlds import MOST_STEPS, RunawayError, World

NOTHING = Payload(b"")
FREE_LINKS = dict.fromkeys(("within_host", "within_rack", "between_racks"), 1 << 62)


def local(world: World) -> World:
    """The same world on one machine: inputs are there at once, functions need no processes, runs do not vary."""
    functions = [
        replace(each, cold_start=0, profile=replace(each.profile, spread=0.0)) for each in world.catalogue.functions
    ]
    catalogue = Catalogue(world.catalogue.models, tuple(functions), world.catalogue.graphs)
    links = replace(world.fleet.links, latency=0, **FREE_LINKS)
    assert isinstance(links, Links)
    return replace(world, catalogue=catalogue, fleet=replace(world.fleet, links=links))


class Played:
    """A live run on a virtual clock."""

    def __init__(self, policy: str, world: World) -> None:
        self.clock = VirtualClock()
        chosen = build(policy)
        self.state: ServingState = world.state(central=chosen.central)
        chosen.bind(self.state)
        self.fleet = LiveFleet(self.state, self.clock, self._on_order)
        self.ends: dict[int, str] = {}
        """By request: why it has no answer; empty where it has one."""
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        writer = TapeWriter()
        self.scheduler = Scheduler[Event, Action](self.state, chosen, self.fleet, writer, exact=False)
        for request in world.requests:
            self.at(request.arrival, lambda request=request: self._arrive(request))  # type: ignore[misc]
        for worker, when, length in world.outages:
            self.at(when, lambda worker=worker: self.fleet.happen(WorkerFailed(worker)))  # type: ignore[misc]
            self.at(when + length, lambda worker=worker: self.fleet.happen(WorkerRecovered(worker)))  # type: ignore[misc]
        self._writer = writer

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Do something at a time."""
        self._number += 1
        heappush(self._due, (time, self._number, action))

    def run(self) -> Tape:
        """Go from instant to instant until nothing is left to come."""
        for _ in range(MOST_STEPS):
            self.scheduler.drain()
            times = [self._due[0][0]] if self._due else []
            if not self.state.over() and self.fleet.due is not None:
                times.append(self.fleet.due)
            if not times or (not self.state.requests and not self.state.to_come):
                return self._writer.close()
            self.clock.now = min(times)
            while self._due and self._due[0][0] == self.clock.now:
                heappop(self._due)[2]()
        raise RunawayError(f"{MOST_STEPS} steps, and no end")

    def _arrive(self, request: Request) -> None:
        def on_end(results: Sequence[Payload] | None, reason: str, number: int = request.id) -> None:
            assert number not in self.ends, "answered twice"
            assert (results is None) == bool(reason)
            self.ends[number] = reason

        self.fleet.arrive(request, NOTHING, on_end)

    def _on_order(self, worker: int, order: Order) -> None:
        now = self.clock.now
        if isinstance(order, Run):
            batch = self.state.workers[worker].running[order.lease]
            if batch.start > now:
                self.at(batch.start, lambda: self.fleet.on_answer(worker, Loaded(order.lease)))
            done = Finished(order.lease, (NOTHING,) * len(order.inputs), {}, batch.end - batch.start)
            self.at(max(batch.end, now + 1), lambda: self.fleet.on_answer(worker, done))
        elif isinstance(order, Fetch):
            ready = max(self.state.workers[worker].memory.ready[order.model], now + 1)
            self.at(ready, lambda: self.fleet.on_answer(worker, Fetched(order.lease, order.model)))
