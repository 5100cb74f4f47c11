"""The readers on the public traces themselves, where these lie beside the repository."""

import time
from pathlib import Path

import pytest

from headway.jobs.model.job import Job
from headway.jobs.traces import load
from headway.units import DAY, SECOND

SHARED = Path(__file__).resolve().parents[3] / "shared"

pytestmark = pytest.mark.skipif(not (SHARED / "traces").is_dir(), reason="the public traces are not here")


def test_every_philly_job_loads() -> None:
    trace = load(SHARED / "traces/philly/philly.csv.gz", "philly-csv", strict=True)
    assert len(trace.jobs) == trace.rows == 82_247
    assert "65 duplicate rows kept" in trace.notes
    assert "the file is not sorted by submit time: sorted" in trace.notes
    assert len({job.tenant for job in trace.jobs}) == 15
    assert max(job.gpus for job in trace.jobs) == 128
    assert sum(job.work for job in trace.jobs) == pytest.approx(82_247 * 13_135.931402 * SECOND)
    assert trace.jobs[-1].submit // DAY == 108


def test_every_helios_job_loads_quickly() -> None:
    began = time.perf_counter()
    trace = load(SHARED / "traces/helios/helios_venus_gpu_jobs.csv.gz", "helios-csv", strict=True)
    assert time.perf_counter() - began < 10, "125,303 rows take about a second on an idle machine"
    assert len(trace.jobs) == trace.rows == 125_303
    assert trace.jobs[0] == Job(0, 0, 172_800 * SECOND, gpus=32, name="363167#0")
    assert sum(job.work == 172_800 * SECOND for job in trace.jobs) >= 2_379
    assert trace.jobs[-1].submit == 16_747_071 * SECOND


@pytest.mark.parametrize("name", ["single", "multi"])
def test_the_synergy_benchmarks_load(name: str) -> None:
    trace = load(SHARED / f"benchmarks/synergy_{name}.csv", "synergy", strict=True)
    assert len(trace.jobs) == 1000
    assert trace.jobs[0].work == 4906 * SECOND
    assert {job.gpus for job in trace.jobs} == ({1} if name == "single" else {1, 2, 4, 8})
