"""Read sweeps of ESG's nine cells: means over seeds, differences by one assumption, and their CSV files.

Several folders may be given for the cells, of one grid that was run in parts. Cells that were not run are left out, so
tables can be made of a sweep that is still going on; of a cell, only seeds that all its policies have are counted.
Intervals are Student's t over seeds; those of differences are of the differences seed by seed.
"""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.statistics.intervals import replicated_interval

SLO = {"0.8L": "strict", "1.0L": "moderate", "1.2L": "relaxed"}
ARRIVALS = {"uniform:40ms,67.2ms": "light", "uniform:20ms,33.6ms": "normal", "uniform:10ms,16.8ms": "heavy"}
NONE, CALIBRATED = "none", "calibrated"
HITS, COST = "slo_hit_rate", "cost_per_request_usd"
SUMS = ("dropped", "cost_keepalive_usd", "controller_utilisation", "decision_wait_mean_s", "stale_actions")
ONE_CELL = ("moderate", "normal")
"""The cell in which assumptions are changed."""
DECISION_TIME = "decision time"
ASSUMPTIONS = {
    "wait": "batch wait",
    "prewarm": "warm pool",
    "histogram": "warm pool",
    "shrink": "warm pool",
    "dispatch": "dispatch",
    "every": "dispatch",
    "locality": "dispatch",
}
"""By option: which of the assumptions that the four competitors may share is changed; others are of their plans."""
Row = dict[str, Any]
Run = Mapping[str, Any]


class Cell(NamedTuple):
    """A cell of the grid and its policy."""

    controller: str
    start: str
    slo: str
    arrivals: str
    policy: str

    @property
    def place(self) -> "tuple[int | str, ...]":
        """Return its place in tables: no time for decisions first, warm first, strict first, light first."""
        orders = ((NONE, CALIBRATED), ("warm", "cold"), (*SLO.values(),), (*ARRIVALS.values(),))
        at = [known.index(value) if value in known else len(known) for value, known in zip(self, orders, strict=False)]
        return (*at, self.policy)


Runs = dict[Cell, dict[int, Run]]
"""The rows of cells, by seed."""


def read(folders: Iterable[Path]) -> Runs:
    """Return the runs of sweeps by cell and seed, in the order of tables."""
    runs: Runs = {}
    for folder in folders:
        for path in sorted((folder / "cells").glob("*.json")):
            record = json.loads(path.read_bytes())
            if record["row"] is not None:
                runs.setdefault(_cell(record), {})[record["seed"]] = record["row"]
    return dict(sorted(runs.items(), key=lambda item: item[0].place))


def _cell(record: Mapping[str, Any]) -> Cell:
    row = record["row"]
    values = {key.rpartition(".")[2]: str(value) for key, value in record["values"].items()}
    law = values.pop("controller", row.get("controller") or NONE)  # what does not vary is no key of the grid
    start, slo, arrivals = (values.pop(key, "") for key in ("start", "slo", "arrivals"))
    policy = values.pop("name", row["policy"])
    if values:
        raise SystemExit(
            f"cell of {policy}: varies {', '.join(values)}; tables are by controller, start, slo, arrivals"
        )
    return Cell(NONE if law == NONE else CALIBRATED, start, SLO.get(slo, slo), ARRIVALS.get(arrivals, arrivals), policy)


def means(runs: Runs) -> list[Row]:
    """Return a row for each cell and policy with means and intervals over the seeds that all policies of it have.

    Where decisions take time, also what that changes: in the seeds that were run without, too.
    """
    seeds: dict[tuple[str, ...], set[int]] = {}
    for cell, group in runs.items():
        seeds[cell[:-1]] = seeds.get(cell[:-1], set(group)) & set(group)
    rows = []
    for cell, group in runs.items():
        row = _mean(cell, [group[seed] for seed in sorted(seeds[cell[:-1]] or group)])
        timed = cell.controller == CALIBRATED
        rows.append(row | _difference(runs.get(cell._replace(controller=NONE), {}) if timed else {}, group))
    return rows


def _mean(cell: Cell, group: Sequence[Run]) -> Row:
    row: Row = {**cell._asdict(), "seeds": len(group), "requests": group[0]["requests"]}
    for name in (HITS, COST):
        row |= _with_interval(name, [float(run[name]) for run in group])
    row |= {name: sum(float(run.get(name) or 0) for run in group) / len(group) for name in SUMS}
    return row | {"law": group[0].get("controller") or "" if cell.controller == CALIBRATED else ""}


def _with_interval(name: str, values: Sequence[float]) -> Row:
    low, high = (replicated_interval(values) if len(values) > 1 else None) or (None, None)
    return {name: sum(values) / len(values), f"{name}_low": low, f"{name}_high": high}


# --- one assumption at a time ---------------------------------------------------------------------------------


def changes(nine: Runs, changed: Runs) -> list[Row]:
    """Return what policies gain by one option, or by decisions that take time, seed by seed, in the cell of both."""
    rows = []
    here = {cell: runs for cell, runs in nine.items() if cell[2:4] == ONE_CELL}
    for cell, runs in here.items():
        base = cell._replace(controller=NONE)
        if cell.controller == CALIBRATED and base in here:
            rows.append(_change(cell, DECISION_TIME, "controller=calibrated", here[base], runs))
    for cell, runs in changed.items():
        name, _, option = cell.policy.removesuffix(")").partition("(")
        if option and (base := cell._replace(policy=name)) in changed:
            assumption = ASSUMPTIONS.get(option.partition("=")[0], "plan")
            rows.append(_change(base, assumption, option, changed[base], runs))
    return sorted(
        (row for row in rows if row), key=lambda row: (row["start"] != "warm", row["policy"], row["assumption"])
    )


def _change(cell: Cell, assumption: str, option: str, before: Mapping[int, Run], after: Mapping[int, Run]) -> Row:
    named = {"start": cell.start, "policy": cell.policy, "assumption": assumption, "changed": option}
    seeds = set(before) & set(after)
    return {**named, "seeds": len(seeds), **_difference(before, after)} if seeds else {}


def _difference(before: Mapping[int, Run], after: Mapping[int, Run]) -> Row:
    """Return the points in time that are gained, with an interval, and what it costs more, seed by seed."""
    pairs = [(before[seed], after[seed]) for seed in sorted(set(before) & set(after))]
    if not pairs:
        return {"points": None, "points_low": None, "points_high": None, "cost_percent": None}
    points = _with_interval("points", [100 * (new[HITS] - old[HITS]) for old, new in pairs])
    return points | {"cost_percent": sum(100 * (new[COST] / old[COST] - 1) for old, new in pairs) / len(pairs)}


# --- files ----------------------------------------------------------------------------------------------------


def write(rows: Sequence[Row], path: Path) -> None:
    """Write rows as CSV, without columns that are empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        named = [key for key in rows[0] if any(row[key] not in ("", None) for row in rows)]
        writer = csv.DictWriter(file, named, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.8g}" if isinstance(value, float) else value for key, value in row.items()})


def load(path: Path) -> list[Row]:
    """Return the rows of a CSV file as they were before they were written, to so many digits."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: _value(key, text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(key: str, text: str) -> Any:
    number: Callable[[str], Any] = int if key in ("seeds", "requests") else float
    if key in (*Cell._fields, "assumption", "changed", "law"):
        return text
    return number(text) if text else None
