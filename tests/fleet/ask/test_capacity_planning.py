"""Plans: the least number of workers that is enough, of each kind, and what it costs; an early word where none is."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from headway.cli import main
from headway.errors import ExperimentError
from headway.fleet.ask import capacity_planning, planning
from headway.fleet.ask.capacity_planning import Plan, kind_name, plans
from headway.fleet.experiment.scene import prepare
from headway.fleet.metrics.summary import summarise
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.formats import toml
from headway.runs.answer import Answer
from headway.runs.play import play

T4 = {"count": 3, "gpu": "T4", "memory": "14GB"}
OLD = {"count": 2, "gpu": "K80", "memory": "12GB", "name": "old", "cpus": 2}
SCENARIO: dict[str, Any] = {
    "models": {"m": "50MB"},
    "functions": {"f": {"models": ["m"], "cells": {"T4": [[1, 1, 1, 100]], "K80": [[1, 1, 1, 250]]}}},
    "graphs": {"line": {"chain": ["f", "f"]}},
    "fleet": {"workers": [T4, OLD]},
}


@pytest.fixture
def scenario(tmp_path: Any) -> Callable[..., str]:
    """A scenario file with other workers, prices or functions."""

    def written(**more: Any) -> str:
        path = tmp_path / "mine.py"
        path.write_text(f"def scenario(experiment):\n    return {SCENARIO | more!r}\n")
        return str(path)

    return written


def asked(scenario: str, slo: str = "1s", rate: float = 8.0, **workload: Any) -> ServingExperiment:
    document = {
        "serving": {"scenario": scenario},
        "workload": {"slo": slo, "rate": rate, "requests": 200, "arrivals": "poisson", "overload": True, **workload},
        "policy": {"name": "jit"},
    }
    return toml.typed(document, ServingExperiment, "test")


def silent(_text: str, share: float) -> None:
    assert 0 <= share <= 1


def faked(
    monkeypatch: pytest.MonkeyPatch, hits: Callable[[Any, int], float], used: float = 0.2
) -> list[tuple[str, int, int]]:
    """Trials whose outcome is a function of the kind and the number of workers; the list of those that were made."""
    made: list[tuple[str, int, int]] = []

    def run(search: Any, count: int, part: int) -> dict[str, Any]:
        if (count, part) not in search.rows:
            made.append((search.kind.gpu.type, count, part))
            row = {"slo_hit_rate": hits(search.kind, count), "measured": 200 // part, "latency_p99_s": 1.0}
            counts = {"requests": 220, "dropped": 0, "dropped_at_start": 0}
            search.rows[count, part] = {**row, **counts, "gpu_utilisation": used, "goodput_per_s": 8.0}
        found: dict[str, Any] = search.rows[count, part]
        return found

    monkeypatch.setattr(capacity_planning.Search, "_run", run)
    return made


# --- the search ---------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(1, 700), st.floats(0.5, 1.0))
def test_the_least_number_that_is_enough_is_found(enough: int, target: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        made = faked(patch, lambda _, count: target * min(1.0, count / enough), 0.9)
        search = _search(target)
        plan = search.least()
    least = max(enough, min(count for _, count, _ in made))
    assert plan.workers == least
    assert plan.fewer_hit_rate is None if least == 1 else plan.fewer_hit_rate < target or least > enough
    assert plan.hour_usd == pytest.approx(least * 0.704)
    assert len(made) <= 2 * (2 + 3 * math.ceil(math.log2(least + 1)))


SLOW = asked("compass", slo="100s", rate=1.0)
COMPASS = capacity_planning.scenario_file.load(SLOW)


def _search(target: float) -> capacity_planning.Search:
    return capacity_planning.Search(SLOW, COMPASS, COMPASS.fleet.workers[0], target, silent)


def test_a_number_that_is_far_too_small_needs_only_the_short_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made = faked(monkeypatch, lambda _, count: 0.2 if count < 9 else 1.0, 0.9)
    search = _search(0.99)
    assert search.least().workers == 9
    assert {("T4", 9, 1), ("T4", 8, 1)} <= set(made)  # the plan itself, and what one fewer would do
    assert {part for _, count, part in made if count < 8} == {capacity_planning.SHORT_RUN_DIVISOR}


@pytest.mark.parametrize("hits", [lambda count: 0.8, lambda count: 0.9 - count / 100, lambda count: 0.0])
def test_it_ends_where_more_workers_do_not_help(hits: Callable[[int], float], monkeypatch: pytest.MonkeyPatch) -> None:
    made = faked(monkeypatch, lambda _, count: hits(count))
    plan = _search(0.99).least()
    assert plan.workers == 0
    assert "more do not help" in plan.why_not
    assert max(count for _, count, _ in made) < 100
    assert plan.record()["workers"] is plan.record()["cost_hour_usd"] is None


def test_the_most_workers_that_are_tried_are_told_where_more_might_help(monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, lambda _, count: 0.9 * count / capacity_planning.MOST_WORKERS, 0.9)
    plan = _search(0.99).least()
    assert plan.why_not == "90.0 % in time with 1,024 workers, and 1,024 are the most tried"


def test_a_throughput_beyond_all_workers_is_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    made = faked(monkeypatch, lambda _, count: 1.0)
    search = _search(0.99)
    search.experiment = asked("compass", slo="100s", rate=1e6)
    assert "for the throughput alone" in search.least().why_not
    assert made == []


# --- several kinds ------------------------------------------------------------------------------------------------


def test_kinds_are_tried_alone_and_the_cheapest_comes_first(
    scenario: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    faked(monkeypatch, lambda kind, count: 1.0 if count >= (2 if kind.gpu.type == "T4" else 5) else 0.5)
    found = plans(asked(scenario()), 0.99, silent)
    assert [(plan.kind.gpu.type, plan.workers) for plan in found] == [("T4", 2), ("K80", 5)]
    assert found[1].hour_usd == pytest.approx(5 * (0.67 + 2 * 0.034))
    cheap = {"workers": [T4, {**OLD, "hour_usd": 0.1}]}
    found = plans(asked(scenario(fleet=cheap)), 0.99, silent)
    assert [(plan.kind.gpu.type, plan.hour_usd) for plan in found] == [("K80", 0.5), ("T4", pytest.approx(2 * 0.704))]
    assert found[0].request_usd == pytest.approx(0.5 / 3600 / 8.0)


def test_a_kind_that_is_too_slow_is_named_with_what_is_missing(scenario: Callable[..., str]) -> None:
    found = plans(asked(scenario(), slo="400ms"), 0.9, silent)
    assert [plan.kind.gpu.type for plan in found] == ["T4", "K80"]
    assert found[0].hit_rate >= 0.9
    assert found[1].workers == 0
    assert "takes 500ms at its fastest, 100ms more" in found[1].why_not
    with pytest.raises(ExperimentError, match="takes 200ms at its fastest, 50ms more"):
        plans(asked(scenario(), slo="150ms"), 0.9, silent)


def test_a_factor_of_the_critical_path_is_the_same_time_for_all_kinds(
    scenario: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, set[int]] = {}
    real = capacity_planning.draw

    def draw(experiment: Any, built: Any) -> Any:
        requests = real(experiment, built)
        gpu = built.fleet.workers[0].gpu.type
        seen.setdefault(gpu, set()).update(each.deadline - each.arrival for each in requests)
        return requests

    monkeypatch.setattr(capacity_planning, "draw", draw)
    plans(asked(scenario(), slo="4L"), 0.5, silent)
    assert seen == {"T4": {800_000_000}, "K80": {800_000_000}}


def test_hosts_and_racks_are_filled_as_in_the_scenario(scenario: Callable[..., str]) -> None:
    table = {"workers": [{**T4, "count": 8, "per_host": 4}], "hosts_per_rack": 1}
    experiment = asked(scenario(fleet=table))
    built = capacity_planning.scenario_file.load(experiment)
    fleet = capacity_planning.Search(experiment, built, built.fleet.workers[0], 0.9, silent)._fleet(6).fleet
    assert [worker.host for worker in fleet.workers] == [0, 0, 0, 0, 1, 1]
    assert [worker.rack for worker in fleet.workers] == [0, 0, 0, 0, 1, 1]
    assert len({worker.name for worker in fleet.workers}) == 6


def test_the_warm_up_is_long_enough_for_processes_to_start(scenario: Callable[..., str]) -> None:
    slow = {"f": {**SCENARIO["functions"]["f"], "cold_start": "10s"}}
    experiment = asked(scenario(functions=slow))
    built = capacity_planning.scenario_file.load(experiment)
    search = capacity_planning.Search(experiment, built, built.fleet.workers[0], 0.9, silent)
    for part, measured in ((1, 200), (capacity_planning.SHORT_RUN_DIVISOR, 25)):
        short = search._shortened(part)
        total = short.workload.requests or 0
        share = float(short.measure.warmup.rstrip("%")) / 100  # type: ignore[union-attr]
        assert total - int(share * total + 1e-9) == pytest.approx(measured, abs=1)
        assert share * total / 8.0 >= 30
    assert asked(scenario()).workload.requests == 200


def test_a_deadline_is_needed_and_ctrl_c_ends_it(scenario: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ExperimentError, match="a plan needs a deadline"):
        plans(asked(scenario(), slo="none"), 0.9, silent)

    def stopped(*given_to: Any, **more: Any) -> Any:
        return replace(play(*given_to, **more), stopped=True)

    monkeypatch.setattr(capacity_planning, "play", stopped)
    with pytest.raises(KeyboardInterrupt):
        plans(asked(scenario()), 0.9, silent)


# --- what counts ---------------------------------------------------------------------------------------------------


DROPS = """from headway.fleet.model.actions import DropRequest
from headway.fleet.policies.compass.jit import Jit


class DropsSome(Jit):
    "Answers like jit, but drops the requests from one number up to another."

    name = "drops-some"

    def __init__(self, first: int = 0, last: int = 0):
        super().__init__()
        self.first, self.last = first, last

    def decide(self, now, state):
        for request in [each for each in state.requests if self.first <= each < self.last]:
            yield DropRequest(request)
        yield from super().decide(now, state)
"""


def dropping(tmp_path: Any, scenario: str, first: int, last: int, **workload: Any) -> ServingExperiment:
    """A plan's experiment under a policy that drops some requests."""
    (tmp_path / "drops.py").write_text(DROPS)
    spec = f"{tmp_path / 'drops.py'}:DropsSome(first={first}, last={last})"
    whole = asked(scenario, slo="4s", rate=8.0, **workload)
    return msgspec.structs.replace(whole, policy=msgspec.structs.replace(whole.policy, name=spec))


def test_drops_in_the_warm_up_count_against_a_plan_once_the_functions_could_have_started(
    scenario: Callable[..., str], tmp_path: Any
) -> None:
    slow = {"f": {**SCENARIO["functions"]["f"], "cold_start": "1s"}}
    path = scenario(functions=slow, fleet={"workers": [T4]})
    early = plans(dropping(tmp_path, path, 0, 8), 0.95, silent)[0]
    assert early.workers > 0
    assert early.dropped == early.dropped_at_start == 8, "arrived within the 2 s that two processes need to start"
    assert early.hit_rate > 0.99
    search = capacity_planning.Search(
        dropping(tmp_path, path, 20, 24), capacity_planning.scenario_file.load(asked(path)), *_aim(path)
    )
    row = search._run(8, 1)
    assert (row["dropped"], row["dropped_warmup"], row["dropped_at_start"]) == (4, 4, 0), "after that: 2.5 s and more"
    assert row["measured"] == pytest.approx(204, abs=1)
    assert row["slo_hit_rate"] == pytest.approx(1 - 4 / row["measured"]), "all others were in time"


def _aim(path: str) -> tuple[Any, float, Any]:
    return capacity_planning.scenario_file.load(asked(path)).fleet.workers[0], 0.99, silent


# --- prices -------------------------------------------------------------------------------------------------------


def test_the_price_of_a_kind_is_read_and_is_the_rent_of_the_fleet(scenario: Callable[..., str]) -> None:
    priced = asked(scenario(fleet={"workers": [{**T4, "hour_usd": 2.5}, OLD]}), requests=20, slo="none")
    scene = prepare(priced)
    assert [scene.built.fleet.hour_usd(worker) for worker in scene.built.fleet.workers] == [2.5] * 3 + [0.738] * 2
    result = play(scene)
    row = summarise(
        scene.built.catalogue, scene.built.fleet, scene.requests, result.tape, latency=scene.latency(), policy="jit"
    )
    assert row["cost_fleet_usd"] == pytest.approx((3 * 2.5 + 2 * 0.738) * row["makespan_s"] / 3600)
    with pytest.raises(ExperimentError, match="workers 'worker': hour_usd is -1: must be a price, at least 0"):
        prepare(asked(scenario(fleet={"workers": [{**T4, "hour_usd": -1.0}]})))


# --- the command --------------------------------------------------------------------------------------------------


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["fleet", "plan", *words])
    told = capsys.readouterr()
    return int(end.value.code or 0), told.out, told.err


def test_the_command_shows_plans_runners_up_and_why_others_are_none(
    scenario: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--rate", "8", "--policy", "jit", "--requests", "150", "--in-time", "0.9")
    status, out, err = ran(capsys, scenario(), "--slo", "400ms", *words)
    assert status == 0, err
    assert "T4 (14 GB, 1 CPU)" in out.splitlines()[1]
    assert "an hour" in out.splitlines()[-1]
    assert "note: K80 (12 GB, 2 CPUs) cannot do it: slo 400ms is below the critical path" in err
    status, out, err = ran(capsys, scenario(), "--slo", "1s", *words)
    assert "K80 instead costs" in out.splitlines()[-1]
    assert re.fullmatch(r"note: mixes of two kinds: .+\n", err)
    status, out, _ = ran(capsys, scenario(), "--slo", "400ms", *words, "--json")
    first, second = json.loads(out)
    assert list(first) == [
        *("policy", "gpu", "worker", "workers", "slo_hit_rate", "requests", "dropped", "dropped_at_start"),
        *("latency_p99_s", "gpu_utilisation", "cost_hour_usd", "cost_per_request_usd", "slo_hit_rate_one_fewer"),
        *("why_not", "slowdown_mean", "slowdown_p95", "curve"),
    ]
    assert (first["why_not"], second["workers"], second["cost_hour_usd"]) == (None, None, None)
    assert first["cost_hour_usd"] == pytest.approx(first["workers"] * 0.704)


def test_where_nothing_is_enough_one_line_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    faked(monkeypatch, lambda _, count: 0.7)
    status, out, err = ran(capsys, "translation", "--slo", "2s", "--rate", "1")
    assert (status, out) == (2, "")
    assert err.startswith("headway: no kind of worker answers 99 % in time; T4 (14 GB, 1 CPU): 70.0 % in time with ")
    assert err.count("\n") == 1
    status, _, err = ran(capsys, "mine.toml", "--slo", "2s", "--rate", "1", "--scenario", "esg")
    assert status == 2
    assert "leave --scenario esg out" in err


def test_without_slo_the_graphs_own_deadlines_hold_and_with_it_not(
    scenario: Callable[..., str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    faked(monkeypatch, lambda _, count: 1.0)
    seen: list[tuple[tuple[int, ...], ...]] = []
    real = capacity_planning._check_limits
    monkeypatch.setattr(capacity_planning, "_check_limits", lambda *given: seen.append(given[2]) or real(*given))  # type: ignore[func-returns-value]
    own = scenario(graphs={"line": {"chain": ["f", "f"], "slo": "700ms"}})
    assert ran(capsys, own, "--rate", "8")[0] == 0
    assert ran(capsys, own, "--rate", "8", "--slo", "900ms")[0] == 0
    assert seen == [((700_000_000,),), ((900_000_000,),)]
    status, _, err = ran(capsys, scenario(), "--rate", "8")
    assert (status, err.count("\n")) == (2, 1)
    assert "a plan needs a deadline for graph line: --slo is not given, and its scenario has no slo for it" in err
    for flag in ("--slo", "--policy"):
        status, _, err = ran(capsys, own, "--rate", "8", flag, "")
        assert (status, err) == (2, f"headway: {flag} is empty: give it a value, or leave it out\n")


def test_the_table_the_sentence_and_the_json_tell_what_was_dropped(
    scenario: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    (tmp_path / "drops.py").write_text(DROPS.replace("drops-some", "drops-more"))
    policy = f"{tmp_path / 'drops.py'}:DropsSome(first=21, last=24)"
    slow = {"f": {**SCENARIO["functions"]["f"], "cold_start": "1s"}}
    words = (scenario(functions=slow, fleet={"workers": [T4]}), "--rate", "8", "--slo", "4s", "--policy", policy)
    words = (*words, "--requests", "200", "--in-time", "0.9")
    status, out, _ = ran(capsys, *words)
    assert status == 0
    assert "dropped" in out.splitlines()[0]
    assert "3 of 225" in out.splitlines()[1]
    assert "% in time, 3 of 225 dropped, at $" in out.splitlines()[-1]
    (first,) = json.loads(ran(capsys, *words, "--json")[1])
    assert (first["requests"], first["dropped"]) == (225, 3)


def test_the_help_names_the_policy_that_is_used(
    scenario: Callable[..., str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []

    def answer(experiments: Any, _target: float, _report: str | None) -> Answer:
        used.extend(each.policy.name for each in experiments)
        return Answer([], ())

    monkeypatch.setattr(planning, "answer", answer)
    assert ran(capsys, scenario(), "--rate", "8", "--slo", "1s")[0] == 0
    told = " ".join(ran(capsys, "--help")[1].replace("│", " ").split())
    assert used == [ServingExperiment().policy.name]
    assert f"If left out {ServingExperiment().policy.name}." in told
    assert "fifo" not in told


def test_a_kind_in_words() -> None:
    experiment = asked("pipelines")
    fleet = capacity_planning.scenario_file.load(msgspec.structs.replace(experiment)).fleet
    assert {kind_name(worker) for worker in fleet.workers} == {
        "A100 (40 GB, 7 MIG slices, 16 CPUs)",
        "H200 (141 GB, 7 MIG slices, 24 CPUs)",
    }
    assert Plan(fleet.workers[0], 1, 1.0, None, 0.5, 3.0, None).record()["gpu"] == "A100"
