"""Every registered serving policy keeps every promise of ``serving.py`` on whatever hypothesis finds.

The tests are parametrised over the registry: a new policy is covered by being registered. Below: tests of the tests,
policies that are broken on purpose, each caught by the check that is there for it.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from headway.errors import InfeasibleActionError, StalledRunError
from headway.fleet.model.actions import Action, DropRequest, PlaceRequest, RunBatch
from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.request import Request
from headway.fleet.policies.compass.worker import LocalQueue
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.policies.registry import POLICIES, build
from headway.fleet.state.requeststate import RequestState
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND, SECOND
from tests.conformance.checks import BrokenPromise
from tests.conformance.serving import Make, check_all, check_blind
from tests.fleet.worlds import MB, World, chain, function, workers, worlds

few = settings(
    max_examples=6,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(world=worlds(outages=False), authors=st.booleans())
@few
def test_every_policy_keeps_its_promises(name: str, world: World, authors: bool) -> None:
    check_all(lambda: build(name, authors=authors), world)


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(world=worlds(outages=True), central=st.sampled_from([None, True]))
@few
def test_every_policy_keeps_its_promises_while_workers_die(name: str, world: World, central: bool | None) -> None:
    check_all(lambda: build(name), replace(world, central=central))


@pytest.mark.parametrize("name", sorted(name for name, policy in POLICIES.items() if not policy.central))
@given(world=worlds(outages=False))
@few
def test_every_policy_keeps_its_promises_under_central_control(name: str, world: World) -> None:
    check_all(lambda: build(name), replace(world, central=True))


CATALOGUE = Catalogue(
    (Model("a", 60 * MB), Model("b", 60 * MB)),
    (function("f", 50, 0), function("g", 80, 1), function("h", 20)),
    (chain("one", 0, 1, 2, bytes_between=3 * MB), chain("two", 1, 2, bytes_between=3 * MB)),
)
BUSY = World(
    CATALOGUE,
    workers(4),
    tuple(Request(index, index % 2, index * MILLISECOND, index % 2) for index in range(4)),
)
HIDDEN = [
    (Request(number, graph, 6 * MILLISECOND, elsewhere), Request(number + 1, 0, 7 * MILLISECOND, here))
    for number, (graph, elsewhere, here) in enumerate(product((0, 1), (1, 2), (0, 3)), 4)
]
"""Requests that land somewhere, and others that land a millisecond later somewhere else."""


@pytest.mark.parametrize("name", sorted(name for name, policy in POLICIES.items() if not policy.central))
def test_a_worker_plans_with_what_was_pushed(name: str) -> None:
    assert looked(lambda: build(name)), "in none of the worlds there was anything to hide"


def looked(make: Make) -> int:
    """In how many worlds something was hidden, and made no difference."""
    return sum(check_blind(make, BUSY, hidden, seen) for hidden, seen in HIDDEN)


# --- tests of the tests -------------------------------------------------------------------------------------------

SMALL = World(
    CATALOGUE,
    workers(2, slices=1),
    tuple(Request(i, i % 2, i * 10 * MILLISECOND, i % 2, 10 * SECOND * (i % 3)) for i in range(8)),
    outages=((1, 90 * MILLISECOND, 200 * MILLISECOND),),
)


class Sound(ServingPolicy):
    """Places tasks in turn, until a subclass breaks it."""

    name = "broken"

    def __init__(self) -> None:
        self.queue = LocalQueue()

    def bind(self, state: ServingState) -> None:
        self.queue.bind(state)

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        for request in (*state.landed, *state.displaced):
            yield PlaceRequest(request, self.plan(state, state.requests[request]))
        for index in list(state.touched):
            yield from self.queue.decide(state, state.workers[index])

    def plan(self, state: ServingState, rs: RequestState) -> tuple[int, ...]:
        up = [worker.id for worker in state.workers if worker.up]
        return tuple(at if at >= 0 else up[(rs.request.id + i) % len(up)] for i, at in enumerate(rs.worker))


def test_the_policy_that_the_broken_ones_are_made_of_is_sound() -> None:
    check_all(Sound, SMALL)


class Overbooks(Sound):
    """Makes no room."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        for action in super().decide(now, state):
            yield RunBatch(action.worker, action.tasks) if isinstance(action, RunBatch) else action


class RunsTwice(Sound):
    """Runs a task again."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        for action in super().decide(now, state):
            yield action
            if isinstance(action, RunBatch):
                yield action


class AsksTheDead(Sound):
    """Places tasks whether a worker is there or not."""

    def plan(self, state: ServingState, rs: RequestState) -> tuple[int, ...]:
        return tuple(1 for _ in rs.stage)


@pytest.mark.parametrize("policy", [Overbooks, RunsTwice, AsksTheDead])
def test_what_cannot_be_done_is_refused(policy: type[Sound]) -> None:
    with pytest.raises(InfeasibleActionError, match="broken at"):
        check_all(policy, SMALL)


class Forgets(Sound):
    """Never places request 3."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        for action in super().decide(now, state):
            if not isinstance(action, PlaceRequest) or action.request != 3:
                yield action


class ForgetsTheDisplaced(Sound):
    """Places what arrives, and never again what a worker took along."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        displaced = set(state.displaced)
        for action in super().decide(now, state):
            if not isinstance(action, PlaceRequest) or action.request not in displaced:
                yield action


@pytest.mark.parametrize("policy", [Forgets, ForgetsTheDisplaced])
def test_a_request_that_is_forgotten_is_found(policy: type[Sound]) -> None:
    with pytest.raises(StalledRunError, match="broken: work is left"):
        check_all(policy, SMALL)


class Mutates(Sound):
    """Says of a queued task that it came later."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        yield from super().decide(now, state)
        if len(state.workers[0].queue) > 1:
            state.workers[0].queue[next(iter(state.workers[0].queue))] += 1


class MutatesMemory(Sound):
    """Pins a model by itself."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        state.workers[0].memory.pins[0] = 1
        yield from super().decide(now, state)


class ReadsAClock(Sound):
    """Asks what time it is."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        time.monotonic()
        yield from super().decide(now, state)


class DropsAll(Sound):
    """Gives up what has all the time in the world."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        for request in state.landed:
            yield DropRequest(request)


class Remembers(Sound):
    """Keeps what it has learnt in the class: the next run begins with it."""

    runs = 0

    def bind(self, state: ServingState) -> None:
        super().bind(state)
        Remembers.runs += 1

    def plan(self, state: ServingState, rs: RequestState) -> tuple[int, ...]:
        plan = super().plan(state, rs)
        return plan if Remembers.runs % 2 or rs.request.id else (0,) * len(plan)


@pytest.mark.parametrize(
    ("policy", "broken"),
    [
        (Mutates, "state untouched"),
        (MutatesMemory, "state untouched"),
        (ReadsAClock, "reads no clock"),
        (DropsAll, "nothing without a deadline is dropped"),
        (Remembers, "repeatable"),
    ],
)
def test_a_broken_promise_is_found_by_name(policy: type[Sound], broken: str) -> None:
    with pytest.raises(BrokenPromise, match=broken):
        check_all(policy, SMALL)


class Peeks(Sound):
    """Places everything where least is queued, as it is and not as it was pushed."""

    def plan(self, state: ServingState, rs: RequestState) -> tuple[int, ...]:
        queued = {worker.id: (len(worker.running) + len(worker.sent), worker.id) for worker in state.workers}
        return tuple(min(queued, key=queued.__getitem__) if at < 0 else at for at in rs.worker)


class LooksAtRows(Sound):
    """The same from the rows that were pushed."""

    def plan(self, state: ServingState, rs: RequestState) -> tuple[int, ...]:
        rows = state.rows(rs.request.ingress, rs.request.arrival)
        queued = {
            index: (row.queued + row.reserved + row.busy_until, index != rs.request.ingress, index)
            for index, row in enumerate(rows)
        }
        return tuple(min(queued, key=queued.__getitem__) if at < 0 else at for at in rs.worker)


def test_a_policy_that_peeks_is_found() -> None:
    with pytest.raises(BrokenPromise, match="blind to what was not pushed"):
        looked(Peeks)
    assert looked(LooksAtRows)
