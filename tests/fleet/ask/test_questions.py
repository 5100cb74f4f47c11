"""Questions about stored runs of a fleet: why a request was late, and what would have changed under changes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st

import headway as hw
from headway.cli import main
from headway.errors import ExperimentError
from headway.fleet.ask import whatif
from headway.fleet.model.rows import Kind
from headway.runs.folder.folder import open_run

SMALL = ("--workers", "3", "--rate", "2", "--requests", "60", "--slo", "2L")


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([*words])
    told = capsys.readouterr()
    return int(end.value.code or 0), told.out, told.err


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of compass with deadlines."""
    folder = tmp_path_factory.mktemp("fleet") / "run"
    with pytest.raises(SystemExit) as end:
        main(["fleet", "simulate", "compass", "--policy", "compass", *SMALL, "--out", str(folder)])
    assert not end.value.code
    return folder


# --- explain --------------------------------------------------------------------------------------------------------


def test_explain_breaks_every_request_down_to_its_latency(kept: Path) -> None:
    run = hw.open(kept)
    frame = run.requests()
    for number, latency, in_time in frame.select("request", "latency_s", "in_time").iter_rows():
        record = run.explain(number).record()
        assert sum(record["parts_ns"].values()) == round(latency * 1e9)
        assert record["late"] is (in_time is False)
        summed = [sum(task["parts_ns"].values()) for task in record["critical_path"]]
        assert sum(summed) == sum(record["parts_ns"].values())


def test_without_a_request_late_ones_are_counted_by_cause(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "explain", str(kept), "--json")
    assert (status, err) == (0, "")
    record = json.loads(out)
    measured = hw.open(kept).requests()[6:]
    assert (record["requests"], record["late"]) == (54, int((~measured["in_time"]).sum()))
    assert record["late"] > 0
    assert sum(row["share"] for row in record["causes"]) == pytest.approx(1)
    assert sum(row["main_cause_of"] for row in record["causes"]) == record["late"]
    status, out, _ = call(capsys, "explain", str(kept))
    assert f"{record['late']} of 54 measured requests were late" in out
    shares = [float(line.split("%")[0].split()[-1]) for line in out.splitlines() if " % " in line]
    assert sum(shares) == pytest.approx(100, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["60"], "request '60' is not in this run: its 60 requests go from 0 to 59"),
        (["-1"], "No such option"),
        (["x"], "request 'x' is not in this run"),
        (["9" * 400], "is not in this run: its 60 requests go from 0 to 59"),
        (["3", "--at", "2s"], "--at is about jobs that wait; a request of a fleet is explained as a whole"),
        (["3", "--draws", "9"], "--draws is about jobs that wait"),
    ],
)
def test_what_cannot_be_explained_is_one_line(
    kept: Path, words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = call(capsys, "explain", str(kept), *words)
    assert (status, out) == (2, "")
    assert line in err


# --- what if --------------------------------------------------------------------------------------------------------


def test_no_change_gives_the_same_tape(kept: Path) -> None:
    run = open_run(kept)
    for changes in ({}, {"load": "1"}, {"memory": 1}, {"policy": "compass"}, {"start": "cold", "slo": "2L"}):
        answer = whatif.ask(run, "", changes)
        record = answer.record()
        assert (record["digest"], record["changes"]) == (run.tape.digest, [])
        assert record["before"] == record["after"]
        assert "nothing was to change: the tape is the same, row for row" in answer.notes[0]


def test_a_run_that_was_cut_short_is_compared_with_the_whole_of_it(kept: Path) -> None:
    whole = open_run(kept)
    cut = replace(whole, tape=whole.tape.until(int(whole.tape.column("time")[-1]) // 2), complete=False)
    answer = whatif.ask(cut, "", {})
    assert answer.record()["digest"] == whole.tape.digest
    assert any("the run was cut short" in note for note in answer.notes)


CHANGES: dict[str, Any] = {
    "add_workers": st.sampled_from([1, "2"]),
    "remove_workers": st.sampled_from([1, "2"]),
    "memory": st.sampled_from([0.5, "2"]),
    "policy": st.sampled_from(["hash", "headway", "jit"]),
    "slo": st.sampled_from(["3x", "2s", "none"]),
    "start": st.just("warm"),
    "load": st.sampled_from(["0.5", "2"]),
    "failures": st.sampled_from(["every=5s,repair=1s", "off"]),
    "set": st.just(["serving.push_interval=0s"]),
}


@settings(max_examples=12)
@given(given=st.fixed_dictionaries({}, optional=CHANGES), data=st.data())
def test_what_comes_out_is_a_run_of_the_same_requests_that_can_be_kept(
    kept: Path, tmp_path_factory: pytest.TempPathFactory, given: dict[str, Any], data: st.DataObject
) -> None:
    stored = open_run(kept)
    more = int(given.get("add_workers", 0)) - int(given.get("remove_workers", 0))
    assume(3 + more > 1 or given.get("failures", "off") == "off")  # the only worker never fails: that is refused
    folder = tmp_path_factory.mktemp("made") / "run"
    record = whatif.ask(stored, "", given, folder).record()
    made = open_run(folder)
    assert (made.complete, made.tape.digest) == (True, record["digest"])
    assert made.scene.audit(made.tape, complete=True) == []
    assert made.scene.replay(made.tape, complete=True).digest == record["digest"]
    arrived = int((made.tape.column("kind") == int(Kind.ARRIVED)).sum())
    assert arrived == len(stored.scene.requests) == len(made.scene.requests)
    for before, after in zip(stored.scene.requests, made.scene.requests, strict=True):
        assert (before.id, before.graph, before.tenant) == (after.id, after.graph, after.tenant)
        assert after.arrival == int(before.arrival / (float(given.get("load", 1))))
        if "slo" not in given:
            assert after.deadline - after.arrival == before.deadline - before.arrival
    assert record["after"]["workers"] == len(made.scene.built.fleet.workers) == 3 + more
    assert json.loads((folder / "whatif.json").read_text()) == record
    again = whatif.ask(made, "", {})
    assert again.record()["digest"] == record["digest"]


def test_the_numbers_are_those_of_both_runs(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "whatif", str(kept), "--add-workers", "2", "--json")
    assert (status, err) == (0, "")
    record = json.loads(out)
    before = hw.open(kept).row
    for key in ("slowdown_mean", "latency_p99_s", "slo_hit_rate", "cost_rent_usd", "cache_hit_rate"):
        assert record["before"][key] == before[key]
    assert record["after"]["slowdown_mean"] < record["before"]["slowdown_mean"]
    assert record["better"] + record["worse"] <= record["completed"] == 54
    assert record["change"]["workers"] == pytest.approx(2 / 3)
    status, out, _ = call(capsys, "whatif", str(kept), "--add-workers", "2")
    assert "From the beginning: 5 workers instead of 3" in out
    assert "rent, $" in out
    assert "workers rented" not in out, "all were rented all the time"
    assert "first token" not in out


def test_a_load_of_the_fleet_stays_the_rate_that_it_was(tmp_path: Path) -> None:
    work = hw.Fleet("compass", requests=30, load=0.5, workers=2)
    run = hw.simulate(work, "jit", out=str(tmp_path / "run"))
    run.whatif(add_workers=2, folder=tmp_path / "more")
    more = hw.open(tmp_path / "more").stored.scene.experiment.workload
    assert (more.load, more.rate) == (None, run.row["rate_per_s"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--add-nodes", "1"], "--add-nodes changes runs of jobs; this is one of fleet (valid: --add-workers, "),
        (["--quota", "a=1"], "--quota changes runs of jobs; this is one of fleet"),
        (["--skip-infeasible"], "--skip-infeasible changes runs of jobs"),
        (["--at", "1s"], "--at 1s: a run of a fleet is played again from its beginning; leave --at out"),
        (["--add-workers", "x"], "--add-workers 'x' is not understood: write how many workers"),
        (["--add-workers", "99999"], "workers 100002 must lie in 1 to 10,000"),
        (["--remove-workers", "3"], "--remove-workers 3: the fleet has 3 workers; at least one has to stay"),
        (["--memory", "much"], "--memory 'much' is not a number"),
        (["--memory", "nan"], "memory nan must lie in 0.001 to 1,000"),
        (["--memory", "0.1"], "is larger than every GPU"),
        (["--load", "1/0"], "--load '1/0' is not a number"),
        (["--load", "-2"], "--load -2: must lie in 0.001 to 1000"),
        (["--policy", "nope"], "unknown serving policy 'nope'"),
        (["--policy", ""], "--policy is empty: give it a value, or leave it out"),
        (["--policy", "esg(max_delay=1h)"], "option max_delay=1h is not shorter than the deadline of"),
        (["--policy", "aquatope(initial=0)"], "policy aquatope: option initial=0 is not a number of 2 or more"),
        (["--set", "serving.autoscale=queue(least=3,most=2)"], "autoscale queue: least=3 is above most=2"),
        (["--start", "hot"], "unknown start 'hot'"),
        (["--slo", "0.1x"], "is below the critical path"),
        (["--failures", "mtfb=3s"], "--failures: unknown key 'mtfb'"),
        (["--set", "workload.requests=5"], "--set workload.requests: cannot change while the requests stay the same"),
        (["--set", "run.seed=5"], "--set run.seed: cannot change while the requests stay the same"),
    ],
)
def test_what_cannot_change_is_one_line(
    kept: Path, words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = call(capsys, "whatif", str(kept), *words)
    assert (status, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_changes_of_a_fleet_are_none_of_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "jobs")
    words = ["--set", "trace.synthetic.jobs=20", "--nodes", "2", "--gpus-per-node", "4", "--policy", "fifo"]
    assert call(capsys, "jobs", "simulate", *words, "--out", folder)[0] == 0
    status, _, err = call(capsys, "whatif", folder, "--at", "1s", "--add-workers", "1")
    assert status == 2
    assert "--add-workers changes runs of fleet; this is one of jobs" in err
    status, _, err = call(capsys, "whatif", folder, "--add-nodes", "1")
    assert "from when on do the changes hold? Write --at 2d" in err
    with pytest.raises(ExperimentError, match="unknown change 'nobody'"):
        hw.open(folder).whatif("1s", nobody=1)
