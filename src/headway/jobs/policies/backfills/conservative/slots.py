"""The reservations that are made: by job, and by the time at which they begin."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from headway.jobs.policies.backfills.conservative.last_plan import Slot


class Slots:
    """Reservations that are made."""

    __slots__ = ("by_job", "left", "starts")

    def __init__(self) -> None:
        self.by_job: dict[int, Slot] = {}
        self.starts: list[tuple[int, int]] = []
        """(start, job), as a heap; of reservations that are no longer, too."""
        self.left: dict[int, int] = {}
        """How long jobs would have held something whose reservations were put off, and which started before: they take
        room and are not to start."""

    def add(self, slot: Slot) -> None:
        """Add a reservation."""
        job = slot.js.id
        if job not in self.left:
            self.by_job[job] = slot
            heappush(self.starts, (slot.start, job))

    def drop(self, jobs: Iterable[int]) -> None:
        """Forget the reservations of these jobs."""
        by_job = self.by_job
        for job in jobs:
            by_job.pop(job, None)

    def begin(self, now: int) -> set[int]:
        """Return jobs whose time has come; each is returned once."""
        jobs: set[int] = set()
        starts, by_job = self.starts, self.by_job
        while starts and starts[0][0] <= now:
            time, job = heappop(starts)
            if job in by_job and by_job[job].start == time:
                jobs.add(job)
        return jobs

    def again(self, slot: Slot) -> None:
        """Return a reservation with the next ones that have begun, too."""
        heappush(self.starts, (slot.start, slot.js.id))

    def tidy(self, most: int) -> None:
        """Forget the starts of reservations that are no longer, where there are more than so many."""
        if len(self.starts) > most:
            self.starts = [(slot.start, job) for job, slot in self.by_job.items()]
            heapify(self.starts)
