"""The story of one job: exact times, no gaps, and causes that are enough."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from headway.core.tape import Tape
from headway.errors import TapeError
from headway.jobs.audit.replay import Walk
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.speed import SpeedModel
from headway.jobs.policies.registry import build
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.show.story.story import SCREEN, Story, story
from headway.jobs.show.story.stretches import Running, Waiting
from headway.units import SECOND
from tests.drive import World, drive, seconds_of
from tests.jobs.counterfactual import admits
from tests.strategies import specs, worlds


def told(world: World, spec: str, tape: Tape, job: int) -> Story:
    speed = SpeedModel(world.cluster, sharing_penalty_ppm=world.sharing_penalty_ppm)
    return story(world.cluster, world.jobs, tape, build(spec), job, speed=speed, costs=world.costs)


@settings(max_examples=40)
@given(worlds(max_jobs=8), specs(), st.data())
def test_the_stretches_of_a_story_follow_one_another_from_submission_to_the_end(
    world: World, spec: str, data: st.DataObject
) -> None:
    job = data.draw(st.sampled_from(world.jobs))
    tape = drive(spec, world).tape
    tale = told(world, spec, tape, job.id)
    assert tale.outcome in ("finished", "failed", "cancelled")
    at = job.submit
    for stretch in tale.stretches:
        assert stretch.start == at
        assert stretch.end is not None
        at = stretch.end
    mine = tape.rows[(tape.column("subject") == job.id) & (tape.column("kind") <= 4)]
    assert at == int(mine[-1, 0])
    assert json.loads(json.dumps(tale.record()))["outcome"] == tale.outcome


@settings(max_examples=40)
@given(worlds(max_jobs=8), specs(), st.data())
def test_taking_away_the_causes_of_each_stretch_of_waiting_admits_the_job(
    world: World, spec: str, data: st.DataObject
) -> None:
    # This one predicts anew when a job starts, and may stop at once what it has just started.
    job = data.draw(st.sampled_from(world.jobs)).id
    tape = drive(spec, world).tape
    waits = [stretch for stretch in told(world, spec, tape, job).stretches if isinstance(stretch, Waiting)]
    speed = SpeedModel(world.cluster, sharing_penalty_ppm=world.sharing_penalty_ppm)
    walk = Walk(world.cluster, world.jobs, tape, build(spec), asking=True, speed=speed, costs=world.costs)
    for step in walk:
        walk.act()
        for stretch in waits:
            if stretch.end is not None and stretch.start <= step.time < stretch.end:
                assert admits(step.time, walk.state, walk.policy, job, stretch.causes), stretch


def test_holders_that_left_while_a_job_went_on_waiting_behind_a_limit_are_told_as_gone() -> None:
    jobs = workload(
        [
            Job(0, 0, 10 * SECOND, 2, name="short", user="eve"),
            Job(0, 0, 30 * SECOND, 2, name="long", user="eve"),
            Job(0, 0, 5 * SECOND, 4, name="wide", user="eve"),
        ]
    )
    rule = LimitRule("PerUser", "gpus", 4000, per=("user",))
    world = World(replace(uniform(1, 8), limits=(rule,)), jobs)
    tale = told(world, "fifo", drive("fifo", world).tape, 2)
    waiting = tale.stretches[0]
    assert isinstance(waiting, Waiting)
    assert (waiting.start, waiting.end) == (0, 30 * SECOND)
    assert waiting.left == (("short",),)
    assert waiting.lines()[1].endswith("job short (2 GPUs), job long (2 GPUs) (left meanwhile: job short)")
    assert waiting.record()["causes"][0]["left"] == ["short"]  # type: ignore[index]


def test_who_counts_under_a_limit_without_being_bound_by_it_is_named_too() -> None:
    low = LimitRule("PerUser", "gpus", 4000, per=("user",), slot="gpus", level=5)
    high = LimitRule("InBig", "gpus", 8000, where=(("qos", "big"),), per=("user",), slot="gpus", level=1)
    jobs = workload(
        [
            Job(0, 0, 20 * SECOND, 3, name="free", user="eve", qos="big"),
            Job(0, 0, 5 * SECOND, 2, name="bound", user="eve", qos="small"),
        ]
    )
    world = World(replace(uniform(1, 8), limits=(low, high)), jobs)
    waiting = told(world, "fifo", drive("fifo", world).tape, 1).stretches[0]
    assert isinstance(waiting, Waiting)
    assert waiting.causes[0].names == ("free",)
    assert "eve holds 3 of 4 GPUs, it wants 2 GPUs; job free (3 GPUs)" in waiting.causes[0].text


def test_a_story_says_when_a_job_waited_and_why_where_it_ran_and_what_stopped_it() -> None:
    jobs = workload(
        [
            Job(0, 0, 10 * SECOND, 4, name="large", checkpoint=SECOND, restore=SECOND),
            Job(0, 3 * SECOND, 2 * SECOND, 4, name="small"),
        ]
    )
    world = World(uniform(1, 4), jobs)
    tape = drive("srtf", world).tape
    tale = told(world, "srtf", tape, 0)
    first, wait, second = tale.stretches
    assert first == Running(0, 3 * SECOND, (("n0", 4),), 1_000_000, 0, "preempted")
    assert isinstance(wait, Waiting)
    assert (wait.start, wait.end, [cause.title for cause in wait.causes]) == (3 * SECOND, 5 * SECOND, ["capacity"])
    assert second == Running(5 * SECOND, 14 * SECOND, (("n0", 4),), 1_000_000, 2 * SECOND, "finished")
    assert (tale.outcome, tale.waited, tale.waited_for()) == ("finished", 2 * SECOND, {"capacity": 2 * SECOND})
    assert tale.lines() == [
        "job 0 (large): 4 GPUs, tenant default, submitted at 00:00:00",
        "          00:00:00  for 3s  runs on n0 (4), preempted",
        "          00:00:03  for 2s  waits",
        "      capacity: 4 GPUs wanted, 0 free where it may run",
        "          00:00:05  for 9s  runs on n0 (4), standing still for the first 2s, finished",
        "finished: waited 2s in all under srtf",
        "  2s of it with capacity",
    ]


def test_instants_with_the_same_causes_are_one_stretch() -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 5, 4), (2, 1, 4), (3, 1, 1), (4, 1, 1)))
    tale = told(world, "fifo", drive("fifo", world).tape, 2)
    causes = [[c.title for c in s.causes] for s in tale.stretches if isinstance(s, Waiting)]
    assert causes == [["head-of-line", "capacity"], ["capacity"]]
    assert [(s.start, s.end) for s in tale.stretches][:2] == [(2 * SECOND, 10 * SECOND), (10 * SECOND, 15 * SECOND)]
    assert len(tale.lines(most=1)) < len(tale.lines())


def test_a_long_story_is_one_screen_with_its_summary_first_and_shares_that_add_up() -> None:
    world = World(uniform(1, 4), seconds_of((0, 500, 4), *((10 * n, 3, 4) for n in range(1, 26))))
    tale = told(world, "srtf", drive("srtf", world).tape, 0)
    assert len(tale.all_lines()) > SCREEN >= len(tale.lines())
    assert tale.lines()[1] == tale.all_lines()[-1 - len(tale.waited_for())]
    assert sum(tale.shares().values()) == tale.waited
    assert any("--all" in line for line in tale.lines())
    assert tale.record()["shares_of_wait_s"] == {name: time / SECOND for name, time in tale.shares().items()}


def test_a_story_goes_as_far_as_its_tape() -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 5, 4), (60, 1, 1)))
    tape = drive("fifo", world).tape.until(2 * SECOND)
    assert [(told(world, "fifo", tape, job).outcome) for job in range(3)] == ["runs", "waits", "to come"]
    assert told(world, "fifo", tape, 1).stretches[-1].end is None
    assert "to the end of the tape" in told(world, "fifo", tape, 1).lines()[1]


def test_what_cannot_be_told_is_said() -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 5, 4), (2, 1, 4), (3, 9, 4)))
    tape = drive("fifo", world).tape
    with pytest.raises(TapeError, match="job 9 is not in this run; its jobs are 0 to 3"):
        told(world, "fifo", tape, 9)
    with pytest.raises(TapeError, match="another policy wrote this tape"):
        told(world, "sjf", tape, 3)


def test_a_wait_that_is_not_over_is_counted_up_to_the_end_of_the_tape_or_to_now() -> None:
    jobs = workload(
        [Job(0, 0, 100 * SECOND, 4), Job(1, 0, 10 * SECOND, 4), Job(2, 30 * SECOND, SECOND, 0, cpu_milli=1)]
    )
    world = World(uniform(1, 4), jobs)
    tape = drive("fifo+fit", world).tape.until(31 * SECOND)
    tale = told(world, "fifo+fit", tape, 1)
    assert (tale.outcome, tale.waited) == ("waits", 31 * SECOND)
    assert tale.waited_for() == {"capacity": 31 * SECOND}
    assert sum(tale.shares().values()) == 31 * SECOND
    later = story(world.cluster, world.jobs, tape, build("fifo+fit"), 1, now=50 * SECOND)
    assert later.waited == 50 * SECOND
    assert "waited 50s in all" in later.lines()[-2]
