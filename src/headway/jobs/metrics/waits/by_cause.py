"""Estimate why jobs waited: the waiting time of a run split by cause, tenant and size of job.

Asking why each job waits at each instant would take far longer than the run did, so points are drawn instead, evenly in
waiting time: one point stands for as many job-hours as any other of its tenant and size. The tape is walked once, and
at each point ``jobs.explain.explain`` is asked. Each tenant and size is drawn from separately, so how long these waited
is exact and only its division among causes is an estimate, whose standard error is told.

A job waits for several causes together: it would start if all of them were taken away, and stays if any one is left.
They share the time equally, which is what the Shapley value gives each where only all together help.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import sqrt
from typing import Any

import numpy as np

from headway.core.collector import no_collection
from headway.core.tape import Tape
from headway.jobs.audit.replay import Walk
from headway.jobs.explain.explain import probe, why_waiting
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.sizes import size_class
from headway.jobs.metrics.waits.intervals import Waits, waits
from headway.jobs.metrics.window import Window
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.parts import Reservation
from headway.jobs.state.state import TrainingState
from headway.statistics.series import FloatArray, IntArray, exact_sum
from headway.streams import stream
from headway.units import HOUR

SAMPLES = 1_500
LEAST_A_STRATUM = 4
"""Points that each tenant and size gets, however little it waited; fewer where there are very many of them."""
MOST_TENANTS = 50
OTHERS = "(others)"
"""Where the tenants beyond the first so many by waiting time stand together."""
ASKED_STEPS = 4_000
"""Up to so many instants a policy that remembers is asked all along, which takes as long as the run did."""
_PARTS = 2520
"""What one point is divided into: any number of causes up to ten share it without a rest."""


@dataclass(frozen=True, slots=True)
class WaitRow:
    """What one cause kept the jobs of one tenant and size waiting."""

    cause: str
    """As ``jobs.explain.explain.CauseKind`` names it."""
    tenant: str
    size: str
    """GPUs asked for, as a class."""
    waited: int
    """Nanoseconds of all these jobs together; those of all rows sum to what all jobs waited, exactly."""
    share: float
    """Of the whole waiting time."""
    error: float
    """Standard error of ``waited``, in hours, from drawing points."""


@dataclass(frozen=True, slots=True)
class WaitCauses:
    """The waiting time of a run, divided."""

    rows: tuple[WaitRow, ...]
    """Most waiting time first."""
    samples: int
    """Points that were drawn."""
    total_job_hours: float
    as_remembered: bool
    """Whether the policy's reservations and rounds were those of the run; else they were worked out at each point."""

    def by(self, *keys: str) -> list[dict[str, Any]]:
        """Return records for each cause, tenant or size (or several of these), most waiting time first."""
        grouped: dict[tuple[str, ...], list[WaitRow]] = {}
        for row in self.rows:
            grouped.setdefault(tuple(getattr(row, key) for key in keys), []).append(row)
        whole = "cause" not in keys
        records: list[dict[str, Any]] = [
            {
                **dict(zip(keys, names, strict=True)),
                "job_hours": sum(row.waited for row in rows) / HOUR,
                "share": sum(row.share for row in rows),
                "error": 0.0 if whole else sqrt(sum(row.error**2 for row in rows)),
            }
            for names, rows in grouped.items()
        ]
        return sorted(records, key=lambda record: -record["job_hours"])

    @property
    def note(self) -> str:
        """Return how far to believe it, in one line."""
        if not self.rows:
            return "no job waited"
        worst = max(record["error"] for record in self.by("cause")) / self.total_job_hours
        how = "" if self.as_remembered else "; reservations and rounds were worked out at each point"
        return (
            f"estimated from {self.samples:,} points drawn evenly in waiting time: the share of a cause is off by "
            f"{worst:.1%} of the whole or less (one standard error); how long each tenant and size waited is exact{how}"
        )


def why_waited(
    cluster: Cluster,
    jobs: Sequence[Job],
    tape: Tape,
    policy: ComposedPolicy,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    *,
    ledger: Ledger | None = None,
    window: Window | None = None,
    progress: Callable[[int], None] | None = None,
) -> WaitCauses:
    """Return why the jobs of a run waited, or those that a window measures.

    ``policy`` is the one that wrote the tape, fresh; ``ledger`` spares making it.
    """
    stretches = waits(ledger or Ledger(tape, jobs, cluster), window)
    if not len(stretches.job):
        return WaitCauses((), 0, 0.0, True)
    strata = _strata(jobs, stretches)
    drawn_jobs, drawn_times, drawn_strata = _draw(strata, samples, seed)
    times = np.unique(tape.column("time"))
    steps = times[np.searchsorted(times, drawn_times, side="right") - 1]
    remembers = _remembers(policy)
    asking = remembers and len(times) <= ASKED_STEPS
    walk = Walk(cluster, jobs, tape.until(int(steps.max())), policy, asking=asking, speed=speed, costs=costs)
    order = np.lexsort((drawn_jobs, steps))
    wanted = list(zip(*(column[order].tolist() for column in (steps, drawn_jobs, drawn_strata)), strict=True))
    tallies = [_Tally() for _ in strata.names]
    with no_collection():  # a walk makes no cycles
        for stratum, kinds in _asked(walk, wanted, guess=remembers and not asking, progress=progress):
            tallies[stratum].add(kinds)
    return WaitCauses(_rows(strata, tallies), len(wanted), sum(strata.masses) / HOUR, asking or not remembers)


# --- what is drawn from ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Strata:
    """Stretches of waiting by tenant and size: sorted by these, then by time."""

    names: list[tuple[str, str]]
    first: IntArray
    """Where the stretches of each begin, and last of all where they end."""
    job: IntArray
    start: IntArray
    length: IntArray
    masses: list[int]
    """How long each waited in all."""


def _strata(jobs: Sequence[Job], stretches: Waits) -> _Strata:
    waiting = [jobs[job] for job in stretches.job.tolist()]
    waited: Counter[str] = Counter()
    for job, length in zip(waiting, stretches.length.tolist(), strict=True):
        waited[job.tenant] += length
    named = set(sorted(waited, key=lambda tenant: (-waited[tenant], tenant))[:MOST_TENANTS])
    names = [(job.tenant if job.tenant in named else OTHERS, size_class(job.width_milli)) for job in waiting]
    number = {name: index for index, name in enumerate(dict.fromkeys(names))}
    code = np.array([number[name] for name in names], dtype=np.int64)
    order = np.lexsort((stretches.job, stretches.start, code))
    first = np.searchsorted(code[order], np.arange(len(number) + 1))
    lengths = stretches.length[order]
    masses = [exact_sum(lengths[a:b]) for a, b in pairwise(first.tolist())]
    return _Strata(list(number), first, stretches.job[order], stretches.start[order], lengths, masses)


def _draw(strata: _Strata, samples: int, seed: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return (job, time, stratum) of points that lie evenly in waiting time.

    Each stratum is cut into equal parts, and one point falls into each part.
    """
    random = stream(seed, "causes")
    whole = sum(strata.masses)
    least = max(1, min(LEAST_A_STRATUM, samples // (2 * len(strata.masses))))
    jobs, times, codes = [], [], []
    for stratum, mass in enumerate(strata.masses):
        a, b = int(strata.first[stratum]), int(strata.first[stratum + 1])
        count = max(least, round(samples * mass / whole))
        length = strata.length[a:b]
        ends: FloatArray = np.cumsum(length.astype(np.float64))
        at = (np.arange(count) + random.random(count)) / count * ends[-1]
        which = np.minimum(np.searchsorted(ends, at, side="right"), b - a - 1)
        inside = np.clip((at - (ends[which] - length[which])).astype(np.int64), 0, length[which] - 1)
        jobs.append(strata.job[a:b][which])
        times.append(strata.start[a:b][which] + inside)
        codes.append(np.full(count, stratum, dtype=np.int64))
    return np.concatenate(jobs), np.concatenate(times), np.concatenate(codes)


# --- asking ---------------------------------------------------------------------------------------------------


def _asked(
    walk: Walk, wanted: list[tuple[int, int, int]], *, guess: bool, progress: Callable[[int], None] | None
) -> Iterator[tuple[int, list[str]]]:
    """Yield (stratum, kinds of causes) of each (step, job, stratum) in ``wanted``, in order of steps."""
    grouped = groupby(wanted, key=lambda point: point[0])
    due, points = next(grouped)
    for count, step in enumerate(walk):
        if progress is not None and count % 4096 == 0:
            progress(step.time)
        if step.time < due:
            continue
        walk.act()
        policy = _with_approximate_memory(step.time, walk.state, walk.policy) if guess else walk.policy
        for _, job, stratum in points:
            causes = why_waiting(step.time, walk.state, policy, walk.state.jobs[job])
            yield stratum, [str(cause.kind) for cause in causes]
        if (following := next(grouped, None)) is None:
            return
        due, points = following


def _remembers(policy: ComposedPolicy) -> bool:
    """Return whether why a job waits depends on what the policy did before: what it reserved, which round it is in."""
    parts = (policy.order, policy.backfill, policy.placement)
    once_a_round = policy.preempts and policy.order.one_instant
    return policy.backfill.reserves or once_a_round or any(part.remembers for part in parts)


def _with_approximate_memory(now: int, state: TrainingState, policy: ComposedPolicy) -> ComposedPolicy:
    """Return a copy of the policy that approximates its memory.

    A round's one instant of preemption counts as past, and the jobs with reservations are those that it would reserve
    for now.
    """
    other = copy(policy)
    other.preempts = policy.preempts and not policy.order.one_instant
    if policy.backfill.reserves:
        asked = probe(policy)
        asked.preempts = other.preempts
        promised = policy.backfill.would_promise(now, state, asked)
        other.backfill = made = copy(policy.backfill)
        made.reservations = {job: Reservation(job, now, state.jobs[job].gpus, ()) for job in promised}
    return other


# --- adding up ------------------------------------------------------------------------------------------------


class _Tally:
    """What the points of one stratum said."""

    def __init__(self) -> None:
        self.points = 0
        self.parts: dict[str, int] = {}
        """Of each cause, in parts of a point."""
        self.squares: dict[str, float] = {}

    def add(self, kinds: Sequence[str]) -> None:
        """Count one more point, whose causes share it."""
        self.points += 1
        for kind in kinds:
            part = _PARTS // len(kinds)
            self.parts[kind] = self.parts.get(kind, 0) + part
            self.squares[kind] = self.squares.get(kind, 0.0) + (part / _PARTS) ** 2

    def divided(self, mass: int) -> dict[str, int]:
        """Return the stratum's waiting time among the causes: whole nanoseconds that sum to it."""
        whole = sum(self.parts.values())
        given = {kind: mass * parts // whole for kind, parts in self.parts.items()}
        rests = sorted(self.parts, key=lambda kind: (-(mass * self.parts[kind] % whole), kind))
        for kind in rests[: mass - sum(given.values())]:
            given[kind] += 1
        return given

    def error(self, kind: str) -> float:
        """Return the standard error of a cause's share. One added point that is half this cause keeps it above 0."""
        count = self.points
        mean = (self.parts[kind] / _PARTS + 0.5) / (count + 1)
        square = (self.squares[kind] + 0.5) / (count + 1)
        return sqrt(max(0.0, square - mean * mean) / count)


def _rows(strata: _Strata, tallies: Sequence[_Tally]) -> tuple[WaitRow, ...]:
    whole = sum(strata.masses)
    rows = [
        WaitRow(kind, tenant, size, waited, waited / whole, tally.error(kind) * mass / HOUR)
        for (tenant, size), mass, tally in zip(strata.names, strata.masses, tallies, strict=True)
        for kind, waited in tally.divided(mass).items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.waited, row.cause, row.tenant, row.size)))
