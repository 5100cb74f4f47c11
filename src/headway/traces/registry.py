"""The trace formats by name: one reader a file, one line here."""

from collections.abc import Callable
from pathlib import Path

from headway.errors import ExperimentError, unknown_name
from headway.traces import helios, native, philly, synergy
from headway.traces.trace import Trace

FORMATS: dict[str, Callable[[Path, bool], Trace]] = {
    native.NAME: native.read,
    helios.NAME: helios.read,
    philly.NAME: philly.read,
    synergy.NAME: synergy.read,
}


def load(path: str | Path, format: str, *, strict: bool = False) -> Trace:
    """Read a trace, plain or gzip. Bad rows are dropped and explained in the result; ``strict`` stops at the first.

    Raises ``ExperimentError`` for a format that does not exist and ``TraceError`` for anything wrong with the file.
    """
    reader = FORMATS.get(format)
    if reader is None:
        raise ExperimentError(unknown_name("trace format", format, FORMATS))
    return reader(Path(path), strict)
