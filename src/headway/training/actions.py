"""Actions of training policies: what a policy may ask for on a cluster, in the imperative."""

from typing import NamedTuple, TypeAlias

from msgspec import Struct

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


class StartJob(Struct, frozen=True, gc=False):
    """Run a waiting job on these GPUs, under a new lease."""

    job: int
    placement: Placement
    grant: Grant | None = None
    """None: what it asked for."""


class PreemptJob(Struct, frozen=True, gc=False):
    """Checkpoint a running job and put it back into the queue; it pays for this when it starts again."""

    job: int


class MigrateJob(Struct, frozen=True, gc=False):
    """Move a running job to other GPUs, under a new lease; it stands still for the cost of the move."""

    job: int
    placement: Placement
    grant: Grant | None = None
    """None: what it holds."""


class ReallocateJob(Struct, frozen=True, gc=False):
    """Change the CPUs, memory and storage bandwidth of a running job where it is; its lease goes on."""

    job: int
    grant: Grant


class WakeAt(Struct, frozen=True, gc=False):
    """Let the policy decide at this time, even if nothing happens until then."""

    time: int


Action: TypeAlias = StartJob | PreemptJob | MigrateJob | ReallocateJob | WakeAt
