"""Turn what was timed in live workers into what a simulation reads: a serving profile, and a table of pairs.

The CPUs of a lent machine change their speed by tens of per cent within seconds, more than neighbours cost. So drawn
functions run beside drawn neighbours, and one fit takes them apart: log(time) = cell + Σ cost of a neighbour × the part
of the run that it was there. A pair's cost is the mean of all pairs plus its own, which is shrunk by how sure it is.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import exp
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.formats import toml
from headway.units import REFERENCE_SPEED_PPM

Row = Mapping[str, Any]
Cell = tuple[str, int, int]
"""Function, batch, slices."""
MOST_SPREAD = 2.0
LEAST_SAMPLES = 2
TURNS, LEAST_REAL = 200, 0.001


@dataclass(frozen=True)
class Fit:
    """What runs take alone, and what neighbours cost them."""

    cells: Mapping[Cell, tuple[float, float, int]]
    """Milliseconds, the spread of their logarithm about that, and the number of samples."""
    cpus: int
    models: Mapping[str, str]
    """By function: what stands for its models; functions with the same are one to their neighbours."""
    pairs: Mapping[tuple[str, str], float]
    """By models of a function and of its neighbour: its time beside it over its time alone."""
    mean: float
    """The logarithm of that, of all pairs together."""
    error: float
    """Its standard error."""
    own_spread: float
    """How far pairs are from the mean, beyond what their errors explain."""


def fit(row: Row, models: Mapping[str, str]) -> Fit:
    """Return what a mixture of runs says."""
    names, samples = row["functions"], sorted(row["samples"], key=lambda each: each[3])
    kinds = sorted(set(models.values()))
    cells = [(names[function], batch, row["slices"][worker]) for worker, function, batch, _, _ in samples]
    y = np.log([end - start for *_, start, end in samples])
    overlap = _overlaps(samples, [kinds.index(models[names[each[1]]]) for each in samples], len(kinds))
    groups = [np.array([at for at, cell in enumerate(cells) if cell == one]) for one in sorted(set(cells))]
    groups = [group for group in groups if len(group) >= LEAST_SAMPLES]
    total = overlap.sum(1)
    mean, error = _slope(_within(total, groups), _within(y, groups))
    kind_of = np.array([kinds.index(models[cell[0]]) for cell in cells])
    own, spread = _own(y - mean * total, overlap, kind_of, groups)
    slopes = mean + own
    rest = y - (overlap * slopes[kind_of]).sum(1)
    found = {
        cells[group[0]]: (exp(rest[group].mean()), min(float(rest[group].std()), MOST_SPREAD), len(group))
        for group in groups
    }
    pairs = {(a, b): exp(slopes[i, j]) for i, a in enumerate(kinds) for j, b in enumerate(kinds)}
    return Fit(found, row["cpus"], models, pairs, mean, error, spread)


def _overlaps(samples: Sequence[Sequence[float]], kinds: Sequence[int], count: int) -> npt.NDArray[np.float64]:
    """Return by run and kind the part of the run that a neighbour of that kind was there."""
    found = np.zeros((len(samples), count))
    for at, (worker, *_, start, end) in enumerate(samples):
        for other in range(at + 1, len(samples)):
            there, _, _, begins, ends = samples[other]
            if begins >= end:
                break
            if there != worker:
                together = min(end, ends) - begins
                found[at, kinds[other]] += together / (end - start)
                found[other, kinds[at]] += together / (ends - begins)
    return found


def _within(values: npt.NDArray[np.float64], groups: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float64]:
    """Return values about the mean of their group, group after group."""
    return np.concatenate([values[group] - values[group].mean() for group in groups])


def _slope(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the slope of y over x, both about 0, and its standard error."""
    square = float(x @ x)
    if square == 0.0:
        return 0.0, float("inf")
    slope = float(x @ y) / square
    return slope, float(np.sqrt(((y - slope * x) ** 2).mean() / square))


def _own(
    y: npt.NDArray[np.float64],
    overlap: npt.NDArray[np.float64],
    kind_of: npt.NDArray[np.int64],
    groups: Sequence[npt.NDArray[np.int64]],
) -> tuple[npt.NDArray[np.float64], float]:
    """Return by pair how far its cost is from the mean of all, and how far pairs differ in truth.

    The first is shrunk by the second (a ridge), which is estimated with it, in turns.
    """
    count = overlap.shape[1]
    own, real, parts = np.zeros((count, count)), 0.05**2, []
    for kind in range(count):
        if mine := [group for group in groups if kind_of[group[0]] == kind]:
            x = np.stack([_within(overlap[:, other], mine) for other in range(count)], 1)
            parts.append((kind, x, _within(y, mine)))
    for _ in range(TURNS):
        squares = []
        for kind, x, z in parts:
            noise = float(((z - x @ own[kind]) ** 2).mean())
            inverse = np.linalg.inv(x.T @ x / noise + np.eye(count) / real)
            own[kind] = inverse @ (x.T @ z) / noise
            squares.extend((own[kind] ** 2 + np.diag(inverse)).tolist())
        real = max(float(np.mean(squares)), LEAST_REAL**2)
    return own, float(np.sqrt(real))


# --- files ------------------------------------------------------------------------------------------------------


def profile(base: toml.Document, rows: Sequence[Row], fitted: Fit, source: str) -> toml.Document:
    """Return a profile with measured times and loads, and the sizes of another."""
    document, loads = deepcopy(base), load_ms(rows)
    for name, table in document["models"].items():
        if name in loads:
            table["load"] = f"{loads[name]:.3f}ms"
    for name, table in document["functions"].items():
        cells = [
            [batch, fitted.cpus, slices, float(f"{ms:.5g}"), round(spread, 4)]
            for (function, batch, slices), (ms, spread, _) in sorted(fitted.cells.items())
            if function == name
        ]
        for row in _of(rows, "cpu", function=name):
            logs = np.log(row["ms"])
            cells.append([row["batch"], row["cpus"], 0, float(f"{median(row['ms']):.5g}"), round(float(logs.std()), 4)])
        table["cells"] = cells or table["cells"]
        axes = [{cell[axis] for cell in table["cells"]} for axis in range(3)]
        if len(table["cells"]) < len(axes[0]) * len(axes[1]) * len(axes[2]):
            table["sparse"] = True
    return {**document, "source": source}


def load_ms(rows: Iterable[Row]) -> dict[str, float]:
    """Return by model the median time of its load, the eviction before it included, nothing beside it."""
    found: dict[str, list[float]] = {}
    for row in _of(rows, "load", workers=1):
        for name, took in row["ms"]:
            found.setdefault(name, []).append(took)
    return {name: median(taken) for name, taken in found.items()}


def write(document: toml.Document, path: Path) -> None:
    """Write a profile."""
    path.write_text(toml.write(document))


def write_pairs(fitted: Fit, path: Path) -> None:
    """Write the table of pairs, a row a line."""
    table = []
    for name, model in fitted.models.items():
        for other, beside in fitted.models.items():
            ppm = {"slowdown_ppm": round(fitted.pairs[model, beside] * 1e6)}
            ppm["harvest_ppm"] = round(1e6 / fitted.pairs[beside, model])
            row = {"program": name, "co_runner": other, "sm_share_ppm": REFERENCE_SPEED_PPM}
            table.append({**row, **ppm, "measured": True})
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in table) + "\n]\n")


def _of(rows: Iterable[Row], part: str, **keys: Any) -> list[Row]:
    return [row for row in rows if row.get("part") == part and all(row.get(key) == keys[key] for key in keys)]
