"""Changes the speed of running jobs: neighbours on a shared GPU came or left, or the job's grant changed.

Work done so far is counted at the old speed. Each function returns the jobs whose ends move, None when there are none;
the loop hands them to the executor, which reschedules their ends.
"""

from typing import TYPE_CHECKING, TypeAlias

from headway.jobs.model.resources import Grant
from headway.jobs.model.rows import Kind, grant_rows
from headway.jobs.state.jobstate import JobState

if TYPE_CHECKING:
    from headway.jobs.state.state import TrainingState

Respeeded: TypeAlias = list[JobState]
"""Running jobs whose ends move; one may have stopped again since it was noted."""


def respeed_neighbours(state: "TrainingState", now: int, moved: JobState) -> Respeeded | None:
    """Set the speed of the jobs that share the GPU that a job just took or left; return those that changed."""
    if moved.gpu_milli == 1000:
        return None
    caused = []
    for js in state.on_node[moved.placement[0][0]].values():
        if js is not moved and js.placement == moved.placement and (speed := speed_of(state, js)) != js.speed:
            _settle(state, now, js, speed)
            state.journal((now, int(Kind.RESPEED), js.id, js.lease, -1, 0, speed))
            caused.append(js)
    return caused or None


def beside(state: "TrainingState", js: JobState) -> list[str]:
    """Return the models of the other jobs on the GPU that a job shares."""
    if js.gpu_milli == 1000:
        return []
    others = state.on_node[js.placement[0][0]].values()
    return [other.job.model for other in others if other is not js and other.placement == js.placement]


def reallocate(state: "TrainingState", now: int, js: JobState, grant: Grant) -> Respeeded | None:
    """Change the grant of a running job; return it if its end moves.

    It stands still for the cost of a reallocation, unless it started or was changed at this very instant.
    """
    state.pool.give(js, js.placement)
    js.cpu_milli, js.memory_bytes, js.storage = grant
    state.grants = True
    state.pool.take(js, js.placement)
    state.changes += 1
    state.releases += 1
    speed = js.speed if state.speed.constant else speed_of(state, js)
    pause = 0 if now in (js.since, js.regranted) else state.costs.reallocation
    js.regranted = now
    caused = [js] if speed != js.speed or pause else None
    if caused:
        _settle(state, now, js, speed, pause)
    state.journal((now, int(Kind.REALLOCATE), js.id, js.lease, -1, 0, speed))
    for row in grant_rows(now, js.id, js.lease, grant):
        state.journal(row)
    if pause:
        state.journal((now, int(Kind.PAUSE), js.id, js.lease, -1, 0, pause))
    return caused


def _settle(state: "TrainingState", now: int, js: JobState, speed: int, pause: int = 0) -> None:
    """Count the work done so far at the old speed, and go on at the new one after a pause."""
    state.leave_ranks(js)
    js.settle(now)
    js.base += pause
    js.speed = speed
    state.enter_ranks(now, js)


def speed_of(state: "TrainingState", js: JobState) -> int:
    """Return the speed of a running job where it is, in parts per million of the reference."""
    neighbours = 0
    if js.gpu_milli < 1000:
        ((node, mask),) = js.placement
        neighbours = 1000 - state.pool.shares[node].get(mask.bit_length() - 1, 0) - js.gpu_milli
    others = beside(state, js) if state.speed.interference is not None else ()
    return state.speed.of(js.job, js.placement, js.grant, neighbours, others)
