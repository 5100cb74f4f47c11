"""Say why a job waits that preempts, or was preempted, by the rules of the cluster."""

from headway.jobs.model.causes import Cause, CauseKind
from headway.jobs.state.jobstate import JobState, Status
from headway.jobs.state.state import TrainingState
from headway.units import format_duration


def why_delayed(state: TrainingState, js: JobState) -> Cause | None:
    """Return that a job was requeued and may not start yet; None where that is not so."""
    if js.status is not Status.DELAYED or state.preempting is None:
        return None
    other = state.jobs.get(js.by)
    name = other.job.name or str(js.by) if other is not None else str(js.by)
    who = f"job {name}" + (f" of {state.preempting.precedence.told(other.job)}" if other is not None else "")
    text = f"preempted by {who}: it may start again at {format_duration(js.aged_from)}"
    return Cause(CauseKind.REQUEUED, text, jobs=(js.by,), facts={"next": js.aged_from}, names=(name,))


def why_grace(state: TrainingState, js: JobState) -> Cause | None:
    """Return that jobs have been given notice for a job and have not gone yet; None where that is not so."""
    if not js.awaits or state.preempting is None:
        return None
    leaving = [each for each in state.preempting.warned.values() if each.by == js.id]
    if not leaving:
        return None
    names = tuple(each.job.name or str(each.id) for each in leaving)
    last = max(each.leaves for each in leaving)
    text = f"waits for grace of job{'s' if len(names) > 1 else ''} {', '.join(names)}, until {format_duration(last)}"
    return Cause(CauseKind.GRACE, text, jobs=tuple(each.id for each in leaving), facts={"next": last}, names=names)
