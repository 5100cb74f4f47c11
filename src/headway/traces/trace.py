"""What a reader hands over: jobs, and an honest account of what was not taken from the file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.training.job import Job

EXPLAINED = 3
"""So many bad rows are shown in a note."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """One row that was left out, and why. ``line`` is the line of a text file, the row of a Parquet file."""

    line: int
    column: str
    value: str
    rule: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.column} {self.value!r} {self.rule}"


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload read from a file. The first submission is at 0, the moment the run begins."""

    jobs: tuple[Job, ...]
    format: str
    rows: int
    """Rows of data in the file, dropped ones included, blank lines not."""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader of results should know about the file, e.g. that it was not sorted."""
    starts: Mapping[str, int] = field(default_factory=dict)
    """When jobs really started, by name, in nanoseconds since the run began; empty where the file does not say."""


def dropped_note(dropped: Sequence[Dropped], rows: int, path: str | Path) -> str:
    """How many rows of a file were left out and why the first of them were, in one line."""
    reasons = "; ".join(str(each) for each in dropped[:EXPLAINED])
    others = f"; and {len(dropped) - EXPLAINED:,} more; headway trace inspect {path} shows them"
    return f"{len(dropped):,} of {rows:,} rows dropped: {reasons}{others if len(dropped) > EXPLAINED else ''}"
