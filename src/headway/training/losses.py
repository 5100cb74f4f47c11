"""Apply the events that are rare: jobs that fail, are cancelled or withdrawn; nodes that fail, are drained, recover."""

from typing import TYPE_CHECKING, TypeAlias, assert_never

from headway.training.events import JobCancelled, JobFailed, JobWithdrawn, NodeDrained, NodeFailed, NodeRecovered, Woke
from headway.training.jobstate import Status
from headway.training.respeed import Respeeded
from headway.training.rows import Kind

if TYPE_CHECKING:
    from headway.training.state import TrainingState


RareEvent: TypeAlias = Woke | JobFailed | JobCancelled | JobWithdrawn | NodeFailed | NodeRecovered | NodeDrained


def lose(state: "TrainingState", now: int, event: RareEvent) -> Respeeded | None:
    """Apply any event but an arrival and the end of a job; return the running jobs whose speed it changed."""
    match event:
        case Woke():
            state.journal((now, int(Kind.WOKE), -1, 0, -1, 0, 0))
            return None
        case JobFailed():
            return fail_job(state, now, event)
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
        every = js.job.checkpoint_every
        unwritten = every if js.writing > now else 0
        kept = max(js.saved, js.done - js.done % every - unwritten) if every else js.done
        state.journal((now, int(Kind.EVICTED), js.id, js.lease, node, js.done - kept, kept))
        js.done = kept
        js.debt = js.job.restore if kept else 0
        state.wait(now, js)
    return caused or None


def drain(state: "TrainingState", now: int, node: int, *, evict: bool) -> Respeeded | None:
    """Take no new jobs on a node; with ``evict`` its jobs save their work and wait again. Return changed neighbours."""
    state.journal((now, int(Kind.NODE_DRAINED), node, 0, node, 0, int(evict)))
    state.pool.set_schedulable(node, False)
    caused: Respeeded = []
    for js in list(state.on_node[node].values()) if evict else ():
        caused += state.stop(now, js) or ()
        state.journal((now, int(Kind.EVICTED), js.id, js.lease, node, 0, js.done))
        js.saved = js.done
        js.debt = state.costs.of_preemption(js.job)
        state.wait(now, js)
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
    state.journal((now, int(Kind.FAILED), js.id, js.lease, -1, 0, min(js.done, js.job.ends_after)))
    js.attempt += 1
    if js.attempt > js.job.retries:
        state.end(now, js)
        return caused
    state.journal((now, int(Kind.QUEUED_AGAIN), js.id, js.lease, -1, 0, js.attempt))
    js.done = js.saved = js.debt = 0
    state.wait(now, js)
    return caused


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
    state.journal((now, int(Kind.CANCELLED), js.id, event.lease, -1, 0, min(js.done, js.job.ends_after)))
    state.end(now, js)
    return caused
