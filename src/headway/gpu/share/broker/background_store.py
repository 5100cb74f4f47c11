"""Profiles of programs, read and written in background threads: full ones take half a second to save.

The broker's loop only copies a slot. One thread saves the copy; another reads profiles, so that a client that joins
does not wait for another one's save.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

from headway.errors import HeadwayError
from headway.gpu.share.block import slot_profiles
from headway.gpu.share.block.block import Slot
from headway.gpu.share.block.slot_profiles import SlotProfile

_LAST_S = 10.0
"""A store that takes longer than this at the end counts as hung."""


class Store(Protocol):
    """A store of profiles; rows as in ``slot_profiles``."""

    def load(self, program: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]] | None:
        """Return the kernels and steps of a program; None if it was never seen."""

    def save(self, program: str, kernels: list[dict[str, Any]], steps: list[dict[str, Any]]) -> None:
        """Save the kernels and steps of a program."""

    def learnt(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return what was learnt of each pair of programs."""

    def save_learnt(self, learnt: dict[tuple[str, str], dict[str, Any]]) -> None:
        """Save what was learnt of pairs of programs."""


@dataclass(frozen=True, slots=True)
class _Save:
    program: str
    copy: Slot | None
    done: "Future[None]"


_PAIRS = "the pairs of programs"
"""What is learnt of them is saved under this; no program has that name."""


class BackgroundStore:
    """Saves and loads profiles in the background; without a store nothing is saved."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._saver = ThreadPoolExecutor(1, "keeps")
        self._loader = ThreadPoolExecutor(1, "loads")
        self._saves: list[_Save] = []
        self._loads: list[Future[SlotProfile | None]] = []

    def save(self, slot: Slot) -> None:
        """Start to save what a client has learnt so far."""
        if not (program := slot_profiles.key(slot)) or self._store is None:
            return
        for pending in self._saves:
            if pending.program == program:  # this is newer
                pending.done.cancel()
        self._saves = [pending for pending in self._saves if not pending.done.cancelled()]
        copy = Slot.from_buffer_copy(slot)
        self._saves.append(_Save(program, copy, self._saver.submit(self._save, self._store, program, copy)))

    def learnt(self) -> "Future[dict[tuple[str, str], dict[str, Any]]]":
        """Return what was learnt of each pair of programs, as a future.

        Its result raises OSError, ValueError or HeadwayError where that cannot be read.
        """
        if self._store is not None:
            return self._loader.submit(self._store.learnt)
        nothing: Future[dict[tuple[str, str], dict[str, Any]]] = Future()
        nothing.set_result({})
        return nothing

    def save_learnt(self, learnt: dict[tuple[str, str], dict[str, Any]]) -> None:
        """Start to save what was learnt of pairs of programs."""
        if self._store is not None and learnt:
            self._saves.append(_Save(_PAIRS, None, self._saver.submit(self._store.save_learnt, dict(learnt))))

    def load(self, program: str) -> "Future[SlotProfile | None]":
        """Return the future profile of a program; its result is None where there is none."""
        unsaved = [load.copy for load in self._saves if load.program == program and load.copy is not None]
        future = self._loader.submit(self._load, program, unsaved[-1] if unsaved else None)
        self._loads = [load for load in self._loads if not load.done()] + [future]
        return future

    def problems(self) -> Iterator[str]:
        """Yield a line for each save that failed, once."""
        ended = [pending for pending in self._saves if pending.done.done()]
        self._saves = [pending for pending in self._saves if pending not in ended]
        for pending in ended:
            if (problem := pending.done.exception()) is not None:
                yield f"what was learnt of {pending.program} could not be kept: {problem}"

    def finish(self, seconds: float = _LAST_S) -> None:
        """Wait until all pending reads and saves are done."""
        wait([pending.done for pending in self._saves], timeout=seconds)
        wait(self._loads, timeout=seconds)

    def close(self) -> Iterator[str]:
        """Finish and shut down; yield a line for each save that failed."""
        self.finish()
        hung = [pending.program for pending in self._saves if not pending.done.done()]
        yield from self.problems()
        if hung:
            yield f"what was learnt of {', '.join(hung)} could not be kept: the store does not answer"
        for pool in (self._saver, self._loader):
            pool.shutdown(wait=False, cancel_futures=True)

    def _save(self, store: Store, program: str, copy: Slot) -> None:
        kernels, steps = slot_profiles.read(copy)
        if kernels:
            store.save(program, kernels, steps)

    def _load(self, program: str, unsaved: Slot | None) -> SlotProfile | None:
        profile = slot_profiles.read(unsaved) if unsaved is not None else None
        if (profile is None or not profile[0]) and self._store is not None:
            profile = self._store.load(program)
        return None if profile is None else SlotProfile.of(*profile)


def outcome(read: "Future[SlotProfile | None]") -> tuple[SlotProfile | None, str]:
    """Return the profile that was read, or, as text, why it could not be."""
    if (problem := read.exception()) is None:
        return read.result(), ""
    expected = isinstance(problem, (OSError, ValueError, HeadwayError))
    return None, str(problem) if expected else f"{type(problem).__name__}: {problem}"
