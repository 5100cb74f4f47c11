"""Write the programs of a kernel run to a file and read them back: what each client launches, and when it begins."""

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import ExperimentError, TapeError
from headway.kernels.kernel import Kernel
from headway.kernels.program import Client, Launch, Program

NAME = "clients.parquet"
_ABOUT = b"headway clients"
_SCHEMA = pa.schema(
    [
        ("kernel", pa.int32()),
        ("gap", pa.int64()),
        ("duration", pa.int64()),
        ("waits", pa.bool_()),
        ("think", pa.int64()),
    ]
)


def write(clients: Sequence[Client], path: Path) -> None:
    """Write all launches as rows, client after client, and the rest as metadata."""
    launches = [launch for client in clients for launch in client.program.launches]
    columns = [
        pa.array(list(values), kind) for values, kind in zip(zip(*launches, strict=True), _SCHEMA.types, strict=True)
    ]
    about = json.dumps([_record(client) for client in clients], sort_keys=True)
    schema = _SCHEMA.with_metadata({_ABOUT: about.encode()})
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), str(path))


def _record(client: Client) -> dict[str, Any]:
    program = client.program
    return {
        "name": client.name,
        "program": program.name,
        "kernels": [[kernel.name, kernel.blocks, kernel.per_sm, kernel.kind] for kernel in program.kernels],
        "launches": len(program.launches),
        "priority": client.priority,
        "think": client.think,
        "start": client.start,
        "first": client.first,
        "requests": client.requests,
    }


def read(path: Path) -> tuple[Client, ...]:
    """Return the clients of a file that ``write`` made."""
    try:
        table = pq.read_table(str(path))
        about = json.loads((table.schema.metadata or {})[_ABOUT])
        rows = [
            Launch(*values) for values in zip(*(table.column(name).to_pylist() for name in _SCHEMA.names), strict=True)
        ]
        edges = [0, *accumulate(each["launches"] for each in about)]
        return tuple(
            _client(each, tuple(rows[start:end])) for each, (start, end) in zip(about, pairwise(edges), strict=True)
        )
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError, ExperimentError) as problem:
        raise TapeError(
            f"{path}: cannot be read ({str(problem).splitlines()[0] if str(problem) else 'no clients'})"
        ) from None


def _client(about: dict[str, Any], launches: tuple[Launch, ...]) -> Client:
    kernels = tuple(Kernel(*values) for values in about["kernels"])
    keys = ("priority", "think", "start", "first", "requests")
    return Client(about["name"], Program(about["program"], kernels, launches), **{key: about[key] for key in keys})
