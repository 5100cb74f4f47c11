"""Explain one job at one moment of a run: why it does not run, what would make room for it, and when it will start.

The run is taken up at that moment, with the policy's memory. Causes are those of ``jobs.explain.explain``, as they were
at the end of the last instant; what would make room was tried on the state (``jobs.explain.room``), and the policy was
then asked whether it would start the job; the expected start is an interval over continuations (``expected_start.py``).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headway.core.tape import Tape
from headway.errors import TapeError
from headway.jobs.ask.expected_start import LEAST_HISTORY, Expected, expected_start
from headway.jobs.ask.ways_to_fit import Way, listed_nodes, ways_of
from headway.jobs.explain.explain import why_waiting
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.waits.intervals import waits
from headway.jobs.model.causes import Cause, CauseKind
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.preemption.victims import fits
from headway.jobs.show.story.not_eligible import reasons
from headway.jobs.show.story.story import described
from headway.jobs.show.story.stretches import recorded_causes
from headway.jobs.sim.faults import Faults
from headway.jobs.sim.resume import resume
from headway.jobs.state.jobstate import Status
from headway.jobs.state.state import TrainingState
from headway.units import SECOND, clock, counted, format_duration, to_seconds

_ENDS = {
    Kind.FINISHED: "finished",
    Kind.FAILED: "failed",
    Kind.CANCELLED: "cancelled",
    Kind.KILL: "preempted",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say about a job at a moment."""

    job: Job
    policy: str
    at: int
    status: str
    """waiting, running, to come, not eligible, finished, failed, cancelled or preempted (for good)."""
    told: str
    """The status in words, with times."""
    waiting_since: int | None = None
    causes: tuple[Cause, ...] = ()
    fits_now: bool = False
    ways: tuple[Way, ...] = ()
    none: dict[str, str] = field(default_factory=dict)
    """Why there is no way of a kind."""
    expected: Expected | None = None
    recorded: int | None = None
    """When the job did start next in the run; None if it did not."""
    recorded_told: str = ""

    def lines(self) -> list[str]:
        """Return it as lines for a terminal."""
        lines = self.first_lines()
        if self.status != "waiting":
            return lines
        if self.expected is not None:
            lines += ["expected start", *(f"  {line}" for line in _forecast(self.expected, self.at))]
        return [*lines, f"in the run it {self.recorded_told}"]

    def first_lines(self) -> list[str]:
        """Return the lines that are known before anything is continued: causes, and what would make room."""
        lines = [described(self.job), self.told]
        if self.status != "waiting":
            return lines
        lines += ["why not now", *(f"  {cause}" for cause in self.causes), "what would make room now"]
        if self.fits_now:
            lines.append("  nothing is needed: it would fit")
        lines += [f"  {way.line()}" for way in self.ways]
        return [*lines, *(f"  by {kind}: {why}" for kind, why in self.none.items())]

    def record(self) -> dict[str, Any]:
        """Return it as JSON: times in seconds since the run began."""
        record: dict[str, Any] = {
            "job": self.job.id,
            "name": self.job.name,
            "policy": self.policy,
            "at_s": to_seconds(self.at),
            "status": self.status,
            "told": self.told,
        }
        if self.status != "waiting":
            return record
        return record | {
            "waited_s": to_seconds(self.at - (self.waiting_since or 0)),
            "causes": recorded_causes(self.causes),
            "fits_now": self.fits_now,
            "ways": [way.record() for way in self.ways],
            "no_way": self.none,
            "expected_start": None if self.expected is None else self.expected.record(),
            "recorded_start_s": None if self.recorded is None else to_seconds(self.recorded),
        }


def moment_to_ask(ledger: Ledger, job: int) -> int:
    """Return the middle of a job's first wait; without one, when it arrived or the tape ends, whichever is first."""
    stretches = waits(ledger)
    mine = np.flatnonzero(stretches.job == job)
    if len(mine):
        start, end = int(stretches.start[mine[0]]), int(stretches.end[mine[0]])
        return start + (end - start) // 2
    came = ledger.submit[job] if ledger.arrived[job] else ledger.jobs[job].submit  # live, a moment after its submission
    return min(int(came), ledger.horizon)


def explain(
    cluster: Cluster,
    jobs: Sequence[Job],
    tape: Tape,
    policy: ComposedPolicy,
    job: int,
    at: int,
    *,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
    faults: Faults | None = None,
    completions: int = 0,
    draws: int | None = None,
    seed: int = 0,
    resuming: Callable[[int, TrainingState], None] | None = None,
    first: Callable[[Explanation], None] | None = None,
    drawing: Callable[[int, int], None] | None = None,
    stopped: str = "",
) -> Explanation:
    """Explain a job at a time. ``policy`` is the one that wrote the tape, fresh; it is asked again along the way.

    ``first`` is told all but the expected start as soon as that is known. ``stopped`` says why nothing is started at
    all any more: it comes first, and nothing is expected then.
    """
    if not 0 <= job < len(jobs):
        raise TapeError(f"job {job} is not in this run; its jobs are 0 to {len(jobs) - 1}")
    before = Ledger(tape.until(at), jobs, cluster)
    status, told = _status(before, job, at)
    if status != "waiting":
        return Explanation(jobs[job], policy.name, at, status, told)
    moment = resume(
        *(cluster, jobs, tape, at, policy),
        speed=speed,
        costs=costs,
        faults=faults,
        completions=completions,
        progress=resuming,
    )
    js, delayed = moment.state.jobs[job], moment.state.jobs[job].status is Status.DELAYED
    fits_now = not delayed and fits(moment.state, js, copy(policy.placement)) is not None
    ways, none = ((), {}) if fits_now or delayed else ways_of(moment, js)
    found = Explanation(
        jobs[job],
        policy.name,
        at,
        status,
        f"at {clock(at)} it has waited for {format_duration(at - js.since)} under {policy.name}",
        js.since,
        _causes(why_waiting(before.horizon, moment.state, policy, js), stopped),
        fits_now,
        ways,
        none,
        None,
        *_afterwards(Ledger(tape, jobs, cluster), job, at),
    )
    if first is not None:
        first(found)
    if stopped:
        return found
    return replace(found, expected=expected_start(moment, job, before, draws=draws, seed=seed, progress=drawing))


def _causes(causes: tuple[Cause, ...], stopped: str) -> tuple[Cause, ...]:
    """Return causes with that first for which nothing is started at all; the nodes are out of service for the same."""
    if not stopped:
        return causes
    return Cause(CauseKind.STOPPED, stopped), *(cause for cause in causes if cause.kind is not CauseKind.NODES_DOWN)


# --- where the job is -----------------------------------------------------------------------------------------


def _status(before: Ledger, job: int, at: int) -> tuple[str, str]:
    if not before.arrived[job]:
        return _before_arrival(before, job, at)
    if before.ended[job]:
        how = _ENDS[Kind(int(before.ended_by[job]))]
        return how, f"at {clock(at)} it is over: {how} at {clock(int(before.end[job]))}"
    running = np.flatnonzero((before.hold_job == job) & ~before.hold_closed)
    if len(running):
        hold = int(running[0])
        counted: Counter[str] = Counter()
        for place in np.flatnonzero(before.place_hold == hold).tolist():
            counted[before.cluster.nodes[int(before.place_node[place])].name] += int(before.place_gpus[place])
        since = clock(int(before.hold_start[hold]))
        return "running", f"at {clock(at)} it runs: since {since}{_where(before.jobs[job], counted)}"
    return "waiting", ""


def _where(job: Job, nodes: Mapping[str, int]) -> str:
    """Return on how many GPUs of which nodes a job runs; one without GPUs on which nodes."""
    held = {name: gpus * job.gpu_milli / 1000 for name, gpus in nodes.items()}
    told = [f"{gpus:g} GPU{'' if gpus == 1 else 's'} of {name}" if gpus else name for name, gpus in held.items()]
    return f" on {listed_nodes(told)}" if told else ""


def _before_arrival(before: Ledger, job: int, at: int) -> tuple[str, str]:
    if before.withdrawn[job] >= 0:
        return (
            "cancelled",
            f"at {clock(at)} it is over: cancelled at {clock(int(before.withdrawn[job]))}, never eligible",
        )
    if before.jobs[job].submit > at:
        return "to come", f"at {clock(at)} it has not been submitted yet"
    if not (why := reasons(before, job, at)):
        return "to come", f"at {clock(at)} it has been submitted, and nothing was decided about it yet"
    return "not eligible", f"at {clock(at)} it is not eligible: {'; '.join(why)}"


def _afterwards(whole: Ledger, job: int, at: int) -> tuple[int | None, str]:
    """Return when it started next in the run, and what became of it in words."""
    mine = np.flatnonzero((whole.hold_job == job) & (whole.hold_start > at))
    if len(mine):
        start = int(whole.hold_start[mine[0]])
        return start, f"started at {clock(start)}, {format_duration(start - at)} later"
    if whole.ended[job]:
        how = _ENDS[Kind(int(whole.ended_by[job]))]
        return None, f"never started again: {how} at {clock(int(whole.end[job]))}"
    return None, f"still waits where the tape ends, at {clock(whole.horizon)}"


def _forecast(expected: Expected, at: int) -> list[str]:
    """Return an interval in words, and what it rests on."""

    until = expected.looked_until

    def told(time: int | None) -> str:
        if time is None:
            return "later than was looked at" if until is None else f"more than {format_duration(until - at)}"
        return format_duration(time - at)

    if not expected.started:
        if until is None:
            return [f"in none of {expected.draws} continuations within what was looked at"]
        waits = f"at {clock(until // SECOND * SECOND)} it waits in all of {expected.draws} continuations"
        return [f"{told(None)} from then: {waits}, which were played no further"]
    clocked = "" if expected.p50 is None else f", at {clock(expected.p50 // SECOND * SECOND)}"
    rest = f"{_run_times(expected)}, {_arrivals(expected)}"
    return [
        f"{told(expected.p50)} from then{clocked} (median of {expected.draws} continuations: {rest})",
        f"80 % of them between {told(expected.p10)} and {told(expected.p90)} from then",
    ]


def _arrivals(expected: Expected) -> str:
    """Return where the arrivals of a forecast come from."""
    if not expected.arrivals:
        return f"nobody else arrives: fewer than {LEAST_HISTORY} jobs had come, too few to know how many will"
    return f"arrivals as of {expected.arrivals:,} before"


def _run_times(expected: Expected) -> str:
    """Return where the run times of a forecast come from."""
    if expected.from_trace:
        return f"run times taken from the trace where none was announced: fewer than {LEAST_HISTORY} jobs had ended"
    if expected.history < LEAST_HISTORY:
        return f"run times as they were announced: fewer than {LEAST_HISTORY} jobs had ended"
    return f"run times as of {counted(expected.history, 'job')} that had ended"
