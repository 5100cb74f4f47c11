"""Tasks that became ready in this instant: what a policy with queues of its own adds to them."""

from collections.abc import Iterator

from headway.serving.requeststate import READY, RequestState
from headway.serving.state import ServingState


def new_tasks(state: ServingState) -> Iterator[tuple[RequestState, int]]:
    """Yield the tasks that became ready in this instant; some may come twice."""
    requests = state.requests
    tasks = [(request, task) for request in state.landed for task in requests[request].graph.entries]
    for request, task in state.ended:
        if (rs := requests.get(request)) is not None:
            tasks += [(request, after) for after in rs.graph.successors[task]]
    for request in state.displaced:
        if (rs := requests.get(request)) is not None:
            tasks += [(request, task) for task in range(len(rs.stage))]
    for request, task in tasks:
        if (rs := requests[request]).stage[task] is READY:
            yield rs, task
