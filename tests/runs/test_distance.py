"""How far two runs of one workload are from each other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import headway as hw
from headway.errors import ExperimentError
from headway.runs import distance as distance_module
from headway.runs.distance import compared
from headway.runs.domain import with_table


def test_means_and_percentiles_are_compared_with_the_first_run() -> None:
    record = compared(np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 4.0]))
    assert record["compared"] == 3
    assert record["mean"] == {"first_s": 2.0, "second_s": 2.5, "off": 0.25}
    assert record["p50"]["off"] == 0.0
    assert record["each_off_p50"] == pytest.approx(1 / 3)


@pytest.fixture
def jobs(tmp_path: Path) -> hw.Work:
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_s,work_s,gpus\n0,100,1\n1,10,1\n2,10,1\n")
    return hw.Jobs(trace, nodes=1, gpus_per_node=1)


def test_runs_of_one_workload_are_compared_job_by_job(jobs: hw.Work) -> None:
    fifo, sjf = hw.simulate(jobs, "fifo"), hw.simulate(jobs, "srtf")
    told = fifo.distance(sjf).record()
    assert told["compared"] == 3
    assert told["mean"]["first_s"] == pytest.approx((100 + 109 + 118) / 3)
    assert told["mean"]["second_s"] == pytest.approx((120 + 10 + 19) / 3)
    assert fifo.distance(fifo).record()["mean"]["off"] == 0.0
    assert "percentiles of 3 say little" in repr(fifo.distance(sjf))


def test_requests_and_programs_have_a_distance_too(tmp_path: Path) -> None:
    fleet = hw.Fleet("compass", requests=30, workers=3)
    told = hw.simulate(fleet, "hash").distance(hw.simulate(fleet, "heft")).record()
    assert told["compared"] == 30
    gpu = hw.simulate(hw.Gpu("resnet50", ["resnet101-b64"], seconds=0.5), "time-slicing")
    assert gpu.distance(gpu).record()["p99"]["off"] == 0.0


def test_what_has_no_common_workload_is_refused(jobs: hw.Work) -> None:
    run = hw.simulate(jobs, "fifo")
    with pytest.raises(ExperimentError, match="is a simulated run: name the run to compare it with"):
        run.distance()
    other = hw.simulate(hw.Fleet("compass", requests=5, workers=2), "hash")
    with pytest.raises(ExperimentError, match="a run of jobs and one of fleet have no common workload"):
        run.distance(other)


def test_a_simulation_that_is_far_off_comes_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (hw.simulate(hw.Fleet("compass", requests=30, workers=count), "hash").stored for count in (1, 5))
    live = few.scene.experiment
    far = replace(few.scene, experiment=with_table(live, "serving", engine="local")).simulated()
    assert far is not None
    few = replace(few, scene=far)
    monkeypatch.setattr(distance_module, "simulated", lambda live: few)
    assert any("--overhead" in line for line in distance_module.distance(many, None).notes)
    monkeypatch.setattr(distance_module, "simulated", lambda live: many)
    assert not any("--overhead" in line for line in distance_module.distance(many, None).notes)
    guessed = replace(far.built, notes=("times of task nli are a guess: headway profile model app.py measures them",))
    guess = replace(far, built=guessed, experiment=with_table(live, "serving", engine="local")).simulated()
    assert guess is not None
    assert guess.notes == guessed.notes, "without a profile it is not the profile's fault"
