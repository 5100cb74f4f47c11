"""Apply the events that are rare: jobs that fail, are interrupted, cancelled, withdrawn; nodes that fail or recover."""

from typing import TYPE_CHECKING, TypeAlias, assert_never

from headway.jobs.model.events import (
    JobCancelled,
    JobFailed,
    JobFinished,
    JobInterrupted,
    JobProgressed,
    JobWithdrawn,
    NodeDrained,
    NodeFailed,
    NodeRecovered,
    Woke,
)
from headway.jobs.model.rows import Kind
from headway.jobs.state.jobstate import JobState, Status
from headway.jobs.state.speed_changes import Respeeded

if TYPE_CHECKING:
    from headway.jobs.state.state import TrainingState


OfJob: TypeAlias = JobFailed | JobInterrupted | JobCancelled | JobWithdrawn | JobProgressed
OfNode: TypeAlias = NodeFailed | NodeRecovered | NodeDrained


def lose(state: "TrainingState", now: int, event: OfJob | OfNode | Woke) -> Respeeded | None:
    """Apply any event but an arrival and the end of a job; return the running jobs whose speed it changed."""
    match event:
        case Woke():
            state.journal((now, int(Kind.WOKE), -1, 0, -1, 0, 0))
            return None
        case JobFailed():
            return fail_job(state, now, event)
        case JobInterrupted():
            return interrupt(state, now, event)
        case JobProgressed():
            expect(state, now, event)
            return None
        case JobCancelled():
            return cancel_job(state, now, event)
        case JobWithdrawn():
            state.to_come -= 1
            state.journal((now, int(Kind.WITHDRAWN), event.job, 0, -1, 0, 0))
            return None
        case NodeFailed():
            return fail(state, now, event.node)
        case NodeDrained():
            return drain(state, now, event.node, evict=event.evict)
        case NodeRecovered():
            recover(state, now, event.node)
            return None
        case _:
            assert_never(event)


def fail(state: "TrainingState", now: int, node: int) -> Respeeded | None:
    """Take a failed node out of service; its jobs wait again from their last checkpoints. Return changed neighbours."""
    state.journal((now, int(Kind.NODE_FAILED), node, 0, node, 0, 0))
    state.pool.set_schedulable(node, False)
    caused: Respeeded = []
    for js in list(state.on_node[node].values()):
        caused += state.stop(now, js) or ()
        _fall_back(state, now, js, node)
    return caused or None


def _fall_back(state: "TrainingState", now: int, js: JobState, node: int) -> None:
    """Let a job that was stopped wait again from its last checkpoint."""
    every = js.job.checkpoint_every
    unwritten = every if js.writing > now else 0
    kept = max(js.saved, js.done - js.done % every - unwritten) if every else js.done
    state.journal((now, int(Kind.EVICTED), js.id, js.lease, node, js.done - kept, kept))
    js.done = kept
    js.debt = js.job.restore if kept else 0
    state.wait(now, js)


def _save(state: "TrainingState", now: int, js: JobState, node: int) -> None:
    """Let a job that saved its work when it was stopped wait again from there."""
    state.journal((now, int(Kind.EVICTED), js.id, js.lease, node, 0, js.done))
    js.saved = js.done
    js.debt = state.costs.of_preemption(js.job)
    state.wait(now, js)


def drain(state: "TrainingState", now: int, node: int, *, evict: bool) -> Respeeded | None:
    """Take no new jobs on a node; with ``evict`` its jobs save their work and wait again. Return changed neighbours."""
    state.journal((now, int(Kind.NODE_DRAINED), node, 0, node, 0, int(evict)))
    state.pool.set_schedulable(node, False)
    caused: Respeeded = []
    for js in list(state.on_node[node].values()) if evict else ():
        caused += state.stop(now, js) or ()
        _save(state, now, js, node)
    return caused or None


def recover(state: "TrainingState", now: int, node: int) -> None:
    """Take jobs on a node again."""
    state.journal((now, int(Kind.NODE_RECOVERED), node, 0, node, 0, 0))
    state.pool.set_schedulable(node, True)
    state.changes += 1
    state.releases += state.pool.capacity[node] or 1


def fail_job(state: "TrainingState", now: int, event: JobFailed) -> Respeeded | None:
    """End an attempt of a job; it waits again if it has retries left. Return changed neighbours."""
    js = state.running.get(event.job)
    if js is None or js.lease != event.lease:
        state.stale(now, Kind.FAILED, event.job, event.lease)
        return None
    caused = state.stop(now, js)
    state.journal((now, int(Kind.FAILED), js.id, js.lease, -1, 0, js.job.delivered(js.done)))
    js.attempt += 1
    if js.attempt > js.job.retries:
        state.end(now, js)
        return caused
    state.journal((now, int(Kind.QUEUED_AGAIN), js.id, js.lease, -1, 0, js.attempt))
    js.done = js.saved = js.debt = 0
    state.wait(now, js)
    return caused


def interrupt(state: "TrainingState", now: int, event: JobInterrupted) -> Respeeded | None:
    """Let a job wait again whose run is gone; no attempt of it has failed. Return changed neighbours."""
    js = state.running.get(event.job)
    if js is None or js.lease != event.lease:
        state.stale(now, Kind.INTERRUPTED, event.job, event.lease)
        return None
    state.journal((now, int(Kind.INTERRUPTED), js.id, js.lease, -1, 0, int(event.saved)))
    caused = state.stop(now, js)
    (_save if event.saved else _fall_back)(state, now, js, js.placement[0][0])
    return caused


def finish_waiting(state: "TrainingState", now: int, event: JobFinished) -> None:
    """End a job that finished while it was stopped and waits by now; what is of an earlier lease is stale."""
    js = state.jobs.get(event.job)
    if js is None or event.lease or js.status is Status.RUNNING:
        state.stale(now, Kind.FINISHED, event.job, event.lease)
        return
    if js.status is Status.WAITING:
        state.dequeue(js)
    state.journal((now, int(Kind.FINISHED), js.id, 0, -1, 0, js.job.delivered(js.done)))
    state.end(now, js)


def expect(state: "TrainingState", now: int, event: JobProgressed) -> None:
    """Expect other work of a job than before, and put it where it belongs by that."""
    js = state.jobs.get(event.job)
    if js is None or js.lease * (js.status is Status.RUNNING) != event.lease:
        state.stale(now, Kind.PROGRESSED, event.job, event.lease)
        return
    state.journal((now, int(Kind.PROGRESSED), js.id, event.lease, -1, 0, event.expected))
    if js.status is Status.RUNNING:
        state.leave_ranks(js)
        js.expected = event.expected
        state.enter_ranks(now, js)
    elif js.status is Status.WAITING:
        state.dequeue(js)
        js.expected = event.expected
        state.put_in_order(now, js)
        state.enqueue(js)
    else:
        js.expected = event.expected
    state.changes += 1  # reservations are made by expected ends
    state.releases += 1


def cancel_job(state: "TrainingState", now: int, event: JobCancelled) -> Respeeded | None:
    """End a job that waits or runs. Return changed neighbours."""
    js = state.jobs.get(event.job)
    if js is None or js.lease * (js.status is Status.RUNNING) != event.lease:
        state.stale(now, Kind.CANCELLED, event.job, event.lease)
        return None
    caused = None
    if js.status is Status.RUNNING:
        caused = state.stop(now, js)
    elif js.status is Status.WAITING:
        state.dequeue(js)
    state.journal((now, int(Kind.CANCELLED), js.id, event.lease, -1, 0, js.job.delivered(js.done)))
    state.end(now, js)
    return caused
