"""Decisions, numbers and texts change only on purpose: see ``write.py`` for what to do when they should."""

import json
import re
from functools import cache

import pytest

from bench import adapter
from tests.golden.looks import Value, differing
from tests.golden.write import SCALES, as_stored, cases, main, stored

kept = cache(stored)
CASES = {scale: cases(scale) for scale in SCALES}
_TERM = re.compile(r"[\w-]+")


@pytest.mark.parametrize(("scale", "name"), [(scale, name) for scale in SCALES for name in CASES[scale]])
def test_a_golden_case_is_the_same(scale: str, name: str) -> None:
    changed = differing(kept(scale).get(name), CASES[scale][name]())
    assert not changed, (
        f"{scale}, {name}: {changed}\nother than before; if that is meant: "
        f".venv/bin/python -m tests.golden.write {scale}, and say why in the commit"
    )


@pytest.mark.parametrize("scale", SCALES)
def test_a_file_holds_nothing_else(scale: str) -> None:
    assert list(stored(scale)) == list(CASES[scale])


@pytest.mark.parametrize("scale", SCALES)
def test_every_registered_policy_has_a_case(scale: str) -> None:
    named = {term for name in CASES[scale] for term in _TERM.findall(name)}
    implied = {"none"}  # a backfill that a name leaves out
    for kind, names in adapter.names(scale).items():
        missing = sorted(set(names) - named - implied)
        file = "allocations" if kind == "allocation" else scale
        assert not missing, (
            f"{kind} without a golden case: {', '.join(missing)}; name it in a case of tests/golden/{file}.py, "
            f"then .venv/bin/python -m tests.golden.write {scale}"
        )


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("a", "a", ""),
        ("a", "b", "a -> b"),
        (None, "b", "none -> b"),
        ([{"policy": "fifo", "jobs": 3}], [{"policy": "fifo", "jobs": 4}], "fifo: jobs 3 -> 4"),
        ([{"policy": "fifo", "jobs": 3}], [{"policy": "fifo"}], "fifo: jobs 3 -> none"),
    ],
)
def test_a_change_is_named(before: Value | None, now: Value | None, told: str) -> None:
    assert differing(before, now) == told


def test_a_case_that_did_not_change_is_written_as_it_was() -> None:
    before: dict[str, Value] = {"same": [{"a": 1, "b": 2}], "other": "x", "gone": "y"}
    now: dict[str, Value] = {"new": "n", "same": [{"b": 2, "a": 1}], "other": "z"}
    written = as_stored(before, now)
    assert written == now
    assert list(written) == list(now)
    assert json.dumps(written["same"]) == json.dumps(before["same"])


def test_an_unknown_scale_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clusters"]) == 2
    assert "training, serving, kernels" in capsys.readouterr().err
