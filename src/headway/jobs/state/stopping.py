"""Stop running jobs for others: checkpoint, requeue from the beginning, or end them; give notice; or move them."""

from typing import TYPE_CHECKING

from headway.jobs.model.actions import KillJob, MigrateJob, PreemptJob, RequeueJob, Stop, WarnJob
from headway.jobs.model.rows import Kind
from headway.jobs.rules.preemption.preemption import Mode
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.speed_changes import Respeeded

if TYPE_CHECKING:
    from headway.jobs.state.state import TrainingState

_PREEMPT, _REQUEUE, _KILL, _WARN = int(Kind.PREEMPT), int(Kind.REQUEUE), int(Kind.KILL), int(Kind.WARN)
_MIGRATE = int(Kind.MIGRATE)


def stop_refusal(state: "TrainingState", action: Stop) -> str | None:
    """Return why a job cannot be stopped so now; None when it can."""
    told = f"{type(action).__name__}(job={action.job})"
    js = state.running.get(action.job)
    if js is None:
        return f"{told}: does not run"
    if not js.job.preemptible:
        return f"{told}: is not preemptible"
    if isinstance(action, PreemptJob):
        return None
    if state.preempting is None:
        return f"{told}: the cluster declares no preemption"
    modes = {RequeueJob: Mode.REQUEUE, KillJob: Mode.CANCEL}
    return state.preempting.refusal(state, action, modes.get(type(action)))


def stop_for_another(state: "TrainingState", now: int, action: Stop) -> Respeeded | None:
    """Stop a job, or give it notice; return the running jobs whose speed this changed."""
    js = state.running[action.job]
    if isinstance(action, WarnJob):
        _warn(state, now, js, action)
        return None
    caused = state.stop(now, js)
    js.preemptions += 1
    if isinstance(action, PreemptJob):
        js.saved = js.done
        js.debt = state.costs.of_preemption(js.job)
        state.journal((now, _PREEMPT, js.id, js.lease, -1, 0, js.done))
        state.wait(now, js)
        return caused
    js.by = action.by
    if isinstance(action, KillJob):
        state.journal((now, _KILL, js.id, js.lease, -1, action.by, js.done))
        state.end(now, js)
        return caused
    state.journal((now, _REQUEUE, js.id, js.lease, -1, action.by, js.done))
    js.done = js.saved = js.debt = 0
    assert state.preempting is not None
    state.preempting.requeue(now, js, state)
    return caused


def _warn(state: "TrainingState", now: int, js: JobState, action: WarnJob) -> None:
    assert state.preempting is not None
    state.leave_ranks(js)
    state.preempting.warn(js, action.until)
    state.enter_ranks(now, js)
    js.by = action.by
    other = state.jobs[action.by]
    other.awaits = max(other.awaits, action.until)
    state.changes += 1
    state.journal((now, _WARN, js.id, js.lease, -1, action.by, action.until))


def migrate(state: "TrainingState", now: int, js: JobState, action: MigrateJob) -> Respeeded | None:
    """Move a running job; return the running jobs whose speed this changed."""
    left_to_restore = max(0, js.base - max(now, js.writing))
    grant = js.grant if action.grant is None and state.grants else action.grant
    left = state.stop(now, js)
    js.saved = js.done
    standstill = left_to_restore + state.costs.of_migration(js.job)
    joined = state.run(now, js, action.placement, grant, _MIGRATE, standstill)
    return [*(left or ()), *(joined or ())] or None
