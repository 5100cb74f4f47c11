"""Tell what happened to one job, and for each interval of waiting, why.

A pure function of a tape and of the policy that wrote it: the job's own rows say when it ran, where and how fast; for
the times between, the tape is replayed and each instant at which it waits is asked for the causes
(``jobs.explain.explain``). Instants with the same causes are one stretch.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from headway.core.tape import Tape, TapeRow
from headway.errors import TapeError
from headway.jobs.audit.replay import Walk
from headway.jobs.explain.explain import why_waiting
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.causes import Cause, CauseKind
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.job_names import reads_as_number
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.show.story.not_eligible import NotEligible, not_eligible
from headway.jobs.show.story.stretches import Interval, Running, Timeline, Waiting
from headway.units import clock, counted, format_duration, to_seconds

_JOB_KINDS = (
    *(Kind.ARRIVED, Kind.FINISHED, Kind.FAILED, Kind.CANCELLED, Kind.WITHDRAWN),
    *(Kind.START, Kind.PREEMPT, Kind.MIGRATE, Kind.PLACE, Kind.COST, Kind.EVICTED, Kind.RESPEED, Kind.QUEUED_AGAIN),
    *(Kind.REALLOCATE, Kind.GRANT, Kind.STORAGE, Kind.PAUSE, Kind.REQUEUE, Kind.KILL, Kind.WARN),
)
SCREEN = 24
"""Lines of a story unless all of it is asked for."""
_MOST_CAUSES = 6
Stretch: TypeAlias = Waiting | Running | NotEligible


@dataclass(frozen=True, slots=True)
class Story:
    """What happened to one job."""

    job: Job
    policy: str
    stretches: tuple[Stretch, ...]
    outcome: str
    """finished, failed, cancelled or preempted (for good); waits, runs or to come where the tape ends before that."""
    until: int = 0
    """Where the tape ends, or how far a run is that goes on: a wait that is not over is counted so far."""

    def lines(self, most: int = SCREEN) -> list[str]:
        """Return plain text for a terminal; of a story with more than ``most`` lines its summary, beginning and end."""
        told = self.all_lines()
        if len(told) <= most:
            return told
        shares, waited = self.shares(), max(1, self.waited)
        longest = list(shares.items())[:_MOST_CAUSES]
        lines = [self._head(), self._outcome()]
        if (rest := self.waited - sum(time for _, time in longest)) and longest:
            longest.append((counted(len(shares) - len(longest), "other cause"), rest))
        parts = _tenths([time for _, time in longest], waited)
        lines += [
            f"  {part:5.1f}%  {format_duration(time)} for {name}"
            for part, (name, time) in zip(parts, longest, strict=True)
        ]
        each = max(1, (most - len(lines) - 1) // 2)
        first = _up_to(self.stretches, each)
        last = _up_to(self.stretches[len(first) :][::-1], each)[::-1]
        left_out = len(self.stretches) - len(first) - len(last)
        lines += [line for stretch in first for line in stretch.lines()]
        lines.append(f"  ... {left_out:,} more stretches: --all ...")
        return lines + [line for stretch in last for line in stretch.lines()]

    def all_lines(self) -> list[str]:
        """Return plain text for a terminal with every stretch."""
        told = [self._head(), *(line for stretch in self.stretches for line in stretch.lines()), self._outcome()]
        return told + [f"  {format_duration(time)} of it with {name}" for name, time in self.waited_for().items()]

    def _head(self) -> str:
        return described(self.job, f", partition {self.job.partition}" if self.job.partition else "")

    def _outcome(self) -> str:
        return f"{self.outcome}: waited {format_duration(self.waited)} in all under {self.policy}"

    @property
    def waited(self) -> int:
        """Return how long it waited in all, as far as the tape goes."""
        return sum(map(self._length, self.stretches))

    def _length(self, stretch: Stretch) -> int:
        """Return how long a stretch of waiting is so far; 0 for any other."""
        end = self.until if stretch.end is None else stretch.end
        return max(0, end - stretch.start) if isinstance(stretch, Waiting) else 0

    def waited_for(self) -> dict[str, int]:
        """Return how long each cause kept it waiting, the longest first; causes overlap, so they sum to more."""
        total: dict[str, int] = {}
        for stretch in self.stretches:
            if isinstance(stretch, Waiting):
                for cause in stretch.causes:
                    total[cause.title] = total.get(cause.title, 0) + self._length(stretch)
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))

    def shares(self) -> dict[str, int]:
        """Return how much of the wait is due to each cause, the most first: causes at a time share it, so these sum
        to the whole wait; what no cause was found for is not among them."""
        total: dict[str, int] = {}
        for stretch in self.stretches:
            if isinstance(stretch, Waiting) and stretch.causes:
                part, rest = divmod(self._length(stretch), len(stretch.causes))
                for number, cause in enumerate(stretch.causes):
                    total[cause.title] = total.get(cause.title, 0) + part + (number < rest)
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))

    def record(self) -> dict[str, object]:
        """Return it as JSON: times in seconds."""
        return {
            "job": self.job.id,
            "name": self.job.name,
            "policy": self.policy,
            "submit_s": to_seconds(self.job.submit),
            "outcome": self.outcome,
            "waited_s": to_seconds(self.waited),
            "waited_for_s": {name: to_seconds(time) for name, time in self.waited_for().items()},
            "shares_of_wait_s": {name: to_seconds(time) for name, time in self.shares().items()},
            "stretches": [stretch.record() for stretch in self.stretches],
        }


def story(
    cluster: Cluster,
    jobs: Sequence[Job],
    tape: Tape,
    policy: ComposedPolicy | None,
    job_id: int,
    *,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
    name: str = "",
    now: int = 0,
) -> Story:
    """Return the story of one job. ``policy`` is a fresh copy of the one that wrote the tape; it is asked again.

    Without it (then ``name`` is what it is called) the story does not say why the job waited. ``now`` is how far a run
    is by now that goes on after the tape.
    """
    if not 0 <= job_id < len(jobs):
        raise TapeError(f"job {job_id} is not in this run; its jobs are 0 to {len(jobs) - 1}")
    about_jobs = np.isin(tape.column("kind"), [int(kind) for kind in _JOB_KINDS])
    life = Timeline(cluster, jobs, jobs[job_id])
    for row in tape.rows[(tape.column("subject") == job_id) & about_jobs].tolist():
        life.add(TapeRow(*row))
    end = int(tape.column("time")[-1]) if len(tape) else 0
    runs, waits, outcome = life.close(end)
    asked = _Causes(waits)
    if waits and policy is not None:
        last = waits[-1][1]
        prefix = tape if last is None else tape.until(last - 1)
        walk = Walk(cluster, jobs, prefix, policy, asking=True, speed=speed, costs=costs)
        for step in walk:
            walk.act()
            if (js := walk.state.jobs.get(job_id)) is not None and job_id not in walk.state.running:
                asked.note(step.time, why_waiting(step.time, walk.state, policy, js))
    waited = [Waiting(*wait, ()) for wait in waits] if policy is None else asked.stretches()
    held = not_eligible(Ledger(tape, jobs, cluster), job_id) if jobs[job_id].terms is not None else None
    stretches: list[Stretch] = [*runs, *waited, *([held] if held is not None else [])]
    stretches.sort(key=lambda stretch: stretch.start)
    called = name if policy is None else policy.name
    return Story(jobs[job_id], called, tuple(stretches), outcome, max(end, now))


class _Causes:
    """The causes at each instant of waiting, made into stretches."""

    def __init__(self, waits: list[Interval]) -> None:
        self._waits = waits
        self._noted: list[tuple[int, int, tuple[Cause, ...]]] = []
        """(which wait, from when, causes)"""
        self._left: list[list[dict[str, None]]] = []
        """For each of these and each of its causes: who held what a limit counts, and does no longer."""
        self._at = 0

    def note(self, time: int, causes: tuple[Cause, ...]) -> None:
        """Note the causes at the end of an instant."""
        while (end := self._waits[self._at][1]) is not None and end <= time:
            self._at += 1
        if self._noted:
            wait, _, before = self._noted[-1]
            if wait == self._at and [c.identity for c in before] == [c.identity for c in causes]:
                for gone, first, now in zip(self._left[-1], before, causes, strict=True):
                    gone |= dict.fromkeys(name for name in first.names if name not in now.names)
                return
        self._noted.append((self._at, time, causes))
        self._left.append([{} for _ in causes])

    def stretches(self) -> list[Waiting]:
        """Return a stretch of waiting for each run of instants with the same causes."""
        following = [(wait, start) for wait, start, _ in self._noted[1:]]
        return [
            Waiting(start, later if wait == after else self._waits[wait][1], causes, _in_order(causes, left))
            for (wait, start, causes), (after, later), left in zip(
                self._noted, [*following, (-1, 0)], self._left, strict=False
            )
        ]


def _in_order(causes: Sequence[Cause], left: Sequence[Collection[str]]) -> tuple[tuple[str, ...], ...]:
    """Return for each limit which of its holders left, in the order in which it names them; none of other causes."""
    return tuple(
        tuple(name for name in cause.names if name in gone) if cause.kind is CauseKind.LIMIT else ()
        for cause, gone in zip(causes, left, strict=True)
    )


def _up_to(stretches: Sequence[Stretch], most: int) -> list[Stretch]:
    """Return the first of these stretches, as many as have so many lines together."""
    found: list[Stretch] = []
    for stretch in stretches:
        most -= len(stretch.lines())
        if most < 0:
            break
        found.append(stretch)
    return found


def described(job: Job, where: str = "") -> str:
    """Return what a job asked for, of whom and when, and where it had to run."""
    wants = f"{job.width_milli / 1000:g} GPU{'' if job.width_milli == 1000 else 's'}"
    return f"job {_called(job)}: {wants}, tenant {job.tenant}{where}, submitted at {clock(job.submit)}"


def _called(job: Job) -> str:
    """Return what a job is called: its number and its name, in front the one by which it is asked for."""
    if reads_as_number(job.name):
        return f"{job.name} (#{job.id})"
    return f"{job.id} ({job.name})" if job.name else str(job.id)


def _tenths(times: Sequence[int], whole: int) -> list[float]:
    """Return parts of a whole in percent, in tenths that add up to what all of them are: the nearest are rounded up."""
    exact = [1000 * time / whole for time in times]
    tenths = [int(part) for part in exact]
    missing = round(sum(exact)) - sum(tenths)
    for index in sorted(range(len(exact)), key=lambda each: tenths[each] - exact[each])[:missing]:
        tenths[index] += 1
    return [part / 10 for part in tenths]
