"""Kernel traces as Parquet: one row for each launch of one program. Needs only pyarrow and numpy.

Columns: ``launch_ns``, ``start_ns``, ``end_ns`` (one clock, the first launch is 0), ``kernel`` (its name), ``blocks``,
``per_sm``, ``kind`` (1 kernel, 2 graph, 3 copy), ``wait_ns`` (0, or when the wait for the GPU that followed this launch
ended). The file's metadata has a key ``headway``: JSON with the program, the GPU and how it was recorded.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import TraceError
from headway.files import replacing

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

TIMES = ("launch_ns", "start_ns", "end_ns", "wait_ns")
SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in TIMES[:3]),
        ("kernel", pa.string()),
        ("blocks", pa.int32()),
        ("per_sm", pa.int32()),
        ("kind", pa.int8()),
        ("wait_ns", pa.int64()),
    ]
)
KEY = b"headway"
KINDS = (1, 2, 3)


@dataclass(frozen=True)
class KernelTrace:
    """One array for each column, in order of launch."""

    launch_ns: Longs
    start_ns: Longs
    end_ns: Longs
    kernel: npt.NDArray[np.str_]
    blocks: Ints
    per_sm: Ints
    kind: Bytes
    wait_ns: Longs
    metadata: dict[str, Any] = field(default_factory=dict)
    """program, gpu, driver, sms, command, version."""

    def __len__(self) -> int:
        return len(self.launch_ns)

    @property
    def program(self) -> str:
        """Return the name of the program; empty if it is not known."""
        return str(self.metadata.get("program", ""))


def write(path: Path | str, trace: KernelTrace) -> None:
    """Write a trace; raise TraceError where it is invalid."""
    _check(trace, str(path))
    columns = [pa.array(getattr(trace, entry.name), entry.type) for entry in SCHEMA]
    text = json.dumps(trace.metadata, sort_keys=True)
    table = pa.Table.from_arrays(columns, schema=SCHEMA.with_metadata({KEY: text.encode()}))
    with replacing(Path(path), TraceError, f"kernel trace {path}") as file:
        pq.write_table(table, file, compression="zstd")


def read(path: Path | str) -> KernelTrace:
    """Return the trace in a file."""
    if Path(path).is_dir():
        raise TraceError(f"kernel trace {path}: it is a folder, not a Parquet file")
    try:
        table = pq.read_table(str(path))
    except FileNotFoundError:
        raise TraceError(f"kernel trace {path}: there is no such file") from None
    except (pa.ArrowInvalid, OSError) as problem:
        raise TraceError(f"kernel trace {path}: it is not Parquet ({str(problem).splitlines()[0]})") from None
    missing = [name for name in SCHEMA.names if name not in table.column_names]
    if missing:
        raise TraceError(f"kernel trace {path}: column {missing[0]} is missing (it needs {', '.join(SCHEMA.names)})")
    columns: dict[str, Any] = {}
    for entry in SCHEMA:
        column = table.column(entry.name)
        if column.null_count:
            raise TraceError(f"kernel trace {path}: column {entry.name} has {column.null_count} empty cells")
        try:
            values = column.cast(entry.type).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise TraceError(f"kernel trace {path}: column {entry.name} is {column.type}, not {entry.type}") from None
        columns[entry.name] = values.astype(np.str_) if entry.name == "kernel" else values
    trace = KernelTrace(**columns, metadata=_metadata(table.schema.metadata or {}, path))
    _check(trace, str(path))
    return trace


def _metadata(stored: dict[bytes, bytes], path: Path | str) -> dict[str, Any]:
    try:
        metadata = json.loads(stored.get(KEY, b"{}"))
    except ValueError:
        raise TraceError(f"kernel trace {path}: its metadata key 'headway' is not JSON") from None
    if not isinstance(metadata, dict):
        raise TraceError(f"kernel trace {path}: its metadata key 'headway' is not a JSON object")
    return metadata


def _check(trace: KernelTrace, where: str) -> None:
    if not len(trace):
        raise TraceError(f"kernel trace {where}: it has no launch")
    launch, start, end, wait = trace.launch_ns, trace.start_ns, trace.end_ns, trace.wait_ns
    rules = (
        (launch[1:] < launch[:-1], 1, "is launched before the one above it"),
        (launch < 0, 0, "is launched before 0"),
        (start < launch, 0, "starts before it is launched"),
        (end < start, 0, "ends before it starts"),
        ((wait != 0) & (wait < launch), 0, "has a wait that ended before its launch"),
        ((trace.blocks < 0) | (trace.per_sm < 0), 0, "has a negative number of blocks"),
        ((trace.blocks == 0) & (trace.kind == KINDS[0]), 0, "is a kernel of 0 blocks: it needs at least 1"),
        (~np.isin(trace.kind, KINDS), 0, "is of a kind other than 1, 2 and 3"),
    )
    for broken, offset, what in rules:
        if broken.any():
            raise TraceError(f"kernel trace {where}: launch {int(np.flatnonzero(broken)[0]) + offset} {what}")
