"""A policy that searches before the load does so once, while its run is prepared; the experiment keeps the result."""

from pathlib import Path
from unittest import mock

import pytest

from headway.fleet.ask import whatif
from headway.fleet.experiment import calibration
from headway.fleet.experiment.scene import FleetScene, prepare
from headway.fleet.live.scene import live_scene
from headway.fleet.policies.aquatope import Aquatope
from headway.fleet.policies.aquatope.plans import parsed
from headway.fleet.policies.registry import build, describe
from headway.fleet.scenarios.tables.controller import parse_controller
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.runs.domain import with_table
from headway.runs.folder.folder import open_run
from headway.runs.play import play

QUICK = "aquatope(initial=4,rounds=1)"
SEARCH = "headway.fleet.policies.aquatope.policy.optimise"
SEARCHED = AssertionError("searched again")


def experiment(policy: str = QUICK, requests: int = 20, **serving: object) -> ServingExperiment:
    made = with_table(ServingExperiment(), "serving", scenario="esg", setting="strict-light", **serving)
    return with_table(with_table(made, "policy", name=policy), "workload", requests=requests)


@pytest.fixture(scope="module")
def scene() -> FleetScene:
    return prepare(experiment())


def test_the_plans_of_all_graphs_are_searched_while_the_run_is_prepared(scene: FleetScene) -> None:
    graphs = {request.graph for request in scene.requests}
    targets = {(request.graph, request.deadline - request.arrival) for request in scene.requests}
    assert set(parsed(scene.experiment.policy.plans)) == targets
    assert len(targets) == len(graphs) > 1
    with mock.patch(SEARCH, side_effect=SEARCHED):
        tape = play(scene).tape
    alone = FleetScene(with_table(scene.experiment, "policy", plans=""), scene.built, scene.requests)
    assert play(alone).tape.digest == tape.digest


def test_tables_show_the_policy_as_it_was_written_and_its_arguments_describe_it_fully(scene: FleetScene) -> None:
    assert scene.policy_name() == scene.experiment.policy.name == QUICK
    policy = scene.policy()
    assert isinstance(policy, Aquatope)
    assert policy.plans == scene.experiment.policy.plans
    assert describe(build(describe(policy))) == describe(policy)


def test_a_run_folder_keeps_the_plans_and_a_replay_searches_nothing(scene: FleetScene, tmp_path: Path) -> None:
    tape = play(scene, tmp_path / "run").tape
    with mock.patch(SEARCH, side_effect=SEARCHED):
        stored = open_run(tmp_path / "run")
        assert stored.scene.experiment.policy.plans == scene.experiment.policy.plans
        assert stored.scene.replay(stored.tape, complete=True).digest == tape.digest
        assert play(stored.scene).tape.digest == tape.digest
        unchanged = whatif.plan(stored.scene, {}).scene
        assert unchanged.experiment.policy.plans == scene.experiment.policy.plans


def test_a_change_of_deadlines_or_policy_searches_anew(scene: FleetScene) -> None:
    later = whatif.plan(scene, {"slo": "2L"}).scene
    assert set(parsed(later.experiment.policy.plans)).isdisjoint(parsed(scene.experiment.policy.plans))
    assert whatif.plan(scene, {"policy": "esg"}).scene.experiment.policy.plans == ""
    assert prepare(experiment("esg")).experiment.policy.plans == ""


def test_a_measured_decision_time_holds_nothing_of_the_search(scene: FleetScene) -> None:
    searches: list[int] = []
    law = calibration.calibrate

    def counted(*given: object) -> object:
        with mock.patch(SEARCH, side_effect=SEARCHED):
            searches.append(1)
            return law(*given)  # type: ignore[arg-type]

    with mock.patch("headway.fleet.experiment.scene.calibrate", side_effect=counted):
        timed = prepare(experiment(controller="calibrated"))
    decision_time = parse_controller(timed.experiment.serving.controller)
    assert searches == [1]
    assert decision_time is not None
    assert decision_time.state == 0
    assert timed.experiment.policy == scene.experiment.policy


def test_a_server_searches_for_the_deadlines_of_its_graphs_before_it_starts(scene: FleetScene) -> None:
    server = live_scene(experiment())
    assert server.requests == ()
    assert dict(parsed(server.experiment.policy.plans)) == dict(parsed(scene.experiment.policy.plans))
