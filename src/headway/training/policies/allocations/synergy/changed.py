"""Which jobs to divide anew: those on nodes where somebody came or went since the last time, and whoever they share
other nodes with."""

from headway.training.jobstate import JobState
from headway.training.policies.allocations.shared.wants import joined
from headway.training.state import TrainingState


class Changed:
    """Who was on each node when it was last divided."""

    def __init__(self) -> None:
        self._at = -1
        self._seen: list[tuple[int, ...]] = []

    def jobs(self, state: TrainingState) -> list[JobState]:
        """The running jobs of all nodes that changed, and of those joined to them by jobs over several nodes; noted as
        seen. In the order of the nodes."""
        if state.tenures == self._at:
            return []
        self._at = state.tenures
        if not self._seen:
            self._seen = [()] * len(state.on_node)
        nodes: list[int] = []
        for node, here in enumerate(state.on_node):
            leases = tuple([js.lease for js in here.values()])
            if leases != self._seen[node]:
                self._seen[node] = leases
                nodes.append(node)
        found = {js.id: js for node in joined(state, nodes) for js in state.on_node[node].values()}
        return list(found.values())
