"""Measure the runs of a report once each, and compute the differences between them with their intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from headway.core.tape import Tape
from headway.errors import InputError
from headway.jobs.metrics.changes import Change, changed, changed_over_seeds
from headway.jobs.metrics.fragmentation import Fragmentation, fragmentation
from headway.jobs.metrics.groups import by_tenant
from headway.jobs.metrics.jobs import failed_gpu_seconds, gpu_seconds, job_table
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.sizes import size_class
from headway.jobs.metrics.summary import REPLICATION, Summary, from_json, of_ledger
from headway.jobs.metrics.timeline import Timeline, timeline
from headway.jobs.metrics.window import Window
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import describe
from headway.jobs.show.formatting import size_label
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces.past import Past
from headway.plugins import as_named
from headway.show.names import cut_distinct
from headway.statistics.intervals import Interval, mean_interval
from headway.statistics.replications import Row, Sample, change, known, over_seeds
from headway.statistics.series import FloatArray, IntArray
from headway.units import SECOND

FAILED = "attempts that failed"
REQUEUED = "work lost with a preemption"
"""Counted beside the lost GPU-hours, not among them: no policy can help it."""


class Scene(Protocol):
    """Everything about a run but its outcome."""

    @property
    def experiment(self) -> Experiment:
        """Return the experiment that it was made from."""

    @property
    def cluster(self) -> Cluster:
        """Return the nodes, partitions and tenants."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Return the workload, in order of submission."""

    @property
    def past(self) -> Past:
        """Return what the log says of the jobs besides."""

    def window(self) -> Window | None:
        """Return the jobs that are measured; None for all."""

    def policy(self) -> ComposedPolicy:
        """Return a fresh policy."""

    def policy_name(self) -> str:
        """Return what the policy is called in full, which needs no file of it."""

    def speed(self) -> SpeedModel:
        """Return how fast jobs run where."""

    def costs(self) -> Costs:
        """Return what stopping and moving cost."""


class Stored(Protocol):
    """A run folder that was read back."""

    @property
    def folder(self) -> Path:
        """Return where it lies."""

    @property
    def scene(self) -> Scene:
        """Return the run before it began."""

    @property
    def tape(self) -> Tape:
        """Return what happened."""

    @property
    def complete(self) -> bool:
        """Return whether the run came to its end."""

    @property
    def result(self) -> Mapping[str, Any]:
        """Return the numbers that were stored beside the tape."""


@dataclass(frozen=True)
class Measured:
    """One run of a report."""

    label: str
    """What it is called on the page, in short; no other run has the same."""
    shown_folder: str
    """Its folder as a command would name it; empty for a run that is not kept."""
    stored: Stored
    skipped: int = 0
    name: str = ""
    """What it is called in full, where that is longer."""
    seeds: tuple[Row, ...] = ()
    """Where it stands for runs of several seeds: what the results say of each, beginning with its own."""
    drawn: bool = False
    """Whether another seed would have given another run."""

    @property
    def result(self) -> Mapping[str, Any]:
        """Return the numbers that were stored beside the tape; none of a run that was killed."""
        return self.stored.result

    @cached_property
    def ledger(self) -> Ledger:
        """Return the tape, taken apart."""
        return Ledger(self.stored.tape, self.stored.scene.jobs, self.stored.scene.cluster)

    @cached_property
    def window(self) -> Window | None:
        """Return the jobs that the experiment wants measured; None for all."""
        return self.stored.scene.window()

    @property
    def level(self) -> float:
        """Return the confidence of intervals; 0 for none."""
        return self.stored.scene.experiment.measure.confidence

    @cached_property
    def measured(self) -> npt.NDArray[np.bool_]:
        """Return whether each job of the workload is measured and completed."""
        inside = np.zeros(len(self.ledger.jobs), dtype=np.bool_)
        inside[slice(None) if self.window is None else self.window.jobs] = True
        return inside & self.ledger.completed

    @cached_property
    def summary(self) -> Summary:
        """Return all numbers of this run, of the measured jobs: what figures and the map show."""
        return of_ledger(self.ledger, self.window)

    @cached_property
    def row(self) -> Row:
        """Return what the results say of it, as far as it is compared by that: with several seeds, of all together."""
        if self.seeds:
            return over_seeds(self.seeds, self.level, REPLICATION)
        return {"seed": self.stored.scene.experiment.run.seed, "jct_mean_s": self.summary.jct_s.mean}

    @cached_property
    def numbers(self) -> Summary:
        """Return what headline and table tell: means over the runs of several seeds, else the summary."""
        return from_json(self.row) if self.seeds else self.summary

    @cached_property
    def bulk(self) -> int:
        """Return when nearly all is over: the last arrival, or when 99 % of the jobs have ended."""
        ledger = self.ledger
        if not ledger.arrived.any():
            return ledger.horizon
        return max(int(np.quantile(ledger.left[ledger.arrived], 0.99)), int(ledger.submit.max()))

    @cached_property
    def lines(self) -> Timeline:
        """Return the step functions of the run."""
        return timeline(self.ledger)

    @cached_property
    def fragments(self) -> Fragmentation:
        """Return fragmentation over time."""
        return fragmentation(self.ledger)

    @cached_property
    def table(self) -> pl.DataFrame:
        """Return one row a measured job, with the class of its size."""
        sizes = [size_label(size_class(width)) for width in self.ledger.width[self.ledger.arrived].tolist()]
        table = job_table(self.ledger).with_columns(size=pl.Series(sizes, dtype=pl.String))
        if self.window is None:
            return table
        return table.filter((pl.col("id") >= self.window.first) & (pl.col("id") < self.window.last))

    @cached_property
    def tenants(self) -> pl.DataFrame:
        """Return one row a tenant."""
        return by_tenant(self.ledger, self.table)

    @cached_property
    def jct(self) -> FloatArray:
        """Return seconds to completion, for each job of the workload; nan for those not measured or not completed."""
        return np.where(self.measured, self.ledger.jct / SECOND, np.nan)

    @cached_property
    def wait(self) -> FloatArray:
        """Return seconds waited, for each job of the workload; nan as in ``jct``."""
        return np.where(self.measured, self.ledger.wait / SECOND, np.nan)

    @cached_property
    def jct_interval(self) -> Interval | None:
        """Return where the mean JCT lies."""
        return self._interval("jct_mean", self.jct)

    @cached_property
    def wait_interval(self) -> Interval | None:
        """Return where the mean wait lies."""
        return self._interval("wait_mean", self.wait)

    def _interval(self, stem: str, values: FloatArray) -> Interval | None:
        if not self.seeds:
            return known(mean_interval(values, level=self.level)) if self.level else None
        low, high = self.row[f"{stem}_low_s"], self.row[f"{stem}_high_s"]
        return None if low is None or high is None else (low, high)

    @cached_property
    def sample(self) -> Sample:
        """Return what a paired comparison needs."""
        return Sample(tuple(job.name or str(job.id) for job in self.ledger.jobs), self.jct)

    @cached_property
    def policy(self) -> str:
        """Return the policy in full; as it was asked for, where a part of it is gone."""
        try:
            return self.stored.scene.policy_name()
        except InputError:
            return as_named(self.stored.scene.experiment.policy.name)

    @cached_property
    def allocation(self) -> str:
        """Return what divides CPUs, memory and storage, with its speeds; empty where jobs hold what they ask for."""
        scene = self.stored.scene
        try:
            policy, sensitivity = scene.policy(), scene.speed().sensitivity
        except InputError:
            return scene.experiment.policy.allocation
        if policy.allocation is None:
            return ""
        return describe(policy.allocation) + ("" if sensitivity is None else f" (speed by {sensitivity.name})")

    @cached_property
    def lost(self) -> dict[str, float]:
        """Return GPU-hours of measured jobs without lasting progress, by what took them."""
        ledger, chosen = self.ledger, slice(None) if self.window is None else self.window.jobs
        moved = ledger.kind[ledger.hold_row] == Kind.MIGRATE
        again = np.append(False, ledger.hold_job[1:] == ledger.hold_job[:-1])[: len(moved)]
        before = np.append(0, ledger.hold_closed_by[:-1])[: len(moved)]
        evicted = again & (before == Kind.EVICTED)
        rows, stopped = ledger.rows(Kind.EVICTED), ledger.rows(Kind.REQUEUE, Kind.KILL)

        def hours(jobs: IntArray, lengths: IntArray) -> float:
            return float(gpu_seconds(ledger, ledger.summed(jobs, lengths))[chosen].sum()) / 3600

        def still(which: npt.NDArray[np.bool_]) -> float:
            return hours(ledger.hold_job[which], ledger.stood_first[which])

        return {
            "standing still after a preemption": still(~moved & ~evicted),
            "standing still after a move": still(moved),
            "standing still after an eviction": still(~moved & evicted),
            "standing still for other CPUs or memory": hours(ledger.hold_job, ledger.paused),
            "writing periodic checkpoints": hours(ledger.hold_job, ledger.writing),
            "work lost with a failed node": hours(ledger.subject[rows], ledger.detail[rows]),
            **({REQUEUED: hours(ledger.subject[stopped], ledger.value[stopped])} if len(stopped) else {}),
            FAILED: float(failed_gpu_seconds(ledger)[chosen].sum()) / 3600,
        }


@dataclass(frozen=True)
class Comparison:
    """All runs of a report, and the one that the others are measured against."""

    runs: tuple[Measured, ...]
    base: int = 0

    @property
    def baseline(self) -> Measured:
        """Return what the others are measured against."""
        return self.runs[self.base]

    def cut(self, most: int) -> list[str]:
        """Return what the runs are called where there is room for so many letters."""
        return cut_distinct([run.label for run in self.runs], most)

    @cached_property
    def best(self) -> int:
        """Return the run with the shortest mean JCT; the baseline where it is as good as any."""
        means = [run.numbers.jct_s.mean for run in self.runs]
        return min(range(len(means)), key=lambda i: (means[i] is None, means[i] or 0.0, i != self.base, i))

    @cached_property
    def same_jobs(self) -> bool:
        """Return whether all runs served the same workload, so that jobs can be compared one by one."""
        return all(_alike(self.baseline.stored.scene.jobs, run.stored.scene.jobs) for run in self.runs)

    @cached_property
    def same_cluster(self) -> bool:
        """Return whether all runs had the same nodes."""
        return all(run.stored.scene.cluster.nodes == self.baseline.stored.scene.cluster.nodes for run in self.runs)

    @cached_property
    def changes(self) -> list[Change]:
        """Return how far each mean JCT is from the baseline's: -0.25 is a quarter less; and where that lies."""
        return [self._change(index, self.base, self.baseline.level) for index in range(len(self.runs))]

    def _change(self, index: int, other: int, level: float) -> Change:
        """Return how far the mean JCT of a run is from another's."""
        run, base = self.runs[index], self.runs[other]
        if run is base:
            return Change()
        if not self.same_jobs:
            return Change(change(run.numbers.jct_s.mean, base.numbers.jct_s.mean))
        if run.seeds or base.seeds:
            return changed_over_seeds(run.row, base.row, level, (run.drawn, base.drawn))
        return changed(run.sample, base.sample, level)

    # --- the best of several ----------------------------------------------------------------------------------

    @property
    def claim_level(self) -> float:
        """Return the confidence level for the difference of the best run.

        It is Bonferroni's correction: of more runs, one more likely looks good by chance.
        """
        level = self.baseline.level
        return 1 - (1 - level) / max(1, len(self.runs) - 1) if level else 0.0

    @cached_property
    def claim(self) -> Change:
        """Return how far the best run is from the baseline, judged at ``claim_level``."""
        return self._change(self.best, self.base, self.claim_level)

    @cached_property
    def rivals(self) -> list[Measured]:
        """Return runs, other than the baseline, that cannot be told apart from the best one."""
        others = [index for index in range(len(self.runs)) if index not in (self.best, self.base)]
        told = [(index, self._change(index, self.best, self.claim_level).interval) for index in others]
        return [self.runs[index] for index, sure in told if sure is not None and sure[0] <= 0 <= sure[1]]


def _alike(left: Sequence[Job], right: Sequence[Job]) -> bool:
    """Return whether two workloads ask for the same at the same times; what users announced may differ."""

    def demand(job: Job) -> tuple[Any, ...]:
        return job.submit, job.work, job.gpus, job.gpu_milli, job.tenant, job.name

    return left is right or (
        len(left) == len(right) and all(demand(a) == demand(b) for a, b in zip(left, right, strict=True))
    )
