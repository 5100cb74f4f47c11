"""``headway backtest`` of hand-made dumps; test_slurm_lab.py has those of a real Slurm."""

import json
from pathlib import Path

import pytest

from headway.cli import main

HEADER = "JobID|Account|Partition|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES"
NODES = "NodeName=n1 CPUTot=8 RealMemory=64000 Gres=gpu:a100:2 State=IDLE Partitions=batch\n"
CONF = "SchedulerType=sched/backfill\nPriorityType=priority/basic\n"


def row(job: int, submit: int, start: int, gpus: int, seconds: int = 60) -> str:
    def clock(second: int) -> str:
        return f"2026-03-01T12:{second // 60:02d}:{second % 60:02d}"

    tres = f"cpu=1,gres/gpu={gpus},mem=1G,node=1"
    span = f"00:{seconds // 60:02d}:{seconds % 60:02d}"
    times = f"{clock(submit)}|{clock(start)}|{clock(start + seconds)}|{span}|00:02:00"
    return f"{job}|a|batch|COMPLETED|{times}|{tres}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three jobs on two GPUs: the second waits for the first, and the record has it start 5 s late."""
    rows = [HEADER, row(1, 0, 0, 2), row(2, 1, 65, 1), row(3, 2, 65, 1)]
    (tmp_path / "sacct.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "nodes.txt").write_text(NODES)
    (tmp_path / "slurm.conf").write_text(CONF)
    return tmp_path


def run(folder: Path, *more: str, cluster: str = "nodes.txt") -> int:
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "backtest", str(folder / "sacct.txt"), "--cluster", str(folder / cluster), *more])
    return int(ended.value.code or 0)


def test_the_errors_of_a_small_history(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--config", str(folder / "slurm.conf"), "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["policy"].startswith("fifo+conservative(depth=500, interval=30s, slurm=true, window=1d)+consecutive")
    assert (found["jobs"], found["compared"]) == (3, 3)
    assert found["error_p50_s"] == 5
    assert found["bias_s"] == pytest.approx(-10 / 3)
    assert {group["group"]: group["error_p90_s"] for group in found["by_size"]} == {"1 GPU": 5, "2 GPUs": 0}


def test_jobs_that_are_left_out_do_not_shift_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "sacct.txt"
    head = path.read_text().splitlines()[0]
    early = row(9, 0, 5, 64)  # of more GPUs than there are
    later = [row(1, 600, 600, 2), row(2, 601, 665, 1), row(3, 602, 665, 1)]
    path.write_text("\n".join([head, early, *later]) + "\n")
    assert run(folder, "--skip-infeasible", "--policies", "fifo", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["compared"], found["error_p90_s"]) == (3, 5)


def test_a_history_is_replayed_as_it_was(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--set", "trace.load=2") == 2
    assert "as it was" in capsys.readouterr().err


def test_policies_side_by_side_and_what_is_said_about_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--policies", "site,fifo,srtf") == 0
    told = capsys.readouterr()
    assert "half of the 3 jobs start within 5.0 s" in told.out
    assert "by size" in told.out
    assert "without --config" in told.err


def test_a_trace_without_recorded_starts_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sacct.txt").write_text("submit_s,work_s,gpus\n0,60,1\n")
    assert run(folder) == 2
    assert "there is nothing to compare with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--config", "nowhere.conf"], "there is no such file"),
        (["--policies", "site,,fifo"], "is not understood"),
        (["--policies", "fifoo"], "fifo"),
    ],
)
def test_bad_flags_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert run(folder, *flags) == 2
    assert message in capsys.readouterr().err
