"""Check records of Slurm against its rules: who held what at once, what began after what, who was preempted."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.slurm_replay import rows, seconds
from headway.jobs.slurm.output.lists import hosts


@dataclass(frozen=True, slots=True)
class Attempt:
    """A job, or one attempt of a requeued one: one row of sacct that ran."""

    row: dict[str, str]
    start: float
    end: float
    gpus: int

    def __getitem__(self, column: str) -> str:
        return self.row[column]

    @property
    def nodes(self) -> list[str]:
        """The nodes that it held."""
        return list(hosts(self["NodeList"]))


def attempts(trace: Path) -> list[Attempt]:
    """Return all attempts that ran."""
    made = []
    for row in rows(trace):
        start, end = seconds(row["Start"]), seconds(row["End"])
        gpus = re.search(r"gres/gpu=(\d+)", row["AllocTRES"])
        if start is not None and end is not None and row["NodeList"] != "None assigned":
            made.append(Attempt(row, start, end, int(gpus[1]) if gpus else 0))
    return made


def most(chosen: list[Attempt], amount: Callable[[Attempt], int] = lambda each: each.gpus) -> int:
    """Return the most that was held at once; of one second ends come before starts."""
    changes = sorted(change for each in chosen for change in ((each.start, amount(each)), (each.end, -amount(each))))
    level = peak = 0
    for _, change in changes:
        level += change
        peak = max(peak, level)
    return peak


def grouped(chosen: list[Attempt], column: str) -> Iterator[tuple[str, list[Attempt]]]:
    """Yield attempts by what a column says."""
    for value in sorted({each[column] for each in chosen}):
        yield value, [each for each in chosen if each[column] == value]


def overlapping(chosen: list[Attempt], begin: float, end: float) -> list[Attempt]:
    """Return the attempts that ran at some time in between."""
    return [each for each in chosen if each.start < end and each.end > begin]
