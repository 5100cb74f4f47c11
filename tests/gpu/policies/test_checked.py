"""What a researcher gets wrong in a policy of their own: one line that names it, and status 2."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.cli import main
from headway.errors import ExperimentError, InfeasibleActionError
from headway.gpu.model.actions import Action, LetGo, WakeAt
from headway.gpu.model.program import Client
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.checked import MOST_ACTIONS, checked
from headway.gpu.policies.parts import KernelsPolicy, in_turn
from headway.gpu.policies.registry import POLICIES
from tests.gpu.worlds import drive, program

RUN = ["gpu", "simulate", "vgg16", "resnet101-b64", "--seconds", "0.01"]
HEAD = """from headway.gpu.model.actions import LetGo, WakeAt
from headway.gpu.policies.parts import KernelsPolicy, in_turn
class Mine(KernelsPolicy):
    name = "mine"
"""
DECIDE = f"{HEAD}    def decide(self, now, state):\n"
EACH = f"{DECIDE}        for client in in_turn(state):\n            "
CLIENTS = [
    Client("h", program((5, 4, 100), name="h"), 0, requests=1),
    Client("l", program((6, 4, 50), name="l"), 1, requests=1),
]


def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> str:
    """What a run of a policy of this text ends with."""
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(SystemExit) as ended:
        main([*RUN, "--policy", f"{tmp_path / 'mine.py'}:Mine"])
    written = capsys.readouterr()
    assert (ended.value.code, written.out, written.err.count("\n")) == (2, "", 1), written.err
    return written.err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("yield WakeAt(now)", "must be later than now, "),
        ("yield WakeAt(now - 5)", "must be later than now, "),
        ("yield WakeAt(now + 1e6)", "a time is a whole number of nanoseconds"),
        ("yield WakeAt(None)", "WakeAt(time=None): a time is"),
        ("yield WakeAt(10**30)", "must be below"),
        ("yield None", "(mine.py, line 6): decide yields None; it must yield LetGo"),
        ("yield 'go'", "decide yields 'go'"),
        ("yield (1, 0)", "decide yields (1, 0)"),
        ("yield LetGo(0, 3)", "(mine.py, line 6): LetGo(client=0, launch=3): that client waits with nothing"),
        ("yield LetGo(7, 0)", "there are 2 clients"),
        ("yield LetGo(None, 0)", "LetGo(client=None): must be a whole number, the client's id"),
        ("yield LetGo(1, 0, 99)", "LetGo(reason=99): is no Reason"),
        ("yield LetGo(1, 0, 0, 10**30)", "LetGo(harm=1"),
        ("return None", "decide returned None; it must yield actions, or return a list"),
        ("return 3", "decide returned 3"),
        ("return LetGo(1, 0)", "decide returned LetGo("),
        ("return 'go'", "decide returned 'go'"),
        ("yield from ()\n        raise ValueError('own')", "ValueError in mine.py, line 7: own"),
        ("yield from ()\n        raise StopIteration", "StopIteration in mine.py, line 7"),
        ("yield from ()\n        raise SystemExit(5)", "SystemExit in mine.py, line 7"),
        ("yield from ()\n        quit()", "SystemExit in mine.py, line 7"),
        ("while True:\n            yield WakeAt(now + 9)", f"more than {MOST_ACTIONS} actions in this instant"),
        (
            "state.clients[0].launched += 1\n        return ()",
            "(launched of client 0 from 0 to 1); it may only read it",
        ),
        ("state.waiting[0] = None\n        return ()", "changed the state that it is shown (who waits"),
        ("state.clients.pop()\n        return ()", "how many clients there are"),
    ],
)
def test_what_decide_gets_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str) -> None:
    err = said(tmp_path, capsys, f"{DECIDE}        {text}\n")
    assert line in err
    assert "internal error" not in err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("yield LetGo(client, client.reached)", "must be a whole number, the client's id"),
        ("yield from 2 * [LetGo(client.id, client.reached)]", "that client waits with nothing"),
        ("yield from (LetGo(client.id, client.reached) for _ in (1, 2))", "that client waits with nothing"),
        ("client.reached = 99\n            yield LetGo(client.id, 99)", "(reached of client 1 from 0 to 99)"),
        ("state.commit(now, LetGo(client.id, client.reached))\n        return ()", "changed the state"),
    ],
)
def test_what_is_wrong_about_those_who_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str
) -> None:
    assert line in said(tmp_path, capsys, f"{EACH}{text}\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "    def decide(self, now): ...",
            "decide(self, now) has the wrong arguments: define it as decide(self, now, st",
        ),
        ("    def decide(now, state): ...", "decide(now, state) has the wrong arguments"),
        ("    def decide(self, now, state, more): ...", "has the wrong arguments"),
        ("    async def decide(self, now, state): ...", "decide is async"),
        ("    decide = 3", "decide = 3 is not a method"),
        ("    def decides(self, now, state): ...", "defines no decide(self, now, state)"),
        ("    def gates(self, client): ...", "define it as gates(self, client, clients)"),
        ("    def bind(self): ...", "define it as bind(self, state)"),
        ("    sharing = 'mps'", "sharing = 'mps' must be Sharing.SLICES or Sharing.MPS"),
    ],
)
def test_what_is_wrong_with_its_class(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str) -> None:
    assert line in said(tmp_path, capsys, f"{HEAD}{text}\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1\n", "unknown part 'Mine': no class in it derives from Order"),
        ("class Mine: ...\n", "no class in it derives from"),
        (HEAD.replace("Mine", "Yours"), "unknown part 'Mine' (valid: Yours)"),
        (HEAD.replace('name = "mine"', "..."), "class Mine needs a name"),
        ("def f(\n", "cannot be loaded (SyntaxError: "),
        ("import sys\nsys.exit(3)\n", "cannot be loaded (SystemExit: 3)"),
    ],
)
def test_what_is_wrong_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str) -> None:
    assert line in said(tmp_path, capsys, text)


class Eager(KernelsPolicy):
    """Sound but for one thing that a test may ask for."""

    name = "eager"

    def __init__(self, step: int = 10) -> None:
        self.step = step

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """All go."""
        if state.waiting:
            yield WakeAt(now + self.step)
        for client in in_turn(state):
            yield LetGo(client.id, client.reached)


def test_a_sound_one_decides_the_same_whether_it_is_looked_at_or_not() -> None:
    looked_at = checked(Eager)
    assert looked_at is checked(Eager)
    assert looked_at is not Eager
    assert drive(looked_at(), CLIENTS).tape.digest == drive(Eager(), CLIENTS).tape.digest


def test_the_gpu_itself_refuses_a_time_that_is_not_later() -> None:
    with pytest.raises(InfeasibleActionError, match=r"^WakeAt\(time=6\) at 6 ns: must be later than now$"):
        drive(Eager(0), CLIENTS)
    with pytest.raises(
        ExperimentError, match=r"^policy eager at 0.006us \(test_checked.py, line \d+\): WakeAt\(time=6\)"
    ):
        drive(checked(Eager)(0), CLIENTS)


@pytest.mark.parametrize(
    "name", [name for name, policy in POLICIES.items() if policy.__module__.startswith("headway.")]
)
def test_those_that_come_with_the_package_run_as_they_are(name: str) -> None:
    assert checked(POLICIES[name]) is POLICIES[name]


def test_one_that_steps_by_a_nanosecond_is_stopped_by_ctrl_c(tmp_path: Path) -> None:
    slow = "        if not now % 10_000:\n            print('at work', flush=True)\n        yield WakeAt(now + 1)\n"
    (tmp_path / "mine.py").write_text(DECIDE + slow)
    command = [sys.executable, "-m", "headway", *RUN, "--policy", f"{tmp_path / 'mine.py'}:Mine"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate()
    first, second = err.splitlines()
    assert process.returncode == 130
    assert first == "headway: stops after the step in progress; a second Ctrl-C ends it now"
    assert second.startswith("mine stopped at ")
    assert second.endswith(" of 10ms; without --out nothing is kept")
