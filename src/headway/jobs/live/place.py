"""Folder of a queue: its lock, its socket, its store, its log, and what programs print.

It is ``$XDG_STATE_HOME/headway/queue``, or ``~/.local/state/headway/queue`` where that is not set, and no other user
can look into it. The lock is held by ``flock``, which the kernel releases when the queue dies; everything else outlives
the queue.
"""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from headway.device import locks as places
from headway.door import own_folder
from headway.errors import QueueError

STORE_NAME = "queue.sqlite"


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one queue."""

    folder: Path

    @property
    def how_to_start(self) -> str:
        """Return what a user writes to have a queue here."""
        return f"headway queue start{self.flag} starts one"

    @property
    def flag(self) -> str:
        """Return the flag that names this queue to a command, after a space; nothing for the one of this user."""
        return "" if self.folder == place_of("").folder else f" --folder {self.folder}"

    @property
    def lock(self) -> Path:
        """Return the lock that the queue holds as long as it runs."""
        return self.folder / "lock"

    @property
    def socket(self) -> Path:
        """Return the socket of its clients."""
        return self.folder / "socket"

    @property
    def store(self) -> Path:
        """Return the store of all that happened."""
        return self.folder / STORE_NAME

    @property
    def log(self) -> Path:
        """Return the log of its decisions."""
        return self.folder / "queue.log"

    def run(self, number: int) -> Path:
        """Return the folder of one run: leases, and what jobs printed."""
        return self.folder / "runs" / f"{number:04d}"

    @property
    def runs(self) -> bool:
        """Return whether a queue holds the folder."""
        return places.held(self.lock)

    @property
    def pid(self) -> int:
        """Return the process of the queue that holds the folder; 0 where none does."""
        return places.holder(self.lock) if self.runs else 0

    def held(self) -> AbstractContextManager[None]:
        """Make the folder and hold its lock; QueueError where another queue does, or others can write to it."""
        taken = f"{self.folder}: a queue runs there already (process {{pid}}): headway queue stop ends it"
        return own_folder.held(self.lock, taken, QueueError)


def place_of(folder: str = "") -> Place:
    """Return the place of a queue: the one of this user, or one in another folder."""
    if "\0" in folder:
        raise QueueError("--folder: a path has no zero bytes")
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return Place(Path(folder).expanduser().absolute() if folder else state / "headway" / "queue")
