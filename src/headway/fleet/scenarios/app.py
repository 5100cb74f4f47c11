"""Applications: a user's Python file with models, tasks and graphs, and the scenario that it is to a simulation.

Tasks become functions of the same name. Their times are those of the profile beside the file, ``app.profile.toml``, or
a first guess; ``headway profile model app.py`` measures them.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from headway.errors import ExperimentError, InputError, ProfileError
from headway.fleet.model.fleet import FIXED, WHOLE
from headway.fleet.scenarios.tables.settings import ServingTable, parse_slices
from headway.formats import toml
from headway.plugins import imported
from headway.program.pipeline import Graph, Model, Task
from headway.units import exact_duration

PROFILE_SUFFIX = ".profile.toml"
WORKERS = 2
GPU_MEMORY = "16GB"
ONE_MACHINE = {"latency": 0, **dict.fromkeys(("within_host", "within_rack", "between_racks"), 1 << 60)}
"""Links between workers of one machine: they read each other's results from shared memory, which takes no time."""
RATE_PER_SECOND = 2.0
REQUESTS = 1000
GUESSED_MS, GUESSED_POWER = 10.0, 0.7
"""The first guess of a task's time: so many milliseconds, times its batch over its part of a GPU to this power."""

NamedT = TypeVar("NamedT", Model, Task)


@dataclass(frozen=True, eq=False)
class App:
    """The graphs of a user's file, and the tasks and models in them, each in the order in which graphs name them."""

    path: Path
    graphs: tuple[Graph, ...]
    tasks: tuple[Task, ...]
    models: tuple[Model, ...]


def read_app(path: Path) -> App:
    """Return the application in a Python file, which is run; its folder is searched for what it imports."""
    where = f"app {path}"
    return app_of(module_of(path, where), path)


def module_of(path: Path, where: str) -> ModuleType:
    """Return a user's Python file as a module; every error names the file."""
    folder = str(path.expanduser().resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # behind all others, and for good: a task may import when it runs
    try:
        module: ModuleType = imported(path.expanduser(), "app", where)
    except InputError as problem:
        raise _named(problem, where) from problem.__cause__
    return module


def _named(problem: InputError, where: str) -> InputError:
    """Return an error of a file with its name in front."""
    return problem if str(problem).startswith(where) else type(problem)(f"{where}: {problem}")


def is_app(module: ModuleType) -> bool:
    """Return whether a module is an application: it holds a graph, a task or a model, and makes no scenario itself."""
    own = getattr(module, "scenario", None)
    is_scenario = callable(own) and not isinstance(own, Model | Task)
    return not is_scenario and next(_parts(module, Graph | Task | Model), None) is not None


def app_of(module: ModuleType, path: Path) -> App:
    """Return the application that a module is."""
    where = f"app {path}"
    graphs = tuple(dict.fromkeys(_parts(module, Graph)))
    if not graphs:
        raise ExperimentError(
            f'{where}: has no graph in a variable: write one, reading = hw.graph("reading", caption >> speak)'
        )
    names = [graph.name for graph in graphs]
    for name in names:
        if names.count(name) > 1:
            raise ExperimentError(f"{where}: two graphs are called {name}: give one another name")
    tasks = _different((task for graph in graphs for task in graph.tasks), "task", where)
    models = _different((model for task in tasks for model in task.models), "model", where)
    return App(path, graphs, tasks, models)


def _parts(module: ModuleType, kind: Any) -> Iterator[Any]:
    """Yield the objects of some kinds that a module holds: in variables of its own, or in lists and tables of these."""
    for value in list(vars(module).values()):
        inside = (
            value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else (value,)
        )
        yield from (each for each in inside if isinstance(each, kind))


def _different(parts: Iterable[NamedT], what: str, where: str) -> tuple[NamedT, ...]:
    """Return the parts, each once; raise where two have one name."""
    found: dict[str, NamedT] = {}
    for part in parts:
        if found.setdefault(part.name, part) is not part:
            rule = f"give one another name, @hw.{what}(name=…)"
            raise ExperimentError(f"{where}: two {what}s are called {part.name}: {rule}")
    return tuple(found.values())


# --- the scenario of an application -----------------------------------------------------------------------------


def profile_beside(path: Path) -> Path:
    """Return where the measured profile of an application is, or would be."""
    return path.with_suffix(PROFILE_SUFFIX)


def batches_of(task: Task) -> list[int]:
    """Return the batch sizes of a task that are measured: powers of two, and its largest."""
    return [*(1 << power for power in range((task.max_batch - 1).bit_length())), task.max_batch]


def document(app: App, profile: Path | None = None, serving: ServingTable | None = None) -> toml.Document:
    """Return the scenario tables of an application, whose workers are on this machine.

    ``profile``: its measured profile, in its own folder. ``serving`` says how many workers there are, and their shares.
    """
    given = serving or ServingTable()
    used = Path(given.profile) if given.profile.endswith(".toml") else profile
    about = toml.read(used, "profile") if used is not None and used.is_file() else {}
    shares = _shares(app, used, bool(about.get("shares", False)), given)
    links = {**ONE_MACHINE, **({"shared": True} if given.devices and about.get("gpu") else {})}
    shared = {"devices": given.devices, "shared_cpus": given.shared_cpus}
    measured = {"measured": [profile.name], "profile": "measured"} if profile is not None else {}
    return {
        "about": f"Application {app.path.name}",
        **measured,
        "models": {model.name: "" if model.memory_bytes is None else model.memory_bytes for model in app.models},
        "functions": {task.name: _function(task, app.path, shares) for task in app.tasks},
        "graphs": {graph.name: _graph(graph) for graph in app.graphs},
        "fleet": {"workers": _workers(app, given.workers, shares), **shared, "links": links},
        "workload": {"arrivals": "poisson", "rate": RATE_PER_SECOND, "requests": REQUESTS},
    }


def _shares(app: App, profile: Path | None, by_share: bool, serving: ServingTable) -> tuple[int, ...]:
    """Return the shares of a GPU that workers have, in sevenths; none where tasks take a whole one, however many.

    ``by_share``: whether the times of the profile are.
    """
    asked = parse_slices(serving.slices)
    if asked and profile is not None and not by_share:
        remedy = f"headway profile model {app.path} --shares {serving.slices} measures them by share"
        raise ProfileError(f"slices {serving.slices}: times in {profile} are of the whole device: {remedy}")
    return asked or ((WHOLE,) if by_share else ())


def _function(task: Task, path: Path, shares: Sequence[int]) -> toml.Document:
    cells = [
        [batch, task.cpus, slices, round(GUESSED_MS * batch**GUESSED_POWER * part**-GUESSED_POWER, 3)]
        for batch in batches_of(task)
        for slices, part in _sizes(task, shares)
    ]
    models = [model.name for model in task.models]
    return {"models": models, "cells": cells, "guess": f"headway profile model {path}"}


def _sizes(task: Task, shares: Sequence[int]) -> list[tuple[int, float]]:
    """Return the slices that a task may take, each with its part of the GPU: its own, else the shares of workers."""
    if not task.slices or not shares:
        return [(task.slices, 1.0)]
    return [(share, share / WHOLE) for share in sorted(set(shares))]


def _graph(graph: Graph) -> toml.Document:
    tasks = [
        {"function": task.name, "after": [graph.tasks[before].name for before in graph.predecessors(at)]}
        for at, task in enumerate(graph.tasks)
    ]
    return {"tasks": tasks, **({"slo": exact_duration(graph.slo)} if graph.slo else {})}


def _workers(app: App, count: int | None, shares: Sequence[int]) -> list[toml.Document]:
    """Return workers on this machine: its CPUs are divided, but each has those of the largest task."""
    count = count or max(len(shares), WORKERS)
    cpus = max(len(os.sched_getaffinity(0)) // count, *(task.cpus for task in app.tasks))
    each = {"memory": GPU_MEMORY, "cpus": cpus, "per_host": count}
    if not shares:
        return [{**each, "count": count, "slices": max(1, *(task.slices for task in app.tasks))}]
    in_turn = [shares[index % len(shares)] for index in range(count)]
    return [
        {**each, "count": in_turn.count(share), "name": f"share-{share}", "slices": share, "geometry": FIXED}
        for share in dict.fromkeys(in_turn)
    ]
