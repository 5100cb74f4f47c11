"""Causes for which a job waits: their kinds, and one cause with its numbers."""

from dataclasses import dataclass, field
from enum import StrEnum


class CauseKind(StrEnum):
    """Kinds of causes for which a job waits."""

    ROUND = "round"
    """The policy decides only at a later time."""
    QUOTA = "quota"
    """Its tenant's quota does not allow it."""
    HEAD_OF_LINE = "head-of-line"
    """Jobs ahead of it hold it back, whether or not it would fit."""
    RESERVATION = "reservation"
    """It would fit now but delay a job that was promised its GPUs."""
    ORDER = "order"
    """Jobs ahead of it come first for what becomes free."""
    NODES_DOWN = "nodes-down"
    """It would fit on nodes that are down or drained."""
    CAPACITY = "capacity"
    """Fewer GPUs are free than it asks for."""
    FRAGMENTATION = "fragmentation"
    """Enough GPUs are free, but not together."""
    HOST = "host"
    """GPUs are free, but not the CPUs or the memory for it."""
    PLACEMENT = "placement"
    """GPUs are free, but the placement rule does not accept them."""
    LIMIT = "limit"
    """A limit on what its user, account or class may hold does not allow it."""
    GRACE = "grace"
    """Jobs were given notice for it, and have not gone yet."""
    REQUEUED = "requeued"
    """It was requeued for another job, and may not start yet."""
    STOPPED = "stopped"
    """The queue that it was given to does not run."""
    RESERVED = "reserved"
    """Nodes are kept for others, or its own advance reservation has not begun."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause for which a job waits. Causes of one kind and level are the same cause with other numbers."""

    kind: CauseKind
    text: str
    level: str = ""
    """For fragmentation the topology level; for order ``quota`` if jobs of its tenant come first for its quota; for
    round ``reservation`` if the policy keeps to a later reservation of the job itself; for a limit or an advance
    reservation its name."""
    jobs: tuple[int, ...] = ()
    """The jobs that cause it: the first one ahead, the holders of reservations, or who holds what a limit counts."""
    facts: dict[str, int] = field(default_factory=dict)
    """The numbers in the text, by name."""
    names: tuple[str, ...] = ()
    """The names of these jobs in the trace; the number of a job without a name."""

    @property
    def identity(self) -> tuple[CauseKind, str]:
        """Return kind and level: the cause apart from the numbers of the moment."""
        return self.kind, self.level

    @property
    def title(self) -> str:
        """Return kind and level as text: ``fragmentation at node``."""
        if self.kind is CauseKind.FRAGMENTATION:
            return f"{self.kind} at {self.level}"
        if self.kind in (CauseKind.LIMIT, CauseKind.RESERVED):
            return f"{self.kind} {self.level}"
        return str(self.kind)

    def __str__(self) -> str:
        return f"{self.title}: {self.text}"
