"""Jobs to which the same limits apply, and which would add the same to each: what holds one back holds all."""

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from headway.jobs.rules.limits.counters import Ageing, Counter, Nodes, Submitted

if TYPE_CHECKING:
    from headway.jobs.rules.limits.engine import Limits


class LimitClass:
    """Jobs to which the same limits apply with the same amounts."""

    __slots__ = (
        "ages",
        "alive",
        "also",
        "book",
        "bounds",
        "held_by",
        "names",
        "nodes",
        "number",
        "submitted",
        "weights",
    )

    def __init__(
        self,
        book: "Limits",
        number: int,
        bounds: tuple[tuple[Counter, int], ...],
        weights: tuple[int, ...],
        also: tuple[tuple[Counter, int, int], ...] = (),
        ages: tuple[tuple[Ageing, bool], ...] = (),
    ) -> None:
        self.book = book
        self.number = number
        self.bounds = bounds
        """Counters, and what has to be free under each for a job to start."""
        self.also = also
        """Counters of rules that another of their slot sets aside: its jobs count there, with what and how much in each
        nanosecond, and are not held back for it."""
        self.weights = weights
        """What a running job holds of each, or adds in each nanosecond."""
        self.held_by: Counter | None = None
        """The limit that holds back those that wait; None where none does."""
        self.names: dict[Hashable, int] = {}
        """Lanes in which jobs of the class wait, and how many in each."""
        self.submitted = tuple(counter for counter, _ in bounds if isinstance(counter, Submitted))
        self.alive = (*self.submitted, *(counter for counter, _, _ in also if isinstance(counter, Submitted)))
        """Counters of jobs in the system: those that bind, and those in which its jobs only count."""
        self.nodes = tuple(
            counter
            for counter in (*(each for each, _ in bounds), *(each for each, _, _ in also))
            if type(counter) is Nodes
        )
        """Counters of nodes, both kinds."""
        self.ages = ages
        """Counters of jobs whose age counts, and whether each of them binds."""

    def __repr__(self) -> str:
        held = [(str(counter.rule), counter.of, counter.held, amount) for counter, amount in self.bounds]
        return f"LimitClass({self.number}, {held}, held_by={self.held_by and str(self.held_by.rule)})"

    def refusing(self, now: int) -> Counter | None:
        """Return the first limit that would be exceeded if one of its jobs started now."""
        for counter, amount in self.bounds:
            if counter.level(now) + amount > counter.most:
                return counter
        return None

    def amount(self, counter: Counter) -> int:
        """Return what one of its jobs would add to a counter."""
        return next(amount for each, amount in self.bounds if each is counter)

    def adding(self) -> Iterator[tuple[Counter, int]]:
        """Yield all counters in which its jobs count, whether or not they bind, and what one of them adds to each."""
        yield from self.bounds
        yield from ((counter, amount) for counter, amount, _ in self.also)

    def counted(self) -> Iterator[tuple[Counter, int, bool]]:
        """Yield all counters in which its jobs count, what one of them holds of each, and whether it binds them."""
        yield from ((counter, held, True) for (counter, _), held in zip(self.bounds, self.weights, strict=True))
        yield from ((counter, held, False) for counter, _, held in self.also)
