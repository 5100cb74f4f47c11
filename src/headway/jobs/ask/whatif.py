"""Continue a stored run from a moment on, with changes and without, and compare the two.

Up to and including that time the run is what it was. A nanosecond later nodes that go are emptied, another one later
the changes hold, and the policy is asked at once where they concern it. ``moment_at`` alone is a run taken up in the
middle, for whoever wants to ask it something else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.core.collector import no_collection
from headway.core.scheduler import happen
from headway.core.tape import Tape, TapeWriter
from headway.errors import ExperimentError, InputError, TapeError
from headway.formats.dates import is_date
from headway.jobs.ask.changes import IN_FORCE_AFTER, Changes, Plan, plan
from headway.jobs.ask.other_cluster import renewed, transferred
from headway.jobs.experiment.arrivals import never_feasible
from headway.jobs.experiment.failures import check_failures, failure_model
from headway.jobs.experiment.scene import JobsScene
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.actions import WakeAt
from headway.jobs.model.events import JobCancelled, NodeDrained, NodeFailed, NodeRecovered
from headway.jobs.model.job import Job
from headway.jobs.sim.cluster import NodeEvent
from headway.jobs.sim.faults import Faults
from headway.jobs.sim.resume import Moment, resume
from headway.jobs.state.state import TrainingState
from headway.jobs.tables.settings import span
from headway.runs.domain import Progress, RunResult, StoredRun, with_table
from headway.runs.folder.folder import CONTINUATION_NAME, origin, whole_or_nothing
from headway.runs.play import play
from headway.runs.settings.changes import write_difference
from headway.units import SECOND, format_duration


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A run without and with the changes, both from its beginning to its end."""

    plan: Plan
    at: int
    jobs: tuple[Job, ...]
    """As they arrived without the changes."""
    before: Tape
    """Without the changes, and without the jobs that are left out: the same jobs as with them."""
    after: RunResult
    left_out: tuple[int, ...]
    """Jobs that could never run under the changes: cancelled when they came into force, or never submitted."""
    recorded: Tape
    """The run as it was, as far as it goes."""

    @property
    def continuation(self) -> Tape:
        """Return what happened after the changes."""
        return Tape(self.after.tape.rows[len(self.before.until(self.at)) :])


# --- a moment of a run --------------------------------------------------------------------------------------------


def time_of(text: str, stored: StoredRun) -> int:
    """Return the time that ``2d``, ``36h``, ``50%`` or ``end`` means for a run; it must lie within what is recorded.

    The last step of a run that was cut short may be half a step: its end is the step before that.
    """
    times = stored.tape.column("time")
    last = int(times[-1])
    end = last if stored.complete else int(times[times < last].max(initial=-1))
    wanted = text.strip()
    if wanted == "end":
        time = end
    elif wanted.endswith("%"):
        try:
            part = float(wanted[:-1])
        except ValueError:
            part = -1.0
        if not 0 <= part <= 100:
            raise InputError(f"--at {text!r} is not understood: write a part of the run from 0% to 100%")
        time = round(last * part / 100)
    else:
        time = date_of(text, stored) if is_date(text) else _duration(text)
    if time > end and not stored.complete and wanted.endswith("%"):
        time = end
    if time > end or (stored.complete and time == end):
        whole = "ends" if stored.complete else "was cut short"
        raise ExperimentError(f"--at {text}: the run {whole} at {when(stored, last)}; nothing is left to continue")
    return time


def when(run: StoredRun | RunResult, time: int) -> str:
    """Return a time since a run began, with its date where the run has dates."""
    dates = run.scene.calendar
    return format_duration(time) + ("" if dates is None else f" ({dates.text(time)})")


def date_of(text: str, stored: StoredRun) -> int:
    """Return the time since a run began of a date of the site."""
    calendar = stored.scene.calendar
    if calendar is None:
        raise ExperimentError(
            f"--at {text}: the run has no dates, its trace had none: write a time since it began like 2d 3h"
        )
    time: int = calendar.time_of(text, "--at")
    if time < 0:
        raise ExperimentError(f"--at {text}: the run begins only at {calendar.text(0)}")
    return time


def _duration(text: str) -> int:
    try:
        return span(text.strip(), "--at")
    except ExperimentError:
        raise  # a time, but not one that can be meant
    except InputError as problem:
        raise InputError(
            f"--at {text[:60]!r} is not understood: write a time since the run began (2d, 36h), "
            "a date of the site (2026-03-05T09:00), a part of the run (50%) or end"
        ) from problem


def moment_at(
    scene: JobsScene, tape: Tape, at: int, *, policy: JobsScene | None = None, progress: Progress | None = None
) -> Moment:
    """Return a run after everything up to and including a time: its policy with its memory, or another scene's, new."""

    def told(now: int, state: TrainingState) -> None:
        if progress is not None:
            progress(scene.progress(state, now))

    with no_collection():
        return resume(
            scene.cluster,
            scene.jobs,
            tape,
            at,
            (policy or scene).policy(),
            speed=scene.speed(),
            costs=scene.costs(),
            faults=scene.faults(),
            completions=scene.completions(),
            asking=policy is None,
            progress=told,
        )


# --- the changes --------------------------------------------------------------------------------------------------


def what_if(
    stored: StoredRun,
    at: int,
    changes: Changes,
    *,
    skip_infeasible: bool = False,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> WhatIf:
    """Continue a run under changes. With a folder the new run is stored there, if it is one that can be audited."""
    scene = stored.scene
    if (came := origin(stored.folder)) is not None:
        raise TapeError(
            f"run folder {stored.folder}: was itself continued under changes; take the run it came from, {came.run}"
        )
    at = _clear_of_steps(stored.tape, at)
    planned = plan(scene, at, changes)
    left_out = _never_feasible(stored, at, planned, skip_infeasible)
    before = stored.tape
    if not stored.complete or left_out:
        unchanged = _continued(stored, at, plan(scene, at, Changes()), left_out, None, progress)
        if unchanged.stopped:
            raise KeyboardInterrupt
        before = unchanged.tape
    after = _continued(stored, at, planned, left_out, folder, progress)
    return WhatIf(planned, at, scene.jobs, before, after, left_out, stored.tape)


def _clear_of_steps(tape: Tape, at: int) -> int:
    """Return the time itself, or that of a step that follows within the nanoseconds reserved for the changes."""
    later = tape.column("time")[len(tape.until(at)) :]
    for time in map(int, later):
        if time > at + IN_FORCE_AFTER:
            break
        at = time
    return at


def auditable(planned: Plan, left_out: Sequence[int]) -> bool:
    """Return whether one scene describes the whole run, before and after: only then it is stored as a run."""
    return planned.same_cluster and not left_out


def _continued(
    stored: StoredRun,
    at: int,
    planned: Plan,
    left_out: Sequence[int],
    folder: Path | None,
    progress: Progress | None,
) -> RunResult:
    """Return the run continued to its end; nothing is written before it is clear that it can be continued."""
    scene = planned.scene
    other = None if planned.same_policy else scene
    moment = moment_at(stored.scene, stored.tape, at, policy=other, progress=progress)
    into = folder if auditable(planned, left_out) else None
    begun = False

    def begin(writer: TapeWriter) -> Moment:
        nonlocal begun
        for row in stored.tape.until(at).rows.tolist():
            writer.append(tuple(row))
        moment.state.journal = writer.append
        _change(moment, planned, left_out)
        begun = True
        return moment

    experiment = with_table(scene.experiment, "run", out="" if folder is None else str(folder))
    made = JobsScene(experiment, scene.cluster, scene.jobs, past=scene.past, site=scene.site)
    if into is None:
        return play(made, None, progress, begin)
    with whole_or_nothing(into, unless=lambda: begun):
        if not planned.nothing:  # at once: it may be killed
            write_difference(into, {"run": str(stored.folder), "at_s": at / SECOND, "changes": list(planned.told)})
        return play(made, into, progress, begin)


def _never_feasible(stored: StoredRun, at: int, planned: Plan, skip: bool) -> tuple[int, ...]:
    """Return jobs, live or to come, that could never run under the changes; an error unless they are to be skipped."""
    if planned.same_cluster and planned.same_policy:
        return ()
    scene = planned.scene
    ended = Ledger(stored.tape.until(at), stored.scene.jobs, stored.scene.cluster).ended.tolist()
    jobs = [job for job in scene.jobs if not ended[job.id]]
    skipping = "leaves such jobs out" if not skip else ""
    refused = never_feasible(scene.cluster, jobs, scene.policy(), skipping, "no job that is left")
    return tuple(each.job.id for each in refused)


def _change(moment: Moment, planned: Plan, left_out: Sequence[int]) -> None:
    """Apply the changes right after the moment; their effects on nodes and jobs go onto the tape."""
    if planned.nothing and not left_out:
        return
    now = moment.time + IN_FORCE_AFTER
    state, executor, scene = moment.state, moment.executor, planned.scene
    came_back = [node for node in planned.upgraded if state.pool.schedulable >> node & 1]
    for node in (*planned.removed, *planned.upgraded):
        happen(state, executor, now - 1, NodeDrained(node, evict=True))
    if not planned.same_cluster:
        moment.policy = renewed(moment.policy, scene.policy())
        moment.state, caused = transferred(
            now, state, scene.cluster, moment.policy, speed=scene.speed(), costs=scene.costs()
        )
        state = moment.state
        executor.move_to(state)
        executor.completions = scene.completions()
        if caused is not None:
            executor.follow(now, caused)
    for node in (*came_back, *planned.added):
        happen(state, executor, now, NodeRecovered(node))
    _change_faults(now, moment, planned)
    made_room = _cancel_jobs(now, moment, left_out)
    if left_out or not planned.same_arrivals:
        executor.leave_out(now, left_out)
        gone, here = set(left_out), len(scene.jobs) - len(executor.to_come)
        moment.expect([job for job in scene.jobs[here:] if job.id not in gone])
    if not planned.same_policy:
        executor.forget_wakes()
    if made_room or not planned.same_policy or not planned.same_cluster:
        executor.execute(now - 1, WakeAt(now))


def _change_faults(now: int, moment: Moment, planned: Plan) -> None:
    """Draw failures by another model or for new nodes, and cancel those of removed nodes."""
    executor, scene = moment.executor, planned.scene
    gone = set(planned.removed)
    executor.give_up(gone)
    faults, coming = executor.faults, list[tuple[int, NodeEvent]]()
    if faults is None and not planned.same_failures:
        faults = Faults(len(scene.cluster.nodes) - len(planned.added), scene.experiment.run.seed)
    if faults is not None:
        if not planned.same_failures:
            model = failure_model(scene.experiment.failures)
            check_failures(model, scene.cluster, scene.jobs)
            coming.extend(faults.change(now, model))
        coming.extend(faults.grow(now, len(scene.cluster.nodes)))

    executor.replace_faults(
        faults,
        [each for each in coming if each[1].node not in gone],
        cancel=lambda event: event.node in gone or (isinstance(event, NodeFailed) and not planned.same_failures),
    )


def _cancel_jobs(now: int, moment: Moment, jobs: Sequence[int]) -> bool:
    """Cancel those of these jobs that are live; return whether any was."""
    state = moment.state
    here = [job for job in jobs if job in state.jobs]
    for job in here:
        lease = state.jobs[job].lease if job in state.running else 0
        happen(state, moment.executor, now, JobCancelled(job, lease))
    return bool(here)


# --- what is kept -------------------------------------------------------------------------------------------------


def store(folder: Path, what_if_run: WhatIf, difference: dict[str, Any]) -> str:
    """Put the difference into a folder that may hold the new run already; in one line, what is there.

    Where one scene describes the whole run it was written there while it went on. Otherwise there is no run, which an
    audit would call broken, but the tape of what followed the changes.
    """
    if auditable(what_if_run.plan, what_if_run.left_out):
        if not what_if_run.plan.nothing:
            write_difference(folder, difference)
        return f"{folder}: the whole run, from its beginning"
    tape = folder / CONTINUATION_NAME
    with whole_or_nothing(folder):
        write_difference(folder, difference)
        writer = TapeWriter(tape)
        for row in what_if_run.continuation.rows.tolist():
            writer.append(tuple(row))
        writer.close()
    why = "jobs were left out" if what_if_run.plan.same_cluster else "its cluster changed"
    return f"{folder}: the difference, and the tape of what followed; not a run, because {why} on the way"
