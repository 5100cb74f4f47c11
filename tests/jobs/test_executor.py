"""The virtual-time executor: wake-ups, patience, outcomes and retries, and the order of events within an instant."""

from collections.abc import Iterable
from dataclasses import replace
from heapq import heappush

import pytest

from headway.core.scheduler import Scheduler
from headway.core.tape import TapeWriter
from headway.errors import StalledRunError
from headway.jobs.model.actions import Action, StartJob, WakeAt
from headway.jobs.model.cluster import uniform
from headway.jobs.model.events import Event, NodeFailed
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import build
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.sim.faults import Faults
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.drive import World, drive, seconds_of


class Sleeper(ComposedPolicy):
    """Starts jobs one by one, each on the n-th wake-up of its own asking."""

    def __init__(self, wakes: int, at: int) -> None:
        parts = build("fifo")
        super().__init__("sleeper", parts.order, parts.backfill, parts.placement)
        self.wakes, self.at, self.asked = wakes, at, 0

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """Ask to be woken, so many times, then start what is there."""
        self.asked += 1
        if self.asked <= self.wakes:
            yield WakeAt(self.at * self.asked)
            yield WakeAt(self.at * self.asked)
        else:
            for _, job in list(state.queue.in_order()):
                yield StartJob(job, ((0, 1),))


def test_a_wake_comes_once_at_its_time() -> None:
    made = drive(Sleeper(3, 5 * SECOND), World(uniform(1, 1), seconds_of((0, 1, 1))))
    assert [row.time for row in made.rows(Kind.WOKE)] == [5 * SECOND, 10 * SECOND, 15 * SECOND]
    assert made.starts == {0: 15 * SECOND}


def test_a_wake_for_now_or_the_past_comes_a_nanosecond_later_each_time() -> None:
    made = drive(Sleeper(4, 0), World(uniform(1, 1), seconds_of((1, 1, 1))))
    assert [row.time - SECOND for row in made.rows(Kind.WOKE)] == [1, 2, 3, 4]


def test_patience_ends_a_job_that_never_started_and_no_other() -> None:
    impatient = Job(0, 0, SECOND, 4, patience=5 * SECOND)
    jobs = workload([Job(0, 0, 10 * SECOND, 4), impatient, Job(0, 0, SECOND, 4, patience=11 * SECOND)])
    made = drive("fifo", World(uniform(1, 4), jobs))
    assert [(row.subject, row.time, row.lease) for row in made.rows(Kind.CANCELLED)] == [(1, 5 * SECOND, 0)]
    assert made.ends == {0: 10 * SECOND, 2: 11 * SECOND}


def test_a_failing_job_is_tried_again_from_the_start_until_its_retries_are_used_up() -> None:
    job = Job(0, 0, 10 * SECOND, outcome=Outcome.FAILS, outcome_after=4 * SECOND, retries=2)
    made = drive("fifo", World(uniform(1, 4), workload([job])))
    assert [(row.time, row.value) for row in made.rows(Kind.FAILED)] == [
        (n * 4 * SECOND, 4 * SECOND) for n in (1, 2, 3)
    ]
    assert [row.value for row in made.rows(Kind.QUEUED_AGAIN)] == [1, 2]
    assert made.ends == {}


def test_a_job_that_its_user_cancels_frees_its_gpus() -> None:
    job = Job(0, 0, 10 * SECOND, 4, outcome=Outcome.CANCELLED, outcome_after=4 * SECOND)
    made = drive("fifo", World(uniform(1, 4), workload([job, Job(0, 1, SECOND, 4)])))
    assert [(row.time, row.value) for row in made.rows(Kind.CANCELLED)] == [(4 * SECOND, 4 * SECOND)]
    assert made.starts[1] == 4 * SECOND


def test_what_ends_and_what_comes_in_one_instant_are_seen_together() -> None:
    made = drive("sjf", World(uniform(1, 1), seconds_of((0, 10, 1), (1, 5, 1), (10, 2, 1))))
    assert made.starts == {0: 0, 2: 10 * SECOND, 1: 12 * SECOND}


def test_an_empty_workload_is_over_at_once() -> None:
    assert len(drive("fifo", World(uniform(1, 1), ())).tape) == 0


def test_a_job_that_can_never_start_stalls_the_run() -> None:
    with pytest.raises(StalledRunError, match="fifo: work is left"):
        drive("fifo", World(uniform(1, 4), seconds_of((0, 1, 5))))


def test_a_job_that_ends_by_itself_as_its_node_fails_is_over_and_not_queued_again() -> None:
    cluster = replace(uniform(2, 1, gpu_type="fast"), gpu_speed_ppm={"fast": 1_500_000})
    for outcome in (Outcome.CANCELLED, Outcome.FAILS, Outcome.FINISHES):
        job = Job(0, submit=0, work=4, outcome=outcome, outcome_after=0 if outcome is Outcome.FINISHES else 4)
        # At one and a half times the speed it has done 4 after 2.67, that is at 3, when 4.5 would have been done.
        faults = Faults(2, 0, None, [])
        state = TrainingState(cluster, to_come=1, arrangement=(policy := build("fifo")), speed=SpeedModel(cluster))
        policy.bind(state)
        executor = SimulatedCluster((job,), state, faults)
        heappush(executor._heap, (3, NodeFailed.rank, 0, -1, NodeFailed(0)))
        tape = TapeWriter()
        Scheduler[Event, Action](state, policy, executor, tape).run()
        times = tape.close().column("time").tolist()
        assert times == sorted(times)
        assert state.over()
        assert max(times) == 3
