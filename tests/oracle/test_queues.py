"""Queues whose mean waits are known in closed form: M/M/1, M/M/c, M/D/1, and SRPT on an M/M/1.

Draws are seeded, so a run gives the same number each time; the tolerance is four standard errors by the method of
batch means, and that error must itself be small. On each tape Little's law holds as an identity of integers.
"""

from collections.abc import Sequence
from math import factorial

import numpy as np
import pytest

from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, workload
from headway.streams import stream
from headway.units import SECOND
from tests.conformance.checks import check_little
from tests.drive import Run, World, drive

BATCHES = 25


def poisson(count: int, load: float, seed: int, *, servers: int = 1, fixed: bool = False) -> tuple[Job, ...]:
    """Poisson arrivals of jobs of one GPU whose work is exponential (or ``fixed``) with a mean of one second."""
    draw = stream(seed, "oracle")
    submits = np.cumsum(draw.exponential(1 / (load * servers), count))
    works = np.ones(count) if fixed else draw.exponential(1.0, count)
    return workload(
        Job(i, round(submit * SECOND), max(1, round(work * SECOND)))
        for i, (submit, work) in enumerate(zip(submits.tolist(), works.tolist(), strict=True))
    )


def run(policy: str, jobs: tuple[Job, ...], servers: int) -> Run:
    """A policy on one node of so many GPUs."""
    return drive(policy, World(uniform(1, servers), jobs), bounded=False)


def agree(values: Sequence[float], expected: float) -> None:
    """The mean of a correlated series is what theory says, within what batch means allow."""
    warm = np.array(values[len(values) // 20 :])
    means = np.array([batch.mean() for batch in np.array_split(warm, BATCHES)])
    error = means.std(ddof=1) / BATCHES**0.5
    assert error < 0.06 * expected, f"the run is too short to say anything: {error} of {expected}"
    assert abs(means.mean() - expected) < 4 * error, f"{means.mean()} is not {expected} within 4 x {error}"


def waits(made: Run) -> list[float]:
    """Seconds that each job waited before its first start."""
    starts = made.starts
    return [(starts[job.id] - job.submit) / SECOND for job in made.jobs]


def jcts(made: Run) -> list[float]:
    """Seconds from submission to completion."""
    ends = made.ends
    return [(ends[job.id] - job.submit) / SECOND for job in made.jobs]


def erlang_wait(servers: int, load: float) -> float:
    """Mean wait of an M/M/c with a mean service of one second (Erlang C)."""
    offered = servers * load
    all_busy = offered**servers / factorial(servers) / (1 - load)
    waiting = all_busy / (sum(offered**k / factorial(k) for k in range(servers)) + all_busy)
    return waiting / (servers * (1 - load))


@pytest.mark.parametrize("load", [0.5, 0.7])
def test_fifo_on_one_gpu_waits_like_an_mm1(load: float) -> None:
    made = run("fifo", poisson(40_000, load, seed=1), 1)
    agree(waits(made), load / (1 - load))
    check_little(made)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.7), (8, 0.7)])
def test_fifo_on_several_gpus_waits_like_an_mmc(servers: int, load: float) -> None:
    made = run("fifo", poisson(40_000, load, seed=2, servers=servers), servers)
    agree(waits(made), erlang_wait(servers, load))


def test_fixed_work_waits_half_as_long() -> None:
    made = run("fifo", poisson(30_000, 0.7, seed=3, fixed=True), 1)
    agree(waits(made), 0.7 / (1 - 0.7) / 2)


def test_srtf_on_one_gpu_responds_like_srpt() -> None:
    load = 0.7
    made = run("srtf", poisson(30_000, load, seed=4), 1)
    agree(jcts(made), srpt_response(load))
    check_little(made)


def srpt_response(load: float) -> float:
    """Mean response of an M/M/1 under SRPT (Schrage and Miller 1966), integrated over the size of a job."""
    sizes = np.linspace(0, 25, 20_001)
    step = sizes[1]
    density = np.exp(-sizes)
    below = load * np.concatenate([[0], np.cumsum((sizes * density)[1:] * step)])
    second = load * np.concatenate([[0], np.cumsum((sizes**2 * density)[1:] * step)])
    slow = np.concatenate([[0], np.cumsum((1 / (1 - below))[1:] * step)])
    queueing = (second + load * sizes**2 * density) / (2 * (1 - below) ** 2)
    return float(np.sum((queueing + slow) * density) * step)


def test_the_closed_forms_themselves() -> None:
    assert erlang_wait(1, 0.5) == pytest.approx(1.0)
    assert srpt_response(0.7) < 1 / (1 - 0.7)
    assert srpt_response(1e-9) == pytest.approx(1.0, abs=1e-2)
