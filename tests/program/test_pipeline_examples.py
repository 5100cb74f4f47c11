"""The pipelines that come as examples: they run end to end, with and without torch, and are as large as they say."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.fleet.scenarios.app import App, read_app
from headway.program.pipeline import Graph

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "pipeline"


def answered(graph: Graph, models: dict[str, Any], inputs: list[Any]) -> list[Any]:
    """What a graph answers to some inputs, as one batch."""
    results: list[list[Any]] = []
    for at, task in enumerate(graph.tasks):
        lists = [results[before] for before in graph.predecessors(at)] or [inputs]
        results.append(task(*(models[model.name] for model in task.models), *lists))
        assert len(results[-1]) == len(inputs)
    return results[-1]


def built(app: App) -> dict[str, Any]:
    return {model.name: model() for model in app.models}


@pytest.fixture
def one_thread() -> Any:
    """torch on one thread: tests share their CPUs."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(before)


def check_reading(app: App) -> list[dict[str, Any]]:
    (graph,) = app.graphs
    assert graph.name == "reading"
    example = graph.tasks[0].example
    assert example is not None
    answers = answered(graph, built(app), example(3))
    assert json.loads(json.dumps(answers)) == answers
    assert [sorted(answer) for answer in answers] == [["caption", "judged", "sound"]] * 3
    assert {len(answer["sound"]) for answer in answers} == {160}
    assert answered(graph, built(app), [[0.5], [1, 2.5] * 100])[0]["caption"]
    return answers


def test_the_tiny_pipeline_answers_the_same_each_time(one_thread: Any) -> None:
    app = read_app(FOLDER / "app.py")
    assert check_reading(app) == check_reading(read_app(FOLDER / "app.py"))
    for model, network in built(app).items():
        held = sum(weights.numel() * weights.element_size() for weights in network.parameters())
        declared = next(each.memory_bytes for each in app.models if each.name == model)
        assert declared is not None
        assert 0.8 * declared < held <= declared


def test_the_tiny_pipeline_works_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    check_reading(read_app(FOLDER / "app.py"))


def test_the_transformers_answer_and_have_the_bytes_that_they_declare(one_thread: Any) -> None:
    app = read_app(FOLDER / "compass.py")
    assert [graph.name for graph in app.graphs] == [
        *("translation", "question-answering", "image-to-speech", "perception-3d")
    ]
    models = built(app)
    for model in app.models:
        network = models[model.name]
        assert sum(each.numel() * each.element_size() for each in network.parameters()) == model.memory_bytes
    for graph in app.graphs:
        example = graph.tasks[0].example
        assert example is not None
        answers = answered(graph, models, example(2))
        assert json.loads(json.dumps(answers)) == answers


def test_the_transformers_have_the_stated_sizes_at_scale_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("HEADWAY_EXAMPLE_SCALE", "1")
    app = read_app(FOLDER / "compass.py")
    stated = {"opt": 5.72, "marian": 0.8, "mt5": 2, "nli": 2.14, "vit": 1.7, "tts": 2.7, "detr": 1.8, "glpn": 3.9}
    sizes = {model.name: (model.memory_bytes or 0) / 1e9 for model in app.models}
    assert sizes == pytest.approx(stated, rel=0.03)
