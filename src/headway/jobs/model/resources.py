"""What a job holds on a cluster: GPUs of some nodes, and CPUs, memory and storage bandwidth with them."""

from typing import NamedTuple, TypeAlias

Placement: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a node's index and a bit mask of its GPUs; a job without GPUs has a mask of 0."""

UNCOUNTED = 1 << 60
"""The amount of a resource on a node that does not count it: more than any job asks for."""


class Grant(NamedTuple):
    """The CPUs, memory and storage bandwidth that a job holds in all; on each node the part of its GPUs there."""

    cpu_milli: int
    memory_bytes: int
    storage: int = 0
    """Bytes per second from the nodes' storage."""
