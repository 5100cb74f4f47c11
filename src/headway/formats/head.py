"""Read the beginning of a file, from which its format is detected, and define what a reader offers."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from headway.formats.table import contents, is_pipe

LENGTH = 1 << 16
TraceT = TypeVar("TraceT", covariant=True)


@dataclass(frozen=True, slots=True)
class Head:
    """The first bytes of a file as text, unpacked; what is not UTF-8 is replaced."""

    path: Path
    text: str
    parquet: bool = False

    @property
    def first_line(self) -> str:
        """Return the line that is the header where the file has one."""
        return self.text.partition("\n")[0].rstrip("\r")

    def columns(self, separator: str = ",") -> frozenset[str]:
        """Return the names in the first line."""
        return frozenset(name.strip().strip('"') for name in self.first_line.split(separator))

    @property
    def json(self) -> bool:
        """Return whether it begins as JSON does."""
        return self.text.lstrip()[:1] in ("{", "[")


class Reader(Protocol[TraceT]):
    """What the module of a format offers: jobs are read into a ``Trace``, requests into a ``RequestTrace``."""

    NAME: str

    def read(self, path: Path, strict: bool) -> TraceT:
        """Return the trace in a file."""

    def recognises(self, head: Head) -> bool:
        """Return whether a file that begins like this is of this format."""


def head_of(path: Path) -> Head:
    """Read the head of a file, or raise the ``TraceError`` that reading it would give."""
    try:
        if is_pipe(path):
            return _head(path, contents(path)[:LENGTH])
        with path.open("rb") as file:
            data = file.read(LENGTH)
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as file:
                data = file.read(LENGTH)
    except (OSError, ValueError, EOFError, zlib.error):
        data = contents(path)[:LENGTH]
    if not data:
        contents(path)
    return _head(path, data)


def _head(path: Path, data: bytes) -> Head:
    return Head(path, data.decode("utf-8-sig", errors="replace"), data[:4] == b"PAR1")
