"""One kernel of one program, identified by what the driver tells of it."""

from dataclasses import dataclass

KERNEL, GRAPH, COPY = 1, 2, 3
"""Kinds, as the shim and the traces number them."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Name, number of blocks, and how many of them fit on one SM; a CUDA graph counts as one kernel."""

    name: str
    blocks: int
    per_sm: int = 1
    kind: int = KERNEL
