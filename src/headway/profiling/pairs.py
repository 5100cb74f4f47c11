"""Read interference tables: ``pairs.json`` of the profile store, a user's file, or one that ships with the package.

A list of objects with the keys of ``profiling.interference.Pair``, by itself or, as the store writes it, under
``pairs`` beside a ``version``. ``gpu predict`` writes one for each GPU and driver; the shipped ones were measured on
one machine and are named after its GPU.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.errors import ProfileError, unknown_name
from headway.profiling.interference import PairTable

FOLDER = Path(__file__).parent
SUFFIX = "-pairs.json"
STORE = "store"
"""The name for the user's own store."""
STORE_VARIABLE = "HEADWAY_PROFILES"
NAME = "pairs.json"
VERSION = 1
"""Of a file that says one."""


def shipped() -> dict[str, Path]:
    """Return the tables that come with the package, by name."""
    return {path.name.removesuffix(SUFFIX): path for path in sorted(FOLDER.glob(f"*{SUFFIX}"))}


def load(name: str, names: Mapping[str, str] | None = None) -> PairTable:
    """Return the table of that name or file; ``names``: patterns for programs, to what the table calls them."""
    return read(path_of(name), names)


def path_of(name: str) -> Path:
    """Return the path of a table: a shipped one by its name, the user's own by ``store``, any other by its path."""
    tables = shipped()
    if name in tables:
        return tables[name]
    if name == STORE:
        return _stored()
    path = Path(name).expanduser()
    if path.suffix != ".json" and not path.exists():
        raise ProfileError(f"{unknown_name('interference', name, [*tables, STORE])}; a file ends in .json")
    return path


def folder() -> Path:
    """Return the user's store of kernel profiles."""
    given = os.environ.get(STORE_VARIABLE, "")
    cache = os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache"
    return Path(given).expanduser() if given else Path(cache) / "headway" / "kernels"


def _stored() -> Path:
    files = sorted(folder().glob(f"*/*/{NAME}"))
    if not files:
        raise ProfileError(f"interference store: no {NAME} in {folder()}; headway gpu predict A B writes one")
    if len(files) > 1:
        listed = ", ".join(str(path) for path in files)
        raise ProfileError(f"interference store: there is a table for each GPU and driver; name one of {listed}")
    return files[0]


def read(path: Path, names: Mapping[str, str] | None = None) -> PairTable:
    """Return the table of a file."""
    where = f"interference {path}"
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProfileError(f"{where}: there is no such file") from None
    except OSError as problem:
        raise ProfileError(f"{where}: cannot be read ({problem.strerror or problem})") from None
    except (ValueError, RecursionError) as problem:  # no text, no JSON, or brackets without end
        raise ProfileError(f"{where}: is no JSON ({problem})") from None
    return PairTable.from_rows(_listed(rows, where), where, names)


def _listed(document: Any, where: str) -> list[Any]:
    if isinstance(document, dict) and "pairs" in document:
        if (version := document.get("version", VERSION)) != VERSION:
            raise ProfileError(f"{where}: is of version {version!r}, this headway reads version {VERSION}")
        document = document["pairs"]
    if not isinstance(document, list):
        raise ProfileError(f"{where}: must be a list of pairs, not {type(document).__name__}")
    return document
