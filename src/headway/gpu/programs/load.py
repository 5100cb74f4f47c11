"""Load a program: from a kernel trace, from a recipe, or a shipped one by name.

A recipe is a small TOML file of the medians of a program, for programs that were not recorded. Its launches are drawn
at random, with a fixed seed.
"""

import math
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import TraceError, unknown_name
from headway.gpu.model.kernel import Kernel
from headway.gpu.model.program import Launch, Program
from headway.gpu.programs import trace as kernel_trace
from headway.gpu.programs.trace import KINDS, KernelTrace
from headway.streams import stream
from headway.units import MICROSECOND

FOLDER = Path(__file__).resolve().with_name("shipped")
SUFFIXES = (".parquet", ".toml")
USUAL = 100 * MICROSECOND
"""CPU time before a launch, at most, of a program that waits after each one."""
RECIPE: dict[str, Any] = {
    "launches": 1,
    "gpu_us": 0.0,
    "kernel_us": 0.0,
    "launch_us": 0.0,
    "head_us": 0.0,
    "blocks": 132,
    "per_sm": 1,
    "distinct": 0,
    "requests": 8,
    "kind": 1,
    "waits": True,
    "cpu_spread": 0.15,
    "gpu_spread": 0.03,
    "note": "",
}
"""All keys of a recipe and what they are if left out; docs/guides/gpu-simulation.md says what they mean."""


def shipped() -> list[str]:
    """Return the names of the programs that come with headway."""
    return sorted({path.stem for path in FOLDER.iterdir() if path.suffix in SUFFIXES})


def load(name: str) -> Program:
    """Return the program of this name, or in this file."""
    path = Path(name)
    if path.suffix not in SUFFIXES:
        for suffix in SUFFIXES:  # a recorded program comes before a recipe
            if (FOLDER / f"{name}{suffix}").is_file():
                path = FOLDER / f"{name}{suffix}"
                break
        else:
            raise TraceError(f"{unknown_name('program', name, shipped())}, or a kernel trace: FILE.parquet")
    return from_recipe(path) if path.suffix == ".toml" else from_trace(kernel_trace.read(path), path.stem)


# --- recorded -----------------------------------------------------------------------------------------------------


def from_trace(trace: KernelTrace, name: str = "") -> Program:
    """Return a recorded trace as a program that can be replayed.

    The time between the end of a wait and the next launch counts as CPU time of the next request up to the usual time
    between two launches; the rest is think time.
    """
    index: dict[tuple[Any, ...], int] = {}
    columns = (trace.kernel, trace.blocks, trace.per_sm, trace.kind)
    which = [index.setdefault(key, len(index)) for key in zip(*(column.tolist() for column in columns), strict=True)]
    kernels = tuple(Kernel(text, blocks, per_sm, kind) for text, blocks, per_sm, kind in index)
    launched, waits = trace.launch_ns.tolist(), trace.wait_ns.tolist()
    durations = (trace.end_ns - trace.start_ns).tolist()
    plain = [after - before for (before, after), wait in zip(pairwise(launched), waits, strict=False) if not wait]
    pauses = [after - wait for after, wait in zip(launched[1:], waits, strict=False) if wait]
    usual = int(np.median(plain)) if plain else min(USUAL, int(np.median(pauses or [MICROSECOND])))
    launches: list[Launch] = []
    gap = usual
    for at, kernel in enumerate(which):
        think = 0
        following = launched[at + 1] - launched[at] if at + 1 < len(which) else usual
        if waits[at] and at + 1 < len(which):
            pause = max(0, launched[at + 1] - waits[at])
            following, think = min(pause, usual), max(0, pause - usual)
        launches.append(Launch(kernel, max(1, gap), max(1, durations[at]), waits[at] > 0, think))
        gap = following
    return Program(name or trace.program or "program", kernels, tuple(launches))


# --- made up --------------------------------------------------------------------------------------------------------


def from_recipe(path: Path) -> Program:
    """Return the program that a recipe describes."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise TraceError(f"program {path}: cannot be read ({problem.strerror or problem})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise TraceError(f"program {path}: it is not TOML ({problem})") from None
    for key, value in given.items():
        if key not in RECIPE:
            raise TraceError(f"program {path}: {unknown_name('key', key, RECIPE)}")
        wanted: tuple[type, ...] = (int, float) if isinstance(RECIPE[key], float) else (type(RECIPE[key]),)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise TraceError(f"program {path}: {key} = {value!r} is not a {wanted[-1].__name__}")
        if isinstance(value, float) and not math.isfinite(value):
            raise TraceError(f"program {path}: {key} = {value!r} is not a finite number")
        if isinstance(value, int | float) and value < 0:
            raise TraceError(f"program {path}: {key} = {value!r} is negative")
    recipe = {**RECIPE, **given}
    for key in ("launches", "gpu_us", "requests", "per_sm"):
        if recipe[key] <= 0:
            raise TraceError(f"program {path}: {key} = {recipe[key]!r} must be above 0")
    if recipe["kind"] not in KINDS:
        raise TraceError(f"program {path}: kind = {recipe['kind']!r} must be 1 (kernel), 2 (graph) or 3 (copy)")
    return made(path.stem, recipe)


def made(name: str, recipe: dict[str, Any]) -> Program:
    """Return a program with requests drawn around the recipe's medians; each has the same kernels in the same order."""
    draw = stream(0, f"kernels:{name}")
    count = int(recipe["launches"])
    distinct = min(count, int(recipe["distinct"]) or max(1, count // 3))
    mean_us = recipe["gpu_us"] / count
    median_us = min(recipe["kernel_us"] or mean_us, mean_us)
    spread = math.sqrt(2 * math.log(mean_us / median_us)) if median_us < mean_us else 0.0
    sizes = median_us * np.exp(spread * draw.standard_normal(distinct))
    places = np.concatenate([np.arange(distinct), draw.integers(0, distinct, count - distinct)])
    draw.shuffle(places)
    sizes *= recipe["gpu_us"] / sizes[places].sum()
    # Longer kernels have more blocks, less than in proportion.
    blocks = np.maximum(1, np.round(recipe["blocks"] * np.sqrt(sizes / np.median(sizes)))).astype(int)
    kernels = tuple(Kernel(f"{name}_{i}", int(blocks[i]), recipe["per_sm"], recipe["kind"]) for i in range(distinct))
    launches = []
    for _ in range(recipe["requests"]):
        ran = sizes[places] * np.exp(recipe["gpu_spread"] * draw.standard_normal(count))
        gaps = recipe["launch_us"] * np.exp(recipe["cpu_spread"] * draw.standard_normal(count))
        gaps[0] += recipe["head_us"]
        for at in range(count):
            gap, duration = (max(1, round(float(value) * MICROSECOND)) for value in (gaps[at], ran[at]))
            launches.append(Launch(int(places[at]), gap, duration, recipe["waits"] and at == count - 1))
    return Program(name, kernels, tuple(launches))
