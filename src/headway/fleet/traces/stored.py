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
from headway.fleet.model.request import NO_GROUPS, NUMBERS, Groups, Request

STREAM_SUFFIX = ".arrow"
_GROUPS = b"groups"
_BLOCKS = "blocks"
_SCHEMA = pa.schema([(name, pa.int64()) for name in NUMBERS])
_WITH_BLOCKS = _SCHEMA.append(pa.field(_BLOCKS, pa.list_(pa.int64())))


def write(requests: Sequence[Request], path: Path, groups: Groups = NO_GROUPS) -> None:
    """Write requests to a Parquet file, and beside them the names of their classes and tenants."""
    schema = _WITH_BLOCKS if any(each.blocks for each in requests) else _SCHEMA
    columns = _columns(requests, schema)
    schema = schema.with_metadata({_GROUPS: json.dumps(groups)}) if any(groups) else schema
    table = pa.table(columns, schema=schema)
    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd")


def _columns(requests: Sequence[Request], schema: pa.Schema) -> list[pa.Array]:
    return [pa.array([getattr(each, field.name) for each in requests], field.type) for field in schema]


class RequestStream:
    """Appends requests to a file as they come."""

    def __init__(self, path: Path) -> None:
        """``path`` is that of the Parquet file to come; the stream lies beside it meanwhile."""
        self._path = path
        self._pending: list[Request] = []
        self._stream = pa.ipc.new_stream(str(path.with_suffix(STREAM_SUFFIX)), _WITH_BLOCKS)
        self.append = self._pending.append

    def flush(self) -> None:
        """Write what was appended since the last time."""
        if self._pending:
            columns = _columns(self._pending, _WITH_BLOCKS)
            self._stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=_WITH_BLOCKS))
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
    return pa.Table.from_batches(batches, schema=_WITH_BLOCKS)


def read(path: Path) -> tuple[Request, ...]:
    """Read the requests that ``write`` kept; of a live run that was killed those of its stream."""
    stream = path.with_suffix(STREAM_SUFFIX)
    try:
        table = _salvaged(stream) if stream.exists() else pq.read_table(str(path), schema=_WITH_BLOCKS)
    except (OSError, pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise TapeError(f"{path}: cannot be read ({str(problem).splitlines()[0]})") from None
    columns = [table.column(name).fill_null(0).to_pylist() for name in NUMBERS]  # older files have fewer
    blocks = [tuple(row or ()) for row in table.column(_BLOCKS).to_pylist()]
    return tuple(Request(*values) for values in zip(*columns, blocks, strict=True))


def read_groups(path: Path) -> Groups:
    """Read the names that ``write`` kept; none in a file of an earlier version."""
    try:
        kept = (pq.read_schema(str(path)).metadata or {}).get(_GROUPS)
        return Groups(*map(tuple, json.loads(kept))) if kept else NO_GROUPS
    except (OSError, ValueError, TypeError, pa.ArrowInvalid) as problem:
        raise TapeError(f"{path}: cannot be read ({str(problem).splitlines()[0]})") from None
