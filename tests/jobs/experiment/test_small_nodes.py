"""CPUs divided on a machine with fewer of them than GPUs, as a queue of one machine has it."""

from pathlib import Path

import pytest

import headway as hw

PROFILE = 'model = "{}"\ncpus = {}\nmemory = ["300MB"]\nthroughput = {}\n'
JOBS = "submit_s,work_s,gpus,model\n" + "".join(f"0,600,1,{name}\n" for name in ("hungry", "modest") * 2)


@pytest.mark.parametrize("allocation", ["tune", "headway"])
def test_parts_of_cpus_go_to_those_who_need_them(tmp_path: Path, allocation: str) -> None:
    (tmp_path / "hungry.toml").write_text(PROFILE.format("hungry", [0.2, 0.5, 0.8], [[0.25], [0.6], [1.0]]))
    (tmp_path / "modest.toml").write_text(PROFILE.format("modest", [0.1, 0.2], [[0.5], [1.0]]))
    (tmp_path / "jobs.csv").write_text(JOBS)
    settings = {"cpus_per_node": 2, "memory_per_node": "25GB", "set": [f"speed.profiles={tmp_path}"]}
    work = hw.Jobs(tmp_path / "jobs.csv", nodes=1, gpus_per_node=4, **settings)
    assert hw.simulate(work, f"fifo+{allocation}+round(5s)").row["jct_mean_s"] == pytest.approx(600)
    assert hw.simulate(work, "fifo+proportional+round(5s)").row["jct_mean_s"] == pytest.approx((1000 + 600) / 2)
