"""The setting ``serving.controller``: how it is written, measured, stored, replayed and shown."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from unittest import mock

import pytest

from headway.cli import main as command_line
from headway.errors import ExperimentError, InputError
from headway.fleet.ask.planning import answer as plan
from headway.fleet.experiment import calibration
from headway.fleet.experiment.calibration import fitted
from headway.fleet.experiment.scene import FleetScene, prepare
from headway.fleet.model.actions import Action
from headway.fleet.model.decision_time import DecisionTime
from headway.fleet.policies.central.controller import Controller
from headway.fleet.policies.compass.hash import Hash
from headway.fleet.policies.registry import POLICIES
from headway.fleet.policies.scalers.wrapper import Autoscaled
from headway.fleet.scenarios.tables.controller import parse_controller
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.state.state import ServingState
from headway.formats import toml
from headway.runs.domain import with_table
from headway.runs.folder.folder import open_run
from headway.runs.measured import numbers
from headway.runs.play import play
from headway.runs.several import play as play_all
from headway.runs.sweep.cells import Axes
from headway.runs.sweep.pool import LocalPool
from headway.runs.sweep.sweep import sweep
from headway.units import MICROSECOND, MILLISECOND

SEARCHING = {"esg", "exact", "stagewise", "plan-once", "orion-dag", "fast-gshare", "infless", "headway"}
"""Policies that search while they decide."""


def main(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command_line(words)
    assert not end.value.code


def experiment(policy: str = "esg", requests: int = 30, **serving: object) -> ServingExperiment:
    made = with_table(ServingExperiment(), "serving", scenario="esg", setting="strict-light", **serving)
    return with_table(with_table(made, "policy", name=policy), "workload", requests=requests)


@pytest.mark.parametrize(
    ("text", "decision_time"),
    [
        ("none", None),
        ("calibrated", None),
        ("10ms", DecisionTime(10 * MILLISECOND)),
        (0.5, DecisionTime(500 * MILLISECOND)),
        ("fixed=1.2ms,state=3us", DecisionTime(1200 * MICROSECOND, 3 * MICROSECOND)),
        ("state=3us", DecisionTime(0, 3 * MICROSECOND)),
        (str(DecisionTime(123_456, 789)), DecisionTime(123_456, 789)),
    ],
)
def test_a_controller_is_written_as_a_time_or_by_its_parts(
    text: str | float, decision_time: DecisionTime | None
) -> None:
    assert parse_controller(text) == decision_time


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "controller '' is not understood: write none, calibrated, a duration like 10ms, or fixed=1.2ms,state=3us"),
        ("fast", "controller 'fast' is not understood"),
        ("0ms", "controller '0ms' must be above 0"),
        ("-1ms", "controller '-1ms' must not be negative"),
        ("ten ms", "controller 'ten ms' is not understood"),
        ("fixed=1ms,speed=2", "'speed=2' is not understood"),
        ("fixed=1ms,fixed=2ms", "'fixed=2ms' is not understood"),
        ("fixed=x", "controller fixed 'x' is not understood"),
        ("fixed=0s,state=0s", "decisions that take no time are written none"),
        ("200y", "is not understood"),
    ],
)
def test_what_is_no_controller_is_refused_in_one_line(text: str, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)) as problem:
        prepare(experiment(controller=text))
    assert "\n" not in str(problem.value)


def test_a_decision_that_outlasts_the_keep_alive_is_refused() -> None:
    with pytest.raises(ExperimentError, match="controller 30m: a process that is idle for 10m stops before a decision"):
        prepare(experiment(controller="30m"))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_policies_that_search_say_how_many_states_they_evaluated(policy: str) -> None:
    named = {"aquatope": "aquatope(initial=2,rounds=1)"}.get(policy, policy)  # its search takes seconds
    begun = play(prepare(experiment(named, 12, start="warm"))).end
    assert (begun.policy.states_evaluated > 0) == (policy in SEARCHING)


def test_a_scaler_beside_a_policy_hides_none_of_its_states() -> None:
    """Else all that a search takes would be measured as the fixed part of the decision time."""
    begun = play(prepare(experiment("esg", 12, start="warm", autoscale="queue(initial=4)"))).end
    assert isinstance(begun.policy, Autoscaled)
    assert begun.policy.states_evaluated == begun.policy.policy.states_evaluated > 0


def test_without_a_controller_the_tape_is_that_of_the_policy_alone() -> None:
    scene = prepare(experiment())
    assert not isinstance(scene.begin().policy, Controller)
    assert scene.begin().exact
    assert play(scene).tape.digest == play(prepare(experiment(controller="none"))).tape.digest


def test_a_measured_law_is_stored_in_numbers_and_replayed_on_any_machine(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    main(
        [
            "fleet",
            "simulate",
            "esg",
            "--policy",
            "plan-once",
            "--requests",
            "30",
            "--controller",
            "calibrated",
            "--out",
            str(folder),
        ]
    )
    stored = open_run(folder)
    decision_time = parse_controller(stored.scene.experiment.serving.controller)
    assert decision_time is not None
    assert decision_time.fixed > 0
    assert decision_time.state > 0
    with mock.patch.object(calibration, "thread_time_ns", side_effect=AssertionError("measured again")):
        again = open_run(folder).scene.replay(stored.tape, complete=True)
    assert again.digest == stored.tape.digest
    assert stored.scene.audit(stored.tape, complete=True) == []
    assert play(stored.scene).tape.digest == stored.tape.digest
    assert json.loads((folder / "result.json").read_bytes())["controller"] == str(decision_time)


def test_all_seeds_of_an_experiment_share_one_measurement() -> None:
    measured = [DecisionTime(2 * MILLISECOND, 5), DecisionTime(3 * MILLISECOND, 7)]
    seeds = with_table(experiment(controller="calibrated"), "measure", seeds=2)
    decision_times: list[str] = []

    def begin(scene: FleetScene, *args: object) -> object:
        decision_times.append(str(scene.experiment.serving.controller))
        return play(scene)

    with (
        mock.patch("headway.fleet.experiment.scene.calibrate", side_effect=measured),
        mock.patch("headway.runs.measured.play", side_effect=begin),
    ):
        list(play_all([("", seeds)]))
    assert decision_times == [str(measured[0])] * 2


def test_a_law_is_measured_in_cpu_time_without_what_reading_the_clock_takes() -> None:
    """A clock of CPU time that a reading moves by 300 ns and an action by 5 us; no other clock is there to read."""
    clock = [0]

    def read() -> int:
        clock[0] += 300
        return clock[0]

    class Counted(Hash):
        """A policy whose actions move the clock."""

        def decide(self, now: int, state: ServingState) -> Iterator[Action]:
            for action in super().decide(now, state):
                clock[0] += 5 * MICROSECOND
                yield action

    scene = prepare(experiment("hash", controller="none"))
    state, policy = scene.state(), Counted()
    policy.bind(state)
    with mock.patch.object(calibration, "thread_time_ns", side_effect=read):
        assert calibration.calibrate(policy, state, scene.executor(state)) == DecisionTime(5 * MICROSECOND)
    assert not {"time", "perf_counter", "perf_counter_ns", "monotonic_ns"} & set(vars(calibration))


GRID: toml.Document = {
    "scale": "fleet",
    "serving": {"scenario": "esg", "controller": "calibrated"},
    "workload": {"requests": 12},
    "measure": {"seeds": 2},
}
SLO = {"workload.slo": ["1.0L", "1.2L"], "serving.start": ["warm", "cold"]}


def decision_times_of(
    axes: Axes, folder: Path, measured: list[DecisionTime], grid: toml.Document = GRID
) -> list[tuple[object, ...]]:
    """Run a grid with measurements as given; return policy, workers if they vary, and decision time of each cell."""
    with mock.patch("headway.fleet.experiment.scene.calibrate", side_effect=measured):
        done = sweep(grid, axes, folder, LocalPool(1), note=lambda _: None)
    assert done.failed == []
    cells = [(dict(cell.values), done.store.read(cell)) for cell in done.cells]
    return [(row["row"]["policy"], of.get("serving.workers"), row["row"]["controller"]) for of, row in cells if row]


def test_all_cells_of_a_policy_in_a_sweep_share_one_measurement_that_its_folder_keeps(tmp_path: Path) -> None:
    decision_times = [DecisionTime(index * MILLISECOND, 5) for index in range(1, 6)]
    axes: Axes = {"policy.name": ["plan-once", "esg"], **SLO}
    first = decision_times_of(axes, tmp_path, decision_times[:2])
    assert len(first) == 16
    assert [
        len({decision_time for name, _, decision_time in first if name == policy}) for policy in ("plan-once", "esg")
    ] == [1, 1]
    assert {decision_time for *_, decision_time in first} == {
        str(decision_time) for decision_time in decision_times[:2]
    }
    assert decision_times_of(axes, tmp_path, []) == first, "nothing is measured when it goes on"
    longer: Axes = {"policy.name": ["plan-once", "esg", "stagewise"], **SLO}
    added = decision_times_of(longer, tmp_path, decision_times[2:3], {**GRID, "measure": {"seeds": 3}})
    assert {decision_time for name, _, decision_time in added if name != "stagewise"} == {
        str(decision_time) for decision_time in decision_times[:2]
    }
    assert {decision_time for name, _, decision_time in added if name == "stagewise"} == {str(decision_times[2])}


def test_other_fleets_of_a_sweep_are_measured_apart(tmp_path: Path) -> None:
    decision_times = [DecisionTime(MILLISECOND, 5), DecisionTime(2 * MILLISECOND, 5)]
    rows = decision_times_of(
        {"serving.workers": [8, 16], **SLO}, tmp_path, decision_times, {**GRID, "policy": {"name": "plan-once"}}
    )
    assert {(workers, decision_time) for _, workers, decision_time in rows} == {
        (8, str(decision_times[0])),
        (16, str(decision_times[1])),
    }


def test_a_cell_that_cannot_be_measured_fails_alone_and_the_next_is_measured(tmp_path: Path) -> None:
    grid = {**GRID, "policy": {"name": "plan-once"}, "workload": {"requests": 12, "arrivals": "poisson"}}
    with mock.patch("headway.fleet.experiment.scene.calibrate", side_effect=[DecisionTime(MILLISECOND)]):
        done = sweep(grid, {"workload.rate": [1e5, 5.0]}, tmp_path, LocalPool(1), note=lambda _: None)
    assert [dict(cell.values)["workload.rate"] for cell, _ in done.failed] == [1e5] * 2
    assert [row["controller"] for row in done.rows] == [str(DecisionTime(MILLISECOND))]


def test_a_law_is_measured_in_time_of_the_cpu_alone() -> None:
    """A policy that sleeps takes no time of the CPU; one that computes does."""
    scene = prepare(experiment("plan-once", 12))
    state, policy = scene.bound()
    decide = policy.decide

    def slowly(now: int, state: ServingState) -> Iterator[Action]:
        time.sleep(0.005)
        yield from decide(now, state)

    with mock.patch.object(policy, "decide", slowly), mock.patch.object(calibration, "fitted", lambda given: given):
        answers = cast(list[tuple[int, int, int]], calibration.calibrate(policy, state, scene.executor(state)))
    assert len(answers) > 12
    assert min(spent for *_, spent in answers) < 5 * MILLISECOND


def test_a_fit_finds_the_law_behind_answers_with_outliers() -> None:
    answers = [(1 + i % 3, 10 * (i % 7), 1000 * (1 + i % 3) + 25 * 10 * (i % 7)) for i in range(500)]
    assert fitted(answers) == DecisionTime(1000, 25)
    assert fitted([*answers, (1, 0, 10**9)]) == DecisionTime(1000, 25), "the machine was interrupted once"
    assert fitted([*answers, (0, 0, 500)] * 2) == DecisionTime(1000, 25), (
        "an answer without actions and states counts nowhere"
    )


def test_a_fit_has_no_part_below_0() -> None:
    assert fitted([(1, 0, 100), (1, 10, 50)]) == DecisionTime(75, 0)
    assert fitted([(2, 0, 300), (1, 0, 150)]) == DecisionTime(150, 0)
    assert fitted([(1, 100, 1000), (3, 100, 1)]).fixed >= 1
    assert fitted([]) == DecisionTime(1, 0)


def test_a_table_and_a_page_tell_of_a_controller_where_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["fleet", "simulate", "compass", "--policy", "compass", "--requests", "40", "--rate", "4"]
    control = ["--control", "central"]
    main([*base, *control, "--controller", "150ms", "--out", str(tmp_path / "slow")])
    told = capsys.readouterr()
    assert "controller" in told.out
    assert "decision wait" in told.out
    assert "stale" in told.out
    assert "overload of the controller, not of the fleet" in told.err
    main(["report", str(tmp_path / "slow"), "--out", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    assert "controller busy" in page
    assert "overload of the controller, not of the fleet" in page
    capsys.readouterr()
    main([*base, "--out", str(tmp_path / "free")])
    assert "decision wait" not in capsys.readouterr().out
    main(["report", str(tmp_path / "free"), "--out", str(tmp_path / "free.html")])
    assert "decision wait" not in (tmp_path / "free.html").read_text()


def test_a_plan_counts_what_decisions_take() -> None:
    trial = with_table(experiment("headway", 60, start="warm"), "workload", rate=20.0, overload=True, slo="2s")
    rows = [plan([with_table(trial, "serving", controller=text)], 0.9).record()[0] for text in ("none", "3ms")]
    assert rows[0]["workers"]
    assert rows[0]["latency_p99_s"] < rows[1]["latency_p99_s"]
    with mock.patch("headway.fleet.experiment.scene.calibrate", side_effect=[DecisionTime(3 * MILLISECOND)]):
        measured = plan([with_table(trial, "serving", controller="calibrated")], 0.9).record()[0]
    assert measured == rows[1], "measured once for all trials"


def test_a_controller_whose_processes_stop_before_they_are_used_ends_the_run_with_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.fleet.policies.central.controller.MOST_IDLE", 2_000)
    scene = prepare(experiment(requests=300, controller="2s", start="warm"))
    with pytest.raises(
        ExperimentError, match=r"2,001 decisions in a row moved no request, .*overload of the controller"
    ):
        play(scene, None)


def test_a_controller_is_never_busy_for_more_than_the_run() -> None:
    scene = prepare(experiment(requests=30, controller="2s", start="warm"))
    result = play(scene, None)
    assert 0.9 < numbers(result).row["controller_utilisation"] <= 1
