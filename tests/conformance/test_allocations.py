"""Every registered allocation keeps every promise of ``checks.py``; where it says so, it leaves nobody below their due.

Parametrised over the registry: a new allocation is covered by being registered.
"""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings, strategies as st

from headway.errors import InfeasibleActionError, StalledRunError
from headway.jobs.audit.proportional_share import slower_than_proportional
from headway.jobs.model.actions import Action, ReallocateJob
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.synergy.proportional import Proportional
from headway.jobs.policies.allocations.synergy.tune import Tune
from headway.jobs.policies.backfills.fit import Fit
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.orders.fifo import Fifo
from headway.jobs.policies.parts import Allocation
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.policies.registry import ALLOCATIONS, BACKFILLS, MIGRATIONS, ORDERS, PLACEMENTS, build
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.conformance.checks import BrokenPromise, Make, check_run, check_untouched, promise
from tests.conformance.divided import GIGABYTE, Divided, crowded, divided_specs, divided_worlds, stairs
from tests.drive import Run, RunawayError


def _own(table: dict[str, Any]) -> list[str]:
    """The parts that come with headway; other tests may have registered more."""
    return sorted(name for name, part in table.items() if part.__module__.startswith("headway."))


OWN = [*_own(ALLOCATIONS), "tune(leftovers=true)"]
SEEDS = st.integers(0, 2**32)
few = settings(
    max_examples=15,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)


def check_divided(make: Make, world: Divided) -> Run:
    """Every promise of a policy, and of its allocation."""
    try:
        run = check_untouched(make, world)
    except RunawayError:
        assume(world.faults is None)  # with little storage a job may take longer than nodes stay up: it never ends
        raise
    allocation = run.policy.allocation
    assert allocation is not None
    if allocation.guarantees:
        found = slower_than_proportional(world.cluster, world.jobs, run.tape, world.speed())
        promise("nobody below their due", not found, found[:3])
    check_run(make, world, run)
    return run


def any_policy(seed: int, allocation: str) -> str:
    """A policy with this allocation from one number."""
    dice = Random(seed)
    terms = [dice.choice(_own(ORDERS)), dice.choice(_own(BACKFILLS)), dice.choice(_own(PLACEMENTS))]
    terms += [dice.choice(_own(MIGRATIONS))] if dice.random() < 0.3 else []
    terms += [dice.choice(["preempt", "no-preempt"])] if dice.random() < 0.3 else []
    terms += [allocation, *([dice.choice(["round(7s)", "round(60s)"])] if dice.random() < 0.4 else [])]
    return "+".join(terms)


@pytest.mark.parametrize("allocation", OWN)
@given(data=st.data(), world=divided_worlds())
@few
def test_every_allocation_keeps_its_promises(allocation: str, data: st.DataObject, world: Divided) -> None:
    spec = data.draw(divided_specs(allocation, world.cluster))
    check_divided(lambda: build(spec), world)


@pytest.mark.parametrize("allocation", OWN)
@given(data=st.data(), world=divided_worlds(quotas=True))
@settings(few, max_examples=8)
def test_every_allocation_keeps_quotas(allocation: str, data: st.DataObject, world: Divided) -> None:
    spec = data.draw(divided_specs(allocation, world.cluster))
    check_divided(lambda: build(spec), world)


@pytest.mark.parametrize("allocation", OWN)
@given(seed=SEEDS)
@settings(few, max_examples=25)
def test_every_allocation_keeps_its_promises_where_many_jobs_meet(allocation: str, seed: int) -> None:
    check_divided(lambda: build(any_policy(seed, allocation)), crowded(seed))


def test_opt_does_not_move_back_what_a_migration_has_just_moved() -> None:
    check_divided(lambda: build("tetris+conservative+fgd+migrate-always+opt"), crowded(73520))


@pytest.mark.parametrize("allocation", OWN)
@pytest.mark.parametrize("order", _own(ORDERS))
def test_every_order_composes_with_every_allocation(order: str, allocation: str) -> None:
    check_divided(lambda: build(f"{order}+fit+{allocation}+round(7s)"), crowded(11))


@pytest.mark.parametrize("allocation", OWN)
@pytest.mark.parametrize("placement", _own(PLACEMENTS))
def test_every_placement_composes_with_every_allocation(placement: str, allocation: str) -> None:
    check_divided(lambda: build(f"fifo+easy+{placement}+{allocation}"), crowded(12))


@pytest.mark.parametrize("allocation", OWN)
def test_the_name_of_a_policy_with_an_allocation_builds_it_again(allocation: str) -> None:
    for spec in (f"las+{allocation}", f"fifo+fit+{allocation}+quantum(3m)+round(5m)", f"drf+{allocation}+no-preempt"):
        policy = build(spec)
        assert build(policy.name).name == policy.name
        assert (build(policy.name).quantum, build(policy.name).preempts) == (policy.quantum, policy.preempts)


# --- broken ones, each caught by the check that is there for it -------------------------------------------------------

HUNGRY = Divided(
    uniform(1, 4, cpus_per_node=8, memory_per_node_bytes=80 * GIGABYTE),
    workload(Job(0, i * SECOND, 20 * SECOND, model="image") for i in range(8)),
    profiles={"image": stairs("image", (1, 2, 4), (10, 20))},
)


def broken(allocation: type[Allocation]) -> Make:
    """A policy with this allocation."""
    return lambda: ComposedPolicy("broken", Fifo(), Fit(), BestFit(), None, allocation())


def test_the_world_of_the_broken_ones_is_sound() -> None:
    check_divided(broken(Tune), HUNGRY)


class Overbooks(Proportional):
    """Gives everybody the whole node."""

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[list[ReallocateJob], Grant]:
        return [], Grant(8000, 80 * GIGABYTE)


class Inflates(Tune):
    """Gives running jobs more than there is."""

    def divide(self, now: int, state: TrainingState) -> Iterable[Action]:
        return [ReallocateJob(js.id, Grant(js.cpu_milli + 3000, js.memory_bytes)) for js in state.running.values()]


class NeedsNobody(Tune):
    """Gives a job its due, but nobody comes down for it."""

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[Iterable[ReallocateJob], Grant]:
        _, grant = super().enter(now, state, js, placement)
        return [], grant


@pytest.mark.parametrize("allocation", [Overbooks, Inflates, NeedsNobody])
def test_what_is_not_there_is_not_given(allocation: type[Allocation]) -> None:
    with pytest.raises(InfeasibleActionError, match="wants"):
        check_divided(broken(allocation), HUNGRY)


class Starves(Proportional):
    """Takes half of their due from those who run."""

    def divide(self, now: int, state: TrainingState) -> Iterator[Action]:
        for js in list(state.running.values()):
            if js.cpu_milli == 2000:
                yield ReallocateJob(js.id, Grant(js.cpu_milli // 2, js.memory_bytes))


class StartsLow(Proportional):
    """Gives new jobs less memory than they are due."""

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[list[ReallocateJob], Grant]:
        return [], Grant(2000, 15 * GIGABYTE)


@pytest.mark.parametrize("allocation", [Starves, StartsLow])
def test_a_job_below_its_due_is_noticed(allocation: type[Allocation]) -> None:
    with pytest.raises(BrokenPromise, match="nobody below their due"):
        check_divided(broken(allocation), HUNGRY)


class Dithers(Tune):
    """Remembers something from one run to the next."""

    lives: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).lives += 1
        self._odd = self.lives % 2

    def divide(self, now: int, state: TrainingState) -> Iterable[Action]:
        return () if self._odd else super().divide(now, state)


def test_memory_from_one_run_to_the_next_is_noticed() -> None:
    with pytest.raises(BrokenPromise, match=r"repeatable|replay identical"):
        check_divided(broken(Dithers), HUNGRY)


class Peeks(Proportional):
    """Helps itself."""

    def divide(self, now: int, state: TrainingState) -> Iterable[Action]:
        state.pool.storage_free[0] -= 1
        return ()


def test_a_changed_state_is_noticed() -> None:
    with pytest.raises(BrokenPromise, match="state untouched"):
        check_divided(broken(Peeks), HUNGRY)


class Forgets(Proportional):
    """Finds no place for job 3."""

    def place(self, state: TrainingState, js: Any, rule: Any) -> Placement | None:
        return None if js.id == 3 else super().place(state, js, rule)


def test_a_job_that_is_never_placed_stalls_the_run() -> None:
    with pytest.raises(StalledRunError, match="work is left"):
        check_divided(broken(Forgets), HUNGRY)
