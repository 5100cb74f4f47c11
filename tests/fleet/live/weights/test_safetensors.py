"""The safetensors format: what is written can be read, by us and by others; what is broken is said."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from headway.errors import InputError
from headway.fleet.live.weights.safetensors import ALIGNMENT, ITEM_BYTES, Entry, Piece, placed, read_header, write

_ENTRIES = (Entry("b", "F32", (3, 2)), Entry("a", "BF16", (5,)), Entry("n", "I64", ()), Entry("none", "F16", (0, 4)))


def _write(path: Path, entries: tuple[Entry, ...]) -> bytes:
    """Each tensor's bytes are its number."""
    contents = {entry.name: bytes([number + 1]) * entry.size_bytes for number, entry in enumerate(entries)}

    def fill(memory: memoryview) -> None:
        for entry in entries:
            memory[entry.begin : entry.end] = contents[entry.name]

    write(path, entries, {"by": "us"}, fill)
    return path.read_bytes()


def test_a_file_on_disk_has_its_tensors_without_gaps_behind_a_header_in_json(tmp_path: Path) -> None:
    entries = placed(_ENTRIES, 1)
    data = _write(tmp_path / "w", entries)
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    assert table["__metadata__"] == {"by": "us"}
    assert table["n"] == {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}
    assert table["b"] == {"dtype": "F32", "shape": [3, 2], "data_offsets": [8, 32]}
    assert sorted(end for row in table.values() if "shape" in row for end in row["data_offsets"])[-1] == 42
    assert len(data) == 8 + length + 42
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_a_header_is_read_back_and_matches_its_tensors(tmp_path: Path) -> None:
    entries = placed(_ENTRIES)
    _write(tmp_path / "w", entries)
    header = read_header(tmp_path / "w")
    assert header.entries == entries
    assert header.start % 4096 == 0
    assert header.matches(entries)
    assert header.matches(placed(_ENTRIES, 1))
    assert not header.matches([Entry("b", "F32", (2, 3))])
    assert not header.matches([Entry("c", "F32", (3, 2))])
    assert not header.is_ours


@given(st.lists(st.tuples(st.sampled_from(sorted(ITEM_BYTES)), st.lists(st.integers(0, 9), max_size=3)), max_size=8))
def test_tensors_begin_at_multiples_and_do_not_overlap(kinds: list[tuple[str, list[int]]]) -> None:
    entries = placed(Entry(f"t{number}", kind, tuple(shape)) for number, (kind, shape) in enumerate(kinds))
    end = 0
    for entry in entries:
        assert entry.begin % ALIGNMENT == 0
        assert entry.begin >= end
        end = entry.end


def test_a_file_placed_alike_is_one_piece_and_one_without_gaps_is_one_a_tensor(tmp_path: Path) -> None:
    entries, dense = placed(_ENTRIES), placed(_ENTRIES, 1)
    _write(tmp_path / "host", entries)
    host = read_header(tmp_path / "host")
    assert host.pieces(entries) == (Piece(host.start, 0, entries[-1].end),)
    _write(tmp_path / "disk", dense)
    disk = read_header(tmp_path / "disk")
    assert disk.pieces(entries) == tuple(
        Piece(disk.start + there.begin, here.begin, here.size_bytes) for here, there in zip(entries, dense, strict=True)
    )


def _file(path: Path, header: str, tail: bytes = b"") -> Path:
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + tail)
    return path


@pytest.mark.parametrize(
    ("header", "tail", "says"),
    [
        ("{", b"", "header is broken"),
        ("[]", b"", "header is broken"),
        ('{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}', b"1234", "header is broken"),
        ('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', b"1234", "ends at 4"),
        ('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,-4]}}', b"1234", "header is broken"),
        ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"123", "cut short"),
    ],
)
def test_a_broken_file_is_said_in_one_line(tmp_path: Path, header: str, tail: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_header(_file(tmp_path / "w", header, tail))


def test_a_file_of_something_else_is_said(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"no weights at all")
    with pytest.raises(InputError, match="no safetensors file"):
        read_header(tmp_path / "w")


def test_a_writer_that_fails_leaves_the_file_from_before(tmp_path: Path) -> None:
    before = _write(tmp_path / "w", placed(_ENTRIES))

    def fails(memory: memoryview) -> None:
        memory[:1] = b"x"
        raise OSError(5, "input/output error")

    with pytest.raises(OSError, match="input/output"):
        write(tmp_path / "w", placed(_ENTRIES), {}, fails)
    assert (tmp_path / "w").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
