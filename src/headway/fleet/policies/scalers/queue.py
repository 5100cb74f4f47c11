"""queue: a worker for each few tasks that wait or run, as autoscalers of message queues do (KEDA, Knative).

The fleet shrinks to the highest number wanted within ``window``.
"""

from dataclasses import dataclass, field
from math import ceil

from headway.fleet.policies.scalers.kinds import Kinds
from headway.fleet.policies.scalers.parts import Scaler, Seen, Stabilised, Wanted
from headway.fleet.state.state import ServingState
from headway.units import SECOND, Duration


@dataclass(eq=False)
class Queue(Scaler):
    """Rents a worker for each few open tasks."""

    name = "queue"

    tasks: float = 2.0
    """Tasks that wait or run, for each worker."""
    window: Duration = field(default=Duration(300 * SECOND), kw_only=True)

    def __post_init__(self) -> None:
        """Raise for an option that makes no sense."""
        super().__post_init__()
        self.check("tasks", self.tasks, 0.01)
        self.check("window", self.window, 0)

    def bind(self, state: ServingState, kinds: Kinds) -> None:
        """Begin with an empty window."""
        super().bind(state, kinds)
        self._stabilised = Stabilised(self.window)

    def scale(self, now: int, state: ServingState, seen: Seen) -> Wanted:
        """Return a worker for each ``tasks``, or a higher number that was wanted within the window."""
        wanted = self.kinds.spread(ceil(seen.open_tasks / self.tasks))
        return self.kinds.spread(self._stabilised.highest(now, sum(wanted)))
