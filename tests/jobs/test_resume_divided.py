"""Runs that divide what jobs hold besides GPUs, taken up in the middle: the same goes on, or another policy takes over.

``completions`` are tried too: ends that are noticed at the end of a round only.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.jobs.ask.other_cluster import renewed, transferred
from headway.jobs.audit.audit import audit
from headway.jobs.model.actions import Action, PreemptJob, StartJob, WakeAt
from headway.jobs.model.cluster import Cluster, Node, uniform
from headway.jobs.model.events import Event
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import build
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.sim.copies import Copies
from headway.jobs.sim.resume import Moment, resume
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.conformance.divided import Divided, divided_specs, divided_worlds, stairs
from tests.drive import Watched, first_difference, fresh_state, joined
from tests.jobs.sim.test_resume import times_of

few = settings(
    max_examples=15,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
OWN = ["greedy", "proportional", "tune"]
ROUND = 7 * SECOND


def recorded(spec: str, world: Divided, completions: int = 0) -> Tape:
    """A run to its end."""
    policy = build(spec)
    state = fresh_state(policy, world)
    faults = world.faults() if world.faults is not None else None
    executor = SimulatedCluster(world.jobs, state, faults, completions=completions)
    writer = TapeWriter()
    Scheduler[Event, Action](state, Watched(policy), executor, writer).run()
    return writer.close()


def taken_up(spec: str, world: Divided, tape: Tape, at: int, completions: int = 0, *, asking: bool = True) -> Moment:
    """A run at a time."""
    return resume(
        world.cluster,
        world.jobs,
        tape,
        at,
        build(spec),
        speed=world.speed(),
        costs=world.costs,
        faults=world.faults() if world.faults is not None else None,
        completions=completions,
        asking=asking,
    )


@pytest.mark.parametrize("allocation", OWN)
@given(data=st.data(), world=divided_worlds(), at_rounds=st.booleans())
@few
def test_a_run_goes_on_as_it_did(allocation: str, data: st.DataObject, world: Divided, at_rounds: bool) -> None:
    spec = data.draw(divided_specs(allocation, world.cluster))
    completions = build(spec).round_length if at_rounds else 0
    tape = recorded(spec, world, completions)
    at = data.draw(times_of(tape), label="at")
    moment = taken_up(spec, world, tape, at, completions)
    for each in (moment.fork(), Copies(moment).make(), moment):
        assert first_difference(tape, joined(tape.until(at), each.go_on())) is None
    found = audit(world.cluster, world.jobs, tape, speed=world.speed(), costs=world.costs, completions=completions)
    assert not found, found[:3]


@pytest.mark.parametrize("after", OWN)
@pytest.mark.parametrize("before", OWN)
@given(data=st.data(), world=divided_worlds(), at_rounds=st.booleans())
@few
def test_another_policy_takes_over(
    before: str, after: str, data: st.DataObject, world: Divided, at_rounds: bool
) -> None:
    completions = ROUND if at_rounds else 0
    tape = recorded(f"srtf+fit+{before}+round(7s)", world, completions)
    at = data.draw(times_of(tape), label="at")
    moment = taken_up(f"fifo+fit+{after}+round(7s)", world, tape, at, completions, asking=False)
    moment.executor.forget_wakes()
    if moment.state.over():
        return
    moment.executor.execute(max(at, 0), _wake_at_the_next_round(at))
    whole = joined(tape.until(at), moment.go_on())
    found = audit(
        world.cluster,
        world.jobs,
        whole,
        speed=world.speed(),
        costs=world.costs,
        completions=completions,
        complete=True,
    )
    assert not found, found[:3]


def _wake_at_the_next_round(at: int) -> Action:
    return WakeAt((max(at, 0) // ROUND + 1) * ROUND)


# --- on another cluster -------------------------------------------------------------------------------------------

NODE = Node("n", 4, cpu_milli=8000, memory_bytes=40 * 10**9)
"""2 CPUs and 10 GB are due with each GPU."""
PROFILE = stairs("image", (2, 4, 8), (10, 20))


def world_of(*jobs: tuple[int, int, int], nodes: int = 1) -> Divided:
    """(submit, work, GPUs), in seconds, of jobs that train what ``PROFILE`` is about."""
    made = workload(Job(0, s * SECOND, w * SECOND, g, model="image") for s, w, g in jobs)
    cluster = replace(uniform(nodes, 4), nodes=tuple(replace(NODE, name=f"n{i}") for i in range(nodes)))
    return Divided(cluster, made, profiles={"image": PROFILE})


def larger(world: Divided) -> Cluster:
    """One node more."""
    return replace(world.cluster, nodes=(*world.cluster.nodes, replace(NODE, name="more")))


def test_a_policy_keeps_what_it_gave_when_nodes_are_added() -> None:
    world = world_of((0, 100, 1), (10, 100, 4), (10, 100, 1))
    tape = recorded("fifo+fit+tune", world)
    moment = taken_up("fifo+fit+tune", world, tape, 20 * SECOND)
    cluster = larger(world)
    held = {job: js.grant for job, js in moment.state.running.items()}
    policy = renewed(moment.policy, build("fifo+fit+tune"))
    speed = replace(world, cluster=cluster).speed()
    state, _ = transferred(20 * SECOND, moment.state, cluster, policy, speed=speed, costs=world.costs)
    state.pool.set_schedulable(1, True)
    done = _done(20 * SECOND, policy, state)
    assert {job: state.running[job].grant for job in held} == held
    assert [(each.job, each.placement[0][0]) for each in done] == [(1, 1)], "the one that waited starts on the new node"


def test_a_run_without_sensitivity_that_goes_on_with_it_gives_everybody_their_due() -> None:
    world = world_of((0, 100, 1), (0, 100, 2))
    plain = Divided(world.cluster, world.jobs)
    tape = recorded("fifo", plain)
    moment = resume(world.cluster, world.jobs, tape, SECOND, build("fifo+tune"), asking=False)
    rows: list[tuple[int, ...]] = []
    moment.state.journal = rows.append
    assert [js.grant[0] for js in moment.state.running.values()] == [0, 0]
    policy = renewed(moment.policy, build("fifo+tune"))
    state, caused = transferred(SECOND, moment.state, world.cluster, policy, speed=world.speed())
    assert [js.grant[:2] for js in state.running.values()] == [(2000, 10 * 10**9), (4000, 20 * 10**9)]
    assert [row[1] for row in rows].count(Kind.GRANT) == 2
    assert all(js.speed == 1_000_000 for js in state.running.values())
    assert {js.id for js in caused or ()} == {0, 1}, "both were slower on the way there: their ends are set anew"


def test_what_was_given_goes_with_the_run_when_the_next_policy_divides_nothing() -> None:
    world = world_of((0, 100, 1))
    job = replace(world.jobs[0], cpu_milli=500)
    world = Divided(world.cluster, (job,), profiles=world.profiles)
    tape = recorded("fifo+tune", world)
    moment = resume(
        world.cluster, world.jobs, tape, SECOND, build("fifo"), speed=SpeedModel(world.cluster), asking=False
    )
    state = moment.state
    assert state.running[0].grant == (8000, 20 * 10**9, 0)
    state.commit(SECOND, PreemptJob(0))
    assert state.jobs[0].grant == (500, 0, 0), "it waits for what it asked for"
    assert state.pool.cpu_free == [8000]


def _done(now: int, policy: ComposedPolicy, state: TrainingState) -> list[StartJob]:
    """The starts that the policy decides, done."""
    done = []
    for action in policy.decide(now, state):
        assert state.check(action) is None
        state.commit(now, action)
        if isinstance(action, StartJob):
            done.append(action)
    return done
