"""Models, tasks and graphs of a user's own pipeline: what they hold, what ``>>`` means, and every misuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.errors import InputError
from headway.program.pipeline import Graph, Model, Task
from headway.units import MILLISECOND


@hw.model(memory="1.7GB")
def vit() -> str:
    """Stand in for a network."""
    return "vit"


@hw.model
def small() -> str:
    """Stand in for another."""
    return "small"


@hw.task(models=[vit, small], max_batch=8, cpus=2)
def caption(first: Any, second: Any, images: list[Any]) -> list[Any]:
    """Return what the models say."""
    return [(first, second, image) for image in images]


@hw.task
def speak(texts: list[Any]) -> list[Any]:
    """Return sounds."""
    return [f"{text}!" for text in texts]


@hw.task
def nli(texts: list[Any]) -> list[Any]:
    """Return labels."""
    return texts


@hw.task
def combine(nli: list[Any], speak: list[Any]) -> list[Any]:
    """Return both."""
    return list(zip(nli, speak, strict=True))


def single(name: str) -> Task:
    """A task of one list, with a name."""
    return hw.task(name=name)(lambda items: items)


def several(name: str) -> Task:
    """A task of any number of lists."""
    return hw.task(name=name)(lambda *lists: lists[0])


def refused(make: Callable[[], Any]) -> str:
    """The one line of an error."""
    with pytest.raises(InputError) as caught:
        make()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_models_and_tasks_hold_what_was_said_and_can_be_called() -> None:
    assert isinstance(vit, Model)
    assert (vit.name, vit.memory_bytes, vit()) == ("vit", 1_700_000_000, "vit")
    assert (small.name, small.memory_bytes) == ("small", None)
    assert hw.model(memory=1024, name="named")(lambda: 1).name == "named"
    assert vit.files is None
    assert hw.model(name="reads", files=["a.pt", Path("b")])(lambda: 1).files == ("a.pt", "b")
    assert hw.model(name="reads", files=[])(lambda: 1).files == ()
    assert isinstance(caption, Task)
    assert (caption.name, caption.models, caption.max_batch, caption.cpus) == ("caption", (vit, small), 8, 2)
    assert (caption.slices, speak.slices) == (1, 0)
    assert caption("a", "b", [1, 2]) == [("a", "b", 1), ("a", "b", 2)]
    assert (speak.models, speak.max_batch, speak.cpus, speak.example) == ((), 1, 1, None)


def test_slices_may_be_asked_for_without_models() -> None:
    assert hw.task(slices=2, name="decode")(lambda items: items).slices == 2


def names(graph: Graph) -> list[str]:
    return [f"{graph.tasks[source].name}>{graph.tasks[target].name}" for source, target in graph.edges]


def test_a_graph_has_its_tasks_edges_and_limit() -> None:
    reading = hw.graph("reading", caption >> {nli, speak} >> combine, slo="600ms")
    assert [task.name for task in reading.tasks] == ["caption", "speak", "nli", "combine"]
    assert reading.slo == 600 * MILLISECOND
    assert hw.graph("alone", speak).edges == ()
    assert hw.graph("alone", speak).slo == 0
    assert [reading.tasks[at].name for at in reading.predecessors(3)] == ["nli", "speak"]


def test_predecessors_come_by_name_or_else_as_written() -> None:
    """``combine`` names both, so that neither the order of a list nor that of definition counts."""
    for between in ({nli, speak}, [speak, nli], (nli, speak)):
        assert names(hw.graph("g", caption >> between >> combine))[-2:] == ["nli>combine", "speak>combine"]

    @hw.task
    def last(left: list[Any], right: list[Any]) -> list[Any]:
        return left + right

    assert names(hw.graph("g", caption >> [nli, speak] >> last))[-2:] == ["nli>last", "speak>last"]
    assert names(hw.graph("g", caption >> [speak, nli] >> last))[-2:] == ["speak>last", "nli>last"]
    assert names(hw.graph("g", caption >> {nli, speak} >> last))[-2:] == ["speak>last", "nli>last"]  # as defined


def test_shapes_may_begin_with_a_set_and_hold_chains() -> None:
    a, b, c, d = map(single, "abcd")
    assert names(hw.graph("g", {a, b} >> several("two"))) == ["a>two", "b>two"]
    assert names(hw.graph("g", a >> [b >> c, d])) == ["a>b", "b>c", "a>d"]
    assert names(hw.graph("g", [a >> b, c >> d])) == ["a>b", "c>d"]
    assert names(hw.graph("g", a >> (b >> c) >> d)) == ["a>b", "b>c", "c>d"]


def test_several_shapes_are_drawn_over_each_other() -> None:
    a, b, c = map(single, "abc")
    graph = hw.graph("g", a >> b >> several("d"), a >> c)
    assert names(graph) == ["a>b", "b>d", "a>c"]
    d = several("two")
    assert names(hw.graph("g", a >> b >> d, a >> c >> d, a >> b)) == ["a>b", "a>c", "b>two", "c>two"]


def test_tasks_come_after_those_that_they_need() -> None:
    a, b, c = map(single, "abc")
    graph = hw.graph("g", b >> c, a >> b)
    assert [task.name for task in graph.tasks] == ["a", "b", "c"]
    assert graph.edges == ((0, 1), (1, 2))


def test_a_cycle_and_a_task_that_is_there_twice_are_refused() -> None:
    a, b, c = map(single, "abc")
    assert refused(lambda: hw.graph("g", a >> b >> c, c >> b)) == (
        "graph g: has a cycle, b → c → b: a task may not follow itself"
    )
    twice = "task a is twice in a >> b >> a: a graph calls a task once and has no cycles"
    assert refused(lambda: hw.graph("g", a >> b >> a)).startswith(twice)
    assert refused(lambda: hw.graph("g", [a, a])).startswith("graph g: task a is twice in a >> a")
    assert refused(lambda: hw.graph("g", [single("a"), single("a")])).startswith("graph g: two tasks are called a")


def test_a_graph_without_tasks_or_with_something_else_is_refused() -> None:
    assert refused(lambda: hw.graph("g")) == 'graph g: has no tasks: write hw.graph("g", first >> second)'
    assert refused(lambda: hw.graph("g", [])).startswith("graph g: [] in a graph has no tasks")
    assert refused(lambda: hw.graph("g", refused)).startswith("graph g: function refused is no task of a graph")
    assert refused(lambda: speak >> print).startswith("builtin_function_or_method print is no task")
    assert refused(lambda: hw.graph("a b", speak)).startswith("graph 'a b': a name must begin with a letter")
    assert refused(lambda: hw.graph("g", speak, slo="soon")).startswith("graph g: slo 'soon' is not understood")
    assert refused(lambda: hw.graph("g", speak, slo="0s")).startswith("graph g: slo '0s' must be above 0")
    assert refused(lambda: hw.graph("g", speak, slo=0.6)).startswith("graph g: slo is 0.6: write a text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: hw.graph("g", speak, deadline="1s"), "hw.graph: unknown keyword 'deadline'"),
        (lambda: hw.task(modles=[vit]), "hw.task: unknown keyword 'modles'; did you mean 'models'?"),  # type: ignore[call-overload]
        (lambda: hw.model(name="m", files="a.pt")(str), "model m: files is 'a.pt': write a list"),
        (lambda: hw.model(name="m", files=[""])(str), "model m: files: '' is no path of a file or folder"),
        (lambda: hw.model(size="1GB"), "hw.model: unknown keyword 'size'"),  # type: ignore[call-overload]
    ],
)
def test_an_unknown_keyword_is_refused(make: Callable[[], Any], line: str) -> None:
    assert refused(make).startswith(line)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"max_batch": 0}, "task f: max_batch is 0: must be a whole number, 1 to 4,096"),
        ({"max_batch": 2.5}, "task f: max_batch is 2.5: must be"),
        ({"cpus": 0}, "task f: cpus is 0: must be"),
        ({"models": vit}, "task f: models is the model vit: write a list, models=[vit]"),
        ({"models": "vit"}, "task f: models is 'vit': must be a list"),
        ({"models": [print]}, "task f: print in models is no model"),
        ({"models": [vit, vit]}, "task f: model vit is twice in models"),
        ({"models": [vit], "slices": 0}, "task f: slices is 0, and its models lie in GPU memory"),
        ({"slices": -1}, "task f: slices is -1: must be"),
        ({"example": [1]}, "task f: example is [1]: must be a function"),
        ({"name": "a/b"}, "task 'a/b': a name must begin"),
    ],
)
def test_a_wrong_setting_of_a_task_is_refused(settings: dict[str, Any], line: str) -> None:
    assert refused(lambda: hw.task(**{"name": "f", **settings})(lambda *lists: lists[0])).startswith(line)


@pytest.mark.parametrize(
    ("memory", "line"),
    [
        ("1.7GX", "model m: memory '1.7GX' is not understood"),
        ("0GB", "model m: memory '0GB' must be above 0"),
        (-1, "model m: memory -1 must be above 0"),
        (True, "model m: memory is True: write a size"),
        (1.5, "model m: memory is 1.5: write a size"),
    ],
)
def test_a_wrong_memory_of_a_model_is_refused(memory: Any, line: str) -> None:
    assert refused(lambda: hw.model(memory=memory, name="m")(lambda: 1)).startswith(line)


def test_a_function_that_cannot_be_called_is_refused() -> None:
    assert refused(lambda: hw.model(name="m")(lambda path: path)) == (
        "model m: its function has the parameters (path); it needs no parameters: it builds the model and returns it"
    )
    assert refused(lambda: hw.task(name="f", models=[vit])(lambda images: images)) == (
        "task f: its function has the parameters (images); it needs 1 for its models and at least one list"
    )
    assert refused(lambda: hw.graph("g", {speak, nli} >> single("end"))) == (
        "graph g, task end: its function has the parameters (items); it needs 2 lists, for speak, nli"
    )
    assert refused(lambda: hw.graph("g", combine)).endswith("it needs 1 list, for the requests' inputs")
    assert refused(lambda: hw.task(3)).startswith("@hw.task stands above a function, not above 3")  # type: ignore[call-overload]
    assert refused(lambda: hw.task(lambda items: items)).startswith("task '<lambda>': a name must begin")
