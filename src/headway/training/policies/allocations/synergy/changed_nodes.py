"""Which jobs to divide anew: those on nodes where somebody came or went since the last time, and whoever they share
other nodes with."""

from headway.training.jobstate import JobState
from headway.training.policies.allocations.shared.demands import connected_nodes
from headway.training.state import TrainingState


class ChangedNodes:
    """Who was on each node when it was last divided."""

    def __init__(self) -> None:
        self._at = -1
        self._seen: list[list[int]] = []

    def jobs(self, state: TrainingState) -> list[JobState]:
        """The running jobs of all nodes that changed, and of those joined to them by jobs over several nodes; noted as
        seen. In the order of the nodes."""
        if state.tenures == self._at:
            return []
        self._at = state.tenures
        before = self._seen or [[]] * len(state.on_node)
        self._seen = [[js.lease for js in here.values()] for here in state.on_node]
        nodes = [node for node, (now, then) in enumerate(zip(self._seen, before, strict=True)) if now != then]
        found = {js.id: js for node in connected_nodes(state, nodes) for js in state.on_node[node].values()}
        return list(found.values())
