"""What a job and a workload may be, and what is said when they may not."""

from dataclasses import replace

import pytest

from headway.errors import TraceError
from headway.jobs.model.job import Job, Outcome, broken_rule, workload
from headway.units import DAY


@pytest.mark.parametrize(
    ("job", "rule"),
    [
        (Job(0, -1, 1), "before the run began"),
        (Job(0, 0, 0), "must be above 0"),
        (Job(0, 0, 1001 * 365 * DAY), "over a thousand years"),
        (Job(0, 0, 1, -1), "must not be negative"),
        (Job(0, 0, 1, 1, 0), "1..1000"),
        (Job(0, 0, 1, 1, 1001), "1..1000"),
        (Job(0, 0, 1, 2, 500), "a share never spans devices"),
        (Job(0, 0, 1, 3, nodes=2), "cannot be divided evenly"),
        (Job(0, 0, 1, cpu_milli=-1), "must not be negative"),
        (Job(0, 0, 1, 0), "asks for no GPU, no CPU and no memory"),
        (Job(0, 0, 1, communication_ppm=1_000_001), "0..1000000"),
        (Job(0, 0, 5, outcome=Outcome.FAILS), "outcome_after 0 must lie in 1..work"),
        (Job(0, 0, 5, outcome=Outcome.CANCELLED, outcome_after=6), "1..work (5)"),
        (Job(0, 0, 1, retries=-1), "must not be negative"),
    ],
)
def test_a_broken_job_is_told_by_its_field_value_and_rule(job: Job, rule: str) -> None:
    assert rule in str(broken_rule(job))
    with pytest.raises(TraceError, match="job x: "):
        workload([replace(job, name="x")])


def test_a_workload_is_numbered_in_order_of_submission_and_ties_stay_as_given() -> None:
    jobs = workload([Job(7, 5, 1, name="c"), Job(7, 0, 1, name="a"), Job(7, 5, 2, name="b")])
    assert [(job.id, job.name) for job in jobs] == [(0, "a"), (1, "c"), (2, "b")]
    assert workload([]) == ()


def test_an_id_that_occurs_twice_is_named() -> None:
    with pytest.raises(TraceError, match="job x: the id occurs twice"):
        workload([Job(0, 0, 1, name="x"), Job(1, 0, 1, name="x")])


def test_width_and_sharing() -> None:
    assert Job(0, 0, 1, 4).width_milli == 4000
    assert not Job(0, 0, 1, 4).shared
    assert Job(0, 0, 1, gpu_milli=250).width_milli == 250
    assert Job(0, 0, 1, gpu_milli=250).shared
