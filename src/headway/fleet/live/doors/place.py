"""Folder of a server: where its lock, its socket and its answers by key are, and which servers run here.

A server named ``reading`` has ``$XDG_RUNTIME_DIR/headway/serve/reading``, or ``~/.cache/headway/serve/reading`` where
that is not set. The lock is held by ``flock``, which the kernel releases when the server dies. What is in the folder
outlives the server: answers by key are found by the next one.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.device import locks as places
from headway.door import own_folder
from headway.errors import NoServerError, ServeError

START = "headway serve start app.py starts one"


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one server."""

    folder: Path

    @property
    def lock(self) -> Path:
        """Return the lock that the server holds as long as it runs."""
        return self.folder / "lock"

    @property
    def socket(self) -> Path:
        """Return the socket of clients of the same user."""
        return self.folder / "socket"

    @property
    def keys(self) -> Path:
        """Return the file of answers by key."""
        return self.folder / "keys.sqlite"

    @property
    def runs(self) -> bool:
        """Return whether a server holds the folder."""
        return places.held(self.lock)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and hold its lock; raise ServeError where another server does, or others can write to it."""
        taken = (
            f"{self.folder}: a server runs there already (process {{pid}}): headway serve stop --server "
            f"{self.folder} ends it, or give this one another --folder"
        )
        with own_folder.held(self.lock, taken, ServeError):
            yield


def parents() -> tuple[Path, ...]:
    """Return the folders that named servers have theirs in: the one for new servers first."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    each = [Path(runtime), cache] if runtime and Path(runtime).is_dir() else [cache]
    return tuple(parent / "headway" / "serve" for parent in each)


def place_of(text: str) -> Place:
    """Return the place of a new server: a folder where the text has a slash, else a name."""
    if not text.strip() or "\0" in text:
        raise ServeError(f"--folder {text!r}: a folder, or a name without a slash")
    return Place(Path(text).expanduser().absolute() if os.sep in text or text in (".", "..") else parents()[0] / text)


def storage_of(text: str) -> Path:
    """Return the folder on a disk for what is large, as weights are: that of a named server may lie in memory."""
    return place_of(text).folder if os.sep in text else parents()[-1] / text


def running() -> list[Place]:
    """Return the servers with a name that run on this machine for this user."""
    found = []
    for parent in parents():
        with contextlib.suppress(OSError):
            found += [place for folder in sorted(parent.iterdir()) if (place := Place(folder)).runs]
    return found


def find(text: str = "") -> Place:
    """Return the place of a server that runs: a folder, a name, or nothing for the only one."""
    if text:
        named = place_of(text)
        tried = [named] if os.sep in text else [Place(parent / text) for parent in parents()]
        for place in tried:
            if place.runs:
                return place
        raise NoServerError(f"no server runs in {named.folder}: {START}")
    places_found = running()
    if len(places_found) > 1:
        names = ", ".join(place.folder.name for place in places_found)
        raise ServeError(
            f"several servers run here ({names}): say which with --server NAME; in Python, hw.client(NAME)"
        )
    if not places_found:
        raise NoServerError(f"no server runs here: {START}")
    return places_found[0]
