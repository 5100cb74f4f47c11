"""Every registered serving policy behind a controller: whatever it decides late, every request ends once.

A controller that takes no time changes nothing: the tape is that of the policy alone. One that takes some may find its
actions stale; they are refused and decided again, and audit, conservation, Little's law and replay hold.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from headway.fleet.model.decision_time import DecisionTime
from headway.fleet.policies.central.controller import Controller
from headway.fleet.policies.registry import POLICIES, build
from headway.units import MICROSECOND, MILLISECOND, SECOND
from tests.conformance.checks import promise
from tests.conformance.serving import Guarded, check_audited, check_conserved, check_ends, check_little, check_replay
from tests.fleet.worlds import Run, World, drive, first_difference, worlds

few = settings(
    max_examples=8,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
DECISION_TIMES = st.sampled_from(
    [
        DecisionTime(1),
        DecisionTime(100 * MICROSECOND, 3 * MICROSECOND),
        DecisionTime(0, 50 * MICROSECOND),
        DecisionTime(10 * MILLISECOND),
        DecisionTime(40 * MILLISECOND + 7),
    ]
)


def controlled(name: str, decision_time: DecisionTime) -> Callable[[], Controller]:
    return lambda: Controller(build(name), decision_time)


def check_controlled(make: Callable[[], Controller], drawn: World) -> Run:
    kept = max(drawn.fleet.keep_alive, 100 * SECOND)  # a process that stops before a decision can use it helps nobody
    world = replace(drawn, fleet=replace(drawn.fleet, keep_alive=kept))
    run = drive(make(), world, exact=False, watch=Guarded)
    check_ends(run)
    check_conserved(run)
    check_audited(run)
    check_little(run)
    check_replay(make, run)
    again = drive(make(), world, exact=False)
    promise("repeatable", again.tape.digest == run.tape.digest, first_difference(run.tape, again.tape))
    return run


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(world=worlds(outages=False), decision_time=DECISION_TIMES)
@few
def test_every_policy_ends_every_request_behind_a_controller(
    name: str, world: World, decision_time: DecisionTime
) -> None:
    check_controlled(controlled(name, decision_time), world)


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(world=worlds(outages=True), decision_time=DECISION_TIMES, central=st.sampled_from([None, True]))
@few
def test_every_policy_ends_every_request_behind_a_controller_while_workers_die(
    name: str, world: World, decision_time: DecisionTime, central: bool | None
) -> None:
    check_controlled(controlled(name, decision_time), replace(world, central=central))


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(world=worlds())
@few
def test_a_central_controller_that_takes_no_time_changes_nothing(name: str, world: World) -> None:
    central = replace(world, central=True)
    alone, behind = drive(build(name), central), drive(Controller(build(name), DecisionTime(0)), central)
    assert alone.tape.digest == behind.tape.digest, first_difference(alone.tape, behind.tape)
