"""Progress of a program: a number from 0 to 1 in the file that a queue names, by which it knows what is still to do."""

import os
import time
import warnings

from headway.program.protocol import PROGRESS

_EVERY = 250_000_000


class Position:
    """How far a program is. No dataclass: their import would be half of that of ``headway.steps``."""

    def __init__(self, epoch: int = 0, batch: int = 0, step: int = 0, length: int | None = None) -> None:
        """``batch``: done in the epoch; ``step``: done in all; ``length``: batches of an epoch, if known."""
        self.epoch, self.batch, self.step, self.length = epoch, batch, step, length


class Progress:
    """Writes the share that is done, whole and no more often than four times a second; nothing where nobody asks."""

    def __init__(self, *, wanted: bool) -> None:
        self._path = os.environ.get(PROGRESS, "") if wanted else ""
        self._told_at = -_EVERY

    def tell(self, done: int, of: int | None) -> None:
        """Say that so many of all steps are done; 1 is always told."""
        if not self._path or not of:
            return
        now = time.monotonic_ns()
        if now - self._told_at < _EVERY and done < of:
            return
        self._told_at = now
        draft = f"{self._path}.part"
        try:
            with open(draft, "w") as file:
                file.write(repr(min(1.0, done / of)))
            os.replace(draft, self._path)
        except OSError as problem:  # what is not known must not end the program
            path, self._path = self._path, ""
            warnings.warn(f"{PROGRESS}={path}: progress is not told: {problem.strerror}", RuntimeWarning, stacklevel=3)
