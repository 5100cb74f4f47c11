"""Tasks that became ready in this instant: what a policy with queues of its own adds to them."""

from collections.abc import Iterator

from headway.fleet.state.requeststate import READY, RequestState
from headway.fleet.state.state import ServingState


def new_tasks(state: ServingState) -> Iterator[tuple[RequestState, int]]:
    """Yield the tasks that became ready in this instant; some may come twice."""
    requests = state.requests
    for request in state.landed:
        rs = requests[request]
        for task in rs.graph.entries:
            if rs.stage[task] is READY:
                yield rs, task
    for request, done in state.ended:
        if (still_open := requests.get(request)) is not None:
            for task in still_open.graph.successors[done]:
                if still_open.stage[task] is READY:
                    yield still_open, task
    for request in state.displaced:
        if (still_open := requests.get(request)) is not None:
            for task, stage in enumerate(still_open.stage):
                if stage is READY:
                    yield still_open, task
