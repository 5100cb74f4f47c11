"""Make the job table: one row a job, in units that people read."""

import numpy as np
import numpy.typing as npt
import polars as pl

from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.timeline import living
from headway.jobs.model.rows import FOR_OTHERS, Kind
from headway.jobs.model.speed import Costs
from headway.statistics.series import FloatArray, IntArray, Series
from headway.units import SECOND, WHOLE_GPU_MILLI

SHORTEST_IDEAL_S = 10.0
"""The bounded slow-down counts a job as at least this long (Feitelson's threshold)."""
_ENDED = {
    Kind.FINISHED: "finished",
    Kind.FAILED: "failed",
    Kind.CANCELLED: "cancelled",
    Kind.KILL: "preempted",
}


def job_table(ledger: Ledger) -> pl.DataFrame:
    """Return one row for each job that arrived, by id; what does not exist (the end of a job that runs) is null."""
    here = ledger.arrived
    ended, started = ledger.ended, ledger.first_start >= 0
    jobs = [job for job, arrived in zip(ledger.jobs, here.tolist(), strict=True) if arrived]
    columns: list[pl.Series] = [
        pl.Series("id", np.flatnonzero(here)),
        pl.Series("name", [job.name for job in jobs], dtype=pl.String),
        pl.Series("tenant", [job.tenant for job in jobs], dtype=pl.String),
        pl.Series("partition", [job.partition for job in jobs], dtype=pl.String),
        pl.Series("gpus", ledger.gpus[here]),
        pl.Series("width", ledger.width[here] / WHOLE_GPU_MILLI),
        _seconds("submit_s", ledger.submit, here, here),
        _seconds("first_start_s", ledger.first_start, started, here),
        _seconds("end_s", ledger.end, ended, here),
        pl.Series("outcome", outcomes(ledger)[here].tolist(), dtype=pl.String),
        _seconds("jct_s", ledger.jct, ended, here),
        _seconds("wait_s", ledger.wait, here, here),
        _seconds("queue_delay_s", ledger.first_start - ledger.submit, started, here),
        _seconds("run_s", ledger.held, here, here),
        _seconds("ideal_s", ledger.ideal, ledger.completed, here),
        _number("slowdown", slowdown(ledger), here),
        _number("bounded_slowdown", bounded_slowdown(ledger), here),
        _number("ftf", finish_time_fairness(ledger), here),
        pl.Series("preemptions", ledger.counted(*FOR_OTHERS)[here]),
        pl.Series("migrations", ledger.counted(Kind.MIGRATE)[here]),
        pl.Series("evictions", ledger.counted(Kind.EVICTED)[here]),
        pl.Series("reallocations", ledger.counted(Kind.REALLOCATE)[here]),
        pl.Series("failed_attempts", ledger.counted(Kind.FAILED)[here]),
        pl.Series("gpu_s", gpu_seconds(ledger, ledger.held)[here]),
        pl.Series("lost_gpu_s", lost_gpu_seconds(ledger)[here]),
        pl.Series("failed_gpu_s", failed_gpu_seconds(ledger)[here]),
    ]
    return pl.DataFrame(columns)


def outcomes(ledger: Ledger) -> npt.NDArray[np.str_]:
    """Return the state of each job: finished, failed, cancelled, preempted (for good), running, waiting; empty for one
    that has not arrived."""
    names = np.full(len(ledger.jobs), "waiting", dtype="<U9")
    names[ledger.hold_job[~ledger.hold_closed]] = "running"
    for kind, name in _ENDED.items():
        names[ledger.ended_by == kind] = name
    names[~ledger.arrived] = ""
    return names


def slowdown(ledger: Ledger) -> FloatArray:
    """Return JCT over the time that the job takes alone at reference speed; nan for jobs that did not complete."""
    return _over(ledger, ledger.ideal.astype(np.float64))


def bounded_slowdown(ledger: Ledger) -> FloatArray:
    """Return the slow-down with jobs counted as at least 10 s long, and never below 1."""
    bounded = _over(ledger, np.maximum(ledger.ideal, SHORTEST_IDEAL_S * SECOND))
    return np.where(np.isnan(bounded), np.nan, np.maximum(bounded, 1.0))


def finish_time_fairness(ledger: Ledger) -> FloatArray:
    """Return Themis' rho: JCT over the time on a fair part of the cluster; nan if the job did not complete."""
    return _over(ledger, ledger.ideal * contention(ledger))


def contention(ledger: Ledger) -> FloatArray:
    """Return how much longer each job takes on 1/n of the cluster, n being the mean number of live jobs in its life.

    1 while that part is no narrower than the job, beyond that its width over the part.
    """
    live = living(ledger)
    length = np.maximum(ledger.left - ledger.submit, 1)
    area = _area(live, ledger.left) - _area(live, ledger.submit)
    sharing = np.maximum((area / length).astype(np.float64), 1.0)
    capacity = max(1, ledger.cluster.gpus) * WHOLE_GPU_MILLI
    return np.where(ledger.arrived, np.maximum(ledger.width * sharing / capacity, 1.0), 1.0)


def gpu_seconds(ledger: Ledger, length: IntArray) -> FloatArray:
    """Return each job's GPUs for so many nanoseconds."""
    return (ledger.width / WHOLE_GPU_MILLI) * (length / SECOND)


def lost_gpu_seconds(ledger: Ledger) -> FloatArray:
    """Return the GPU time of each job without lasting progress.

    That is standstill after a start, a move or a change of its resources, writing of periodic checkpoints, and work
    lost to failed nodes, or to preemption that keeps none.
    """
    still = ledger.summed(ledger.hold_job, ledger.standstill)
    evicted, stopped = ledger.rows(Kind.EVICTED), ledger.rows(Kind.REQUEUE, Kind.KILL)
    lost = ledger.summed(ledger.subject[evicted], ledger.detail[evicted])
    lost += ledger.summed(ledger.subject[stopped], ledger.value[stopped])
    return gpu_seconds(ledger, still + lost)


def preemptions_were_free(ledger: Ledger, costs: Costs) -> bool:
    """Return whether jobs were preempted and none was charged a standstill for it.

    Moves, changes and failures may still cost something, and a job that was charged may not have stood still yet.
    """
    preempted = np.flatnonzero(ledger.counted(Kind.PREEMPT)).tolist()
    return bool(preempted) and not any(costs.of_preemption(ledger.jobs[job]) for job in preempted)


def failed_gpu_seconds(ledger: Ledger) -> FloatArray:
    """Return the GPU time, at reference speed, of attempts that failed by themselves."""
    failed = ledger.rows(Kind.FAILED)
    return gpu_seconds(ledger, ledger.summed(ledger.subject[failed], ledger.value[failed]))


def _area(series: Series, times: IntArray) -> npt.NDArray[np.longdouble]:
    """Return the integral of a series from its beginning to each of these times."""
    if not len(series):
        return np.zeros(len(times), dtype=np.longdouble)
    steps = np.diff(series.times).astype(np.longdouble) * series.values[:-1]
    whole = np.concatenate((np.zeros(1, dtype=np.longdouble), np.cumsum(steps)))
    index = np.maximum(np.searchsorted(series.times, times, side="right") - 1, 0)
    rest = (times - series.times[index]) * series.values[index].astype(np.longdouble)
    area: npt.NDArray[np.longdouble] = whole[index] + rest
    return area


def _over(ledger: Ledger, ideal: FloatArray) -> FloatArray:
    counts = ledger.completed & (ledger.ideal > 0)
    ratio = np.full(len(ledger.jobs), np.nan)
    np.divide(ledger.jct, ideal, out=ratio, where=counts)
    return ratio


def _seconds(name: str, values: IntArray, exists: npt.NDArray[np.bool_], kept: npt.NDArray[np.bool_]) -> pl.Series:
    return _number(name, np.where(exists, values / SECOND, np.nan), kept)


def _number(name: str, values: FloatArray, kept: npt.NDArray[np.bool_]) -> pl.Series:
    return pl.Series(name, values[kept], nan_to_null=True)
