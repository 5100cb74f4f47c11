"""What a policy may ask for on a cluster, in the imperative."""

from dataclasses import dataclass
from typing import TypeAlias

Placement: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a node's index and a bit mask of its GPUs; a job without GPUs has a mask of 0."""


@dataclass(frozen=True, slots=True)
class StartJob:
    """Run a waiting job on these GPUs, under a new lease."""

    job: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class PreemptJob:
    """Checkpoint a running job and put it back into the queue; it pays for this when it starts again."""

    job: int


@dataclass(frozen=True, slots=True)
class MigrateJob:
    """Move a running job to other GPUs, under a new lease; it stands still for the cost of the move."""

    job: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Ask again at this time, even if nothing happens until then."""

    time: int


Action: TypeAlias = StartJob | PreemptJob | MigrateJob | WakeAt
