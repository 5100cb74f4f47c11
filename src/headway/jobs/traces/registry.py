"""List the trace formats by name: one reader a file, one line here.

A reader is a module with ``NAME``, ``read(path, strict)`` and ``recognises(head)``, which says whether a file that
begins like this is of its format. Request traces, for serving, are read into another kind of trace and have a list of
their own.
"""

from collections.abc import Callable
from pathlib import Path

from headway.errors import ExperimentError, TraceError, unknown_name
from headway.fleet.traces.registry import REQUEST_FORMATS, refuse_requests, request_format
from headway.formats.head import Head, Reader, head_of
from headway.formats.table import listed, text
from headway.jobs.kubernetes import reader as kubernetes
from headway.jobs.slurm.accounting import queue as slurm_queue, reader as slurm
from headway.jobs.traces.readers import (
    acme,
    generic,
    helios,
    helios_log,
    native,
    openb,
    philly,
    philly_json,
    swf,
    synergy,
)
from headway.jobs.traces.trace import Trace, refuse_many_dropped

READERS: tuple[Reader[Trace], ...] = (
    synergy,
    helios,
    philly,
    openb,
    slurm,
    slurm_queue,
    kubernetes,
    native,
    philly_json,
    helios_log,
    acme,
    swf,
    generic,
)

FORMATS: dict[str, Callable[[Path, bool], Trace]] = {reader.NAME: reader.read for reader in READERS}

_SITE = {"NodeName=": "nodes", "PartitionName=": "partitions", "ReservationName=": "reservations"}
"""How what ``scontrol show`` prints of a Slurm site begins, and what it lists."""


def guess(path: str | Path) -> str:
    """Return the name of a file's format, or raise an error that asks for it."""
    head = head_of(Path(path))
    names = [reader.NAME for reader in READERS if reader.recognises(head)]
    if not names and (requests := request_format(head)):
        refuse_requests(path, requests)
    if not names and not head.parquet:
        text(head.path)  # wrong encoding is a better reason than none
    if len(names) != 1:
        _refuse_site(head)
        columns = generic.header(head)
        raise TraceError(
            f"trace {path}: its format cannot be told from its beginning; "
            f"name it with --format ({', '.join(FORMATS)}), or say with --map which column is what"
            + (f" (columns found: {listed(columns)})" if columns else "")
        )
    return names[0]


def _refuse_site(head: Head) -> None:
    """Refuse what describes a Slurm site and lists no jobs: it is given beside a trace."""
    for opens, what in _SITE.items():
        if head.text.lstrip().startswith(opens):
            raise TraceError(
                f"trace {head.path}: lists {what}, not jobs: give it with --cluster, beside a trace of jobs"
            )


def load(
    path: str | Path, format: str = "", *, strict: bool = False, columns: str = "", skip_bad_rows: bool = False
) -> Trace:
    """Read a trace, plain or gzip. Bad rows are dropped and explained in the result; ``strict`` stops at the first.

    Without a format its beginning decides; ``columns`` says which column of any table is what. A file of which one
    rule drops more than a tenth is refused unless ``skip_bad_rows``. Raises ``ExperimentError`` for a format that does
    not exist or a wrong map and ``TraceError`` for anything wrong with the file.
    """
    trace = _read(path, format, strict, columns)
    if not skip_bad_rows:
        refuse_many_dropped(trace.dropped, trace.rows - trace.passed_over, path)
    return trace


def _read(path: str | Path, format: str, strict: bool, columns: str) -> Trace:
    if columns and format not in ("", generic.NAME):
        raise ExperimentError(f"format {format!r} knows its columns: --map is for {generic.NAME!r}, any other table")
    if columns or format == generic.NAME:
        return generic.read(Path(path), strict, columns)
    if format in REQUEST_FORMATS:
        refuse_requests(path, format)
    reader = FORMATS.get(format or guess(path))
    if reader is None:
        raise ExperimentError(unknown_name("trace format", format, FORMATS))
    return reader(Path(path), strict)
