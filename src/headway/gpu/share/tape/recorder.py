"""Tape of a broker: what it measured and set, a few times a second, as a run folder that ``headway report`` shows.

The broker's loop only reads counters and hands rows to a thread (``thread.py``). The folder is made when the first
program joins.
"""

import ctypes
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.gpu.control.dial import Dial
from headway.gpu.control.gate_rules import Rules
from headway.gpu.share.block import slot_profiles
from headway.gpu.share.block.block import SharedBlock, Slot
from headway.gpu.share.tape.rows import OF_ALL, Ending, ShareKind
from headway.gpu.share.tape.thread import Kernels, Noted, TapeThread

SECOND = 1_000_000_000
_UNTOLD = ("hold", "watched", "idle_depth_ns", "sample_every", "raised")
"""Rules that follow holds, which have rows of their own, or that are of no interest."""
RULES = ("boldness_ppm", *(name for name in Rules.__dataclass_fields__ if name not in _UNTOLD))
"""What RULED rows are about; their place is the position here."""


class Recorder:
    """Records nothing: of a broker without a tape."""

    folder: Path | None = None
    """Where the tape is, or will be once a program has joined."""

    def turn(self, now_ns: int, dial: Dial, clients: Iterable[int]) -> None:
        """Record what has changed; ``clients`` are the slots in use."""

    def ended(self, index: int, slot: Slot, how: str) -> None:
        """Record that a client has left or died; its slot is still as it was."""

    def close(self, now_ns: int, dial: Dial, clients: Iterable[int]) -> None:
        """Record what there is at the end, and finish the tape."""


@dataclass(slots=True)
class _Program:
    """What was recorded last of a program."""

    number: int
    who: tuple[int, int, int]
    slot: Slot
    rules: dict[int, int] = field(default_factory=dict)
    measured: tuple[int, ...] = ()
    tail: tuple[int, ...] = ()
    delay_ns: int = 0


class TapeRecorder(Recorder):
    """Records into a folder. ``about``: what experiment.toml says of the run."""

    def __init__(
        self, folder: Path, block: SharedBlock, about: Mapping[str, Any], begun_ns: int, say: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._block, self._begun_ns = block, begun_ns
        self._last_ns = self._counted_ns = -SECOND
        self._time = 0
        self._count = 0
        self._programs: dict[int, _Program] = {}
        self._rows: list[Noted] = []
        self._kernels: list[Kernels] = []
        self._aimed = (0, 0, 0)
        self._held = 0
        self._thread = TapeThread(folder, about, say)

    # --- called by the broker's loop: no file is touched ------------------------------------------------------------

    def turn(self, now_ns: int, dial: Dial, clients: Iterable[int]) -> None:
        """Record what has changed, at most four times a second, and all counters once a second; thinned, less often."""
        every = SECOND * self._thread.thinned
        if now_ns - self._last_ns < every // 4 and not self._rows:
            return
        self._last_ns, self._time = now_ns, max(self._time, now_ns - self._begun_ns)
        programs = {index: self._program(index, self._block.slots[index]) for index in clients}
        self._programs = programs
        if not programs and not self._rows:
            return
        self._of_all(dial)
        lowest = max((program.slot.priority for program in programs.values()), default=0)
        for index, program in programs.items():
            if program.slot.priority < lowest:  # with nobody below, what is known of it is of before
                self._measured(program, dial, index)
            self._ruled(program, dial, index)
        if now_ns - self._counted_ns >= every:
            self._counted_ns = now_ns
            for index, program in programs.items():
                self._counters(program)
                if program.slot.priority < lowest:
                    self._tailed(program, dial, index)
        self._send()

    def ended(self, index: int, slot: Slot, how: str) -> None:
        """Record the last counters of a client, and how it went."""
        program = self._program(index, slot)
        self._counters(program, last=True)
        self._put(ShareKind.LEFT, program.number, detail=Ending.DIED if how == "died" else Ending.LEFT)
        self._programs.pop(index, None)

    def close(self, now_ns: int, dial: Dial, clients: Iterable[int]) -> None:
        """Record all counters, and wait until the tape is written; a disk that hangs is not waited for."""
        self._last_ns = self._counted_ns = now_ns - SECOND * self._thread.thinned
        self.turn(now_ns, dial, clients)
        self._programs = {}  # their slots are closed next
        self._thread.finish()

    def _program(self, index: int, slot: Slot) -> _Program:
        who = slot.owner, slot.start_ticks, slot.since_ns
        program = self._programs.get(index)
        if program is None or program.who != who:
            program = self._programs[index] = _Program(self._count, who, slot)
            self._count += 1
            names = json.dumps([slot_profiles.text(slot.name), slot_profiles.text(slot.program)])
            limit, priority = slot.sms_ppm, slot.priority
            self._put(ShareKind.JOINED, program.number, limit, index, detail=priority, value=slot.owner, note=names)
        return program

    def _of_all(self, dial: Dial) -> None:
        if (aimed := (dial.slo99_ppm, dial.floor_ppm, dial.slo_ppm)) != self._aimed:
            self._aimed = aimed
            self._put(ShareKind.AIMED, OF_ALL, lease=aimed[0], detail=aimed[1], value=aimed[2])
        if dial.holds.held_ns != self._held:
            self._held = dial.holds.held_ns
            self._put(ShareKind.HELD, OF_ALL, value=self._held)

    def _measured(self, program: _Program, dial: Dial, index: int) -> None:
        found = dial.slowdown(index)
        if found is None or tuple(found) == program.measured:
            return
        program.measured = tuple(found)
        self._put(ShareKind.MEASURED, program.number, found.holds, found.steps, value=found.value_ppm)
        self._put(ShareKind.INTERVAL, program.number, detail=found.low_ppm, value=found.high_ppm)

    def _tailed(self, program: _Program, dial: Dial, index: int) -> None:
        if not dial.slo99_ppm or (found := dial.told(index)[2]) is None or tuple(found) == program.tail:
            return
        program.tail = tuple(found)
        self._put(
            ShareKind.TAILED, program.number, found.steps, found.low_ppm, detail=found.high_ppm, value=found.value_ppm
        )

    def _ruled(self, program: _Program, dial: Dial, index: int) -> None:
        fields = program.slot.rules
        for place, name in enumerate(RULES):
            value = getattr(fields, name) if place else dial.boldness_ppm(index)
            if program.rules.get(place) != value:
                note = "" if place in program.rules else name
                program.rules[place] = value
                self._put(ShareKind.RULED, program.number, place=place, value=value, note=note)

    def _counters(self, program: _Program, last: bool = False) -> None:
        ledger, number = program.slot.ledger, program.number
        launches = ledger.kernels + ledger.graphs
        self._put(ShareKind.COUNTED, number, launches, ledger.waits, ledger.waited_ns, ledger.work_ns)
        self._put(
            ShareKind.HARVESTED,
            number,
            place=1 if ledger.open else 0,
            detail=ledger.delay_ns,
            value=ledger.harvested_ns,
        )
        if ledger.delay_ns != program.delay_ns or (last and ledger.delay_ns):
            program.delay_ns = ledger.delay_ns
            where = ctypes.addressof(program.slot) + Slot.kernels.offset
            self._kernels.append(Kernels(number, ctypes.string_at(where, Slot.kernels.size), last))

    def _put(
        self,
        kind: ShareKind,
        subject: int,
        lease: int = 0,
        place: int = 0,
        detail: int = 0,
        value: int = 0,
        note: str = "",
    ) -> None:
        self._rows.append(((int(kind), subject, lease, place, int(detail), value), note))

    def _send(self) -> None:
        """Hand the rows of this moment to the thread."""
        if self._rows:
            self._thread.write(self._time, self._rows, self._kernels)
        self._rows, self._kernels = [], []
