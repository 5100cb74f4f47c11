"""A draft: tries out releases and starts of jobs on the pool, and undoes them at the end.

The pool itself is changed and every change is logged. Leaving the ``with`` block undoes them in reverse order, which is
exact because ``take`` and ``give`` are inverses.
"""

from types import TracebackType

from headway.jobs.model.resources import Placement
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Pool


class Draft:
    """Changes to a pool, and to what counts against limits, with an undo log."""

    __slots__ = ("_log", "pool")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._log: list[tuple[bool, JobState, Placement]] = []

    def release(self, js: JobState, placement: Placement | None = None) -> None:
        """Release the GPUs of a running job, or of one started in this draft on ``placement``."""
        where = js.placement if placement is None else placement
        self._give(js, where)
        self._log.append((False, js, where))

    def start(self, js: JobState, placement: Placement) -> None:
        """Take the GPUs of a placement for a job."""
        self._take(js, placement)
        self._log.append((True, js, placement))

    def _take(self, js: JobState, placement: Placement) -> None:
        self.pool.take(js, placement)
        js.account.held += js.width
        if js.limits is not None:
            js.limits.book.plan(js, placement, +1)

    def _give(self, js: JobState, placement: Placement) -> None:
        self.pool.give(js, placement)
        js.account.held -= js.width
        if js.limits is not None:
            js.limits.book.plan(js, placement, -1)

    def undo(self) -> None:
        """Undo all changes."""
        while self._log:
            started, js, placement = self._log.pop()
            if started:
                self._give(js, placement)
            else:
                self._take(js, placement)

    def __enter__(self) -> "Draft":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()
