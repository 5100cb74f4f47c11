"""Actions of training policies: what a policy may ask for on a cluster, in the imperative."""

from typing import TypeAlias

from msgspec import Struct

from headway.training.resources import Grant, Placement


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
