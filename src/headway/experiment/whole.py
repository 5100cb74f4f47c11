"""Files that are there as a whole or not at all: whoever is killed while writing one leaves the one from before."""

import os
import re
from contextlib import suppress
from pathlib import Path

from headway.errors import TapeError

_UNFINISHED = re.compile(r"\..+\.\d+")


def write_whole(path: Path, content: bytes) -> None:
    """Put a file down under another name, and let it take its place when all of it is on the disk."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(unfinished, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as problem:
        with suppress(OSError):
            unfinished.unlink()
        raise TapeError(f"{path}: cannot be written ({problem.strerror or problem})") from None


def remove_unfinished(folder: Path) -> None:
    """Remove what those who were killed left of files; only where nobody writes at this moment."""
    with suppress(OSError):
        for path in folder.iterdir():
            if _UNFINISHED.fullmatch(path.name) and path.is_file():
                path.unlink(missing_ok=True)
