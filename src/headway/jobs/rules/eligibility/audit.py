"""Plain accounting of dependencies for the audit: when each job started and ended, looked up when another arrives.

It shares no code with ``engine.py``, which keeps count of what is left to happen.
"""

from collections.abc import Iterator, Sequence

from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.model.submission import Clause, dependency


def has_terms(jobs: Sequence[Job], *fields: str) -> bool:
    """Return whether a job of a workload has one of these terms."""
    return any(job.terms is not None and any(getattr(job.terms, field) for field in fields) for job in jobs)


class EligibilityBooks:
    """What has happened to each job so far."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._asked = has_terms(jobs, "after", "begin")
        """Whether any job may have to wait before it is eligible; otherwise nothing is kept."""
        self._started: dict[int, int] = {}
        self._ended: dict[int, tuple[int, int]] = {}
        """When it left for good, and the kind of the row that says so."""
        self._called: dict[str, list[int]] = {}
        self._series: dict[str, list[int]] = {}
        for job in jobs if self._asked else ():
            if job.terms is not None and job.terms.array:
                self._called.setdefault(job.terms.array, []).append(job.id)
            if job.terms is not None and job.terms.series:
                self._series.setdefault(job.terms.series, []).append(job.id)
        self._called.update({job.name: [job.id] for job in jobs if job.name and self._asked})

    def start(self, now: int, job: int) -> None:
        """Enter a start, or a move."""
        if self._asked:
            self._started.setdefault(job, now)

    def end(self, now: int, job: int, kind: int) -> None:
        """Enter that a job left for good."""
        if self._asked:
            self._ended[job] = now, kind

    def arrive(self, now: int, job: Job) -> Iterator[tuple[str, str]]:
        """Yield what is wrong where a job arrives that is not eligible."""
        if early := self._too_early(now, job):
            yield "eligible", f"job {job.id} arrives, but {early}"

    def withdraw(self, row: Sequence[int], arrived: bytearray) -> Iterator[tuple[str, str]]:
        """Enter that a job left before it was eligible; yield what is wrong with that."""
        now, job = row[0], row[2]
        if not self._asked or not 0 <= job < len(self._jobs) or arrived[job] or now < self._jobs[job].submit:
            yield "eligible", f"job {job} is withdrawn, but does not wait to become eligible"
            return
        mine = self._jobs[job]
        if not self._too_early(now, mine) and not (mine.patience and now == mine.submit + mine.patience):
            yield "eligible", f"job {job} is withdrawn, but is eligible by then"
        arrived[job] = 1
        self.end(now, job, int(Kind.WITHDRAWN))

    def _too_early(self, now: int, job: Job) -> str:
        """Return why a job is not eligible now; empty when it is."""
        terms = job.terms
        if terms is None:
            return ""
        if now < terms.begin:
            return f"must not begin before {terms.begin} ns"
        if not terms.after:
            return ""
        wanted = dependency(terms.after)
        open_ones = [text for clause in wanted.clauses if (text := self._open(now, job, clause))]
        if not open_ones or (wanted.one_is_enough and len(open_ones) < len(wanted.clauses)):
            return ""
        return open_ones[0]

    def _open(self, now: int, job: Job, clause: Clause) -> str:
        if clause.condition == "singleton":
            series = self._series[job.terms.series if job.terms else ""]
            alive = [each for each in series if each < job.id and each not in self._ended]
            return f"job {alive[0]} of its series has not ended" if alive else ""
        members = self._called.get(clause.job, [])
        if clause.condition == "after":
            left = [self._started.get(each, self._ended.get(each, (now + 1, 0))[0]) for each in members]
            late = max(left, default=0) + clause.delay
            return f"job {clause.job} has not started {clause.delay} ns before" if members and now < late else ""
        alive = [each for each in members if each not in self._ended]
        if alive:
            return f"job {alive[0]} has not ended"
        bad = any(self._ended[each][1] != Kind.FINISHED for each in members)
        if members and clause.condition != "afterany" and bad != (clause.condition == "afternotok"):
            return f"job {clause.job} has {'not ' if bad else ''}finished"
        return ""
