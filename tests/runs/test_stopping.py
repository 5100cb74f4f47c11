"""Signals: the first stops a run in good order, another ends it where it is, and what was done is kept."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import pytest

import headway as hw
from headway.core.scheduler import Scheduler
from headway.errors import Terminated
from headway.gpu.experiment.scene import summary
from headway.gpu.predict import predict
from headway.jobs.view import JobsView
from headway.runs.folder.folder import open_run
from headway.runs.measured import measured
from headway.runs.settings.files import typed
from headway.runs.stopping import stops_on_interrupt
from headway.units import SECOND

JOBS = "submit_s,work_s,gpus\n" + "".join(f"{30 * i},{100 + 37 * i % 400},{1 + i % 3}\n" for i in range(20))
ENDLESS = '''
"""First come, first served; does not return from its tenth job on."""

from pathlib import Path

from headway.jobs.policies.orders.fifo import Fifo


class Endless(Fifo):
    name = "endless"

    def key(self, now, js):
        if js.id >= 10:
            (Path(__file__).parent / "stuck").touch()
            while True:
                {body}
        return super().key(now, js)
'''
FIRST = "headway: stops after the step in progress; a second Ctrl-C ends it now\n"
PROGRAM = "import sys; from headway.cli import main; main(sys.argv[1:])"


@contextmanager
def stuck(here: Path, body: str = "pass", *more: str) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own whose policy does not return."""
    (here / "jobs.csv").write_text(JOBS)
    (here / "own.py").write_text(ENDLESS.format(body=body))
    flags = ["jobs.csv", "--nodes", "2", "--gpus-per-node", "4", "--out", "run", *more]
    command = [sys.executable, "-c", PROGRAM, "jobs", "simulate", *flags, "--policy", "own.py:Endless"]
    with subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            while not (here / "stuck").exists():
                assert running.poll() is None, running.communicate()
                sleep(0.01)
            yield running
        finally:
            running.kill()


def kept(folder: Path) -> int:
    """How many jobs had arrived by the end of a run that was cut short."""
    found = open_run(folder)
    assert not found.complete
    return int((found.tape.column("kind") == 1).sum())


def test_the_first_ctrl_c_says_at_once_what_it_does_and_the_second_ends_it(tmp_path: Path) -> None:
    with stuck(tmp_path) as running:
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        assert running.stderr.readline() == FIRST
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, "", "headway: stopped\n")
    assert kept(tmp_path / "run") >= 10


def test_the_second_sigterm_ends_it_with_143_and_the_tape_is_kept(tmp_path: Path) -> None:
    with stuck(tmp_path) as running:
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        assert running.stderr.readline().startswith("headway: SIGTERM: stops after the step in progress")
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (143, "", "headway: ended by SIGTERM\n")
    assert kept(tmp_path / "run") >= 10


def test_after_a_grace_one_sigterm_is_enough() -> None:
    stopped = []

    def endless() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            pass

    with pytest.raises(Terminated) as ended, stops_on_interrupt(lambda: stopped.append(True), grace_s=0.05):
        endless()
    assert stopped == [True]
    assert ended.value.code == 143


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_of_one_gpu_ends_soon_after_the_first_signal_and_with_its_status(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    words = ["gpu", "simulate", "resnet50", "resnet101-b64", "--seconds", "500", "--out", "run"]
    command = [sys.executable, "-c", PROGRAM, *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            while not (tmp_path / "run" / "tape.arrow").exists():
                assert running.poll() is None, running.communicate()
                sleep(0.01)
            sleep(0.5)
            running.send_signal(number)
            _, err = running.communicate(timeout=120)
        finally:
            running.kill()
    row = json.loads((tmp_path / "run" / "result.json").read_text())
    assert running.returncode == code
    assert row["stopped"] is True
    assert 0 < row["seconds"] < 100
    assert row["clients"][0]["requests_alone"] < 100 * 1000
    assert "stopped at" in err


def test_a_prediction_that_is_stopped_plays_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def stopped(self: Scheduler[Any, Any], *_: Any) -> None:
        begun.append(self)
        self.stop()

    monkeypatch.setattr(Scheduler, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        predict("resnet50", "resnet101-b64", seconds=0.01)
    assert len(begun) == 1


def test_the_numbers_of_a_run_that_was_cut_short_are_of_what_was_played(tmp_path: Path) -> None:
    run = hw.simulate(hw.Gpu("resnet50", "resnet101-b64", policy="mps", seconds=0.05, out=str(tmp_path / "run")))
    cut = replace(run.stored, complete=False)
    scene: Any = cut.scene
    longer = replace(scene, setting=replace(scene.setting, seconds=600.0, settle=SECOND))
    row = summary(longer, cut.tape, complete=False)
    assert row["seconds"] == 0  # all of it was before what counts
    played = summary(replace(longer, setting=replace(longer.setting, settle=0)), cut.tape, complete=False)
    assert played["seconds"] == int(cut.tape.column("time")[-1]) / SECOND < 0.1


def test_who_returns_within_the_grace_ends_in_good_order() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stopped = []
    with stops_on_interrupt(lambda: stopped.append(True), grace_s=30):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped == [True]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("number", "times", "status"), [("SIGTERM", 1, 143), ("SIGINT", 2, 130)])
def test_a_policy_that_swallows_every_exception_is_ended_all_the_same(
    tmp_path: Path, number: str, times: int, status: int
) -> None:
    code = (
        "import os, signal\n"
        "from headway.runs.stopping import stops_on_interrupt\n"
        "with stops_on_interrupt(lambda: None, grace_s=0.05):\n"
        f"    times = {times}\n"
        "    while True:\n"
        "        try:\n"
        "            if times:\n"
        "                times -= 1\n"
        f"                os.kill(os.getpid(), signal.{number})\n"
        "        except BaseException:\n"
        "            pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == status


def test_a_sigterm_stops_a_run_in_good_order(tmp_path: Path) -> None:
    body = "if (Path(__file__).parent / 'go').exists():\n                    break"
    with stuck(tmp_path, body, "--json") as running:
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        assert running.stderr.readline().startswith("headway: SIGTERM")
        (tmp_path / "go").touch()
        _, err = running.communicate(timeout=60)
    assert running.returncode == 143
    assert "endless stopped at" in err
    assert (tmp_path / "run" / "result.json").exists()
    assert kept(tmp_path / "run") >= 10


def test_a_stopped_run_that_is_not_kept_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobsView, "numbers", lambda *_: pytest.fail("of a long tape that takes long"))
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus\n0,60,1\n5,30,2\n")
    document = {
        "scale": "jobs",
        "trace": {"path": str(tmp_path / "jobs.csv")},
        "cluster": {"nodes": 1, "gpus_per_node": 2},
    }
    monkeypatch.setattr(Scheduler, "run", lambda self, _progress: self.stop())
    assert "without --out nothing is kept" in measured(typed(document, "test")).stopped
