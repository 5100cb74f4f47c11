"""docs/tutorials/slurm.md: its commands are run one after the other, and print what the page shows.

A line with nothing but ``…`` on the page stands for any lines. The speed of the simulation is not shown there.
"""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.cli import main
from tests.docs.pages import ROOT, blocks, read

BLOCKS = [block.text.splitlines() for block in blocks(read("docs/tutorials/slurm.md"), "console")]
SPEED = re.compile(r"\s+(?:jobs/s|[\d,]+)$")


def shown(output: str) -> list[str]:
    """What a command printed, without the last column of a table that ends in the speed, and blank lines."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    if lines and lines[0].endswith("jobs/s"):
        lines = [SPEED.sub("", line) for line in lines]
    return lines


def in_order(wanted: list[str], found: list[str]) -> str:
    """The first line of the page that the output does not have where it should; nothing if all is well."""
    place = 0
    skipping = False
    for line in wanted:
        if line == "…":
            skipping = True
            continue
        while skipping and place < len(found) and found[place] != line:
            place += 1
        if place == len(found) or found[place] != line:
            return line
        place, skipping = place + 1, False
    return "" if skipping or place == len(found) else f"nothing where the output has {found[place]!r}"


def check_console(
    console: list[list[str]], capsys: pytest.CaptureFixture[str], shown: Callable[[str], list[str]] = shown
) -> None:
    """Run the commands of some blocks one after the other; each must print what its block shows."""
    for first, *rest in console:
        assert first.startswith("$ headway ")
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(first.removeprefix("$ headway ")))
        said = capsys.readouterr()
        assert ended.value.code == 0, (first, said.err)
        assert in_order([line.rstrip() for line in rest if line.strip()], shown(said.out)) == "", first


def test_the_page_is_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sacct.txt", "nodes.txt", "partitions.txt", "slurm.conf"):
        shutil.copy(ROOT / "examples" / "slurm" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) == 7
    check_console(BLOCKS, capsys)
    assert (tmp_path / "now.html").stat().st_size > 1_000_000


def test_the_files_of_the_example_are_those_that_its_script_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples.slurm import make

    monkeypatch.setattr(make, "FOLDER", tmp_path)
    make.main()
    for path in tmp_path.iterdir():
        assert path.read_text() == (ROOT / "examples" / "slurm" / path.name).read_text(), path.name
    assert len(list(tmp_path.iterdir())) == 4


def test_a_page_that_says_something_else_is_noticed() -> None:
    assert in_order(["a", "…", "c"], ["a", "b", "b", "c"]) == ""
    assert in_order(["a", "…"], ["a", "b"]) == ""
    assert in_order(["a", "c"], ["a", "b", "c"]) == "c"
    assert in_order(["a"], ["a", "b"]) != ""
    assert in_order(["…", "d"], ["a", "b"]) == "d"
