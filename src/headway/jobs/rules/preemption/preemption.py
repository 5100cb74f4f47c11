"""Rules of preemption that a cluster declares, as values: who may stop whose jobs, how, and after how long.

They are Slurm's: preempt/qos goes by the lists of QOSs, preempt/partition_prio by the tiers of partitions. What they
mean for two jobs is worked out in ``tiers.py``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headway.errors import ExperimentError
from headway.units import SECOND

BY = ("qos", "partition")
AGAIN_AFTER = 120 * SECOND
"""Slurm's cred_expire."""


class Mode(StrEnum):
    """What becomes of a victim."""

    OFF = "off"
    """It is never preempted."""
    REQUEUE = "requeue"
    """It waits again, and starts from its beginning."""
    CANCEL = "cancel"
    """It ends for good."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """That jobs are preempted at all, and what holds where a QOS or a partition says nothing else."""

    by: str = "qos"
    """``qos``: a QOS names whom it preempts; ``partition``: a higher tier preempts lower ones on shared nodes."""
    mode: Mode = Mode.REQUEUE
    exempt: int = 0
    """Nanoseconds that a job has run, at least, before it is preempted."""
    again_after: int = AGAIN_AFTER
    """Nanoseconds until a requeued job may start again."""
    youngest_first: bool = False
    """Whether of the victims the one that started last goes first, whatever its QOS or tier."""

    def __post_init__(self) -> None:
        if self.by not in BY:
            raise ExperimentError(f"preemption: by {self.by!r} must be qos or partition")
        if min(self.exempt, self.again_after) < 0:
            raise ExperimentError("preemption: exempt and again_after must not be negative")


def check_lists(preempts: Mapping[str, Sequence[str]]) -> None:
    """Refuse QOSs that preempt each other in a circle, or themselves, as Slurm does: nothing would run to its end."""
    for first in preempts:
        ways = [[first]]
        seen = {first}
        while ways:
            way = ways.pop()
            for name in preempts.get(way[-1], ()):
                if name == first:
                    raise ExperimentError(f"QOS {first} preempts itself: {' preempts '.join([*way, first])}")
                if name not in seen:
                    seen.add(name)
                    ways.append([*way, name])
