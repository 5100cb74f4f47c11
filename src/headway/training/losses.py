"""Node failures, drains and recoveries: how they change the state and the jobs on the node."""

from typing import TYPE_CHECKING

from headway.training.respeed import Respeeded
from headway.training.rows import Kind

if TYPE_CHECKING:
    from headway.training.state import TrainingState


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
