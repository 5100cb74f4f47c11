"""What every serving policy and every serving run promises: one check for each, which raises ``BrokenPromise``."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from unittest import mock

from headway.fleet.audit.audit import audit
from headway.fleet.metrics.little import little
from headway.fleet.model.actions import Action
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.digest import digest
from headway.fleet.state.state import ServingState
from headway.units import SECOND
from tests.conformance.checks import CLOCKS, BrokenPromise, promise
from tests.fleet.worlds import Run, Watched, World, drive, first_difference, replay

Make = Callable[[], ServingPolicy]


class Guarded(Watched):
    """Looks at the state whenever the policy hands over, and at when it is asked."""

    def __init__(self, policy: ServingPolicy) -> None:
        super().__init__(policy)
        self.asked = -1

    def decide(self, now: int, state: ServingState) -> Iterable[Action]:
        """The policy's actions; the state must be the same before and after each of its turns."""
        promise("asked once an instant", now > self.asked, f"at {now} after {self.asked}")
        self.asked = now
        return self.bounded(self._turns(now, state))

    def _turns(self, now: int, state: ServingState) -> Iterator[Action]:
        before = digest(state)
        actions = iter(self.policy.decide(now, state))
        while True:
            action = next(actions, None)
            promise("state untouched", digest(state) == before, f"before {action} at {now}")
            if action is None:
                return
            yield action
            before = digest(state)


def check_all(make: Make, world: World) -> Run:
    """Every promise, one after the other."""
    run = drive(make(), world, watch=Guarded)
    check_ends(run)
    check_conserved(run)
    check_audited(run)
    check_little(run)
    check_repeatable(make, run)
    check_replay(make, run)
    return run


def check_ends(run: Run) -> None:
    """Every request is answered or dropped, once; and none that may be answered at leisure is dropped."""
    ended = Counter(row.subject for kind in (Kind.DONE, Kind.DROP) for row in run.rows(kind))
    for request in run.world.requests:
        promise("every request ends once", ended[request.id] == 1, f"request {request.id}: {ended[request.id]} ends")
    for row in run.rows(Kind.DROP):
        deadline = next(request.deadline for request in run.world.requests if request.id == row.subject)
        promise("nothing without a deadline is dropped", deadline, f"request {row.subject}")


def check_conserved(run: Run) -> None:
    """After the run nobody waits, and only what runs for dropped requests, or was fetched ahead, is held."""
    state = run.state
    left = [key for key, requests in state.ready.items() if requests]
    promise("resources conserved", not state.requests and not left, f"left: {list(state.requests)} {left}")
    for worker in state.workers:
        told = f"worker {worker.worker.name}"
        idle = not (
            worker.queue or worker.sent or worker.need_counts or worker.wanted or worker.queued or worker.reserved
        )
        promise(
            "resources conserved", idle, f"{told}: {worker.queue} {worker.sent} {worker.need_counts} {worker.queued}"
        )
        if not worker.up:
            continue
        batches = worker.running.values()
        free = worker.worker.cpus - sum(batch.cpus for batch in batches)
        promise("resources conserved", worker.cpus_free == free, f"{told}: {worker.cpus_free} CPUs are free")
        slices = worker.worker.gpu.slices - sum(batch.slices for batch in batches)
        promise("resources conserved", worker.slices_free == slices, f"{told}: {worker.slices_free} slices are free")
        taken = sum(batch.mask for batch in batches)
        promise("resources conserved", worker.taken == taken, f"{told}: places {worker.taken:b}")
        held = state.catalogue.size_of(worker.memory.resident) + sum(batch.activation_bytes for batch in batches)
        whole = worker.memory.free_bytes + held == worker.worker.gpu.memory_bytes
        promise("resources conserved", whole, f"{told}: {worker.memory.free_bytes} bytes are free, {held} held")
        pins = Counter(model for batch in batches for model in batch.models) + Counter(worker.fetches.values())
        promise("resources conserved", worker.memory.pins == dict(pins), f"{told}: {worker.memory.pins}")


def check_audited(run: Run) -> None:
    """The auditor, who keeps books of its own, finds nothing."""
    world = run.world
    found = audit(world.catalogue, world.fleet, world.requests, run.tape)
    promise("audited", not found, found[:3])


def check_little(run: Run) -> None:
    """Little's law as an identity of integers."""
    world = run.world
    present, stayed = little(world.catalogue, world.fleet, world.requests, run.tape)
    promise("little's law", present == stayed, f"{present} vs {stayed}")
    latencies = sum(row.value for row in run.rows(Kind.DONE))
    given_up = {row.subject: row.time for row in run.rows(Kind.DROP)}
    latencies += sum(given_up[r.id] - r.arrival for r in world.requests if r.id in given_up)
    promise("little's law", stayed == latencies, f"{stayed} vs {latencies}")


def check_repeatable(make: Make, run: Run) -> None:
    """The same world gives the same tape, and no clock is read on the way."""

    def read(*_: object) -> None:
        raise BrokenPromise("reads no clock: time was asked for")

    with ExitStack() as patches:
        for clock in CLOCKS:
            patches.enter_context(mock.patch.object(time, clock, read))
        again = drive(make(), run.world)
    promise("repeatable", again.tape.digest == run.tape.digest, first_difference(run.tape, again.tape))


def check_replay(make: Make, run: Run) -> None:
    """The events of a tape, played to a fresh policy, yield its actions again."""
    world = run.world
    again = replay(
        world.catalogue,
        world.fleet,
        world.requests,
        run.tape,
        make(),
        latency=world.latency(),
        push_interval=world.push_interval,
        central=world.central,
        preloaded=world.preloaded,
    )
    promise("replay identical", again.digest == run.tape.digest, first_difference(run.tape, again))


def check_blind(make: Make, world: World, hidden: Request, seen: Request) -> bool:
    """What happened elsewhere and was not pushed yet changes nothing about where a request is placed.

    Two runs that differ by one request, which lands on another worker shortly before. Whether there was anything to
    see: nothing, where the hidden request had an effect on the worker that plans.
    """
    runs = [
        drive(make(), replace(world, requests=(*world.requests, *last), push_interval=3600 * SECOND))
        for last in ((hidden, seen), (seen,))
    ]
    known = [[row for row in run.tape.until(seen.arrival - 1) if row.place == seen.ingress] for run in runs]
    if known[0] != known[1]:
        return False
    plans = [
        [(row.kind, row.detail, row.place) for row in run.tape if (row.time, row.subject) == (seen.arrival, seen.id)]
        for run in runs
    ]
    told = f"{plans[0]}, and without request {hidden.id} {plans[1]}"
    promise("blind to what was not pushed", plans[0] == plans[1], told)
    return True
