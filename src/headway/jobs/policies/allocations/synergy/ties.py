"""A mix-in for the orders of ``drf`` and ``tetris``, which replace the policy's order: that one only breaks ties."""

from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState


class Tied(Order):
    """A mix-in that comes before an order's class. It passes all notifications on to the order that breaks ties."""

    def __init__(self, ties: Order) -> None:
        """``ties``: the order that breaks ties."""
        super().__init__()
        self.ties = ties
        self.refresh = ties.refresh

    @property
    def watches_ends(self) -> bool:  # type: ignore[override]
        """As the order that breaks ties does."""
        return self.ties.watches_ends

    @property
    def key_moves_with_time(self) -> bool:  # type: ignore[override]
        """As the key of the order that breaks ties does."""
        return self.ties.key_moves_with_time

    @property
    def remembers(self) -> bool:  # type: ignore[override]
        """As the order that breaks ties does."""
        return self.ties.remembers

    def bind(self, state: TrainingState) -> None:
        """Bind both orders."""
        super().bind(state)
        self.ties.bind(state)

    def rekeys(self) -> bool:
        """Return whether the order that breaks ties computes keys anew."""
        return self.ties.rekeys()

    def key_due(self, now: int, since: int) -> bool:
        """Return whether the order that breaks ties wants its keys computed now."""
        return self.ties.key_due(now, since)

    def ended(self, now: int, js: JobState) -> None:
        """Tell the order that breaks ties that a job has ended."""
        self.ties.ended(now, js)
