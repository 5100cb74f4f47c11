"""Plans of several policies: what each needs, what counts as enough, the curve, and what fidelity gives."""

import json
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest

import headway as hw
from headway.cli import main
from headway.errors import ExperimentError
from headway.fleet.ask import capacity_planning
from headway.fleet.ask.planning import POINTS, enough, fidelity_notes, spread
from headway.fleet.scenarios.tables.settings import ServingExperiment, parse_slo
from headway.fleet.show.page import plan as plan_page
from headway.formats import toml


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["fleet", "plan", *words])
    told = capsys.readouterr()
    return int(end.value.code or 0), told.out, told.err


NEEDS = {"hash": 10_000, "jit": 9, "compass": 12, "headway": 7}


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Trials whose outcome is a function of the policy and the number of workers; the list of those that were made."""
    made: list[tuple[str, int]] = []

    def run(search: Any, count: int, part: int) -> dict[str, Any]:
        policy = search.experiment.policy.name
        made.append((policy, count))
        share = 1.0 if count >= NEEDS[policy] else 0.5
        row = {"slo_hit_rate": share, "measured": 200, "latency_p99_s": 1.0, "gpu_utilisation": 0.9}
        counts = {"requests": 220, "dropped": 0, "dropped_at_start": 0, "goodput_per_s": 8.0}
        slow = {"slowdown_mean": 1 + 10 / count, "slowdown_p95": 1 + 30 / count}
        search.rows[count, part] = row | counts | slow
        return dict(search.rows[count, part])

    monkeypatch.setattr(capacity_planning.Search, "_run", run)
    return made


WORDS = ("compass", "--policies", "hash,jit,compass,headway", "--rate", "4", "--slo", "3x")


def test_what_each_policy_needs_and_what_counts_as_enough(
    faked: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = ran(capsys, *WORDS)
    assert status == 0, err
    rows = [line.split() for line in out.splitlines()]
    found = {row[0]: int(row[6]) for row in rows if row and row[0] in NEEDS and "%" in row}
    assert found == {policy: least for policy, least in NEEDS.items() if policy != "hash"}
    assert "hash: no number of workers that was tried is enough" in out
    assert "99 % of the requests are answered within 3 times their critical path (2,000 requests a trial at 4 a" in out
    assert out.splitlines()[-1].startswith("headway needs 7 workers, $")
    assert "jit 9 (1.29 times the cost); compass 12 (1.71 times the cost)" in out
    assert "fidelity true gives more than the papers' own simulations: graphs share models" in err
    assert "start open for hash" in err
    status, out, err = ran(capsys, *WORDS, "--fidelity", "authors", "--json")
    assert "as the papers simulate them" in err
    records = json.loads(out)
    assert {row["policy"]: row["workers"] for row in records} == NEEDS | {"hash": None}
    for row in records:
        curve = [point["workers"] for point in row["curve"]]
        assert curve == sorted(set(curve))


def test_a_page_has_the_curve_of_every_policy_with_the_needed_number_marked(
    faked: list[tuple[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "plan.html"
    status, _, err = ran(capsys, *WORDS, "--report", str(page))
    assert status == 0, err
    text = page.read_text(encoding="utf-8")
    assert "headway needs 7 workers" in text
    assert "none is enough" in text
    tried = {policy: {count for who, count in faked if who == policy} for policy in NEEDS}
    common = set.intersection(*tried.values())
    assert len(common) >= POINTS - 3, "all policies are measured at the same numbers of workers"
    records = hw.plan("compass", policies=list(NEEDS), rate=4, slo="3x").record()
    drawn = plan_page._figure(records, list(NEEDS), [{"color": "@s0"}] * 4, "slowdown_mean", "slow-down")
    for trace, row in zip(drawn["data"], records, strict=True):
        marked = [x for x, size in zip(trace["x"], trace["marker"]["size"], strict=True) if size > 5]
        assert marked == ([row["workers"]] if row["workers"] else [])
        plotly.graph_objects.Scatter({**trace, "line": {}, "marker": {"size": trace["marker"]["size"]}})


def test_a_whole_scenario_is_planned_with_all_its_graphs() -> None:
    record = hw.plan("compass", policy="jit", rate=1, slo="20x", in_time=0.5, requests=100).record()
    assert record[0]["workers"] >= 1
    assert record[0]["slowdown_mean"] >= 1
    assert record[0]["policy"] == "jit"


def test_a_batch_delay_beyond_the_deadline_is_refused_before_anything_runs() -> None:
    with pytest.raises(
        ExperimentError, match=r"option max_delay=10s is not shorter than the deadline of \S+, 248ms980us"
    ):
        hw.plan("esg", policy="esg(max_delay=10s)", rate=5, requests=100)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["compass", "--policies", "hash,nope"], "unknown serving policy 'nope'"),
        (["compass", "--policies", "hash,hash"], "hash"),
        (["compass", "--policies", ""], "policies '' is not understood: write it like hash,compass,headway"),
        (["compass", "--policies", "hash", "--policy", "jit"], "--policy and --policies: give one of them"),
        (["compass", "--policy", "nope"], "unknown serving policy 'nope'"),
        (["compass", "--report", "plan.txt"], "--report plan.txt: the name must end in .html"),
        (["compass", "--report", "nowhere/plan.html"], "there is no folder nowhere"),
        (["compass", "--fidelity", "false"], "unknown fidelity 'false'"),
        (["compass", "--scenario", "esg"], "compass is a scenario already: leave --scenario esg out"),
        (["compas"], "unknown graph or scenario 'compas'"),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    words: list[str], line: str, faked: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = ran(capsys, *words, "--rate", "4", "--slo", "3x")
    assert (status, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1
    assert faked == []


def test_where_no_policy_is_enough_the_first_says_why(
    faked: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(NEEDS, "jit", 10_000)
    status, out, err = ran(capsys, "compass", "--policies", "hash,jit", "--rate", "4", "--slo", "3x")
    assert (status, out) == (2, "")
    assert "no kind of worker answers 99 % in time; hash, T4 (14 GB, 1 CPU): 50.0 % in time" in err


def test_requests_longer_than_the_cache_are_said_to_be_the_reason() -> None:
    with pytest.raises(ExperimentError, match=r"2,000,000 \+ \d+ tokens never fit into the cache of answer"):
        hw.plan("chat", rate=2, requests=100, prompt_tokens="2000000")


def test_times_the_critical_path_is_written_as_x_or_as_l() -> None:
    assert parse_slo("3x") == parse_slo("3L") == parse_slo("3 ×") == (0, 3.0)


def test_curves_are_spread_by_a_common_factor() -> None:
    assert spread(20, 60) == [20, 23, 27, 32, 37, 44, 51, 60]
    assert spread(1, 2) == [1, 2]


def test_what_is_enough_and_what_fidelity_gives_is_said_of_other_scenarios_too() -> None:
    document = {"serving": {"scenario": "esg"}, "workload": {"rate": 4.0, "requests": 300}, "policy": {"name": "esg"}}
    experiment = toml.typed(document, ServingExperiment, "test")
    assert enough(experiment, 0.9) == (
        "enough: 90 % of the requests are answered within their deadline (300 requests a trial at 4 a second)"
    )
    (line,) = fidelity_notes([experiment])
    assert "esg has late " in line
    assert "deviations" in line


def test_a_scenario_on_cpus_alone_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cpus.toml").write_text(
        '[functions]\nlook = { ms = 20, slices = 0 }\n[graphs.all]\nchain = ["look"]\nslo = "200ms"\n'
        '[fleet]\nworkers = [{ count = 2, memory = "10GB", cpus = 4 }]\n'
    )
    words = (str(tmp_path / "cpus.toml"), "--rate", "50", "--requests", "200", "--in-time", "0.9")
    code, out, err = ran(capsys, *words, "--json")
    assert code == 0, err
    (row,) = json.loads(out)
    assert row["workers"] == 1
    assert row["slo_hit_rate"] >= 0.9
    code, out, err = ran(capsys, *words)
    assert (code, "1 worker with" in out) == (0, True), err
