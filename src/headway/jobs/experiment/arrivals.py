"""Make the workload of an experiment: read or draw jobs, scale arrivals, set estimates, drop infeasible jobs."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from headway.errors import ExperimentError, InfeasibleJobError, TraceError
from headway.files import stamp
from headway.formats.dates import Calendar
from headway.jobs import traces
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job, workload
from headway.jobs.model.submission import shifted
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.rules.quotas import gpu_time
from headway.jobs.state.never_feasible import Infeasible, infeasible
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.tables.settings import TraceTable, check_synergy, check_synthetic, span
from headway.jobs.traces.build import altered
from headway.jobs.traces.past import NEVER, Past
from headway.jobs.traces.trace import SLURM, Trace, dropped_note
from headway.jobs.traces.workloads.window import between, dated, recorded_waits
from headway.units import DAY, HOUR, counted

LOADS = (0.001, 1000)
"""More than a thousand times as fast, or as slow, is a slip."""
_LARGEST_TIME = 2**62


Key = tuple[Any, ...]


def source(table: TraceTable, gpus: int) -> tuple[Key, Key]:
    """Return what jobs are read from, and how they are drawn; exactly one of the two says something."""
    given = {"path": table.path, "synthetic table": table.synthetic, "synergy table": table.synergy}
    named = [name for name, value in given.items() if value]
    if len(named) != 1:
        none = (
            "no jobs: name a trace (headway jobs simulate TRACE …; in an experiment file trace.path), and a cluster: "
            "--cluster FILE, or --nodes and --gpus-per-node"
        )
        both = f"both a {' and a '.join(named)}: give one"
        raise ExperimentError(f"the experiment has {both if named else none}")
    drawn: Key = ()
    if table.synthetic is not None:
        philly = check_synthetic(table.synthetic)
        drawn = ("philly", philly.jobs, philly.gpus or gpus, philly.load, philly.outcomes, philly.estimates)
        drawn = (*drawn, span(philly.longest, "synthetic longest"))
    elif table.synergy is not None:
        synergy = check_synergy(table.synergy)
        drawn = ("synergy", synergy.jobs, synergy.rate, synergy.split, synergy.gpus)
    part = (table.start, table.end, table.begins, table.zone)
    return (table.path, table.format, table.map, table.strict, table.skip_bad_rows, *part, stamp(table.path)), drawn


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Jobs that arrive, and what their log says besides."""

    jobs: tuple[Job, ...]
    notes: tuple[str, ...] = ()
    format: str = ""
    calendar: Calendar | None = None
    carried: frozenset[str] = frozenset()
    """Jobs that ran or waited already, by name."""
    waits: Mapping[str, int] = field(default_factory=dict)
    """How long new arrivals really waited, by name; empty where the log does not say it, or the load is another."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    requeued: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Jobs, by name, that ran more than once: how long after the first start the last attempt began, and for how much
    of that they ran."""
    ran: Mapping[str, int] = field(default_factory=dict)
    """Jobs whose work is a guess, by name, as they have not ended: for how long they had run."""
    eligible: Mapping[str, int] = field(default_factory=dict)
    """Jobs, by name, that were eligible later than they arrive here: when."""


@lru_cache(maxsize=1)
def arrivals(file: Key, drawn: Key, load: float | str, estimates: str, models: str, seed: int) -> Arrivals:
    """Return jobs after load and estimates, and what is known besides; cached for the next policy."""
    made = _of_trace(*file) if not drawn else Arrivals(_drawn(drawn, seed))
    jobs = made.jobs
    if not is_as_recorded(load):
        jobs = traces.load_scale(jobs, load)
        cluster_table.within("load", Fraction(str(load)), *LOADS)
        made = replace(made, calendar=None, waits={}, reasons={})
    if models:
        jobs = traces.with_models(jobs, models, seed)
    return replace(made, jobs=traces.estimates(jobs, estimates, seed))


def is_as_recorded(load: float | str) -> bool:
    """Return whether jobs arrive as they did: the load is 1, however that is written."""
    with suppress(ValueError, ZeroDivisionError):  # what is no number is refused where it is used
        return Fraction(str(load)) == 1
    return False


def _of_trace(path: str, format: str, columns: str, strict: bool, skip_bad_rows: bool, *part: str) -> Arrivals:
    """Return the jobs of a file, or of the part of it between two dates."""
    start, end, begins, zone, _ = part
    trace: Trace = traces.load(path, format, strict=strict, columns=columns, skip_bad_rows=skip_bad_rows)
    notes = [dropped_note(trace.dropped, trace.rows, path)] if trace.dropped else []
    trace = between(dated(trace, begins, zone), start, end)
    waits = recorded_waits(trace)
    notes = [*trace.notes, *notes]
    dates, carried = trace.calendar, trace.carried
    told = (waits, trace.reasons, trace.requeued, trace.ran, trace.eligible)
    return Arrivals(trace.jobs, tuple(notes), trace.format, dates, carried, *told)


def _drawn(drawn: Key, seed: int) -> tuple[Job, ...]:
    kind, count, *rest = drawn
    if kind == "synergy":
        rate, split, width = rest
        return traces.synergy_like(count, rate=rate, split=split, gpus=width, seed=seed)
    gpus, level, outcomes, announced, longest = rest
    return traces.philly_like(
        count, seed=seed, gpus=gpus, load=level, outcomes=outcomes, estimates=announced, longest=longest
    )


def anywhere(cluster: Cluster, jobs: tuple[Job, ...], notes: list[str]) -> tuple[Job, ...]:
    """Return jobs without their partitions where the cluster has none."""
    named = sum(1 for job in jobs if job.partition)
    if cluster.partitions or not named:
        return jobs
    notes.append(f"the cluster has no partitions: those of {counted(named, 'job')} are ignored")
    return altered(jobs, {"partition": [""] * len(jobs)})


def feasible(
    cluster: Cluster, jobs: tuple[Job, ...], policy: ComposedPolicy, skip: bool, notes: list[str]
) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """Return the jobs that could run on the empty cluster, and the names of those that could not, with notes on both
    those that limits reject and those that were skipped."""
    refused = never_feasible(cluster, jobs, policy, "drops such jobs" if not skip else "", "no job of the trace")
    names = tuple(label(each.job) for each in refused)
    denied = [each for each in refused if each.denied]
    if denied:
        notes.append(f"{counted(len(denied), 'job')} rejected at submission, {denied[0].reason}")
    if skipped := len(refused) - len(denied):
        notes.append(f"{counted(skipped, 'job')} skipped that could never run")
    return without(jobs, set(names)) if names else jobs, names


def never_feasible(
    cluster: Cluster, jobs: Sequence[Job], policy: ComposedPolicy, skipping: str, none: str
) -> list[Infeasible]:
    """Return the jobs that could never run on a cluster.

    Any is an error, unless a limit rejects it, with what ``skipping`` them does; without that, an error where there are
    no others: ``none``.
    """
    refused = infeasible(cluster, _waiting_for(policy, jobs), policy.placement.place)
    waiting = [each for each in refused if not each.denied]
    if waiting and skipping:
        others = f" ({len(waiting):,} such jobs in all)" if len(waiting) > 1 else ""
        raise InfeasibleJobError(f"{waiting[0]}{others}; --skip-infeasible {skipping} and counts them")
    if refused and len(refused) == len(jobs):
        raise InfeasibleJobError(f"{none} could ever run; {refused[0]}")
    return refused


def _waiting_for(policy: ComposedPolicy, jobs: Sequence[Job]) -> Sequence[Job]:
    """Return the jobs with what they wait for: under an allocation, GPUs alone where they ask for any."""
    if policy.allocation is None:
        return jobs
    asks = any(job.gpus and (job.cpu_milli or job.memory_bytes) for job in jobs)
    return [replace(job, cpu_milli=0, memory_bytes=0) if job.gpus else job for job in jobs] if asks else jobs


def label(job: Job) -> str:
    """Return what a job is called: its name, or its number where the trace gives none."""
    return job.name or f"#{job.id}"


def without(jobs: tuple[Job, ...], names: set[str]) -> tuple[Job, ...]:
    """Return the jobs but these, the first of them submitted at time 0."""
    kept = [job for job in jobs if label(job) not in names]
    if not kept:
        raise ExperimentError("trace.leave_out leaves no job")
    first = kept[0].submit
    return workload(
        replace(job, submit=job.submit - first, terms=shifted(job.terms, first)) if first else job for job in kept
    )


def check_span(jobs: Sequence[Job], cluster: Cluster) -> None:
    """Refuse a trace whose times come near the limit of 63 bits: it is a mistake."""
    busy = sum(gpu_time(jobs).values()) // (1000 * max(1, cluster.gpus))
    end = jobs[-1].submit + max(job.work for job in jobs) + busy
    if end > _LARGEST_TIME:
        raise TraceError(f"the run would take about {min(end // DAY // 365, 10**9):,} years; time holds 146 of them")


def unknown_licences(cluster: Cluster, jobs: Sequence[Job], waits: Mapping[str, int]) -> list[str]:
    """Return a note for each licence that jobs ask for and of which the cluster does not say how many there are."""
    known = {rule.licence for rule in cluster.limits if rule.licence}
    found: dict[str, tuple[int, int]] = {}
    for job in jobs:
        for name, _ in job.terms.licences if job.terms is not None else ():
            count, waited = found.get(name, (0, 0))
            found[name] = count + 1, waited + waits.get(job.name, 0)
    return [
        f"not followed: licence {name} (how many there are is not given): may concern {counted(count, 'job')}"
        + (f", which waited {waited / HOUR:,.0f} h in all" if waits else "")
        for name, (count, waited) in found.items()
        if name not in known
    ]


def past_of(
    made: Arrivals, jobs: Sequence[Job], dates: Calendar | None, notes: Sequence[str], *, site: bool, changed: bool
) -> Past:
    """Return what the log says of the past of the jobs that are left."""
    return Past(
        source=made.format,
        begins=dates.written() if dates else "",
        zone=dates.zone if dates else "",
        carried=sum(1 for job in jobs if job.name in made.carried) if made.carried else 0,
        waits=[made.waits.get(job.name, NEVER) for job in jobs] if made.waits else [],
        reasons=[made.reasons.get(job.name, "") for job in jobs] if made.reasons else [],
        requeued=[made.requeued.get(job.name, (0, 0)) for job in jobs] if made.requeued else [],
        ran=[made.ran.get(job.name, NEVER) for job in jobs] if made.ran else [],
        eligible=[max(0, made.eligible.get(job.name, 0) - job.submit) for job in jobs] if made.eligible else [],
        caveats=list(notes) if made.format == SLURM else [],
        site=site and not changed,
        changed=changed,
    )
