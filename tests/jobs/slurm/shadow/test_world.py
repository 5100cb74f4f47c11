"""A shadow decides what a simulation of the whole record decides, as far as it knows, whatever it learns when."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from headway.core.tape import Tape
from headway.jobs.experiment.scene import JobsScene
from headway.jobs.model.job import Job, Outcome
from headway.jobs.model.rows import Kind
from headway.jobs.slurm.shadow.world import World
from headway.jobs.tables.cluster import ClusterTable, build
from headway.jobs.tables.settings import CostsTable, Experiment, PolicyTable
from headway.jobs.traces.past import NEVER, Past
from headway.runs.play import play
from headway.units import SECOND

POLICIES = ("fifo", "fifo+easy", "sjf", "srtf+easy", "las", "multifactor+conservative", "tiresias", "drf", "ftf")


@dataclass(frozen=True)
class Real:
    """A job, and when it started in reality; None: it left before."""

    job: Job
    start: int | None

    @property
    def end(self) -> int:
        return self.job.submit + self.job.patience if self.start is None else self.start + self.job.ends_after


@st.composite
def realities(draw: st.DrawFn) -> list[Real]:
    found = []
    submit = 0
    for number in range(draw(st.integers(2, 14))):
        submit += draw(st.integers(0, 40)) * SECOND
        work = draw(st.integers(1, 60)) * SECOND
        limit = work + draw(st.integers(0, 60)) * SECOND
        gone = draw(st.integers(0, 9)) == 0
        wait = draw(st.integers(0, 80)) * SECOND
        job = Job(
            number,
            submit,
            work,
            draw(st.integers(1, 4)),
            name=f"j{number}",
            estimate=limit,
            tenant=draw(st.sampled_from("ab")),
        )
        if gone:
            left = max(wait, SECOND)
            work = min(left, limit)
            job = replace(job, work=work, outcome=Outcome.CANCELLED, outcome_after=work, patience=left)
        elif draw(st.integers(0, 4)) == 0:
            job = replace(job, outcome=Outcome.FAILS, outcome_after=work)
        found.append(Real(job, None if gone else submit + wait))
    return found


def scene_of(policy: str, jobs: list[Job], ran: list[int]) -> JobsScene:
    table = ClusterTable(nodes=2, gpus_per_node=3)
    experiment = Experiment(cluster=table, policy=PolicyTable(name=policy), costs=CostsTable(preemption="3s"))
    return JobsScene(experiment, build(table), tuple(jobs), past=Past(ran=ran if any(r >= 0 for r in ran) else []))


def seen(policy: str, reality: list[Real], at: int) -> JobsScene:
    """What is known at a time: who has arrived, how long who has run so far, and how who has ended did."""
    jobs, ran = [], []
    for real in reality:
        if real.job.submit > at:
            continue
        if real.end <= at:
            jobs.append(real.job)
            ran.append(NEVER)
            continue
        plain = replace(real.job, outcome=Outcome.FINISHES, outcome_after=0, patience=0)
        so_far = SECOND if real.start is None or real.start > at else max(at - real.start, SECOND)
        jobs.append(replace(plain, work=max(plain.estimate, so_far + SECOND)))
        ran.append(so_far)
    return scene_of(policy, jobs, ran)


def is_prefix(short: np.ndarray, tape: Tape) -> bool:
    return len(short) <= len(tape) and bool((tape.rows[: len(short)] == short).all())


@settings(max_examples=60, deadline=None)
@given(realities(), st.sampled_from(POLICIES), st.lists(st.integers(1, 400), min_size=1, max_size=8, unique=True))
def test_what_is_settled_is_the_beginning_of_the_simulation_of_all_that_happened(
    reality: list[Real], policy: str, times: list[int]
) -> None:
    whole = play(scene_of(policy, [real.job for real in reality], [])).tape
    world = World()
    settled_before = 0
    for time in sorted(times):
        at = max(time * SECOND, reality[0].job.submit)
        played = world.look(seen(policy, reality, at), at)
        settled = played.tape.rows[: played.settled_rows]
        assert is_prefix(settled, whole), "what is settled is as it will be"
        assert played.settled_rows >= settled_before, "and stays"
        settled_before = played.settled_rows
        assert played.tape.rows[:, 0].max(initial=0) <= at, "nothing beyond the look"
    assert world.revised == 0
    last = max(max(real.end for real in reality), int(whole.column("time")[-1])) + SECOND
    played = world.look(seen(policy, reality, last), last)
    assert played.tape.digest == whole.digest, "when all is known, the tape is the same"
    assert played.ahead == ()


@settings(max_examples=40, deadline=None)
@given(realities(), st.sampled_from(POLICIES), st.lists(st.integers(1, 400), min_size=2, max_size=6, unique=True))
def test_a_world_that_goes_on_is_one_that_begins_anew(reality: list[Real], policy: str, times: list[int]) -> None:
    world = World()
    for time in sorted(times):
        at = max(time * SECOND, reality[0].job.submit)
        scene = seen(policy, reality, at)
        on, anew = world.look(scene, at), World().look(scene, at)
        assert on.tape.digest == anew.tape.digest
        assert (on.settled, on.settled_rows, on.ahead) == (anew.settled, anew.settled_rows, anew.ahead)


def one(policy: str, *jobs: Job, ran: list[int]) -> JobsScene:
    return scene_of(policy, list(jobs), ran)


def test_a_job_that_still_runs_runs_to_its_limit_in_the_shadow_and_ends_when_it_is_known() -> None:
    first = Job(0, 0, 100 * SECOND, 6, estimate=100 * SECOND, name="first")
    second = Job(1, SECOND, 5 * SECOND, 6, estimate=5 * SECOND, name="second")
    world = World()
    early = world.look(one("fifo", first, second, ran=[20 * SECOND, SECOND]), 20 * SECOND)
    assert early.settled == 20 * SECOND, "it may end now"
    late = world.look(one("fifo", first, second, ran=[90 * SECOND, SECOND]), 90 * SECOND)
    assert late.settled == 90 * SECOND
    ended = replace(first, work=95 * SECOND)
    known = world.look(one("fifo", ended, second, ran=[NEVER, SECOND]), 99 * SECOND)
    (start,) = known.tape.of(int(Kind.START))[-1:, :1].ravel().tolist()
    assert start == 95 * SECOND, "the second starts when the first really ended"
    assert known.settled == 96 * SECOND, "of the second a second is known"
    assert known.ahead == ("second",), "it has run since in the shadow, and not in reality"


def test_what_was_settled_is_revised_and_counted_where_a_job_is_heard_of_late() -> None:
    first = Job(0, 0, 10 * SECOND, 6, estimate=10 * SECOND, name="first")
    world = World()
    world.look(one("fifo", first, ran=[NEVER]), 20 * SECOND)
    late = Job(0, 0, 10 * SECOND, 6, estimate=10 * SECOND, name="late")
    played = world.look(one("fifo", late, replace(first, id=1, submit=SECOND), ran=[NEVER, NEVER]), 30 * SECOND)
    assert world.revised == 1
    assert played.tape.digest == World().look(played.scene, 30 * SECOND).tape.digest


def test_a_job_that_ended_just_when_it_could_at_the_earliest_ends_as_it_really_did() -> None:
    job = Job(0, 0, 10 * SECOND, 1, estimate=30 * SECOND, name="job")
    failed = replace(job, outcome=Outcome.FAILS, outcome_after=10 * SECOND)
    world = World()
    world.look(one("fifo", job, ran=[10 * SECOND]), 10 * SECOND)
    played = world.look(one("fifo", failed, ran=[NEVER]), 40 * SECOND)
    assert played.tape.digest == play(scene_of("fifo", [failed], [])).tape.digest
    assert [row[0] for row in played.tape.of(Kind.FAILED).tolist()] == [10 * SECOND]


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_a_job_that_left_while_it_waited_leaves_the_shadow_too(policy: str) -> None:
    first = Job(0, 0, 50 * SECOND, 6, estimate=50 * SECOND, name="first")
    second = Job(1, SECOND, 60 * SECOND, 6, estimate=60 * SECOND, name="second")
    world = World()
    world.look(one(policy, first, second, ran=[10 * SECOND, SECOND]), 10 * SECOND)
    cancelled = replace(
        second, work=14 * SECOND, outcome=Outcome.CANCELLED, outcome_after=14 * SECOND, patience=14 * SECOND
    )
    played = world.look(one(policy, first, cancelled, ran=[20 * SECOND, NEVER]), 20 * SECOND)
    assert played.tape.digest == World().look(played.scene, 20 * SECOND).tape.digest
    assert not [js for js in played.end.state.jobs.values() if js.job.name == "second"]
