"""Audit: finds running jobs on a tape that would have been faster with their proportional share.

Allocations with ``Allocation.guarantees`` promise that there is none, and ``headway audit`` proves it. A job's speed is
computed from its profile at the speed of its GPUs, as the allocation does. Only what is held at the end of an instant
counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.audit import Auditor, Finding
from headway.core.replay import rows_of
from headway.core.tape import Tape
from headway.jobs.audit.replay import grant_of, placement_of
from headway.jobs.model.accounting import gpus_in
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.proportional_share import ProportionalShares
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.model.rows import ENDS, REJOINS, Kind
from headway.jobs.model.sensitivity import Matrix
from headway.jobs.model.speed import SpeedModel

_STOPS = tuple(map(int, (*ENDS, *REJOINS)))


def slower_than_proportional(cluster: Cluster, jobs: Sequence[Job], tape: Tape, speed: SpeedModel) -> list[Finding]:
    """Return a finding for each job and instant from which on it was slower than with its proportional share."""
    watch = _Watch(cluster, jobs, speed)
    for index, row in enumerate(rows_of(tape)):
        watch.enter(index, row)
    watch.close(complete=False)
    return watch.found


@dataclass(slots=True)
class _Held:
    """A running job, its placement and grant, and the row of the tape that set them."""

    job: Job
    placement: Placement
    grant: Grant
    row: int = 0


class _Watch(Auditor):
    """Tracks grants, and checks the jobs that changed when an instant is over."""

    opens = (int(Kind.START), int(Kind.MIGRATE), int(Kind.REALLOCATE))
    follows = (int(Kind.PLACE), int(Kind.GRANT), int(Kind.STORAGE))
    shared = slice(2, 4)

    def __init__(self, cluster: Cluster, jobs: Sequence[Job], speed: SpeedModel) -> None:
        super().__init__()
        self._rows = {**dict.fromkeys(Kind, lambda row: None), **dict.fromkeys(_STOPS, self._on_stopped)}
        self._jobs = jobs
        self._speed = speed
        self._believed = Matrix(speed.profiles)
        self._shares = ProportionalShares(cluster)
        self._running: dict[int, _Held] = {}
        self._shared: dict[tuple[int, int], set[int]] = {}
        """Jobs on each (node, GPU) that is shared."""
        self._touched: set[int] = set()

    def _settle(self, rows: list[list[int]]) -> None:
        kind, job = rows[0][1:3]
        if kind == Kind.REALLOCATE:
            held = self._running[job]
        else:
            if job in self._running:
                self._leave(self._running[job])
            asks = self._jobs[job]
            held = _Held(asks, placement_of(rows), Grant(asks.cpu_milli, asks.memory_bytes))
            self._running[job] = held
            for gpu in _shared_gpus(held):
                self._shared.setdefault(gpu, set()).add(job)
                self._touched |= self._shared[gpu]
        if (grant := grant_of(rows)) is not None:
            held.grant = grant
        held.row = self._row - len(rows) + 1
        self._touched.add(job)

    def _on_stopped(self, row: list[int]) -> None:
        if row[2] in self._running:
            self._leave(self._running.pop(row[2]))

    def _leave(self, held: _Held) -> None:
        self._touched.discard(held.job.id)
        for gpu in _shared_gpus(held):
            self._shared[gpu].discard(held.job.id)
            self._touched |= self._shared[gpu]

    def _end_instant(self) -> None:
        for number in sorted(self._touched):
            held = self._running[number]
            job, proportional = held.job, self._shares.of(held.placement, held.job.width_milli)
            if not job.gpus or job.model not in self._believed.profiles or held.grant == proportional:
                continue
            others = [self._jobs[other] for gpu in _shared_gpus(held) for other in self._shared[gpu] if other != number]
            beside = [other.model for other in others]
            pace = self._speed.pace(job, held.placement, sum(other.gpu_milli for other in others), beside)
            has = self._believed.of(job, self._speed.effective(held.grant), pace)
            could = self._believed.of(job, self._speed.effective(proportional), pace)
            if has < could:
                told = f"job {number} runs at {has} ppm with {held.grant}; with its proportional share, {proportional},"
                self.found.append(Finding(held.row, self._now, "due", f"{told} it would run at {could} ppm"))
        self._touched.clear()


def _shared_gpus(held: _Held) -> list[tuple[int, int]]:
    """Return the (node, GPU) that a job shares with others; empty if it has whole GPUs."""
    if not held.job.shared:
        return []
    return [(node, gpu) for node, mask in held.placement for gpu in gpus_in(mask)]
