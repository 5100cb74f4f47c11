"""Runs that divide CPUs and memory, on the command line: whatever reads a tape understands what jobs were given.

One node of 8 GPUs, 24 CPUs and 500 GB. ``first`` trains alexnet alone, with all that it can use (12 CPUs and 125 GB,
2.94 of reference speed), until seven more come and everybody is down to 3 CPUs and 62.5 GB: 1 of reference speed.
Rounds are 300 s long, ends are noticed at their ends, and a job stands still for 10 s when what it holds is changed.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headway.formats import toml
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.summary import REPLICATION
from headway.jobs.metrics.timeline import timeline
from headway.jobs.model.rows import Kind
from headway.jobs.tables.settings import Experiment
from headway.runs import identity
from headway.runs.folder.folder import open_run
from headway.runs.measured import measured
from headway.statistics.replications import over_seeds
from headway.units import SECOND
from tests.cli.test_jobs import call

NODE = ["--nodes", "1", "--gpus-per-node", "8", "--cpus-per-node", "24", "--memory-per-node", "500GB"]
ROUNDS = ["--round", "300s", "--set", "run.completions=round", "--set", "costs.reallocation=10s"]
JOBS = (
    "submit_s,work_s,gpus,model,name\n0,7200,1,alexnet,first\n"
    + "".join(f"400,{3000 + 600 * i},1,alexnet,more-{i}\n" for i in range(7))
    + "700,1800,2,gnmt,last\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A working folder with the trace and a run of it under tune."""
    (tmp_path / "jobs.csv").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    row = simulated(capsys, "run", "fifo+tune")
    assert (row["allocation"], row["policy"], row["finished"]) == ("tune", "fifo+tune+round(5m)", 9)
    return tmp_path


def simulated(capsys: pytest.CaptureFixture[str], out: str, policy: str, more: Sequence[str] = tuple(ROUNDS)) -> Any:
    """The numbers of a run that is kept."""
    flags = ["jobs", "simulate", "jobs.csv", *NODE, "--policy", policy, *more, "--out", out, "--json"]
    ended = call(capsys, *flags)
    assert ended.status == 0, ended.err
    return ended.json


def test_the_numbers_say_what_was_divided(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = json.loads((folder / "run" / "result.json").read_text())
    run = open_run(folder / "run")
    ledger = Ledger(run.tape, run.scene.jobs, run.scene.cluster)
    lines = timeline(ledger)
    assert lines.cpus is not None
    assert lines.memory_bytes is not None
    assert [lines.cpus.at(second * SECOND) for second in (0, 599, 600)] == [12, 12, 24]
    assert [lines.memory_bytes.at(second * SECOND) for second in (0, 600)] == [125 * 10**9, 500 * 10**9]
    assert lines.effective.at(0) == 2.94
    assert lines.effective.at(605 * SECOND) == 7, "the first one stands still"
    assert lines.effective.at(610 * SECOND) == 8
    start, end = ledger.span
    assert row["cpu_utilisation"] == pytest.approx(lines.cpus.mean(start, end) / 24)
    assert row["memory_utilisation"] == pytest.approx(lines.memory_bytes.mean(start, end) / 500e9)
    assert row["storage_utilisation"] is None
    assert row["reallocations"] == len(ledger.rows(Kind.REALLOCATE)) > 1
    assert row["lost_gpu_hours"] == pytest.approx(len(ledger.rows(Kind.PAUSE)) * 10 / 3600)
    assert row["effective_gpu_utilisation"] > row["gpu_utilisation"]
    assert row["decide_p99_ms"] > 0
    plain = simulated(capsys, "plain", "fifo", ())
    assert (plain["allocation"], plain["decide_p99_ms"], plain["reallocations"]) == ("", None, 0)
    assert set(plain) == set(row)


def test_the_tape_is_sound_and_the_policy_decides_the_same_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nothing wrong" in call(capsys, "audit", "run").out
    assert "identical" in call(capsys, "replay", "run").out


def test_the_story_tells_what_a_job_was_given(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = call(capsys, "story", "run", "first").out.splitlines()
    assert told[1].endswith("runs on n0 (1) with 12 CPUs and 125 GB at 2.94 of reference speed, reallocated")
    assert told[2].endswith(
        "runs on n0 (1) with 3 CPUs and 62.5 GB at 1 of reference speed instead of 2.94, "
        "standing still for the first 10s, reallocated"
    )
    record = call(capsys, "story", "run", "first", "--json").json["stretches"]
    assert [(each["cpus"], each["memory_bytes"], each["speed"]) for each in record[:2]] == [
        (12.0, 125 * 10**9, 2.94),
        (3.0, 62_500_000_000, 1.0),
    ]
    assert [each["standstill_s"] for each in record[:2]] == [0, 10]
    assert record[-1]["stopped"] == "finished"
    assert simulated(capsys, "plain", "fifo", ())["finished"] == 9
    assert "CPU" not in call(capsys, "story", "plain", "first").out


def test_a_job_that_waits_is_told_why_and_until_when(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "explain", "run", "last", "--draws", "5", "--json")
    assert ended.status == 0, ended.err
    found = ended.json
    assert [cause["kind"] for cause in found["causes"]][-1] == "capacity"
    assert found["status"] == "waiting"
    assert [way["kind"] for way in found["ways"]] == ["preemption"]
    assert found["recorded_start_s"] % 300 == 0


@pytest.mark.parametrize("policy", ["fifo+greedy", "fifo+fit+greedy"])
def test_a_job_that_waits_for_cpus_is_told_so(policy: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated(capsys, "greedy", policy)
    found = call(capsys, "explain", "greedy", "more-1", "--at", "20m", "--draws", "5", "--json").json
    host = next(cause for cause in found["causes"] if cause["kind"] == "host")
    assert host["text"] == "GPUs are free, but not with the 12 CPUs and 125 GB that it wants beside them"


def test_exports_hold_what_was_given(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "export", "run", "--perfetto", "run.json", "--parquet", "tables").status == 0
    events = json.loads((folder / "run.json").read_text())["traceEvents"]
    first = next(each for each in events if each["ph"] == "X" and each["name"] == "job first")
    assert (first["args"]["cpus"], first["args"]["memory_gb"]) == (12.0, 125.0)
    used = {each["ts"]: each["args"]["in use"] for each in events if each["ph"] == "C" and each["name"] == "CPUs"}
    assert (used[0], used[600_000_000]) == (12.0, 24.0)
    assert any(
        each["name"] == "memory" and each["args"] == {"GB in use": 500.0} for each in events if each["ph"] == "C"
    )
    holds = pl.read_parquet(folder / "tables" / "holds.parquet")
    assert holds.row(0, named=True)["cpus"] == 12.0
    over_time = pl.read_parquet(folder / "tables" / "timeline.parquet")
    assert over_time["cpus"].max() == 24.0
    assert over_time["storage_bytes_per_s"].is_null().all()


def test_a_report_shows_cpus_and_memory_over_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated(capsys, "plain", "fifo", ())
    assert call(capsys, "report", "run", "plain", "--out", "both.html").status == 0
    page = (folder / "both.html").read_text(encoding="utf-8")
    assert "<dt>Allocation</dt><dd>tune (speed by matrix), none</dd>" in page
    assert "Over time: GPUs in use, CPUs in use, memory in use, jobs waiting" in page
    assert call(capsys, "report", "plain", "--out", "plain.html").status == 0
    page = (folder / "plain.html").read_text(encoding="utf-8")
    assert "Allocation" not in page
    assert "CPUs in use" not in page


# --- continued under changes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--add-nodes", "1"], "1 node added with 8 GPUs of type gpu"),
        (["--policy", "fifo+proportional"], "policy fifo+proportional+round(5m) instead of fifo+tune+round(5m)"),
        (["--policy", "srtf+greedy"], "policy srtf+greedy+round(5m) instead of fifo+tune+round(5m)"),
        (["--policy", "srtf"], "policy srtf+proportional+round(5m) instead of fifo+tune+round(5m)"),
        (["--policy", "fifo+tune+round(1m)"], "policy fifo+tune+round(1m) instead of fifo+tune+round(5m)"),
        (["--set", "costs.reallocation=60s"], "costs.reallocation 60s instead of 10s"),
    ],
)
def test_a_run_goes_on_under_changes(
    flags: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = call(capsys, "whatif", "run", "--at", "11m", *flags, "--out", "changed", "--json")
    assert ended.status == 0, ended.err
    assert ended.json["changes"] == [told]
    if (folder / "changed" / "result.json").exists():
        assert "nothing wrong" in call(capsys, "audit", "changed").out


def test_a_run_without_an_allocation_goes_on_with_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated(capsys, "plain", "fifo", ())
    for policy in ("fifo+tune", "fifo+proportional", "fifo+greedy"):
        ended = call(capsys, "whatif", "plain", "--at", "11m", "--policy", policy, "--json")
        assert ended.status == 0, ended.err
        assert (
            "jobs run as fast as the CPUs and the memory that they are given let them (matrix)" in ended.json["changes"]
        )


def test_a_run_that_goes_on_unchanged_is_what_it_was(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "whatif", "run", "--at", "11m", "--json")
    assert ended.status == 0, ended.err
    assert ended.json["digest"] == open_run(folder / "run").tape.digest


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--set", "policy.round=0"], "completions at the end of a round need rounds"),
        (["--policy", "fifo+tuned"], "tuned"),
    ],
)
def test_what_cannot_go_on_is_refused_in_one_line(
    flags: list[str], line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = call(capsys, "whatif", "run", "--at", "11m", *flags)
    assert ended.status == 2
    assert line in ended.err
    assert ended.err.count("\n") == 1


def test_an_allocation_needs_something_to_divide(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = ["jobs", "simulate", "jobs.csv", "--nodes", "1", "--gpus-per-node", "8", "--policy", "fifo"]
    assert call(capsys, *bare, "--out", "bare").status == 0
    ended = call(capsys, "whatif", "bare", "--at", "11m", "--policy", "fifo+tune")
    assert ended.status == 2
    assert "the cluster counts neither CPUs nor memory" in ended.err


# --- what is said of a run --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("apart", "line"),
    [
        (2000, None),  # at reference speed 1.5 of what there is; in fact a third of that, though two come last at once
        # 3000 s / 2.94 every 700 s; they start every 1200 s, when rounds do
        (700, "arrivals take 1.46 of the cluster's GPU time; the queue grew to 9 jobs by the last arrival"),
    ],
)
def test_overload_is_what_jobs_really_took(
    apart: int, line: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = [apart * i for i in range(20)]
    rows = "".join(f"{at},3000,8,alexnet\n" for at in (*times, times[-1]))
    (tmp_path / "wide.csv").write_text(f"submit_s,work_s,gpus,model\n{rows}")
    rich = ["--nodes", "1", "--gpus-per-node", "8", "--cpus-per-node", "96", "--memory-per-node", "1TB"]
    flags = ["jobs", "simulate", tmp_path / "wide.csv", *rich, "--policy", "fifo", "--json"]
    ended = call(capsys, *flags, "--allocation", "tune")
    assert ended.json["overload"] == line
    assert ("overload" in ended.err) == (line is not None)
    if line is None:
        assert call(capsys, *flags).json["overload"].startswith("arrivals ask for 1.5"), "at reference speed it is true"


def test_free_preemptions_are_said_although_changes_are_charged(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = "submit_s,work_s,gpus,model\n0,9000,1,alexnet\n100,7200,7,alexnet\n900,600,8,alexnet\n"
    (folder / "wide.csv").write_text(wide)
    flags = ["jobs", "simulate", "wide.csv", *NODE, "--policy", "srtf+tune", *ROUNDS, "--json", "--preemption-cost"]
    free, charged = (call(capsys, *flags, cost) for cost in ("0s", "60s"))
    assert min(free.json["preemptions"], free.json["lost_gpu_hours"], charged.json["preemptions"]) > 0
    assert "preemptions cost nothing here" in free.err
    assert "preemptions cost nothing" not in charged.err


# --- what a result depends on -----------------------------------------------------------------------------------


def divided(**tables: Any) -> Experiment:
    cluster = {"nodes": 1, "gpus_per_node": 8, "cpus_per_node": 24, "memory_per_node": "500GB"}
    policy = {"name": "fifo", "allocation": "tune", **tables.pop("policy", {})}
    trace = {"synthetic": {"jobs": 30, "gpus": 8}}
    return toml.typed({"trace": trace, "cluster": cluster, "policy": policy, **tables}, Experiment, "test")


def test_a_result_depends_on_everything_that_divides() -> None:
    others: list[dict[str, Any]] = [
        {},
        {"policy": {"allocation": "greedy"}},
        {"policy": {"round": "60s"}},
        {"speed": {"model": "synergy-scalar"}},
        {"speed": {"error": 0.1}},
        {"run": {"completions": "round"}},
        {"costs": {"reallocation": "5s"}},
    ]
    digests = {identity.digest(identity.with_absolute_paths(divided(**other))) for other in others}
    assert len(digests) == len(others)


def test_what_a_decision_took_is_in_no_digest_and_seeds_are_merged() -> None:
    first, second = (measured(divided()).row for _ in range(2))
    assert first["digest"] == second["digest"]
    rows = [first, measured(divided(run={"seed": 1})).row]
    merged = over_seeds(rows, 0, REPLICATION)
    assert merged["allocation"] == "tune"
    assert merged["decide_p99_ms"] == pytest.approx(sum(row["decide_p99_ms"] for row in rows) / 2)
