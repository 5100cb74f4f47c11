"""One run of a program: its rate where it has one, and a line that says what to do where it has none."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from headway.device import limits
from headway.errors import ProfileError
from headway.jobs.profiling import watch
from headway.jobs.profiling.watch import Program, Reading
from tests.processes import gone
from tests.profiling.programs import FAMILY, HEAD, PRINTER, SLEEPER, written

HERE = limits.here()


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LEAST_S", 0.2)


def watched(command: list[str], pattern: str = "", timeout_s: float = 60, **more: int) -> Reading:
    steps = more.pop("steps", 30)
    program = Program(command, re.compile(pattern) if pattern else None, steps=steps, timeout_s=timeout_s)
    return watch.watch(program, HERE, 1, **more)


def refused(command: list[str], **more: object) -> tuple[str, str]:
    """The line, and the notes under it."""
    with pytest.raises(ProfileError) as caught:
        watched(command, **more)  # type: ignore[arg-type]
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value), "\n".join(getattr(caught.value, "__notes__", ()))


def test_the_rate_of_a_program_that_says_its_steps(tmp_path: Path) -> None:
    found = watched(written(tmp_path, SLEEPER))
    assert 100 < found.rate.per_second <= 400
    assert found.rate.steps >= 30
    assert found.working_bytes > 1 << 20
    assert found.wall_s > found.rate.seconds
    assert found.cpu_s > 0
    assert found.cache is None


@pytest.mark.parametrize(
    ("pattern", "most"),
    [(r"step (\d+)", 1000), (r"step (?P<samples>\d+)", None), (r"step", 100), (r"step (?:\d+) loss", 100)],
)
def test_steps_are_found_in_the_output(tmp_path: Path, pattern: str, most: float | None) -> None:
    found = watched(written(tmp_path, PRINTER), pattern)
    assert found.rate.per_second > 20
    assert most is None or found.rate.per_second <= most


def test_the_first_group_counts_up_and_may_start_again_or_be_no_number() -> None:
    text = b"at 10\rat 30\nat 60\nat 10\nat 1,000\nat x\n"
    reader, writer = os.pipe()
    os.write(writer, text)
    os.close(writer)
    output = watch.Output(os.fdopen(reader, "rb"), re.compile(r"at (\S+)"))
    output.wait()
    assert output.samples == [1, 20, 30, 1, 990, 1]
    assert output.lines == 6


@pytest.mark.parametrize(
    ("text", "samples"),
    [("32", 32), ("1,250", 1250), ("1e3", 1000), ("1.5E+03", 1500), ("32.0", 32), ("1_000", 1000), ("9" * 400, 2**53),
     ("12/500", None), ("1.2k", None), ("-5", None), ("nan", None), ("1e", None), ("", None)],
)  # fmt: skip
def test_a_group_is_read_as_a_number_or_not_at_all(text: str, samples: int | None) -> None:
    reader, writer = os.pipe()
    os.write(writer, f"n={text};\n".encode())
    os.close(writer)
    output = watch.Output(os.fdopen(reader, "rb"), re.compile(r"n=(?P<samples>[^;]*);"))
    output.wait()
    assert output.samples == [1 if samples is None else samples]
    assert (output.numbers, output.odd) == ((0, text) if samples is None else (1, ""))


def test_what_a_cache_says_last_is_kept_and_steps_while_it_fills_do_not_count(tmp_path: Path) -> None:
    line = {"items": 10, "item_bytes_mean": 100.0, "dataset_bytes": 1000, "hits": 0, "misses": 0}
    lines = [json.dumps(line | {"cached_bytes": size}) for size in (400, 800)]
    source = f"""{HEAD}
cache = open(os.environ["HEADWAY_CACHE"], "a", buffering=1)
for n in range(10**6):
    if n == 20: cache.write({lines[0]!r} + "\\n")
    if n == 60: cache.write("half a line\\n" + {lines[1]!r} + "\\n" + '{{"cached')
    time.sleep(0.02 if n < 60 else 0.002)
    step()
"""
    found = watched(written(tmp_path, source), cache_bytes=800, steps=100)
    assert found.cache == line | {"cached_bytes": 800}
    assert found.rate.dropped >= 60
    assert found.rate.per_second > 100


def test_the_budget_of_the_cache_and_the_cpus_are_told_to_the_program(tmp_path: Path) -> None:
    out = tmp_path / "told"
    source = (
        f"{HEAD}open({str(out)!r}, 'w').write(os.environ['HEADWAY_CACHE_BYTES'] + ' ' + os.environ['HEADWAY_CPUS'])"
    )
    refused(written(tmp_path, source), cache_bytes=12345)
    assert out.read_text() == "12345 1"


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_program_that_crashes_shows_its_last_lines(tmp_path: Path) -> None:
    source = HEAD + "for _ in range(5): step()\nprint('loading')\nraise SystemError('no such layer')"
    line, notes = refused(written(tmp_path, source))
    assert "ended with status 1 after 5 steps: SystemError: no such layer" in line
    assert "  loading" in notes
    assert "Traceback" in notes


def test_a_program_that_is_killed_is_said_to_be(tmp_path: Path) -> None:
    line, _ = refused(written(tmp_path, "import os; os.kill(os.getpid(), 15)"))
    assert "was killed by signal 15 after 0 steps: it wrote nothing" in line


def test_a_program_that_never_steps_is_told_how_to(tmp_path: Path) -> None:
    line, notes = refused(written(tmp_path, "import time\nprint('hello')\ntime.sleep(60)"), timeout_s=0.5)
    assert "no step in 500ms: call headway.step() after each training step, or give --pattern" in line
    assert "--timeout" in line
    assert "  hello" in notes


def test_a_program_that_ends_without_a_step_is_told_how_to(tmp_path: Path) -> None:
    line, _ = refused(written(tmp_path, "print('done')"))
    assert "ended without a step: call headway.step()" in line


def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path) -> None:
    line, notes = refused(written(tmp_path, "print('iteration 1')\nprint('iteration 2')"), pattern=r"step (\d+)")
    assert r"--pattern 'step (\\d+)' matches nothing in the 2 lines that it wrote, the last 'iteration 2'" in line
    assert line.endswith("fix --pattern, or let it run longer")
    assert "iteration 2" in notes


@pytest.mark.parametrize("samples", [0, -1])
@pytest.mark.parametrize("head", ["while True", "for _ in range(25)"])
def test_steps_without_samples_are_said_to_be(tmp_path: Path, samples: int, head: str) -> None:
    line, _ = refused(written(tmp_path, HEAD + f"{head}: time.sleep(0.01); step({samples})"))
    assert re.search(r"its \d+ steps carry no samples: give headway\.step\(\) the samples of the step", line)


def test_a_group_that_is_no_number_or_always_0_is_said_to_be(tmp_path: Path) -> None:
    command = written(tmp_path, PRINTER)
    line, _ = refused(command, pattern=r"step \d+ (\w+)")
    assert r"group 1 of --pattern 'step \\d+ (\\w+)' is no number, but 'loss': put digits in it" in line
    line, _ = refused(command, pattern=r"epoch (?P<samples>\d+)")
    assert "carry no samples: group samples of --pattern" in line


def test_a_program_that_ends_early_is_asked_for_more(tmp_path: Path) -> None:
    line, _ = refused(written(tmp_path, HEAD + "for _ in range(25): time.sleep(0.01); step()"), steps=100)
    assert "ended after 25 steps, too few to measure 100" in line
    assert "let it run longer" in line


def test_a_program_that_is_too_slow_is_asked_for_time(tmp_path: Path) -> None:
    line, _ = refused(written(tmp_path, HEAD + "while True: time.sleep(0.2); step()"), timeout_s=1)
    assert re.search(r"\d steps in 1s, too few to know its throughput: give it longer with --timeout", line)


def test_a_program_over_its_memory_is_told_so_where_memory_can_be_limited(tmp_path: Path) -> None:
    limited = HERE.room is not None and HERE.room.memory
    command = written(tmp_path, "x = b'a' * (400 << 20)")
    line, _ = refused(command, memory_bytes=(100 << 20) * limited)
    assert ("was killed for its memory" in line) == limited


def test_nothing_is_left_of_a_program_whatever_happened(tmp_path: Path) -> None:
    watched([*written(tmp_path, FAMILY), str(tmp_path)])
    first = [int(each) for each in (tmp_path / "processes").read_text().split()]
    (tmp_path / "more.py").write_text(FAMILY.replace("while True:", "for _ in range(3):") + "\nsys.exit(3)")
    refused([sys.executable, str(tmp_path / "more.py"), str(tmp_path)])
    second = [int(each) for each in (tmp_path / "processes").read_text().split()]
    assert first != second
    assert all(map(gone, first + second))
