"""Hold what a reader returns: jobs, and an account of what was not taken from the file."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.errors import TraceError
from headway.formats.dates import Calendar
from headway.jobs.model.job import Job

SLURM = "slurm"
"""The format of sacct: some of what is said of a run holds for a Slurm's own records only."""
EXPLAINED = 3
"""So many bad rows are shown in a note."""
MOST_DROPPED = 10
"""A file is refused where one rule finds more than one row in so many bad."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """One row that was left out, and why. ``line`` is the line of a text file, the row of a Parquet file."""

    line: int
    column: str
    value: str
    rule: str
    fault: bool = True
    """Whether the row is bad. If not, it is sound and no job: it never started, it is part of another job, …"""
    jobs: int = 1
    """How many jobs it stands for: one row of Slurm holds all tasks of an array that wait."""

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
    passed_over: int = 0
    """Rows of the file that stand for no job of their own, such as the steps of Slurm's jobs."""
    calendar: Calendar | None = None
    """The date of time 0; None where the file has no dates."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why jobs waited, by name, as the file says: of Slurm the last reason other than Priority and Resources."""
    carried: frozenset[str] = frozenset()
    """Jobs, by name, that ran or waited when the part of the file begins that was cut out: no new arrivals."""
    eligible: Mapping[str, int] = field(default_factory=dict)
    """When jobs really became eligible, by name, where that was after their submission; like ``starts``."""
    requeued: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Jobs, by name, of which only the last attempt is here: how long after their first start it began, and for how
    much of that they had run."""
    ran: Mapping[str, int] = field(default_factory=dict)
    """Jobs that had not ended, by name, where their work is a guess: how long they had run, in nanoseconds."""


def by_rule(dropped: Iterable[Dropped]) -> list[list[Dropped]]:
    """Group rows by the rule that dropped them, the commonest rule first. Numbers in a rule do not make it another."""
    rules: dict[tuple[str, str], list[Dropped]] = {}
    for each in dropped:
        rules.setdefault((each.column, re.sub(r"\d+", "0", each.rule)), []).append(each)
    return sorted(rules.values(), key=len, reverse=True)


def too_many_dropped(dropped: Iterable[Dropped], rows: int) -> str:
    """Say which rule finds more than a tenth of the rows bad; empty where none does."""
    rules = by_rule(each for each in dropped if each.fault)
    if not rules or len(rules[0]) * MOST_DROPPED <= rows:
        return ""
    return f"one rule drops {len(rules[0]):,} of {rows:,} rows, more than a tenth, e.g. {rules[0][0]}"


def refuse_many_dropped(dropped: Iterable[Dropped], rows: int, path: str | Path, table: str = "trace") -> None:
    """Refuse a file of which one rule drops more than a tenth: it may well be read wrongly.

    ``table`` is the table of an experiment file whose key lets it pass.
    """
    if reason := too_many_dropped(dropped, rows):
        raise TraceError(
            f"trace {path}: {reason}; mend the file or the way it is read, "
            f"or go on without these rows with --skip-bad-rows (in an experiment file {table}.skip_bad_rows = true)"
        )


def dropped_note(dropped: Sequence[Dropped], rows: int, path: str | Path) -> str:
    """Return how many rows of a file were left out and why the first of them were, in one line."""
    reasons = "; ".join(str(each) for each in dropped[:EXPLAINED])
    others = f"; and {len(dropped) - EXPLAINED:,} more; headway trace inspect {path} shows them"
    jobs = sum(each.jobs for each in dropped)
    held = f" ({jobs:,} jobs: some rows hold several tasks of an array)" if jobs > len(dropped) else ""
    return f"{len(dropped):,} of {rows:,} rows dropped{held}: {reasons}{others if len(dropped) > EXPLAINED else ''}"
