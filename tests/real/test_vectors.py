"""Numbers that others got on public workloads, to the last digit they gave (AnalySIM, Helios)."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job
from headway.jobs.traces import load
from headway.units import HOUR, SECOND
from tests.drive import Run, World, drive

SHARED = Path(__file__).resolve().parents[3] / "shared"


@cache
def jobs(path: str, format_name: str) -> tuple[Job, ...]:
    """A public workload."""
    return tuple(load(SHARED / path, format_name).jobs)


def jcts_h(made: Run) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Hours from submission to completion."""
    ends = made.ends
    return np.array([ends[job.id] - job.submit for job in made.jobs]) / HOUR


def run(policy: str, workload: tuple[Job, ...], nodes: int, gpus: int) -> Run:
    """A policy on equal nodes."""
    return drive(policy, World(uniform(nodes, gpus), workload), bounded=False)


@pytest.mark.parametrize(("policy", "mean_h"), [("fifo", 21.495), ("sjf", 19.786)])
def test_synergy_single_on_sixteen_nodes_of_eight(policy: str, mean_h: float) -> None:
    made = run(policy, jobs("benchmarks/synergy_single.csv", "synergy"), 16, 8)
    assert round(float(jcts_h(made).mean()), 3) == mean_h


def test_synergy_multi_under_strict_fifo_with_best_fit() -> None:
    spent = jcts_h(run("fifo", jobs("benchmarks/synergy_multi.csv", "synergy"), 16, 8))
    assert round(float(spent.mean()), 3) == 40.246
    assert round(float(np.percentile(spent, 50)), 3) == 33.351
    assert round(float(np.percentile(spent, 99)), 3) == 175.113


@pytest.mark.parametrize(
    ("trace", "policy", "mean_wait_s"),
    [("helios", "fifo", 34_223), ("helios", "sjf", 2_671), ("philly", "sjf", 4_461)],
)
def test_pooled_traces_wait_as_published(trace: str, policy: str, mean_wait_s: int) -> None:
    path, format_name = {
        "helios": ("traces/helios/helios_venus_gpu_jobs.csv.gz", "helios-csv"),
        "philly": ("traces/philly/philly.csv.gz", "philly-csv"),
    }[trace]
    made = run(policy, jobs(path, format_name), 1, 640)
    ends = made.ends
    waits = [(ends[job.id] - job.submit - job.work) / SECOND for job in made.jobs]
    assert round(float(np.mean(waits))) == mean_wait_s
