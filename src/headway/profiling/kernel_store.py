"""Store what was measured of each program's kernels, by GPU and driver.

A folder, ``$HEADWAY_PROFILES`` or ``~/.cache/headway/kernels``; in it ``<gpu>/<driver>/<program>.json`` for each
program, and ``pairs.json`` for what programs do to each other. Each file is written whole or not at all. The broker
loads and saves through this, ``headway profile kernels`` writes it on purpose, the tables of the other scales read it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headway.errors import ProfileError
from headway.formats.pairs import VERSION, folder
from headway.profiling.store import put

PAIRS = "pairs"
PAIR_KEYS = ("program", "co_runner", "sm_share_ppm")
"""What a row of pairs is found by: a newer one with the same replaces it."""
_PAIR_NUMBERS = ("sm_share_ppm", "slowdown_ppm", "harvest_ppm")
_MOST_NAME = 100
Row = dict[str, Any]


def plain(name: str, otherwise: str = "unknown") -> str:
    """Turn a name into a part of a path: the same name always gives the same part."""
    made = re.sub(r"[^\w.+-]+", "_", name.strip()).strip("._")[:_MOST_NAME]
    return made or otherwise


class KernelStore:
    """The profiles of one GPU and driver."""

    def __init__(self, gpu: str, driver: str, place: Path | None = None) -> None:
        self.gpu, self.driver = gpu, driver
        self.folder = (place or folder()) / plain(gpu) / plain(driver)

    def path(self, program: str) -> Path:
        """Return the file of a program. One named like the file of pairs gets another name."""
        name = plain(program, "program")
        return self.folder / f"{name if name != PAIRS else PAIRS + '_'}.json"

    def programs(self) -> list[str]:
        """Return the programs of which something is known."""
        names = []
        for path in sorted(self.folder.glob("*.json")):
            if path.stem != PAIRS:
                with suppress(ProfileError):
                    names.append(str(_read(path).get("program", path.stem)))
        return names

    def load(self, program: str) -> tuple[list[Row], list[Row]] | None:
        """Return the kernels and steps of a program; None where it is not known."""
        entry = self.entry(program)
        return None if entry is None else (_rows(entry, "kernels"), _rows(entry, "steps"))

    def save(
        self,
        program: str,
        kernels: Sequence[Mapping[str, Any]],
        steps: Sequence[Mapping[str, Any]],
        summary: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what is known now. Without a summary the one that was there stays."""
        if summary is None:
            with suppress(ProfileError):  # what cannot be read is replaced
                before = (self.entry(program) or {}).get("summary")
                summary = before if isinstance(before, dict) else {}
        document = {
            "version": VERSION,
            "program": program,
            "gpu": self.gpu,
            "driver": self.driver,
            "summary": dict(summary or {}),
            "kernels": [dict(row) for row in kernels],
            "steps": [dict(row) for row in steps],
        }
        _write(self.path(program), document)

    def entry(self, program: str) -> Row | None:
        """Return all that is kept of a program; None where it is not known."""
        path = self.path(program)
        return _read(path) if path.exists() else None

    def pairs(self) -> list[Row]:
        """Return what programs do to each other: rows of program, co-runner and share of the SMs."""
        path = self.folder / f"{PAIRS}.json"
        return _rows(_read(path), "pairs") if path.exists() else []

    def add_pairs(self, rows: Sequence[Mapping[str, Any]]) -> Path:
        """Add rows; one that was there for the same pair and share goes, unless it was measured and the new one not."""
        kept = {_key(row): row for row in self.pairs()}
        for row in rows:
            new = _checked(row)
            old = kept.get(_key(new))
            if old is None or new["measured"] or not old.get("measured"):
                kept[_key(new)] = new
        path = self.folder / f"{PAIRS}.json"
        _write(path, {"version": VERSION, "pairs": [kept[key] for key in sorted(kept)]})
        return path


def stores(place: Path | None = None) -> list[KernelStore]:
    """Return a store for each GPU and driver that something is known of."""
    home = place or folder()
    known = [path for path in sorted(home.glob("*/*")) if path.is_dir() and any(path.glob("*.json"))]
    return [KernelStore(path.parent.name, path.name, home) for path in known]


def _key(row: Mapping[str, Any]) -> tuple[str, str, int]:
    program, co_runner, share = (row.get(key, "") for key in PAIR_KEYS)
    return str(program), str(co_runner), int(share or 0)


def _checked(row: Mapping[str, Any]) -> Row:
    for key in ("program", "co_runner"):
        if not isinstance(row.get(key), str) or not row[key]:
            raise ProfileError(f"pair {dict(row)}: {key} must be a name")
    for key in _PAIR_NUMBERS:
        value = row.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ProfileError(f"pair {row['program']}, {row['co_runner']}: {key} {value!r} must be a whole number")
    return {**row, "measured": bool(row.get("measured", False))}


def _rows(document: Mapping[str, Any], key: str) -> list[Row]:
    rows = document.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _read(path: Path) -> Row:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ProfileError(f"{path}: cannot be read ({problem.strerror or problem})") from None
    except ValueError:
        raise ProfileError(f"{path}: is broken, no JSON; remove it and it is learnt again") from None
    version = document.get("version") if isinstance(document, dict) else None
    if version != VERSION:
        raise ProfileError(f"{path}: is of version {version}, this headway reads {VERSION}; remove it to start anew")
    return dict(document)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    put(path, json.dumps(document, indent=1, allow_nan=False) + "\n", str(path))
