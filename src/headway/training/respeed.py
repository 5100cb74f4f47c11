"""Running jobs that go on at another speed: neighbours of a shared GPU came or went, or what they hold was changed.

Work done so far is settled at the old speed; the executor finds the job in ``respeeded`` and moves its end.
"""

from typing import TYPE_CHECKING

from headway.training.actions import Grant
from headway.training.jobstate import JobState
from headway.training.rows import Kind, grant_rows

if TYPE_CHECKING:
    from headway.training.state import TrainingState


def respeed_neighbours(state: "TrainingState", now: int, moved: JobState) -> None:
    """Whoever shares the GPU that was just taken or left goes on at another speed."""
    if moved.gpu_milli == 1000:
        return
    for js in state.on_node[moved.placement[0][0]].values():
        if js is not moved and js.placement == moved.placement and (speed := state.speed_of(js)) != js.speed:
            _settle(state, now, js, speed)
            state.journal((now, int(Kind.RESPEED), js.id, js.lease, -1, 0, speed))


def beside(state: "TrainingState", js: JobState) -> list[str]:
    """What the others train that run on the GPU of which a job holds a share."""
    if js.gpu_milli == 1000:
        return []
    others = state.on_node[js.placement[0][0]].values()
    return [other.job.model for other in others if other is not js and other.placement == js.placement]


def reallocate(state: "TrainingState", now: int, js: JobState, grant: Grant) -> None:
    """Other CPUs, memory and storage bandwidth, where the job is; it stands still for what the change costs, unless it
    has only just started or been changed."""
    state.pool.give(js, js.placement)
    js.cpu_milli, js.memory_bytes, js.storage = grant
    state.grants = True
    state.pool.take(js, js.placement)
    state.changes += 1
    state.releases += 1
    speed = js.speed if state.speed.constant else state.speed_of(js)
    pause = 0 if now in (js.since, js.regranted) else state.costs.reallocation
    js.regranted = now
    if speed != js.speed or pause:
        _settle(state, now, js, speed, pause)
    state.journal((now, int(Kind.REALLOCATE), js.id, js.lease, -1, 0, speed))
    for row in grant_rows(now, js.id, js.lease, grant):
        state.journal(row)
    if pause:
        state.journal((now, int(Kind.PAUSE), js.id, js.lease, -1, 0, pause))


def _settle(state: "TrainingState", now: int, js: JobState, speed: int, pause: int = 0) -> None:
    """What was done so far at the old speed; what follows, after a pause, at the new one."""
    arrangement = state.arrangement
    if arrangement.ranks_ends:
        state.ends.remove(0, js.expected_end(), js.id)
    js.settle(now)
    js.base += pause
    js.speed = speed
    if arrangement.ranks_ends:
        state.ends.add(0, js.expected_end(), js.id)
    if arrangement.ranks_running and js.job.preemptible:
        state.ranked.remove(*js.rank, js.id)
        js.rank = arrangement.rank(now, js)
        state.ranked.add(*js.rank, js.id)
    state.respeeded.append(js)
