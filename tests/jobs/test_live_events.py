"""Events that only real programs cause: what they change in the state; a tape with them replays and is sound."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.jobs.audit.audit import audit
from headway.jobs.audit.replay import replay
from headway.jobs.experiment.observed import last_rows, played_again, seen
from headway.jobs.model.actions import Action
from headway.jobs.model.cluster import uniform
from headway.jobs.model.events import (
    Event,
    JobArrived,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobInterrupted,
    JobProgressed,
    Woke,
)
from headway.jobs.model.job import Job, Outcome, broken_rule, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.registry import build
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.drive import World, first_difference, fresh_state

CLUSTER = uniform(2, 4)
POLICIES = ("fifo+easy", "srtf", "sjf+fit", "las", "srtf+conservative", "tiresias")


def live(submit: int, gpus: int, estimate: int, **more: int) -> Job:
    return Job(0, submit * SECOND, estimate * SECOND, gpus, estimate=estimate * SECOND, open_end=True, **more)


class World2:
    """A state whose events come from the test; the policy decides after each."""

    def __init__(self, policy: str, jobs: tuple[Job, ...]) -> None:
        self.jobs, self.name = jobs, policy
        self.policy = build(policy)
        self.state: TrainingState = fresh_state(self.policy, World(CLUSTER, jobs))
        self.now, self._coming = -1, list[Event]()
        self._tape = TapeWriter()
        self._scheduler = Scheduler[Event, Action](self.state, self.policy, self, self._tape, exact=False)

    def next(self) -> tuple[int, list[Event]] | None:
        """What the test said."""
        events, self._coming = self._coming, []
        return (self.now, events) if events else None

    def execute(self, now: int, action: Action) -> None:
        """Do nothing."""

    follow = refused = execute  # type: ignore[assignment]

    def at(self, time: int, *events: Event) -> None:
        """Let events happen at a second."""
        self.now, self._coming = time * SECOND, sorted(events, key=lambda event: event.rank)
        self._scheduler.drain()

    def tape(self) -> Tape:
        """What happened; it replays identically and is sound."""
        tape = self._tape.close()
        told = seen(self.jobs, tape)
        assert first_difference(tape, replay(CLUSTER, told, tape, build(self.name))) is None
        assert audit(CLUSTER, told, tape, policy=build(self.name), punctual=False) == []
        return tape


def test_a_job_whose_run_is_gone_waits_again_and_no_attempt_has_failed() -> None:
    jobs = workload([live(0, 4, 100, checkpoint_every=30 * SECOND), live(0, 8, 10)])
    world = World2("fifo", jobs)
    world.at(0, *map(JobArrived, jobs))
    world.at(70, JobInterrupted(0, 1))
    js = world.state.jobs[0]
    assert (js.done, js.attempt, js.lease) == (60 * SECOND, 0, 2)
    world.at(80, JobInterrupted(0, 2, saved=True))
    assert world.state.jobs[0].done == 70 * SECOND
    world.at(81, JobInterrupted(0, 2))  # of an earlier lease
    world.at(90, JobFinished(0, 3))
    tape = world.tape()
    assert [row[6] for row in tape.of(int(Kind.INTERRUPTED)).tolist()] == [0, 1]
    assert [(row[5], row[6]) for row in tape.of(int(Kind.EVICTED)).tolist()] == [
        (10 * SECOND, 60 * SECOND),
        (0, 70 * SECOND),
    ]
    assert tape.of(int(Kind.STALE)).tolist()[0][6] == int(Kind.INTERRUPTED)


def test_a_real_program_ends_sooner_or_later_than_expected_and_delivers_what_it_took() -> None:
    jobs = workload([live(0, 4, 100), live(0, 4, 100), live(0, 1, 5, retries=1)])
    world = World2("fifo+easy", jobs)
    world.at(0, *map(JobArrived, jobs))
    world.at(30, JobFinished(0, 1))
    world.at(500, JobFinished(1, 2))
    world.at(530, JobFailed(2, 3))
    world.at(540, JobFailed(2, 4))
    tape = world.tape()
    assert {job: row[6] for job, row in last_rows(tape).items()} == {0: 30 * SECOND, 1: 500 * SECOND, 2: 10 * SECOND}
    told = seen(jobs, tape)
    assert [job.work for job in told] == [30 * SECOND, 500 * SECOND, 10 * SECOND]
    assert told[2].outcome is Outcome.FAILS
    again = played_again(jobs, tape)
    assert len(again) == 3
    assert not any(job.open_end for job in again)


def test_a_program_that_ended_while_it_was_stopped_has_finished_and_waits_no_more() -> None:
    jobs = workload([live(0, 8, 1000), live(10, 8, 10)])
    world = World2("srtf", jobs)
    world.at(0, JobArrived(jobs[0]))
    world.at(10, JobArrived(jobs[1]))
    assert list(world.state.running) == [1]
    world.at(11, JobFinished(0, 1))  # of an earlier lease: ignored
    assert 0 in world.state.jobs
    world.at(12, JobFinished(0, 0))
    assert 0 not in world.state.jobs
    world.at(13, JobFinished(1, 0))  # it runs: its own lease would have to say so
    assert 1 in world.state.jobs
    world.at(20, JobFinished(1, 2))
    tape = world.tape()
    assert {job: row[6] for job, row in last_rows(tape).items()} == {0: 10 * SECOND, 1: 10 * SECOND}
    assert len(played_again(jobs, tape)) == 2


def test_what_is_expected_anew_changes_who_comes_first() -> None:
    jobs = workload([live(0, 8, 100), live(1, 8, 50), live(2, 8, 60)])
    world = World2("sjf", jobs)
    world.at(0, JobArrived(jobs[0]))
    world.at(2, JobArrived(jobs[1]), JobArrived(jobs[2]))
    world.at(3, JobProgressed(1, 0, 500 * SECOND), JobProgressed(0, 9, 1), JobProgressed(7, 0, 1))
    world.at(4, JobFinished(0, 1))
    assert list(world.state.running) == [2]
    world.at(5, JobProgressed(2, 2, 70 * SECOND))
    assert world.state.jobs[2].expected == 70 * SECOND
    world.at(6, JobCancelled(2, 2), JobCancelled(1, 0))
    tape = world.tape()
    assert len(tape.of(int(Kind.STALE))) == 2
    assert len(played_again(jobs, tape)) == 2  # the one that never ran is no job of a simulation


def test_a_program_without_an_estimate_is_no_job() -> None:
    job = live(0, 1, 10)
    assert broken_rule(job) is None
    assert "open_end needs an estimate" in (broken_rule(replace(job, estimate=0)) or "")


@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_whatever_programs_do_the_tape_replays_and_is_sound(policy: str, data: st.DataObject) -> None:
    jobs = workload(
        live(submit, gpus, estimate, retries=retries)
        for submit, gpus, estimate, retries in data.draw(
            st.lists(
                st.tuples(st.integers(0, 40), st.integers(1, 8), st.integers(1, 50), st.integers(0, 2)),
                min_size=1,
                max_size=6,
            )
        )
    )
    world, coming = World2(policy, jobs), list(jobs)
    for time in range(120):
        events: list[Event] = [JobArrived(job) for job in coming if job.submit == time * SECOND]
        coming = [job for job in coming if job.submit != time * SECOND]
        for js in list(world.state.jobs.values()):
            lease = js.lease if js.id in world.state.running else 0
            match data.draw(st.integers(0, 14)):
                case 0 | 1:
                    events.append(JobFinished(js.id, lease if lease or js.lease else 99))
                case 2:
                    events.append(JobFailed(js.id, js.lease))
                case 3:
                    events.append(JobInterrupted(js.id, js.lease, data.draw(st.booleans())))
                case 4:
                    events.append(JobProgressed(js.id, lease, data.draw(st.integers(1, 10**11))))
                case 5 if data.draw(st.integers(0, 3)) == 0:
                    events.append(JobCancelled(js.id, lease))
                case _:
                    pass
        world.at(time, *(events or [Woke()]))
    world.tape()
