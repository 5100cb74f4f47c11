"""The models of one worker: which are resident, who uses them, and how many bytes they take.

The server's books say what is evicted, and this carries it out, in the order in which it was told; only where memory
runs out it evicts by itself what no batch uses. A model is loaded by whichever thread needs it first; others wait.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from threading import Condition
from typing import Any

from headway.errors import HeadwayError
from headway.fleet.live.weights.device import Device
from headway.fleet.live.weights.residents import Resident

OUT_OF_MEMORY = 2
"""The driver's code."""


class RefusedError(HeadwayError):
    """An order that goes against the books: nothing of it was done."""


class DriverError(HeadwayError):
    """A function of the CUDA driver failed."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} failed with {code}")
        self.code = code


def is_out_of_memory(problem: BaseException) -> bool:
    """Return whether an error says that memory ran out: Python's, torch's on a GPU and on a CPU, the driver's."""
    if isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError":
        return True
    if isinstance(problem, DriverError):
        return problem.code == OUT_OF_MEMORY
    return isinstance(problem, RuntimeError) and "can't allocate memory" in str(problem)


class _At(Enum):
    AWAY = 0
    RESERVED = 1
    """Its bytes are counted; nobody loads it yet."""
    LOADING = 2
    HERE = 3


class Memory:
    """Models that come and go within a budget."""

    def __init__(
        self, models: Sequence[Resident], capacity_bytes: int, device: Device, sizes: Sequence[int] = ()
    ) -> None:
        """``sizes``: bytes by model in the books of whoever decides; so both count alike. Empty: as they are."""
        self.capacity_bytes = capacity_bytes
        self._sizes = sizes or [model.size_bytes for model in models]
        self.used_bytes = 0
        """Of models that are resident or reserved."""
        self._models = models
        self._device = device
        """Is told how many bytes models take, so that activations get the rest."""
        self._at = [_At.AWAY for _ in models]
        self._pins = [0 for _ in models]
        self._order: dict[int, None] = {}
        """Models whose bytes are counted, the least recently used first."""
        self._changed = Condition()
        self._lease = 0
        """The last one that an order had."""
        self.on_lost: Callable[[tuple[int, ...], int], None] = lambda models, lease: None
        """Told which models were evicted without an order, and after which lease."""

    def reserve(self, models: Iterable[int], evict: Iterable[int] = (), lease: int = 0) -> bool:
        """Evict some models and count others as used; raise RefusedError, and do nothing, where that cannot be.

        Return whether some of them must be loaded. ``lease`` is that of the order; 0: it has none.
        """
        models, evict = list(models), list(evict)
        with self._changed:
            self._check(models, evict)
            self._lease = max(self._lease, lease)
            for model in evict:
                self._remove(model)
            for model in models:
                if self._at[model] is _At.AWAY:
                    self._at[model] = _At.RESERVED
                    self.used_bytes += self._sizes[model]
                self._pins[model] += 1
                self._order.pop(model, None)
                self._order[model] = None
            missing = any(self._at[model] is not _At.HERE for model in models)
            if missing or evict:
                self._device.share(self.used_bytes)
            return missing

    def _check(self, models: list[int], evict: list[int]) -> None:
        for model in evict:
            if self._pins[model] or model in models:
                raise RefusedError(f"model {self._models[model].name} is in use: it cannot be evicted")
        need = sum(self._sizes[model] for model in set(models) if self._at[model] is _At.AWAY)
        free = self.capacity_bytes - self.used_bytes
        free += sum(self._sizes[model] for model in set(evict) if self._at[model] is not _At.AWAY)
        if need > free:
            names = ", ".join(self._models[model].name for model in models)
            raise RefusedError(f"models {names} take {need} bytes more, {free} of {self.capacity_bytes} are free")

    def load(self, model: int) -> None:
        """Bring a reserved model in, or wait until another thread has; raise what goes wrong.

        Where memory runs out, evict what nobody uses and try once more.
        """
        with self._changed:
            while self._at[model] is _At.LOADING:
                self._changed.wait()
            if self._at[model] is not _At.RESERVED:  # here, or away again: the batch that it was wanted for has ended
                return
            self._at[model] = _At.LOADING
        loaded = False
        try:
            self._bring(model)
            loaded = True
        finally:
            with self._changed:
                self._at[model] = _At.HERE if loaded else _At.RESERVED
                self._changed.notify_all()

    def _bring(self, model: int) -> None:
        try:
            self._models[model].load()
            return
        except Exception as problem:
            if not is_out_of_memory(problem):
                raise
        self.make_room()
        self._models[model].load()

    @contextmanager
    def held(self, models: Sequence[int]) -> Iterator[list[Any]]:
        """Yield loaded models, which stay while the body runs; where there is no room, what nobody uses goes."""
        try:
            self.reserve(models)
        except RefusedError:
            self.make_room()
            self.reserve(models)
        try:
            for model in models:
                self.load(model)
            yield self.values(models)
        finally:
            self.release(models)

    def missing(self, models: Iterable[int]) -> tuple[int, ...]:
        """Return the models that are not here, nor on their way."""
        with self._changed:
            return tuple(model for model in models if self._at[model] is _At.AWAY)

    def values(self, models: Iterable[int]) -> list[Any]:
        """Return loaded models."""
        return [self._models[model].value for model in models]

    def release(self, models: Iterable[int]) -> None:
        """Count one user fewer of some models; forget those that could not be loaded."""
        with self._changed:
            before = self.used_bytes
            for model in models:
                self._pins[model] -= 1
                if not self._pins[model] and self._at[model] is _At.RESERVED:
                    self._forget(model)
            if self.used_bytes != before:
                self._device.share(self.used_bytes)

    def evict(self, model: int) -> None:
        """Give the memory of a model back; raise RefusedError where it is in use."""
        self.reserve((), (model,))

    def make_room(self) -> tuple[int, ...]:
        """Evict every model that nobody uses, the least recently used first; return which, and tell them as lost."""
        with self._changed:
            lease, unused = self._lease, tuple(model for model in self._order if not self._pins[model])
            for model in unused:
                self._remove(model)
            self._device.share(self.used_bytes)
        gc.collect()  # what failed may have left cycles that hold tensors
        self._device.trim()
        if unused:
            self.on_lost(unused, lease)
        return unused

    def _remove(self, model: int) -> None:
        if self._at[model] is _At.HERE:
            self._models[model].evict()
            self._forget(model)

    def _forget(self, model: int) -> None:
        self._at[model] = _At.AWAY
        self._order.pop(model, None)
        self.used_bytes -= self._sizes[model]
