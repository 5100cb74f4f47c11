"""Tell what happened to one job, and for each interval of waiting, why.

A pure function of a tape and of the policy that wrote it: the job's own rows say when it ran, where and how fast; for
the times between, the tape is replayed and each instant at which it waits is asked for the causes
(``training.explain``). Instants with the same causes are one stretch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headway.core.tape import Tape, TapeRow
from headway.errors import TapeError
from headway.report.training.formatting import holdings
from headway.training.cluster import Cluster
from headway.training.explain import Cause, why_waiting
from headway.training.job import Job
from headway.training.periodic import Stretch
from headway.training.policies.compose import ComposedPolicy
from headway.training.replay import Walk, placement_of
from headway.training.resources import Grant
from headway.training.rows import Kind
from headway.training.speed import Costs, SpeedModel
from headway.units import DAY, HOUR, MINUTE, REFERENCE_SPEED_PPM, SECOND, format_duration, to_seconds

_JOB_KINDS = (
    *(Kind.ARRIVED, Kind.FINISHED, Kind.FAILED, Kind.CANCELLED),
    *(Kind.START, Kind.PREEMPT, Kind.MIGRATE, Kind.PLACE, Kind.COST, Kind.EVICTED, Kind.RESPEED, Kind.QUEUED_AGAIN),
    *(Kind.REALLOCATE, Kind.GRANT, Kind.STORAGE, Kind.PAUSE),
)
SCREEN = 24
"""Lines of a story unless all of it is asked for."""
_MOST_CAUSES = 6
_STOPS = {
    Kind.FINISHED: "finished",
    Kind.FAILED: "failed",
    Kind.CANCELLED: "cancelled",
    Kind.PREEMPT: "preempted",
    Kind.EVICTED: "evicted",
    Kind.MIGRATE: "migrated",
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """An interval of waiting, all the time for the same causes."""

    start: int
    end: int | None
    """None: the tape ends before."""
    causes: tuple[Cause, ...]
    """As they were when the stretch began; their numbers may have changed since."""

    def lines(self) -> list[str]:
        """Return it as lines for a terminal."""
        first = f"{_span(self.start, self.end)}  waits"
        return [first, *(f"      {cause}" for cause in self.causes)]

    def record(self) -> dict[str, object]:
        """Return it as JSON, for a program."""
        return {"what": "waiting", **_record_span(self.start, self.end), "causes": recorded_causes(self.causes)}


@dataclass(frozen=True, slots=True)
class Running:
    """An interval of running: one placement, one speed, the same resources."""

    start: int
    end: int | None
    placement: tuple[tuple[str, int], ...]
    """Nodes by name, and how many GPUs of each."""
    speed_ppm: int
    standstill: int
    """How long it stood still first: to restore a checkpoint, or because what it holds was changed."""
    stopped: str = ""
    """What ended it: finished, failed, cancelled, preempted, evicted, migrated, respeeded or reallocated; empty if
    nothing did."""
    grant: Grant | None = None
    """What it was given besides GPUs; None: it holds what it asked for."""
    speed_before_ppm: int = 0
    """Where a reallocation began it: how fast it was until then."""
    writing: int = 0
    """How long it stood still to write periodic checkpoints."""

    def lines(self) -> list[str]:
        """Return it as lines for a terminal."""
        where = ", ".join(f"{name} ({gpus})" for name, gpus in self.placement)
        held = "" if self.grant is None else f" with {holdings(self.grant)}"
        pace, before = (ppm / REFERENCE_SPEED_PPM for ppm in (self.speed_ppm, self.speed_before_ppm))
        changed = before and self.speed_before_ppm != self.speed_ppm
        speed = "" if self.speed_ppm == REFERENCE_SPEED_PPM and not changed else f" at {pace:.3g} of reference speed"
        speed += f" instead of {before:.3g}" if changed else ""
        still = f", standing still for the first {format_duration(self.standstill)}" if self.standstill else ""
        wrote = f", {format_duration(self.writing)} of it to write checkpoints" if self.writing else ""
        stopped = f", {self.stopped}" if self.stopped else ""
        return [f"{_span(self.start, self.end)}  runs on {where}{held}{speed}{still}{wrote}{stopped}"]

    def record(self) -> dict[str, object]:
        """Return it as JSON, for a program."""
        return {
            "what": "running",
            **_record_span(self.start, self.end),
            "nodes": dict(self.placement),
            "speed": self.speed_ppm / REFERENCE_SPEED_PPM,
            "standstill_s": to_seconds(self.standstill),
            "checkpoints_s": to_seconds(self.writing),
            "stopped": self.stopped or None,
            **_record_grant(self.grant),
        }


@dataclass(frozen=True, slots=True)
class Story:
    """What happened to one job."""

    job: Job
    policy: str
    stretches: tuple[Waiting | Running, ...]
    outcome: str
    """finished, failed or cancelled; waits, runs or to come where the tape ends before that."""

    def lines(self, most: int = SCREEN) -> list[str]:
        """Return plain text for a terminal; of a story with more than ``most`` lines its summary, beginning and end."""
        told = self.all_lines()
        if len(told) <= most:
            return told
        shares, waited = self.shares(), max(1, self.waited)
        longest = list(shares.items())[:_MOST_CAUSES]
        lines = [self._head(), self._outcome()]
        lines += [f"  {time / waited:6.1%}  {format_duration(time)} for {name}" for name, time in longest]
        if (rest := self.waited - sum(time for _, time in longest)) and longest:
            others = f"{len(shares) - len(longest)} other causes"
            lines.append(f"  {rest / waited:6.1%}  {format_duration(rest)} for {others}")
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
        return sum(s.end - s.start for s in self.stretches if isinstance(s, Waiting) and s.end is not None)

    def waited_for(self) -> dict[str, int]:
        """Return how long each cause kept it waiting, the longest first; causes overlap, so they sum to more."""
        total: dict[str, int] = {}
        for stretch in self.stretches:
            if isinstance(stretch, Waiting) and stretch.end is not None:
                for cause in stretch.causes:
                    total[cause.title] = total.get(cause.title, 0) + stretch.end - stretch.start
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))

    def shares(self) -> dict[str, int]:
        """Return how much of the wait is due to each cause, the most first: causes at a time share it, so these sum
        to the whole wait; what no cause was found for is not among them."""
        total: dict[str, int] = {}
        for stretch in self.stretches:
            if isinstance(stretch, Waiting) and stretch.end is not None and stretch.causes:
                part, rest = divmod(stretch.end - stretch.start, len(stretch.causes))
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
) -> Story:
    """Return the story of one job. ``policy`` is a fresh copy of the one that wrote the tape; it is asked again.

    Without it (then ``name`` is what it is called) the story does not say why the job waited.
    """
    if not 0 <= job_id < len(jobs):
        raise TapeError(f"job {job_id} is not in this run; its jobs are 0 to {len(jobs) - 1}")
    about_jobs = np.isin(tape.column("kind"), [int(kind) for kind in _JOB_KINDS])
    life = _Timeline(cluster, jobs[job_id])
    for row in tape.rows[(tape.column("subject") == job_id) & about_jobs].tolist():
        life.add(TapeRow(*row))
    runs, waits, outcome = life.close(int(tape.column("time")[-1]) if len(tape) else 0)
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
    stretches: list[Waiting | Running] = [*runs, *waited]
    stretches.sort(key=lambda stretch: stretch.start)
    return Story(jobs[job_id], name if policy is None else policy.name, tuple(stretches), outcome)


Interval = tuple[int, int | None]


class _Timeline:
    """When a job ran and when it waited, from its own rows."""

    def __init__(self, cluster: Cluster, job: Job) -> None:
        self._cluster = cluster
        self._pace = Stretch(job) if job.checkpoint and job.checkpoint_every else None
        """How its work goes on, where periodic checkpoints take time."""
        self._whole = 0
        """When the checkpoint that was being written at a change of speed is whole."""
        self._runs: list[Running] = []
        self._waits: list[Interval] = []
        self._waiting: int | None = None
        self._run: Running | None = None
        self._placing: list[TapeRow] = []
        self._outcome = "to come"

    def add(self, row: TapeRow) -> None:
        """Read the job's next row."""
        match row.kind:
            case Kind.ARRIVED:
                self._wait(row.time)
            case Kind.START | Kind.MIGRATE:
                self._stop(row)
                self._placing = [row]
                self._run = Running(row.time, None, self._places(), row.value, 0)
                self._whole = 0
                if self._pace is not None:
                    self._pace.base, self._pace.speed = row.time, max(1, row.value)
                self._outcome = "runs"
            case Kind.PLACE if self._run is not None:
                self._placing.append(row)
                self._run = replace(self._run, placement=self._places())
            case Kind.COST if self._run is not None:
                self._run = replace(self._run, standstill=row.value)
                self._pause(row.time, row.value)
            case Kind.RESPEED if self._run is not None:
                self._respeed(self._run, row, "respeeded")
            case Kind.REALLOCATE if self._run is not None:
                before = self._run.speed_before_ppm if row.time == self._run.start else self._run.speed_ppm
                self._respeed(self._run, row, "reallocated")
                self._run = replace(self._run, speed_before_ppm=before)
            case Kind.GRANT if self._run is not None:
                self._run = replace(self._run, grant=Grant(row.value, row.detail))
            case Kind.STORAGE if self._run is not None and self._run.grant is not None:
                self._run = replace(self._run, grant=self._run.grant._replace(storage=row.value))
            case Kind.PAUSE if self._run is not None:
                self._run = replace(self._run, standstill=self._run.standstill + row.value)
                self._pause(row.time, row.value)
            case Kind.QUEUED_AGAIN:
                self._wait(row.time)
            case Kind.PREEMPT | Kind.EVICTED:
                self._stop(row, done=row.value)
                self._wait(row.time)
            case Kind.FINISHED | Kind.FAILED | Kind.CANCELLED:
                self._stop(row, done=0)
                self._outcome = _STOPS[Kind(row.kind)]
            case _:
                raise TapeError(f"row {tuple(row)} says nothing about a job that is not there")

    def close(self, now: int) -> tuple[list[Running], list[Interval], str]:
        """End the tape now; return runs, waits, and what had become of the job."""
        if self._run is not None:
            self._runs.append(self._wrote(self._run, now))
        if self._waiting is not None:
            self._waits.append((self._waiting, None))
        return self._runs, self._waits, self._outcome

    def _wait(self, time: int) -> None:
        self._waiting = time
        self._outcome = "waits"

    def _stop(self, row: TapeRow, done: int | None = None) -> None:
        """End the current run or wait; ``done`` is the work that the job keeps, where the row says it."""
        if self._run is not None:
            run = self._wrote(self._run, row.time)
            self._runs.append(replace(run, end=row.time, stopped=_STOPS[Kind(row.kind)]))
            self._pause(row.time, 0)
        if self._pace is not None and done is not None:
            self._pace.done = done
        if self._waiting is not None and row.time > self._waiting:
            self._waits.append((self._waiting, row.time))
        self._run = self._waiting = None

    def _respeed(self, run: Running, row: TapeRow, why: str) -> None:
        if row.time > run.start:
            self._runs.append(replace(self._wrote(run, row.time), end=row.time, stopped=why))
            still = max(0, run.start + run.standstill - row.time)
            run = replace(run, start=row.time, standstill=still, speed_before_ppm=0)
        self._run = replace(run, speed_ppm=row.value)
        if self._pace is not None and self._pace.speed != row.value:
            self._pause(row.time, 0)
            self._pace.speed = max(1, row.value)

    def _pause(self, now: int, length: int) -> None:
        """Count the work done up to now; progress resumes after ``length``."""
        if self._pace is not None:
            self._whole = max(self._whole, now + self._pace.settle(now))
            self._pace.base += length

    def _wrote(self, run: Running, end: int) -> Running:
        """Return a run that lasts until then, with the time that it wrote checkpoints."""
        if self._pace is None:
            return run
        wrote = sum(max(0, until - max(since, run.start)) for since, until in self._pace.writes(end))
        return replace(run, writing=wrote + max(0, min(self._whole, end) - run.start))

    def _places(self) -> tuple[tuple[str, int], ...]:
        return tuple((self._cluster.nodes[node].name, mask.bit_count()) for node, mask in placement_of(self._placing))


class _Causes:
    """The causes at each instant of waiting, made into stretches."""

    def __init__(self, waits: list[Interval]) -> None:
        self._waits = waits
        self._noted: list[tuple[int, int, tuple[Cause, ...]]] = []
        """(which wait, from when, causes)"""
        self._at = 0

    def note(self, time: int, causes: tuple[Cause, ...]) -> None:
        """Note the causes at the end of an instant."""
        while (end := self._waits[self._at][1]) is not None and end <= time:
            self._at += 1
        if self._noted:
            wait, _, before = self._noted[-1]
            if wait == self._at and [c.identity for c in before] == [c.identity for c in causes]:
                return
        self._noted.append((self._at, time, causes))

    def stretches(self) -> list[Waiting]:
        """Return a stretch of waiting for each run of instants with the same causes."""
        following = [(wait, start) for wait, start, _ in self._noted[1:]]
        return [
            Waiting(start, later if wait == after else self._waits[wait][1], causes)
            for (wait, start, causes), (after, later) in zip(self._noted, [*following, (-1, 0)], strict=False)
        ]


def _up_to(stretches: Sequence[Waiting | Running], most: int) -> list[Waiting | Running]:
    """Return the first of these stretches, as many as have so many lines together."""
    found: list[Waiting | Running] = []
    for stretch in stretches:
        most -= len(stretch.lines())
        if most < 0:
            break
        found.append(stretch)
    return found


def _span(start: int, end: int | None) -> str:
    took = "to the end of the tape" if end is None else f"for {format_duration(end - start)}"
    return f"  {clock(start):>16}  {took}"


def described(job: Job, where: str = "") -> str:
    """Return what a job asked for, of whom and when, and where it had to run."""
    wants = f"{job.width_milli / 1000:g} GPU{'' if job.width_milli == 1000 else 's'}"
    named = f" ({job.name})" if job.name else ""
    return f"job {job.id}{named}: {wants}, tenant {job.tenant}{where}, submitted at {clock(job.submit)}"


def recorded_causes(causes: Iterable[Cause]) -> list[dict[str, object]]:
    """Return causes as JSON."""
    return [
        {"kind": str(c.kind), "level": c.level or None, "text": c.text, "jobs": list(c.names), **c.facts}
        for c in causes
    ]


def clock(time: int) -> str:
    """Return a time since the run began, to the second, finer where it is: ``3d 04:05:06.5``."""
    days, rest = divmod(time, DAY)
    fraction = f".{rest % SECOND:09d}".rstrip("0") if rest % SECOND else ""
    clock = f"{rest // HOUR:02d}:{rest % HOUR // MINUTE:02d}:{rest % MINUTE // SECOND:02d}{fraction}"
    return f"{days}d {clock}" if days else clock


def _record_grant(grant: Grant | None) -> dict[str, object]:
    """Return what a job was given besides GPUs; nothing where it was given nothing."""
    if grant is None:
        return {}
    cpu_milli, memory_bytes, storage = grant
    return {"cpus": cpu_milli / 1000, "memory_bytes": memory_bytes, "storage_bytes_per_s": storage}


def _record_span(start: int, end: int | None) -> dict[str, object]:
    return {"start_s": to_seconds(start), "end_s": None if end is None else to_seconds(end)}
