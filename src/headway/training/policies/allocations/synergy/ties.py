"""The order of an allocation that has its own idea of who comes next: the policy's order only breaks its ties."""

from headway.training.jobstate import JobState
from headway.training.policies.parts import Order
from headway.training.state import TrainingState


class Tied(Order):
    """To be mixed into an order, before it. The policy's order is told all that it has to know."""

    def __init__(self, ties: Order) -> None:
        """``ties``: the order that breaks them."""
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
        """Both are told."""
        super().bind(state)
        self.ties.bind(state)

    def rekeys(self) -> bool:
        """Return where the order that breaks ties wants it."""
        return self.ties.rekeys()

    def key_due(self, now: int, since: int) -> bool:
        """Return when the order that breaks ties wants it."""
        return self.ties.key_due(now, since)

    def ended(self, now: int, js: JobState) -> None:
        """A job left for good."""
        self.ties.ended(now, js)
