"""Store of kernel profiles: files for each program, by GPU and driver, kept from one run to the next.

The folder is ``$HEADWAY_PROFILES`` or ``~/.cache/headway/kernels``. It holds ``<gpu>/<driver>/<program>.json`` for each
program, ``pairs.json`` for the slow-downs of pairs, and ``boldness.json`` for what a broker has learnt of each pair:
how bold the dial was, and how the program below went. Files are written atomically. The broker loads and saves profiles
here, ``headway profile kernels`` writes them, and the other scales read the pairs.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headway.errors import ProfileError
from headway.profiling.pairs import VERSION, folder
from headway.profiling.store import put

PAIRS = "pairs"
BOLDNESS = "boldness"
_NOT_PROGRAMS = (PAIRS, BOLDNESS)
PAIR_KEYS = ("program", "co_runner", "sm_share_ppm")
"""Key of a row of pairs: a newer row with the same key replaces it."""
_PAIR_NUMBERS = ("sm_share_ppm", "slowdown_ppm", "harvest_ppm")
_MOST_NAME = 100
_BOLDEST_PPM = 4_000_000
Row = dict[str, Any]


def plain(name: str, otherwise: str = "unknown") -> str:
    """Return a name as a safe part of a path; the same name always gives the same part."""
    part = re.sub(r"[^\w.+-]+", "_", name.strip()).strip("._")[:_MOST_NAME]
    return part or otherwise


class KernelStore:
    """The profiles of one GPU and driver."""

    def __init__(self, gpu: str, driver: str, place: Path | None = None) -> None:
        self.gpu, self.driver = gpu, driver
        self.folder = (place or folder()) / plain(gpu) / plain(driver)

    def path(self, program: str) -> Path:
        """Return the file of a program. One named like the file of pairs gets another name."""
        name = plain(program, "program")
        return self.folder / f"{name if name not in _NOT_PROGRAMS else name + '_'}.json"

    def programs(self) -> list[str]:
        """Return the programs that have a profile."""
        programs = []
        for path in sorted(self.folder.glob("*.json")):
            if path.stem not in _NOT_PROGRAMS:
                with suppress(ProfileError):
                    programs.append(str(_read(path).get("program", path.stem)))
        return programs

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
        """Write the profile of a program. Without a summary the old one stays."""
        if summary is None:
            with suppress(ProfileError):  # a broken profile is replaced
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
        """Return the whole document of a program; None where it is not known."""
        path = self.path(program)
        return _read(path) if path.exists() else None

    def learnt(self) -> dict[tuple[str, str], Row]:
        """Return what a broker has learnt of each pair of programs (above, below), with its boldness where known."""
        path = self.folder / f"{BOLDNESS}.json"
        rows = _rows(_read(path), "pairs") if path.exists() else []
        found: dict[tuple[str, str], Row] = {}
        for row in rows:
            pair = str(row.pop("program", "")), str(row.pop("below", ""))
            boldness = row.get("boldness_ppm", 0)
            if not isinstance(boldness, int) or not 0 <= boldness <= _BOLDEST_PPM:
                del row["boldness_ppm"]  # the rest of the row is as good as before
            if row:
                found[pair] = row
        return found

    def save_learnt(self, learnt: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        """Write what was learnt of these pairs; other pairs, and what else is known of these, stay."""
        known: dict[tuple[str, str], Row] = {}
        with suppress(ProfileError):  # a broken file is replaced
            known = self.learnt()
        for pair, row in learnt.items():
            known[pair] = {**known.get(pair, {}), **row}
        rows = [{"program": above, "below": below, **known[above, below]} for above, below in sorted(known)]
        _write(self.folder / f"{BOLDNESS}.json", {"version": VERSION, "pairs": rows})

    def pairs(self) -> list[Row]:
        """Return the slow-downs of pairs: rows by program, co-runner and share of the SMs."""
        path = self.folder / f"{PAIRS}.json"
        return _rows(_read(path), "pairs") if path.exists() else []

    def add_pairs(self, rows: Sequence[Mapping[str, Any]]) -> Path:
        """Add rows of pairs; each replaces the one with its key, unless only that was measured. Return the file."""
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
    """Return a store for each GPU and driver that has profiles."""
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
        raise ProfileError(f"{path}: is not JSON; remove it and it is learnt again") from None
    version = document.get("version") if isinstance(document, dict) else None
    if version != VERSION:
        raise ProfileError(f"{path}: is of version {version}, this headway reads {VERSION}; remove it to start again")
    return dict(document)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    put(path, json.dumps(document, indent=1, allow_nan=False) + "\n", str(path))
