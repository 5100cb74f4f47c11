"""What a fleet can carry and how fast it can answer, against sums that can be done by hand."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.latency import LatencyModel
from headway.fleet.scenarios import limits as serving_limits
from headway.fleet.scenarios.file import Built, load
from headway.fleet.scenarios.limits import (
    capacity_per_second,
    cheapest_per_second,
    check_rate,
    deadlines,
    mix_of,
)
from headway.fleet.scenarios.tables.settings import ServingExperiment, ServingTable, WorkloadTable
from headway.formats import toml
from headway.units import MILLISECOND


def of(scenario: str, workload: dict[str, Any] | None = None, **keys: Any) -> ServingExperiment:
    return ServingExperiment(
        serving=ServingTable(scenario=scenario, **keys), workload=WorkloadTable(**(workload or {}))
    )


def made(workers: list[Worker], *cells: dict[Configuration, int]) -> Built:
    """A chain of functions with these cells on any GPU."""
    functions = tuple(Function(f"f{at}", (), Profile({"": each})) for at, each in enumerate(cells))
    tasks = tuple(Task(function.name, at) for at, function in enumerate(functions))
    graph = Graph("chain", tasks, tuple((at, at + 1) for at in range(len(tasks) - 1)))
    return Built(Catalogue((), functions, (graph,)), Fleet(tuple(workers)))


def test_compass_on_five_t4s_carries_what_its_times_come_to() -> None:
    built = load(of("compass"))
    busy_s = ((561 + 441 + 778 + 803 + 1) + (560 + 27) + (283 + 26 + 76 + 0.2) + (0.6 + 178 + 147 + 104)) / 4 / 1000
    assert capacity_per_second(built, mix_of(of("compass"), built)) == pytest.approx(5 / busy_s)


def test_a_batch_counts_for_all_its_requests_and_slices_run_side_by_side() -> None:
    one = {Configuration(1, 1, 1): 100 * MILLISECOND}
    four = {Configuration(4, 1, 1): 200 * MILLISECOND}
    worker = Worker("w", Gpu("gpu", 1, 7), cpus=4)
    assert capacity_per_second(made([worker], one), [1]) == pytest.approx(40), "four at once: CPUs bind before slices"
    assert capacity_per_second(made([worker], one | four), [1]) == pytest.approx(80)
    assert capacity_per_second(made([worker, worker], one, one), [1]) == pytest.approx(40)


def test_two_configurations_together_may_carry_more_than_either() -> None:
    cells = {Configuration(1, 1, 3): 100 * MILLISECOND, Configuration(1, 3, 1): 100 * MILLISECOND}
    built = made([Worker("w", Gpu("gpu", 1, 4), cpus=4)], cells)
    assert capacity_per_second(built, [1]) == pytest.approx(20)
    assert serving_limits._easily(built, {0: 1.0}) == pytest.approx(40 / 3)
    check_rate(of("x"), built, 19.9)


def test_slices_that_mig_blocks_are_not_counted() -> None:
    cells = {Configuration(1, 1, 3): 100 * MILLISECOND}
    free, mig = (Worker("w", Gpu("gpu", 1, 7, geometry), cpus=9) for geometry in ("free", "mig"))
    assert capacity_per_second(made([free], cells), [1]) == pytest.approx(70 / 3)
    assert capacity_per_second(made([mig], cells), [1]) == pytest.approx(20)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_the_sure_rate_is_never_above_the_largest(data: st.DataObject) -> None:
    cell = st.builds(Configuration, st.integers(1, 8), st.integers(1, 4), st.integers(1, 7))
    times = st.dictionaries(cell, st.integers(MILLISECOND, 1000 * MILLISECOND), min_size=1, max_size=6)
    cells = data.draw(st.lists(times, min_size=1, max_size=3))
    workers = [Worker("w", Gpu("gpu", 1, 7), cpus=data.draw(st.integers(4, 8))) for _ in range(2)]
    built = made(workers, *cells)
    most = capacity_per_second(built, [1])
    assert 0 < serving_limits._easily(built, dict.fromkeys(range(len(cells)), 1.0)) <= most * (1 + 1e-6)


def test_a_rate_that_the_fleet_cannot_carry_says_what_it_can() -> None:
    built = load(of("compass"))
    assert not check_rate(of("compass"), built, 5.0)
    with pytest.raises(ExperimentError) as wrong:
        check_rate(of("compass"), built, 60.0)
    assert str(wrong.value) == (
        "rate 60 is more than the fleet can carry: 5 workers, at most 5.02 requests a second; "
        "lower it, add workers, or set workload.overload = true if this is meant"
    )
    assert "queues grow" in check_rate(of("compass", {"overload": True}), built, 60.0)
    assert not check_rate(of("compass", {"mix": {"perception-3d": 1}}), built, 11.0)


def test_a_rate_somewhat_above_what_the_fleet_can_carry_is_played_with_a_note() -> None:
    assert check_rate(of("compass"), load(of("compass")), 6.0) == (
        "rate 6 is more than the fleet can carry: 5 workers, at most 5.02 requests a second; "
        "queues grow until the last request has come"
    )


def test_a_deadline_below_the_critical_path_says_by_how_much() -> None:
    experiment = of("compass", {"slo": "1s"})
    with pytest.raises(ExperimentError) as wrong:
        deadlines(experiment, load(experiment))
    assert str(wrong.value) == (
        "slo 1s is below the critical path: graph translation takes 1.365s at its fastest, 365ms more"
    )
    experiment = of("compass", {"slo": "0.5L"})
    with pytest.raises(ExperimentError, match=r"slo 682.5ms \(0.5L\) is below the critical path"):
        deadlines(experiment, load(experiment))


def test_only_graphs_that_are_asked_for_need_to_meet_a_deadline() -> None:
    experiment = of("compass", {"slo": "1s", "mix": {"question-answering": 1}})
    assert deadlines(experiment, load(experiment)) == ((1000 * MILLISECOND,) * 4,)


def test_deadlines_are_factors_of_the_least_configurations() -> None:
    experiment = of("esg", setting="strict-light", profile="law")
    built = load(experiment)
    latency, graphs = LatencyModel(built.catalogue, built.fleet), built.catalogue.graphs
    assert deadlines(experiment, built) == (tuple(round(0.8 * latency.critical_path(graph)) for graph in graphs),)
    assert len(graphs) == 4
    assert all(latency.fastest_path(graph) < 0.8 * latency.critical_path(graph) for graph in graphs)
    assert deadlines(of("esg", {"slo": "none"}, profile="law"), built) == ((0,) * 4,)


def test_a_mix_of_unknown_or_no_graphs_is_refused() -> None:
    built = load(of("compass"))
    assert mix_of(of("compass"), built) == (0.25,) * 4
    assert mix_of(of("compass", {"mix": {"translation": 3, "perception-3d": 1}}), built) == (0.75, 0, 0, 0.25)
    with pytest.raises(ExperimentError, match="mix: unknown graph 'translations'; did you mean 'translation'"):
        mix_of(of("compass", {"mix": {"translations": 1}}), built)
    with pytest.raises(ExperimentError, match="mix is empty"):
        mix_of(of("compass", {"mix": {"translation": 0}}), built)


def test_the_longest_way_takes_the_fastest_type_of_gpu(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    cells = {"slow": [[1, 1, 1, 9]], "fast": [[1, 1, 1, 4]]}
    workers = [{"gpu": gpu, "memory": "1GB"} for gpu in cells]
    path.write_text(
        toml.write(
            {"functions": {"f": {"cells": cells}}, "graphs": {"g": {"chain": ["f"]}}, "fleet": {"workers": workers}}
        )
    )
    built = load(of(str(path)))
    assert LatencyModel(built.catalogue, built.fleet).critical_path(built.catalogue.graphs[0]) == 4 * MILLISECOND


# --- loads ------------------------------------------------------------------------------------------------------


def test_a_load_of_one_fills_the_fleet_with_the_cheapest_configurations() -> None:
    """Two stages on two workers of 8 CPUs and 4 slices, at 0.034 and 0.67 dollars an hour.

    The first is cheapest at (4, 2, 1): 100 ms a request of 2 CPUs and a slice. The second has one configuration of 4
    CPUs and a slice, for 50 ms. A request holds 0.2 + 0.2 CPU seconds and 0.1 + 0.05 slice seconds. CPUs bind: 16 of
    them carry 40 requests a second, 8 slices would carry 53.3.
    """
    first = {Configuration(1, 1, 2): 150 * MILLISECOND, Configuration(4, 2, 1): 400 * MILLISECOND}
    second = {Configuration(1, 4, 1): 50 * MILLISECOND}
    workers = [Worker(name, Gpu("gpu", 1, 4), cpus=8) for name in "ab"]
    assert cheapest_per_second(made(workers, first, second), [1]) == pytest.approx(40)
    few_slices = [Worker(name, Gpu("gpu", 1, 2), cpus=8) for name in "ab"]
    assert cheapest_per_second(made(few_slices, first, second), [1]) == pytest.approx(4 / 0.15)
    assert cheapest_per_second(made([*workers, few_slices[0]], first, second), [1]) == pytest.approx(40 + 2 / 0.15)


def test_the_cheapest_configuration_need_not_be_the_one_that_carries_most() -> None:
    cells = {Configuration(1, 1, 1): 100 * MILLISECOND, Configuration(1, 4, 0): 400 * MILLISECOND}
    built = made([Worker("w", Gpu("gpu", 1, 1), cpus=64)], cells)
    assert cheapest_per_second(built, [1]) == pytest.approx(64 / 1.6), "4 CPUs for 400 ms cost less than a slice"
    assert capacity_per_second(built, [1]) > 40


def test_a_load_is_weighted_by_the_mix_and_never_above_the_capacity() -> None:
    for scenario in ("compass", "esg", "pipelines", "compass-slo"):
        experiment = of(scenario)
        built = load(experiment)
        mix = mix_of(experiment, built)
        assert 0 < cheapest_per_second(built, mix) <= capacity_per_second(built, mix) * (1 + 1e-9)
    built = load(of("compass"))
    assert cheapest_per_second(built, [1, 0, 0, 0]) == pytest.approx(5 / ((561 + 441 + 778 + 803 + 1) / 1000))
