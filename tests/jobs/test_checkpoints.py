"""Periodic checkpoints take time while a job runs: when it ends, what a failure leaves, what policies believe."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from headway.core.scheduler import act, happen
from headway.core.tape import TapeWriter
from headway.errors import TraceError
from headway.jobs.audit.audit import audit
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.periodic_checkpoints import MOST_WRITES, Stretch
from headway.jobs.model.rows import Kind
from headway.jobs.policies.registry import build
from headway.jobs.show.story.story import story
from headway.jobs.sim.cluster import SimulatedCluster
from headway.units import DAY, MINUTE, SECOND
from tests.drive import World, drive, fresh_state
from tests.jobs.sim.test_faults import fails_once
from tests.show.made import leave, opened

SAVES = Job(0, 0, 100 * SECOND, 4, checkpoint=5 * SECOND, checkpoint_every=30 * SECOND)


def alone(job: Job) -> World:
    """One job on one node."""
    return World(uniform(1, 4), workload([job]))


@pytest.mark.parametrize(
    ("work_s", "end_s"), [(29, 29), (30, 30), (31, 36), (60, 65), (100, 115)], ids=lambda value: f"{value}s"
)
def test_a_job_stands_still_for_each_checkpoint_but_one_at_its_end(work_s: int, end_s: int) -> None:
    world = alone(replace(SAVES, work=work_s * SECOND))
    made = drive("fifo", world)
    assert made.ends == {0: end_s * SECOND}
    assert audit(world.cluster, world.jobs, made.tape, policy=build("fifo"), complete=True) == []


@pytest.mark.parametrize("job", [replace(SAVES, checkpoint=0), replace(SAVES, checkpoint_every=0)])
def test_checkpoints_that_take_no_time_and_none_at_all_leave_the_end_where_it_was(job: Job) -> None:
    assert drive("fifo", alone(job)).ends == {0: 100 * SECOND}


def test_a_failed_attempt_writes_up_to_where_it_fails_and_begins_anew() -> None:
    job = replace(SAVES, outcome=Outcome.FAILS, outcome_after=45 * SECOND, retries=1)
    assert [row.time for row in drive("fifo", alone(job)).rows(Kind.FAILED)] == [50 * SECOND, 100 * SECOND]


@pytest.mark.parametrize(
    ("fails_s", "kept_s"),
    [(34, 0), (35, 30), (64, 30), (66, 30), (70, 60)],
    ids=["while writing", "just written", "before the second", "while writing the second", "after it"],
)
def test_a_failure_leaves_the_last_checkpoint_that_was_whole(fails_s: int, kept_s: int) -> None:
    made = fails_once(replace(SAVES, restore=7 * SECOND), fails_s * SECOND, 200 * SECOND)
    (evicted,) = made.rows(Kind.EVICTED)
    assert evicted.value == kept_s * SECOND
    writes = 3 - kept_s // 30
    assert made.ends[0] == (200 + (7 if kept_s else 0) + 100 - kept_s + 5 * writes) * SECOND


def test_the_audit_finds_a_job_that_did_not_stop_to_write() -> None:
    world = alone(SAVES)
    free = drive("fifo", alone(replace(SAVES, checkpoint=0)))
    found = audit(world.cluster, world.jobs, free.tape)
    assert {finding.rule for finding in found} == {"service"}
    assert "job 0 was delivered 90000000000 ns of work, the tape says 100000000000" in [f.text for f in found]


@pytest.mark.parametrize("at_s", [0, 10, 32, 34, 50, 69, 114])
def test_what_policies_believe_to_be_left_counts_the_writes_to_come(at_s: int) -> None:
    world = alone(SAVES)
    policy = build("fifo")
    state = fresh_state(policy, world)
    executor = SimulatedCluster(world.jobs, state)
    now, (arrived,) = executor.next() or (0, ())
    state.apply(now, arrived)
    js = state.jobs[0]
    assert (js.remaining(0), js.time_left(1_000_000), js.time_left(500_000)) == (
        *(115 * SECOND, 115 * SECOND),
        215 * SECOND,
    )
    for action in policy.decide(now, state):
        state.commit(now, action)
    assert js.expected_end() == 115 * SECOND
    assert js.remaining(at_s * SECOND) == (115 - at_s) * SECOND


def test_a_backfilled_job_does_not_delay_the_first_one_by_its_checkpoints() -> None:
    jobs = workload(
        [
            Job(0, 0, 100 * SECOND, 2),
            Job(0, SECOND, 10 * SECOND, 4),
            replace(SAVES, submit=2 * SECOND, work=90 * SECOND, gpus=2),
        ]
    )
    assert drive("fifo+easy", World(uniform(1, 4), jobs)).starts == {
        0: 0,
        1: 100 * SECOND,
        2: 110 * SECOND,
    }


def test_an_end_that_is_noticed_late_has_no_more_checkpoints() -> None:
    world = alone(replace(SAVES, work=60 * SECOND))
    state = fresh_state(policy := build("fifo"), world)
    state.journal = (writer := TapeWriter()).append
    executor = SimulatedCluster(world.jobs, state, completions=100 * SECOND)
    while (happened := executor.next()) is not None:
        now, events = happened
        for event in events:
            happen(state, executor, now, event)
        for action in policy.decide(now, state):
            assert act(state, executor, now, action) is None
    tape = writer.close()
    assert now == 100 * SECOND
    assert tape.of(int(Kind.FINISHED))[0, -1] == 60 * SECOND
    assert audit(world.cluster, world.jobs, tape, completions=100 * SECOND) == []


def test_a_job_that_would_write_for_a_century_is_refused() -> None:
    with pytest.raises(TraceError, match="checkpoint_every"):
        workload([replace(SAVES, work=DAY, checkpoint=DAY, checkpoint_every=1)])


def test_many_writes_are_told_a_few_at_a_time_and_last_as_long() -> None:
    stretch = Stretch(replace(SAVES, work=DAY, checkpoint=SECOND, checkpoint_every=2 * SECOND), speed=1_000_000)
    writes = list(stretch.writes(DAY))
    assert 0 < len(writes) <= MOST_WRITES
    assert sum(end - begin for begin, end in writes) == DAY // 3
    assert all(end <= begin for (_, end), (begin, _) in pairwise(writes))


def test_a_story_says_how_long_checkpoints_were_written() -> None:
    world = alone(SAVES)
    told = story(world.cluster, world.jobs, drive("fifo", world).tape, build("fifo"), 0)
    assert told.lines()[1].endswith("for 1m 55s  runs on n0 (4), 15s of it to write checkpoints, finished")
    (run,) = told.record()["stretches"]
    assert (run["standstill_s"], run["checkpoints_s"]) == (0, 15)


def test_reports_name_the_time_that_checkpoints_took(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(
        "submit_s,work_s,gpus,name,checkpoint_s,checkpoint_every_s\n0,7200,1,one,60,1800\n0,3600,1,two,60,1800\n"
    )
    document = {"trace": {"path": str(trace)}, "cluster": {"nodes": 1, "gpus_per_node": 1}}
    (run,) = opened(leave(tmp_path / "run", document)).runs
    minutes = {name: hours * 60 for name, hours in run.lost.items() if hours}
    assert minutes == {"writing periodic checkpoints": pytest.approx(4)}
    assert run.summary.lost_gpu_hours * 60 == pytest.approx(4)
    assert run.summary.makespan_s == (10_800 + 4 * MINUTE // SECOND)
    assert run.summary.effective_gpu_utilisation == pytest.approx(10_800 / 11_040)
