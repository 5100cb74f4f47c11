"""Measure a network over batch × CPUs × share of the GPU's SMs, and write the result as a serving profile.

    measure("serve.py:factory") -> ModelProfile

The factory gives ``(network, inputs)``: a torch module and a function from a batch size to what the module takes; or an
object with these as attributes ``network`` and ``inputs``, and besides ``prepare(batch, cpus)``, the CPUs' work that
ends in the network's inputs, and ``finish(outputs, cpus)``, their work on what it gave.

A batch goes through three parts one after the other: prepare, network, finish. The first and the last depend on batch
and CPUs, the network on batch and share. So each part is measured over its own plane, and a cell is their sum. Some
cells are also measured whole, to tell the error of the sums. Every measurement is a line in a log, and is not repeated
if it is there. Only the measuring processes import torch.
"""

import ast
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from headway.errors import ProfileError, unknown_name
from headway.fleet.profiling.process import SHARES
from headway.fleet.profiling.session import Effort, Grid, Log, Session
from headway.profiling import store

Say = Callable[[str], None]
MS = 1e6
MOST_SPREAD = 2.0
"""The most that the format allows; only a machine that is busy with something else has more."""


class Cell(NamedTuple):
    """A time of a whole batch, and the standard deviation of its logarithm."""

    batch: int
    cpus: int
    share: int
    ms: float
    spread: float


class Check(NamedTuple):
    """A cell that was measured whole, beside the sum of its parts."""

    batch: int
    cpus: int
    share: int
    whole_ms: float
    sum_ms: float

    @property
    def off(self) -> float:
        """Return how far the sum is from what was measured, as a share of that."""
        return self.sum_ms / self.whole_ms - 1


@dataclass(frozen=True)
class ModelProfile:
    """The measured profile of one network."""

    name: str
    gpu: str
    cells: tuple[Cell, ...]
    checks: tuple[Check, ...]
    weights_bytes: int
    activation_bytes: int
    """GPU memory besides the weights for each request, at the batch where it is most."""
    cold_start_s: float
    """From the start of a process to its first answer, without the copy of its weights."""
    load_ms: Mapping[str, float]
    """Weights from host memory to the GPU, out of ``pageable`` and ``pinned`` memory."""
    instance_bytes: int
    seen: Mapping[str, Any] = field(default_factory=dict)
    """The parts of the cells, and further measurements."""

    def ms(self, batch: int, cpus: int, share: int) -> float:
        """Return the time of one cell."""
        for cell in self.cells:
            if cell[:3] == (batch, cpus, share):
                return cell.ms
        raise ProfileError(f"{self.name}: no cell for batch {batch}, cpus {cpus}, share {share}")


def measure(
    factory: str,
    grid: Grid | None = None,
    *,
    name: str = "",
    effort: Effort | None = None,
    device: str = "cuda",
    log: Path | None = None,
    deadline: float = math.inf,
    say: Say | None = None,
    tell: Callable[[int, int, str], None] | None = None,
) -> ModelProfile:
    """Measure one network and return its profile; measurements in the log are not repeated.

    After ``deadline`` (of the monotonic clock) a TimeoutError is raised if there is more to measure. ``say`` is called
    with what cannot be measured here; ``tell`` with the number of measurements done at a share, their total, and the
    next one.
    """
    wanted = grid or default_grid(say)
    check(factory, wanted)
    name = name or re.sub(r"[^\w.+-]+", "-", factory.rpartition(":")[2])
    lines = Log(log or log_of(factory, device, effort or Effort()))
    with Session({name: factory}, wanted, lines, effort, device, deadline, say, tell) as session:
        session.measure()
        return profile_of(name, lines, Grid(wanted.batches, wanted.cpus, session.shares))


def default_grid(say: Say | None = None) -> Grid:
    """Return the whole grid, as far as this machine has CPUs."""
    here = len(os.sched_getaffinity(0))
    whole = Grid()
    kept = tuple(cpus for cpus in whole.cpus if cpus <= here)
    if kept != whole.cpus and say is not None:
        say(f"this machine has {here} CPUs: CPU counts {', '.join(map(str, kept))} are measured")
    return Grid(whole.batches, kept, whole.shares)


def check(factory: str, grid: Grid) -> None:
    """Raise ProfileError for mistakes that can be found before any process is started."""
    path, _, function = factory.rpartition(":")
    if not path or not function:
        raise ProfileError(f"{factory!r} is not understood: write PROGRAM.py:FACTORY")
    if not Path(path).is_file():
        raise ProfileError(f"{factory}: there is no file {path}")
    for axis, values, most in (
        ("batch sizes", grid.batches, 1 << 16),
        ("CPU counts", grid.cpus, len(os.sched_getaffinity(0))),
        ("shares", grid.shares, SHARES),
    ):
        if not values or len(set(values)) < len(values) or not all(1 <= value <= most for value in values):
            told = ", ".join(map(str, values)) or "none"
            raise ProfileError(f"{axis} {told}: must be different whole numbers from 1 to {most}")
    _check_defined(Path(path), function)
    if find_spec("torch") is None:
        raise ProfileError("torch is not installed: a network cannot be measured without it")


def _check_defined(path: Path, function: str) -> None:
    """Raise where a file does not define a function; a file with a star import may have it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # running it will say where
    parts = list(ast.walk(tree))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    imported = {node.asname or node.name for node in parts if isinstance(node, ast.alias)}
    assigned = {node.id for node in parts if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if not {function, "*"} & (defined | imported | assigned):
        raise ProfileError(f"{path}: {unknown_name('function', function, defined or ['none'])}")


def log_of(factory: str, device: str, effort: Effort) -> Path:
    """Return the log file for a program on this machine; another program or machine has another file."""
    path, _, function = factory.rpartition(":")
    parts: dict[str, Any] = {"program": store.program([str(Path(path).resolve())]), "factory": function}
    parts["hardware"] = store.hardware(len(os.sched_getaffinity(0)), 0)
    key = store.key({**parts, "device": device, "effort": asdict(effort)})
    return store.folder() / "models" / f"{Path(path).stem}-{function}-{key}.jsonl"


# --- from lines to a profile ------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A part of a cell: its median in milliseconds, and its spread."""

    ms: float
    spread: float

    @classmethod
    def of(cls, *passes: Sequence[int]) -> "Part":
        """Return a part from passes: the median of their medians, and the spread of all their runs."""
        logarithms = [math.log(time) for taken in passes for time in taken]
        return cls(median(map(median, passes)) / MS, stdev(logarithms) if len(logarithms) > 1 else 0.0)


def profile_of(name: str, lines: Log, grid: Grid | None = None) -> ModelProfile:
    """Return a network's profile from the lines of its log; only the cells of ``grid``, if given."""
    about = lines.one("about")
    loaded, loads = lines.one("load", name=name), lines.one("loads", name=name)
    network = {(row["batch"], row["share"]): Part.of(row["ns"]) for row in lines.all("gpu", name=name)}
    passes: dict[tuple[int, int], list[list[int]]] = {}
    for row in lines.all("cpu", name=name):
        passes.setdefault((row["batch"], row["cpus"]), []).append(row["ns"])
    host = {at: Part.of(*taken) for at, taken in passes.items()}
    cells = tuple(
        Cell(batch, cpus, share, *_sum(host[batch, cpus], part))
        for batch, cpus in sorted(host)
        for (other, share), part in sorted(network.items())
        if other == batch and (grid is None or (batch, cpus, share) in grid)
    )
    sums = {cell[:3]: cell.ms for cell in cells}
    whole = {(row["batch"], row["cpus"], row["share"]): row["ns"] for row in lines.all("joint", name=name)}
    checks = tuple(Check(*at, median(taken) / MS, sums[at]) for at, taken in sorted(whole.items()) if at in sums)
    peaks: dict[int, int] = {}
    for row in lines.all("gpu", name=name):
        peaks[row["batch"]] = max(peaks.get(row["batch"], 0), row["peak_bytes"])
    colds = [_cold(row) for row in lines.all("cold", name=name)]
    seen = {
        **{key: lines.one("cpu", name=name)[key] for key in ("input_bytes", "output_bytes")},
        "activation_bytes": {str(batch): peak for batch, peak in sorted(peaks.items())},
        "cold_start_s": {key: round(mean(cold[key] for cold in colds), 3) for key in colds[0]},
        "network_ms": _table(network),
        "host_ms": _table(host),
    }
    return ModelProfile(
        name=name,
        gpu=re.sub(r"^NVIDIA ", "", about["device"]) if about["sms"] else "",
        cells=cells,
        checks=checks,
        weights_bytes=loaded["weights_bytes"],
        activation_bytes=max((-(-peak // batch) for batch, peak in peaks.items()), default=0),
        cold_start_s=mean(sum(cold.values()) - cold["weights"] for cold in colds),
        load_ms={kind.removesuffix("_ns"): median(loads[kind]) / MS for kind in loads if kind.endswith("_ns")},
        instance_bytes=min(row["resident_bytes"] for row in lines.all("cold", name=name)),
        seen=seen,
    )


def _sum(host: Part, network: Part) -> tuple[float, float]:
    """Return time and spread of two parts that run one after the other and vary independently."""
    total = host.ms + network.ms
    return total, math.hypot(host.ms * host.spread, network.ms * network.spread) / total


def _cold(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the steps of a cold start, in seconds."""
    steps = ("spawned", "began", "imported", "context", "built", "loaded", "ready")
    names = ("process", "import", "context", "build", "weights", "first")
    between = pairwise(row[f"{step}_ns"] for step in steps)
    return {name: (after - before) / 1e9 for name, (before, after) in zip(names, between, strict=True)}


def _table(parts: Mapping[tuple[int, int], Part]) -> list[list[float]]:
    """Return rows of both coordinates, the median and the spread."""
    return [[*at, round(part.ms, 4), round(part.spread, 4)] for at, part in sorted(parts.items())]


# --- writing ----------------------------------------------------------------------------------------------------


def write(
    profile: ModelProfile | Sequence[ModelProfile],
    path: Path,
    *,
    name: str = "",
    source: str = "",
    measured: Mapping[str, Any] | None = None,
) -> None:
    """Write profiles of one GPU as one serving profile, atomically."""
    profiles = [profile] if isinstance(profile, ModelProfile) else list(profile)
    if not path.parent.is_dir():
        raise ProfileError(f"{path}: there is no folder {path.parent}")
    store.write(document(profiles, name or profiles[0].name, source, measured), path)


def document(
    profiles: Sequence[ModelProfile], name: str, source: str = "", measured: Mapping[str, Any] | None = None
) -> store.Document:
    """Return the document of a serving profile."""
    head: store.Document = {"name": name, "gpu": profiles[0].gpu, "source": source}
    functions = {profile.name: _function(profile) for profile in profiles}
    return {**head, "functions": functions, "measured": dict(measured or {})}


def _function(profile: ModelProfile) -> store.Document:
    best = min(profile.load_ms.values())
    return {
        "weights": profile.weights_bytes,
        "activation": profile.activation_bytes,
        "cold_start": f"{profile.cold_start_s:.3f}s",
        "load": f"{best:.3f}ms",
        "instance_memory": profile.instance_bytes,
        "cells": [
            [*cell[:3], float(f"{cell.ms:.5g}"), round(min(cell.spread, MOST_SPREAD), 4)] for cell in profile.cells
        ],
        "measured": {
            **profile.seen,
            "load_ms": {kind: round(ms, 3) for kind, ms in profile.load_ms.items()},
            "checks": [
                [*check[:3], round(check.whole_ms, 3), round(check.sum_ms, 3), round(check.off, 4)]
                for check in profile.checks
            ],
        },
    }
