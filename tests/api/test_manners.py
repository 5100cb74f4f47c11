"""How the API behaves as a guest: Ctrl-C, progress bars, scripts, nothing on stdout."""

import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import headway as hw
from headway.jobs.policies.parts import Order
from headway.runs.settings.python_input import policy_name

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "api" / "compare.py"


class Stopper(Order):
    """Somebody presses Ctrl-C while it is asked."""

    name = "stopper"
    pressed = False

    def key(self, now: int, js: Any) -> int:
        """Interrupt the program after a while."""
        if now > 0 and not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)
        return int(js.id)


FILE = """
import os, signal
from headway.jobs.policies.parts import Order
class Stopper(Order):
    name = "other-stopper"
    pressed = False
    def key(self, now, js):
        if not self.pressed:
            os.kill(os.getppid(), signal.SIGINT)
        self.pressed = True
        return js.id
"""


def test_ctrl_c_raises_keyboard_interrupt_that_says_how_far_it_got(work: Any) -> None:
    with pytest.raises(
        KeyboardInterrupt, match=r"^stopper stopped at 5s: 3 of 7 jobs had arrived, 0 had ended; without"
    ):
        hw.simulate(work, Stopper)
    with pytest.raises(KeyboardInterrupt, match="stopper stopped at 5s"):
        hw.compare(work, ["fifo", Stopper])
    with pytest.raises(KeyboardInterrupt, match=r"the tape is kept/tape\.parquet"):
        hw.simulate(work, Stopper, out="kept")
    assert hw.open("kept").row["stopped"]
    run = hw.simulate(work)
    with pytest.raises(KeyboardInterrupt, match="stopped at"):
        run.whatif("1s", policy=Stopper)


def test_ctrl_c_ends_an_experiment_file_and_a_sweep_too(tmp_path: Path, frame: pl.DataFrame) -> None:
    frame.write_csv(tmp_path / "jobs.csv")
    (tmp_path / "stop.py").write_text(FILE)
    (tmp_path / "one.toml").write_text(
        'scale = "jobs"\n[trace]\npath = "jobs.csv"\n[cluster]\nnodes = 2\ngpus_per_node = 2\n'
    )
    with pytest.raises(KeyboardInterrupt, match="stopper stopped at"):
        hw.run("one.toml", set={"policy.name": policy_name(Stopper)})
    work = hw.Jobs("jobs.csv", nodes=2, gpus_per_node=2)
    with pytest.raises(KeyboardInterrupt, match="the same sweep goes on with what is left to do in grid"):
        hw.sweep(work, "grid", {"policy.name": ["./stop.py:Stopper", "fifo"]})
    assert Path("grid/grid.toml").is_file()


def test_nothing_is_printed_where_nobody_looks(work: Any, capfd: pytest.CaptureFixture[str]) -> None:
    found = hw.compare(work, ["fifo", "srtf"], processes=2)
    found.report("page.html")
    found["fifo"].story(0)
    hw.sweep(work, "grid", {"policy.name": ["fifo"]})
    told = capfd.readouterr()
    assert told.out == told.err == ""


def test_a_script_needs_no_guard_for_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "print('once')\nimport headway as hw\n"
        "work = hw.Jobs(hw.synthetic(10, load=0.9), nodes=2, gpus_per_node=8)\n"
        "print(len(hw.compare(work, ['fifo', 'srtf'], processes=2)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=tmp_path,
    )
    assert ended.stderr == ""
    assert ended.stdout == "once\n2\n"


def test_a_script_of_twelve_lines_compares_policies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines()[1:] if line.strip()]
    assert len(lines) <= 12
    slurm = ROOT / "examples" / "slurm"
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(slurm / "sacct.txt"), str(slurm / "nodes.txt")])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    told = capsys.readouterr().out
    assert "shape: (1_497, 3)" in told
    assert "│ smallest ┆ 5209" in told
