"""The vectorised series equal a plain walk over the tape, at every instant, on runs with everything in them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from headway.jobs.metrics.fragmentation import fragmentation
from headway.jobs.metrics.jobs import job_table
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.little import little
from headway.jobs.metrics.overload import overload
from headway.jobs.metrics.summary import as_json, summarise
from headway.jobs.metrics.timeline import timeline
from headway.jobs.model.rows import Kind
from headway.statistics.series import Series
from tests.jobs.metrics.naive import Walk
from tests.jobs.metrics.runs import PLAIN, Recorded, recorded

RUNS = settings(max_examples=60)


def raw(series: Series | None, time: int) -> float:
    assert series is not None
    return series.at(time) * series.unit


@RUNS
@given(recorded())
def test_every_step_function_equals_a_plain_walk(run: Recorded) -> None:
    ledger = Ledger(run.tape, run.jobs, run.cluster)
    lines, fragments = timeline(ledger), fragmentation(ledger)
    for look in Walk(run.tape, run.jobs, run.cluster).looks:
        seen = {
            "allocated": raw(lines.allocated, look.time),
            "effective": raw(lines.effective, look.time),
            "waiting": raw(lines.waiting, look.time),
            "waiting_gpus": raw(lines.waiting_gpus, look.time),
            "running": raw(lines.running, look.time),
            "nodes_up": raw(lines.nodes_up, look.time),
            "cpus": raw(lines.cpus, look.time),
            "memory_bytes": raw(lines.memory_bytes, look.time),
            "storage": raw(lines.storage, look.time),
            "free": raw(fragments.free, look.time),
        }
        assert {name: round(value) for name, value in seen.items()} == {name: getattr(look, name) for name in seen}
        assert {level: series.at(look.time) for level, series in fragments.levels.items()} == pytest.approx(look.levels)
        assert fragments.fgd.at(look.time) == pytest.approx(look.fgd)


@RUNS
@given(recorded())
def test_waits_and_holds_equal_a_plain_walk(run: Recorded) -> None:
    ledger = Ledger(run.tape, run.jobs, run.cluster)
    walk = Walk(run.tape, run.jobs, run.cluster)
    assert ledger.wait.tolist() == [walk.waits[job.id] for job in run.jobs]
    assert ledger.held.tolist() == [walk.held[job.id] for job in run.jobs]
    still = ledger.summed(ledger.hold_job, ledger.standstill)
    assert still.tolist() == [walk.still[job.id] for job in run.jobs]


@RUNS
@given(recorded())
def test_littles_law_holds_to_the_nanosecond(run: Recorded) -> None:
    over_time, over_jobs = little(run.tape, run.jobs)
    assert over_time == over_jobs
    assert over_jobs == sum(Walk(run.tape, run.jobs, run.cluster).waits.values())


@RUNS
@given(recorded())
def test_the_summary_adds_up(run: Recorded) -> None:
    summary = summarise(run.tape, run.jobs, run.cluster)
    table = job_table(Ledger(run.tape, run.jobs, run.cluster))
    assert summary.jobs + summary.to_come == len(run.jobs)
    assert summary.finished + summary.failed + summary.cancelled + summary.unfinished == summary.jobs == len(table)
    assert summary.gpu_hours == pytest.approx(float(table["gpu_s"].sum()) / 3600)
    assert summary.lost_gpu_hours == pytest.approx(float(table["lost_gpu_s"].sum()) / 3600)
    assert summary.preemptions == table["preemptions"].sum()
    assert summary.reallocations == table["reallocations"].sum()
    shares = [*summary.fragmentation.values(), summary.fgd_fragmentation, summary.gpu_utilisation]
    assert all(-1e-12 <= share <= 1 + 1e-12 for share in shares)
    outer_to_inner = list(summary.fragmentation.values())
    assert all(outer + 1e-12 >= inner for outer, inner in pairwise(outer_to_inner))
    assert as_json(summary, "p")["jct_mean_s"] == summary.jct_s.mean
    assert as_json(summary, "p")["overload"] == overload(Ledger(run.tape, run.jobs, run.cluster))


@RUNS
@given(recorded(PLAIN, whole=True, generous=False))
def test_effective_gpu_time_at_one_speed_is_the_work_that_was_kept_or_lost(run: Recorded) -> None:
    ledger = Ledger(run.tape, run.jobs, run.cluster)
    evicted = ledger.rows(Kind.EVICTED)
    work = ledger.ideal + ledger.summed(ledger.subject[evicted], ledger.detail[evicted])
    assert bool(ledger.ended.all())
    assert timeline(ledger).effective.integral(0, ledger.horizon) == 1_000_000 * int(np.sum(work * ledger.width))
