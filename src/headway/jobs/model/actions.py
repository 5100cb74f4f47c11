"""Actions of training policies: what a policy may ask for on a cluster, in the imperative."""

from typing import TypeAlias

from msgspec import Struct

from headway.jobs.model.resources import Grant, Placement


class StartJob(Struct, frozen=True, gc=False):
    """Run a waiting job on these GPUs, under a new lease."""

    job: int
    placement: Placement
    grant: Grant | None = None
    """None: what it asked for."""


class PreemptJob(Struct, frozen=True, gc=False):
    """Checkpoint a running job and put it back into the queue; it pays for this when it starts again."""

    job: int


class RequeueJob(Struct, frozen=True, gc=False):
    """Stop a running job for another one, as the cluster's rules allow; it waits again, from its beginning."""

    job: int
    by: int
    """The job for which it goes."""


class KillJob(Struct, frozen=True, gc=False):
    """Stop a running job for another one, as the cluster's rules allow, for good."""

    job: int
    by: int


class WarnJob(Struct, frozen=True, gc=False):
    """Give a running job notice: at this time it is requeued or killed for another one; it holds all until then."""

    job: int
    by: int
    until: int


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


Stop: TypeAlias = PreemptJob | RequeueJob | KillJob | WarnJob
Action: TypeAlias = StartJob | Stop | MigrateJob | ReallocateJob | WakeAt
