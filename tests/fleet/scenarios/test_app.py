"""Applications as scenarios: what a Python file with graphs means, where its times come from, and mistakes in it."""

import os
import sys
from pathlib import Path

import pytest

import headway as hw
from headway.cli import main
from headway.errors import InputError
from headway.fleet.experiment.scene import prepare
from headway.fleet.model.catalogue import Configuration
from headway.fleet.scenarios.app import batches_of, document, is_app, module_of, read_app
from headway.fleet.scenarios.file import files_of, load, written
from headway.formats import toml
from headway.units import MILLISECOND
from tests.fleet.scenarios.test_file import of, refused

APP = """
import headway as hw

@hw.model(memory="1.7GB")
def vit(): return None

@hw.model(memory="2GB")
def tts(): return None

@hw.task(models=[vit], max_batch=8)
def caption(model, images): return images

@hw.task(cpus=2, max_batch=3)
def nli(texts): return texts

@hw.task(models=[tts, vit], max_batch=4)
def speak(voice, eyes, texts): return texts

@hw.task
def combine(nli, speak): return nli

reading = hw.graph("reading", caption >> [speak, nli] >> combine, slo="600ms")
"""
PROFILE = """
name = "app"
gpu = "H200"

[models.vit]
weights = "1.6GB"
load = "100ms"

[models.tts]
weights = "1GB"
load = "50ms"

[functions.caption]
activation = "10MB"
input = "3MB"
output = "1KB"
cells = [[1, 1, 1, 20, 0.1], [8, 1, 1, 60, 0.1]]

[functions.nli]
cells = [[1, 2, 0, 3]]

[functions.speak]
cells = [[1, 1, 1, 30], [4, 1, 1, 70]]
output = "2MB"
"""


def app(folder: Path, text: str = APP, profile: str = "") -> Path:
    """An application in a file, perhaps with a profile beside it."""
    path = folder / "app.py"
    path.write_text(text)
    if profile:
        (folder / "app.profile.toml").write_text(profile)
    return path


def test_an_application_has_its_graphs_and_their_tasks_and_models(tmp_path: Path) -> None:
    found = read_app(app(tmp_path))
    assert [graph.name for graph in found.graphs] == ["reading"]
    assert [task.name for task in found.tasks] == ["caption", "speak", "nli", "combine"]
    assert [model.name for model in found.models] == ["vit", "tts"]
    assert found.path == tmp_path / "app.py"


def test_graphs_may_be_in_a_list_and_the_folder_is_searched_for_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_tasks_of_a_test.py").write_text(APP)
    text = "from own_tasks_of_a_test import *\ngraphs = [reading, hw.graph('other', nli)]\nscenario = reading\n"
    found = read_app(app(tmp_path, text))
    assert [graph.name for graph in found.graphs] == ["reading", "other"]


def test_a_module_is_an_application_unless_it_makes_its_scenario(tmp_path: Path) -> None:
    assert is_app(module_of(app(tmp_path), "app"))
    assert not is_app(module_of(app(tmp_path, APP + "\ndef scenario(experiment): return {}\n"), "app"))
    assert not is_app(module_of(app(tmp_path, "import headway as hw\nx = 1\n"), "app"))


def test_classes_of_an_application_may_be_dataclasses(tmp_path: Path) -> None:
    """They look their module up while they are made."""
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    text += "@dataclass\nclass Sound:\n    samples: list[int]\n"
    assert read_app(app(tmp_path, text + APP.replace("import headway as hw", "import headway as hw", 1))).tasks


def test_without_a_profile_times_are_a_guess_and_a_run_says_so(tmp_path: Path) -> None:
    path = app(tmp_path)
    built = load(of(path))
    cells = {each.name: dict(each.profile.on("gpu")) for each in built.catalogue.functions}
    assert cells["combine"] == {Configuration(1, 1, 0): 10 * MILLISECOND}
    assert list(cells["nli"]) == [Configuration(1, 2, 0), Configuration(2, 2, 0), Configuration(3, 2, 0)]
    assert list(cells["speak"]) == [Configuration(1, 1, 1), Configuration(2, 1, 1), Configuration(4, 1, 1)]
    assert cells["speak"][Configuration(4, 1, 1)] == round(10 * 4**0.7, 3) * MILLISECOND
    measures = f"headway profile model {path} measures them"
    assert built.notes == (f"times of tasks caption, speak, nli, combine are a guess: {measures}",)
    assert built.notes[0] in prepare(of(path)).notes


def test_a_deadline_below_a_guess_is_refused_with_what_would_measure_it(tmp_path: Path) -> None:
    path = app(tmp_path)
    path.write_text(path.read_text().replace('slo="600ms"', 'slo="15ms"'))
    with pytest.raises(InputError, match=r"slo 15ms is below the critical path.*; times of tasks .* are a guess: head"):
        prepare(of(path))


def test_the_scenario_of_an_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    built = load(of(app(tmp_path)))
    assert [(model.name, model.size_bytes) for model in built.catalogue.models] == [
        ("vit", 1_700_000_000),
        ("tts", 2_000_000_000),
    ]
    (graph,) = built.catalogue.graphs
    assert [task.name for task in graph.tasks] == ["caption", "speak", "nli", "combine"]
    assert [graph.tasks[at].name for at in graph.predecessors[3]] == ["nli", "speak"]  # as its parameters are named
    assert built.workload.slo == {"reading": "600ms"}
    workers = built.fleet.workers
    assert [(each.gpu.memory_bytes, each.gpu.slices, each.cpus, each.host) for each in workers] == [
        (16_000_000_000, 1, 6, 0)
    ] * 2
    assert [each.cpus for each in load(of(app(tmp_path), workers=4)).fleet.workers] == [3] * 4
    assert [each.cpus for each in load(of(app(tmp_path), workers=12)).fleet.workers] == [2] * 12  # what nli takes


def test_the_profile_beside_it_gives_times_sizes_and_the_link(tmp_path: Path) -> None:
    path = app(tmp_path, APP.replace('memory="2GB"', ""), PROFILE)
    built = load(of(path))
    functions = {each.name: each for each in built.catalogue.functions}
    assert functions["caption"].profile.on("H200") == {
        Configuration(1, 1, 1): 20 * MILLISECOND,
        Configuration(8, 1, 1): 60 * MILLISECOND,
    }
    assert functions["caption"].activation_bytes == 10_000_000
    assert {worker.gpu.type for worker in built.fleet.workers} == {"H200"}
    assert [model.size_bytes for model in built.catalogue.models] == [1_700_000_000, 1_000_000_000]  # declared: first
    assert built.fleet.links.host_to_gpu == 2_600_000_000 * 1000 // 150
    tasks = {task.name: task for task in built.catalogue.graphs[0].tasks}
    assert (tasks["caption"].input_bytes, tasks["caption"].output_bytes) == (3_000_000, 1000)
    assert (tasks["speak"].output_bytes, tasks["nli"].output_bytes) == (2_000_000, 0)
    assert built.notes == (f"times of task combine are a guess: headway profile model {path} measures them",)
    assert files_of(str(path)) == [path, tmp_path / "app.profile.toml"]


def test_another_profile_may_be_named(tmp_path: Path) -> None:
    path = app(tmp_path, profile=PROFILE)
    (tmp_path / "other.toml").write_text(PROFILE.replace("[[1, 2, 0, 3]]", "[[1, 2, 0, 4]]"))
    for profile, ms in (("", 3), (str(tmp_path / "other.toml"), 4)):
        functions = load(of(path, profile=profile)).catalogue.functions
        found = next(each for each in functions if each.name == "nli")
        assert found.profile.on("H200")[Configuration(1, 2, 0)] == ms * MILLISECOND


def test_a_run_of_an_application_is_replayed_without_running_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = app(tmp_path, profile=PROFILE)
    run = hw.simulate(hw.Fleet(path, rate=5, requests=50, gpu_memory="8GB", out=tmp_path / "run"))
    assert run.audit() == []
    path.write_text("raise SystemExit('an application was run')")
    (tmp_path / "app.profile.toml").unlink()
    assert written(of(tmp_path / "run" / "scenario.toml")) is not None
    again = hw.open(tmp_path / "run")
    assert again.replay() is None
    with pytest.raises(SystemExit) as ended:
        main(["whatif", str(tmp_path / "run"), "--add-workers", "1"])
    assert not ended.value.code, capsys.readouterr().err


def test_the_memory_of_each_gpu_can_be_given_for_any_scenario(tmp_path: Path) -> None:
    for scenario in (app(tmp_path), "compass"):
        for memory, factor, wanted in (("14.5GB", 1.0, 14_500_000_000), (7_000_000_000, 2.0, 14_000_000_000)):
            built = load(of(scenario, gpu_memory=memory, memory=factor))
            assert {worker.gpu.memory_bytes for worker in built.fleet.workers} == {wanted}
    assert refused(of(app(tmp_path), gpu_memory="1GB")).startswith("model vit of 1.7 GB is larger than every GPU")
    assert refused(of("compass", gpu_memory="0GB")) == "gpu_memory '0GB' must be above 0"
    assert refused(of("compass", gpu_memory="much")).startswith("gpu_memory 'much' is not understood")


def test_a_plan_says_that_times_are_a_guess(tmp_path: Path) -> None:
    answer = hw.plan(app(tmp_path), rate=5, requests=50)
    assert answer.record()[0]["workers"] == 1
    assert [note for note in answer.notes if "are a guess: headway profile model" in note]


@pytest.mark.parametrize(("most", "batches"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_batches_are_powers_of_two_up_to_the_largest(most: int, batches: list[int]) -> None:
    assert batches_of(hw.task(name="f", max_batch=most)(lambda items: items)) == batches


def test_a_document_reads_back_equal(tmp_path: Path) -> None:
    made = document(read_app(app(tmp_path)))
    assert toml.loads(toml.write(made)) == made


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import not_there_at_all", "cannot be loaded (ModuleNotFoundError: No module named 'not_there_at_all')"),
        ("def x(:", "cannot be loaded (SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "cannot be loaded (SystemExit: 3)"),
        ("\n\nx = not_a_name", "cannot be loaded (NameError: name 'not_a_name' is not defined), line 3 of "),
        (APP.replace("reading =", "hw.graph('a', nli >> nli)\n#"), "task nli is twice in nli >> nli"),
        (APP.partition("reading =")[0], "has no graph in a variable: write one, reading = hw.graph("),
        (APP + "\nother = hw.graph('reading', nli)\n", "two graphs are called reading: give one another name"),
        (
            APP + "\nother = hw.graph('other', hw.task(name='nli')(lambda items: items))\n",
            "two tasks are called nli: give one another name, @hw.task(name=…)",
        ),
        (
            APP + "\n@hw.task(models=[hw.model(name='vit')(print)])\ndef more(model, items): return items\n"
            "other = hw.graph('other', more)\n",
            "two models are called vit: give one another name, @hw.model(name=…)",
        ),
    ],
)
def test_a_file_that_is_no_application_is_refused_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = app(tmp_path, text)
    with pytest.raises(InputError) as wrong:
        read_app(path)
    assert str(wrong.value).startswith(f"app {path}: {line}")
    assert "\n" not in str(wrong.value)
    assert line in refused(of(path))


def test_a_model_of_unknown_size_and_a_file_without_anything_are_refused(tmp_path: Path) -> None:
    path = app(tmp_path, APP.replace('memory="2GB"', ""))
    assert refused(of(path)).startswith(f"scenario {path}, model tts: its size is not known: write it, @hw.model(")
    assert refused(of(app(tmp_path, "x = 1"))).endswith(" or a Built, or graphs: reading = hw.graph(…)")
    with pytest.raises(InputError, match="there is no such file"):
        read_app(tmp_path / "nothing.py")
    broken = app(tmp_path, profile=PROFILE.replace('weights = "1GB"', 'weights = ""'))
    assert refused(of(broken)).endswith("model tts: weights is empty: write a size like 1.7GB")
    broken = app(tmp_path, profile=PROFILE.replace('weights = "1GB"', 'size = "1GB"'))
    assert "model tts: unknown table or key 'size'" in refused(of(broken))
