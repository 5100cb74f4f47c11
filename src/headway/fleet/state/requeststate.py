"""State of one request: the stage of each task, and the workers that hold its results."""

from collections.abc import Sequence
from enum import IntEnum

from headway.fleet.model.actions import NOWHERE
from headway.fleet.model.graph import Graph
from headway.fleet.model.request import Request


class Stage(IntEnum):
    """How far a task is."""

    WAITING = 0
    """For predecessors; it may be placed already."""
    READY = 1
    """Its predecessors are done, and it is placed nowhere."""
    SENT = 2
    """Its predecessors are done, its inputs under way to where it was placed."""
    QUEUED = 3
    RUNNING = 4
    DONE = 5


WAITING, READY, SENT, QUEUED, RUNNING, DONE = Stage
"""The members as globals, for speed: up to Python 3.11 looking one up on the enumeration takes ten times as long."""


class RequestState:
    """One request as it is now."""

    __slots__ = ("coming", "copies", "due", "graph", "left", "moves", "request", "since", "stage", "waits", "worker")

    def __init__(self, request: Request, graph: Graph) -> None:
        tasks = len(graph.tasks)
        self.request = request
        self.graph = graph
        self.left = tasks
        """Tasks that are not done."""
        self.stage: list[Stage] = [WAITING] * tasks
        self.waits = list(graph.waits)
        """Predecessors that are not done, by task."""
        self.worker = [NOWHERE] * tasks
        """Where each task is placed or ran."""
        self.copies = [0] * tasks
        """The workers that hold a task's result, or to which it is on its way, as bits."""
        self.coming: dict[tuple[int, int], int] = {}
        """(task, worker): when the task's result arrives at that worker."""
        self.due = [0] * tasks
        """By task: when the inputs that were sent so far arrive at its worker."""
        self.since = [request.arrival] * tasks
        """When a task became ready."""
        self.moves = [0] * tasks
        """By task: how often it was placed."""

    def unplaced(self, plan: Sequence[int]) -> bool:
        """Return whether a plan (a worker for each task) has none for a task that must still run."""
        return NOWHERE in plan and any(w == NOWHERE and s < RUNNING for w, s in zip(plan, self.stage, strict=True))
