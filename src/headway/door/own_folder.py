"""Folder that a server has for itself: made for its user alone, and held by a lock as long as the server runs."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from headway.device import locks as places
from headway.errors import InputError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOCK_S = 1.0


@contextlib.contextmanager
def held(lock: Path, taken: str, error: type[InputError]) -> Iterator[None]:
    """Make the folder of a lock and hold it; ``taken`` is the error where another process does, with {pid} in it."""
    make(lock.parent, error)
    if (handle := places.hold_within(lock, _LOCK_S, alone=True)) is None:
        raise error(taken.format(pid=places.holder(lock) or "unknown"))
    try:
        places.sign(handle)
        yield
    finally:
        os.close(handle)  # the file stays: whoever opened it sees the same lock


def make(folder: Path, error: type[InputError]) -> None:
    """Make a folder for this user alone; refuse one that others can write to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError as problem:
        raise error(f"--folder {folder}: {problem.strerror}") from None
    if about.st_uid != os.geteuid() or about.st_mode & _OTHERS_WRITE:
        raise error(f"--folder {folder}: others can write there: take a folder of your own (chmod 700)")
