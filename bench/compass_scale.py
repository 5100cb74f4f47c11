"""Write docs/background/results/compass-scale.csv from the results of experiments/sweeps/compass-scale.toml.

    headway fleet sweep --grid experiments/sweeps/compass-scale.toml -o sweeps/compass-scale
    python -m bench.compass_scale sweeps/compass-scale/results.csv docs/background/results/compass-scale.csv

A run's slow-down is the median over its measured requests. Of the ten seeds the median is written, and the second least
and second greatest: whatever the distribution over seeds is, its median lies between the two with 97.9 % confidence.
"""

import csv
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.serving import SCALE_COMPASS, SCALE_HASH

SHEET = {
    (policy, 20 * (index + 1)): value
    for policy, values in (("compass", SCALE_COMPASS), ("hash", SCALE_HASH))
    for index, value in enumerate(values)
}
"""Medians of the authors' own simulator."""
COLUMNS = (
    *("fidelity", "workers", "policy", "seeds", "slowdown_median", "low", "high", "slowdown_median_sheet"),
    *("slowdown_p95", "workers_used", "cache_hit_pct"),
)


def summary(runs: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return a row for each fidelity, number of workers and policy, in the order of the runs."""
    cells: dict[tuple[str, int, str], list[dict[str, str]]] = {}
    for run in runs:
        if run["error"]:
            raise SystemExit(f"{run['policy.name']} on {run['serving.workers']} workers: {run['error']}")
        key = (run["serving.fidelity"], int(run["serving.workers"]), run["policy.name"])
        cells.setdefault(key, []).append(run)
    rows = []
    for (fidelity, workers, policy), seeds in cells.items():
        medians = sorted(float(run["slowdown_p50"]) for run in seeds)
        sheet = SHEET.get((policy, workers)) if fidelity == "authors" else None
        values = (
            *(fidelity, workers, policy, len(seeds)),
            *(f"{value:.2f}" for value in (statistics.median(medians), medians[1], medians[-2])),
            "" if sheet is None else sheet,
            f"{_median(seeds, 'slowdown_p95'):.2f}",
            f"{_median(seeds, 'workers_used'):g}",
            f"{100 * _median(seeds, 'cache_hit_rate'):.1f}",
        )
        rows.append(dict(zip(COLUMNS, map(str, values), strict=True)))
    return rows


def _median(runs: Sequence[dict[str, str]], key: str) -> float:
    return statistics.median(float(run[key]) for run in runs)


def main(source: str, target: str) -> None:
    """Read the runs and write the rows."""
    with Path(source).open(newline="") as file:
        rows = summary(list(csv.DictReader(file)))
    with Path(target).open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
