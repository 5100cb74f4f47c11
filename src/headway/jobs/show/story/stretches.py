"""The stretches of a job's life: when it ran, where and how fast, and when it waited, from its own rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headway.core.tape import TapeRow
from headway.errors import TapeError
from headway.jobs.audit.replay import placement_of
from headway.jobs.model.causes import Cause
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.periodic_checkpoints import Stretch
from headway.jobs.model.resources import Grant
from headway.jobs.model.rows import Kind
from headway.jobs.rules.limits.text import MOST_HOLDERS
from headway.jobs.rules.preemption.tiers import Precedence
from headway.jobs.show.formatting import holdings
from headway.units import REFERENCE_SPEED_PPM, clock, format_duration, to_seconds

_STOPS = {
    Kind.FINISHED: "finished",
    Kind.FAILED: "failed",
    Kind.CANCELLED: "cancelled",
    Kind.PREEMPT: "preempted",
    Kind.REQUEUE: "requeued",
    Kind.KILL: "preempted",
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
    left: tuple[tuple[str, ...], ...] = ()
    """For each cause, which of the jobs that held what a limit counts left before the stretch was over."""

    def lines(self) -> list[str]:
        """Return it as lines for a terminal."""
        first = f"{spanned(self.start, self.end)}  waits"
        return [first, *(f"      {cause}{_left(gone)}" for cause, gone in self._with_left())]

    def record(self) -> dict[str, object]:
        """Return it as JSON, for a program."""
        causes = recorded_causes(self.causes)
        for record, (_, gone) in zip(causes, self._with_left(), strict=True):
            record |= {"left": list(gone)} if gone else {}
        return {"what": "waiting", **span_record(self.start, self.end), "causes": causes}

    def _with_left(self) -> list[tuple[Cause, tuple[str, ...]]]:
        return list(zip(self.causes, self.left or ((),) * len(self.causes), strict=True))


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
    """What ended it: finished, failed, cancelled, preempted, requeued, evicted, migrated, respeeded or reallocated;
    empty if nothing did."""
    grant: Grant | None = None
    """What it was given besides GPUs; None: it holds what it asked for."""
    speed_before_ppm: int = 0
    """Where a reallocation began it: how fast it was until then."""
    writing: int = 0
    """How long it stood still to write periodic checkpoints."""
    by: str = ""
    """The job for which it was requeued, or preempted for good: ``job 17 of QOS high``."""
    notice: int = 0
    """How long before that it was given notice."""

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
        if self.by:
            lost = "starts from its beginning" if self.stopped == _STOPS[Kind.REQUEUE] else "for good"
            noticed = f", {format_duration(self.notice)} after notice" if self.notice else ""
            stopped = f", preempted by {self.by} ({lost}{noticed})"
        return [f"{spanned(self.start, self.end)}  runs on {where}{held}{speed}{still}{wrote}{stopped}"]

    def record(self) -> dict[str, object]:
        """Return it as JSON, for a program."""
        return {
            "what": "running",
            **span_record(self.start, self.end),
            "nodes": dict(self.placement),
            "speed": self.speed_ppm / REFERENCE_SPEED_PPM,
            "standstill_s": to_seconds(self.standstill),
            "checkpoints_s": to_seconds(self.writing),
            "stopped": self.stopped or None,
            **({"by": self.by, "notice_s": to_seconds(self.notice)} if self.by else {}),
            **_record_grant(self.grant),
        }


Interval = tuple[int, int | None]


class Timeline:
    """When a job ran and when it waited, from its own rows."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job], job: Job) -> None:
        """``jobs`` are those of the run: who preempted the job is among them."""
        self._cluster = cluster
        self._jobs = jobs
        self._warned = -1
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
            case Kind.WITHDRAWN:
                self._outcome = "cancelled before it was eligible"
            case Kind.QUEUED_AGAIN:
                self._wait(row.time)
            case Kind.PREEMPT | Kind.EVICTED:
                self._stop(row, done=row.value)
                self._wait(row.time)
            case Kind.WARN:
                self._warned = row.time
            case Kind.REQUEUE | Kind.KILL if self._run is not None:
                notice = row.time - self._warned if self._warned >= self._run.start else 0
                self._run = replace(self._run, by=self._preemptor(row.detail), notice=notice)
                self._stop(row, done=0)
                self._wait(row.time)
                if row.kind == Kind.KILL:
                    self._waiting, self._outcome = None, _STOPS[Kind.KILL]
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

    def _preemptor(self, job: int) -> str:
        """Return a job, and by what it preempts, in words."""
        other, rules = self._jobs[job], self._cluster.preemption
        of = "" if rules is None else f" of {Precedence(self._cluster, rules).told(other)}"
        return f"job {other.name or other.id}{of}"

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


def _left(names: Sequence[str]) -> str:
    """Return which of the jobs that a cause names were gone before the end, as they are named there."""
    more = f" and {len(names) - MOST_HOLDERS} more" if len(names) > MOST_HOLDERS else ""
    return f" (left meanwhile: {', '.join(f'job {name}' for name in names[:MOST_HOLDERS])}{more})" if names else ""


def spanned(start: int, end: int | None) -> str:
    """Return when an interval begins and how long it is, for a line."""
    took = "to the end of the tape" if end is None else f"for {format_duration(end - start)}"
    return f"  {clock(start):>16}  {took}"


def recorded_causes(causes: Iterable[Cause]) -> list[dict[str, object]]:
    """Return causes as JSON."""
    return [
        {"kind": str(c.kind), "level": c.level or None, "text": c.text, "jobs": list(c.names), **c.facts}
        for c in causes
    ]


def _record_grant(grant: Grant | None) -> dict[str, object]:
    """Return what a job was given besides GPUs; nothing where it was given nothing."""
    if grant is None:
        return {}
    cpu_milli, memory_bytes, storage = grant
    return {"cpus": cpu_milli / 1000, "memory_bytes": memory_bytes, "storage_bytes_per_s": storage}


def span_record(start: int, end: int | None) -> dict[str, object]:
    """Return an interval as JSON."""
    return {"start_s": to_seconds(start), "end_s": None if end is None else to_seconds(end)}
