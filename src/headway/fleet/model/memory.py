"""GPU memory of one worker, in bytes: resident weights, their users, free bytes.

Weights are counted once however many tasks use them, and pinned while one does. A model that is being fetched is
resident from the moment its bytes are reserved; ``ready`` says when it can be used.
"""

from collections.abc import Iterable

from headway.fleet.model.catalogue import Catalogue


class GpuMemory:
    """Weights and activations on one GPU."""

    __slots__ = ("capacity_bytes", "free_bytes", "loads", "order", "pins", "ready", "resident", "sizes")

    def __init__(self, capacity_bytes: int, catalogue: Catalogue) -> None:
        self.capacity_bytes = capacity_bytes
        self.free_bytes = capacity_bytes
        self.resident = 0
        """The resident models, as bits."""
        self.order: dict[int, int] = {}
        """Models in order of arrival, oldest first; the value is when they were last used."""
        self.pins: dict[int, int] = {}
        """How many batches and fetches use a model."""
        self.ready: dict[int, int] = {}
        """Models being fetched: when they can be used."""
        self.loads: dict[int, int] = {}
        """How often each model came; what was cached beside its weights is gone when they come again."""
        self.sizes = tuple(model.size_bytes for model in catalogue.models)
        """Bytes, by model."""

    def size_of(self, models: Iterable[int]) -> int:
        """Return the bytes of some models."""
        return sum(self.sizes[model] for model in models)

    def evictable(self, model: int) -> bool:
        """Return whether a model is resident and not in use."""
        return model in self.order and model not in self.pins

    def enough(self, models: Iterable[int], need_bytes: int) -> tuple[int, ...] | None:
        """Return as many of the first models as free ``need_bytes`` together; None where all of them are too few."""
        chosen = []
        for model in models:
            if need_bytes <= 0:
                break
            chosen.append(model)
            need_bytes -= self.sizes[model]
        return tuple(chosen) if need_bytes <= 0 else None

    def add(self, model: int, now: int) -> None:
        """Reserve the bytes of a model."""
        self.resident |= 1 << model
        self.order[model] = now
        self.loads[model] = self.loads.get(model, 0) + 1
        self.free_bytes -= self.sizes[model]

    def remove(self, model: int) -> None:
        """Free the bytes of a model."""
        self.resident &= ~(1 << model)
        del self.order[model]
        self.ready.pop(model, None)
        self.free_bytes += self.sizes[model]

    def pin(self, model: int, now: int) -> None:
        """Count one more user of a model."""
        self.pins[model] = self.pins.get(model, 0) + 1
        self.order[model] = now

    def unpin(self, model: int) -> None:
        """Count one user fewer of a model."""
        left = self.pins[model] - 1
        if left:
            self.pins[model] = left
        else:
            del self.pins[model]

    def clear(self) -> None:
        """Forget all models."""
        self.free_bytes = self.capacity_bytes
        self.resident = 0
        self.order.clear()
        self.pins.clear()
        self.ready.clear()
