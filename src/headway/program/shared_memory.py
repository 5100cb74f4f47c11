"""Shared memory of the loader workers of one program: an index of items over an anonymous file.

The file is in memory and has no name, so that the kernel frees it with the last process that holds it, however that one
ends. A forked worker inherits it; a spawned one gets its descriptor. The index says for each item where its bytes are.
Bytes are written before the index, and written bytes never move, so that readers take no lock. Writers take a record
lock, which the kernel releases when a process dies.
"""

import fcntl
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, reduction
from typing import Any

from headway.errors import InputError

_USED, _PROCESSES, _MEASURED, _MEASURED_BYTES, _KEPT, _TOLD = range(6)
_HEADER = 8
_COUNTED_PROCESSES = 1024
"""Pairs of hit and miss counters; further processes reuse those of the first."""
_COUNTS = _HEADER + 2 * _COUNTED_PROCESSES
_WORD_BYTES = 8
_NEVER = -1


class Store:
    """Space for items in at most ``budget_bytes``; an item is kept for ever, or never."""

    def __init__(self, items: int, budget_bytes: int, file: int | None = None) -> None:
        self.items = items
        self.budget_bytes = budget_bytes
        self._start_bytes = _WORD_BYTES * (_COUNTS + 2 * items)
        self._file = _nameless() if file is None else file
        if file is None:
            try:
                os.ftruncate(self._file, self._start_bytes)
            except OSError as problem:
                os.close(self._file)
                raise InputError(f"a cache of {items} items cannot be made: {problem.strerror}") from None
        self._map = mmap.mmap(self._file, self._start_bytes)
        self._table = memoryview(self._map).cast("q")
        self._threads = threading.Lock()
        self._process = 0
        self._hits = self._misses = 0
        self.close = weakref.finalize(self, _release, self._table, self._map, self._file)
        """Release it in this process; happens by itself when it is not used any more."""
        self.close.atexit = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to rebuild it in a process that is being spawned: with its descriptor."""
        if context.get_spawning_popen() is None:
            raise TypeError("a store is shared with worker processes only, it cannot be saved")
        return _attached, (self.items, self.budget_bytes, reduction.DupFd(self._file))

    # --- reading ----------------------------------------------------------------------------------------------

    def get(self, item: int) -> tuple[bytes, bool] | None:
        """Return the bytes of an item and whether they are raw, None where it is not kept; count a hit or a miss."""
        table = self._table
        if self._process != os.getpid():
            self._enter()
        entry = _COUNTS + 2 * item
        offset = table[entry]
        if offset <= 0:
            table[self._misses] += 1
            return None
        table[self._hits] += 1
        length, raw = divmod(table[entry + 1], 2)
        return os.pread(self._file, length, offset), bool(raw)

    def open_to(self, item: int) -> bool:
        """Return whether an item is neither kept nor rejected yet."""
        return self._table[_COUNTS + 2 * item] == 0

    # --- writing ----------------------------------------------------------------------------------------------

    def reject(self, item: int) -> None:
        """Reject an item: it will never be kept."""
        self._table[_COUNTS + 2 * item] = _NEVER

    def put(self, item: int, content: bytes, raw: bool) -> None:
        """Keep an item if it fits, else reject it for ever; the first of several writers wins."""
        table, entry = self._table, _COUNTS + 2 * item
        with self._locked():
            if table[entry]:
                return
            table[_MEASURED] += 1
            table[_MEASURED_BYTES] += len(content)
            used = table[_USED]
            if used + len(content) > self.budget_bytes:
                table[entry] = _NEVER
                return
            # In this order a writer that dies half way wastes its space and breaks nothing.
            table[_USED] = used + len(content)
            _write_all(self._file, content, self._start_bytes + used)
            table[_KEPT] += 1
            table[entry + 1] = 2 * len(content) + raw
            table[entry] = self._start_bytes + used

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._process != os.getpid():
            self._enter()
        with self._threads:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1)

    def _enter(self) -> None:
        """Give a new process its own lock between threads and its own pair of counters."""
        self._threads = threading.Lock()
        self._process = os.getpid()
        with self._locked():
            number = self._table[_PROCESSES]
            self._table[_PROCESSES] = number + 1
        self._hits = _HEADER + 2 * (number % _COUNTED_PROCESSES)
        self._misses = self._hits + 1

    # --- what is known ----------------------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        """Return the bytes of the kept items."""
        return self._table[_USED]

    @property
    def kept(self) -> int:
        """Return how many items are kept."""
        return self._table[_KEPT]

    @property
    def full(self) -> bool:
        """Return whether another item of mean size would not fit."""
        seen, seen_bytes = self.measured
        return seen > 0 and self.used_bytes + seen_bytes // seen > self.budget_bytes

    @property
    def measured(self) -> tuple[int, int]:
        """Return how many items were seen, kept or not, and their bytes."""
        return self._table[_MEASURED], self._table[_MEASURED_BYTES]

    @property
    def counts(self) -> tuple[int, int]:
        """Return the hits and misses of all processes."""
        counts = self._table[_HEADER:_COUNTS].tolist()
        return sum(counts[::2]), sum(counts[1::2])

    def due(self, now: int, every: int) -> bool:
        """Return whether so many nanoseconds have passed since this was last true in any process."""
        if now - self._table[_TOLD] < every:
            return False
        with self._locked():
            if now - self._table[_TOLD] < every:
                return False
            self._table[_TOLD] = now
            return True


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headway-cache")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _release(table: memoryview, mapped: mmap.mmap, file: int) -> None:
    table.release()
    mapped.close()
    os.close(file)


def _write_all(file: int, content: bytes, offset: int) -> None:
    left = memoryview(content)
    while left:
        done = os.pwrite(file, left, offset)
        left, offset = left[done:], offset + done


def _attached(items: int, budget_bytes: int, file: Any) -> Store:
    return Store(items, budget_bytes, file.detach())
