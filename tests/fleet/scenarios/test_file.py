"""Scenarios: the shipped ones are the papers', one's own are read as the page says, and mistakes are one line."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway.errors import ExperimentError, InputError, ProfileError
from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.latency import LatencyModel
from headway.fleet.scenarios import file as scenario_file
from headway.fleet.scenarios.file import FOLDER, SHIPPED, Built, load, profile_paths, written
from headway.fleet.scenarios.tables.scenario import ScenarioTable, shared_out
from headway.fleet.scenarios.tables.settings import ServingExperiment, ServingTable
from headway.formats import toml
from headway.units import MILLISECOND, SECOND
from tests.docs.pages import blocks, read

PAGE = read("docs/reference/scenarios.md")
SMALL: dict[str, Any] = {
    "models": {"a": "1GB", "b": "2GB"},
    "functions": {"f": {"models": ["a"], "ms": 10}, "g": {"models": ["a", "b"], "ms": 20}},
    "graphs": {"line": {"chain": ["f", "g"], "output": "1KB"}, "alone": {"chain": ["g"]}},
    "fleet": {"workers": [{"count": 2, "gpu": "T4", "memory": "14GB"}]},
    "workload": {"rate": 1},
}


def of(scenario: str | Path, **keys: Any) -> ServingExperiment:
    return ServingExperiment(serving=ServingTable(scenario=str(scenario), **keys))


def small(folder: Path, *changes: tuple[str, Any]) -> Path:
    """The small scenario in a file, some dotted keys of it changed."""
    document = msgspec.convert(msgspec.to_builtins(SMALL), dict[str, Any])
    for key, value in changes:
        toml.put(document, key, value)
    path = folder / "small.toml"
    path.write_text(toml.write(document))
    return path


def refused(experiment: ServingExperiment) -> str:
    with pytest.raises(InputError) as wrong:
        load(experiment)
    assert "\n" not in str(wrong.value)
    return str(wrong.value)


# --- those that ship ----------------------------------------------------------------------------------------------


def test_every_shipped_file_is_a_scenario_by_name_or_a_profile() -> None:
    graphs = {
        path.stem for path in FOLDER.glob("*.toml") if {"graphs", "base"} & tomllib.loads(path.read_text()).keys()
    }
    assert graphs == set(SHIPPED)
    for name in SHIPPED:
        assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize("fidelity", ["true", "authors"])
def test_the_compass_graphs_have_the_lower_bounds_of_the_paper(fidelity: str) -> None:
    built = load(of("compass", fidelity=fidelity))
    latency = LatencyModel(built.catalogue, built.fleet)
    bounds = {graph.name: latency.critical_path(graph) / MILLISECOND for graph in built.catalogue.graphs}
    assert bounds == {"translation": 1365, "question-answering": 587, "image-to-speech": 359.2, "perception-3d": 282.6}


def test_compass_has_eight_shared_models_or_ten_unshared_ones() -> None:
    shared, unshared = load(of("compass")), load(of("compass", fidelity="authors"))
    assert sorted(model.size_bytes / 1e9 for model in shared.catalogue.models) == [
        0.8,
        1.7,
        1.8,
        2,
        2.14,
        2.7,
        3.9,
        5.72,
    ]
    assert len(unshared.catalogue.models) == 10
    assert sum(model.size_bytes for model in unshared.catalogue.models) == 28_620_000_000
    assert (shared.fleet.links.write_back, unshared.fleet.links.write_back) == (False, True)
    both = {"translation/opt", "question-answering/opt"}
    assert both <= {model.name for model in unshared.catalogue.models}
    for built in (shared, unshared):
        first, second = (built.catalogue.functions[task.function] for task in built.catalogue.graphs[0].tasks[2:4])
        assert first.models == second.models, "both uses of mT5 are of one model"


def test_compass_runs_on_five_t4s_and_as_many_workers_as_are_asked_for() -> None:
    built = load(of("compass"))
    worker, links = built.fleet.workers[0], built.fleet.links
    assert (len(built.fleet.workers), worker.gpu.memory_bytes, worker.gpu.slices) == (5, 14 * 10**9, 1)
    assert (links.host_to_gpu, links.within_rack, links.latency) == (10_170_000_000, 12 << 30, 2_000)
    assert (built.workload.rate, built.workload.requests, built.central) == (2, 1000, None)
    assert len(load(of("compass", workers=240)).fleet.workers) == 240


def test_esg_has_the_papers_functions_settings_and_workers() -> None:
    built = load(of("esg", setting="strict-light", profile="law"))
    assert [len(function.profile.on("gpu")) for function in built.catalogue.functions] == [224] * 6
    assert all(function.profile.spread == 0.05 and function.cold_start for function in built.catalogue.functions)
    lengths = [LatencyModel(built.catalogue, built.fleet).critical_path(graph) for graph in built.catalogue.graphs]
    assert [length // MILLISECOND for length in lengths] == [526, 1233, 1452, 1892]
    assert set(built.workload.slo.values()) == {"0.8L"}
    assert built.workload.arrivals == "uniform:40ms,67.2ms"
    assert built.central is True
    worker = built.fleet.workers[15]
    assert (worker.cpus, worker.gpu.slices, worker.gpu.geometry) == (16, 7, "free")
    assert (built.fleet.prices.cpu_hour, built.fleet.prices.slice_hour) == (0.034, 0.67)


def test_the_compass_graphs_with_deadlines_keep_their_forks_and_joins() -> None:
    plain, timed = load(of("compass")), load(of("compass-slo", setting="relaxed-heavy"))
    assert [graph.edges for graph in timed.catalogue.graphs] == [graph.edges for graph in plain.catalogue.graphs]
    assert all(len(function.profile.on("T4x7")) == 224 for function in timed.catalogue.functions)
    assert set(timed.workload.slo.values()) == {"1.2L"}


def test_pipelines_offer_only_what_mig_has() -> None:
    built = load(of("pipelines"))
    assert built.central is False
    assert {worker.gpu.type for worker in built.fleet.workers} == {"A100", "H200"}
    assert all(model.size_bytes for model in built.catalogue.models)
    offered = {
        function.name: {cell.slices for cell in function.profile.on("A100") if cell.batch == 1}
        for function in built.catalogue.functions
    }
    assert offered["segmentation"] == {1, 2, 3, 4, 7}
    assert offered["super-resolution"] == {2, 3, 4, 7}, "7 GB do not fit into an eighth of 40 GB"
    assert offered["background-removal"] == {3, 4, 7}, "12 GB do not fit into a quarter"
    largest = built.catalogue.functions[0].profile.on("H200")
    assert {cell.slices for cell in largest} == {1, 2, 3, 4, 7}
    assert sum(model.size_bytes for model in built.catalogue.models) > 40 * 10**9
    assert {worker.host for worker in built.fleet.workers} == {0, 1, 2, 3}
    assert {worker.rack for worker in built.fleet.workers} == {0, 1}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_scenario_written_out_is_the_same_scenario(name: str, tmp_path: Path) -> None:
    text = written(of(name))
    assert text is not None
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    assert load(of(path)) == load(of(name))


# --- one's own ------------------------------------------------------------------------------------------------------


def test_the_scenario_on_the_page_is_built_as_its_comments_say(tmp_path: Path) -> None:
    text = next(block.text for block in blocks(PAGE, "toml") if "[graphs.ask]" in block.text)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    built = load(of(path, setting="rush"))
    assert (len(built.fleet.workers), built.central, built.preloaded) == (10, False, True)
    assert built.workload.rate == 25
    assert built.workload.slo == {"ask": "2L", "caption": "2L"}
    assert load(of(path)).workload.slo == {"ask": "1.5s", "caption": "1.2L"}
    look, answer, find = built.catalogue.functions
    assert (find.on_cpus, find.models, min(find.profile.on("A100"))) == (True, (), Configuration(1, 2, 0))
    assert built.interference == {(0, 1): 1_150_000}
    assert (look.profile.spread, look.cold_start, look.activation_bytes) == (0.03, 2 * SECOND, 200_000_000)
    assert look.profile.on("H200")[Configuration(1, 1, 1)] == 140 * MILLISECOND
    assert {cell.slices for cell in answer.profile.on("A100")} == {2}, "5.5 GB do not fit into an eighth of 40 GB"
    assert len(answer.profile.on("H200")) == 4
    assert len(load(of(path, fidelity="authors")).catalogue.models) == 4


def test_every_key_of_a_scenario_stands_on_the_page() -> None:
    from headway.fleet.scenarios.tables import classes, profile as serving_profile, scenario as scenario_tables

    text = "\n".join(block.text for block in blocks(PAGE))
    kinds = [kind for module in (scenario_tables, serving_profile, classes) for kind in vars(module).values()]
    structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    assert ScenarioTable in structs
    keys = {key for kind in structs if kind is not msgspec.Struct for key in kind.__struct_fields__}
    written = ("{} =", "[{}", ".{}]", ".{}.")
    assert {key for key in keys if not any(how.format(key) in text for how in written)} == set()


def test_the_python_file_on_the_page_is_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(blocks(PAGE, "python")[0].text)
    built = load(of(path, workers=8))
    assert len(built.fleet.workers) == 8
    assert len(built.catalogue.graphs[0].tasks) == 5
    assert len(built.catalogue.functions[0].profile.on("A100")) == 224


def test_a_python_file_may_make_everything_itself(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from headway.fleet.scenarios import file as scenario_file\n"
        "from headway.fleet.scenarios.tables.settings import ServingExperiment, ServingTable\n"
        "def scenario(experiment):\n"
        "    return scenario_file.load(ServingExperiment(serving=ServingTable(scenario='esg')))\n"
    )
    assert isinstance(load(of(path)), Built)
    assert refused(of(path, setting="x")) == f"setting 'x': {path} makes its catalogue itself"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("x = 1", "needs a function scenario(experiment) that returns a dictionary or a Built"),
        ("def scenario(experiment): return 3", "needs a function scenario(experiment) that returns"),
        ("def scenario(experiment): return {}[1]", "cannot be loaded (KeyError: 1)"),
        ("import no_such_module", "cannot be loaded (ModuleNotFoundError"),
        ("def scenario(", "cannot be loaded (SyntaxError"),
    ],
)
def test_a_broken_python_file_is_one_line(tmp_path: Path, text: str, rule: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert rule in refused(of(path))


def test_a_base_is_changed_key_by_key(tmp_path: Path) -> None:
    small(tmp_path)
    path = tmp_path / "more.toml"
    path.write_text('base = "small.toml"\n[functions.f]\nms = 5\n[workload]\nrequests = 7\n')
    built = load(of(path))
    assert (built.workload.rate, built.workload.requests) == (1, 7)
    assert built.catalogue.functions[0].profile.on("T4") == {Configuration(1, 1, 1): 5 * MILLISECOND}
    assert built.catalogue.functions[1].profile.on("T4") == {Configuration(1, 1, 1): 20 * MILLISECOND}


def test_a_scenario_that_is_its_own_base_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('base = "a.toml"')
    assert refused(of(path)).endswith("is its own base")


# --- profiles ---------------------------------------------------------------------------------------------------


def profile(folder: Path, names: str = "fg", gpu: str = "T4", weights: str = "") -> Path:
    path = folder / "measured.toml"
    rows = "cells = [[1, 1, 1, 3, 0.1], [2, 1, 1, 4, 0.3]]\ncold_start = 2\nactivation = 5\n" + weights
    text = "\n".join(f"[functions.{name}]\n{rows}" for name in names)
    path.write_text(f'gpu = "{gpu}"\nhost_to_gpu = "1GB"\n{text}')
    return path


def test_a_measured_profile_replaces_times_and_what_else_it_says(tmp_path: Path) -> None:
    scenario = small(tmp_path)
    path = profile(tmp_path)
    built = load(of(scenario, profile=str(path)))
    function = built.catalogue.functions[0]
    assert function.profile.on("T4") == {
        Configuration(1, 1, 1): 3 * MILLISECOND,
        Configuration(2, 1, 1): 4 * MILLISECOND,
    }
    assert (function.profile.spread, function.cold_start, function.activation_bytes) == (0.2, 2 * SECOND, 5)
    assert built.fleet.links.host_to_gpu == 10**9
    assert built.catalogue.models[0].size_bytes == 10**9
    assert profile_paths(of(scenario, profile=str(path))) == (path,)


def test_a_scenario_may_use_its_measured_profile_by_default(tmp_path: Path) -> None:
    profile(tmp_path)
    scenario = small(tmp_path, ("measured", "measured.toml"), ("profile", "measured"))
    assert load(of(scenario)).catalogue.functions[0].profile.spread == 0.2
    assert load(of(scenario, profile=str(tmp_path / "measured.toml"))) == load(of(scenario, profile="measured"))
    small(tmp_path, ("measured", "measured.toml"), ("profile", "measured"), ("law", {"slices": [1], "cpus": 1}))
    assert len(load(of(scenario, profile="law")).catalogue.functions[0].profile.on("T4")) == 4


def test_measured_weights_are_those_of_the_functions_model(tmp_path: Path) -> None:
    path = profile(tmp_path, weights="weights = 77")
    alone = small(tmp_path, ("functions.g.models", []), ("functions.f.models", ["b"]))
    built = load(of(alone, profile=str(path)))
    assert {model.name: model.size_bytes for model in built.catalogue.models} == {"b": 77, "g": 77}
    scenario = small(tmp_path)
    assert "has 2 models, so its measured weights belong to none of them" in refused(of(scenario, profile=str(path)))


def test_a_profile_that_does_not_fit_the_scenario_is_one_line(tmp_path: Path) -> None:
    scenario = small(tmp_path)
    path = profile(tmp_path, "f")
    assert refused(of(scenario, profile=str(path))) == (
        f"profile {path}: has no function 'g', which scenario {scenario} calls"
    )
    path = profile(tmp_path, gpu="H200")
    assert "function f: no cells for GPU T4" in refused(of(scenario, profile=str(path)))
    assert "no measured profile belongs to it" in refused(of(scenario, profile="measured"))
    assert refused(of(scenario, profile="law")).endswith("has no law; its functions take what it says")
    assert refused(of(scenario, profile="mesured")).startswith("unknown profile 'mesured'; did you mean 'measured'?")
    assert "there is no such file" in refused(of(scenario, profile="none.toml"))


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        (
            "graphs.line",
            {"tasks": [{"function": "f", "after": ["g"]}, {"function": "g", "after": ["f"]}]},
            "graph line: has a cycle, ",
        ),
        ("graphs.line", {"tasks": [{"function": "f", "after": ["f"]}]}, "graph line: has a cycle, f → f"),
        ("graphs.line", {"tasks": [{"function": "f", "after": ["x"]}]}, "graph line, task f: unknown task 'x'"),
        ("graphs.line", {"tasks": [{"function": "f"}, {"function": "f"}]}, "two tasks are called 'f'"),
        ("graphs.line", {}, "graph line: needs tasks or a chain, one of them"),
        ("graphs.line.chain", ["f", "gg"], "graph line: unknown function 'gg'; did you mean 'g'?"),
        ("graphs", {}, "has no graphs"),
        ("functions.f.models", ["aa"], "function f: unknown model 'aa'; did you mean 'a'? (valid: a, b)"),
        ("functions.f.ms", 0, "function f: takes 0 ms: must be above 0"),
        ("functions.f.ms", -1.5, "function f: takes -1.5 ms: must be above 0"),
        ("functions.f.cells", [[1, 1, 1, 5]], "function f: needs ms or cells, one of them"),
        ("functions.f", {}, "function f: needs ms or cells, one of them"),
        ("functions.f", {"cells": [[1, 1, 1, 5], [2, 2, 1, 5]]}, "function f: 2 cells are missing from the grid"),
        ("functions.f", {"cells": {"A100": [[1, 1, 1, 5]]}}, "no profile for GPU 'T4'"),
        (
            "functions.f",
            {"cells": [[1, 2, 1, 5]]},
            "none of its 1 cell can run on GPU T4 with 1 slice (free), 1 CPU and 14 GB",
        ),
        ("functions.f.modls", [], "function f: unknown table or key 'modls'; did you mean 'models'?"),
        ("models.b", "15GB", "model b of 15 GB is larger than every GPU; the largest, T4, has 14 GB"),
        (
            "models.b",
            "13.5GB",
            "function g needs 14.5 GB of GPU memory for its models and one request; GPU T4 has 14 GB",
        ),
        ("models.b", "big", "model b 'big' is not understood"),
        ("fleet.workers", [], "the fleet has no workers"),
        ("fleet.workers", [{"memory": "1GB", "geometry": "grid"}], "unknown geometry 'grid'"),
        ("fleet.workers", [{"memory": "1GB", "geometry": "mig", "slices": 3}], "slices is 3: a GPU with MIG has 7"),
        ("fleet.workers", [{"memory": "1GB", "count": 0}], "count 0 must lie in 1 to"),
        ("law", {"gpus": {"T5": 0.5}}, "law: unknown type of GPU 'T5'; did you mean 'T4'? (valid: T4)"),
        ("fleet.workers", [{"memory": "0"}], "workers 'worker': memory '0' must be above 0"),
        ("fleet.workers", [{"memory": "1GB", "cpus": 0}], "cpus 0 must lie in 1 to 4,096"),
        ("fleet.control", "both", "unknown control 'both'"),
        ("fleet.links", {"host_to_gpu": "0"}, "host_to_gpu '0' must be above 0"),
        ("fleet.prices", {"cpu_hour": -1}, "cpu_hour is -1: must be a price, at least 0"),
        ("workload.rate", -1, "workload: rate -1: must be above 0"),
        ("workload.mix", {"lin": 1}, "mix: unknown graph 'lin'; did you mean 'line'?"),
        ("workload.mix", {"line": 0}, "workload: mix is empty"),
        ("workload.requests", 0, "workload: requests 0 must lie in 1 to"),
        ("workload.slo", "fast", "slo 'fast' is not understood"),
        ("interference", [{"function": "x", "beside": "f", "slower": 1}], "interference: unknown function 'x'"),
        ("interference", [{"function": "f", "beside": "f", "slower": 0}], "slower is 0: must be at least 1"),
        ("interference", [{"function": "f", "beside": "f", "slower": 0.5}], "slower is 0.5: must be at least 1"),
        ("settings.x", {"rat": 3}, "setting x: unknown table or key 'rat'; did you mean 'rate'?"),
        ("flet", {}, "unknown table or key 'flet'; did you mean 'fleet'?"),
    ],
)
def test_a_mistake_in_a_scenario_is_one_line_that_names_it(tmp_path: Path, key: str, value: Any, line: str) -> None:
    assert line in refused(of(small(tmp_path, (key, value))))


def test_a_cycle_names_its_file_its_graph_and_its_tasks(tmp_path: Path) -> None:
    tasks = [{"function": "f", "name": "a", "after": ["b"]}, {"function": "f", "name": "b", "after": ["a"]}]
    path = small(tmp_path, ("graphs.line", {"tasks": tasks}))
    assert refused(of(path)) == f"scenario {path}, graph line: has a cycle, a → b → a"


def test_unknown_scenarios_and_settings_are_one_line(tmp_path: Path) -> None:
    assert refused(of("compas")).startswith("unknown scenario 'compas'; did you mean 'compass'?")
    assert "there is no such file" in refused(of(tmp_path / "none.toml"))
    assert "there is no such file" in refused(of(tmp_path / "none.py"))
    assert refused(of("esg", setting="strict")).startswith("unknown setting 'strict'; did you mean 'strict-light'?")
    assert refused(of("compass", setting="x")) == "unknown setting 'x' (valid: none)"


def test_errors_are_of_the_kind_that_they_are_about(tmp_path: Path) -> None:
    with pytest.raises(ProfileError):
        load(of(small(tmp_path, ("functions.f.ms", 0))))
    with pytest.raises(ExperimentError):
        load(of(small(tmp_path, ("graphs", {}))))


@pytest.mark.parametrize(
    ("wanted", "counts", "found"), [(5, [1], [5]), (20, [12, 4], [15, 5]), (3, [1, 1], [2, 1]), (1, [1, 3], [0, 1])]
)
def test_workers_are_shared_out_in_the_scenarios_proportions(wanted: int, counts: list[int], found: list[int]) -> None:
    assert shared_out(wanted, counts) == found


def test_a_path_keeps_its_own_name_although_a_scenario_is_called_like_it(tmp_path: Path) -> None:
    path = tmp_path / "compass.toml"
    path.write_text(toml.write(SMALL))
    assert scenario_file.path_of(str(path)) == path
    assert len(load(of(path)).catalogue.graphs) == 2
