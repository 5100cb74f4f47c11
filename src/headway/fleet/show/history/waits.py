"""Split the wait of a task that was ready: in queues, for a decision of a controller, for inputs on their way.

A decision has a row with its beginning, its end, and how long what it is about had waited before. A wait that ends when
a decision ends was, for as long as that, a wait for the decision. Where a controller went on to it straight from
another one, without having been told anything new, that one was in the way too.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headway.core.tape import Tape, TapeRow
from headway.fleet.model.rows import Kind
from headway.fleet.show.history.attempts import Attempt
from headway.fleet.state.state import CENTRAL


class Decision(NamedTuple):
    """A decision of a controller that took time."""

    desk: int
    """The worker whose controller it is; -1: the one of the whole fleet."""
    begin: int
    until: int
    waited: int
    """How long what it is about had waited before."""


class Wait(NamedTuple):
    """A stretch in which a task that was ready waited."""

    what: str
    """wait, controller or transfer."""
    worker: int
    """Where; -1: none was chosen yet."""
    since: int
    until: int


class Decisions:
    """All decisions of a run that took time."""

    def __init__(self, tape: Tape) -> None:
        rows = (TapeRow(*values) for values in tape.of(Kind.DECIDE).tolist())
        self.made = [Decision(row.place, row.time, row.value, row.detail) for row in rows]
        self._by_end: dict[int, list[Decision]] = {}
        for decision in self.made:
            self._by_end.setdefault(decision.until, []).append(decision)

    def waits(self, attempt: Attempt, end: int, ingress: int) -> Iterator[Wait]:
        """Yield what a task waited for, until a batch took it up or until ``end``; without a gap.

        ``ingress``: the worker that its request reached, whose controller places it where each worker has one.
        """
        now, run = attempt.ready, attempt.batch_run
        begin, chosen = (run.begin, run.worker) if run is not None and run.begin <= end else (end, -1)
        queues = [queue for queue in attempt.queues if queue[1] <= begin]
        if attempt.placed < 0 and not queues:  # it is never placed, but taken by a batch as it is
            yield from self._waited(chosen, now, begin, chosen)
            return
        placed = min(max(now, attempt.placed), begin, *(since for _, since, _ in queues[:1]))
        yield from self._waited(chosen, now, placed, ingress)
        now = placed
        for worker, since, until in queues:
            if since > now:
                yield Wait("transfer", worker, now, since)
            now = min(until, begin) if until >= 0 else begin
            yield from self._waited(worker, max(since, attempt.ready), now, worker)
        if begin > now:
            yield Wait("transfer", chosen, now, begin)

    def _waited(self, worker: int, since: int, until: int, desk: int) -> Iterator[Wait]:
        """Yield a wait in two: before it was up to a controller, and for the decision that ended it."""
        split = min(until, max(since, self._asked_at(until, desk)))
        if split > since:
            yield Wait("wait", worker, since, split)
        if until > split:
            yield Wait("controller", worker, split, until)

    def _asked_at(self, until: int, desk: int) -> int:
        """Return since when a decision that ended at a time had been waited for; that time where none ended."""
        ended = self._by_end.get(until, ())
        made = next((each for each in ended if each.desk in (desk, CENTRAL)), ended[0] if ended else None)
        if made is None:
            return until
        if made.waited:
            return made.begin - made.waited
        before = (each for each in self._by_end.get(made.begin, ()) if each.desk == made.desk)
        return next((each.begin for each in before), made.begin)
