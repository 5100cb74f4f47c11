"""Autoscaled runs as users make them: flags and keys, bounds, what is stored, and that ``none`` changes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main
from headway.errors import ExperimentError, InputError
from headway.fleet.ask.planning import answer
from headway.fleet.experiment.scene import prepare
from headway.fleet.model.rows import Kind
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.formats import toml
from headway.runs.play import play


def ran(words: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def experiment(autoscale: str, **serving: Any) -> ServingExperiment:
    document = {
        "scale": "fleet",
        "serving": {"scenario": "compass", "workers": 6, "autoscale": autoscale, "startup": "3s", **serving},
        "workload": {"rate": 2.0, "requests": 120, "slo": "3L", "overload": True},
        "policy": {"name": "compass"},
    }
    return toml.typed(document, ServingExperiment, "test")


def test_none_changes_nothing() -> None:
    digests = {play(prepare(experiment(spec))).tape.digest for spec in ("", "none")}
    assert digests == {play(prepare(experiment("", startup=""))).tape.digest}


def test_a_fleet_begins_with_what_the_first_requests_need_or_with_what_it_is_told() -> None:
    whole = 6
    needed = prepare(experiment("queue"))
    assert 0 < len(needed.built.fleet.off) < whole
    assert len(prepare(experiment("queue(initial=2)")).built.fleet.off) == whole - 2
    assert prepare(experiment("queue(least=6)")).built.fleet.off == ()
    assert prepare(experiment("none")).built.fleet.off == ()


@pytest.mark.parametrize(
    ("autoscale", "said"),
    [
        ("queue(most=7)", "autoscale queue: most=7, but the fleet has 6 workers; --workers gives it more"),
        ("utilisation(least=9)", "autoscale utilisation: least=9, but the fleet has 6 workers"),
        ("headway(initial=7)", "autoscale headway: initial=7, but the fleet has 6 workers"),
        ("sometimes", "unknown autoscaler 'sometimes'"),
        ("queue(foo=1)", "autoscale queue: unknown option 'foo'"),
        ("queue(tasks=x)", "autoscale queue: option tasks=x is not a number"),
        ("queue(window=x)", "autoscale queue: option window 'x' is not understood"),
        ("queue(", "autoscaler 'queue(' is not understood: write it like utilisation(target=0.6)"),
        ("queue(least=5,most=2)", "autoscale queue: least=5 is above most=2: lower least, or raise most"),
    ],
)
def test_bounds_beyond_the_fleet_are_refused_in_one_line(autoscale: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        prepare(experiment(autoscale))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_stored_run_is_audited_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--workers", "6", "--rate", "3", "--requests", "150", "--slo", "3L", "--policy", "headway"]
    scaler = ["--autoscale", "queue(tasks=1,every=1s,window=3s,initial=1)", "--startup", "2s", "--start", "warm"]
    run = tmp_path / "run"
    status = ran(["fleet", "simulate", "compass", *words, *scaler, "--out", str(run), "--json"])
    told = capsys.readouterr()
    assert status == 0, told.err
    row = json.loads(told.out)
    assert 1 < row["workers_mean"] < 6
    assert row["cost_rent_usd"] == pytest.approx(row["cost_fleet_usd"] * row["workers_mean"] / 6)
    for verb in ("audit", "replay"):
        assert ran([verb, str(run)]) == 0, capsys.readouterr().err
    assert ran(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0, capsys.readouterr().err
    assert "workers rented" in (tmp_path / "page.html").read_text()


def test_a_stopped_worker_runs_nothing_until_it_has_started_again() -> None:
    scene = prepare(experiment("queue(tasks=1,every=1s,window=2s,initial=1)"))
    tape = play(scene).tape
    assert scene.audit(tape, complete=True) == []
    usable = set(range(6)) - set(scene.built.fleet.off)
    kinds = {int(kind): 0 for kind in (Kind.START_WORKER, Kind.DRAIN_WORKER, Kind.STOP_WORKER)}
    for _, kind, _, lease, place, _, _ in tape.rows.tolist():
        if kind in kinds:
            kinds[kind] += 1
        if kind == Kind.WORKER_STARTED or (kind == Kind.START_WORKER and not lease):
            usable.add(place)
        elif kind == Kind.DRAIN_WORKER:
            usable.discard(place)
        elif kind == Kind.RUN:
            assert place in usable
    assert all(kinds.values()), "otherwise this says little"


def test_a_plan_is_of_a_fleet_that_stays() -> None:
    with pytest.raises(ExperimentError, match="a plan is of a fleet that stays as it is: leave --autoscale out"):
        answer([experiment("queue")], 0.9)
