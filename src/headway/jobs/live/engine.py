"""What runs programs for a queue: start one under a lease, ask it to end, say which have ended.

The queue decides; an engine carries out. That of this machine is ``jobs/live/local/engine.py``, that of a Slurm
``jobs/slurm/live/engine.py``. Everything is asked for by lease, which is a number that no two starts have, so that an
order may be given twice and is carried out once.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from headway.jobs.model.job import Job
from headway.jobs.model.resources import Placement
from headway.program.protocol import SAVED as SAVED


@dataclass(frozen=True, slots=True)
class Order:
    """A program to start: what it is, and what it gets."""

    lease: int
    job: int
    placement: Placement = ()
    """Its nodes, and a mask of the GPUs of each."""
    gpu_milli: int = 1000
    """Thousandths of each GPU."""
    cpu_milli: int = 0
    memory_bytes: int = 0
    again: bool = False
    """Whether the job was started before."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """Return the numbers of its GPUs on its first node."""
        mask = self.placement[0][1] if self.placement else 0
        return tuple(gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)

    def on(self, node: int) -> tuple[int, int, int]:
        """Return the mask of its GPUs on a node, and the CPUs in thousandths and bytes of memory that go with them."""
        masks = dict(self.placement)
        if node not in masks:
            return 0, 0, 0
        of, here = sum(mask.bit_count() for mask in masks.values()), masks[node].bit_count()
        cpu_milli, memory_bytes = ((each * here + of - 1) // of if of else each for each in self.host)
        return masks[node], cpu_milli, memory_bytes

    @property
    def host(self) -> tuple[int, int]:
        """Return its CPUs in thousandths, and its bytes of memory."""
        return self.cpu_milli, self.memory_bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """What ran under a lease is gone."""

    lease: int
    status: int = 0
    """Exit status; below 0 the signal that ended it."""
    lost: bool = False
    """Whether nobody knows how it ended: what watched it was killed, or the machine was restarted."""
    cancelled: bool = False
    """Whether somebody ended its job for good, outside the queue."""
    reason: str = ""
    """In words, where the status does not say it."""
    ended_s: float = 0.0
    """When, in seconds since 1970; 0: nobody knows."""

    def told(self) -> str:
        """Return how it ended, in a few words."""
        if self.reason:
            return self.reason
        if self.lost:
            return "lost with what watched it"
        return f"exit status {self.status}" if self.status >= 0 else f"signal {-self.status}"


class Engine(Protocol):
    """Runs programs."""

    def launch(self, order: Order) -> None:
        """Start a program, once for its lease however often it is asked.

        Raises OSError or QueueError where it cannot now.
        """

    def adopt(self, order: Order) -> bool:
        """Take over what an earlier queue had ordered; return whether it had begun."""

    def stop(self, lease: int, *, at_once: bool = False) -> None:
        """Ask what runs under a lease to end; kill it after its grace period, or at once."""

    def regrant(self, order: Order) -> None:
        """Give what runs under a lease other CPUs and memory."""

    def poll(self) -> list[Ended]:
        """Return what has ended since it was asked last."""

    def progress(self, lease: int) -> float | None:
        """Return the share of its work that a program says is done; None where it does not say."""

    def forget(self, lease: int) -> None:
        """Clean up after a lease whose end is written down."""


class Site(Protocol):
    """What an engine belongs to, where others act too: they submit jobs there, end them, and take nodes away."""

    def look(self, queue: Any) -> None:
        """Let the queue know what happened there; QueueError where it must not go on."""

    def enlist(self, job: Job, program: Any) -> Any:
        """Have a new job known there; return its program, with what it is known as."""

    def dismiss(self, program: Any) -> None:
        """Take that back: the job could not be written down."""

    def status(self) -> dict[str, Any]:
        """Return what there is to tell, in numbers."""

    def close(self) -> None:
        """Leave it to others."""
