"""Decide when a job becomes eligible: not before its begin, and not before what it waits for has happened.

A gate is told which jobs of a workload start and end, and keeps those that are not eligible yet. A job arrives in the
state when it is eligible: until then no policy sees it, it blocks nobody and has no age. A job that can never become
eligible, because what it waits for has turned out otherwise, is withdrawn.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from headway.jobs.model.job import Job, Outcome
from headway.jobs.model.submission import AFTER, AFTER_ANY, AFTER_OK, SINGLETON, Clause, dependency
from headway.units import counted

ELIGIBLE, NEVER, WAITING = 0, -1, -2
"""Verdicts; any other is the time at which to look again."""
_VERBS = {AFTER: "start", AFTER_OK: "finish", AFTER_ANY: "end"}


class _Watch:
    """The jobs behind a name: one, or the tasks of an array."""

    __slots__ = ("since", "sound", "unended", "unstarted", "waiting", "waived")

    def __init__(self, jobs: int) -> None:
        self.unstarted = self.unended = jobs
        self.sound = True
        """Whether all that have ended finished."""
        self.since = 0
        """When the last of them started, or left without."""
        self.waived = False
        """Whether one of them was left out: however the others end, nobody waits for more."""
        self.waiting: dict[int, None] = {}
        """Jobs that wait for one of them, and are kept."""

    def verdict(self, clause: Clause, now: int) -> int:
        """Return whether a condition on these jobs is met."""
        if clause.condition == AFTER:
            if self.unstarted:
                return WAITING
            return ELIGIBLE if now >= self.since + clause.delay else self.since + clause.delay
        if self.unended:
            return WAITING
        if clause.condition == AFTER_ANY or self.waived:
            return ELIGIBLE
        return ELIGIBLE if self.sound == (clause.condition == AFTER_OK) else NEVER


class Gate:
    """Keeps the jobs of a workload that are not eligible yet."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        """``jobs`` in order of submission. A dependency on a job that is not among them counts as met."""
        self.held: dict[int, Job] = {}
        """Jobs that were submitted and are not eligible yet."""
        self.until: dict[int, int] = {}
        """When those of them are to be looked at again that wait for a time."""
        self._needs: dict[int, tuple[bool, tuple[tuple[Clause, _Watch | None], ...]]] = {}
        self._watches: dict[int, tuple[_Watch, ...]] = {}
        """By job: where it is one of those that are waited for."""
        self._started: set[int] = set()
        self._series: dict[str, deque[int]] = {}
        """Jobs of each series that have not ended, the first submitted first."""
        self._series_of: dict[int, str] = {}
        self._gone: set[int] = set()
        """Jobs of a series that ended before an earlier one of it."""
        self._compile(jobs)

    def _compile(self, jobs: Sequence[Job]) -> None:
        found = {job.id: dependency(job.terms.after) for job in jobs if job.terms is not None and job.terms.after}
        conditions = [clause for needed in found.values() for clause in needed.clauses]
        wanted = {clause.job for clause in conditions}
        members = named(jobs, wanted)
        watches = {name: _Watch(len(ids)) for name, ids in members.items()}
        for name, ids in members.items():
            for job in ids:
                self._watches[job] = (*self._watches.get(job, ()), watches[name])
        self._needs = {
            job: (needed.one_is_enough, tuple((clause, watches.get(clause.job)) for clause in needed.clauses))
            for job, needed in found.items()
        }
        if any(clause.condition == SINGLETON for clause in conditions):
            for each in jobs:
                if each.terms is not None and each.terms.series:
                    self._series.setdefault(each.terms.series, deque()).append(each.id)
                    self._series_of[each.id] = each.terms.series

    # --- what happens -----------------------------------------------------------------------------------------

    def enter(self, now: int, job: Job) -> int:
        """Return whether a submitted job is eligible now; it is kept if it may become so."""
        verdict = self._verdict(now, job)
        if verdict in (ELIGIBLE, NEVER):
            self.forget(job.id)
            return verdict
        self.held[job.id] = job
        self.until.pop(job.id, None)
        if verdict != WAITING:
            self.until[job.id] = verdict
        for _, watch in self._needs.get(job.id, (False, ()))[1]:
            if watch is not None:
                watch.waiting[job.id] = None
        return verdict

    def started(self, now: int, job: int) -> list[int]:
        """Note the start of a job; return the kept ones that this may concern."""
        if job in self._started or job not in self._watches:
            return []
        self._started.add(job)
        found: dict[int, None] = {}
        for watch in self._watches[job]:
            watch.unstarted -= 1
            watch.since = now
            if not watch.unstarted:
                found.update(dict.fromkeys(watch.waiting))
        return [each for each in found if each in self.held]

    def ended(self, now: int, job: int, outcome: Outcome) -> list[int]:
        """Note that a job is gone for good; return the kept ones that this may concern."""
        found = dict.fromkeys(self.started(now, job))
        for watch in self._watches.pop(job, ()):
            watch.unended -= 1
            watch.sound &= outcome is Outcome.FINISHES
            if not watch.unended:
                found.update(dict.fromkeys(watch.waiting))
        if (series := self._series_of.pop(job, None)) is not None:
            found.update(dict.fromkeys(self._passed(series, job)))
        return [each for each in found if each in self.held]

    def _passed(self, series: str, job: int) -> Iterable[int]:
        alive = self._series[series]
        self._gone.add(job)
        while alive and alive[0] in self._gone:
            self._gone.remove(alive.popleft())
        return list(alive)[:1]

    def leave_out(self, now: int, jobs: Iterable[int]) -> list[int]:
        """Take jobs out that will never be submitted, or were taken away: who waits for them waits no longer.

        Return the kept ones that this may concern.
        """
        found: dict[int, None] = {}
        for job in jobs:
            self.forget(job)
            for watch in self._watches.get(job, ()):
                watch.waived = True
            found.update(dict.fromkeys(self.ended(now, job, Outcome.FINISHES)))
        return [each for each in found if each in self.held]

    def forget(self, job: int) -> None:
        """Keep a job no longer."""
        self.until.pop(job, None)
        if self.held.pop(job, None) is not None:
            for _, watch in self._needs.get(job, (False, ()))[1]:
                if watch is not None:
                    watch.waiting.pop(job, None)

    # --- whether it is eligible -------------------------------------------------------------------------------

    def _verdict(self, now: int, job: Job) -> int:
        begin = 0 if job.terms is None else job.terms.begin
        one_is_enough, clauses = self._needs.get(job.id, (False, ()))
        verdicts = [self._met(now, job, clause, watch) for clause, watch in clauses]
        verdict = (_one if one_is_enough else _all)(verdicts)
        if verdict == NEVER or begin <= now:
            return verdict
        return begin if verdict == ELIGIBLE else max(begin, verdict) if verdict > 0 else verdict

    def _met(self, now: int, job: Job, clause: Clause, watch: _Watch | None) -> int:
        if clause.condition == SINGLETON:
            alive = self._series.get(self._series_of.get(job.id, ""))
            return ELIGIBLE if not alive or alive[0] >= job.id else WAITING
        return ELIGIBLE if watch is None else watch.verdict(clause, now)

    def unmet(self, now: int, job: Job) -> list[str]:
        """Return what a job still waits for, each as text without the time before which it must not begin."""
        _, clauses = self._needs.get(job.id, (False, ()))
        return [
            told(clause, "" if job.terms is None else job.terms.series, watch)
            for clause, watch in clauses
            if self._met(now, job, clause, watch) != ELIGIBLE
        ]


def told(clause: Clause, series: str = "", watch: _Watch | None = None) -> str:
    """Return a condition in words: ``waits for job 17 to finish``."""
    if clause.condition == SINGLETON:
        return f"waits for earlier jobs of series {series} to end"
    left = 0 if watch is None else watch.unstarted if clause.condition == AFTER else watch.unended
    many = f" ({counted(left, 'task')} left)" if left > 1 else ""
    delay = f", and {clause.delay // 60_000_000_000:,} min more" if clause.delay else ""
    return f"waits for job {clause.job} to {_VERBS.get(clause.condition, 'fail')}{many}{delay}"


def _all(verdicts: Sequence[int]) -> int:
    """Return when all conditions are met."""
    if NEVER in verdicts:
        return NEVER
    return WAITING if WAITING in verdicts else max(verdicts, default=ELIGIBLE)


def _one(verdicts: Sequence[int]) -> int:
    """Return when one condition is met."""
    if ELIGIBLE in verdicts:
        return ELIGIBLE
    return min((each for each in verdicts if each > 0), default=WAITING if WAITING in verdicts else NEVER)


def gate_of(jobs: Sequence[Job]) -> Gate | None:
    """Return the gate of a workload; None where every job is eligible when it is submitted."""
    for job in jobs:
        if job.terms is not None and (job.terms.after or job.terms.begin):
            return Gate(jobs)
    return None


def named(jobs: Sequence[Job], names: set[str]) -> dict[str, list[int]]:
    """Return the jobs behind names: the job that is called so, else all tasks of the array."""
    found = {job.name: [job.id] for job in jobs if job.name and job.name in names}
    arrays = names - found.keys()
    for job in jobs if arrays else ():
        if job.terms is not None and job.terms.array and job.terms.array in arrays:
            found.setdefault(job.terms.array, []).append(job.id)
    return found
