"""Predict when a waiting job will start, from what was known at that time: an interval over many continuations.

The run is continued again and again under its own policy until the job starts, each time with other run times: jobs
last as long as jobs of their size did until then, given how long they have run already; where users announced run
times, as much of their announcement. Each continuation draws from another sample of these jobs, because how long jobs
last is not known well from some hundreds of them. Later arrivals are stretches of earlier ones, as they came in the
week before; where only a few have come yet, a burst says nothing of what follows it, and nobody else arrives. No
further node fails. What the trace says about the future is not looked at, but for one thing: before some jobs have
ended there is nothing to draw from, and jobs without an announced run time last as the trace says.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from random import Random
from typing import Any

import numpy as np

from headway.core.collector import no_collection
from headway.errors import StalledRunError
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.sizes import size_class
from headway.jobs.model.events import NodeFailed
from headway.jobs.model.job import Job, Outcome
from headway.jobs.model.rows import Kind
from headway.jobs.sim.copies import Copies
from headway.jobs.sim.resume import Moment
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from headway.streams import small_stream
from headway.units import DAY, to_seconds

DRAWS = 40
FEW_DRAWS = 30
MANY_JOBS = 3_000
"""With more live jobs than this fewer continuations are drawn."""
MOST_HISTORY = 5_000
"""The last jobs that ended are looked at."""
LEAST_HISTORY = 20
"""Jobs that have to have ended for their run times to be drawn from, and to have come for later ones to be."""
WEEK = 7 * DAY
MOST_ARRIVALS = 5_000
BLOCK_JOBS = 50
"""Arrivals are repeated in stretches of so many, which keeps bursts together."""
AT_A_TIME = 100
MOST_STEPS = 30_000
"""Instants of one continuation."""
EFFORT_OF_ONE = 1_000_000
"""What one continuation may cost: a job that waits for weeks is told that it does, and no more."""
EFFORT_IN_ALL = 2_000_000
"""After so much, live jobs added up over all instants, no further continuation is begun, unless it was asked for."""
EFFORT_AN_INSTANT = 50
"""What an instant costs beside its live jobs, in live jobs."""
LEAST_DRAWS = 5
_LONGEST_TAIL = 20
_FINISHES: dict[str, Any] = {"outcome": Outcome.FINISHES, "outcome_after": 0, "retries": 0}


@dataclass(frozen=True, slots=True)
class Expected:
    """When a job starts next, in nanoseconds since the run began; None for later than ``looked_until``, or never."""

    p10: int | None
    p50: int | None
    p90: int | None
    draws: int
    started: int
    """In how many of the continuations it did, by ``looked_until``."""
    history: int
    """Jobs that had ended, whose run times were drawn from; with too few of them what is announced is taken as true."""
    arrivals: int
    """Earlier arrivals that later ones were drawn from; 0: too few had come, and nobody else arrives."""
    looked_until: int | None = None
    """How far all continuations got in which it did not start; None where each got to its start or to an end."""
    from_trace: bool = False
    """Whether too few had ended, and run times that nobody announced were taken from the trace."""

    def record(self) -> dict[str, Any]:
        """Return it as JSON, for a program."""
        times = {"p10_s": self.p10, "p50_s": self.p50, "p90_s": self.p90}
        return {
            **{name: None if time is None else to_seconds(time) for name, time in times.items()},
            "draws": self.draws,
            "started": self.started,
            "history_jobs": self.history,
            "arrivals_jobs": self.arrivals,
            "looked_until_s": None if self.looked_until is None else to_seconds(self.looked_until),
            "run_times_from_trace": self.from_trace,
        }


def expected_start(
    moment: Moment,
    job: int,
    ledger: Ledger,
    *,
    draws: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Expected:
    """Return when a job that waits at a moment starts.

    ``ledger`` is of the tape up to there; the moment is not changed.
    """
    count = draws or (DRAWS if len(moment.state.jobs) <= MANY_JOBS else FEW_DRAWS)
    lasting = WorkDistribution.until(ledger, moment.state.jobs.values(), moment.time)
    arriving = _ArrivalSampler(moment, ledger)
    copies = Copies(moment)
    starts: list[int] = []
    stops: list[int] = []
    effort = 0
    with no_collection():
        for draw in range(count):
            if draws is None and draw >= LEAST_DRAWS and effort >= EFFORT_IN_ALL:
                count = draw
                break
            random = small_stream(seed, f"expected/{job}/{draw}")
            start, stop, took = _start(copies.make(), job, lasting.again(random), arriving, random)
            effort += took
            starts += [] if start is None else [start]
            stops += [] if stop is None else [stop]
            if progress is not None:
                progress(draw + 1, count)
    until = min(stops, default=None)
    starts = sorted(start for start in starts if until is None or start <= until)  # beyond it not all were looked at
    p10, p50, p90 = (_quantile(starts, count, part) for part in (0.1, 0.5, 0.9))
    history, arrivals = lasting.history, len(arriving.past)
    return Expected(p10, p50, p90, count, len(starts), history, arrivals, until, lasting.from_trace)


def _quantile(ordered: Sequence[int], count: int, part: float) -> int | None:
    """Return the value that so large a part of all draws does not exceed; those that did not start come last."""
    rank = max(1, ceil(part * count))
    return ordered[rank - 1] if rank <= len(ordered) else None


def _start(
    moment: Moment, job: int, lasting: "WorkDistribution", arriving: "_ArrivalSampler", random: Random
) -> tuple[int | None, int | None, int]:
    """Return when the job starts in one continuation, when that was broken off before, and what it took: live jobs
    added up over all instants."""
    executor, state = moment.executor, moment.state
    executor.replace_faults(None, (), cancel=lambda event: isinstance(event, NodeFailed))
    for js in list(state.jobs.values()):
        if js.id != job:
            moment.alter(lasting.redrawn(moment.time, js, random))
    coming = arriving.draw(lasting, random)
    moment.expect(list(islice(coming, AT_A_TIME)))
    steps = effort = 0

    def enough(now: TrainingState) -> bool:
        nonlocal steps, effort
        steps += 1
        effort += EFFORT_AN_INSTANT + len(now.jobs)
        if now.to_come - executor.held == 1:  # most continuations end before many have come
            moment.expect([*executor.to_come, *islice(coming, AT_A_TIME)])
        return job in now.running or job not in now.jobs or steps > MOST_STEPS or effort > EFFORT_OF_ONE

    try:
        tape = moment.go_on(until=enough)
    except StalledRunError:
        return None, None, effort
    mine = np.flatnonzero((tape.column("kind") == Kind.START) & (tape.column("subject") == job))
    if len(mine):
        return int(tape.column("time")[mine[0]]), None, effort
    return None, int(tape.column("time")[-1]) if job in state.jobs else None, effort


# --- how long jobs last ---------------------------------------------------------------------------------------


class WorkDistribution:
    """How much work jobs turn out to be, by size, from those that ended in a stretch of tape and those that run."""

    def __init__(self, seen: Sequence[tuple[Job, int, bool]], whole: "WorkDistribution | None" = None) -> None:
        """Estimate from jobs seen.

        ``seen`` are jobs, how much of each was done, and whether it had ended; a job that had not ended lasts longer
        than that. ``whole`` is the estimate that this one resamples, used where this one has too few jobs.
        """
        self._seen = seen
        self._whole = whole
        self.from_trace = False
        """Whether a run time was asked for that neither these jobs nor its user could tell, and the trace did."""
        self.history = sum(over for _, _, over in seen)
        work: dict[str, list[tuple[float, bool]]] = {}
        parts: dict[str, list[tuple[float, bool]]] = {}
        for job, done, over in seen:
            for size in ("", size_class(job.width_milli)):
                work.setdefault(size, []).append((done, over))
                if job.estimate:
                    parts.setdefault(size, []).append((done / job.estimate, over))
        self._work = {size: _Survival(lengths) for size, lengths in work.items()}
        self._parts = {size: _Survival(lengths) for size, lengths in parts.items()}
        """Of what was announced."""

    @classmethod
    def until(cls, ledger: Ledger, live: Iterable[JobState], now: int) -> "WorkDistribution":
        """Return the distribution of work from the last jobs that ended up to a time, and from those that live then."""
        ended = np.flatnonzero(ledger.completed & (ledger.ideal > 0))
        ended = ended[np.argsort(ledger.end[ended], kind="stable")][-MOST_HISTORY:]
        over = [(ledger.jobs[job], int(ledger.ideal[job]), True) for job in ended.tolist()]
        running = [(js.job, done, False) for js in live if (done := js.done_at(now)) > 0]
        return cls([*over, *running])

    def again(self, random: Random) -> "WorkDistribution":
        """Return the distribution of a resample of the same jobs: how much else the history might have said."""
        return WorkDistribution(random.choices(self._seen, k=len(self._seen)), self) if self._seen else self

    def redrawn(self, now: int, js: JobState, random: Random) -> Job:
        """Return a live job as it may turn out: it runs on for as long as some that had run as long as it has."""
        work = self.drawn(js.job, js.done_at(now), random)
        return replace(js.job, work=work, **_FINISHES)

    def drawn(self, job: Job, done: int, random: Random) -> int:
        """Return a drawn total work of a job of which ``done`` is done.

        Before enough jobs have ended it is what was announced, and where nothing was, what the trace says: the one
        case in which the future is looked at, which ``from_trace`` then says.
        """
        pools, unit = (self._parts, job.estimate) if job.estimate else (self._work, 1)
        pool = pools.get(size_class(job.width_milli))
        if pool is None or pool.ended < LEAST_HISTORY:
            pool = pools.get("")
        if pool is None or pool.ended < LEAST_HISTORY:
            if self._whole is not None:
                return self._whole.drawn(job, done, random)
            self.from_trace |= not job.estimate
            return max(done + 1, job.estimate or job.work)
        return max(done + 1, round(pool.draw(done / unit, random) * unit))


class _Survival:
    """The distribution of a length some of whose observations go on: Kaplan and Meier's estimate.

    Those that ended alone would say too little of the long ones, which are still under way.
    """

    def __init__(self, seen: list[tuple[float, bool]]) -> None:
        seen.sort(key=lambda each: (each[0], not each[1]))
        self.ended = 0
        self._values: list[float] = []
        self._up_to: list[float] = []
        """The share of lengths up to each value."""
        left = 1.0
        for position, (value, over) in enumerate(seen):
            if over:
                self.ended += 1
                left -= left / (len(seen) - position)
                self._values.append(value)
                self._up_to.append(1.0 - left)
        self._largest = seen[-1][0]

    def draw(self, beyond: float, random: Random) -> float:
        """Return a length above this one."""
        before = bisect_right(self._values, beyond)
        share = self._up_to[before - 1] if before else 0.0
        at = share + (1.0 - share) * random.random()
        index = bisect_right(self._up_to, at, lo=before)
        if index < len(self._values):
            return self._values[index]
        # none is known to have lasted longer: as likely as not it will have lasted twice as long in the end
        return max(beyond, self._largest) * min(_LONGEST_TAIL, 1 / (1 - random.random()))


# --- who arrives ----------------------------------------------------------------------------------------------


class _ArrivalSampler:
    """Arrivals of the week before a moment, to draw later ones from."""

    def __init__(self, moment: Moment, ledger: Ledger) -> None:
        self._now = moment.time
        self._first = len(ledger.jobs)
        """Numbers from here on are nobody's."""
        here = [job for job in ledger.jobs if job.submit <= moment.time]
        recent = [job for job in here if job.submit > moment.time - WEEK]
        enough = here[-LEAST_HISTORY:] if len(here) >= LEAST_HISTORY else []
        self.past = recent if len(recent) >= LEAST_HISTORY else enough

    def draw(self, lasting: WorkDistribution, random: Random) -> Iterator[Job]:
        """Yield drawn arrivals from now on, in blocks of consecutive recorded jobs."""
        past = self.past
        if len(past) < 2:
            return
        time, made = self._now, 0
        while made < MOST_ARRIVALS:
            first = random.randrange(1, len(past))
            for position in range(first, min(first + BLOCK_JOBS, len(past))):
                job = past[position]
                time += max(1, job.submit - past[position - 1].submit)
                work = lasting.drawn(job, 0, random)
                yield replace(job, id=self._first + made, submit=time, name="", work=work, terms=None, **_FINISHES)
                made += 1
