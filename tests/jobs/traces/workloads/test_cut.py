"""Part of a workload is the jobs that were asked for, unchanged but for their numbers and the shift to 0."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import TraceError
from headway.jobs.traces import philly_like
from headway.jobs.traces.workloads.cut import cut
from headway.units import HOUR

JOBS = philly_like(200, seed=5, gpus=16)
SPAN = JOBS[-1].submit


@settings(max_examples=60)
@given(st.integers(0, 110), st.integers(0, 110), st.integers(0, 220), st.integers(0, 220), st.booleans())
def test_a_part_is_what_meets_all_conditions(a: int, b: int, first: int, last: int, owned: bool) -> None:
    start, end = SPAN * min(a, b) // 100, SPAN * max(a, b) // 100
    numbers = min(first, last), max(first, last)
    tenants = ["tenant00", "tenant03"] if owned else []
    wanted = [
        job
        for job in JOBS
        if start <= job.submit < end and job.id in range(*numbers) and (not owned or job.tenant in tenants)
    ]
    if not wanted:
        with pytest.raises(TraceError, match="none is left"):
            cut(JOBS, start=start, end=end, numbers=numbers, tenants=tenants)
        return
    part = cut(JOBS, start=start, end=end, numbers=numbers, tenants=tenants)
    assert [job.id for job in part] == list(range(len(wanted)))
    assert part[0].submit == 0
    shift = wanted[0].submit
    assert [replace(job, id=was.id, submit=job.submit + shift) for job, was in zip(part, wanted, strict=True)] == wanted


def test_all_is_kept_where_nothing_is_asked() -> None:
    assert cut(JOBS) == JOBS


def test_what_was_asked_is_named_where_nothing_is_left() -> None:
    with pytest.raises(TraceError, match=r"of 200 jobs over .* none is left: from .* to the end, tenant nobody"):
        cut(JOBS, start=HOUR, tenants=["nobody"])
    with pytest.raises(TraceError, match="jobs 500 to the last"):
        cut(JOBS, numbers=(500, None))
