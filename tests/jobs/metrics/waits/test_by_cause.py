"""Waiting time by cause: exact totals, and shares that agree with asking every job at every instant."""

from collections import defaultdict
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings

from headway.core.tape import Tape
from headway.jobs.audit.replay import Walk
from headway.jobs.explain.explain import probe, why_waiting
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.sizes import size_class
from headway.jobs.metrics.waits import by_cause as causes
from headway.jobs.metrics.waits.by_cause import OTHERS, why_waited
from headway.jobs.metrics.waits.intervals import waits
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.policies.backfills.fit import Fit
from headway.jobs.policies.parts import Backfill
from headway.jobs.policies.registry import build
from headway.jobs.traces.workloads.philly_like import philly_like
from headway.units import HOUR, SECOND
from tests.drive import World, drive, seconds_of
from tests.jobs.metrics.runs import Recorded, recorded
from tests.strategies import specs, worlds

CROWDED = World(uniform(4, 4), tuple(philly_like(150, gpus=16, load=3.0, seed=3)))


def exhaustive(world: World, spec: str, tape: Tape) -> dict[str, float]:
    """Nanoseconds of waiting by cause: every job asked at every instant at which it waits."""
    walk = Walk(world.cluster, world.jobs, tape, build(spec), asking=True, speed=world.speed(), costs=world.costs)
    times = np.unique(tape.column("time")).tolist()
    found: dict[str, float] = defaultdict(float)
    for position, step in enumerate(walk):
        walk.act()
        length = (times[position + 1] if position + 1 < len(times) else step.time) - step.time
        for _, job in list(walk.state.queue.in_order()) if length else ():
            named = why_waiting(step.time, walk.state, walk.policy, walk.state.jobs[job])
            for cause in named:
                found[str(cause.kind)] += length / len(named)
    return dict(found)


@pytest.mark.parametrize("asked", [10**9, 0], ids=["asked all along", "asked at the points"])
@pytest.mark.parametrize("spec", ["fifo", "fifo+fit", "fifo+easy", "fifo+conservative", "srtf+easy", "ftf", "las"])
def test_the_estimate_agrees_with_asking_everybody_all_the_time(
    spec: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causes, "ASKED_STEPS", asked)
    tape = drive(spec, CROWDED, bounded=False).tape
    truth = exhaustive(CROWDED, spec, tape)
    told = why_waited(CROWDED.cluster, CROWDED.jobs, tape, build(spec), samples=4000)
    found = {str(record["cause"]): record for record in told.by("cause")}
    assert sum(truth.values()) / HOUR == pytest.approx(told.total_job_hours)
    nearly = 0.02 * told.total_job_hours if "conservative" in spec and not asked else 0.0
    for kind, waited in truth.items():
        record = found.get(kind, {"job_hours": 0.0, "error": 0.001 * told.total_job_hours})
        assert abs(record["job_hours"] - waited / HOUR) <= 4 * record["error"] + nearly, (kind, waited / HOUR, record)
    assert set(found) <= set(truth) | ({"reservation", "order"} if nearly else set())


@settings(max_examples=30)
@given(worlds(max_jobs=8), specs())
def test_rows_add_up_to_what_the_ledger_says_each_tenant_and_size_waited(world: World, spec: str) -> None:
    tape = drive(spec, world).tape
    told = why_waited(world.cluster, world.jobs, tape, build(spec), world.speed(), world.costs, samples=20)
    ledger = Ledger(tape, world.jobs, world.cluster)
    expected: dict[tuple[str, str], int] = defaultdict(int)
    for job, waited in zip(world.jobs, ledger.wait.tolist(), strict=True):
        expected[job.tenant, size_class(job.width_milli)] += waited
    found: dict[tuple[str, str], int] = defaultdict(int)
    for row in told.rows:
        found[row.tenant, row.size] += row.waited
    assert dict(found) == {key: waited for key, waited in expected.items() if waited}
    assert sum(row.share for row in told.rows) == pytest.approx(1.0 if told.rows else 0.0)
    assert told.total_job_hours == pytest.approx(sum(ledger.wait.tolist()) / HOUR)


@settings(max_examples=60)
@given(recorded())
def test_stretches_of_waiting_are_what_the_ledger_calls_wait(run: Recorded) -> None:
    ledger = Ledger(run.tape, run.jobs, run.cluster)
    stretches = waits(ledger)
    assert (stretches.length > 0).all()
    assert ledger.summed(stretches.job, stretches.length).tolist() == ledger.wait.tolist()


def test_the_same_seed_gives_the_same_and_another_seed_other_points() -> None:
    tape = drive("fifo+fit", CROWDED, bounded=False).tape
    first, again, other = (
        why_waited(CROWDED.cluster, CROWDED.jobs, tape, build("fifo+fit"), samples=100, seed=seed) for seed in (0, 0, 1)
    )
    assert first == again
    assert first.rows != other.rows
    assert first.total_job_hours == other.total_job_hours


def test_causes_share_the_time_and_the_error_shrinks_with_the_points() -> None:
    world = World(uniform(1, 4), seconds_of((0, 100, 3), (0, 10, 2), (0, 10, 1)))
    tape = drive("fifo", world).tape
    told = why_waited(world.cluster, world.jobs, tape, build("fifo"), samples=1000)
    kinds = {(row.cause, row.size): row.waited for row in told.rows}
    assert kinds == {("capacity", "2 GPUs"): 100 * SECOND, ("head-of-line", "1 GPU"): 100 * SECOND}
    few = why_waited(world.cluster, world.jobs, tape, build("fifo"), samples=10)
    assert 0 < told.rows[0].error < few.rows[0].error
    assert "1,000 points" in told.note


def test_by_adds_rows_up_and_totals_of_tenants_are_exact() -> None:
    tape = drive("fifo", CROWDED, bounded=False).tape
    told = why_waited(CROWDED.cluster, CROWDED.jobs, tape, build("fifo"))
    assert all(record["error"] == 0.0 for record in told.by("tenant", "size"))
    by_cause = {record["cause"]: record for record in told.by("cause")}
    mine = [row for row in told.rows if row.cause == "head-of-line"]
    assert by_cause["head-of-line"]["job_hours"] == pytest.approx(sum(row.waited for row in mine) / HOUR)
    assert by_cause["head-of-line"]["error"] == pytest.approx(sqrt(sum(row.error**2 for row in mine)))


def test_a_run_in_which_nobody_waits_and_one_cut_short() -> None:
    idle = World(uniform(1, 4), seconds_of((0, 10, 4)))
    told = why_waited(idle.cluster, idle.jobs, drive("fifo", idle).tape, build("fifo"))
    assert (told.rows, told.samples, told.total_job_hours) == ((), 0, 0.0)
    assert told.note == "no job waited"
    busy = World(uniform(1, 4), seconds_of((0, 100, 4), (0, 10, 4), (50, 1, 4)))
    cut = drive("fifo", busy).tape.until(50 * SECOND)
    told = why_waited(busy.cluster, busy.jobs, cut, build("fifo"))
    assert sum(row.waited for row in told.rows) == 50 * SECOND


def test_many_tenants_stand_together_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "MOST_TENANTS", 2)
    jobs = workload(Job(0, 0, (i + 1) * SECOND, tenant=f"t{i}") for i in range(6))
    world = World(uniform(1, 1), jobs)
    told = why_waited(world.cluster, jobs, drive("fifo", world).tape, build("fifo"))
    assert {row.tenant for row in told.rows} == {"t5", "t4", OTHERS}


class Own(Fit):
    """A backfill from elsewhere that says nothing about its memory."""


class OwnThatRemembers(Fit):
    """One that does."""

    remembers = True


@pytest.mark.parametrize(("backfill", "as_remembered"), [(Fit, True), (Own, True), (OwnThatRemembers, False)])
def test_whether_a_part_remembers_is_what_it_declares(
    backfill: type[Backfill], as_remembered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causes, "ASKED_STEPS", 0)
    policy = build("fifo")
    policy.backfill = backfill()
    tape = drive("fifo+fit", CROWDED, bounded=False).tape
    told = why_waited(CROWDED.cluster, CROWDED.jobs, tape, policy, samples=50)
    assert told.as_remembered is as_remembered


@pytest.mark.parametrize("spec", ["fifo+easy", "fifo+conservative"])
def test_asking_to_whom_a_backfill_would_promise_leaves_it_as_it_is(spec: str) -> None:
    policy = build(spec)
    tape = drive(spec, CROWDED, bounded=False).tape
    walk = Walk(CROWDED.cluster, CROWDED.jobs, tape, policy, asking=True)
    seen = 0
    for step in walk:
        walk.act()
        before = dict(policy.backfill.reservations)
        promised = set(policy.backfill.would_promise(step.time, walk.state, probe(policy)))
        assert policy.backfill.reservations == before
        if spec == "fifo+easy" and before:
            assert promised == set(before)
        seen += bool(promised)
    assert seen
