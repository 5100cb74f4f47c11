"""Finds the jobs whose nodes have to be divided anew: nodes where jobs came or left, and nodes connected to these."""

from headway.jobs.policies.allocations.shared.demands import connected_nodes
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState


class ChangedNodes:
    """Remembers which jobs were on each node when it was last divided."""

    def __init__(self) -> None:
        self._at = -1
        self._seen: list[list[int]] = []

    def jobs(self, state: TrainingState) -> list[JobState]:
        """Return the running jobs of all nodes that changed since the last call, and of nodes connected to these by
        jobs that span nodes; in the order of the nodes."""
        if state.tenures == self._at:
            return []
        self._at = state.tenures
        before = self._seen or [[]] * len(state.on_node)
        self._seen = [[js.lease for js in here.values()] for here in state.on_node]
        nodes = [node for node, (now, then) in enumerate(zip(self._seen, before, strict=True)) if now != then]
        jobs = {js.id: js for node in connected_nodes(state, nodes) for js in state.on_node[node].values()}
        return list(jobs.values())
