"""Priorities of requests: who goes first at equal urgency, and no class starves under a policy that respects them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.model.request import Request
from headway.fleet.policies.headway.worker.order import AGEING
from headway.fleet.policies.registry import POLICIES, build
from headway.units import MILLISECOND, SECOND
from tests.fleet.worlds import MB, Run, World, chain, drive, function

TIME = 100 * MILLISECOND
CATALOGUE = Catalogue((), (function("f", 100),), (chain("one", 0),))
FLEET = Fleet((Worker("w", Gpu("T4", 100 * MB), cpus=1),))
RESPECTING = (("headway", True), ("headway", False), ("stagewise", True))
"""Policies that respect priorities, and whether control is central."""
IGNORING = sorted(set(POLICIES) - {"headway", "stagewise"})


def run(name: str, central: bool, requests: tuple[Request, ...], catalogue: Catalogue = CATALOGUE) -> Run:
    policy = build("headway(drop=off)" if name == "headway" else name)
    return drive(policy, World(catalogue, FLEET, requests, central=central))


def begins(done: Run) -> dict[int, int]:
    """When the first task of each request began."""
    ledger = Ledger(done.world.catalogue, done.world.fleet, done.world.requests, done.tape)
    found: dict[int, int] = {}
    for request, batch in zip(ledger.run_request.tolist(), ledger.run_batch.tolist(), strict=True):
        found.setdefault(request, int(ledger.began[batch]))
    return found


@pytest.mark.parametrize("deadline", [0, 60 * SECOND])
@pytest.mark.parametrize(("name", "central"), RESPECTING)
def test_at_equal_urgency_the_higher_priority_goes_first(name: str, central: bool, deadline: int) -> None:
    """Five that come together while the worker is busy, priorities in no order."""
    levels = (0, 0, 3, 1, 0, 2)
    requests = tuple(
        Request(number, 0, MILLISECOND * (number > 0), 0, deadline, priority=level)
        for number, level in enumerate(levels)
    )
    began = begins(run(name, central, requests))
    assert sorted(range(1, 6), key=began.__getitem__) == [2, 5, 3, 1, 4]


@pytest.mark.parametrize(("name", "central"), RESPECTING)
def test_higher_classes_wait_less_where_all_cannot_be_served_at_once(name: str, central: bool) -> None:
    requests = tuple(Request(i, 0, i * 80 * MILLISECOND, 0, priority=3 if i % 4 == 0 else 0) for i in range(80))
    done = run(name, central, requests)
    ledger = Ledger(CATALOGUE, FLEET, requests, done.tape)
    high = ledger.latency[::4].mean()
    assert high < 0.7 * ledger.latency.mean()
    plain = run(name, central, tuple(request._replace(priority=0) for request in requests))
    before = Ledger(CATALOGUE, FLEET, plain.world.requests, plain.tape)
    assert ledger.horizon == before.horizon, "the order of equal tasks does not change when all are done"


@pytest.mark.parametrize("name", IGNORING)
def test_a_policy_that_knows_no_priorities_ignores_them(name: str) -> None:
    requests = tuple(Request(i, 0, i * 30 * MILLISECOND, 0, 20 * SECOND) for i in range(10))
    ranked = tuple(request._replace(priority=request.id % 4) for request in requests)
    plain, other = (drive(build(name), World(CATALOGUE, FLEET, each)) for each in (requests, ranked))
    assert plain.tape.digest == other.tape.digest


def head_start(name: str, central: bool, priority: int) -> int:
    """How much longer a task without priority waits than one of this priority that it still lets go first, at most."""
    path = TIME
    return priority * (path if central else round(AGEING * path))


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Request, ...]:
    """More requests of high priority than the worker can serve, with some of low priority between them."""
    priority = draw(st.integers(1, 4))
    gap = draw(st.sampled_from([20, 50, 90])) * MILLISECOND
    low = draw(st.sets(st.integers(1, 39), min_size=1, max_size=4))
    return tuple(Request(i, 0, i * gap, 0, priority=0 if i in low else priority) for i in range(40))


@pytest.mark.parametrize(("name", "central"), RESPECTING)
@given(requests=crowds())
@settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
def test_no_class_starves_under_endless_requests_of_higher_priority(
    name: str, central: bool, requests: tuple[Request, ...]
) -> None:
    """Whoever came a head start later, whatever its priority, does not go first."""
    done = run(name, central, requests)
    began = begins(done)
    assert len(began) == len(requests)
    highest = max(request.priority for request in requests)
    allowed = head_start(name, central, highest) + TIME  # what runs is not stopped
    for low in (request for request in requests if not request.priority):
        overtook = [r.id for r in requests if r.arrival > low.arrival + allowed and began[r.id] < began[low.id]]
        assert not overtook


def test_a_tape_with_priorities_is_replayed_and_audited() -> None:
    from tests.conformance.serving import check_all

    requests = tuple(Request(i, 0, i * 40 * MILLISECOND, 0, 2 * SECOND + i, priority=i % 3) for i in range(20))
    for name, central in RESPECTING:
        check_all(lambda name=name: build(name), replace(World(CATALOGUE, FLEET, requests), central=central))  # type: ignore[misc]
