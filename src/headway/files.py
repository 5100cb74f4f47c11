"""Write files atomically: to a temporary file with an unguessable name, renamed when it is complete.

Whoever is killed or stopped on the way leaves the file from before. The draft is made anew (``O_EXCL``) and links are
not followed, so that somebody else's file is never written.
"""

import gzip
import io
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from headway.errors import InputError, TapeError

_GZIP_LEVEL = 5
_DRAFT = re.compile(r"\.headway-[0-9a-f]{16}\.part")


def create(path: Path) -> BinaryIO:
    """Return a new file, open for writing; an error where that name exists already, also as a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "wb")


@contextmanager
def replacing(path: Path, error: type[InputError] = TapeError, what: str = "") -> Iterator[BinaryIO]:
    """Yield a temporary file beside a file: renamed to it when the body succeeds, removed when not.

    What the disk refuses is an ``error`` that begins with ``what``, else with the path.
    """
    draft = path.with_name(f".headway-{secrets.token_hex(8)}.part")
    try:
        with create(draft) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as problem:
        raise error(f"{what or path}: cannot be written ({problem.strerror or problem})") from None
    finally:
        with suppress(OSError):
            os.unlink(draft)


@contextmanager
def packed(file: BinaryIO, path: Path) -> Iterator[IO[bytes]]:
    """Yield where to write the content of a file: compressed where its name ends in ``.gz``."""
    if path.suffix.lower() != ".gz":
        yield file
        return
    # without name and time, so that the same run gives the same file
    with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as sink, io.BufferedWriter(sink, 1 << 20) as buffered:
        yield buffered


def write_whole(path: Path, content: bytes | str, error: type[InputError] = TapeError, what: str = "") -> None:
    """Write all of a file, or leave what was there before."""
    with replacing(path, error, what) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def stamp(path: str | Path) -> tuple[int, ...]:
    """Return what changes when a file does (time, size, inode); empty where there is none."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files of killed processes; call it only where nobody writes at this moment."""
    with suppress(OSError):
        for path in folder.iterdir():
            if _DRAFT.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                path.unlink(missing_ok=True)
