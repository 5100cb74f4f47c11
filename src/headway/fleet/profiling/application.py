"""Measure the tasks of an application over batch × CPUs, and its models, and write the result as a serving profile.

    measure(Path("app.py")) -> AppProfile

Examples of the entry tasks go through the graphs, so that every task is timed on what it gets from those before it. A
process of its own imports the application; every measurement is a line in a log, and is not repeated if it is there.
"""

import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from headway.errors import ProfileError, unknown_name
from headway.fleet.profiling.device import AUTO
from headway.fleet.profiling.model import MOST_SPREAD, MS, Cell, Part
from headway.fleet.profiling.process import SHARES, Mps, Worker
from headway.fleet.profiling.session import Effort, Log, Row
from headway.formats import toml
from headway.profiling import store
from headway.units import exact_duration

PROGRAM = "headway.fleet.profiling.application_worker"
Say = Callable[[str], None]
Tell = Callable[[int, int, str], None]


@dataclass(frozen=True)
class TaskProfile:
    """The measured profile of one task."""

    name: str
    cells: tuple[Cell, ...]
    """The share of a cell is the slices of a GPU that its task takes."""
    activation_bytes: int
    """GPU memory besides the weights for each request, at the batch where it is most."""
    input_bytes: int
    """Of a request; 0 for a task that is not the first of its graph."""
    output_bytes: int


@dataclass(frozen=True)
class ModelWeights:
    """The measured weights of one model."""

    name: str
    weights_bytes: int
    load_ms: Mapping[str, float]
    """To the device, out of ``pageable`` and ``pinned`` memory."""
    build_ms: float


@dataclass(frozen=True)
class AppProfile:
    """The measured profile of an application, or of some of its tasks."""

    name: str
    gpu: str
    """Empty: it was measured on CPUs."""
    tasks: tuple[TaskProfile, ...]
    models: tuple[ModelWeights, ...]
    by_share: bool = False
    """Whether slices are sevenths of the device."""
    overhead: Mapping[int, int] = field(default_factory=dict)
    """What a batch takes besides where it is served, by how long its worker has been idle; empty: not measured."""


@dataclass(frozen=True)
class Wanted:
    """What is measured of an application; empty: all tasks, the batches and CPUs that they declare."""

    tasks: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    """Besides those that a task declares."""
    shares: tuple[int, ...] = ()
    """Sevenths of the device that tasks with slices are measured on; empty: all of it."""


def measure(
    path: Path,
    wanted: Wanted | None = None,
    *,
    effort: Effort | None = None,
    device: str = AUTO,
    log: Path | None = None,
    deadline: float = math.inf,
    tell: Tell | None = None,
) -> AppProfile:
    """Measure an application and return its profile; measurements in the log are not repeated.

    After ``deadline`` (of the monotonic clock) a TimeoutError is raised if there is more to measure. ``tell`` is called
    with the number of measurements done, their total, and the next one.
    """
    if not path.is_file():
        raise ProfileError(f"app {path}: there is no such file")
    asked, tried = wanted or Wanted(), effort or Effort()
    with ExitStack() as stack:
        processes = Processes(device, _output(path), stack)
        worker = processes.of(SHARES)
        read = worker.ask("read", path=str(path.resolve()))
        tasks = _chosen(read["tasks"], asked, path)
        lines = Log(log or _log_of(path, worker.about, read, tried))
        if not lines.all("about"):
            lines.keep(
                "about", **{key: worker.about[key] for key in ("device", "sms", "memory_bytes", "torch", "cuda")}
            )
        orders = list(_missing(tasks, lines))
        for number, (part, order) in enumerate(orders):
            if time.monotonic() > deadline:
                raise TimeoutError
            if tell is not None:
                tell(number, len(orders), _said(part, order))
            times = {} if part == "model" else {"runs": tried.runs, "least_s": tried.least_s}
            worker = processes.of(order.get("share", SHARES), str(path.resolve()))
            lines.keep(part, **order, **worker.ask(part, **order, **times))
    return profile_of(path.stem, lines, tasks, by_share=bool(asked.shares))


class Processes:
    """Processes that measure, one at a time: a share of a GPU is fixed when a process starts."""

    def __init__(self, device: str, log: Path, stack: ExitStack) -> None:
        self._device, self._log, self._stack = device, log, stack
        self._mps: Mps | None = None
        self._share = 0
        self._worker: Worker | None = None
        stack.callback(self._end)

    def of(self, share: int, path: str = "") -> Worker:
        """Return the process with a share of the device, started and with the application read where it is another."""
        if self._worker is not None and (share == self._share or not self._worker.about["sms"]):
            return self._worker  # CPUs are shared by affinity, which the process itself changes
        self._end()
        if share < SHARES and self._mps is None:
            self._mps = Mps()
            self._stack.callback(self._mps.end)
        environment = self._mps.environment(share) if self._mps is not None else {}
        self._share = share
        self._worker = worker = Worker(self._device, environment, log=self._log, program=PROGRAM)
        if path:
            worker.ask("read", path=path)
        return worker

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


def _output(path: Path) -> Path:
    """Return the file that keeps what the application prints."""
    place = store.folder() / "models"
    place.mkdir(parents=True, exist_ok=True)
    return place / f"{path.stem}.output"


def _said(part: str, order: Mapping[str, Any]) -> str:
    said = {key: value for key, value in order.items() if key != "name" and (key, value) != ("share", SHARES)}
    at = ", ".join(f"{key} {value}" for key, value in said.items())
    return f"{part} {order['name']}{', ' if at else ''}{at}"


def _chosen(tasks: Sequence[Row], asked: Wanted, path: Path) -> list[Row]:
    """Return the tasks that are measured, with their batches and CPUs."""
    names = [task["name"] for task in tasks]
    for name in asked.tasks:
        if name not in names:
            raise ProfileError(f"app {path}: {unknown_name('task', name, names)}")
    if not all(1 <= share <= SHARES for share in asked.shares):
        raise ProfileError(f"--shares {','.join(map(str, asked.shares))}: sevenths of a device are from 1 to {SHARES}")
    here, chosen = len(os.sched_getaffinity(0)), []
    for task in tasks:
        if asked.tasks and task["name"] not in asked.tasks:
            continue
        if task["needs"]:
            rule = "write @hw.task(example=lambda n: […]), a function that gives n inputs"
            raise ProfileError(f"app {path}, task {task['needs'][0]}: has no example to measure with: {rule}")
        cpus = sorted({task["cpus"], *asked.cpus})
        if cpus[-1] > here or cpus[0] < 1:
            rule = f"this machine has {here}"
            raise ProfileError(f"app {path}, task {task['name']}: {cpus[-1]} CPUs cannot be measured: {rule}")
        batches = [batch for batch in asked.batches if batch <= max(task["batches"])] or task["batches"]
        if asked.batches and min(asked.batches) < 1:
            raise ProfileError(f"batch {min(asked.batches)}: must be at least 1")
        shares = sorted(set(asked.shares)) if task["slices"] else []
        chosen.append({**task, "cpus": cpus, "batches": sorted(set(batches)), "shares": shares or [SHARES]})
    return chosen


def _log_of(path: Path, about: Row, read: Row, effort: Effort) -> Path:
    """Return the log file of an application on this machine; what it reads from its environment changes its tasks."""
    parts: dict[str, Any] = {"program": store.program([str(path.resolve())]), "read": read, "device": about["device"]}
    parts["axes"] = ("batch", "cpus with a thread each", "share")
    parts["hardware"] = store.hardware(len(os.sched_getaffinity(0)), 0)
    return store.folder() / "models" / f"{path.stem}-{store.key({**parts, 'effort': asdict(effort)})}.jsonl"


def _missing(tasks: Sequence[Row], lines: Log) -> list[tuple[str, Row]]:
    """Return the measurements that are not in the log: models first, then tasks in the order of the graphs."""
    models = dict.fromkeys(model for task in tasks for model in task["models"])
    orders: list[tuple[str, Row]] = [("model", {"name": name}) for name in models]
    points = [(task, *point) for task in tasks for point in _points(task)]
    points.sort(key=lambda point: -point[-1])  # a process a share
    orders += [("task", _order(task, *at)) for task, *at in points]
    return [(part, order) for part, order in orders if not lines.all(part, **order)]


def _points(task: Row) -> list[tuple[int, int, int]]:
    """Return the batches, CPUs and shares that a task is measured with."""
    return list(product(task["batches"], task["cpus"], task["shares"]))


def _order(task: Row, batch: int, cpus: int, share: int) -> Row:
    return {"name": task["name"], "batch": batch, "cpus": cpus, "share": share}


# --- from lines to a profile ------------------------------------------------------------------------------------


def profile_of(name: str, lines: Log, tasks: Sequence[Row], *, by_share: bool = False) -> AppProfile:
    """Return the profile of some tasks from the lines of a log."""
    about = lines.one("about")
    models = dict.fromkeys(model for task in tasks for model in task["models"])
    return AppProfile(
        name,
        re.sub(r"^NVIDIA ", "", about["device"]) if about["sms"] else "",
        tuple(_task(task, lines, by_share=by_share) for task in tasks),
        tuple(_weights(model, lines.one("model", name=model)) for model in models),
        by_share,
    )


def _task(task: Row, lines: Log, *, by_share: bool) -> TaskProfile:
    rows = {at: lines.one("task", **_order(task, *at)) for at in _points(task)}
    slices = {share: share if by_share and task["slices"] else task["slices"] for _, _, share in rows}
    cells = tuple(Cell(batch, cpus, slices[share], *Part.of(row["ns"])) for (batch, cpus, share), row in rows.items())
    peaks = [-(-row["peak_bytes"] // batch) for (batch, _, _), row in rows.items()]
    sizes = [max(row[key] for row in rows.values()) for key in ("input_bytes", "output_bytes")]
    return TaskProfile(task["name"], cells, max(peaks) if task["slices"] else 0, *sizes)


def _weights(name: str, row: Row) -> ModelWeights:
    loads = {key.removesuffix("_ns"): median(row[key]) / MS for key in ("pageable_ns", "pinned_ns") if key in row}
    return ModelWeights(name, row["weights_bytes"], loads, row["build_ns"] / MS)


# --- writing ----------------------------------------------------------------------------------------------------


def write(profile: AppProfile, path: Path) -> None:
    """Write a profile, atomically; tasks and models that the file has besides stay in it."""
    if not path.parent.is_dir():
        raise ProfileError(f"{path}: there is no folder {path.parent}")
    made = document(profile)
    if path.exists():
        before = toml.read(path, "profile")
        if before.get("gpu", "") == profile.gpu and before.get("shares", False) == profile.by_share:
            made = {**made, **{key: {**before.get(key, {}), **made[key]} for key in ("models", "functions")}}
    store.write(made, path)


def document(profile: AppProfile) -> store.Document:
    """Return the document of a serving profile."""
    source = f"headway profile model, {profile.gpu or 'on CPUs'}"
    models = {each.name: _model_table(each) for each in profile.models if each.weights_bytes}
    functions = {task.name: _function_table(task) for task in profile.tasks}
    more: store.Document = {"shares": True} if profile.by_share else {}
    if profile.overhead:
        more["overhead"] = {exact_duration(idle): exact_duration(time) for idle, time in profile.overhead.items()}
    about = {"name": profile.name, "gpu": profile.gpu, "source": source, **more}
    return {**about, "models": models, "functions": functions}


def _model_table(model: ModelWeights) -> store.Document:
    return {"weights": model.weights_bytes, "load": f"{min(model.load_ms.values()):.3f}ms"}


def _function_table(task: TaskProfile) -> store.Document:
    rows = [[*cell[:3], float(f"{cell.ms:.5g}"), round(min(cell.spread, MOST_SPREAD), 4)] for cell in task.cells]
    entry = {"input": task.input_bytes} if task.input_bytes else {}
    activation = {"activation": task.activation_bytes} if task.activation_bytes else {}
    return {**activation, **entry, "output": task.output_bytes, "cells": rows}
