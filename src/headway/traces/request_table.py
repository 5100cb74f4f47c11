"""Store the requests of a run beside its tape: a column a property.

The requests of a live run are not known before it: they are appended to an Arrow stream, readable to the last whole
batch after a kill, and written as Parquet when the run closes.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import TapeError
from headway.files import replacing
from headway.serving.request import NO_GROUPS, Groups, Request

STREAM_SUFFIX = ".arrow"
_GROUPS = b"groups"
_SCHEMA = pa.schema([(name, pa.int64()) for name in Request._fields])


def write(requests: Sequence[Request], path: Path, groups: Groups = NO_GROUPS) -> None:
    """Write requests to a Parquet file, and beside them the names of their classes and tenants."""
    columns = list(zip(*requests, strict=True)) if requests else [()] * len(Request._fields)
    schema = _SCHEMA.with_metadata({_GROUPS: json.dumps(groups)}) if any(groups) else _SCHEMA
    table = pa.table([pa.array(column, pa.int64()) for column in columns], schema=schema)
    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd")


class RequestStream:
    """Appends requests to a file as they come."""

    def __init__(self, path: Path) -> None:
        """``path`` is that of the Parquet file to come; the stream lies beside it meanwhile."""
        self._path = path
        self._pending: list[Request] = []
        self._stream = pa.ipc.new_stream(str(path.with_suffix(STREAM_SUFFIX)), _SCHEMA)
        self.append = self._pending.append

    def flush(self) -> None:
        """Write what was appended since the last time."""
        if self._pending:
            columns = [pa.array(column, pa.int64()) for column in zip(*self._pending, strict=True)]
            self._stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
            self._pending.clear()

    def close(self, groups: Groups = NO_GROUPS) -> tuple[Request, ...]:
        """Write the Parquet file, remove the stream, and return all requests."""
        self.flush()
        self._stream.close()
        requests = read(self._path)
        write(requests, self._path, groups)
        self._path.with_suffix(STREAM_SUFFIX).unlink()
        return requests


def _salvaged(stream: Path) -> pa.Table:
    """Return what a stream holds up to its last whole batch."""
    batches = []
    with pa.OSFile(str(stream), "rb") as source, suppress(pa.ArrowInvalid, OSError):
        for batch in pa.ipc.open_stream(source):  # not extend(): what came before a broken batch is kept
            batches.append(batch)
    return pa.Table.from_batches(batches, schema=_SCHEMA)


def read(path: Path) -> tuple[Request, ...]:
    """Read the requests that ``write`` kept; of a live run that was killed those of its stream."""
    stream = path.with_suffix(STREAM_SUFFIX)
    try:
        table = _salvaged(stream) if stream.exists() else pq.read_table(str(path), schema=_SCHEMA)
    except (OSError, pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise TapeError(f"{path}: cannot be read ({str(problem).splitlines()[0]})") from None
    columns = [table.column(name).fill_null(0).to_pylist() for name in Request._fields]  # older files have fewer
    return tuple(Request(*values) for values in zip(*columns, strict=True))


def read_groups(path: Path) -> Groups:
    """Read the names that ``write`` kept; none in a file of an earlier version."""
    try:
        kept = (pq.read_schema(str(path)).metadata or {}).get(_GROUPS)
        return Groups(*map(tuple, json.loads(kept))) if kept else NO_GROUPS
    except (OSError, ValueError, TypeError, pa.ArrowInvalid) as problem:
        raise TapeError(f"{path}: cannot be read ({str(problem).splitlines()[0]})") from None
