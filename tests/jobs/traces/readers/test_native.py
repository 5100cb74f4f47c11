"""Headway's own format: what is written is read back, exactly to the nanosecond."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.errors import TraceError
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.traces import load, philly_like, write
from headway.units import DAY, SECOND

MOST_WRITING = 100 * 365 * DAY
"""What the checkpoints of one job may take."""
TIME = st.one_of(st.integers(0, 2**62), st.integers(0, 10**6).map(lambda whole: whole * SECOND))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
GPU_TYPE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=";"), min_size=1, max_size=5)


@st.composite
def _job(draw: st.DrawFn, number: int) -> Job:
    work = draw(st.integers(1, 2**62))
    nodes = draw(st.integers(0, 3))
    gpus = draw(st.integers(1, 64)) * max(nodes, 1)
    outcome = draw(st.sampled_from(Outcome))
    checkpoint = draw(TIME)
    least = work * checkpoint // MOST_WRITING + 1  # of those that end in time, work by work // every writes
    return Job(
        id=0,
        submit=draw(TIME),
        work=work,
        gpus=gpus,
        gpu_milli=draw(st.integers(1, 1000)) if gpus == 1 else 1000,
        name=draw(st.sampled_from(["", f"j{number}", f'"{number},\r\n', f" {number} "])),
        tenant=draw(TEXT),
        partition=draw(TEXT),
        gpu_types=tuple(draw(st.lists(GPU_TYPE, max_size=2))),
        nodes=nodes,
        cpu_milli=draw(st.integers(0, 10**6)),
        memory_bytes=draw(st.integers(0, 2**60)),
        estimate=draw(TIME),
        priority=draw(st.integers(-(2**40), 2**40)),
        qos=draw(TEXT),
        user=draw(TEXT),
        preemptible=draw(st.booleans()),
        checkpoint=checkpoint,
        restore=draw(TIME),
        checkpoint_every=draw(st.just(0) | st.integers(least, 2**62 + 1)),
        communication_ppm=draw(st.integers(0, 10**6)),
        outcome=outcome,
        outcome_after=draw(st.integers(1, work)) if outcome else 0,
        retries=draw(st.integers(0, 5)),
        patience=draw(TIME),
        model=draw(TEXT),
    )


@st.composite
def _jobs(draw: st.DrawFn) -> tuple[Job, ...]:
    first = Job(id=0, submit=0, work=1, name="first")
    return workload([first, *(draw(_job(number)) for number in range(draw(st.integers(0, 3))))])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=_jobs(), name=st.sampled_from(["t.csv", "t.csv.gz", "t.parquet"]))
def test_any_workload_comes_back_as_it_was_written(tmp_path: Path, jobs: tuple[Job, ...], name: str) -> None:
    write(jobs, tmp_path / name)
    trace = load(tmp_path / name, "headway", strict=True)
    assert trace.jobs == jobs
    assert not trace.dropped
    assert not trace.notes


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_large_synthetic_workload_comes_back_and_is_written_the_same_twice(tmp_path: Path, name: str) -> None:
    jobs = philly_like(3000, seed=4)
    write(jobs, tmp_path / name)
    assert load(tmp_path / name, "headway").jobs == jobs
    first = (tmp_path / name).read_bytes()
    write(jobs, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


def test_only_columns_that_say_something_are_written(tmp_path: Path) -> None:
    write([Job(0, 0, SECOND + 1), Job(1, SECOND // 2, SECOND, user="ada")], tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == 'submit_s,work_s,gpus,user\n0,1.000000001,1,""\n0.5,1,1,ada\n'


def test_parquet_of_other_types_is_read(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "submit_s": [0.0, 1.25],
            "work_s": [10, 20],
            "gpus": [1.0, 2.0],
            "gpu_types": [["a", "b"], []],
            "preemptible": [True, False],
        }
    )
    frame.write_parquet(tmp_path / "t.parquet")
    first, second = load(tmp_path / "t.parquet", "headway", strict=True).jobs
    assert (first.gpu_types, second.gpu_types, second.submit, second.gpus) == (("a", "b"), (), 1_250_000_000, 2)
    assert not second.preemptible


@pytest.mark.parametrize(
    ("job", "rule"),
    [
        (Job(0, 0, 1, gpu_types=("a;b",)), "holds ';'"),
        (Job(0, 0, 0), "must be above 0"),
        (Job(0, 0, 2**63), "over 292 years"),
        (Job(0, 0, 1, user="\ud800"), "cannot be written"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, job: Job, rule: str) -> None:
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(TraceError, match=rule):
            write([job], tmp_path / name)
        assert not (tmp_path / name).exists()
    with pytest.raises(TraceError, match="no jobs to write"):
        write([], tmp_path / "t.csv")
    with pytest.raises(TraceError, match="cannot be written"):
        write([Job(0, 0, 1)], tmp_path / "absent" / "t.csv")
