"""The record of a program's steps, and that there is none unless somebody asks."""

import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headway
from headway.program import steps as module


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that steps go to."""
    path = tmp_path / "steps"
    monkeypatch.setenv(module.VARIABLE, str(path))
    monkeypatch.setattr(module, "_file", module._UNOPENED)
    return path


def records(path: Path) -> list[tuple[int, int]]:
    return list(struct.iter_unpack("<qq", path.read_bytes()))


def test_a_step_appends_the_time_and_its_samples(recorded: Path) -> None:
    begun = time.monotonic_ns()
    headway.step()
    headway.step(32)
    headway.step(samples=7)
    times, samples = zip(*records(recorded), strict=True)
    assert samples == (1, 32, 7)
    order = [begun, *times, time.monotonic_ns()]
    assert order == sorted(order)


def test_no_samples_that_are_given_end_the_program(recorded: Path) -> None:
    for samples in (32.0, 0, -1, 2**70, float("nan"), float("inf"), None):
        headway.step(samples)  # type: ignore[arg-type]
    assert [samples for _, samples in records(recorded)] == [32, 0, -1, 2**63 - 1, 0, 0, 0]


def test_without_the_variable_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(module.VARIABLE, raising=False)
    monkeypatch.setattr(module, "_file", module._UNOPENED)
    headway.step()
    assert module._file == module._OFF
    headway.step(5)


def test_steps_says_a_step_after_the_work_on_each_batch(recorded: Path) -> None:
    seen = []
    for batch in headway.steps([[1, 2], [3], [4, 5, 6]], samples=len):
        assert len(records(recorded) if recorded.exists() else []) == len(seen)
        seen.append(batch)
    assert seen == [[1, 2], [3], [4, 5, 6]]
    assert [samples for _, samples in records(recorded)] == [2, 1, 3]


def test_steps_has_the_length_of_what_it_wraps_and_can_be_run_again(recorded: Path) -> None:
    batches = headway.steps("abc", samples=4)
    assert len(batches) == 3
    assert list(batches) == list(batches) == ["a", "b", "c"]
    assert [samples for _, samples in records(recorded)] == [4] * 6


def test_a_batch_that_is_broken_off_is_no_step(recorded: Path) -> None:
    for batch in headway.steps(range(5)):
        if batch == 3:
            break
    assert len(records(recorded)) == 3


def test_a_file_that_cannot_be_written_is_said_once_and_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.VARIABLE, str(tmp_path / "nowhere" / "steps"))
    monkeypatch.setattr(module, "_file", module._UNOPENED)
    with pytest.warns(RuntimeWarning, match=r"HEADWAY_STEPS=.*nowhere/steps: steps are not recorded: No such file"):
        headway.step()
    headway.step()


def test_processes_share_the_file(recorded: Path) -> None:
    program = "import headway\nfor _ in range(200): headway.step(3)"
    started = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [each.wait() for each in started] == [0, 0, 0]
    assert [samples for _, samples in records(recorded)] == [3] * 600


def test_importing_headway_loads_nothing_heavy() -> None:
    program = (
        "import sys, headway\n"
        "headway.step(); headway.steps([]); light = set(sys.modules); headway.CachedDataset([], 0)\n"
        "heavy = {'msgspec', 'numpy', 'polars', 'plotly', 'pyarrow', 'rich', 'torch', 'typer'}\n"
        "assert not heavy & light, heavy & light\n"
        "assert not heavy - {'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'setp'"):
        headway.setp  # noqa: B018
