"""The rows of ``scripts/bench --growth``: what is known of each point, in a CSV that a command can go on with."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import astuple

from bench.growth import GPUS_PER_NODE, Point
from headway.errors import InputError
from headway.files import write_whole

STEEPEST = 3.0
"""The power of the size with which the time of a point is expected to grow at most."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One point; without numbers where it was not measured, and ``note`` says why."""

    series: str
    policy: str
    jobs: int
    gpus: int
    wall_s: float | None = None
    cpu_s: float | None = None
    jobs_per_s: float | None = None
    """Jobs a second of CPU time, which others on the machine disturb least."""
    peak_bytes: int | None = None
    decisions: int | None = None
    tape_bytes: int | None = None
    digest: str = ""
    """Of the tape, its first twelve digits: the same decisions have the same."""
    took_s: float | None = None
    """CPU seconds of the whole process: starting, drawing the jobs and checking the result included."""
    limit_s: float
    code: str
    """Changes with the source."""
    note: str = ""

    @property
    def point(self) -> Point:
        """Return the point that this row is about."""
        return Point(self.series, self.policy, self.jobs, self.gpus // GPUS_PER_NODE)


def read(path: Path) -> list[Row]:
    """Return the rows of a file, from the smallest point of a series on; a line that a kill cut short is left out."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()
        found = [{key: value for key, value in each.items() if value} for each in csv.DictReader(lines)]
        rows = msgspec.convert(found, list[Row], strict=False)
    except (OSError, ValueError) as problem:
        raise InputError(f"{path} holds no rows of --growth ({problem}): name another file with --out") from None
    return sorted(rows, key=lambda row: row.point.size)


def _line(values: Iterable[object]) -> str:
    """Return a line of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


class Rows:
    """The rows of a file, by point; what is added is on disk at once."""

    def __init__(self, path: Path, limit_s: float) -> None:
        """Read what is there; points that a lower limit kept out are forgotten, so that they are tried again."""
        self.path = path
        kept = [row for row in read(path) if not row.note or row.limit_s >= limit_s]
        self.known = {row.point: row for row in kept}
        write_whole(path, "".join([_line(Row.__struct_fields__), *(_line(astuple(row)) for row in kept)]), InputError)

    def add(self, row: Row) -> None:
        """Append a row."""
        self.known[row.point] = row
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_line(astuple(row)))

    def smaller(self, point: Point) -> list[Row]:
        """Return what is known of smaller points of the same series and policy, the smallest first."""
        alike = (row for at, row in self.known.items() if at[:2] == point[:2] and at.size < point.size)
        return sorted(alike, key=lambda row: row.point.size)


def exponent(rows: Sequence[Row], measure: str = "cpu_s") -> float | None:
    """Return the power of the size with which a measure grew between the last two rows that have it."""
    known = [(row.point.size, value) for row in rows if (value := getattr(row, measure))]
    if len(known) < 2:
        return None
    (size, value), (larger, more) = known[-2:]
    return math.log(more / value) / math.log(larger / size)


def why_not(point: Point, smaller: Sequence[Row], limit_s: float) -> str:
    """Return why a point is not begun, from what smaller ones took; empty where it is."""
    if not smaller:
        return ""
    last = smaller[-1]
    if last.took_s is None:
        return f"not run: the smaller point with {last.jobs:,} jobs on {last.gpus:,} GPUs has no result"
    power = min(max(exponent(smaller, "took_s") or 1.0, 1.0), STEEPEST)
    expected_s = last.took_s * (point.size / last.point.size) ** power
    if expected_s <= limit_s:
        return ""
    return f"not run: about {expected_s:,.0f} CPU s are expected, and the limit is {limit_s:g}"


def measured_only(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with numbers."""
    return [row for row in rows if not row.note]
