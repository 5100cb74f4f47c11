"""What Slurm says of all jobs, as of the last look; looks are rare, and shared by all who need them."""

from collections.abc import Callable, Iterable
from time import monotonic

from headway.errors import SlurmAwayError, SlurmError
from headway.jobs.slurm.live.client import SlurmClient
from headway.jobs.slurm.live.rows import JobRow
from headway.jobs.slurm.live.tag import Tag, tag_of

LOOK_S = 1.0
"""Between two looks at Slurm's queue."""
AGAIN_S = 3.0
"""And after one that failed."""


class Board:
    """Jobs of a Slurm as of the last look, and those of one queue among them by their numbers."""

    def __init__(
        self,
        client: SlurmClient,
        queue: str,
        look_s: float = LOOK_S,
        is_of: Callable[[int, str], bool] = lambda job, user: True,
    ) -> None:
        """``is_of``: whether a job of the queue is of a user; whoever writes its tag into another one is not heard."""
        self.client, self.queue, self._look_s, self._is_of = client, queue, look_s, is_of
        self.rows: list[JobRow] = []
        self.taken_s = 0.0
        """When it was looked, by the monotonic clock; 0: never."""
        self.away = ""
        """Why Slurm could not be asked the last time; empty: it could."""
        self._next_s = 0.0
        self._own: dict[int, tuple[JobRow, Tag]] = {}
        self.doubled: list[JobRow] = []
        """Jobs that are there twice: a controller forgot one, and remembers it since."""
        self._by_number: dict[int, JobRow] = {}
        self._changed: dict[int, float] = {}
        """By job of the queue: when it was last changed."""

    def look(self, *, now: bool = False) -> bool:
        """Look, if it is time or ``now``; return whether this was a new look that succeeded."""
        if not now and monotonic() < self._next_s:
            return False
        began = monotonic()
        try:
            self._enter(self.client.jobs())
        except SlurmError as problem:
            self.away, self._next_s = str(problem), monotonic() + AGAIN_S
            return False
        self.away, self.taken_s = "", began
        self._next_s = monotonic() + self._look_s
        return True

    def _enter(self, rows: Iterable[JobRow]) -> None:
        self.rows = list(rows)
        self._by_number = {row.id: row for row in self.rows}
        self._own, self.doubled = {}, []
        for row in sorted(self.rows, key=lambda row: (not row.ended, row.runs, row.id)):  # the last one counts
            tag = tag_of(row.comment)
            if tag is not None and tag.queue == self.queue and self._is_of(tag.job, row.user):
                if tag.job in self._own:
                    self.doubled.append(self._own[tag.job][0])
                self._own[tag.job] = (row, tag)

    def changed(self, job: int) -> None:
        """Note that a job was just changed: what was seen of it before does not hold."""
        self._changed[job] = monotonic()

    def fresh(self, job: int) -> bool:
        """Return whether the last look was after the last change of a job."""
        return self.taken_s > self._changed.get(job, 0.0)

    def current(self, job: int) -> tuple[JobRow, Tag] | None:
        """Return a job of the queue as it is after its last change; SlurmAwayError where Slurm cannot be asked."""
        if not self.fresh(job) and not self.look(now=True):
            raise SlurmAwayError(self.away)
        return self._own.get(job)

    def of(self, job: int) -> tuple[JobRow, Tag] | None:
        """Return a job of the queue as of the last look; None where Slurm has none."""
        return self._own.get(job)

    def own(self) -> dict[int, tuple[JobRow, Tag]]:
        """Return all jobs of the queue."""
        return self._own

    def numbered(self, number: int) -> JobRow | None:
        """Return a job by Slurm's number."""
        return self._by_number.get(number)

    def others(self) -> list[JobRow]:
        """Return the jobs that are not the queue's."""
        mine = {row.id for row in (*self.doubled, *(row for row, _ in self._own.values()))}
        return [row for row in self.rows if row.id not in mine]
