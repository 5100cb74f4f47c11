"""One size for a fleet with several types of GPU: what every worker holds, and as fast everywhere."""

import pytest

from headway.fleet.experiment.scene import prepare
from headway.fleet.model.rows import Kind
from headway.fleet.policies.central.any_worker import SameSpeed, options_everywhere
from headway.fleet.policies.central.fronts import cost_of, options_on
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.state.state import ServingState
from headway.formats import toml
from headway.runs.play import play


def scene(name: str, **workload: object) -> ServingState:
    document = {"serving": {"scenario": name}, "workload": workload, "policy": {"name": "orion-dag"}}
    return prepare(toml.typed(document, ServingExperiment, "experiment")).state()


def test_every_worker_holds_what_is_planned() -> None:
    state = scene("pipelines", requests=1)
    for function, kind in enumerate(state.catalogue.functions):
        everywhere = options_everywhere(state, function)
        assert everywhere
        for option in everywhere:
            for worker in state.workers:
                assert option.configuration in state.latency.cells(worker.id, function), kind.name
    least = [min(option.configuration.slices for option in options_everywhere(state, f)) for f in range(6)]
    assert max(least) > 1, "an eighth of an A100 is too small for some weights"


def test_in_a_fleet_of_one_type_nothing_changes() -> None:
    state = scene("esg", requests=1)
    for function in range(len(state.catalogue.functions)):
        assert options_everywhere(state, function) == options_on(state, function)
        for option in options_on(state, function)[::20]:
            assert SameSpeed().on(state, 3, function, option.configuration) == option.configuration


def test_a_faster_worker_gives_the_cheapest_that_is_as_fast() -> None:
    state = scene("pipelines", requests=1)
    kinds = [worker.worker.gpu.type for worker in state.workers]
    slow, fast = kinds.index("A100"), kinds.index("H200")
    for function in range(len(state.catalogue.functions)):
        for option in options_everywhere(state, function):
            size = option.configuration
            assert SameSpeed().on(state, slow, function, size) == size
            cells = state.latency.cells(fast, function)
            within = [
                (cost_of(cell, time, state.fleet.prices), cell)
                for cell, time in cells.items()
                if cell.batch == size.batch and time <= option.time
            ]
            assert SameSpeed().on(state, fast, function, size) == min(within)[1]


@pytest.mark.parametrize("policy", ["orion-dag", "aquatope(rounds=4)"])
def test_requests_of_pipelines_are_in_time(policy: str) -> None:
    document = {
        "serving": {"scenario": "pipelines", "start": "warm"},
        "workload": {"requests": 200, "rate": 10},
        "policy": {"name": policy},
    }
    tables = toml.typed(document, ServingExperiment, "experiment")
    result = play(prepare(tables))
    done = result.tape.rows[result.tape.column("kind") == int(Kind.DONE)]
    deadline = {request.id: request.deadline for request in prepare(tables).requests}
    hits = sum(int(row[0]) <= deadline[int(row[2])] for row in done.tolist())
    assert hits > 100
