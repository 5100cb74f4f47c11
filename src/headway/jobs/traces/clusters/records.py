"""Define the records that parsers of cluster files return: one a node, one a partition, and a site's rules."""

from dataclasses import dataclass, field

from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.slurm.output.records import SiteRules, Unread


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node as a file describes it; ``cpus`` and ``memory_bytes`` are None where the file does not say."""

    name: str
    gpus: int = 0
    gpu_type: str = "gpu"
    cpus: int | None = None
    memory_bytes: int | None = None
    partitions: tuple[str, ...] = ()
    weight: int = 0
    """Nodes of lower weight are filled first."""


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """One partition as a file describes it; ``nodes`` is None where the nodes say what they belong to."""

    name: str
    nodes: tuple[str, ...] | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Described:
    """What one file says about a cluster."""

    nodes: tuple[NodeRecord, ...] = ()
    partitions: tuple[PartitionRecord, ...] = ()
    notes: tuple[str, ...] = ()
    rules: SiteRules = field(default_factory=SiteRules)
    """What a Slurm site's own files say about its rules."""
    limits: tuple[LimitRule, ...] = ()
    """Limits that another system's files declare."""
    unread: tuple[Unread, ...] = ()
    """What of those is not followed."""
