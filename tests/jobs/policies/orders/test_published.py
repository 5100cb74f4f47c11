"""The published orders on one common example: who runs when, to the second.

Eight GPUs in one node, free preemption. The schedules are those of the authors' rules, worked out without Headway.
"""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.jobs.model.cluster import Cluster, Node, uniform
from headway.jobs.model.events import JobArrived
from headway.jobs.model.job import Job
from headway.jobs.policies.orders.drf import Drf
from headway.jobs.policies.orders.ftf import Ftf
from headway.jobs.policies.orders.qssf import Qssf
from headway.jobs.policies.registry import build
from headway.units import MINUTE, SECOND
from tests.drive import World, fresh_state
from tests.jobs.policies.orders.authors import Asked, Loop
from tests.jobs.policies.orders.drive import play

JOBS: tuple[Asked, ...] = ((0, 4, 100), (10, 8, 40), (20, 2, 30), (30, 4, 20), (40, 1, 200))
"""Arrival, GPUs and duration of J1 to J5."""
USERS = "aabbc"


def schedule(spec: str, asked: tuple[Asked, ...] = JOBS, gpus: int = 8, **fields: Any) -> list[list[tuple[float, ...]]]:
    """From and to, in seconds, of all runs of each job."""
    users = USERS if len(asked) == len(USERS) else "a" * len(asked)
    jobs = [
        Job(0, at * SECOND, length * SECOND, width, estimate=length * SECOND, tenant=user, **fields)
        for (at, width, length), user in zip(asked, users, strict=True)
    ]
    found: list[list[tuple[float, ...]]] = [[] for _ in jobs]
    for job, start, end in play(jobs, spec, gpus).spans:
        found[job].append((round(start * 60, 6), round(end * 60, 6)))
    return found


def told(text: str) -> list[list[tuple[float, ...]]]:
    """Schedules as a person writes them: jobs between bars, runs between commas."""
    return [[tuple(map(float, run.split("-"))) for run in job.split(",")] for job in text.split("|")]


def mean_jct(runs: list[list[tuple[float, ...]]]) -> float:
    """Mean time from arrival to end."""
    return sum(job[-1][1] - arrival for job, (arrival, *_) in zip(runs, JOBS, strict=True)) / len(JOBS)


SJF = "0-100 | 100-140 | 20-50 | 50-70 | 140-340"
SRTF = "0-10, 70-160 | 10-50 | 50-80 | 50-70 | 50-250"
DLAS = "0-30, 50-120 | 140-152.5, 252.5-280 | 20-50 | 30-50 | 40-140, 152.5-252.5"
FAIR = (
    "0-40, 60-90, 100-110, 120-130, 150-160 | 90-100, 110-120, 130-150 | 20-50 | 40-60 "
    "| 40-90, 100-110, 120-130, 150-280"
)
ATTAINED = "0-10, 20-30, 50-120, 130-140 | 10-20, 120-130, 210-220, 260-270 | 20-50 | 30-50 | 40-120, 130-210, 220-260"


@pytest.mark.parametrize(
    ("spec", "runs", "mean"),
    [
        ("fifo", "0-100 | 100-140 | 140-170 | 140-160 | 140-340", 162.0),
        ("fifo+fit", "0-100 | 240-280 | 20-50 | 100-120 | 40-240", 138.0),
        ("sjf", SJF, 120.0),
        ("qssf(estimates=true)", "0-100 | 270-310 | 20-50 | 50-70 | 70-270", 140.0),
        ("srtf", SRTF, 102.0),
        ("srtf+none", SRTF.replace("50-250", "70-270"), 106.0),
        ("srtf(gpu_time=true)", "0-10, 20-30, 50-130 | 10-20, 240-270 | 20-50 | 30-50 | 40-240", 128.0),
        ("tiresias(thresholds=100s)", DLAS, 130.5),
        ("las(quantum=0s)+round(10s)", ATTAINED, 134.0),
        ("ftf(lease=10s)", FAIR, 120.0),
        ("drf", "0-100 | 240-280 | 20-50 | 280-300 | 40-240", 174.0),
        ("drf+fit", "0-100 | 240-280 | 20-50 | 100-120 | 40-240", 138.0),
    ],
)
def test_an_order_with_its_defaults_does_what_its_authors_do(spec: str, runs: str, mean: float) -> None:
    made = schedule(spec)
    assert made == told(runs)
    assert mean_jct(made) == mean


def test_the_backfill_where_none_is_named_is_the_authors() -> None:
    skipping = {"srtf", "las", "tiresias", "ftf", "tetris"}
    blocking = {"fifo", "sjf", "drf", "priority", "multifactor", "qssf"}
    assert {name for name in skipping | blocking if build(name).backfill.name == "fit"} == skipping
    assert {name for name in skipping | blocking if build(name).backfill.name == "none"} == blocking
    for name in skipping:
        assert (build(f"{name}+none").name, build(f"{name}+fit").name) == (f"{name}+none", name)
        assert build(f"{name}+easy").name == build(name, backfill="easy").name == f"{name}+easy"
    for name in blocking:
        assert (build(f"{name}+none").name, build(f"{name}+fit").name) == (name, f"{name}+fit")


# --- Tiresias --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knob", "as_coded", "runs", "mean"),
    [
        (0, True, "0-30, 50-120 | 140-163, 263-280 | 20-50 | 30-50 | 40-140, 163-263", 132.6),
        (0, False, DLAS, 130.5),
        (1, True, "0-30, 50-120 | 140-163, 186-203 | 20-50 | 30-50 | 40-140, 163-186, 203-280", 120.6),
        (2, True, "0-30, 50-120 | 140-163, 209-226 | 20-50 | 30-50 | 40-140, 163-209, 226-280", 125.2),
    ],
)
def test_the_reference_is_the_authors_loop(knob: int, as_coded: bool, runs: str, mean: float) -> None:
    made = reference(JOBS, 8, (100,), knob, as_coded=as_coded)
    assert made == told(runs)
    assert mean_jct(made) == pytest.approx(mean)


def reference(
    asked: tuple[Asked, ...], gpus: int, limits: tuple[int, ...], knob: int, *, as_coded: bool = False
) -> list[list[tuple[float, ...]]]:
    """The reference's schedule, stretches that follow each other at once joined."""
    made = Loop(gpus, limits, knob, as_coded=as_coded).run(asked)
    return [[(float(start), float(end)) for start, end in job] for job in made]


@pytest.mark.parametrize("knob", [0, 1, 2, 4])
@pytest.mark.parametrize("limits", [(100,), (40, 150), (20, 60, 400)])
def test_tiresias_is_the_authors_loop_with_exact_crossings(knob: int, limits: tuple[int, ...]) -> None:
    thresholds = "/".join(f"{limit}s" for limit in limits)
    made = schedule(f"tiresias(thresholds={thresholds}, promote={knob})")
    assert made == reference(JOBS, 8, limits, knob)


@settings(max_examples=60)
@given(
    asked=st.lists(st.tuples(st.integers(0, 60), st.just(2), st.integers(5, 80)), min_size=2, max_size=9).map(sorted),
    knob=st.integers(0, 3),
    limits=st.sampled_from([(20,), (20, 60), (10, 30, 70)]),
)
def test_tiresias_is_the_authors_loop_for_jobs_of_one_width(
    asked: list[Asked], knob: int, limits: tuple[int, ...]
) -> None:
    thresholds = "/".join(f"{limit}s" for limit in limits)
    made = schedule(f"tiresias(thresholds={thresholds}, promote={knob})", tuple(asked), 4)
    assert made == reference(tuple(asked), 4, limits, knob)


def test_the_thresholds_of_tiresias_are_those_of_the_authors_code() -> None:
    assert build("tiresias(thresholds=3250s/7200s)").name == "tiresias"


# --- Themis ----------------------------------------------------------------------------------------------------


def test_rho_of_three_jobs_and_their_order() -> None:
    """At 60 s: A since 0 with 400 of 800 GPU seconds left, B since 20 and C since 50, both with all of theirs."""
    policy = build("ftf(lease=10s)")
    jobs = (Job(0, 0, 100 * SECOND, 8), Job(1, 20 * SECOND, 50 * SECOND, 4), Job(2, 50 * SECOND, 30 * SECOND, 2))
    state = fresh_state(policy, World(uniform(1, 8), jobs))
    for job in jobs:
        state.apply(60 * SECOND, JobArrived(job))
    state.jobs[0].done = 50 * SECOND
    order = policy.order
    assert isinstance(order, Ftf)
    assert [order.rho_ppm(60 * SECOND, js) for js in state.jobs.values()] == [366_666, 1_200_000, 1_333_333]
    state.rekey(60 * SECOND)
    assert [job for _, job in state.queue.in_order()] == [2, 1, 0]


def test_rho_in_the_common_example_at_40_seconds() -> None:
    policy = build("ftf(lease=10s)")
    jobs = tuple(Job(n, at * SECOND, length * SECOND, gpus) for n, (at, gpus, length) in enumerate(JOBS))
    state = fresh_state(policy, World(uniform(1, 8), jobs))
    for job in jobs:
        state.apply(40 * SECOND, JobArrived(job))
    state.jobs[0].done, state.jobs[2].done = 40 * SECOND, 20 * SECOND
    order = policy.order
    assert isinstance(order, Ftf)
    assert [order.rho_ppm(40 * SECOND, js) for js in state.jobs.values()] == [400_000, 350_000, 800_000, 600_000, 10**6]


# --- DRF -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "demands", "expected"),
    [
        (uniform(1, 8, cpus_per_node=32), {"A": (2, 2, 0), "B": (1, 8, 0)}, "ABABA"),
        (Cluster((Node("n", 0, cpu_milli=9000, memory_bytes=18),)), {"A": (0, 1, 4), "B": (0, 3, 1)}, "ABABA"),
    ],
    ids=["8 GPUs and 32 CPUs", "the paper's 9 CPUs and 18 GB"],
)
def test_drf_hands_out_tasks_in_turn(cluster: Any, demands: dict[str, tuple[int, int, int]], expected: str) -> None:
    """The tasks that start at once, in the order of their starts; A holds 3 of them, B 2."""
    jobs = [
        Job(0, 0, MINUTE, gpus, cpu_milli=1000 * cpus, memory_bytes=memory, tenant=tenant)
        for tenant, (gpus, cpus, memory) in demands.items()
        for _ in range(6)
    ]
    played = play(jobs, "drf", cluster)
    at_once = [job for job, start, _ in played.spans if start == 0]
    started = [job for job in played.first_starts if job in at_once]
    assert "".join(played.jobs[job].tenant for job in started) == expected


def test_drf_does_not_preempt_unless_asked() -> None:
    assert not build("drf").preempts
    assert build("drf+preempt").preempts
    assert Drf.backfill == "none"


# --- QSSF ------------------------------------------------------------------------------------------------------


def test_qssf_blocks_behind_the_job_of_the_least_predicted_gpu_time() -> None:
    """At 40 s: J4 (80 GPU s) before J5 (200) before J2 (320); two GPUs are free, J4 wants four and holds J5 back."""
    policy = build("qssf(estimates=true)")
    state = fresh_state(policy, World(uniform(1, 8), ()))
    order = policy.order
    assert isinstance(order, Qssf)
    for number, (at, gpus, length) in enumerate(JOBS):
        state.apply(40 * SECOND, JobArrived(Job(number, at * SECOND, length * SECOND, gpus, estimate=length * SECOND)))
    assert [job for _, job in state.queue.in_order() if job in (1, 3, 4)] == [3, 4, 1]
    assert [state.jobs[job].key // (1000 * SECOND) for job in (3, 4, 1)] == [80, 200, 320]
    runs = schedule("qssf(estimates=true)")
    assert (runs[3], runs[4]) == ([(50, 70)], [(70, 270)])


def test_the_reference_never_runs_more_than_there_is() -> None:
    """A test of the test: at no time do the reference's runs hold more than eight GPUs."""
    made = reference(JOBS, 8, (100,), 1)
    times = sorted({time for job in made for run in job for time in run})
    for low, high in pairwise(times):
        middle = Fraction(low + high) / 2
        held = sum(JOBS[n][1] for n, job in enumerate(made) for start, end in job if start < middle < end)
        assert held <= 8
