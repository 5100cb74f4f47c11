"""The trace formats by name: one reader a file, one line here.

A reader is a module with ``NAME``, ``read(path, strict)`` and ``recognises(head)``, which says whether a file that
begins like this is of its format. Request traces, for serving, are read into another kind of trace and have a list of
their own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from headway.errors import ExperimentError, TraceError, unknown_name
from headway.traces import helios, native, philly, synergy
from headway.traces.head import Head, head_of
from headway.traces.trace import Trace


class Reader(Protocol):
    """What the module of a format offers."""

    NAME: str

    def read(self, path: Path, strict: bool) -> Trace:
        """The jobs of a file."""

    def recognises(self, head: Head) -> bool:
        """Whether a file that begins like this is of this format."""


READERS: tuple[Reader, ...] = (
    synergy,
    helios,
    philly,
    native,
)

FORMATS: dict[str, Callable[[Path, bool], Trace]] = {reader.NAME: reader.read for reader in READERS}


def guess(path: str | Path) -> str:
    """The name of a file's format, or a line that asks for it."""
    head = head_of(Path(path))
    found = [reader.NAME for reader in READERS if reader.recognises(head)]
    if len(found) != 1:
        raise TraceError(
            f"trace {path}: its format cannot be told from its beginning; name it with --format ({', '.join(FORMATS)})"
        )
    return found[0]


def load(path: str | Path, format: str = "", *, strict: bool = False, columns: str = "") -> Trace:
    """Read a trace, plain or gzip. Bad rows are dropped and explained in the result; ``strict`` stops at the first.

    Without a format its beginning decides; ``columns`` says which column of any table is what. Raises
    ``ExperimentError`` for a format that does not exist and ``TraceError`` for anything wrong with the file.
    """
    reader = FORMATS.get(format or guess(path))
    if reader is None:
        raise ExperimentError(unknown_name("trace format", format, FORMATS))
    return reader(Path(path), strict)
