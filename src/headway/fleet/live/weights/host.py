"""The one copy of each model's weights in host memory, for all workers of a machine; files on disk below it.

Whoever needs a model first makes its copy, under a lock: from the file on disk where there is one, else from the model
as its own function builds it. Where host memory or the disk is full, serving goes on without that copy, and says so.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headway.errors import InputError
from headway.fleet.live.weights.origins import Origins, read_files
from headway.fleet.live.weights.safetensors import NOTE, Entry, Header, Piece, placed, read_header, write

_MOST_READ_BYTES = 1 << 30


class Source:
    """An open file with the weights of a model; it stays readable when its name is removed."""

    def __init__(self, path: Path, header: Header, entries: Sequence[Entry], shared: bool = False) -> None:
        self.path = path
        self.shared = shared
        """Whether it is the copy in host memory."""
        mode = os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY
        self.handle = os.open(path, mode | os.O_CLOEXEC)
        self.pieces: tuple[Piece, ...] = header.pieces(entries)

    def read_into(self, memory: memoryview) -> None:
        """Fill the memory of a model; other threads go on meanwhile."""
        for piece in self.pieces:
            self.read_piece(piece, 0, memory[piece.begin : piece.begin + piece.size_bytes])

    def read_piece(self, piece: Piece, skip_bytes: int, memory: memoryview) -> None:
        """Fill a piece of memory with a piece of the file, from some bytes on."""
        done = 0
        while done < memory.nbytes:
            part = memory[done : done + _MOST_READ_BYTES]
            got = os.preadv(self.handle, [part], piece.file + skip_bytes + done)
            if not got:
                raise OSError(errno.EIO, "cut short", str(self.path))
            done += got

    def close(self) -> None:
        """Close the file."""
        os.close(self.handle)


class Host:
    """Where copies lie: a folder in shared memory for this machine, and a folder on disk."""

    def __init__(
        self, folder: Path, disk: Path | None, stamp: str, say: Callable[[str], None], origins: Origins | None = None
    ) -> None:
        """``stamp`` is that of this server; ``origins`` say of which models the next one may use what is on disk."""
        self.folder = folder
        self.disk = disk
        """None: nothing is kept on disk."""
        self._stamp = stamp
        """Of this server: what another one made is made anew."""
        self._origins = origins
        self._lasting = dict(origins.stamps) if origins is not None else {}
        """By model: the stamp on disk of one that outlives the server."""
        self._say = say
        self._said: set[str] = set()
        self._turns: dict[str, threading.Lock] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Let one process at a time, and one thread of it, make something for all."""
        path = self.folder / f"{quote(name, safe='')}.lock"
        with self._turns.setdefault(name, threading.Lock()), path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # also where a fork has the file open

    def path(self, name: str) -> Path:
        """Return where the copy of a model in host memory lies."""
        return self.folder / f"{quote(name, safe='')}.weights"

    def disk_path(self, name: str) -> Path | None:
        """Return where the weights of a model lie on disk."""
        return self.disk / f"{quote(name, safe='')}.safetensors" if self.disk is not None else None

    def is_object(self, name: str) -> bool:
        """Return whether somebody found that a model is no module, and has no weights to keep."""
        return self._object(name).exists()

    def note_object(self, name: str) -> None:
        """Note that a model is no module."""
        self._object(name).touch()

    def _object(self, name: str) -> Path:
        return self.folder / f"{quote(name, safe='')}.object"

    def header(self, name: str) -> Header | None:
        """Return the header of what is kept of a model; None: nothing, or of another application."""
        for path in (self.path(name), self.disk_path(name)):
            with suppress(FileNotFoundError):
                if path is not None and self._fits(name, path, header := read_header(path)):
                    return header
        return None

    def built(self, name: str, build: Callable[[], Any]) -> Any:
        """Return what a function builds; where it reads files that its model does not declare, say so once.

        What it builds is then not kept for the next server.
        """
        with read_files() as opened:
            found = build()
        others = self._origins.undeclared(name, opened) if self._origins is not None else []
        if others and self._lasting.pop(name, None) is not None:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            remedy = "its weights are not kept for the next start; add it to files="
            self._say(f"model {name} reads {others[0]}{more}, not in its files: {remedy}")
        return found

    def _stamp_at(self, name: str, path: Path) -> str:
        """Return the stamp of a model's weights in host memory, or on disk."""
        return self._stamp if path.parent == self.folder else self._lasting.get(name, self._stamp)

    def _fits(self, name: str, path: Path, header: Header) -> bool:
        """Return whether a file was made from what there is now; what others wrote is taken as it is."""
        return not header.is_ours or header.notes[NOTE] == self._stamp_at(name, path)

    def source(self, name: str, entries: Sequence[Entry]) -> Source | None:
        """Return the copy of a model, in host memory if it fits there, else on disk; None: there is none."""
        path, below = self.path(name), self.disk_path(name)
        if (found := self._opened(name, path, entries)) is not None or below is None:
            return found
        if (kept := self._opened(name, below, entries)) is None:
            return None
        try:
            self._write(name, path, entries, kept.read_into)
        except OSError as problem:
            self._tell(f"host memory {self.folder}", problem, f"models are loaded from {self.disk}")
            return kept
        kept.close()
        return self._opened(name, path, entries)

    def _opened(self, name: str, path: Path, entries: Sequence[Entry]) -> Source | None:
        try:
            header = read_header(path)
        except FileNotFoundError:
            return None
        if not self._fits(name, path, header) or not header.matches(entries):
            return None
        return Source(path, header, entries, path.parent == self.folder)

    def keep(self, name: str, entries: Sequence[Entry], values: Mapping[str, memoryview]) -> None:
        """Write the weights of a model to host memory, and to disk for the next server or where that has no room.

        Where neither has room it has no copy. A file on disk that others wrote is not written over: that is an error.
        """
        below = self.disk_path(name)
        if below is not None and below.exists() and not read_header(below).is_ours:
            raise InputError(f"{below}: has other tensors than model {name}; move it away, and it is written anew")
        try:
            self._write(name, self.path(name), entries, _copied(entries, values))
            in_host = True
        except OSError as problem:
            in_host = False
            self._tell(f"host memory {self.folder}", problem, "models are loaded from disk, or built again")
        if below is not None and (name in self._lasting or not in_host):
            dense = placed(entries, 1)
            try:
                below.parent.mkdir(parents=True, exist_ok=True)
                self._write(name, below, dense, _copied(dense, values))
            except OSError as problem:
                self._tell(f"disk {self.disk}", problem, "weights are not kept for the next start")

    def _write(self, name: str, path: Path, entries: Sequence[Entry], fill: Callable[[memoryview], None]) -> None:
        write(path, entries, {NOTE: self._stamp_at(name, path)}, fill)

    def _tell(self, what: str, problem: OSError, remedy: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._say(f"{what}: {problem.strerror or problem}; {remedy}")


def _copied(entries: Sequence[Entry], values: Mapping[str, memoryview]) -> Callable[[memoryview], None]:
    """Return what copies values to their places."""

    def fill(memory: memoryview) -> None:
        for entry in entries:
            memory[entry.begin : entry.end] = values[entry.name]

    return fill
