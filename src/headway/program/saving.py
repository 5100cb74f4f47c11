"""Checkpoints of a training loop: when one is written, what is in it, and how the loop goes on from the last one.

The order of samples is that of an undisturbed run. The random states at the start of the epoch and those of the
checkpoint are kept: the epoch is begun with the first, batches that were done are read and dropped, and the second hold
from there on.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from headway.errors import CheckpointError
from headway.program import randomness
from headway.program.checkpoints import PROCESS, STATE, Folder, Meta, Moment
from headway.program.progress import Position
from headway.program.protocol import CHECKPOINTS, SAVED, SAVED_FILE
from headway.program.ranks import NOTHING, SAVE, STOP, ranks
from headway.program.signals import Asked, spared_workers
from headway.units import parse_duration

Batch = TypeVar("Batch")

_DEFAULT_FOLDER = "checkpoints"


@dataclass(frozen=True)
class Plan:
    """What a program wants of its checkpoints."""

    save: Callable[[Path], object]
    load: Callable[[Path], object]
    every_steps: int | None = None
    every: int | None = None
    """In nanoseconds."""
    folder: str | Path | None = None
    name: str | None = None

    @property
    def place(self) -> Path:
        """Return the folder of its checkpoints."""
        return Path(self.folder or os.environ.get(CHECKPOINTS, "") or _DEFAULT_FOLDER)

    @property
    def program(self) -> str:
        """Return what tells this program from others: its name, or its script and arguments."""
        if self.name is not None:
            return self.name
        script = os.path.abspath(sys.argv[0]) if sys.argv and os.path.exists(sys.argv[0]) else "".join(sys.argv[:1])
        return " ".join((script, *sys.argv[1:]))


class Saving(Generic[Batch]):
    """Keeps the checkpoints of one loop; to be entered around it."""

    def __init__(self, plan: Plan, batches: Iterable[Batch], position: Position) -> None:
        self._plan, self._batches, self._position = plan, batches, position
        self._folder = Folder(plan.place)
        self._ranks = ranks()
        self._asked = Asked()
        self._stack = ExitStack()
        self._epoch_states: randomness.States = {}
        self._resumed: Moment | None = None
        self._number = 0
        self._saved_step = -1
        self._saved_at = 0

    @property
    def rank(self) -> int:
        """Return the rank of this process."""
        return self._ranks.rank

    def __enter__(self) -> "Saving[Batch]":
        with ExitStack() as stack:
            stack.callback(self._folder.close)
            stack.enter_context(self._asked)
            stack.enter_context(spared_workers(self._batches))
            self._begin()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- beginning --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Take the position of the last checkpoint, and let the program load its state."""
        if getattr(self._batches, "persistent_workers", False):
            raise CheckpointError(
                "persistent_workers=True: their random states cannot be kept: leave it out of a loader with checkpoints"
            )
        self._ranks.all_do(self._open)
        lengths = self._ranks.gathered(self._position.length)
        if len(set(lengths)) > 1:
            raise CheckpointError(f"ranks have {lengths} batches: give all the same number, as DistributedSampler does")
        self._number = self._ranks.told(self._folder.last() if self.rank == 0 else 0)
        if self._number:
            self._ranks.all_do(self._resume)
        self._saved_at = time.monotonic_ns()

    def _open(self) -> None:
        if self.rank == 0:
            self._folder.open()
            if path := os.environ.get(SAVED_FILE):
                Path(path).unlink(missing_ok=True)

    def _resume(self) -> None:
        meta = self._folder.meta(self._number)
        self._check(meta)
        length = self._position.length
        self._resumed = self._folder.moment(self._number, self.rank)
        self._plan.load(self._folder.of(self._number) / STATE)
        vars(self._position).update(vars(meta.position))
        if length is not None:
            self._position.length = length
        self._saved_step = self._position.step

    def _check(self, meta: Meta) -> None:
        """Refuse a checkpoint that this loop cannot go on from."""
        place, program, length = self._folder.of(self._number), self._plan.program, self._position.length
        if meta.process == PROCESS:
            raise CheckpointError(
                f"{place} was written by a loop of this process: give all epochs to one call, "
                "headway.steps(loader, epochs=3, …), and a second loop another folder="
            )
        if meta.program != program:
            raise CheckpointError(
                f"{place} is of another program ({meta.program!r}, this is {program!r}): give another folder=, "
                "the same name= to both if it is meant, or remove it"
            )
        if meta.ranks != self._ranks.count:
            raise CheckpointError(
                f"{place} was written by {meta.ranks} ranks, these are {self._ranks.count}: start as many as before"
            )
        if length is not None and meta.position.length not in (None, length):
            raise CheckpointError(
                f"{place} was written with {meta.position.length} batches an epoch, now there are {length}: "
                "use the same data and batch size, or another folder="
            )

    # --- within the loop --------------------------------------------------------------------------------------

    def epoch(self) -> Iterator[Batch]:
        """Return the rest of the epoch, in the order of an undisturbed run."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            randomness.restore(resumed.epoch, self._batches)
        self._epoch_states = randomness.captured(self._batches) if resumed is None else resumed.epoch
        rest = iter(self._batches)
        if resumed is not None:
            self._skip(rest)
            randomness.restore(resumed.now, self._batches)
        if self._ranks.agreed_now(STOP if self._asked.asked else NOTHING) == STOP:
            self._leave()
        return rest

    def _skip(self, rest: Iterator[Batch]) -> None:
        """Read the batches that were done before, and drop them."""
        for done in range(self._position.batch):
            if self._asked.asked and self._ranks.count == 1:
                self._leave()
            try:
                next(rest)
            except StopIteration:
                raise CheckpointError(
                    f"{self._folder.of(self._number)}: {self._position.batch} batches of its epoch were done, "
                    f"now there are {done}: use the same data and batch size, or another folder="
                ) from None

    def after_step(self) -> None:
        """Write a checkpoint if it is time, and end the program if it was asked to."""
        wish = STOP if self._asked.asked else SAVE if self.rank == 0 and self._is_time() else NOTHING
        wish = self._ranks.agreed(wish)
        if wish == STOP:
            self._leave()
        if wish == SAVE or self._is_step():
            self.save()

    def _is_time(self) -> bool:
        return self._plan.every is not None and time.monotonic_ns() - self._saved_at >= self._plan.every

    def _is_step(self) -> bool:
        every = self._plan.every_steps
        return every is not None and self._position.step - max(0, self._saved_step) >= every

    def end(self) -> None:
        """Write the checkpoint of a loop that is done, so that what comes after it can fail."""
        self._ranks.close()
        self._epoch_states = randomness.captured(self._batches)
        self.save()

    def _leave(self) -> NoReturn:
        """End the program: everything is saved."""
        if self._saved_step != self._position.step:
            self.save()
        self._ranks.all_do(self._mark)
        self._asked.stays = True
        raise SystemExit(SAVED)

    def _mark(self) -> None:
        if self.rank == 0 and (path := os.environ.get(SAVED_FILE)):
            try:
                Path(path).touch()
            except OSError as problem:
                warnings.warn(
                    f"{SAVED_FILE}={path} cannot be written: {problem.strerror}", RuntimeWarning, stacklevel=2
                )

    # --- writing ----------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint, on all ranks."""
        number = self._number + 1
        try:
            self._ranks.all_do(lambda: self._on_first(self._folder.begin, number))
            self._ranks.all_do(lambda: self._write(number))
            self._ranks.all_do(lambda: self._on_first(self._folder.publish, number))
        except BaseException:
            with suppress(OSError):
                self._on_first(self._folder.discard, number)
            raise
        self._number, self._saved_step, self._saved_at = number, self._position.step, time.monotonic_ns()

    def _on_first(self, work: Callable[[int], Any], number: int) -> None:
        if self.rank == 0:
            work(number)

    def _write(self, number: int) -> None:
        moment = Moment(self._epoch_states, randomness.captured(self._batches))
        self._folder.write_moment(number, self.rank, moment)
        if self.rank == 0:
            meta = Meta(self._position, self._plan.program, self._ranks.count, PROCESS)
            self._folder.write_state(number, meta, self._plan.save)


def every_of(every: object) -> tuple[int | None, int | None]:
    """Return an interval between checkpoints as steps and as time, of which one at most is known."""
    if every is None:
        return None, None
    if isinstance(every, str):
        time_ns = parse_duration(every, what="every=")
        if time_ns > 0:
            return None, time_ns
    elif isinstance(every, int) and not isinstance(every, bool) and every > 0:
        return every, None
    raise CheckpointError(f"every={every!r}: a number of steps from 1, or a time like '10m'; None for no interval")
