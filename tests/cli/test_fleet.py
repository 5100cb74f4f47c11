"""Runs of a fleet from the command line, as a user would start them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main

SMALL = ["compass", "--requests", "60", "--rate", "2", "--seed", "42"]
KEYS = [
    *("policy", "requests", "completed", "dropped", "slowdown_mean", "slowdown_p50", "slowdown_p95"),
    *("latency_p50_s", "latency_p99_s", "cache_hit_rate", "bytes_fetched", "workers_used", "slo_hit_rate"),
    *("cost_per_request_usd", "cost_total_usd", "decide_p50_us", "decide_p99_us", "tasks", "tasks_per_s", "wall_s"),
    "peak_rss_bytes",
]


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    code: object = 0
    try:
        main(list(words))
    except SystemExit as end:
        code = end.code
    told = capsys.readouterr()
    assert not code, told.err
    return told.out


def _refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(list(words))
    assert end.value.code == 2
    told = capsys.readouterr()
    assert not told.out
    assert told.err.count("\n") == 1, told.err
    return told.err


def test_a_run_prints_its_numbers_as_json_in_a_known_order(capsys: pytest.CaptureFixture[str]) -> None:
    row = json.loads(_run(capsys, "fleet", "simulate", *SMALL, "--policy", "compass", "--workers", "5", "--json"))
    assert list(row)[: len(KEYS)] == KEYS
    assert (row["policy"], row["requests"], row["completed"], row["dropped"]) == ("compass", 60, 60, 0)
    assert row["slowdown_mean"] >= row["slowdown_p50"] >= 1 or row["slowdown_mean"] >= 1
    assert row["slo_hit_rate"] is None
    assert row["tasks"] > 60


def test_the_same_seed_gives_the_same_run_and_another_another(capsys: pytest.CaptureFixture[str]) -> None:
    def digest(*more: str) -> str:
        shown = _run(capsys, "fleet", "simulate", *SMALL, "--policy", "compass", "--json", *more)
        return str(json.loads(shown)["digest"])

    assert digest() == digest()
    assert digest() != digest("--seed", "43")


def test_a_policy_goes_by_the_name_it_was_given_whatever_the_fidelity(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SMALL, "--policy", "compass(adjust=off)", "--fidelity", "authors", "--json")
    shown = _run(capsys, "fleet", "simulate", *words)
    assert json.loads(shown)["policy"] == "compass(adjust=off)"


def test_policies_are_compared_with_the_first_or_a_named_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("fleet", "compare", *SMALL, "--policies", "hash,compass", "--json")
    first, second = json.loads(_run(capsys, *words))
    assert first["baseline"] == second["baseline"] == "hash"
    assert first["slowdown_change"] is None
    assert second["slowdown_change"] == pytest.approx(second["slowdown_mean"] / first["slowdown_mean"] - 1)
    assert json.loads(_run(capsys, *words, "--baseline", "compass"))[0]["baseline"] == "compass"


def test_seeds_become_one_row_with_an_interval(capsys: pytest.CaptureFixture[str]) -> None:
    row = json.loads(_run(capsys, "fleet", "simulate", *SMALL, "--policy", "hash", "--seeds", "3", "--json"))
    assert row["seeds"] == 3
    assert [run["seed"] for run in row["runs"]] == [42, 43, 44]
    mean = sum(run["slowdown_mean"] for run in row["runs"]) / 3
    assert row["slowdown_mean"] == pytest.approx(mean)
    assert row["slowdown_mean_low"] < mean < row["slowdown_mean_high"]


def test_a_kept_run_is_audited_replayed_told_exported_and_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = str(tmp_path / "run")
    words = ("--policy", "compass", "--out", run, "--report", str(tmp_path / "a.html"))
    shown = _run(capsys, "fleet", "simulate", *SMALL, *words)
    assert "compass" in shown
    assert "translation" in shown
    assert "nothing wrong" in _run(capsys, "audit", run)
    assert "identical" in _run(capsys, "replay", run)
    told = _run(capsys, "story", run, "7")
    assert told.startswith("request 7: ")
    assert "answered after" in told
    spent = json.loads(_run(capsys, "story", run, "7", "--json"))
    latency = spent["answered_s"] - spent["arrival_s"]
    assert sum(spent["spent_s"].values()) == pytest.approx(latency)
    trace = tmp_path / "trace.json.gz"
    _run(capsys, "export", run, "--perfetto", str(trace), "--csv", str(tmp_path / "sheets"))
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert {event["ph"] for event in events} >= {"M", "X", "C"}
    assert len((tmp_path / "sheets" / "requests.csv").read_text().splitlines()) == 61
    _run(capsys, "report", run, "--out", str(tmp_path / "b.html"))
    page = (tmp_path / "b.html").read_text()
    assert "times the critical path" in page
    assert (tmp_path / "a.html").stat().st_size > 100_000


def test_an_experiment_file_with_a_table_serving_is_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'scale = "fleet"\n[serving]\nscenario = "compass"\n[workload]\nrequests = 40\nrate = 1\n'
        '[[variants]]\nname = "a"\nset.policy.name = "hash"\n[[variants]]\nname = "b"\nset.serving.workers = 3\n'
    )
    rows = json.loads(_run(capsys, "run", str(path), "--json", "--set", "policy.name=compass"))
    assert [row["variant"] for row in rows] == ["a", "b"]
    assert rows[1]["workers_used"] <= 3


def test_a_policy_from_a_file_serves_beside_the_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from headway.fleet.model.actions import PlaceRequest\n"
        "from headway.fleet.policies.compass.worker import LocalQueue\n"
        "from headway.fleet.policies.parts import ServingPolicy\n\n\n"
        "class Stay(ServingPolicy):\n"
        '    """Everything where it came in."""\n\n'
        '    name = "stay"\n\n'
        "    def bind(self, state):\n"
        "        self.queue = LocalQueue()\n"
        "        self.queue.bind(state)\n\n"
        "    def decide(self, now, state):\n"
        "        for request in state.landed:\n"
        "            rs = state.requests[request]\n"
        "            yield PlaceRequest(request, (rs.request.ingress,) * len(rs.stage))\n"
        "        for worker in list(state.touched):\n"
        "            yield from self.queue.decide(state, state.workers[worker])\n"
    )
    out = str(tmp_path / "runs")
    words = (*SMALL, "--policies", f"hash,{path}:Stay", "--json", "--out", out)
    rows = json.loads(_run(capsys, "fleet", "compare", *words))
    assert rows[1]["policy"] == "stay"
    assert rows[1]["completed"] == 60
    stay = str(next(each for each in Path(out).iterdir() if "Stay" in each.name))
    assert "identical" in _run(capsys, "replay", stay, "--trust")


def test_a_plan_names_the_least_number_of_workers_that_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("fleet", "plan", "question-answering", "--slo", "2s", "--rate", "3", "--requests", "200", "--json")
    found: list[dict[str, Any]] = json.loads(_run(capsys, *words))
    best = found[0]
    assert best["slo_hit_rate"] >= 0.99
    assert best["workers"] >= 2  # 3 requests a second of 0.587 s each are more than one worker can do
    fewer = best["slo_hit_rate_one_fewer"]
    assert fewer is None or fewer < 0.99


BAD = {
    "flag of jobs": (("fleet", "simulate", *SMALL, "--nodes", "4"), "No such option: --nodes"),
    "flag of a fleet": (("jobs", "simulate", "--workers", "4"), "No such option: --workers"),
    "unknown scenario": (("fleet", "simulate", "compas"), "did you mean 'compass'"),
    "unknown policy": (("fleet", "simulate", *SMALL, "--policy", "compas"), "did you mean 'compass'"),
    "unknown option": (("fleet", "simulate", *SMALL, "--policy", "compass(adjusted=off)"), "did you mean 'adjust'"),
    "bad fidelity": (("fleet", "simulate", *SMALL, "--fidelity", "author"), "did you mean 'authors'"),
    "no worker": (("fleet", "simulate", *SMALL, "--workers", "0"), "workers"),
    "rate": (("fleet", "simulate", *SMALL, "--rate", "-1"), "rate -1"),
    "overload": (("fleet", "simulate", "compass", "--rate", "500"), "can carry"),
    "unknown graph": (("fleet", "plan", "translatoin", "--slo", "3s", "--rate", "1"), "did you mean 'translation'"),
    "hopeless": (("fleet", "plan", "translation", "--slo", "100ms", "--rate", "1"), "critical path"),
    "report": (("fleet", "simulate", *SMALL, "--report", "a.txt"), "must end in .html"),
}


@pytest.mark.parametrize("words", BAD.values(), ids=BAD)
def test_bad_input_is_one_line(
    words: tuple[tuple[str, ...], str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words[1] in _refused(capsys, *words[0])


def test_a_story_needs_a_request_of_the_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    _run(capsys, "fleet", "simulate", *SMALL, "--policy", "hash", "--out", run)
    assert "go from 0 to 59" in _refused(capsys, "story", run, "60")


# --- load, start and changing rates -----------------------------------------------------------------------------


def test_a_load_is_said_as_a_rate_and_stored(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["fleet", "simulate", "compass", "--requests", "60", "--policy", "hash", "--load", "0.4"]
    row = json.loads(_run(capsys, *words, "--json", "--out", str(tmp_path / "run")))
    assert row["load"] == 0.4
    assert row["rate_per_s"] == pytest.approx(0.4 * 5 / 0.99645)  # as the capacity in test_limits
    assert json.loads((tmp_path / "run" / "result.json").read_text())["rate_per_s"] == row["rate_per_s"]
    assert "load = 0.4" in (tmp_path / "run" / "experiment.toml").read_text()
    main_out = _both(capsys, *words)
    assert f"load 0.4: {row['rate_per_s']:.6g} requests a second" in main_out
    plain = json.loads(_run(capsys, *words[:-2], "--rate", repr(row["rate_per_s"]), "--json"))
    assert plain["digest"] == row["digest"], "the same as that rate"
    assert "load" not in plain


def _both(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(list(words))
    told = capsys.readouterr()
    return told.out + told.err


def test_a_warm_run_is_kept_audited_and_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["fleet", "simulate", "pipelines", "--requests", "80", "--load", "0.3", "--json"]
    cold = json.loads(_run(capsys, *words))
    warm = json.loads(_run(capsys, *words, "--start", "warm", "--out", str(tmp_path / "warm")))
    assert warm["cold_starts"] + warm["dropped"] < cold["cold_starts"] + cold["dropped"]
    assert warm["digest"] != cold["digest"]
    assert 'start = "warm"' in (tmp_path / "warm" / "experiment.toml").read_text()
    assert "nothing wrong" in _run(capsys, "audit", str(tmp_path / "warm"))
    assert "identical" in _run(capsys, "replay", str(tmp_path / "warm"))
    again = json.loads(_run(capsys, "run", str(tmp_path / "warm" / "experiment.toml"), "--json"))
    assert (again[0] if isinstance(again, list) else again)["digest"] == warm["digest"]


def test_a_warm_tape_read_as_a_cold_one_is_not_sound(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = tmp_path / "warm"
    _run(capsys, "fleet", "simulate", "pipelines", "--requests", "80", "--start", "warm", "--out", str(run))
    text = (run / "experiment.toml").read_text()
    (run / "experiment.toml").write_text(text.replace('start = "warm"', 'start = "cold"'))
    assert "in a process that is not there" in _both(capsys, "audit", str(run))


def test_a_file_of_rates_is_kept_by_an_experiment_and_a_sweep(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "day.csv").write_text("requests\n10\n30\n")
    words = ["fleet", "sweep", "compass", "--policies", "hash", "--requests", "40", "--loads", "0.2,0.4"]
    _run(capsys, *words, "--arrivals", "rates:day.csv,squeeze=60", "-o", "out")
    stored = [path.read_text() for path in (tmp_path / "out").rglob("*.toml")]
    assert any(f"rates:{tmp_path / 'day.csv'},squeeze=60" in text for text in stored)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--load", "0.5"], "load 0.5 and rate 2: give one of them"),
        (["--set", "workload.rate=2", "--load", "0.5"], "give one of them"),
        (["--start", "hot"], "unknown start 'hot'"),
        (["--arrivals", "diurnal(peak=0.5)"], "peak 0.5 must be at least 1"),
        (["--arrivals", "diurnal(period=0s)"], "period"),
        (["--arrivals", "rates:none.csv"], "there is no such file"),
    ],
)
def test_bad_settings_are_one_line(capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    assert line in _refused(capsys, "fleet", "simulate", *SMALL, *words)


@pytest.mark.parametrize(
    ("load", "line"),
    [("0", "load 0: must be above 0"), ("-1", "load -1: must be above 0"), ("1e9", "at most 1,000"), ("nan", "finite")],
)
def test_a_load_must_be_above_0(capsys: pytest.CaptureFixture[str], load: str, line: str) -> None:
    assert line in _refused(capsys, "fleet", "simulate", "compass", f"--load={load}")


def test_a_plan_takes_a_load_of_the_scenarios_own_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fleet", "plan", "perception-3d", "--slo", "3s", "--requests", "100", "--policy", "hash"]
    told = _both(capsys, *words, "--load", "0.2", "--start", "warm")
    assert "load 0.2: " in told
    assert "in time" in told
    assert "a plan needs a rate" in _refused(capsys, *words)
