"""Say from the tape when each worker was there: off, starting, on, draining or failed, for every moment of a run."""

from collections.abc import Iterator
from typing import NamedTuple

from headway.core.tape import Tape, TapeRow
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.rows import Kind

OFF, STARTING, ON, DRAINING, FAILED = "off", "starting", "on", "draining", "failed"
_AFTER: dict[int, str] = {
    Kind.START_WORKER: STARTING,
    Kind.WORKER_STARTED: ON,
    Kind.DRAIN_WORKER: DRAINING,
    Kind.STOP_WORKER: OFF,
    Kind.WORKER_FAILED: FAILED,
    Kind.WORKER_RECOVERED: ON,
}
"""What a worker is after a row of each kind."""


class Stretch(NamedTuple):
    """A worker that was the same for a while."""

    worker: int
    what: str
    since: int
    until: int


class Presence:
    """All stretches of all workers; those of one worker follow on each other without a gap."""

    def __init__(self, fleet: Fleet, tape: Tape) -> None:
        self.horizon = int(tape.column("time")[-1]) if len(tape) else 0
        self.stretches: list[list[Stretch]] = [[] for _ in fleet.workers]
        """By worker."""
        now = [(OFF if worker in fleet.off else ON, 0) for worker in range(len(fleet.workers))]
        for values in tape.of(*_AFTER).tolist():
            row = TapeRow(*values)
            after = ON if row.kind == Kind.START_WORKER and not row.lease else _AFTER[row.kind]  # it drained
            what, since = now[row.place]
            if row.time > since:
                self.stretches[row.place].append(Stretch(row.place, what, since, row.time))
            now[row.place] = after, row.time
        for worker, (what, since) in enumerate(now):  # the last one may have no length: it began with the last row
            self.stretches[worker].append(Stretch(worker, what, since, self.horizon))

    def of(self, *kinds: str) -> Iterator[Stretch]:
        """Yield the stretches of some kinds, worker by worker."""
        for stretches in self.stretches:
            yield from (each for each in stretches if each.what in kinds)

    @property
    def changes(self) -> bool:
        """Return whether any worker was ever off."""
        return any(True for _ in self.of(OFF))

    def rented(self) -> Iterator[tuple[list[Stretch], bool]]:
        """Yield the stretches of each rent, and whether it ended before the tape did; worker by worker."""
        for stretches in self.stretches:
            rent: list[Stretch] = []
            for each in stretches:
                if each.what != OFF:
                    rent.append(each)
                elif rent:
                    yield rent, True
                    rent = []
            if rent:
                yield rent, False
