"""What was learnt of programs, read and written beside the broker's loop: full tables take half a second to keep.

A slot is copied in a moment; what is to be written is made from the copy in one thread, and what is known of a program
is read in another, so that who joins does not wait until somebody else's tables are kept.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

from headway.errors import HeadwayError
from headway.live.kernels import tables
from headway.live.kernels.block import Slot
from headway.live.kernels.tables import Known

_LAST_S = 10.0
"""A store that takes longer at the end has hung."""


class Store(Protocol):
    """Where what was learnt of programs is kept: rows as ``tables`` has them."""

    def load(self, program: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]] | None:
        """Return the kernels and steps of a program; None if it was never seen."""

    def save(self, program: str, kernels: list[dict[str, Any]], steps: list[dict[str, Any]]) -> None:
        """Keep them."""


@dataclass(frozen=True, slots=True)
class _Kept:
    program: str
    copy: Slot
    done: "Future[None]"


class BackgroundStore:
    """A store that nobody waits for; without one nothing is kept."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._saver = ThreadPoolExecutor(1, "keeps")
        self._loader = ThreadPoolExecutor(1, "loads")
        self._kept: list[_Kept] = []
        self._loads: list[Future[Known | None]] = []

    def save(self, slot: Slot) -> None:
        """Keep what a client knows now."""
        if not (program := tables.text(slot.program)) or self._store is None:
            return
        for one in self._kept:
            if one.program == program:  # this is newer
                one.done.cancel()
        self._kept = [one for one in self._kept if not one.done.cancelled()]
        copy = Slot.from_buffer_copy(slot)
        self._kept.append(_Kept(program, copy, self._saver.submit(self._save, self._store, program, copy)))

    def load(self, program: str) -> "Future[Known | None]":
        """Return what is known of a program, in a while; None if nothing is."""
        fresh = [one.copy for one in self._kept if one.program == program]
        found = self._loader.submit(self._load, program, fresh[-1] if fresh else None)
        self._loads = [one for one in self._loads if not one.done()] + [found]
        return found

    def problems(self) -> Iterator[str]:
        """Yield what could not be kept, each said once."""
        ended = [one for one in self._kept if one.done.done()]
        self._kept = [one for one in self._kept if one not in ended]
        for one in ended:
            if (problem := one.done.exception()) is not None:
                yield f"what was learnt of {one.program} could not be kept: {problem}"

    def finish(self, seconds: float = _LAST_S) -> None:
        """Wait until all is read and written that was asked for."""
        wait([one.done for one in self._kept], timeout=seconds)
        wait(self._loads, timeout=seconds)

    def close(self) -> Iterator[str]:
        """Finish, and take no more; what could not be kept."""
        self.finish()
        hung = [one.program for one in self._kept if not one.done.done()]
        yield from self.problems()
        if hung:
            yield f"what was learnt of {', '.join(hung)} could not be kept: the store does not answer"
        for pool in (self._saver, self._loader):
            pool.shutdown(wait=False, cancel_futures=True)

    def _save(self, store: Store, program: str, copy: Slot) -> None:
        kernels, steps = tables.read(copy)
        if kernels:
            store.save(program, kernels, steps)

    def _load(self, program: str, fresh: Slot | None) -> Known | None:
        found = tables.read(fresh) if fresh is not None else None
        if (found is None or not found[0]) and self._store is not None:
            found = self._store.load(program)
        return None if found is None else Known.of(*found)


def outcome(found: "Future[Known | None]") -> tuple[Known | None, str]:
    """Return what was found of a program, or why it could not be read."""
    if (problem := found.exception()) is None:
        return found.result(), ""
    expected = isinstance(problem, (OSError, ValueError, HeadwayError))
    return None, str(problem) if expected else f"{type(problem).__name__}: {problem}"
