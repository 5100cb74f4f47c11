"""A data set that caches a fixed set of its items in memory: the hit rate is the share of items that is cached.

A cache with replacement is useless to a program that reads all its data in a new order every epoch: an item is evicted
before it is read again. One without replacement hits as often as it has items (MinIO in Mohan et al., VLDB 2021, which
Synergy's profiler assumes). Throughput is then a function of memory that can be computed.

Wrap the data set that reads, not the one that augments: an item is cached as the wrapped data set first returned it.
"""

import json
import os
import pickle
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import context
from operator import index as whole
from typing import Any

from headway.errors import InputError
from headway.program.shared_memory import Store
from headway.streams import small_stream
from headway.units import SECOND, parse_size

REPORT_VARIABLE = "HEADWAY_CACHE"
BUDGET_VARIABLE = "HEADWAY_CACHE_BYTES"
_REPORT_EVERY = SECOND


class CachedDataset:
    """Wraps a data set with a length and items by number; caches as many items as fit into the budget.

    With ``size``, a function from an item's number to its bytes, the cached items are drawn by ``seed`` beforehand;
    without it they are the first to be read (or, with ``fill``, the first to be drawn). The set never changes once it
    is full. All loader workers share it, forked or spawned. The budget is for the items (bytes as they are, anything
    else pickled); the index takes further 16 bytes for each item.
    """

    def __init__(
        self, dataset: Any, budget: str | int, size: Callable[[int], int] | None = None, *, seed: int = 0
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise InputError(f"CachedDataset: {type(dataset).__name__} needs a length and items by number")
        self.dataset = dataset
        self.size = size
        self.seed = seed
        self.budget_bytes = _budget(os.environ.get(BUDGET_VARIABLE) or budget)
        self._begin()

    def _begin(self) -> None:
        items = len(self.dataset)
        self._store = Store(items, self.budget_bytes)
        self._sized_bytes = self._choose(items) if self.size is not None else 0
        path = os.environ.get(REPORT_VARIABLE, "")
        self._report = Report(path, self._store, self._sized_bytes) if path else None
        if os.environ.get(BUDGET_VARIABLE):  # a profiler needs this hit rate from the first epoch
            self.fill()
        if self._report is not None:
            self._report.say()
            weakref.finalize(self, _last_report, self._report, os.getpid())

    def _choose(self, items: int) -> int:
        """Draw the items that will be cached; return the size of all items."""
        assert self.size is not None
        left, total = self.budget_bytes, 0
        for item in self._drawn(items):
            size_bytes = self.size(item)
            total += size_bytes
            if size_bytes <= left:
                left -= size_bytes
            else:
                self._store.reject(item)
        return total

    def _drawn(self, items: int) -> list[int]:
        """Return all items in random order; the first ones are cached."""
        order = list(range(items))
        small_stream(self.seed, "cached items").shuffle(order)
        return order

    def __len__(self) -> int:
        return self._store.items

    def __getitem__(self, index: int) -> Any:
        item = self._number(index)
        cached = self._store.get(item)
        if cached is not None:
            content, raw = cached
            value = content if raw else pickle.loads(content)
        else:
            value = self.dataset[item]
            if self._store.open_to(item):
                self._offer(item, value)
        if self._report is not None and self._store.due(time.monotonic_ns(), _REPORT_EVERY):
            self._report.say()
        return value

    def _number(self, index: int) -> int:
        item, items = whole(index), self._store.items
        if not -items <= item < items:
            raise IndexError(f"item {item} of {items}")
        return item % items

    def _offer(self, item: int, value: Any) -> None:
        raw = type(value) is bytes
        self._store.put(item, value if raw else pickle.dumps(value, pickle.HIGHEST_PROTOCOL), raw)

    def fill(self) -> None:
        """Read all items that will be cached now, so that the first epoch has the hit rate of the others."""
        for item in self._drawn(len(self)):
            if self.size is None and self._store.full:
                return
            if self._store.open_to(item):
                self._offer(item, self.dataset[item])

    # --- what is known ----------------------------------------------------------------------------------------

    @property
    def hits(self) -> int:
        """Return the number of hits in all processes."""
        return self._store.counts[0]

    @property
    def misses(self) -> int:
        """Return the number of misses in all processes."""
        return self._store.counts[1]

    @property
    def cached(self) -> int:
        """Return how many items are cached."""
        return self._store.kept

    @property
    def cached_bytes(self) -> int:
        """Return the bytes of the cached items."""
        return self._store.used_bytes

    # --- in other processes -----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Share the cache with a worker that is being spawned; any other copy starts empty."""
        state = dict(self.__dict__)
        if context.get_spawning_popen() is None:
            del state["_store"], state["_report"]
        else:
            state["size"] = None  # the choice is made; often a lambda, which cannot be sent
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_store" not in state:
            self._begin()


def _budget(budget: str | int) -> int:
    budget_bytes = parse_size(budget, what="cache budget") if isinstance(budget, str) else whole(budget)
    if budget_bytes < 0:
        raise InputError(f"cache budget {budget!r} must not be negative")
    return budget_bytes


class Report:
    """Reports a cache to a profiler: lines of JSON, of which the last counts."""

    def __init__(self, path: str, store: Store, sized_bytes: int) -> None:
        self._path = path
        self._store = store
        self._sized_bytes = sized_bytes

    def say(self) -> None:
        """Append a line; ignore one that cannot be written: profiling must not end the program."""
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(file, (json.dumps(self._line()) + "\n").encode())
            finally:
                os.close(file)

    def _line(self) -> dict[str, int | float]:
        items = self._store.items
        seen, seen_bytes = self._store.measured
        hits, misses = self._store.counts
        mean = self._sized_bytes / items if self._sized_bytes else seen_bytes / seen if seen else 0.0
        return {
            "items": items,
            "item_bytes_mean": mean,
            "dataset_bytes": self._sized_bytes or round(mean * items),
            "cached_bytes": self._store.used_bytes,
            "hits": hits,
            "misses": misses,
        }


def _last_report(report: Report, process: int) -> None:
    """Report a last time when the cache or its program ends, in the process that made it; not in workers."""
    if os.getpid() == process:
        report.say()
