"""Workers that are warmed up have run every task on its example, for each batch size, and hold nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.fleet.live.weights.device import Cpu
from headway.fleet.live.weights.memory import Memory
from headway.fleet.live.workers.messages import Loaded
from headway.fleet.live.workers.warmup import warm_up
from headway.program.pipeline import Model, Task, graph, model, task
from tests.fleet.live.driving import Start, starting
from tests.fleet.live.weights.test_memory import Fake

APP = """
from pathlib import Path
from headway.program.pipeline import graph, model, task

HERE = Path(__file__).parent

def noted(name, xs):
    with (HERE / "calls").open("a") as file:
        file.write(f"{name} {len(xs)}\\n")
    return [x + 1 for x in xs]

@model(memory="1KB")
def first():
    return "first"

@model(memory="1KB")
def second():
    return "second"

@task(models=[first], max_batch=3, example=lambda count: list(range(count)))
def grow(name, xs):
    return noted(name, xs)

@task(models=[second], max_batch=2)
def grow_again(name, xs):
    return noted(name, xs)

both = graph("both", grow >> grow_again)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers with room for one of the two models."""
    yield from starting(tmp_path / "app.py", APP, ("grow", "grow_again"), ("first", "second"))


def test_a_worker_runs_its_tasks_before_it_is_ready(start: Start, tmp_path: Path) -> None:
    worker = start(warm=True, booked_bytes=1500)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [line for line in calls if line.startswith("first")] == ["first 1", "first 2", "first 3", "first 3"]
    assert {"second 1", "second 2"} <= set(calls)
    worker.run("grow", 5, models=["first"])  # room is there again, without an eviction
    worker.expect(Loaded)
    assert worker.results() == [6]


@model
def weights() -> str:
    """Build nothing."""
    return ""


def task_of(name: str, *, batch: int = 1, models: tuple[Model, ...] = (weights,), example: Any = None) -> Task:
    """Return a task that is not run."""
    return task(name=name, models=models, max_batch=batch, example=example)(lambda *lists: list(lists[-1]))


def test_every_size_is_run_once_and_tasks_on_cpus_only_for_what_comes_behind() -> None:
    seen: list[tuple[str, int]] = []

    def call(called: Task, lists: list[list[Any]]) -> list[Any]:
        seen.append((called.name, len(lists[0])))
        return lists[0]

    plain = task(name="plain", max_batch=4, example=lambda count: [0] * count)(lambda xs: xs)
    large = task_of("large", batch=16)
    assert list(warm_up([graph("g", plain >> large), graph("again", plain >> large)], call)) == []
    assert [size for name, size in seen if name == "large"] == [1, 2, 4, 8, 16, 16, 16]
    assert {size for name, size in seen if name == "plain"} == {4}


def test_a_graph_that_cannot_be_run_is_told_and_the_others_are_warmed_up() -> None:
    def call(called: Task, lists: list[list[Any]]) -> list[Any]:
        if called.name == "broken":
            raise OSError("no disk")
        return lists[0]

    one = [0]
    graphs = [
        graph("without", task_of("bare")),
        graph("bad", task_of("broken", example=lambda count: one * count)),
        graph("good", task_of("fine", example=lambda count: one * count)),
    ]
    found = list(warm_up(graphs, call))
    assert found == [
        "graph without is not warmed up: ValueError: task bare has no example",
        "graph bad is not warmed up: OSError: no disk",
    ]


def test_what_is_held_stays_and_makes_room_for_itself() -> None:
    log: list[str] = []
    memory = Memory([Fake("a", 60, log), Fake("b", 60, log)], 100, Cpu())
    for model_ in (0, 1):
        with memory.held([model_]) as values:
            assert values == ["AB"[model_]]
            memory.make_room()
    assert log == ["load a", "evict a", "load b"]
