"""List the formats of request traces by name: one reader a file, one line here.

They hold no jobs: what reads a workload of jobs refuses them by name.
"""

from pathlib import Path

from headway.errors import ExperimentError, TraceError, unknown_name
from headway.fleet.traces import azure_llm, csv as request_csv, mooncake
from headway.fleet.traces.trace import RequestTrace
from headway.formats.head import Head, Reader, head_of
from headway.jobs.traces.trace import refuse_many_dropped

REQUEST_READERS: tuple[Reader[RequestTrace], ...] = (azure_llm, mooncake, request_csv)

REQUEST_FORMATS = {reader.NAME: reader.read for reader in REQUEST_READERS}


def request_format(head: Head) -> str:
    """Return the format of a file of requests that begins like this; empty if it is none."""
    return next((reader.NAME for reader in REQUEST_READERS if reader.recognises(head)), "")


def refuse_requests(path: str | Path, format: str) -> None:
    """Say what such a file is not."""
    raise TraceError(f"trace {path}: holds requests ({format}), not jobs")


def load_requests(
    path: str | Path, format: str = "", *, strict: bool = False, skip_bad_rows: bool = False
) -> RequestTrace:
    """Read a trace of requests, plain or gzip; without a format its beginning decides. Raises as ``load`` does."""
    name = format or request_format(head_of(Path(path)))
    if not name:
        known = ", ".join(REQUEST_FORMATS)
        raise TraceError(f"trace {path}: is no trace of requests that is known; name its format ({known})")
    if name not in REQUEST_FORMATS:
        raise ExperimentError(unknown_name("format of requests", name, REQUEST_FORMATS))
    trace = REQUEST_FORMATS[name](Path(path), strict)
    if not skip_bad_rows:
        refuse_many_dropped(trace.dropped, trace.rows, path, "workload")
    return trace
