"""Turn what was timed in live workers into what a simulation reads: a serving profile, and a table of pairs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from math import log
from pathlib import Path
from statistics import mean, median, pstdev
from typing import Any

from headway.formats import toml
from headway.units import REFERENCE_SPEED_PPM

Row = Mapping[str, Any]
MOST_SPREAD = 2.0


def profile(base: toml.Document, rows: Sequence[Row], source: str) -> toml.Document:
    """Return a profile with measured times and loads, and the sizes of another."""
    document, loads = deepcopy(base), load_ms(rows)
    for name, table in document["models"].items():
        if name in loads:
            table["load"] = f"{loads[name]:.3f}ms"
    for name, table in document["functions"].items():
        found: dict[tuple[int, int, int], list[float]] = {}
        for row in _of(rows, "alone", function=name):
            found.setdefault((row["batch"], row["cpus"], row["slices"]), []).extend(row["ms"])
        cells = [[*cell, float(f"{median(taken):.5g}"), _spread(taken)] for cell, taken in sorted(found.items())]
        table["cells"] = cells or table["cells"]
    return {**document, "source": source}


def load_ms(rows: Iterable[Row]) -> dict[str, float]:
    """Return by model the median time of its load, the eviction before it included, nothing beside it."""
    found: dict[str, list[float]] = {}
    for row in _of(rows, "load", workers=1):
        for name, took in row["ms"]:
            found.setdefault(name, []).append(took)
    return {name: median(taken) for name, taken in found.items()}


def slowdowns(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Return by (function, neighbour) its time beside the neighbour over its time alone on the same worker."""
    solo = {(row["worker"], row["function"]): median(row["ms"]) for row in _of(rows, "solo")}
    found: dict[tuple[str, str], list[float]] = {}
    for row in _of(rows, "beside"):
        names = row["functions"]
        for at, timed in enumerate(row["timings"]):
            ratio = median(timed["ms"]) / solo[row["workers"][at], names[at]]
            found.setdefault((names[at], names[1 - at]), []).append(ratio)
    return {pair: mean(ratios) for pair, ratios in found.items()}


def pairs(rows: Sequence[Row], models: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the table of pairs; functions with the same models count as measured with one of them."""
    by_model = {(models[name], models[other]): ratio for (name, other), ratio in slowdowns(rows).items()}
    table = []
    for name, model in models.items():
        for other, beside in models.items():
            if (ratio := by_model.get((model, beside))) is None:
                continue
            back = by_model.get((beside, model), 1.0)
            row = {"program": name, "co_runner": other, "sm_share_ppm": REFERENCE_SPEED_PPM}
            ppm = {"slowdown_ppm": round(ratio * 1e6), "harvest_ppm": round(1e6 / back)}
            table.append({**row, **ppm, "measured": True})
    return table


def write(document: toml.Document, path: Path) -> None:
    """Write a profile."""
    path.write_text(toml.write(document))


def write_pairs(table: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a table of pairs, a row a line."""
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in table) + "\n]\n")


def _of(rows: Iterable[Row], part: str, **keys: Any) -> list[Row]:
    return [row for row in rows if row.get("part") == part and all(row.get(key) == keys[key] for key in keys)]


def _spread(taken: Sequence[float]) -> float:
    return round(min(pstdev(map(log, taken)), MOST_SPREAD), 4) if len(taken) > 1 else 0.0
