"""Steps of a training program: recorded for a profiler, told to a queue as progress, kept as checkpoints.

The record is in the file that a profiler names; without one there is none. It is 16 bytes, little-endian: the monotonic
clock in nanoseconds and the samples of the step. It is appended with one write, so that several processes may share the
file and a killed program leaves whole records.
"""

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from struct import Struct
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from headway.errors import CheckpointError
from headway.program.progress import Position, Progress

if TYPE_CHECKING:
    from pathlib import Path

    from headway.program.saving import Plan, Saving

Batch = TypeVar("Batch")

VARIABLE = "HEADWAY_STEPS"
RECORD = Struct("<qq")

_MOST = 2**63 - 1
_UNOPENED, _OFF = -1, -2
_file = _UNOPENED


def step(samples: float = 1) -> None:
    """Record that a training step over so many samples is done; without a profiler this does nothing."""
    if _file != _OFF:
        _record(samples)


def _record(samples: float) -> None:
    global _file
    if _file == _UNOPENED:
        _file = _opened(os.environ.get(VARIABLE, ""))
        if _file == _OFF:
            return
    try:
        os.write(_file, RECORD.pack(time.monotonic_ns(), _whole(samples)))
    except OSError as problem:
        _file = _OFF
        _complain(os.environ.get(VARIABLE, ""), problem)


def _whole(samples: float) -> int:
    """Return the samples as a whole number; 0 for an invalid value, which the profiler reports."""
    try:
        return max(-_MOST, min(_MOST, int(samples)))
    except (TypeError, ValueError, OverflowError):
        return 0


def _opened(path: str) -> int:
    if not path:
        return _OFF
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        _complain(path, problem)
        return _OFF


def _complain(path: str, problem: OSError) -> None:
    """Warn that steps are not recorded: profiling must not end the program."""
    warnings.warn(f"{VARIABLE}={path}: steps are not recorded: {problem.strerror}", RuntimeWarning, stacklevel=4)


class Steps(Generic[Batch]):
    """Iterates over batches: records a step after the work on each, tells progress, keeps checkpoints."""

    def __init__(
        self,
        batches: Iterable[Batch],
        samples: int | Callable[[Batch], int],
        epochs: int | None = None,
        plan: "Plan | None" = None,
    ) -> None:
        self._batches, self._samples, self._epochs, self._plan = batches, samples, epochs, plan
        self._position = Position()

    @property
    def epoch(self) -> int:
        """Return the number of the epoch, from 0."""
        return self._position.epoch

    @property
    def step(self) -> int:
        """Return how many steps are done, those before the program was started again included."""
        return self._position.step

    def __len__(self) -> int:
        return len(cast(Sized, self._batches)) * (self._epochs or 1)

    def __iter__(self) -> Iterator[Batch]:
        position = self._position = Position(length=self._length())
        if self._plan is None:
            yield from self._loop(position, None)
        else:
            from headway.program.saving import Saving

            with Saving(self._plan, self._batches, position) as saving:
                yield from self._loop(position, saving)

    def _length(self) -> int | None:
        try:
            return len(cast(Sized, self._batches))
        except TypeError:
            return None

    def _loop(self, position: Position, saving: "Saving[Batch] | None") -> Iterator[Batch]:
        epochs = self._epochs or 1
        # Without both it may be one loop of several, whose share of the whole nobody knows.
        wanted = (self._epochs is not None or saving is not None) and (saving is None or saving.rank == 0)
        progress = Progress(wanted=wanted)
        self._tell(progress, position, epochs)
        if position.epoch >= epochs:
            _all_done(self._plan, epochs)
            return
        while position.epoch < epochs:
            if self._epochs is not None:
                _begin_epoch(self._batches, position.epoch)
            for batch in self._batches if saving is None else saving.epoch():
                yield batch
                step(self._samples(batch) if callable(self._samples) else self._samples)
                position.batch += 1
                position.step += 1
                self._tell(progress, position, epochs)
                if saving is not None:
                    saving.after_step()
            position.epoch, position.batch, position.length = position.epoch + 1, 0, position.batch
        if saving is not None:
            saving.end()

    def _tell(self, progress: Progress, position: Position, epochs: int) -> None:
        if position.length:
            progress.tell(position.epoch * position.length + position.batch, epochs * position.length)


def _begin_epoch(batches: object, epoch: int) -> None:
    from headway.program.randomness import begin_epoch

    begin_epoch(batches, epoch)


def _all_done(plan: "Plan | None", epochs: int) -> None:
    if plan is not None:
        warnings.warn(
            f"all epochs ({epochs}) were done before: remove {plan.place} to train anew", RuntimeWarning, stacklevel=4
        )


def steps(
    batches: Iterable[Batch],
    samples: int | Callable[[Batch], int] = 1,
    *,
    epochs: int | None = None,
    checkpoint: "Callable[[Path], object] | None" = None,
    resume: "Callable[[Path], object] | None" = None,
    every: int | str | None = "10m",
    folder: "str | Path | None" = None,
    name: str | None = None,
) -> Steps[Batch]:
    """Return an iterable over batches that counts as the steps of a training program.

    ``for batch in headway.steps(loader, epochs=3, checkpoint=save, resume=load):`` goes on where it was when it was
    preempted or crashed, in the same order of samples.

    ``samples``: how many a step has: a number, or a function of the batch.
    ``epochs``: how often to go over the batches; one call has them all.
    ``checkpoint``, ``resume``: functions of a path; one writes the state there (a file or a folder), one reads it.
    ``every``: steps (``500``) or time (``"10m"``) between checkpoints; None: only when the program is asked to end.
    ``folder``: where checkpoints are; left out, what HEADWAY_CHECKPOINTS says, or ``checkpoints``.
    ``name``: tells the checkpoints of one program from another's; left out, its script and arguments.
    """
    _check_epochs(epochs)
    if (epochs or 1) > 1 and isinstance(batches, Iterator):
        raise CheckpointError(f"epochs={epochs}: {type(batches).__name__} can be read once: give a loader or a list")
    if checkpoint is None and resume is None:
        return Steps(batches, samples, epochs)
    if not callable(checkpoint) or not callable(resume):
        raise CheckpointError("checkpoint= and resume= go together: give a function of a path to each")
    from headway.program.saving import Plan, every_of

    return Steps(batches, samples, epochs, Plan(checkpoint, resume, *every_of(every), folder, name))


def _check_epochs(epochs: Any) -> None:
    if epochs is not None and (isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1):
        raise CheckpointError(f"epochs={epochs!r}: a whole number from 1")
