"""Synthetic workloads have the shapes they promise, and what an experiment does to a workload is exact."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.jobs.model.job import Job, Outcome, broken_rule
from headway.jobs.traces import estimates, load_scale, offered_load, philly_like
from headway.jobs.traces.build import altered, build
from headway.units import DAY, HOUR, SECOND


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others() -> None:
    assert philly_like(500, seed=3) == philly_like(500, seed=3)
    assert philly_like(500, seed=3) != philly_like(500, seed=4)


@settings(max_examples=25, deadline=None)
@given(jobs=st.integers(1, 300), seed=st.integers(0, 99), gpus=st.integers(1, 2000), load=st.floats(0.05, 5))
def test_jobs_are_sound_fit_the_cluster_and_bring_the_load_asked_for(
    jobs: int, seed: int, gpus: int, load: float
) -> None:
    drawn = philly_like(jobs, seed=seed, gpus=gpus, load=load)
    assert len(drawn) == jobs
    assert drawn[0].submit == 0
    assert all(broken_rule(job) is None and 1 <= job.gpus <= gpus for job in drawn)
    assert all(before.submit <= after.submit for before, after in pairwise(drawn))
    if jobs > 1:
        assert offered_load(drawn, gpus) == pytest.approx(load, rel=1e-6)


def test_shapes_are_those_of_large_clusters() -> None:
    jobs = philly_like(20_000, seed=1, gpus=1024)
    widths = Counter(job.gpus for job in jobs)
    assert widths[1] / len(jobs) == pytest.approx(0.70, abs=0.02)
    assert widths[8] / len(jobs) == pytest.approx(0.12, abs=0.02)
    ends = Counter(job.outcome for job in jobs)
    assert ends[Outcome.FAILS] / len(jobs) == pytest.approx(0.20, abs=0.02)
    assert ends[Outcome.CANCELLED] / len(jobs) == pytest.approx(0.25, abs=0.02)
    tenants = Counter(job.tenant for job in jobs).most_common()
    assert len(tenants) == 12
    assert tenants[0][1] > 8 * tenants[-1][1]
    work = sorted(job.work for job in jobs)
    assert sum(work) / len(work) > 5 * work[len(work) // 2]
    assert all((job.communication_ppm > 0) == (job.gpus > 1) for job in jobs)
    assert all(job.estimate >= job.work for job in jobs)
    assert sum(job.estimate % HOUR == 0 for job in jobs) > len(jobs) / 2


def test_nights_and_weekends_are_calmer() -> None:
    jobs = philly_like(30_000, seed=2, gpus=256)
    weeks = jobs[-1].submit // (7 * DAY)
    assert weeks >= 2
    whole = [job.submit for job in jobs if job.submit < weeks * 7 * DAY]
    days = Counter(submit // DAY % 7 for submit in whole)
    hours = Counter(submit // HOUR % 24 for submit in whole)
    assert (days[5] + days[6]) / 2 < 0.75 * sum(days[day] for day in range(5)) / 5
    assert hours[3] < 0.5 * hours[15]


def test_options_switch_realism_off_without_disturbing_the_rest() -> None:
    real, plain = philly_like(400, seed=5), philly_like(400, seed=5, outcomes=False, estimates=False)
    assert all(job.outcome is Outcome.FINISHES and job.outcome_after == 0 and job.estimate == 0 for job in plain)
    assert [(job.work, job.gpus, job.user) for job in real] == [(job.work, job.gpus, job.user) for job in plain]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [({"jobs": 0}, "at least 1"), ({"jobs": 5, "gpus": 0}, "at least 1"), ({"jobs": 5, "load": 0.0}, "above 0"),
     ({"jobs": 5, "load": float("nan")}, "above 0"), ({"jobs": 5, "load": 1e-9, "gpus": 1}, "would span")],
)  # fmt: skip
def test_a_workload_that_cannot_be_is_refused(arguments: dict[str, float], rule: str) -> None:
    with pytest.raises(ExperimentError, match=rule):
        philly_like(**arguments)  # type: ignore[arg-type]


@given(
    submits=st.lists(st.integers(0, 2**62), max_size=6).map(sorted),
    factor=st.sampled_from([1.2, "0.1", 3, Fraction(7, 3)]),
)
def test_load_scale_divides_submit_times_exactly(submits: list[int], factor: float) -> None:
    jobs = tuple(Job(position, submit, 1) for position, submit in enumerate(submits))
    scaled = load_scale(jobs, factor)
    assert [job.submit for job in scaled] == [int(submit / Fraction(str(factor))) for submit in submits]
    assert load_scale(jobs, 1) == load_scale(jobs, 1.0) == jobs


@pytest.mark.parametrize("factor", [0, -1.5, float("nan"), float("inf"), "much", "1e999999999", "1E-999999999"])
def test_a_load_factor_must_be_a_number_above_0(factor: float) -> None:
    with pytest.raises(ExperimentError, match=f"load factor .*{factor}"):
        load_scale((), factor)


def test_estimates_follow_their_spec() -> None:
    jobs = (
        Job(0, 0, 10 * SECOND, estimate=77),
        Job(1, 0, 10 * SECOND, outcome=Outcome.CANCELLED, outcome_after=3),
    )
    assert estimates(jobs, "trace") == jobs
    assert [job.estimate for job in estimates(jobs, "exact")] == [10 * SECOND, 3]
    assert [job.estimate for job in estimates(jobs, "factor:3")] == [30 * SECOND, 9]
    assert [job.estimate for job in estimates(jobs, "factor:0.5")] == [5 * SECOND, 2]
    assert estimates(jobs, "user", seed=1) == estimates(jobs, "user", seed=1)
    assert all(job.estimate > 0 for job in estimates(jobs, "user", seed=1))
    for wrong in ("factor", "factor:", "factor:-1", "exat", ""):
        with pytest.raises(ExperimentError):
            estimates(jobs, wrong)


def test_jobs_built_by_column_are_jobs_like_any_other() -> None:
    built = build(2, {"submit": [0, 5], "work": [1, 2], "name": ["a", "b"]})
    assert built == [Job(0, 0, 1, name="a"), Job(1, 5, 2, name="b")]
    assert hash(built[1]) == hash(Job(1, 5, 2, name="b"))
    assert altered(built, {"gpus": [3, 4]}) == (Job(0, 0, 1, name="a", gpus=3), Job(1, 5, 2, name="b", gpus=4))
    assert altered((), {"gpus": []}) == ()


def test_no_job_is_longer_than_the_longest_nor_announced_to_be() -> None:
    free, limited = philly_like(3000, seed=5), philly_like(3000, seed=5, longest=2 * DAY)
    assert max(job.work for job in free) > 2 * DAY
    assert max(job.work for job in limited) == 2 * DAY
    assert max(job.estimate or 0 for job in limited) == 2 * DAY
    assert [job.work for job in limited] == [min(job.work, 2 * DAY) for job in free]
    assert [job.gpus for job in limited] == [job.gpus for job in free]
    with pytest.raises(ExperimentError, match="longest 0 s must be at least 1 s"):
        philly_like(10, longest=0)
