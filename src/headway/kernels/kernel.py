"""One kernel of one program: what the driver says of it, which is all that identifies it."""

from dataclasses import dataclass

KERNEL, GRAPH, COPY = 1, 2, 3
"""Kinds, as the shim and the traces number them."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Its name, its grid, and how many of its blocks fit on one SM; a graph is one unit, whatever is in it."""

    name: str
    blocks: int
    per_sm: int = 1
    kind: int = KERNEL
