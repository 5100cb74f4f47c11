"""Writes what ``sacct`` would have printed of a record at earlier times, for ``headway shadow``.

    python -m examples.slurm.site.looks sacct.txt FOLDER [--every 6h] [--count 20]

A job that was submitted later is not there; one that had not started waits; one that had not ended runs.
"""

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

_NEVER = datetime(9999, 1, 1)  # noqa: DTZ001  a clock on a wall names no zone
_UNITS = {"m": 60, "h": 3600, "d": 86_400}


def seen(lines: Sequence[str], at: datetime) -> str:
    """Return a table of ``sacct --parsable2`` as it was at a time."""
    names = lines[0].split("|")
    rows = (dict(zip(names, line.split("|", len(names) - 1), strict=True)) for line in lines[1:] if line)
    return "\n".join([lines[0], *("|".join(row.values()) for row in _as_of(rows, at))]) + "\n"


def _as_of(rows: Iterator[dict[str, str]], at: datetime) -> Iterator[dict[str, str]]:
    for row in rows:
        submit, eligible, start, end = (_time(row[name]) for name in ("Submit", "Eligible", "Start", "End"))
        if submit > at:
            continue
        if end <= at:
            yield row
        elif start <= at:
            elapsed = _span(at - start)
            yield {**row, "State": "RUNNING", "Reason": "None", "End": "Unknown", "Elapsed": elapsed}
        else:
            waits = {"State": "PENDING", "Start": "Unknown", "End": "Unknown", "Elapsed": "00:00:00"}
            reason = row["Reason"] if row["Reason"] not in ("", "None") else "Priority"
            yield {
                **row,
                **waits,
                "Eligible": row["Eligible"] if eligible <= at else "Unknown",
                "Reason": reason,
                "AllocTRES": "",
                "NodeList": "None assigned",
            }


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text) if text[:1].isdigit() else _NEVER


def _span(length: timedelta) -> str:
    hours, rest = divmod(length.seconds, 3600)
    text = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{length.days}-{text}" if length.days else text


def times(lines: Sequence[str], count: int, every_s: int = 0) -> list[datetime]:
    """Return times of looks, the last of them when all has ended; closer where more happens unless told otherwise."""
    names = lines[0].split("|")
    cells = [dict(zip(names, line.split("|", len(names) - 1), strict=True)) for line in lines[1:] if line]
    happened = sorted(time for row in cells for name in ("Submit", "End") if (time := _time(row[name])) != _NEVER)
    last = happened[-1] + timedelta(seconds=1)
    if every_s:
        chosen = [happened[0] + timedelta(seconds=every_s * number) for number in range(1, count)]
    else:
        chosen = [happened[len(happened) * number // count] for number in range(1, count)]
    return [*(time for time in dict.fromkeys(chosen) if time < last), last]


def write(sacct: Path, folder: Path, count: int, every_s: int = 0) -> list[Path]:
    """Write a file a look; return them in their order."""
    lines = sacct.read_text().splitlines()
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, at in enumerate(times(lines, count, every_s)):
        paths.append(folder / f"sacct-{number:04}.txt")
        paths[-1].write_text(seen(lines, at))
    return paths


def main() -> None:
    """Write the files from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sacct", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", default="", help="time between looks: 6h; else they are closer where more happens")
    parser.add_argument("--count", type=int, default=20, help="looks")
    given = parser.parse_args()
    every_s = int(given.every[:-1]) * _UNITS[given.every[-1]] if given.every else 0
    print(f"{len(write(given.sacct, given.folder, given.count, every_s)):,} looks in {given.folder}")


if __name__ == "__main__":
    main()
