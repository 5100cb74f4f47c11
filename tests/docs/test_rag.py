"""docs/tutorials/rag.md: its commands are run one after the other, and print what the page shows."""

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, read
from tests.docs.test_tutorial import check_console

BLOCKS = [block.text.splitlines() for block in blocks(read("docs/tutorials/rag.md"), "console")]
SPEED = re.compile(r"\s+(?:tasks/s|[\d,]+)$")


def shown(output: str) -> list[str]:
    """What a command printed, without blank lines and without the speed at the end of a table's first two lines."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    if lines and lines[0].endswith("tasks/s"):
        lines[:2] = [SPEED.sub("", line) for line in lines[:2]]
    return lines


def test_the_page_is_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("rag.toml", "equal.toml"):
        shutil.copy(ROOT / "examples" / "rag" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) == 6
    check_console(BLOCKS, capsys, shown)
    page = (tmp_path / "rag.html").read_text()
    for text in ("Which classes and tenants suffer?", "interactive", "reporting"):
        assert text in page
