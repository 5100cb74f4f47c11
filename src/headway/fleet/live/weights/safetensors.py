"""Weights in files: the safetensors format, read and written with the standard library.

Eight bytes of length, a header in JSON (by tensor: type, shape, place), then the raw bytes. A file on disk has its
tensors one behind the other, as the format asks; the copy in host memory has each at a multiple of 256, as on a device,
so that one copy brings all of it.
"""

import json
import mmap
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from headway.errors import InputError

ALIGNMENT = 256
"""Where a tensor may begin in memory: what CUDA's own allocator keeps to, and its fast kernels ask for."""
ITEM_BYTES = dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1)
ITEM_BYTES |= dict.fromkeys(("I16", "U16", "F16", "BF16"), 2) | dict.fromkeys(("I32", "U32", "F32"), 4)
ITEM_BYTES |= dict.fromkeys(("I64", "U64", "F64", "C64"), 8)
"""Bytes of one number, by type as the format calls it."""
NOTE = "headway"
"""The note in files that headway writes: of which server, or from what, they were made."""
_MOST_HEADER_BYTES = 100_000_000
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor: its name, and where it lies in the bytes of its model."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int = 0

    @property
    def size_bytes(self) -> int:
        """Its bytes."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.begin + self.size_bytes


def aligned(size_bytes: int, granularity: int = ALIGNMENT) -> int:
    """Return the next multiple of a granularity."""
    return -(-size_bytes // granularity) * granularity


def placed(entries: Iterable[Entry], alignment: int = ALIGNMENT) -> tuple[Entry, ...]:
    """Return tensors one behind the other, large types first, each at a multiple of an alignment."""
    found, at = [], 0
    for entry in sorted(entries, key=lambda each: (-ITEM_BYTES[each.dtype], each.name)):
        found.append(replace(entry, begin=at))
        at = aligned(found[-1].end, alignment)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file that belong at one place of a model."""

    file: int
    begin: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself."""

    entries: tuple[Entry, ...]
    notes: Mapping[str, str]
    """Whatever the writer noted."""
    start: int
    """The first byte behind the header; places count from here."""

    @property
    def is_ours(self) -> bool:
        """Return whether headway wrote the file."""
        return NOTE in self.notes

    def matches(self, entries: Iterable[Entry]) -> bool:
        """Return whether each of these tensors is here, with its type and shape."""
        here = {entry.name: (entry.dtype, entry.shape) for entry in self.entries}
        return all(here.get(entry.name) == (entry.dtype, entry.shape) for entry in entries)

    def pieces(self, entries: Sequence[Entry]) -> tuple[Piece, ...]:
        """Return which bytes of the file belong where, for tensors placed otherwise; neighbours are one piece."""
        here = {entry.name: self.start + entry.begin for entry in self.entries}
        runs: list[list[Entry]] = [[entry] for entry in entries[:1]]
        for before, entry in pairwise(entries):
            same = here[entry.name] - entry.begin == here[before.name] - before.begin
            runs[-1].append(entry) if same else runs.append([entry])
        return tuple(Piece(here[run[0].name], run[0].begin, run[-1].end - run[0].begin) for run in runs)


def read_header(path: Path) -> Header:
    """Return the header of a file; raise InputError where the file is not in the format or is cut short."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(size_bytes - 8, _MOST_HEADER_BYTES):
            raise InputError(f"{path}: no safetensors file: its header has {length} bytes, the file {size_bytes}")
        try:
            table = json.loads(file.read(length))
            notes = {str(key): str(value) for key, value in table.pop("__metadata__", {}).items()}
            entries = tuple(_entry(name, row) for name, row in table.items())
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise InputError(f"{path}: no safetensors file: its header is broken ({problem})") from None
    header = Header(entries, notes, 8 + length)
    for entry in entries:
        if header.start + entry.end > size_bytes:
            raise InputError(f"{path}: cut short: {entry.name} ends behind the file's {size_bytes} bytes; remove it")
    return header


def _entry(name: str, row: Mapping[str, Any]) -> Entry:
    begin, end = row["data_offsets"]
    entry = Entry(name, row["dtype"], tuple(map(int, row["shape"])), int(begin))
    if min((entry.begin, *entry.shape)) < 0 or entry.end != end:
        raise ValueError(f"{name} has {entry.size_bytes} bytes at {begin} and ends at {end}")
    return entry


def write(path: Path, entries: Sequence[Entry], notes: Mapping[str, str], fill: Callable[[memoryview], None]) -> None:
    """Write a file of placed tensors, whose bytes ``fill`` writes into the memory it is given.

    A killed writer leaves the file from before, and a draft that the next one writes over: hold a lock.
    """
    table: dict[str, object] = {"__metadata__": dict(notes)}
    for entry in entries:
        offsets = [entry.begin, entry.end]
        table[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
    text = json.dumps(table, separators=(",", ":")).encode()
    length = aligned(len(text) + 8, _PAGE) - 8  # the tensors begin with a page
    size_bytes = 8 + length + max((entry.end for entry in entries), default=0)
    draft = path.with_name(f"{path.name}.part")
    try:
        with draft.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)  # a full disk is an error here, and not a signal later
            with mmap.mmap(file.fileno(), size_bytes) as whole, memoryview(whole) as memory:
                memory[: 8 + length] = length.to_bytes(8, "little") + text.ljust(length)
                with memory[8 + length :] as tensors:
                    fill(tensors)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
