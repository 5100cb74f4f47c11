"""The programs of a kernel run as a file: they come back as they were, and a broken file is one line."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from headway.errors import TapeError
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.programs.clients import read, write
from tests.gpu.worlds import program, worlds

CLIENTS = (
    Client("a [red] é", program((5, 4, 100), (5, 4, 50), name="above"), 0, think=7, requests=3),
    Client("b", program((6, 4, 80), name="below"), 9, start=11),
)


@settings(max_examples=30)
@given(worlds())
def test_clients_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, world: tuple[tuple[Client, ...], Device]
) -> None:
    path = tmp_path_factory.mktemp("clients") / "clients.parquet"
    write(world[0], path)
    assert read(path) == world[0]
    assert [each.launch(0) for each in read(path)] == [each.launch(0) for each in world[0]]


def _line(path: Path) -> str:
    """What is said of a file that cannot be read."""
    with pytest.raises(TapeError) as refused:
        read(path)
    line = str(refused.value)
    assert line.startswith(f"{path}: cannot be read (")
    assert "\n" not in line
    return line


def test_a_file_that_is_not_there_or_is_something_else_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "clients.parquet"
    _line(path)
    for text in (b"", b"hello", b"PAR1\0\0PAR1"):
        path.write_bytes(text)
        _line(path)
    pq.write_table(pa.table({"kernel": [1]}), str(path))
    _line(path)


def test_any_cut_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "clients.parquet"
    write(CLIENTS, path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        _line(path)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("priority", 12, "priority 12 is not between 0 and 9"),
        ("priority", "high", ""),
        ("start", -1, "must not be negative"),
        ("first", 5, "has no request 5"),
        ("first", None, ""),
        ("requests", [], ""),
        ("launches", 0, "it has 3 launches, and those of its clients are 1"),
        ("launches", 7, "those of its clients are 8"),
        ("launches", -1, "it has 3 launches, and those of its clients are 0"),
        ("launches", "two", ""),
        ("kernels", [], "launch 0 is of kernel 0, not known"),
        ("kernels", [["k"]], ""),
        ("kernels", 3, ""),
        ("name", None, ""),
        ("think", None, ""),
        ("think", 0.5, ""),
        ("start", True, ""),
    ],
)
def test_what_is_wrong_about_a_client_is_one_line(tmp_path: Path, key: str, value: object, why: str) -> None:
    path = tmp_path / "clients.parquet"
    write(CLIENTS, path)
    table = pq.read_table(str(path))
    about = json.loads(table.schema.metadata[b"headway clients"])
    about[0][key] = value
    changed = table.replace_schema_metadata({b"headway clients": json.dumps(about).encode()})
    pq.write_table(changed, str(path))
    assert why in _line(path)


@pytest.mark.parametrize("about", ["", "{", "3", "[3]", "{}", "[{}]", "[]"])
def test_metadata_that_is_no_list_of_clients_is_one_line(tmp_path: Path, about: str) -> None:
    path = tmp_path / "clients.parquet"
    write(CLIENTS, path)
    changed = pq.read_table(str(path)).replace_schema_metadata({b"headway clients": about.encode()})
    pq.write_table(changed, str(path))
    _line(path)


def test_launches_that_are_missing_or_negative_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "clients.parquet"
    for column, values in (("gap", [5, None, 6]), ("duration", [100, -50, 80]), ("kernel", [0, 9, 0])):
        write(CLIENTS, path)
        table = pq.read_table(str(path))
        at = table.schema.get_field_index(column)
        pq.write_table(table.set_column(at, column, pa.array(values, table.schema.types[at])), str(path))
        _line(path)
