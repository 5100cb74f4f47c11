"""Runs a few jobs on a small cluster and says who ran when, in minutes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headway.core.scheduler import Scheduler
from headway.core.tape import Row, TapeWriter
from headway.jobs.model.cluster import Cluster, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import build
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.state.state import TrainingState
from headway.units import MINUTE

ENDS = (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED, Kind.PREEMPT)


@dataclass(frozen=True)
class Played:
    """What happened."""

    policy: ComposedPolicy
    jobs: tuple[Job, ...]
    rows: list[Row]

    @property
    def spans(self) -> list[tuple[int, float, float]]:
        """(job, from, to) of every stretch of running, in order of their starts; minutes."""
        open_at: dict[int, int] = {}
        found = []
        for time, kind, job, *_ in self.rows:
            if kind == Kind.START:
                open_at[job] = time
            elif kind in ENDS and job in open_at:
                found.append((open_at.pop(job), job, time))
        return [(job, start / MINUTE, end / MINUTE) for start, job, end in sorted(found)]

    @property
    def preempted(self) -> list[tuple[int, float, float]]:
        """The spans that a preemption ended."""
        stops = {(row[2], row[0] / MINUTE) for row in self.rows if row[1] == Kind.PREEMPT}
        return [(job, start, end) for job, start, end in self.spans if (job, end) in stops]

    @property
    def first_starts(self) -> list[int]:
        """Jobs in order of their first start."""
        return list(dict.fromkeys(row[2] for row in self.rows if row[1] == Kind.START))

    @property
    def ends(self) -> dict[int, float]:
        """When jobs finished; minutes."""
        return {row[2]: row[0] / MINUTE for row in self.rows if row[1] == Kind.FINISHED}

    def running_at(self, minute: float) -> set[int]:
        """Jobs that run just after this time."""
        return {job for job, start, end in self.spans if start <= minute < end}


def job(submit: float, work: float, gpus: int = 1, **fields: Any) -> Job:
    """A job with times in minutes."""
    return Job(0, round(submit * MINUTE), round(work * MINUTE), gpus, **fields)


def play(jobs: Iterable[Job], spec: str, cluster: Cluster | int = 1, **options: Any) -> Played:
    """Run to the end; a cluster given as a number is one node with so many GPUs."""
    ordered = workload(jobs)
    policy = build(spec, **options)
    where = uniform(1, cluster) if isinstance(cluster, int) else cluster
    state = TrainingState(where, to_come=len(ordered), arrangement=policy)
    policy.bind(state)
    tape = TapeWriter(None)
    Scheduler(state, policy, SimulatedCluster(ordered, state), tape).run()
    rows = [tuple(row) for row in tape.close().rows.tolist()]
    return Played(policy, ordered, rows)
