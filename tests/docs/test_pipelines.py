"""docs/guides/pipelines.md: its application and its commands run, and its keywords are those of the package."""

import inspect
import re
import shlex
from pathlib import Path

import pytest

import headway as hw
from headway.cli import main
from headway.fleet.scenarios.app import GPU_MEMORY, GUESSED_MS, GUESSED_POWER, RATE_PER_SECOND, WORKERS
from tests.docs.pages import blocks, read

PAGE = read("docs/guides/pipelines.md")
QUICK = {"profile": ["--device", "cpu", "--runs", "2"], "fleet": ["--requests", "100"]}


def test_the_application_and_the_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path / "profiles"))
    (program,) = blocks(PAGE, "python")
    Path("app.py").write_text(program.text)
    (commands,) = (block.text for block in blocks(PAGE, "") if "headway profile model app.py" in block.text)
    for line in commands.splitlines():
        words = shlex.split(line)[1:]
        with pytest.raises(SystemExit) as ended:
            main([*words, *QUICK[words[0]]])
        told = capsys.readouterr()
        assert not ended.value.code, f"{line}: {told.err}"
        assert "are a guess" not in told.err, "its profile was measured first"


def test_every_keyword_stands_on_the_page() -> None:
    for function in (hw.model, hw.task, hw.graph):
        keywords = [
            each.name
            for each in inspect.signature(function).parameters.values()
            if each.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        assert [keyword for keyword in keywords if not re.search(rf"\b{keyword}=", PAGE)] == []


def test_the_defaults_of_an_application_are_those_of_the_page() -> None:
    assert f"{GUESSED_MS:g} ms · batch^{GUESSED_POWER}" in PAGE
    assert (WORKERS, GPU_MEMORY, RATE_PER_SECOND) == (2, "16GB", 2)
    assert "two workers on this machine, with 16 GB of GPU memory each" in PAGE
    assert "Requests come at 2 a second" in PAGE
