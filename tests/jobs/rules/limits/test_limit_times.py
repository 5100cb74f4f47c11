"""Limits whose amounts change as time passes: what holds is what was in force then."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.errors import ExperimentError
from headway.jobs.ask.other_cluster import renewed, transferred
from headway.jobs.audit.audit import audit
from headway.jobs.audit.replay import replay
from headway.jobs.explain.explain import why_waiting
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.registry import build
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.state.never_feasible import infeasible
from headway.units import SECOND
from tests.drive import Run, World, drive, state_at


def job(submit: float, work: float, gpus: int = 1, **more: object) -> Job:
    """A job, times in seconds."""
    return replace(Job(0, round(submit * SECOND), round(work * SECOND), gpus), **more)  # type: ignore[arg-type]


def changing(resource: str, first: int, *changes: tuple[float, int], **more: object) -> LimitRule:
    """A limit that becomes others, times in seconds."""
    times = tuple((round(time * SECOND), most) for time, most in changes)
    return replace(LimitRule("most", resource, first, changes=times), **more)  # type: ignore[arg-type]


def ran(policy: str, jobs: Sequence[Job], *rules: LimitRule) -> Run:
    """A run on 8 GPUs, audited, and replayed to the last row."""
    world = World(uniform(1, 8, limits=rules), workload(jobs))
    run = drive(policy, world)
    assert audit(world.cluster, world.jobs, run.tape) == []
    again = replay(world.cluster, world.jobs, run.tape, build(policy), complete=False)
    assert again.rows.tolist() == run.tape.rows.tolist()
    return run


def starts(run: Run) -> dict[int, float]:
    """When each job first started, in seconds."""
    return {number: time / SECOND for number, time in run.starts.items()}


@pytest.mark.parametrize("policy", ["fifo", "fifo+fit", "fifo+easy", "fifo+conservative(interval=0s)"])
def test_a_higher_limit_lets_jobs_go_at_its_time_though_nothing_else_happens(policy: str) -> None:
    run = ran(policy, [job(0, 100, 4), job(0, 100, 4), job(0, 100, 2)], changing("gpus", 4000, (30, 8000)))
    assert starts(run) == {0: 0, 1: 30, 2: 100}


def test_a_lower_limit_stops_nobody_and_lets_nobody_start() -> None:
    run = ran("fifo", [job(0, 50, 4), job(0, 60, 4), job(20, 10, 1)], changing("gpus", 8000, (10, 4000)))
    assert starts(run) == {0: 0, 1: 0, 2: 60}  # at 50 four are still held


def test_a_limit_on_single_jobs_is_that_of_the_time_of_the_start() -> None:
    short = changing("wall", 30 * SECOND, (40, 60 * SECOND), (80, 30 * SECOND))
    jobs = [job(0, 50, estimate=50 * SECOND), job(90, 50, estimate=50 * SECOND), job(0, 20, estimate=20 * SECOND)]
    assert starts(ran("fifo", jobs, short)) == {0: 40, 1: 0}  # the last to come waits for ever


def test_jobs_outside_come_into_the_system_when_more_may_be_there() -> None:
    run = ran("fifo", [job(0, 50), job(0, 50), job(0, 50)], changing("submitted", 1, (10, 2), (20, 3)))
    assert starts(run) == {0: 0, 1: 10, 2: 20}


def test_a_job_is_told_the_amount_of_then() -> None:
    jobs = [job(0, 100, 4), job(0, 100, 4)]
    rule = changing("gpus", 4000, (30, 6000), (60, 8000))
    world = World(uniform(1, 8, limits=(rule,)), workload(jobs))
    run = drive("fifo", world)
    for time, told in ((0, "holds 4 of 4 GPUs"), (30, "holds 4 of 6 GPUs")):
        state = state_at(world.cluster, world.jobs, run.tape, time * SECOND, policy := build("fifo"))
        (cause,) = why_waiting(time * SECOND, state, policy, state.jobs[1])
        assert told in cause.text
    assert starts(run)[1] == 60


def test_a_run_that_goes_on_under_another_cluster_keeps_the_amount_in_force() -> None:
    rule = changing("gpus", 4000, (30, 8000))
    world = World(uniform(1, 8, limits=(rule,)), workload([job(0, 100, 4), job(0, 100, 4)]))
    run = drive("fifo", world)
    policy = build("fifo")
    state = state_at(world.cluster, world.jobs, run.tape, 0, policy)
    made = renewed(policy, build("fifo"))
    new, _ = transferred(40 * SECOND, state, world.cluster, made)
    assert new.limits is not None
    assert new.limits.refusing(new.jobs[1]) is None


def test_only_what_no_amount_ever_allows_can_never_run() -> None:
    rule = changing("gpus", 2000, (10, 4000))
    cluster = uniform(1, 8, limits=(rule,))
    assert [each.job.id for each in infeasible(cluster, workload([job(0, 1, 4), job(0, 1, 5)]))] == [1]
    denying = uniform(1, 8, limits=(replace(rule, denies=True, per=("job",)),))
    refused = infeasible(denying, workload([job(0, 1, 4), job(20, 1, 4)]))
    assert [(each.job.id, each.denied) for each in refused] == [(0, True)]


@pytest.mark.parametrize("changes", [((5, 1000), (5, 2000)), ((9, 1000), (5, 2000)), ((0, 1000),), ((5, -1),)])
def test_changes_that_make_no_sense_are_refused(changes: tuple[tuple[float, int], ...]) -> None:
    with pytest.raises(ExperimentError, match="limit most: "):
        changing("gpus", 4000, *changes)


_RESOURCES = {"gpus": 1000, "jobs": 1, "submitted": 1, "nodes": 1, "running_gpu_time": 1000 * SECOND * 10}


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_drawn_changes_are_kept_to_and_nobody_waits_who_may_start(data: st.DataObject) -> None:
    """Against a plain count at every start: what is held with it is at most the amount of that time."""
    resource = data.draw(st.sampled_from(sorted(_RESOURCES)))
    unit = _RESOURCES[resource]
    amounts = st.integers(1, 8).map(lambda number: number * unit)
    times = sorted(data.draw(st.sets(st.integers(1, 40), max_size=4)))
    changes = [(float(time), data.draw(amounts)) for time in times]
    rule = changing(resource, data.draw(amounts), *changes, per=data.draw(st.sampled_from(((), ("user",)))))
    jobs = [
        job(data.draw(st.integers(0, 30)), data.draw(st.integers(1, 20)), 1, user=data.draw(st.sampled_from("uv")))
        for _ in range(data.draw(st.integers(1, 8)))
    ]
    jobs = [each for each in jobs if resource != "running_gpu_time" or each.work * 1000 <= rule.loosest]
    if not jobs:
        return
    run = ran(data.draw(st.sampled_from(["fifo", "fifo+fit", "fifo+easy"])), jobs, rule)
    if resource in ("gpus", "jobs", "nodes"):
        assert _beyond(run, rule, unit) == []
        last = max((time for time, _ in rule.changes), default=0)
        assert len(run.ends) == len(run.jobs) or rule.most_at(last) < unit


def _beyond(run: Run, rule: LimitRule, unit: int) -> list[int]:
    """Jobs that started though too many ran: each of one GPU on one node."""
    found, running = [], dict[int, str]()
    for row in run.tape.rows.tolist():
        time, kind, number = row[:3]
        if kind == Kind.FINISHED:
            running.pop(number)
        elif kind == Kind.START:
            user = run.jobs[number].user if rule.per else ""
            running[number] = user
            held = sum(each == user for each in running.values())
            held = min(held, 2) if rule.resource == "nodes" else held  # those that run are on one node
            if held * unit > rule.most_at(time):
                found.append(number)
    return found


GPU_SECOND = 1000 * SECOND


@pytest.mark.parametrize("policy", ["fifo", "fifo+conservative(interval=0s)"])
@pytest.mark.parametrize(
    ("rule", "at"),
    [
        (LimitRule("used", "gpu_time", 160 * GPU_SECOND, where=(("user", "u"),)), 40),
        (LimitRule("used", "gpu_time", 160 * GPU_SECOND, where=(("user", "u"),), half_life=100 * SECOND), 47),
        (LimitRule("used", "gpu_time", 1000 * GPU_SECOND, where=(("user", "u"),), half_life=100 * SECOND), 150),
    ],
)
def test_a_limit_that_is_used_up_lets_those_behind_start_though_nothing_else_happens(
    policy: str, rule: LimitRule, at: int
) -> None:
    jobs = [job(0, 100, 4, user="u"), job(1, 50, 8, user="u"), job(2, 300, 4, user="v")]
    assert starts(ran(policy, jobs)) == {0: 0, 1: 100, 2: 150}
    assert int(starts(ran(policy, jobs, rule))[2]) == at
