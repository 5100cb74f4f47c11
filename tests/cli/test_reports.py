"""``--report`` of the commands that run something, and the order and the names of runs in a report."""

import json
import re
import signal
import tempfile
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from headway.show.page import MARK
from tests.cli.test_jobs import Ended, call, program

SIZE = ("--nodes", "2", "--gpus-per-node", "8")
SLURM = """ClusterName=made
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare={share}
PriorityWeightJobSize=200
PriorityMaxAge=3-0
SchedulerType=sched/backfill
SchedulerParameters=bf_max_job_test=200
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a trace, and another for what is temporary."""
    rows = [f"{i * 40},{300 + i * 37 % 900},{2 ** (i % 5)},job{i},t{i % 3}" for i in range(60)]
    (tmp_path / "jobs.csv").write_text("\n".join(["submit_s,work_s,gpus,name,tenant", *rows, ""]))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def facts(page: Path) -> dict[str, Any]:
    """What a page gives to its scripts."""
    text = page.read_text(encoding="utf-8")
    assert MARK in text[:400]
    found: dict[str, Any] = json.loads(text.partition('id="facts">')[2].partition("</script>")[0])
    return found


def labels(page: Path) -> list[str]:
    """The runs of a page, in its order."""
    return [run["label"] for run in facts(page)["runs"]]


def baseline(page: Path) -> str:
    """The run that a page marks as the baseline."""
    (found,) = re.findall(r"<th scope=\"row\"><span[^>]*>([^<]*)</span> <small>baseline</small>", page.read_text())
    return found


def compare(capsys: pytest.CaptureFixture[str], policies: str, *more: str) -> Ended:
    return call(capsys, "jobs", "compare", "jobs.csv", *SIZE, "--policies", policies, *more)


# --- a report of what is run ----------------------------------------------------------------------------------


def test_one_run_makes_a_page_and_keeps_nothing_else(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "jobs", "simulate", "jobs.csv", *SIZE, "--policy", "srtf", "--report", "srtf.html", "--json")
    assert ended.status == 0, ended.err
    assert ended.json["policy"] == "srtf"
    assert re.search(r"^report: srtf\.html, \d\.\d MB, 1 run$", ended.err, re.MULTILINE)
    assert labels(here / "srtf.html") == ["srtf"]
    assert "headway story" not in (here / "srtf.html").read_text()  # there is no folder to ask about
    assert sorted(path.name for path in here.iterdir()) == ["jobs.csv", "srtf.html", "temporary"]
    assert list((here / "temporary").iterdir()) == []


def test_the_runs_of_a_comparison_come_in_the_order_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = compare(capsys, "srtf,fifo,las", "--report", "page.html", "--processes", "2")
    assert ended.status == 0, ended.err
    assert labels(here / "page.html") == ["srtf", "fifo", "las"]
    assert baseline(here / "page.html") == "srtf"
    compare(capsys, "srtf,fifo,las", "--report", "page.html", "--baseline", "fifo")
    assert labels(here / "page.html") == ["srtf", "fifo", "las"]
    assert baseline(here / "page.html") == "fifo"
    assert list((here / "temporary").iterdir()) == []


def test_with_a_folder_the_page_is_the_one_that_report_makes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(capsys, "srtf,fifo", "--out", "runs", "--report", "runs/page.html").status == 0
    assert json.loads((here / "runs" / "runs.json").read_text()) == {"runs": ["srtf", "fifo"]}
    assert call(capsys, "report", "runs", "-o", "again.html").status == 0
    assert (here / "again.html").read_bytes() == (here / "runs" / "page.html").read_bytes()
    assert "headway story runs/srtf job" in (here / "again.html").read_text()


def test_a_file_of_variants_and_several_seeds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "what.toml").write_text(
        'scale = "jobs"\n'
        "[trace]\nsynthetic = {jobs = 40}\n[cluster]\nnodes = 2\ngpus_per_node = 8\n"
        '[[variants]]\nname = "wide"\nset = {cluster = {nodes = 3}}\n[[variants]]\nname = "narrow"\nset = {}\n'
    )
    ended = call(capsys, "run", "what.toml", "--seeds", "2", "--report", "page.html", "--baseline", "narrow")
    assert ended.status == 0, ended.err
    assert "its map and figures show seed 0\n" in ended.err
    assert labels(here / "page.html") == ["wide", "narrow"]
    assert baseline(here / "page.html") == "narrow"


def test_the_demo_makes_a_page_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "demo", "--jobs", "50", "--report", "demo.html", "--picture", "demo.svg")
    assert ended.status == 0, ended.err
    assert len(labels(here / "demo.html")) == 11
    assert baseline(here / "demo.html") == "fifo+easy"
    assert (here / "demo.svg").is_file()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("page.txt", "--report page.txt: the name must end in .html"),
        ("no/page.html", "--report no/page.html: there is no folder no"),
        ("folder.html", "--report folder.html: is a folder; name a file"),
        ("mine.html", "--report mine.html: exists and is not a report; choose another name"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_runs(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, line: str
) -> None:
    (here / "folder.html").mkdir()
    (here / "mine.html").write_text("my notes")
    monkeypatch.setattr("headway.runs.result.play", None)
    ended = call(capsys, "jobs", "simulate", "jobs.csv", *SIZE, "--report", name)
    assert (ended.status, ended.err) == (2, f"headway: {line}\n")
    assert (here / "mine.html").read_text() == "my notes"


def test_ctrl_c_leaves_no_page_and_nothing_temporary(here: Path) -> None:
    (here / "long.toml").write_text(
        'scale = "jobs"\n[trace]\nsynthetic = {jobs = 80000}\n[cluster]\nnodes = 128\ngpus_per_node = 8\n'
    )
    temporary = here / "temporary"
    with program("run", "long.toml", "--report", "page.html", TMPDIR=str(temporary)) as running:
        while not any(tape.stat().st_size > 10**5 for tape in temporary.glob("*/runs/tape.arrow")):
            assert running.poll() is None
            sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate()
    assert running.returncode == 130
    assert err.endswith("had ended; without --out nothing is kept; no report was made\n")
    assert list(temporary.iterdir()) == []
    assert not (here / "page.html").exists()


# --- the order of runs ----------------------------------------------------------------------------------------


def test_a_report_keeps_the_order_of_a_comparison(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare(capsys, "srtf,las,fifo", "--out", "runs")
    assert call(capsys, "report", "runs").status == 0
    assert labels(here / "report.html") == ["srtf", "las", "fifo"]
    assert baseline(here / "report.html") == "srtf"
    compare(capsys, "drf", "--out", "runs/added")
    call(capsys, "report", "runs")
    assert labels(here / "report.html") == ["srtf", "las", "fifo", "drf"]
    for damage in (b"{", b"[1]", b'{"runs": 3}', b'{"other": []}'):
        (here / "runs" / "runs.json").write_bytes(damage)
        assert call(capsys, "report", "runs").status == 0
        assert labels(here / "report.html") == ["drf", "fifo", "las", "srtf"]


# --- long names -----------------------------------------------------------------------------------------------


def test_long_names_are_short_on_a_page_and_told_in_full_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = [
        f"multifactor(fairshare_weight={share},size_weight=200,age_weight=10,qos_weight=0,partition_weight=0,max_age=3d)"
        "+conservative(depth=200,interval=2m)+first-fit"
        for share in (4000, 1)
    ]
    ended = compare(capsys, ",".join(["fifo", *long]), "--report", "page.html", "--picture", "bars.svg")
    assert ended.status == 0, ended.err
    short = labels(here / "page.html")
    assert short[1].startswith("multifactor(")
    assert "fairshare_weight=4000, …)+" in short[1]
    assert "fairshare_weight=1, …)+" in short[2]
    assert f"{short[1]} " in ended.out
    text = (here / "page.html").read_text()
    assert "size_weight=200" in text.partition('<ul class="note whole">')[2].partition("</ul>")[0]
    titles = re.findall(r'<option value="1"[^>]* title="([^"]*)"', text)
    assert titles
    assert "size_weight=200" in titles[0]
    assert (here / "bars.svg").read_text().count("<title>") == 3


def test_runs_of_a_site_are_called_by_its_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, share in (("a.conf", 4000), ("b.conf", 1)):
        (here / name).write_text(SLURM.format(share=share))
    ended = compare(
        capsys, "fifo,slurm:a.conf,slurm:b.conf", "--out", "runs", "--report", "page.html", "--picture", "bars.svg"
    )
    assert ended.status == 0, ended.err
    short = labels(here / "page.html")
    assert short[0] == "fifo"
    assert short[1:] == ["slurm:a.conf", "slurm:b.conf"]
    assert f"{short[1]} " in ended.out
    text = (here / "page.html").read_text()
    assert text.count("size_weight=200") >= 2, "both formulas stand below the names of their files"
    titles = re.findall(r'<option value="1"[^>]* title="([^"]*)"', text)
    assert titles
    assert "size_weight=200" in titles[0]
    for figure in ("causes-runs", "jct"):
        drawn = facts(here / "page.html")["figures"][figure]["data"]
        names = drawn[0]["y"] if figure == "causes-runs" else [each["name"] for each in drawn]
        assert len(set(names)) == 3
    full = json.loads((here / "runs" / "slurm_b.conf" / "result.json").read_text())["policy"]
    for wanted in (full, short[2], "slurm_b.conf"):
        assert call(capsys, "report", "runs", "-o", "again.html", "--baseline", wanted).status == 0
        assert baseline(here / "again.html") == short[2]
