"""Thread that writes the tape of a broker: neither a launch nor the dial ever waits for a disk.

It imports what a tape needs, writes the rows in batches of about a second, and says once what it cannot write. The tape
is bounded: one that has become long is thinned to every second moment, and goes on with half as many.
"""

import contextlib
import ctypes
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.errors import HeadwayError
from headway.gpu.share.block.block import KERNELS, Kernel
from headway.gpu.share.block.slot_profiles import text
from headway.gpu.share.tape import folders as tape_folders
from headway.gpu.share.tape.rows import ShareKind

if TYPE_CHECKING:
    from headway.core.tape import TapeWriter

Noted = tuple[tuple[int, int, int, int, int, int], str]
"""A row of the tape without its time, and its note; empty: none."""
MOST_ROWS = 400_000
"""A tape of more rows (some 40 MB) is thinned."""
MOST_PENDING = 50_000
"""Rows that are kept while the disk is full."""
_MOST_QUEUED = 2_000
_MOST_KERNELS = 8
"""Kernels of a program at a moment, those whose delay grew most; the others come later."""
_LARGEST = 2**63 - 1
_LAST_S = 10.0
"""A disk that takes longer than this at the end counts as hung."""


class Kernels(NamedTuple):
    """A copy of the kernels of a program; ``last``: it has ended."""

    program: int
    table: bytes
    last: bool


class _Known(NamedTuple):
    """What is on the tape of a kernel."""

    number: int
    blamed: int = 0
    charged: int = 0
    named: bool = False
    """Whether a charge of it has told its name."""


_NEW = _Known(-1)


class TapeThread:
    """Writes what it is given. ``thinned``: how many times fewer moments are wanted than at first."""

    def __init__(self, folder: Path, about: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self.folder = folder
        self.thinned = 1
        self._about, self._say = about, say
        self._queue: queue.Queue[tuple[int, list[Noted], list[Kernels]] | None] = queue.Queue(_MOST_QUEUED)
        self._tape: TapeWriter | None = None
        self._delays: dict[int, dict[int, _Known]] = {}
        """Of each program its kernels on the tape, by identity."""
        self._problem = ""
        self._begun = self._given_up = False
        self._thread = threading.Thread(target=self._run, name="tape", daemon=True)

    def write(self, time: int, rows: list[Noted], kernels: list[Kernels]) -> None:
        """Take the rows of a moment; where the disk hangs, no more are taken."""
        if self._given_up:
            return
        if not self._begun:
            self._begun = True
            self._thread.start()
        try:
            self._queue.put_nowait((time, rows, kernels))
        except queue.Full:
            self._give_up("the disk does not answer")

    def finish(self) -> None:
        """Write what is left and close the tape; a disk that hangs is not waited for."""
        if self._thread.is_alive() and not self._given_up:
            with contextlib.suppress(queue.Full):  # the disk hangs
                self._queue.put_nowait(None)
                self._thread.join(_LAST_S)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._tape = self._opened()
            while (item := self._queue.get()) is not None and not self._given_up:
                self._append(self._tape, *item)
            if not self._given_up:
                tape_folders.finish(self.folder, self._tape.close())
        except ModuleNotFoundError as problem:
            self._give_up(f"{problem.name} is not installed here: pip install {problem.name}")
        except (OSError, ValueError, HeadwayError) as problem:
            self._give_up(str(getattr(problem, "strerror", None) or problem))

    def _opened(self) -> "TapeWriter":
        from headway.core.tape import TapeWriter

        tape_folders.begin(self.folder, self._about)
        return TapeWriter(self.folder, keep=False)

    def _append(self, tape: "TapeWriter", time: int, rows: list[Noted], kernels: list[Kernels]) -> None:
        moment = [*rows, *(row for each in kernels for row in self._delayed(each))]
        moment.sort(key=lambda noted: noted[0][0] == ShareKind.LEFT)  # nothing follows the end of a program
        for (kind, subject, *numbers), note in moment:
            lease, place, detail, value = (min(number, _LARGEST) for number in numbers)  # a client may write anything
            tape.append((time, kind, subject, lease, place, detail, value))
            if note:
                tape.note(note)
        if tape.due:
            self._flush(tape)

    def _delayed(self, kernels: Kernels) -> Iterator[Noted]:
        """Yield the kernels of a program whose delay has grown most, and those that are charged otherwise than before.

        Of a program that has ended all whose delay has grown.
        """
        known = self._delays.setdefault(kernels.program, {})
        rows = {row.id: row for row in blamed_kernels(kernels.table)}
        grown = [(row.blamed - known.get(row.id, _NEW).blamed, row) for row in rows.values()]
        grown = sorted((each for each in grown if each[0]), key=lambda each: -each[0])
        for _, row in grown[: None if kernels.last else _MOST_KERNELS]:
            had = known.get(row.id, _Known(len(known)))
            known[row.id] = had._replace(blamed=row.blamed)
            name = "" if had.blamed else row.name
            yield (int(ShareKind.DELAYED), kernels.program, 0, had.number, 0, row.blamed), name
        charged = {row.id: row.charged for row in rows.values() if row.charged > 0}
        for kernel in dict.fromkeys((*charged, *(kernel for kernel, had in known.items() if had.charged))):
            had, charge = known.get(kernel, _Known(len(known))), charged.get(kernel, 0)
            if charge != had.charged:
                name = rows[kernel].name if charge and not had.named else ""
                known[kernel] = had._replace(charged=charge, named=True)
                yield (int(ShareKind.CHARGED), kernels.program, 0, had.number, 0, charge), name
        if kernels.last:
            del self._delays[kernels.program]

    def _flush(self, tape: "TapeWriter") -> None:
        """Write what is pending; where the disk is full, say so once and try again with the next rows."""
        try:
            tape.flush()
            if tape.flushed > MOST_ROWS:
                from headway.gpu.share.tape.thinning import thinned

                tape.thin(thinned)
                self.thinned *= 2
        except OSError as problem:
            why = problem.strerror or str(problem)
            if why != self._problem:
                self._say(f"the tape {self.folder} cannot be written: {why}; sharing goes on")
            self._problem = why
            if tape.pending > MOST_PENDING:
                self._give_up(why)
        else:
            if self._problem:
                self._say(f"the tape {self.folder} can be written again")
            self._problem = ""

    def _give_up(self, why: str) -> None:
        if not self._given_up:
            self._given_up = True
            self._say(f"the tape {self.folder} ends here: {why}; sharing goes on")


class _Row(NamedTuple):
    """What the table of a program holds of a kernel."""

    id: int
    blamed: int
    """Delay above that it caused."""
    charged: int
    """What is charged for contention, in parts per million of its time."""
    name: str


def blamed_kernels(table: bytes) -> Iterator[_Row]:
    """Yield the kernels in a copied table that have delayed others, or are charged for contention."""
    import numpy as np

    rows = np.frombuffer(table, dtype=np.int64).reshape(KERNELS, ctypes.sizeof(Kernel) // 8)
    told = rows[:, [Kernel.blamed_ns.offset // 8, Kernel.contention_ppm.offset // 8]] > 0
    for at in np.flatnonzero(told.any(axis=1)).tolist():
        row = Kernel.from_buffer_copy(table, at * ctypes.sizeof(Kernel))
        if row.id:
            yield _Row(row.id, row.blamed_ns, row.contention_ppm, text(row.name))
