"""Whatever is typed or found in files: every command ends by itself, and says in one line why it refuses.

``python -m tests.fuzz NUMBER`` shows one input; ``python -m tests.fuzz 1000 1500`` plays more than are played here.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.fixed import FIXED
from tests.fuzz.inputs import FIRST_DRAWN
from tests.fuzz.play import _wrong

ROOT = Path(__file__).resolve().parent.parent.parent
AT_A_TIME = 100
FIRSTS = range(FIRST_DRAWN, FIRST_DRAWN + 300, AT_A_TIME)


def played(first: int, count: int) -> list[str]:
    """What went wrong with these inputs, a line each; they are played by a process of their own."""
    command = [sys.executable, "-m", "tests.fuzz", str(first), str(count), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) == count, done.stderr
    return [
        f"python -m tests.fuzz {each['number']}: {each['wrong']}: {' '.join(each['words'])}: {each['err'][-300:]}"
        for each in outcomes
        if each["wrong"]
    ]


def test_inputs_that_were_answered_badly_once_are_not_any_more() -> None:
    assert played(0, len(FIXED)) == []


@pytest.mark.parametrize("first", FIRSTS)
def test_drawn_inputs_are_answered_or_refused_in_one_line(first: int) -> None:
    assert played(first, AT_A_TIME) == []


@pytest.mark.parametrize(
    ("status", "out", "err", "wrong"),
    [
        (0, "12 jobs\n", "", ""),
        (0, "", "note: nothing is left to do\n", ""),
        (0, "", "", "no word of what was done"),
        (2, "", "headway: trace jobs.csv: no such file\n", ""),
        (2, "", "note: a row was dropped\nheadway: trace jobs.csv: no such file\n", ""),
        (2, "", "", "0 lines that say why"),
        (2, "", "headway: \n", "1 lines that say why"),
        (2, "", "headway: this\nheadway: that\n", "2 lines that say why"),
        (1, "", "headway: internal error: KeyError: 'x'; HEADWAY_DEBUG=1 shows all\n", "internal error"),
        (1, "", "Traceback (most recent call last):\n", "Traceback"),
        (2, "", "headway: OverflowError: int too large\n", "OverflowError"),
        (-11, "", "", "killed by signal 11"),
        (None, "", "", "no end within 60 s"),
    ],
)
def test_the_judge_sees_what_must_not_be(status: int | None, out: str, err: str, wrong: str) -> None:
    assert _wrong(["jobs", "simulate"], "", status, out, err) == wrong


def test_the_judge_sees_what_was_accepted_and_what_is_no_json() -> None:
    assert _wrong(["audit", "run"], "the tape is damaged", 0, "", "") == "accepted: the tape is damaged"
    assert _wrong(["jobs", "simulate", "--json"], "", 0, '{"jct": NaN}', "").startswith("its JSON cannot be read")
    assert _wrong(["jobs", "simulate", "--json"], "", 0, '{"jct": null}', "") == ""
    assert _wrong(["gpu", "sweep", "--json"], "", 0, "[NaN]", "").startswith("its JSON cannot be read")


def test_the_judge_knows_what_commands_say_that_found_something() -> None:
    assert _wrong(["audit", "run"], "", 1, "", "1 finding\n") == ""
    assert _wrong(["fleet", "sweep", "mine.toml"], "", 1, "", "1 of 4 cells failed; --retry runs them\n") == ""
    assert _wrong(["fleet", "simulate", "mine.toml"], "", 1, "", "1 of 4 cells failed\n") == "0 lines that say why"
