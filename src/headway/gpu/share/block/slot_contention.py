"""Contention of the kernels below: their counters read from slots, what is learnt of it written into them.

The shim counts for each kernel how long it was to run beside programs above, and reads what that costs them beyond
waiting; ``gpu/control/contention.py`` learns it from holds.
"""

import ctypes
from collections.abc import Mapping
from typing import Any

from headway.gpu.control.contention import Clients, Contention, Kernel as Counted, Sample, Samples
from headway.gpu.control.dial import Dial
from headway.gpu.control.slowdown import MILLION
from headway.gpu.share.block import slot_profiles
from headway.gpu.share.block.block import Kernel, Slot

_SAMPLE_NS = 25_000_000
_LEARN_NS = 2_000_000_000
_WORDS = ctypes.sizeof(Kernel) // 8
_ID, _BESIDE, _CHARGED = (getattr(Kernel, name).offset // 8 for name in ("id", "beside_ns", "contention_ppm"))
Pair = tuple[str, str]


class SlotContention:
    """Follows all programs on one GPU."""

    def __init__(self, dial: Dial, stored: Mapping[Pair, Mapping[str, Any]]) -> None:
        """Begin with what is stored of pairs."""
        self._dial, self._stored = dial, stored
        self._samples = Samples()
        self._above: dict[str, Contention] = {}
        self._seen: dict[int, tuple[int, int]] = {}
        self._learnt_ns = 0

    def sample(self, now_ns: int, clients: Mapping[int, Slot]) -> None:
        """Read the counters of those below, forty times a second at most."""
        if self._samples.kept and now_ns - self._samples.kept[-1].at_ns < _SAMPLE_NS:
            return
        beside: dict[Clients, int] = {}
        programs: dict[int, str] = {}
        harm = 0
        for index, slot in clients.items():
            if not slot.rules.gate:
                continue
            programs[index] = slot_profiles.key(slot)
            harm += slot.ledger.harm_ns
            words = _words(slot)
            beside.update({(index, words[at - _BESIDE + _ID]): ns for at, ns in _some(words, _BESIDE)})
        self._samples.add(Sample(now_ns, beside, harm, programs))

    def turn(self, now_ns: int, clients: Mapping[int, Slot]) -> None:
        """Take in what holds have told; every two seconds learn from it and write what is charged.

        Only holds of the highest priority count: the counters are of all others, who run beside it.
        """
        highest = min((slot.priority for slot in clients.values()), default=0)
        for index, slot in clients.items():
            if slot.priority == highest and (watch := self._dial.watch(index)) is not None:
                since_ns, count = self._seen.get(index, (0, 0))
                new = watch.count - count if since_ns == slot.since_ns else watch.count
                self._seen[index] = slot.since_ns, watch.count
                for measured in list(watch.measured)[-new:] if new > 0 else ():
                    if (row := self._samples.row(measured, watch.steps)) is not None:
                        self._of(slot_profiles.key(slot)).add(row)
        if now_ns - self._learnt_ns < _LEARN_NS or self._dial.holds.holding:  # a hold is timed to a millisecond
            return
        self._learnt_ns = now_ns
        self._learn(clients)
        for slot in clients.values():
            above = {slot_profiles.key(other) for other in clients.values() if other.priority < slot.priority}
            self._write(slot, above)

    def _learn(self, clients: Mapping[int, Slot]) -> None:
        """Learn what each program above suffers, and tell the dial where that changes what fills cost."""
        scales = [slot.rules.scale_ppm for slot in clients.values() if slot.rules.gate]
        scale = min(scales, default=0) / MILLION or 1.0
        eased: dict[str, float] = {}
        for index, slot in clients.items():
            if self._dial.watch(index) is None:
                continue
            program = slot_profiles.key(slot)
            if program not in eased:
                known = self._of(program)
                before = dict(known.charged_ppm)
                known.learn()
                eased[program] = known.eased(before, scale) if before != known.charged_ppm else 1.0
            if eased[program] != 1.0:
                self._dial.repriced(index, eased[program])

    def _of(self, program: str) -> Contention:
        """Return what is known of those below a program."""
        if (found := self._above.get(program)) is None:
            found = self._above[program] = Contention()
            for (above, below), row in self._stored.items():
                if above == program:
                    found.recall(_charges(below, row))
        return found

    def _write(self, slot: Slot, above: set[str]) -> None:
        """Write what the kernels of a client are charged: by the one above that suffers most."""
        program, charged = slot_profiles.key(slot), dict[int, int]()
        for each in above:
            for (below, number), ppm in self._of(each).charged_ppm.items():
                if below == program:
                    charged[number] = max(ppm, charged.get(number, 0))
        words = _words(slot)
        if not charged and not any(ns for _, ns in _some(words, _CHARGED)):
            return
        for at, number in _some(words, _ID):
            ppm = charged.get(number, 0)
            if words[at - _ID + _CHARGED] != ppm:
                slot.kernels[at // _WORDS].contention_ppm = ppm

    def rows(self) -> dict[Pair, dict[str, Any]]:
        """Return what is to be stored of each pair: by kernel, in hexadecimal, what it is charged."""
        found: dict[Pair, dict[str, Any]] = {}
        for above, contention in self._above.items():
            for (below, number), ppm in contention.charged_ppm.items():
                found.setdefault((above, below), {"contention": {}})["contention"][f"{number:016x}"] = ppm
            for below in {below for row in contention.rows for below, _ in row.beside}:
                found.setdefault((above, below), {"contention": {}})  # nothing any more
        return found


def charged(slot: Slot) -> list[dict[str, Any]]:
    """Return the kernels of a client that are charged for contention, the dearest first."""
    rows = [slot.kernels[at // _WORDS] for at, _ in _some(_words(slot), _CHARGED)]
    ordered = sorted(rows, key=lambda row: -row.contention_ppm)
    return [{"kernel": slot_profiles.text(row.name), "delay": row.contention_ppm / MILLION} for row in ordered]


def _charges(program: str, row: Mapping[str, Any]) -> dict[Counted, int]:
    """Return the charges in a stored row; what is none is left out."""
    stored = row.get("contention")
    found: dict[Counted, int] = {}
    for number, ppm in stored.items() if isinstance(stored, dict) else ():
        try:
            if isinstance(ppm, int) and 0 < ppm <= 4 * MILLION:
                found[program, int(number, 16)] = ppm
        except ValueError:
            continue
    return found


def _words(slot: Slot) -> memoryview:
    """Return the table of kernels of a client as it is now, in words."""
    where = ctypes.addressof(slot) + Slot.kernels.offset
    return memoryview(ctypes.string_at(where, Slot.kernels.size)).cast("Q")


def _some(words: memoryview, column: int) -> list[tuple[int, int]]:
    """Return the words of a column that are not zero, each with its place in the table."""
    return [(column + at * _WORDS, value) for at, value in enumerate(words[column::_WORDS].tolist()) if value]
