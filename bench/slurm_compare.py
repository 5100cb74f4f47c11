"""Compare replays of recorded runs of one workload with the spread of Slurm itself from run to run.

    python -m bench.slurm_compare FOLDER

reads ``FOLDER/run-*`` of bench/slurm_site_lab.py. The spread is over all pairs of runs: how far the first starts of a
job are apart (median and p90 over jobs and pairs), how far the mean waits are apart (mean over pairs). The error of the
replay is the same between a run and its replay. It is asked to be at most 1.5 times the spread, or 5 % of the mean wait
where that is more.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np

from bench.slurm_replay import Past, past, replay

TIMES = 1.5
PART = 0.05
Waits = Mapping[str, float]
"""Time from submission to the first start of jobs that started, by name."""


@dataclass(frozen=True, slots=True)
class Apart:
    """How far pairs of runs are apart, in seconds."""

    median: float
    p90: float
    mean: float
    """Of the mean waits."""

    def values(self) -> tuple[float, float, float]:
        """Return all three."""
        return self.median, self.p90, self.mean


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the comparison."""

    qos: str
    jobs: int
    wait: float
    """Mean of the recorded runs."""
    spread: Apart
    error: Apart

    @property
    def allowed(self) -> tuple[float, ...]:
        """The most that each error may be."""
        return tuple(max(TIMES * own, PART * self.wait) for own in self.spread.values())

    @property
    def kept(self) -> tuple[bool, ...]:
        """Which errors are within what is asked."""
        return tuple(error <= most for error, most in zip(self.error.values(), self.allowed, strict=True))


def apart(pairs: Iterable[tuple[Waits, Waits]], chosen: Callable[[str], bool]) -> Apart:
    """Return how far pairs of runs are apart, over the chosen jobs that started in both."""
    distances: list[float] = []
    means: list[float] = []
    for one, other in pairs:
        names = [name for name in one if name in other and chosen(name)]
        distances += [abs(one[name] - other[name]) for name in names]
        means.append(abs(fmean(one[name] for name in names) - fmean(other[name] for name in names)))
    return Apart(float(np.median(distances)), float(np.quantile(distances, 0.9)), fmean(means))


def lines(recorded: Sequence[Mapping[str, Past]], simulated: Sequence[Waits]) -> list[Line]:
    """Return the comparison in each QOS and in all."""
    waits = [_waits(run) for run in recorded]
    qos = {name: job.qos for run in recorded for name, job in run.items()}
    made = []
    for group in (*sorted(set(qos.values())), "all"):

        def chosen(name: str, group: str = group) -> bool:
            return group in ("all", qos[name])

        mean = fmean(wait for run in waits for name, wait in run.items() if chosen(name))
        spread = apart(combinations(waits, 2), chosen)
        error = apart(zip(waits, simulated, strict=True), chosen)
        made.append(Line(group, sum(map(chosen, qos)), mean, spread, error))
    return made


def victims(runs: Sequence[frozenset[str]]) -> float:
    """Return the mean part of victims that two runs share (Jaccard)."""
    return fmean(len(one & other) / (len(one | other) or 1) for one, other in combinations(runs, 2))


def _waits(run: Mapping[str, Past]) -> Waits:
    return {name: job.start - job.submit for name, job in run.items() if job.start is not None}


def table(found: Sequence[Line]) -> str:
    """Return the comparison as a table in Markdown."""
    head = "| QOS | jobs | mean wait | median: Slurm | ours | p90: Slurm | ours | mean wait: Slurm | ours | within |"
    rows = [head, "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"]
    for line in found:
        pairs = zip(line.spread.values(), line.error.values(), strict=True)
        numbers = [f"{value:.1f}" for pair in pairs for value in pair]
        within = ", ".join("yes" if kept else "no" for kept in line.kept)
        rows.append(f"| {line.qos} | {line.jobs} | {line.wait:.1f} | {' | '.join(numbers)} | {within} |")
    return "\n".join(rows)


def compared(folder: Path) -> tuple[list[Line], str]:
    """Return the comparison of a folder of runs, and what is to be said about victims of preemption."""
    folders = sorted(path.parent for path in folder.glob("run-*/sacct.txt*"))
    recorded = [past(each) for each in folders]
    simulated, preempted = [], []
    for each, run in zip(folders, recorded, strict=True):
        played, _ = replay(each)
        starts = {name: job.start for name, job in played.items() if job.start is not None}
        simulated.append({name: start - run[name].submit for name, start in starts.items()})
        preempted.append(frozenset(name for name, job in played.items() if job.preempted))
    seen = [frozenset(name for name, job in run.items() if job.preempted) for run in recorded]
    both = fmean(len(one & other) / (len(one | other) or 1) for one, other in zip(seen, preempted, strict=True))
    told = (
        f"Victims of preemption: {', '.join(str(len(each)) for each in seen)} in the runs of Slurm "
        f"({victims(seen):.0%} shared by two runs), {', '.join(str(len(each)) for each in preempted)} in the replays "
        f"({both:.0%} shared by a run and its replay)."
    )
    return lines(recorded, simulated), told


def main() -> None:
    """Print the comparison of a folder of runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    found, told = compared(parser.parse_args().folder)
    print(f"{table(found)}\n\n{told}")


if __name__ == "__main__":
    main()
