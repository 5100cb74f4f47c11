"""Measure how fast this machine reads: from storage without the page cache, and from memory.

Storage is read with O_DIRECT, in pieces the size of a sample, at places in no order, from the data set's own files
where they are known and from a file made for it otherwise. Memory is copied by numpy, pieces too large for any cache.
"""

import mmap
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headway.errors import ProfileError
from headway.profiling.store import files_of

ALIGNED = 4096
LONGEST_S = 2.0
_TRIAL_BYTES = 128 << 20
_LARGEST_PIECE = 16 << 20
_DEFAULT_PIECE = 128 << 10
_LEAST_BYTES = 1 << 20
_MOST_FILES = 4096


@dataclass(frozen=True)
class Storage:
    """What reading gave."""

    bytes_per_second: float
    piece_bytes: int
    direct: bool
    """Whether the page cache was kept out for certain."""
    where: str


def memory(longest_s: float = 0.0) -> float:
    """Measure bytes a second that are read from memory while they are copied; the best of several times."""
    source = np.ones(64 << 20, dtype=np.uint8)
    target = np.empty_like(source)
    best, until = 0.0, time.perf_counter() + (longest_s or LONGEST_S / 4)
    np.copyto(target, source)
    while True:
        began = time.perf_counter()
        np.copyto(target, source)
        now = time.perf_counter()
        best = max(best, source.nbytes / (now - began))
        if now >= until:
            return best


def storage(path: Path | None = None, piece_bytes: int = 0, longest_s: float = 0.0) -> Storage:
    """Measure bytes a second from a data set's files, or from a file made here, one piece after another."""
    longest_s = longest_s or LONGEST_S
    piece = min(piece_bytes or _DEFAULT_PIECE, _LARGEST_PIECE)
    if path is not None and (files := [each for each in files_of(path) if each.stat().st_size]):
        chosen = files if len(files) <= _MOST_FILES else random.Random(0).sample(files, _MOST_FILES)
        try:
            return _read(chosen, piece, longest_s, str(path))
        except OSError as wrong:
            raise ProfileError(f"--dataset {path}: {wrong.filename or path} cannot be read: {wrong.strerror}") from None
    problem: ProfileError | None = None
    measured: Storage | None = None
    for folder in dict.fromkeys((tempfile.gettempdir(), os.getcwd())):
        try:
            with _made(Path(folder)) as file:
                read = _read([file], piece, longest_s, folder)
        except OSError as wrong:
            problem = ProfileError(f"storage: nothing can be written to {folder} to read from: {wrong.strerror}")
            continue
        if read.direct:
            return read
        measured = measured or read
    if measured is None:
        raise problem or ProfileError("storage: there is no folder to read from")
    return measured


@contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """Make a file of noise on the device, and remove it afterwards."""
    number, name = tempfile.mkstemp(prefix=".headway-", dir=folder)
    try:
        with os.fdopen(number, "wb") as file:
            for _ in range(_TRIAL_BYTES >> 20):
                file.write(os.urandom(1 << 20))  # noise: a device that compresses must not look fast
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _read(files: Sequence[Path], piece: int, longest_s: float, where: str) -> Storage:
    """Read pieces of the files at random, each a whole file where files are small, until the time is over."""
    order = random.Random(0)
    room = -(-piece // ALIGNED) * ALIGNED
    buffer = mmap.mmap(-1, max(room, ALIGNED))
    read = 0
    direct = True
    began = time.perf_counter()
    while True:
        for file in order.sample(files, len(files)):
            count, kept_out = _piece(file, buffer, room, order)
            read, direct = read + count, direct and kept_out
            elapsed = time.perf_counter() - began
            if (elapsed >= longest_s and read >= _LEAST_BYTES) or elapsed >= 3 * longest_s:
                return Storage(read / elapsed, piece, direct, where)


def _piece(path: Path, buffer: mmap.mmap, room: int, order: random.Random) -> tuple[int, bool]:
    """Read one piece; return (bytes read, whether the page cache was kept out)."""
    try:
        file, direct = os.open(path, os.O_RDONLY | os.O_DIRECT), True
    except OSError:  # some file systems know no such thing
        file, direct = os.open(path, os.O_RDONLY), False
    try:
        offset = order.randrange(max(1, os.fstat(file).st_size // room)) * room
        if not direct:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.preadv(file, [memoryview(buffer)[:room]], offset), direct
    finally:
        os.close(file)
