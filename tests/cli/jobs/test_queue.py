"""``headway queue``: from its start to its end, what its commands print, and what they refuse."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.live.place import Place
from tests.cli.conftest import Call

WAITS = "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)"


@pytest.fixture
def place(tmp_path: Path, call: Call) -> Iterator[Place]:
    """A queue that runs in the background."""
    found = Place(tmp_path / "state" / "headway" / "queue")
    code, out, err = call("queue", "start", "--gpus", "2", "--policy", "fifo+easy")
    assert (code, out) == (0, ""), err
    assert "policy fifo+easy, 2 GPUs, run 1" in err
    yield found
    if found.runs:
        call("queue", "stop", "--kill", "--now")


def jobs(call: Call) -> list[dict[str, Any]]:
    code, out, err = call("queue", "list", "--all", "--json")
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)
    return found


def until(call: Call, condition: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    end = time.monotonic() + 60
    while not condition(found := jobs(call)):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def python(call: Call, code: str, *flags: str) -> int:
    status, out, err = call("queue", "submit", "--cpus", "0", *flags, "--", sys.executable, "-c", code)
    assert status == 0, err
    return int(out)


def test_a_queue_from_its_start_to_its_end(place: Place, call: Call, tmp_path: Path) -> None:
    assert python(call, WAITS, "--gpus", "2", "--name", "first", "--tenant", "a") == 0
    assert python(call, "print('x y')", "--gpus", "1") == 1
    found = until(call, lambda all_jobs: all_jobs[0]["state"] == "running")
    assert [(job["tenant"], job["state"], job["on_gpus"]) for job in found] == [
        ("a", "running", [0, 1]),
        ("default", "waiting", []),
    ]
    assert found[0]["name"] == "first"
    code, out, err = call("queue", "list")
    assert code == 0
    assert "first" in out
    assert "1 waiting, 1 running" in err
    assert call("queue", "show", "first")[1].startswith("job 0 (first) of a: running")
    code, _, err = call("queue", "show", "fisrt")
    assert (code, err) == (2, "headway: job fisrt: there is no such job: headway queue list --all shows them\n")
    code, out, err = call("queue", "show", "1")
    assert "waiting" in out
    assert "why it waits: headway explain" in err
    code, out, _ = call("explain", str(place.folder), "1", "--at", "end", "--draws", "5")
    assert code == 0
    assert "1 GPU wanted, 0 free" in out
    code, _, err = call("queue", "start", "--gpus", "2")
    assert (code, "a queue runs there already" in err) == (2, True)

    pid = place.pid
    os.kill(pid, signal.SIGKILL)
    if pid in _children():
        os.waitpid(pid, 0)
    end = time.monotonic() + 30
    while place.runs and time.monotonic() < end:
        time.sleep(0.01)
    code, _, err = call("queue", "submit", "--", "true")
    assert (code, "no queue runs in" in err) == (2, True)
    assert call("queue", "list")[0] == 0
    code, _, err = call("queue", "start", "--gpus", "2")
    assert code == 0, err
    assert "1 waiting, 1 running" in err

    (tmp_path / "go").touch()
    until(call, lambda all_jobs: all(job["state"] == "finished" for job in all_jobs))
    assert call("queue", "logs", "-f", "1")[1] == "x y\n"
    assert call("queue", "logs", "0")[1] == "ready\n"
    assert call("replay", str(place.folder))[0] == 0
    assert call("audit", str(place.folder))[0] == 0
    code, out, err = call("queue", "report", "-o", str(tmp_path / "page.html"))
    assert code == 0, err
    assert (tmp_path / "page.html").stat().st_size > 10_000
    (tmp_path / "go").unlink()
    assert python(call, WAITS) == 2
    assert call("queue", "cancel", "2")[0] == 0
    until(call, lambda all_jobs: all_jobs[2]["state"] == "cancelled")
    _, out, _ = call("queue", "show", "2")
    assert "started: the first of those that wait, by fifo+easy; ended: cancelled (" in out
    code, _, err = call("queue", "stop")
    assert code == 0
    assert "stopped" in err
    assert not place.runs


def _children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("submit", "--", "no-such-program"),
            "program 'no-such-program' is not found: give its path",
        ),
        (("submit", "--estimate", "0s", "--", "true"), "--estimate 0s: longer than nothing, like 2h"),
        (("submit", "--memory", "much", "--", "true"), "--memory 'much' is not understood"),
        (("submit", "--", "true"), "no queue runs in "),
        (("cancel", "0"), "no queue runs in "),
        (("stop",), "no queue runs in "),
        (("list",), "no queue was ever started in "),
        (("logs", "0"), "no queue was ever started in "),
        (("report",), "no queue was ever started in "),
        (("start", "--engine", "moon"), "unknown engine 'moon'"),
        (("start", "--engine", "slurm", "--gpus", "2"), "--gpus is of --engine local"),
        (("release-all",), "has no jobs in Slurm: nothing is to be given back"),
        (("start", "--gpus", "lots"), "--gpus lots: auto, or a number up to"),
        (("start", "--gpus", "1", "--policy", "nonsense"), "nonsense"),
    ],
)
def test_what_is_wrong_is_one_line(call: Call, words: tuple[str, ...], line: str) -> None:
    code, out, err = call("queue", *words)
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_other_settings_wait_until_no_job_is_left(place: Place, call: Call) -> None:
    python(call, "import time; time.sleep(600)")
    assert call("queue", "stop")[0] == 0
    code, _, err = call("queue", "start", "--gpus", "2", "--policy", "srtf")
    assert code == 2
    assert "1 job is left, submitted under policy fifo+easy, not srtf" in err
    code, _, err = call("queue", "start", "--gpus", "1")
    assert "submitted under --gpus 2, not 1" in err
    assert call("queue", "start")[0] == 0  # with the GPUs and the policy of before
    assert call("queue", "cancel", "0", "--now")[0] == 0
    until(call, lambda all_jobs: all_jobs[0]["state"] == "cancelled")
    assert call("queue", "stop")[0] == 0
    code, _, err = call("queue", "start", "--gpus", "2", "--policy", "srtf")
    assert code == 0, err
    assert "policy srtf, 2 GPUs, run 2" in err


def test_jobs_of_an_earlier_run_are_named_and_shown(place: Place, call: Call, tmp_path: Path) -> None:
    python(call, "print('first run')", "--name", "old")
    until(call, lambda all_jobs: all_jobs[0]["state"] == "finished")
    assert call("queue", "stop")[0] == 0
    assert call("queue", "start", "--policy", "srtf")[0] == 0
    python(call, "print('second run')", "--name", "new")
    until(call, lambda all_jobs: [job["name"] for job in all_jobs] == ["new"])
    _, out, err = call("queue", "list")
    assert "1 job of run 1: headway queue list --run 1" in err
    code, out, _ = call("queue", "list", "--run", "1", "--json")
    assert (code, [job["name"] for job in json.loads(out)]) == (0, ["old"])
    assert call("queue", "logs", "0", "--run", "1")[1] == "first run\n"
    assert "job 0 (old)" in call("queue", "show", "0", "--run", "1")[1]
    code, _, err = call("queue", "report", "--run", "1", "-o", str(tmp_path / "old.html"))
    assert code == 0, err
    assert "old" in (tmp_path / "old.html").read_text()
    _, _, err = call("queue", "report", "-o", str(tmp_path / "new.html"))
    assert "1 job of run 1: headway queue report --run 1" in err
    code, _, err = call("queue", "list", "--run", "7")
    assert (code, err) == (2, "headway: --run 7: there is no such run: headway queue list names those with jobs\n")


def test_a_queue_that_does_not_run_is_the_reason_that_its_jobs_wait(place: Place, call: Call) -> None:
    python(call, WAITS, "--gpus", "2")
    python(call, "print('x')", "--gpus", "2")
    until(call, lambda all_jobs: all_jobs[0]["state"] == "running")
    _, out, _ = call("explain", str(place.folder), "1", "--draws", "5", "--json")
    told = json.loads(out)
    assert [cause["kind"] for cause in told["causes"]] == ["capacity"]
    assert told["waited_s"] > 0
    assert told["at"][:4].isdigit()
    assert call("queue", "stop", "--kill", "--now")[0] == 0
    code, out, err = call("explain", str(place.folder), "1")
    assert code == 0, err
    assert f"stopped: no queue runs in {place.folder}: headway queue start starts one" in out
    assert "nodes-down" not in out
    assert "expected start" not in out
    code, out, err = call("queue", "logs", "-f", "1")
    assert code == 0
    assert "job 1 does not run, and no queue runs" in err
