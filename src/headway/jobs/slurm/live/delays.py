"""By how much jobs that are not headway's may have been delayed by those that are.

What is counted is an upper bound: time for which a job waited for resources, or behind others, while jobs of headway
that started after it became eligible held as many GPUs as it lacked, wherever they are. Jobs without GPUs are counted
by CPUs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from headway.jobs.slurm.live.rows import JobRow, NodeRow

_WAITING = ("Resources", "Priority", "ReqNodeNotAvail", "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved")


@dataclass(slots=True)
class Delays:
    """The count so far."""

    seconds: float = 0.0
    jobs: set[int] = field(default_factory=set)
    _last_s: float = 0.0

    def count(self, now_s: float, own: Iterable[JobRow], others: Iterable[JobRow], nodes: Sequence[NodeRow]) -> None:
        """Count the time since the last look; ``now_s``: of any clock that is never set."""
        span, self._last_s = now_s - self._last_s if self._last_s else 0.0, now_s
        later = [row for row in own if row.runs and row.start_s is not None]
        for row in others:
            if row.waits and not row.held and row.reason.startswith(_WAITING) and _could_run(row, later, nodes):
                self.seconds += span
                self.jobs.add(row.id)


def _could_run(row: JobRow, own: Sequence[JobRow], nodes: Sequence[NodeRow]) -> bool:
    """Return whether a job lacks no more than jobs hold that started after it was eligible, and lacks something."""
    since = row.eligible_s if row.eligible_s is not None else row.submit_s or 0.0
    held = [each for each in own if each.start_s is not None and each.start_s >= since]
    of: Callable[[JobRow], int] = attrgetter("gpus" if row.gpus else "cpus")
    total, used = attrgetter("gpus" if row.gpus else "cpus"), attrgetter("used_gpus" if row.gpus else "used_cpus")
    free = sum(total(node) - used(node) for node in nodes if node.takes_jobs)
    return bool(held) and of(row) <= free + sum(map(of, held))
