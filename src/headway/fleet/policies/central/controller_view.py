"""What is new for a controller, and the view of the state that its next decision is shown."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headway.fleet.model.actions import Action, RunBatch
from headway.fleet.state.workerstate import TaskId, WorkerState

if TYPE_CHECKING:
    from headway.fleet.state.state import ServingState


class News:
    """What happened since a controller began its last decision, and when; the names are those of ``ServingState``."""

    __slots__ = ("displaced", "ended", "landed", "since", "touched")

    def __init__(self) -> None:
        self.landed: list[int] = []
        self.ended: list[TaskId] = []
        self.displaced: dict[int, None] = {}
        self.touched: dict[int, int] = {}
        """By worker: when it was touched first."""
        self.since: dict[int, int] = {}
        """By request: when it first had news."""

    def land(self, now: int, request: int) -> None:
        """Note a request that arrived."""
        self.landed.append(request)
        self.since.setdefault(request, now)

    def end(self, now: int, task: TaskId) -> None:
        """Note a task that ended."""
        self.ended.append(task)
        self.since.setdefault(task[0], now)

    def displace(self, now: int, request: int) -> None:
        """Note a request that lost tasks, or of which an action was refused."""
        self.displaced[request] = None
        self.since[request] = min(now, self.since.get(request, now))

    def touch(self, now: int, worker: int) -> None:
        """Note a worker where something changed."""
        self.touched[worker] = min(now, self.touched.get(worker, now))

    def waited(self, now: int, action: Action) -> int:
        """Return how long what an action is about has waited for a decision: its requests, else its worker."""
        known = [self.since[request] for request in requests_of(action) if request in self.since]
        return now - (min(known) if known else self.touched.get(getattr(action, "worker", -1), now))

    def settle(self, now: int, action: Action) -> None:
        """Note that an action was committed: whatever else is decided about its requests waits from now on."""
        for request in requests_of(action):
            if request in self.since:
                self.since[request] = now

    def take_over(self, now: int, state: "ServingState", rest: "News", requests: Iterable[int]) -> None:
        """Take over the news of a decision that was broken off, and some requests whose action was refused.

        Requests are shown as displaced: they are to be decided again, and did not arrive again.
        """
        about = dict.fromkeys((*requests, *rest.landed, *rest.displaced, *(request for request, _ in rest.ended)))
        for request in self.landed:
            about.pop(request, None)
        for request in about:
            if (rs := state.requests.get(request)) is not None and rs.unplaced(rs.worker):
                self.displace(rest.since.get(request, now), request)
        for worker, since in rest.touched.items():
            self.touch(since, worker)


def requests_of(action: Action) -> Iterable[int]:
    """Return the requests that an action is about."""
    if isinstance(action, RunBatch):
        return [request for request, _ in action.tasks]
    return (action.request,) if hasattr(action, "request") else ()


class View:
    """The state as it is, with the news of one controller as what is new.

    What it does not have itself is the state's own. A policy takes it for the state.
    """

    delayed = True
    """Actions are committed later than they are decided."""

    def __init__(self, state: "ServingState", news: News, deciding: list[WorkerState]) -> None:
        self._state = state
        self.news = news
        requests = state.requests
        self.landed = [request for request in news.landed if request in requests]
        self.ended = news.ended
        self.displaced = list(news.displaced)
        self.touched = news.touched
        self.deciding = deciding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)
