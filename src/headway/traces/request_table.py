"""Store the requests of a run beside its tape: a column a property."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import TapeError
from headway.files import replacing
from headway.serving.request import NO_GROUPS, NUMBERS, Groups, Request

_GROUPS = b"groups"
_BLOCKS = "blocks"
_SCHEMA = pa.schema([(name, pa.int64()) for name in NUMBERS])
_WITH_BLOCKS = _SCHEMA.append(pa.field(_BLOCKS, pa.list_(pa.int64())))


def write(requests: Sequence[Request], path: Path, groups: Groups = NO_GROUPS) -> None:
    """Write requests to a Parquet file, and beside them the names of their classes and tenants."""
    schema = _WITH_BLOCKS if any(each.blocks for each in requests) else _SCHEMA
    columns = [pa.array([getattr(each, field.name) for each in requests], field.type) for field in schema]
    schema = schema.with_metadata({_GROUPS: json.dumps(groups)}) if any(groups) else schema
    table = pa.table(columns, schema=schema)
    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd")


def read(path: Path) -> tuple[Request, ...]:
    """Read the requests that ``write`` kept."""
    try:
        table = pq.read_table(str(path), schema=_WITH_BLOCKS)
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
