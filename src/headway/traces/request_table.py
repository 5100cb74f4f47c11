"""Store the requests of a run beside its tape: a column a property."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import TapeError
from headway.files import replacing
from headway.serving.request import NO_GROUPS, Groups, Request

_GROUPS = b"groups"
_SCHEMA = pa.schema([(name, pa.int64()) for name in Request._fields])


def write(requests: Sequence[Request], path: Path, groups: Groups = NO_GROUPS) -> None:
    """Write requests to a Parquet file, and beside them the names of their classes and tenants."""
    columns = list(zip(*requests, strict=True)) if requests else [()] * len(Request._fields)
    schema = _SCHEMA.with_metadata({_GROUPS: json.dumps(groups)}) if any(groups) else _SCHEMA
    table = pa.table([pa.array(column, pa.int64()) for column in columns], schema=schema)
    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd")


def read(path: Path) -> tuple[Request, ...]:
    """Read the requests that ``write`` kept."""
    try:
        table = pq.read_table(str(path), schema=_SCHEMA)
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
