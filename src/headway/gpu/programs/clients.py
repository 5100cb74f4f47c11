"""Write the programs of a kernel run to a file and read them back: what each client launches, and when it begins."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import ExperimentError, TapeError
from headway.gpu.model.kernel import Kernel
from headway.gpu.model.program import Client, Launch, Program

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


class _Record(msgspec.Struct):
    """A client, less its launches."""

    name: str
    program: str
    kernels: list[tuple[str, int, int, int]]
    """Name, blocks, how many of them fit on one SM, and kind."""
    launches: int
    priority: int
    think: int
    start: int
    first: int
    requests: int


def write(clients: Sequence[Client], path: Path) -> None:
    """Write all launches as rows, client after client, and the rest as metadata."""
    launches = [launch for client in clients for launch in client.program.launches]
    columns = [
        pa.array(list(values), kind) for values, kind in zip(zip(*launches, strict=True), _SCHEMA.types, strict=True)
    ]
    about = msgspec.json.encode([_record(client) for client in clients], order="sorted")
    pq.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA.with_metadata({_ABOUT: about})), str(path))


def _record(client: Client) -> _Record:
    program = client.program
    kernels = [(kernel.name, kernel.blocks, kernel.per_sm, kernel.kind) for kernel in program.kernels]
    numbers = (client.priority, client.think, client.start, client.first, client.requests)
    return _Record(client.name, program.name, kernels, len(program.launches), *numbers)


def read(path: Path) -> tuple[Client, ...]:
    """Return the clients of a file that ``write`` made."""
    try:
        table = pq.read_table(str(path))
        about = msgspec.json.decode((table.schema.metadata or {})[_ABOUT], type=list[_Record])
        columns = (table.column(name).to_pylist() for name in _SCHEMA.names)
        rows = [Launch(*values) for values in zip(*columns, strict=True)]
        edges = [0, *accumulate(each.launches for each in about)]
        if edges[-1] != len(rows):
            raise ValueError(f"it has {len(rows)} launches, and those of its clients are {edges[-1]}")
        return tuple(
            _client(each, tuple(rows[start:end])) for each, (start, end) in zip(about, pairwise(edges), strict=True)
        )
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError, ExperimentError) as problem:
        why = "no clients" if isinstance(problem, KeyError) else str(problem).partition("\n")[0]
        raise TapeError(f"{path}: cannot be read ({why or 'no clients'})") from None


def _client(about: _Record, launches: tuple[Launch, ...]) -> Client:
    kernels = tuple(Kernel(*values) for values in about.kernels)
    numbers = (about.priority, about.think, about.start, about.first, about.requests)
    return Client(about.name, Program(about.program, kernels, launches), *numbers)
