"""Progress of a training program: a record for each step, in the file that a profiler names; nothing without one.

A record is 16 bytes, little-endian: the monotonic clock in nanoseconds and the samples of the step. It is appended with
one write, so that several processes may share the file and a killed program leaves whole records.
"""

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from struct import Struct
from typing import Generic, TypeVar, cast

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
    """Iterates over batches, and records a step after the work on each."""

    def __init__(self, batches: Iterable[Batch], samples: int | Callable[[Batch], int]) -> None:
        self._batches = batches
        self._samples = samples

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            yield batch
            step(self._samples(batch) if callable(self._samples) else self._samples)

    def __len__(self) -> int:
        return len(cast(Sized, self._batches))


def steps(batches: Iterable[Batch], samples: int | Callable[[Batch], int] = 1) -> Steps[Batch]:
    """Return an iterable that records a step after each batch: ``for batch in headway.steps(loader):``.

    ``samples``: a number, or a function of the batch.
    """
    return Steps(batches, samples)
