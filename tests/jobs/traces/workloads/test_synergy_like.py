"""Workloads of Synergy's kind have the shapes that they promise, and models are drawn for jobs that name none."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.jobs.model.job import Job, broken_rule
from headway.jobs.tables.profiles import shipped
from headway.jobs.traces import load, philly_like, synergy_like, with_models, write
from headway.jobs.traces.workloads.synergy_like import CLASSES, parse_rate, parse_split
from headway.units import DAY, HOUR, MINUTE, SECOND

KIND = {model: kind for kind, models in CLASSES.items() for model in models}


def test_the_same_arguments_give_the_same_jobs_and_another_seed_others() -> None:
    assert synergy_like(300, seed=42) == synergy_like(300, seed=42)
    assert synergy_like(300, seed=42) != synergy_like(300, seed=43)
    assert len(synergy_like(1)) == 1


def test_one_option_does_not_disturb_the_rest() -> None:
    plain, other = synergy_like(200, seed=3), synergy_like(200, seed=3, rate="18/h", split="50,0,50", gpus="multi")
    assert [job.work for job in plain] == [job.work for job in other]
    assert all(abs(a.submit - 2 * b.submit) <= 2 for a, b in zip(plain, other, strict=True))


@settings(max_examples=25, deadline=None)
@given(jobs=st.integers(1, 200), seed=st.integers(0, 99), gpus=st.sampled_from(["single", "multi"]))
def test_jobs_are_sound_in_order_and_begin_at_0(jobs: int, seed: int, gpus: str) -> None:
    drawn = synergy_like(jobs, seed=seed, gpus=gpus)
    assert len(drawn) == jobs
    assert drawn[0].submit == 0
    assert all(broken_rule(job) is None and job.work % SECOND == 0 for job in drawn)
    assert all(before.submit <= after.submit for before, after in pairwise(drawn))


def test_durations_and_arrivals_are_those_of_the_paper() -> None:
    jobs = synergy_like(20_000, seed=1)
    minutes = [job.work / MINUTE for job in jobs]
    assert min(minutes) >= 10**1.5 - 0.01
    assert max(minutes) <= 10**4 + 0.01
    assert sum(length < 1000 for length in minutes) / len(jobs) == pytest.approx(0.8, abs=0.01)
    # uniform in the power of ten: as many below the middle of each range as above it
    assert sum(length < 10**2.25 for length in minutes) / len(jobs) == pytest.approx(0.4, abs=0.01)
    assert sum(length < 10**3.5 for length in minutes) / len(jobs) == pytest.approx(0.9, abs=0.01)
    gaps = [after.submit - before.submit for before, after in pairwise(jobs)]
    assert mean(gaps) == pytest.approx(HOUR / 9, rel=0.03)
    assert sum(gap > HOUR / 9 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.01), "exponential: 1/e"
    assert {job.gpus for job in jobs} == {1}
    assert not any(job.communication_ppm or job.estimate or job.outcome for job in jobs)


def test_widths_are_those_of_the_paper() -> None:
    jobs = synergy_like(20_000, seed=2, gpus="multi")
    widths = Counter(job.gpus for job in jobs)
    for gpus, share in ((1, 0.70), (2, 0.10), (4, 0.15), (8, 0.05)):
        assert widths[gpus] / len(jobs) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    ("split", "shares"),
    [("20,70,10", (0.2, 0.7, 0.1)), ("33,33,33", (1 / 3,) * 3), ("50,0,50", (0.5, 0, 0.5)), ("100,0,0", (1, 0, 0))],
)
def test_models_follow_the_split_evenly_in_each_class(split: str, shares: tuple[float, ...]) -> None:
    jobs = synergy_like(20_000, seed=5, split=split)
    models = Counter(job.model for job in jobs)
    for (_, names), share in zip(CLASSES.items(), shares, strict=True):
        for name in names:
            assert models[name] / len(jobs) == pytest.approx(share / len(names), abs=0.01)
            assert bool(models[name]) == bool(share)


def test_every_model_has_a_profile_of_its_class() -> None:
    assert {model: profile.kind for model, profile in shipped().items()} == KIND


def test_what_is_written_is_read_back_with_its_models(tmp_path: Path) -> None:
    jobs = synergy_like(100, seed=7, gpus="multi")
    for name in ("jobs.csv", "jobs.parquet"):
        write(jobs, tmp_path / name)
        assert load(tmp_path / name).jobs == jobs


def test_jobs_that_name_no_model_are_given_one() -> None:
    jobs = philly_like(8000, seed=1)
    drawn = with_models(jobs, "20,70,10", seed=4)
    assert with_models(drawn, "100,0,0", seed=9) == drawn, "what is named stays"
    assert [job.work for job in drawn] == [job.work for job in jobs]
    kinds = Counter(KIND[job.model] for job in drawn)
    for kind, share in (("image", 0.2), ("language", 0.7), ("speech", 0.1)):
        assert kinds[kind] / len(drawn) == pytest.approx(share, abs=0.015)
    assert with_models(jobs, "20,70,10", seed=4) == drawn
    assert with_models(jobs, "20,70,10", seed=5) != drawn
    assert with_models((), "20,70,10") == ()


def test_jobs_without_gpus_train_nothing() -> None:
    jobs = (Job(0, 0, 1, gpus=0, cpu_milli=1000), Job(1, 0, 1, model="mine"), Job(2, 0, 1, gpu_milli=500))
    drawn = with_models(jobs, "100,0,0", seed=1)
    assert drawn[:2] == jobs[:2]
    assert drawn[2].model in CLASSES["image"]


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("9/h", HOUR / 9),
        ("0.5/min", 2 * MINUTE),
        ("0.5/m", 2 * MINUTE),
        (" 216 / d ", DAY / 216),
        ("0.0025/s", 400 * SECOND),
    ],
)
def test_rates_are_read(text: str, gap: float) -> None:
    assert parse_rate(text) == pytest.approx(gap)


@pytest.mark.parametrize(
    "text", ["", "9", "/h", "9/", "9/y", "fast/h", "-9/h", "9/h/h", "1e3/h", "nan/h", "1.2.3/h", "²/h"]
)
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match="write arrivals a time, like 9/h"):
        parse_rate(text)


def test_splits_are_normalised() -> None:
    assert parse_split("33,33,33") == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert parse_split(" 33.3, 33.3 ,33.4") == pytest.approx((0.333, 0.333, 0.334))
    assert sum(parse_split("33.3,33.3,33.3")) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "line"),
    [("", "write percentages"), ("50,50", "write percentages"), ("20,70,10,0", "write percentages"),
     ("a,b,c", "write percentages"), ("120,-20,0", "write percentages"), ("nan,50,50", "write percentages"),
     ("50,50,50", "must add up to 100, not 150"), ("0,0,0", "must add up to 100, not 0"), ("0.2,0.7,0.1", "not 1"),
     ("50,0,51", "must add up to 100, not 101"), ("34,33,34", "not 101")],
)  # fmt: skip
def test_a_split_that_is_none_is_refused(text: str, line: str) -> None:
    with pytest.raises(ExperimentError, match=line):
        parse_split(text)
    with pytest.raises(ExperimentError, match=f"models '{text}'.*{line}"):
        with_models(synergy_like(2), text)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [({"jobs": 0}, "at least 1"), ({"jobs": 5, "gpus": "many"}, "valid: multi, single"),
     ({"jobs": 5, "rate": "0/h"}, "must be above 0"), ({"jobs": 10**6, "rate": "0.001/d"}, "raise the rate")],
)  # fmt: skip
def test_a_workload_that_cannot_be_is_refused(arguments: dict[str, object], rule: str) -> None:
    with pytest.raises(ExperimentError, match=rule):
        synergy_like(**arguments)  # type: ignore[arg-type]
