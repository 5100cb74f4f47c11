"""Worker failures: which requests must be planned again, and which wait until a worker recovers.

A request carries its plan, so that any worker can go on with it. What runs or waits on workers that are up stays there;
what was lost is placed again.
"""

from collections.abc import Iterator

from headway.fleet.state.requeststate import RequestState
from headway.fleet.state.state import ServingState


class Recovery:
    """Remembers requests with tasks that no worker that is up can run."""

    def __init__(self) -> None:
        self._stranded: dict[int, None] = {}
        self._up = -1

    def to_plan(self, state: ServingState) -> Iterator[int]:
        """Yield requests that need a plan now: new ones, those that lost tasks, and stranded ones after a recovery."""
        waiting = [*state.landed, *state.displaced]
        if self._stranded and (up := up_mask(state)) != self._up:
            self._up = up
            waiting = [*self._stranded, *waiting]
        for request in dict.fromkeys(waiting):
            if request in state.requests:
                yield request
            else:
                self._stranded.pop(request, None)

    def planned(self, state: ServingState, rs: RequestState, workers: tuple[int, ...]) -> None:
        """Note the plan of a request; it may leave tasks open."""
        if rs.unplaced(workers):
            self._stranded[rs.request.id] = None
            self._up = up_mask(state)
        else:
            self._stranded.pop(rs.request.id, None)


def up_mask(state: ServingState) -> int:
    """Return the workers that are up, as bits."""
    return sum(1 << worker.id for worker in state.workers if worker.up)
