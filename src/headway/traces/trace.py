"""What a reader hands over: jobs, and an honest account of what was not taken from the file."""

from dataclasses import dataclass

from headway.training.job import Job


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
