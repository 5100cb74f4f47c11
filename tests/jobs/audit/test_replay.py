"""From a tape back to what happened: the same events, the same decisions, the same states."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from headway.core.scheduler import Scheduler, act, happen
from headway.core.tape import Tape, TapeWriter
from headway.errors import TapeError
from headway.jobs.audit.replay import Walk, decode, replay
from headway.jobs.model.cluster import uniform
from headway.jobs.model.events import JobFinished
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import SpeedModel
from headway.jobs.policies.registry import build
from headway.jobs.sim.cluster import SimulatedCluster
from headway.units import SECOND
from tests.drive import World, digest, drive, first_difference, fresh_state, seconds_of, state_at
from tests.strategies import specs, worlds


def speed_of(world: World) -> SpeedModel:
    return SpeedModel(world.cluster, sharing_penalty_ppm=world.sharing_penalty_ppm)


@settings(max_examples=60)
@given(worlds(), specs())
def test_a_replay_writes_the_tape_again(world: World, spec: str) -> None:
    tape = drive(spec, world).tape
    again = replay(world.cluster, world.jobs, tape, build(spec), speed=speed_of(world), costs=world.costs)
    assert first_difference(tape, again) is None
    assert again.digest == tape.digest


@settings(max_examples=40)
@given(worlds(), specs(), st.integers(0, 60))
def test_a_state_at_a_time_is_the_state_that_the_run_had(world: World, spec: str, second: int) -> None:
    time = second * SECOND
    tape = drive(spec, world).tape
    policy = build(spec)
    live = fresh_state(policy, world)
    executor = SimulatedCluster(world.jobs, live, world.faults() if world.faults is not None else None)
    while (step := executor.next()) is not None and step[0] <= time:
        for event in step[1]:
            happen(live, executor, step[0], event)
        for action in policy.decide(step[0], live):
            assert act(live, executor, step[0], action) is None
    found = state_at(world.cluster, world.jobs, tape, time, build(spec), speed=speed_of(world), costs=world.costs)
    assert digest(found) == digest(live)


def test_a_tape_cut_short_replays_to_where_it_ends() -> None:
    world = World(uniform(2, 4), seconds_of((0, 10, 4), (1, 5, 8), (2, 3, 2)))
    tape = drive("srtf", world).tape.until(2 * SECOND)
    assert first_difference(tape, replay(world.cluster, world.jobs, tape, build("srtf"))) is None


def test_another_policy_differs_and_the_difference_is_named() -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 5, 4), (2, 3, 4)))
    tape = drive("fifo", world).tape
    difference = first_difference(tape, replay(world.cluster, world.jobs, tape, build("sjf")))
    assert difference == "step 4 at 10s (10000000000 ns), START of job 1: subject 1 against 2"
    with pytest.raises(
        TapeError, match=r"another policy wrote this tape: at 10000000000 ns sjf decides StartJob\(job=2"
    ):
        list(Walk(world.cluster, world.jobs, tape, build("sjf"), asking=True))


def test_a_tape_that_ends_before_the_other_differs_there() -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 5, 4)))
    tape = drive("fifo", world).tape
    short = tape.until(SECOND)
    assert first_difference(short, tape) == (
        "step 3 at 10s (10000000000 ns), FINISHED of job 0: the first tape ends here, the other goes on"
    )
    assert "the second tape ends" in (first_difference(tape, short) or "")


def test_a_stale_event_is_played_again_as_it_was() -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4)))
    policy = build("fifo")
    state = fresh_state(policy, world)
    writer = TapeWriter()

    class Late(SimulatedCluster):
        def next(self):  # type: ignore[no-untyped-def]
            step = super().next()
            return step if step is None else (step[0], [JobFinished(0, 99), *step[1]] if step[0] else step[1])

    Scheduler(state, policy, Late(world.jobs, state), writer).run()
    tape = writer.close()
    assert Kind.STALE in tape.column("kind")
    assert [step.events[0] for step in decode(world.jobs, tape)][1] == JobFinished(0, 99)
    assert first_difference(tape, replay(world.cluster, world.jobs, tape, build("fifo"))) is None


def test_a_placement_over_many_nodes_and_wide_nodes_is_read_back() -> None:
    world = World(uniform(3, 130), seconds_of((0, 10, 300), (0, 5, 90)))
    tape = drive("fifo", world).tape
    assert Kind.PLACE in tape.column("kind")
    starts = [action for step in decode(world.jobs, tape) for action in step.actions]
    assert [sum(mask.bit_count() for _, mask in start.placement) for start in starts] == [300, 90]
    assert first_difference(tape, replay(world.cluster, world.jobs, tape, build("fifo"))) is None


def test_what_cannot_be_on_a_tape_is_said() -> None:
    cluster = uniform(1, 4)
    jobs = workload([Job(0, 0, SECOND, 4), Job(0, 0, SECOND, 4)])
    rows = drive("fifo", World(cluster, jobs)).tape.rows.copy()
    with pytest.raises(TapeError, match="has job 1 arrive at 0 ns; the workload has 1 jobs"):
        list(decode(jobs[:1], Tape(rows)))
    broken = rows.copy()
    broken[2, 5] = 0b111
    with pytest.raises(TapeError, match="wants 4 GPUs, the placement has 3"):
        state_at(cluster, jobs, Tape(broken), 0, build("fifo"))
    broken[0, 1] = 19
    with pytest.raises(TapeError, match="kind 19"):
        next(decode(jobs, Tape(broken)))


def test_an_empty_tape_has_no_steps() -> None:
    assert list(decode((), Tape(np.empty((0, 7), dtype=np.int64)))) == []
