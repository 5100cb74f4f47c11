"""The README does what it says: its commands run in their order, its policy is compared, its numbers are the demo's.

So do the blocks of other pages that it leads to: the section of the tutorial about any table, the table of the demo in
docs/reference/metrics.md, and the commands of docs/tutorials/gpu.md.
"""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import typer

from headway.cli import commands, main
from headway.cli.program import app
from tests.docs.pages import ROOT, blocks, read, spans

README = read("README.md")
ANY_TABLE = read("docs/tutorials/slurm.md").partition("\n## 7. Without Slurm: any table\n")[2].partition("\n## ")[0]
PROGRAM = ".venv/bin/headway "
COMMANDS = [
    shlex.split(line.removeprefix(PROGRAM), comments=True)
    for block in blocks(ANY_TABLE)
    for line in block.text.splitlines()
    if line.startswith(PROGRAM)
]
ROWS = "".join(f"{20 * i},{600 + 97 * i % 5000},{2 ** (i % 6)}\n" for i in range(60))
"""More than 128 GPUs can take at once."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with nothing but the smallest trace that the pages ask for."""
    for page in (README, ANY_TABLE):
        assert "A CSV with `submit_s, work_s, gpus` is enough" in page
    (tmp_path / "jobs.csv").write_text(f"submit_s,work_s,gpus\n{ROWS}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _call(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert ended.value.code == 0, (words, err)
    return out


def test_the_commands_on_any_table_run_one_after_the_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verbs = [words[1] if words[0] == "jobs" else words[0] for words in COMMANDS]
    assert verbs == [
        *("compare", "simulate", "story", "explain", "whatif", "report", "export", "audit", "replay", "policies"),
    ]
    said = {verb: _call(capsys, words) for verb, words in zip(verbs, COMMANDS, strict=True)}
    assert [line.split()[0] for line in said["compare"].splitlines()[1:]] == ["fifo", "fifo+easy", "srtf", "las"]
    assert re.search(r"\bjob\b.*\b17\b", said["story"].splitlines()[0])
    assert "waited" in said["story"]
    assert "in the run it" in said["explain"]
    assert "2 nodes added" in said["whatif"]
    assert (folder / "report.html").is_file()
    assert (folder / "gpus.json").is_file()
    assert said["audit"].startswith("sound: ")
    assert said["replay"].startswith("identical")
    assert "conservative" in said["policies"]


def test_the_policy_of_the_readme_stands_beside_the_published_ones(folder: Path) -> None:
    (block,) = blocks(README, "python")
    assert block.text.startswith("# mine.py\n")
    (folder / "mine.py").write_text(block.text)
    (span,) = [span for span in spans(README) if "mine.py" in span]
    words = span.removeprefix("headway ").split()
    ended = subprocess.run(
        [sys.executable, "-m", "headway", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert [line.split()[0] for line in ended.stdout.splitlines()[1:]] == ["fifo", "narrow", "narrow+easy"]


def test_the_flags_on_any_table_exist_and_work_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [word for span in spans(ANY_TABLE) if span.startswith("--") for word in span.split()]
    assert "--preemption-cost" in flags
    shown = _call(capsys, ["jobs", "simulate", "--help"])
    assert [flag for flag in flags if flag.startswith("--") and flag not in shown] == []
    assert _call(capsys, [*COMMANDS[1][:-2], *flags])


def test_the_readme_is_short_and_begins_with_the_picture_and_two_commands() -> None:
    assert len(README.split()) < 700
    assert README.index("(docs/demo.svg)") < README.index("./scripts/demo") < README.index("\n## ")
    assert len(blocks(README)[0].text.splitlines()) == 2


def test_the_commands_for_a_pipeline_under_a_deadline_run(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (block.text for block in blocks(README) if "headway fleet compare" in block.text)
    compare, plan = (shlex.split(line, comments=True)[1:] for line in block.splitlines())
    told = _call(capsys, [*compare, "--requests", "50"])
    assert [line.split()[0] for line in told.splitlines()[1:]] == ["stagewise", "plan-once", "esg", "headway"]
    assert "workers" in _call(capsys, [*plan, "--requests", "100", "--in-time", "0.5"])
    guide = next(block.text for block in blocks(read("docs/guides/pipelines.md")) if "headway profile" in block.text)
    profile = next(shlex.split(line)[1:] for line in guide.splitlines() if "headway profile" in line)
    shown = _call(capsys, [*profile[:2], "--help"])
    assert "--out" in profile
    assert "--out" in shown


def test_the_pipeline_of_the_readme_answers_the_curl_of_the_readme(tmp_path: Path) -> None:
    (block,) = (block.text for block in blocks(README) if "headway serve start" in block.text)
    start, curl = (shlex.split(line, comments=True) for line in block.splitlines())
    assert start[:3] == ["headway", "serve", "start"]
    places = {"--folder": tmp_path / "server", "--port": 0, "--devices": "cpu"}
    options = [str(word) for option in places.items() for word in option]
    words = [sys.executable, "-m", "headway", *start[1:], *options]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            said = ""
            while "curl http" not in said:
                line = server.stdout.readline()
                assert line, said
                said += line
            address = re.search(r"http://[\d.:]+", said)
            assert address is not None
            path, body = re.sub(r"http://[\d.:]+", "", curl[1]), curl[curl.index("-d") + 1]
            headers = dict([curl[curl.index("-H") + 1].split(": ")])
            asked = urllib.request.Request(address[0] + path, body.encode(), headers)
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert {"caption", "judged", "sound"} <= json.loads(answer.read())["output"].keys()
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=60) == 0


def test_what_the_readme_says_of_the_demo_is_the_demo() -> None:
    text = " ".join(README.split())
    demo = typer.main.get_command(app).commands["demo"]  # type: ignore[attr-defined]
    jobs = next(option.default for option in demo.params if option.name == "jobs")
    assert f"draws {jobs:,} jobs" in text
    assert len(commands.DEMO_POLICIES) == 11
    assert "through eleven policies" in text
    assert f"on {8 * commands.DEMO_NODES:,} GPUs" in text
    (table,) = (block.text for block in blocks(read("docs/reference/metrics.md")) if block.text.startswith("policy "))
    shown = [line.split()[0] for line in table.splitlines()[1:]]
    assert shown == list(commands.DEMO_POLICIES[: len(shown)])
    assert all(f" {jobs:,} " in line for line in table.splitlines()[1:])


def test_the_commands_from_a_slurm_dump_run_on_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sacct.txt", "nodes.txt", "slurm.conf"):
        shutil.copy(ROOT / "examples" / "slurm" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    (block,) = (block.text for block in blocks(README) if "headway trace inspect" in block.text)
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert [" ".join(words[:2]) for words in commands[:3]] == ["trace inspect", "jobs backtest", "jobs compare"]
    assert [words[0] for words in commands[3:]] == ["report"]
    for words in commands:
        _call(capsys, words)
    assert (tmp_path / "report.html").is_file()


def test_the_commands_for_programs_on_one_gpu_run_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (block.text for block in blocks(read("docs/tutorials/gpu.md")) if "headway gpu compare" in block.text)
    compare, predict = (shlex.split(line)[1:] for line in block.splitlines())
    told = _call(capsys, [*compare, "--seconds", "0.05"])
    assert [line.split()[0] for line in told.splitlines()[1:]] == ["time-slicing", "mps", "headway"]
    assert "slow-down aimed at 1.05" in _call(capsys, [*predict, "--seconds", "0.05"])
