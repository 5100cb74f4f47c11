"""Rows of CSV files and lines of progress of the measurements of a language model."""

import csv
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

BEGAN = time.monotonic()


def said(text: str) -> None:
    """Print a line of progress with the time since the start."""
    print(f"{time.monotonic() - BEGAN:6.1f} s  {text}", flush=True)


def appended(path: Path, row: dict[str, object]) -> None:
    """Add a row to a CSV file, with its header where it is new."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow(row)


def written(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write a CSV file anew; the header is that of the first row."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
