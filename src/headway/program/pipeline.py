"""Pipelines of a user's own models: ``@hw.model``, ``@hw.task`` and ``hw.graph``, a page of Python.

A model is a function that builds it; a task is a function from lists to a list, one item for each request of a batch; a
graph says which task follows which. Nothing is built or run here: a worker, a profiler or a simulation does that.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, overload

from headway.errors import InputError, unknown_name
from headway.program.shapes import Node, Shape, shape_of
from headway.units import parse_duration, parse_size

MOST_BATCH = 4096
MOST_CPUS = 4096
MOST_SLICES = 1024
_NAME = re.compile(r"[A-Za-z_][\w.-]*")

Run = Callable[..., list[Any]]
Example = Callable[[int], list[Any]]


@dataclass(frozen=True, eq=False)
class Model:
    """A model: the function that builds it, and its bytes where they are declared."""

    name: str
    build: Callable[[], Any]
    memory_bytes: int | None = None
    files: tuple[str, ...] | None = None
    """What its function reads: files and folders. None: nobody says, and a server builds it anew."""

    def __call__(self) -> Any:
        """Build the model."""
        return self.build()


@dataclass(frozen=True, eq=False, kw_only=True)
class Task(Node):
    """A task of graphs: its function and what that needs."""

    run: Run
    """Called with its loaded models, then one list for each predecessor; item i of each list is of request i."""
    models: tuple[Model, ...] = ()
    max_batch: int = 1
    cpus: int = 1
    slices: int = 0
    """Of a GPU; 0: it takes CPUs alone."""
    example: Example | None = None
    """Gives so many inputs, to measure and to try the task."""

    def __call__(self, *arguments: Any) -> list[Any]:
        """Call its function, with models and lists."""
        return self.run(*arguments)


@dataclass(frozen=True, eq=False)
class Graph:
    """A named graph of tasks."""

    name: str
    tasks: tuple[Task, ...]
    """Each after those whose results it needs."""
    edges: tuple[tuple[int, int], ...]
    """From position to position; those that lead to one task are in the order of its arguments."""
    slo: int = 0
    """How long a request may take, in nanoseconds; 0: no limit."""

    def predecessors(self, position: int) -> tuple[int, ...]:
        """Return the tasks whose results a task is called with, in the order of its arguments."""
        return tuple(source for source, target in self.edges if target == position)


# --- models and tasks -------------------------------------------------------------------------------------------


@overload
def model(build: Callable[[], Any], /) -> Model: ...
@overload
def model(
    *, memory: str | int | None = None, files: Sequence[str | PathLike[str]] | None = None, name: str = ""
) -> Callable[[Callable[[], Any]], Model]: ...
def model(
    build: Any = None,
    /,
    *,
    memory: str | int | None = None,
    files: Sequence[str | PathLike[str]] | None = None,
    name: str = "",
    **unknown: Any,
) -> Model | Callable[[Callable[[], Any]], Model]:
    """Make a model of the function that builds it: ``@hw.model(memory="1.7GB")``; it is loaded once a worker.

    ``memory``: the bytes of its weights, if they are not measured. ``files``: all that the function reads, so that the
    next server takes its weights from disk while these are as they were. ``name``: that of the function unless given.
    """
    _refuse_unknown("model", unknown, ("memory", "files", "name"))

    def made(build: Callable[[], Any]) -> Model:
        called = _checked_name("model", name, build)
        _check_call(f"model {called}", build, 0, "no parameters: it builds the model and returns it")
        return Model(called, build, _memory(memory, f"model {called}: memory"), _files(files, f"model {called}: files"))

    return made if build is None else made(build)


@overload
def task(run: Run, /) -> Task: ...
@overload
def task(
    *,
    models: Sequence[Model] = (),
    max_batch: int = 1,
    cpus: int = 1,
    slices: int | None = None,
    example: Example | None = None,
    name: str = "",
) -> Callable[[Run], Task]: ...
def task(
    run: Any = None,
    /,
    *,
    models: Sequence[Model] = (),
    max_batch: int = 1,
    cpus: int = 1,
    slices: int | None = None,
    example: Example | None = None,
    name: str = "",
    **unknown: Any,
) -> Task | Callable[[Run], Task]:
    """Make a task of a function from lists to a list: ``@hw.task(models=[vit], max_batch=8)``.

    The function is called with its models, then one list for each task before it; an entry task gets the requests'
    inputs. ``slices`` of a GPU: 1 with models and 0 without, unless given. ``example(n)`` returns n inputs to measure
    with.
    """
    _refuse_unknown("task", unknown, ("models", "max_batch", "cpus", "slices", "example", "name"))

    def made(run: Run) -> Task:
        called = _checked_name("task", name, run)
        where = f"task {called}"
        listed = _models(models, where)
        parameters = f"{len(listed)} for its models and at least one list" if listed else "at least one list"
        _check_call(where, run, len(listed) + 1, parameters, at_least=True)
        if example is not None and not callable(example):
            raise InputError(f"{where}: example is {example!r}: must be a function of a number that returns inputs")
        return Task(
            called,
            run=run,
            models=listed,
            max_batch=_whole(max_batch, f"{where}: max_batch", 1, MOST_BATCH),
            cpus=_whole(cpus, f"{where}: cpus", 1, MOST_CPUS),
            slices=_slices(slices, listed, where),
            example=example,
        )

    return made if run is None else made(run)


def _models(models: Sequence[Model], where: str) -> tuple[Model, ...]:
    if isinstance(models, Model):
        raise InputError(f"{where}: models is the model {models.name}: write a list, models=[{models.name}]")
    if not isinstance(models, list | tuple):
        raise InputError(f"{where}: models is {models!r:.60}: must be a list of functions with @hw.model")
    for each in models:
        if not isinstance(each, Model):
            said = getattr(each, "__name__", repr(each))
            raise InputError(f"{where}: {said:.60} in models is no model: write @hw.model above the function")
    names = [each.name for each in models]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{where}: model {twice[0]} is twice in models; name it once")
    return tuple(models)


def _slices(slices: int | None, models: Sequence[Model], where: str) -> int:
    if slices is None:
        return 1 if models else 0
    if models and slices == 0:
        raise InputError(f"{where}: slices is 0, and its models lie in GPU memory: leave slices out, or the models")
    return _whole(slices, f"{where}: slices", 0, MOST_SLICES)


# --- graphs -----------------------------------------------------------------------------------------------------


def graph(name: str, *shapes: Any, slo: str | None = None, **unknown: Any) -> Graph:
    """Make a graph of tasks: ``hw.graph("reading", caption >> {nli, speak} >> combine, slo="600ms")``.

    Of several shapes, a task that is in two of them is one task: ``hw.graph("x", a >> b >> d, a >> c >> d)``.
    """
    _refuse_unknown("graph", unknown, ("slo",))
    called = _checked_name("graph", name)
    where = f"graph {called}"
    drawn = [_drawn(each, where) for each in shapes]
    listed = _tasks(drawn, where)
    if not listed:
        raise InputError(f'{where}: has no tasks: write hw.graph("{called}", first >> second)')
    before: dict[Node, list[Node]] = {task: [] for task in listed}
    for source, target in dict.fromkeys(edge for shape in drawn for edge in shape.edges):
        before[target].append(source)
    tasks = _ordered(listed, before, where)
    places: dict[Node, int] = {task: at for at, task in enumerate(tasks)}
    edges = [
        (places[source], places[target]) for target in tasks for source in _arguments(target, before[target], where)
    ]
    return Graph(called, tasks, tuple(edges), _limit(slo, where))


def _drawn(part: Any, where: str) -> Shape:
    try:
        return shape_of(part)
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None


def _tasks(shapes: Sequence[Shape], where: str) -> tuple[Task, ...]:
    """Return the tasks of some shapes, each once; raise where two have one name."""
    tasks = dict.fromkeys(each for shape in shapes for each in shape.tasks if isinstance(each, Task))
    names: set[str] = set()
    for each in tasks:
        if each.name in names:
            raise InputError(f"{where}: two tasks are called {each.name}: give one another name, @hw.task(name=…)")
        names.add(each.name)
    return tuple(tasks)


def _ordered(tasks: Sequence[Task], before: Mapping[Node, Sequence[Node]], where: str) -> tuple[Task, ...]:
    """Return tasks so that each comes after those before it, else as written; raise for a cycle, with its tasks."""
    ordered: dict[Node, Task] = {}
    while free := [task for task in tasks if task not in ordered and all(each in ordered for each in before[task])]:
        ordered[free[0]] = free[0]
    if len(ordered) == len(tasks):
        return tuple(ordered.values())
    path: list[Node] = [next(task for task in tasks if task not in ordered)]
    while path[-1] not in path[:-1]:
        path.append(next(task for task in before[path[-1]] if task not in ordered))
    cycle = " → ".join(task.name for task in reversed(path[path.index(path[-1]) :]))
    raise InputError(f"{where}: has a cycle, {cycle}: a task may not follow itself")


def _arguments(task: Task, before: Sequence[Node], where: str) -> list[Node]:
    """Return the predecessors of a task in the order of its parameters: by name if all have their names."""
    names = [source.name for source in before]
    lists = max(1, len(names))
    models = f"{len(task.models)} for its models and " if task.models else ""
    given = f"for {', '.join(names)}" if names else "for the requests' inputs"
    wanted = f"{models}{lists} {'list' if lists == 1 else 'lists'}, {given}"
    _check_call(f"{where}, task {task.name}", task.run, len(task.models) + lists, wanted)
    signature = _signature(task.run)
    parameters = list(signature.parameters)[len(task.models) :][:lists] if signature else []
    if sorted(parameters) == sorted(names):
        return sorted(before, key=lambda source: parameters.index(source.name))
    return list(before)


def _limit(slo: str | None, where: str) -> int:
    if slo is None or slo == "":
        return 0
    if not isinstance(slo, str):
        raise InputError(f'{where}: slo is {slo!r}: write a text with its unit, slo="600ms"')
    if not (limit := parse_duration(slo, what=f"{where}: slo")):
        raise InputError(f"{where}: slo {slo!r} must be above 0; leave it out for no limit")
    return limit


# --- checks -----------------------------------------------------------------------------------------------------


def _refuse_unknown(what: str, unknown: Mapping[str, Any], valid: Sequence[str]) -> None:
    for keyword in unknown:
        raise InputError(f"hw.{what}: {unknown_name('keyword', keyword, valid)}")


def _checked_name(what: str, name: Any, function: Any = None) -> str:
    """Return the name that was given, else that of the function."""
    if function is not None and not callable(function):
        raise InputError(f"@hw.{what} stands above a function, not above {function!r:.60}; its settings have names")
    given = name or getattr(function, "__name__", "")
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        rule = "must begin with a letter, and go on with letters, digits, '.', '_' and '-'"
        raise InputError(f"{what} {given!r}: a name {rule}")
    return given


def _check_call(where: str, function: Any, count: int, wanted: str, *, at_least: bool = False) -> None:
    """Raise where a function cannot be called with so many positional arguments."""
    if (signature := _signature(function)) is None:
        return
    kinds = [each.kind for each in signature.parameters.values()]
    most = kinds.count(inspect.Parameter.POSITIONAL_ONLY) + kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if at_least and inspect.Parameter.VAR_POSITIONAL not in kinds:
        count = max(count, most)
    try:
        signature.bind(*([None] * count))
    except TypeError:
        raise InputError(f"{where}: its function has the parameters {signature}; it needs {wanted}") from None


def _signature(function: Any) -> inspect.Signature | None:
    """Return the parameters of a function; None for one of C that does not say."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _memory(memory: str | int | None, what: str) -> int | None:
    if memory is None:
        return None
    if isinstance(memory, bool) or not isinstance(memory, str | int):
        raise InputError(f'{what} is {memory!r}: write a size, memory="1.7GB"')
    size = parse_size(memory, what=what) if isinstance(memory, str) else memory
    if size < 1:
        raise InputError(f"{what} {memory!r} must be above 0; leave it out for what is measured")
    return size


def _files(files: Any, what: str) -> tuple[str, ...] | None:
    if files is None:
        return None
    if isinstance(files, str | PathLike) or not isinstance(files, list | tuple):
        raise InputError(f'{what} is {files!r:.60}: write a list, files=["weights.pt"]; [] if it reads none')
    for each in files:
        if not isinstance(each, str | PathLike) or not str(each):
            raise InputError(f"{what}: {each!r:.60} is no path of a file or folder")
    return tuple(str(each) for each in files)


def _whole(value: Any, what: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{what} is {value!r}: must be a whole number, {least} to {most:,}")
    return value
