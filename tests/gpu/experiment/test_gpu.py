"""Runs of programs on one GPU, from an experiment file to a report, by the commands that a user gives."""

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import headway as hw
from headway.cli import main
from headway.core.tape import Tape
from headway.runs.folder.folder import open_run
from headway.runs.registry import domain
from headway.runs.settings.files import typed

PAIR = ("vgg16", "resnet101-b64", "--seconds", "0.01")
FILE = """scale = "gpu"
[gpu]
high = ["vgg16"]
low = ["resnet101-b64"]
seconds = 0.01
[run]
out = "{out}"
[[variants]]
name = "free [red]"
set.policy.name = "mps"
[[variants]]
name = "held"
set.policy.name = "headway"
set.gpu.slo = "1.1"
"""
MINE = """from headway.gpu.model.actions import LetGo
from headway.gpu.policies.parts import KernelsPolicy, in_turn


class Mine(KernelsPolicy):
    "All go."

    name = "all-go"

    def decide(self, now, state):
        for client in in_turn(state):
            yield LetGo(client.id, client.reached)
"""


def call(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints; it must not fail."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    told = capsys.readouterr()
    assert not ended.value.code, told.err
    return told.out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which a command ends."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err.count("\n")) == (2, "", 1), told
    return told.err


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two variants of a file."""
    place = tmp_path_factory.mktemp("gpu")
    (place / "mine.toml").write_text(FILE.format(out=place / "runs"))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(place / "mine.toml"), "--json"])
    assert not ended.value.code
    return place


# --- files, folders -----------------------------------------------------------------------------------------------


def test_a_file_with_variants_is_a_row_for_each_and_keeps_their_folders(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sorted(each.name for each in (kept / "runs").iterdir()) == ["free_red", "held", "runs.json"]
    words = ("run", str(kept / "mine.toml"), "--set", f"run.out={kept / 'again'}")
    rows = json.loads(call(capsys, *words, "--json"))
    assert [row["variant"] for row in rows] == ["free [red]", "held"]
    assert [row["policy"] for row in rows] == ["mps", "headway(slo=1.1)"]
    stored = [json.loads((kept / "runs" / name / "result.json").read_text()) for name in ("free_red", "held")]
    assert [row["digest"] for row in rows] == [row["digest"] for row in stored]
    assert rows[1]["baseline"] == "free [red]"
    assert rows[0]["slowdown_change"] is None
    change = rows[1]["slowdown_p50"] / rows[0]["slowdown_p50"] - 1
    assert rows[1]["slowdown_change"] == pytest.approx(change)
    table = call(capsys, "run", str(kept / "mine.toml"), "--set", f"run.out={kept / 'third'}")
    assert table.split()[0] == "variant"
    assert "free [red]" in table


def test_a_kept_run_is_audited_replayed_told_exported_and_shown(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("free_red", "held"):
        run = str(kept / "runs" / name)
        assert "nothing wrong" in call(capsys, "audit", run)
        assert "identical" in call(capsys, "replay", run)
    told = call(capsys, "story", run, "vgg16")
    assert told.startswith("vgg16, priority 0: ")
    requests = json.loads(call(capsys, "story", run, "vgg16", "--json"))["requests"]
    one = json.loads(call(capsys, "story", run, "vgg16:1", "--json"))
    assert [each["request"] for each in one["told"]] == [1]
    assert f"go from 0 to {requests - 1}" in refused(capsys, "story", run, f"vgg16:{requests}")
    assert "unknown program 'vgg61'; did you mean 'vgg16'?" in refused(capsys, "story", run, "vgg61")
    trace = kept / "trace.json.gz"
    call(capsys, "export", run, "--perfetto", str(trace), "--csv", str(kept / "sheets"))
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert {event["ph"] for event in events} >= {"M", "X"}
    assert sorted(each.name for each in (kept / "sheets").iterdir()) == ["delays.csv", "kernels.csv", "requests.csv"]
    assert len(pl.read_csv(kept / "sheets" / "requests.csv")) == requests
    call(capsys, "report", str(kept / "runs"), "--out", str(kept / "page.html"))
    page = (kept / "page.html").read_text()
    assert "free [red] <small>baseline</small>" in page
    assert "Which kernels are in the way?" in page


def test_what_is_only_about_jobs_is_one_line(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(kept / "runs" / "held")
    assert "explain is about jobs" in refused(capsys, "explain", run, "vgg16")
    assert "whatif is about runs of jobs and fleets" in refused(capsys, "whatif", run, "--at", "1ms", "--policy", "mps")


def test_a_run_is_read_back_as_it_was_played(kept: Path) -> None:
    stored = open_run(kept / "runs" / "held")
    experiment = typed({"scale": "gpu", "gpu": {"high": ["vgg16"], "low": ["resnet101-b64"]}}, "test")
    assert stored.scene.clients == domain("gpu").prepare(experiment).clients
    assert stored.scene.setting.options == {"slo": 1.1}
    assert stored.complete
    assert stored.scene.replay(stored.tape, complete=True).digest == stored.result["digest"]
    rows = stored.tape.rows.copy()
    rows[len(rows) // 2, 0] -= 10**9
    assert stored.scene.audit(Tape(rows), complete=True)


@pytest.mark.parametrize("text", [None, b"hello", b""])
def test_a_folder_whose_programs_are_gone_is_one_line(
    text: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    call(capsys, "gpu", "simulate", *PAIR, "--policy", "mps", "--out", str(run))
    (run / "clients.parquet").unlink()
    if text is not None:
        (run / "clients.parquet").write_bytes(text)
    for verb in ("audit", "replay"):
        assert "clients.parquet" in refused(capsys, verb, str(run))


def test_a_policy_of_ones_own_is_found_again_from_anywhere_and_run_only_if_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    call(capsys, "gpu", "simulate", *PAIR, "--policy", "./mine.py:Mine", "--out", "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "identical" in call(capsys, "replay", "../run", "--trust")
    assert "is not run unless you trust it: --trust" in refused(capsys, "replay", "../run")
    assert "nothing wrong" in call(capsys, "audit", "../run"), "which needs no policy"
    assert call(capsys, "story", "../run", "vgg16").startswith("vgg16, priority 0")
    call(capsys, "report", "../run", "--out", "page.html")


# --- several runs -------------------------------------------------------------------------------------------------


def test_seeds_become_one_row_with_intervals_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "runs")
    words = ("gpu", "compare", *PAIR, "--policies", "mps,headway", "--seeds", "3", "--out", out, "--json")
    page = tmp_path / "page.html"
    rows = json.loads(call(capsys, *words, "--report", str(page)))
    for row in rows:
        assert row["seeds"] == 3
        assert [run["seed"] for run in row["runs"]] == [0, 1, 2]
        for key in ("slowdown_p50", "low_share"):
            mean = sum(run[key] for run in row["runs"]) / 3
            assert row[key] == pytest.approx(mean)
            assert row[f"{key}_low"] < mean < row[f"{key}_high"]
        assert {each["client"] for each in row["clients"]} == {"vgg16", "resnet101-b64"}
    assert page.stat().st_size > 100_000
    assert sorted(each.name for each in (tmp_path / "runs" / "mps").iterdir()) == ["seed-0", "seed-1", "seed-2"]
    assert "nothing wrong" in call(capsys, "audit", str(tmp_path / "runs" / "mps" / "seed-2"))


def test_a_sweep_runs_every_cell_once_and_tells_them_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = ("--policies", "mps,headway", "--vary", "gpu.think=0ms,1ms", "-o", str(tmp_path / "sweep"))
    words = ("gpu", "sweep", *PAIR, *grid, "--processes", "1")
    rows = json.loads(call(capsys, *words, "--json"))
    assert [(row["policy"], row["values"]["gpu.think"]) for row in rows] == [
        *(("mps", "0ms"), ("mps", "1ms"), ("headway", "0ms"), ("headway", "1ms")),
    ]
    assert len({row["digest"] for row in rows}) == 4
    table = call(capsys, *words)
    assert table.count("think=0ms") == table.count("think=1ms") == 2
    results = pl.read_csv(tmp_path / "sweep" / "results.csv")
    assert results["slowdown_p50"].to_list() == pytest.approx([row["slowdown_p50"] for row in rows])
    assert json.loads(call(capsys, *words, "--json")) == rows, "what is done is not done again"


def test_several_programs_above_and_below_by_their_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("vgg16,alexnet", "matmul@3", "graph-b64", "--seconds", "0.01", "--policy", "mps", "--json")
    row = json.loads(call(capsys, "gpu", "simulate", *words))
    assert [(each["client"], each["priority"]) for each in row["clients"]] == [
        *(("vgg16", 0), ("alexnet", 0), ("matmul", 3), ("graph-b64", 1)),
    ]


def test_the_same_from_python(kept: Path, tmp_path: Path) -> None:
    work = hw.Gpu("vgg16", "resnet101-b64", seconds=0.01)
    run = hw.simulate(work, "headway", slo="1.1", out=str(tmp_path / "one"))
    stored = json.loads((kept / "runs" / "held" / "result.json").read_text())
    assert run.row["digest"] == stored["digest"]
    assert run.audit() == []
    assert run.replay() is None
    assert run.tables() == ["requests", "kernels", "delays"]
    assert len(run.requests()) == run.row["clients"][0]["requests"]
    assert "vgg16, priority 0" in repr(run.story("vgg16"))
    found = hw.compare(work, ["mps", "headway(slo=1.1)"], out=str(tmp_path / "two"))
    assert found["headway(slo=1.1)"].row["digest"] == stored["digest"]
    figure: Any = found.figure("latency")
    assert len(figure.data) >= 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('[gpu]\nhigh = ["vgg16"]', "does not say what is scheduled: add scale"),
        ('scale = "gpus"', "'gpus'"),
        ('scale = "gpu"', "needs a program above"),
        ('scale = "gpu"\n[gpu]\nhigh = "vgg16"', "gpu.high"),
        ('scale = "gpu"\n[gpu]\nhigh = ["vgg16"]\nseconds = 0', "seconds 0 must be above 0"),
        ('scale = "gpu"\n[gpu]\nhigh = ["vgg16"]\nseconds = nan', "seconds is nan: must be a finite number"),
        ('scale = "gpu"\n[gpu]\nhigh = ["vgg16"]\nthink = "-1ms"', "think '-1ms' must not be negative"),
        ('scale = "gpu"\n[gpu]\nhigh = ["vgg16"]\n[run]\nseed = -1', "seed"),
        ('scale = "gpu"\n[gpu]\nhigh = ["vgg16"]\n[measure]\nseeds = 0', "seeds"),
        ('scale = "gpu"\n[gpu]\nhigh = ["vgg16"]\n[measure]\nconfidence = 2', "confidence"),
        ('scale = "gpu"\n[cluster]\nnodes = 3', "unknown table or key 'cluster'"),
    ],
)
def test_a_wrong_file_is_one_line(lines: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.toml").write_text(lines)
    assert said in refused(capsys, "run", str(tmp_path / "mine.toml"))
