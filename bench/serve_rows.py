"""Rows of the measurements of live serving: JSON lines that are on disk at once, and tables of them.

    python -m bench.serve_rows docs/background/results/live-serving docs/background/results/live-serving.md

writes the tables of a folder into a page, each between the comments that name it; without a page it prints them. A
measurement that was cut short goes on where it was: rows that are there are not measured again, unless their file is
removed.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path("live-serving")
"""Where rows go unless another folder is named."""
Row = dict[str, Any]


class Rows:
    """The rows of one file."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.jsonl"
        self.rows = read(self.path)

    def clear(self) -> None:
        """Forget all rows."""
        self.path.unlink(missing_ok=True)
        self.rows = []

    def found(self, **key: Any) -> list[Row]:
        """Return the rows that have these values."""
        return [row for row in self.rows if all(row.get(name) == value for name, value in key.items())]

    def add(self, row: Row) -> Row:
        """Print, keep and return a row."""
        print(json.dumps(row), flush=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)
        return row


def read(path: Path) -> list[Row]:
    """Return the rows of a file; a line that a kill cut short is left out."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def table(rows: Iterable[Row], columns: Sequence[str]) -> str:
    """Return rows as a table of Markdown."""
    lines = [columns, ["---"] * len(columns), *([_shown(row.get(name)) for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{count} × {name}" for name, count in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "" if value is None else f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)


TABLES = {
    "no-op": ("policy", "p50_ms", "p99_ms", "tasks_per_s"),
    "ray": ("part", "system", "round", "requests", "answered", "p50_ms", "p99_ms", "hit_rate", "answers_per_s"),
    "ratios": ("what", "ratio", "asked", "met"),
    "faults": (
        "fault",
        "rate",
        "seconds",
        "sent",
        "answered",
        "failed",
        "slowest_failure_s",
        "p50_ms",
        "p99_ms",
        "back_s",
        "left",
        "met",
    ),
    "distance": (
        "app",
        "round",
        "rate",
        "requests",
        "failed",
        "mean_ms",
        "simulated_mean_ms",
        "mean_off",
        "p99_ms",
        "simulated_p99_ms",
        "p99_off",
        "others_cpus",
        "met",
    ),
    "soak": ("seconds", "rate", "sent", "failed", "memory_change", "files_change", "processes", "met"),
    "fuzz": ("operations", "cases", "found", "seconds", "met"),
}
"""By file: the columns that are shown."""


def page_with(text: str, folder: Path) -> str:
    """Return a page with the tables of a folder, each between ``<!-- NAME -->`` and ``<!-- end -->``."""
    for name, columns in TABLES.items():
        rows = read(folder / f"{name}.jsonl")
        shown = table(rows, columns) if rows else "Not measured yet."
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{shown}\n{end}{rest.partition(end)[2]}"
    return text


def main(folder: Path, page: Path | None = None) -> None:
    """Print the tables of a folder, or write them into a page."""
    if page is not None:
        page.write_text(page_with(page.read_text(encoding="utf-8"), folder), encoding="utf-8")
        return
    for name, columns in TABLES.items():
        print(f"{name}\n\n{table(read(folder / f'{name}.jsonl'), columns)}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:] or [str(FOLDER)]))
