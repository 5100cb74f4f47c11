"""Two headways never drive one Slurm: a held job that never runs says who does, on whichever machine that is.

Slurm numbers jobs, so the one with the lowest number holds the lock. Its comment says when its queue was last there:
one that has been away for long is none. Every queue looks at it before it acts.
"""

import os
import socket
import time
from collections.abc import Sequence

from headway.errors import QueueError, SlurmError
from headway.jobs.slurm.live.client import SlurmClient
from headway.jobs.slurm.live.rows import JobRow
from headway.jobs.slurm.live.tag import LOCK, LockTag, lock_of

BEAT_S = 15.0
AWAY_S = 90.0
"""A lock whose queue has not been seen for so long is nobody's."""
_SCRIPT = "#!/bin/sh\n# Never released: it says that headway drives jobs of this Slurm.\n"


class SlurmLock:
    """The lock of one queue."""

    def __init__(self, client: SlurmClient, queue: str) -> None:
        self._client, self._queue = client, queue
        self._where = f"{socket.gethostname().replace(':', '_')[:60]} process {os.getpid()}"
        self._number = 0
        self._beat_s = 0.0

    def take(self) -> None:
        """Take it; QueueError where another queue has it."""
        self._refuse_if_taken(self._client.jobs())
        self._number = self._client.submit(
            ["--hold", f"--job-name={LOCK}", f"--comment={self._tag()}", "--output=/dev/null", "--time=1"], _SCRIPT
        )
        try:
            self.keep(self._client.jobs())
        except QueueError:
            self.release()
            raise

    def _tag(self) -> LockTag:
        self._beat_s = time.monotonic()
        return LockTag(self._queue, self._where, int(time.time()))

    def _refuse_if_taken(self, rows: Sequence[JobRow]) -> None:
        """Raise QueueError where another queue is there; remove what is left of those that are not."""
        now = time.time()
        for row in rows:
            tag = lock_of(row.comment)
            if tag is None or not row.waits or row.id == self._number:
                continue
            if tag.queue != self._queue and now - tag.beat_s < AWAY_S and (not self._number or row.id < self._number):
                raise QueueError(
                    f"another headway drives jobs of this Slurm: {row.user} on {tag.where}; stop that one, or if it is "
                    f"not there any more: scancel {row.id}"
                )
            if tag.queue == self._queue or now - tag.beat_s >= AWAY_S:
                self._drop(row.id)

    def keep(self, rows: Sequence[JobRow]) -> None:
        """Say that this queue is there; QueueError where another one has the lock."""
        self._refuse_if_taken(rows)
        if not any(row.id == self._number and row.waits for row in rows):
            if self._beat_s and time.monotonic() - self._beat_s < 2:
                return  # it was just submitted
            self._number = 0
            return self.take()
        if time.monotonic() - self._beat_s > BEAT_S:
            self._client.update(self._number, {"Comment": str(self._tag())})
        return None

    def release(self) -> None:
        """Give it up."""
        if self._number:
            self._drop(self._number)
            self._number = 0

    def _drop(self, number: int) -> None:
        try:
            self._client.cancel(number)
        except SlurmError:
            return  # it is another user's, and counts no more anyway
