"""Memory of one model: a range of addresses for the worker's life, with pages behind it while the model is resident.

On a CPU the range is a private anonymous mapping; on a GPU it is reserved with the driver (``cuda.py``). Tensors over a
range stay where they are when the model goes and comes back.
"""

import mmap
from contextlib import suppress
from typing import Any, Protocol

from headway.fleet.live.weights.host import Source

_NO_RESERVE = 0x4000
"""``MAP_NORESERVE``, which Python names from 3.13 on: addresses alone count against no limit."""
_PAGE = mmap.PAGESIZE


class Range(Protocol):
    """A range of addresses of one model."""

    size_bytes: int
    """What it takes while it is mapped."""
    link: str
    """What it is filled over, one model at a time on this machine; empty: nothing that others wait for."""

    def attach(self, source: Source) -> None:
        """Make ready to be filled from a source, once."""

    def map(self) -> None:
        """Put pages behind the addresses."""

    def fill(self, source: Source) -> None:
        """Copy the weights of a model here; return when they are there."""

    def write(self, begin: int, values: memoryview) -> None:
        """Copy some bytes here; return when they are there."""

    def unmap(self) -> None:
        """Give the pages back."""

    def flat(self) -> Any:
        """Return the range as a tensor of bytes; it is mapped."""


class CpuRange:
    """A range in the memory of this process."""

    link = ""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = -(-size_bytes // _PAGE) * _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self._memory = mmap.mmap(-1, self.size_bytes, flags=flags)
        with suppress(OSError):  # a kernel without huge pages
            self._memory.madvise(mmap.MADV_HUGEPAGE)

    def attach(self, source: Source) -> None:
        """Do nothing: its file is read."""

    def map(self) -> None:
        """Do nothing: pages come when they are first written."""

    def fill(self, source: Source) -> None:
        """Copy the weights of a model here."""
        source.read_into(memoryview(self._memory))

    def write(self, begin: int, values: memoryview) -> None:
        """Copy some bytes here."""
        self._memory[begin : begin + values.nbytes] = values

    def unmap(self) -> None:
        """Give the pages back at once; whoever still reads here, against the rules, finds zeros."""
        self._memory.madvise(mmap.MADV_DONTNEED)

    def flat(self) -> Any:
        """Return the range as a tensor of bytes."""
        import torch

        return torch.frombuffer(self._memory, dtype=torch.uint8)
