"""Metrics of the tape of a broker: how slow the programs above were, what the others got, which kernels delayed whom.

Pure functions of a tape. They need only numpy. All numbers are what the broker measured on the real GPU.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.core.tape import Tape
from headway.gpu.share.tape.rows import Ending, ShareKind
from headway.units import SECOND

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
MILLION = 1_000_000
BOLDNESS = "boldness_ppm"
SHOWN = 20 * SECOND
"""A slow-down is that of so long, and counts no longer where no other follows."""
_TIME, _KIND, _SUBJECT, _LEASE, _PLACE, _DETAIL, _VALUE = range(7)


@dataclass(frozen=True, slots=True)
class KernelDelay:
    """A kernel that delayed programs above: its delay so far, over time."""

    name: str
    times: Longs
    delay: Longs


@dataclass(frozen=True, slots=True)
class KernelCharge:
    """A kernel that is charged for contention: the delay above beyond waiting, in parts of its time, over time."""

    name: str
    times: Longs
    charge_ppm: Longs


@dataclass(frozen=True, slots=True, eq=False)
class SharedProgram:
    """A program that shared the GPU. Arrays have a row a moment, their columns as named."""

    number: int
    name: str
    """No other program of the tape has the same."""
    key: str
    """The name under which its kernel times are stored."""
    priority: int
    pid: int
    joined: int
    ended: int
    how: str
    """``left`` or ``died``; empty: it was still there."""
    counters: Longs
    """Time, launches, launches that waited, time waited, GPU time, GPU time harvested, delay caused."""
    slowdown: Longs
    """Time, value, lower and upper end in parts per million, holds, steps."""
    boldness: Longs
    """Time, parts per million."""
    kernels: tuple[KernelDelay, ...]
    sms_ppm: int = 0
    """The share of the SMs that it was limited to; 0: none."""
    charges: tuple[KernelCharge, ...] = ()
    tail: Longs = field(default_factory=lambda: np.empty((0, 5), dtype=np.int64))
    """Its slow-down at p99: time, value, lower and upper end in parts per million, steps."""

    @property
    def last(self) -> Sequence[int]:
        """Return the counters at the end, without their time."""
        return self.counters[-1, 1:].tolist() if len(self.counters) else [0] * 6

    @property
    def lived(self) -> int:
        """Return how long it was there."""
        return max(1, self.ended - self.joined)

    def mean_slowdown(self) -> float | None:
        """Return its mean slow-down over the time in which that was known."""
        weights = self._known()
        return float(np.average(self.slowdown[:, 1], weights=weights)) / MILLION if weights.sum() else None

    def share_above(self, aims: Longs) -> float | None:
        """Return the share of that time in which it was above the aim."""
        weights = self._known()
        if not weights.sum() or not len(aims):
            return None
        aim = aims[np.maximum(0, np.searchsorted(aims[:, 0], self.slowdown[:, 0], side="right") - 1), 2]
        return float(weights[self.slowdown[:, 1] > aim].sum() / weights.sum())

    def _known(self) -> Longs:
        """Return how long each value counts: until the next one, for as long as it is shown."""
        times = self.slowdown[:, 0]
        until = max(self.ended, int(times[-1]) + 1) if len(times) else 0
        return np.minimum(SHOWN, np.diff(times, append=until)) if len(times) else times

    def rate(self, column: int) -> tuple[Longs, Floats]:
        """Return how fast a counter grew from moment to moment: the ends of the stretches, and the growth a time."""
        times = np.concatenate(([self.joined], self.counters[:, 0]))
        values = np.concatenate(([0], self.counters[:, column]))
        passed = np.diff(times)
        real = passed > 0
        return times[1:][real], np.diff(values)[real] / passed[real]


@dataclass(frozen=True, slots=True)
class SharedRun:
    """A tape of a broker, taken apart."""

    programs: tuple[SharedProgram, ...]
    aims: Longs
    """Time, floor, slow-down aimed at, the one for p99 (0: none), in parts per million."""
    held: Longs
    """Time, all time in which programs below were held so far."""
    until: int

    def above(self, program: SharedProgram, time: int) -> list[SharedProgram]:
        """Return the programs of higher priority that were there at a time."""
        return [
            each for each in self.programs if each.priority < program.priority and each.joined <= time <= each.ended
        ]

    def delayed(self, program: SharedProgram, kernel: KernelDelay) -> list[str]:
        """Return the programs above that were there when a kernel caused its delay, by name."""
        return list(dict.fromkeys(each.name for at in kernel.times.tolist() for each in self.above(program, at)))


def shared_run(tape: Tape) -> SharedRun:
    """Return the programs and settings of a tape."""
    until = int(tape.column("time")[-1]) if len(tape) else 0
    names = _names(tape)
    programs = tuple(
        _program(tape, row, name, key, until) for row, (name, key) in zip(tape.of(ShareKind.JOINED), names, strict=True)
    )
    aims, held = tape.of(ShareKind.AIMED), tape.of(ShareKind.HELD)
    return SharedRun(programs, aims[:, [_TIME, _DETAIL, _VALUE, _LEASE]], held[:, [_TIME, _VALUE]], until)


def _names(tape: Tape) -> list[tuple[str, str]]:
    """Return name and key of each program; those of a name that others had before have a number after it."""
    taken: dict[str, int] = {}
    found = []
    for row in np.flatnonzero(tape.column("kind") == ShareKind.JOINED).tolist():
        name, key = _named(tape.notes.get(row, ""))
        taken[name] = taken.get(name, 0) + 1
        found.append((name if taken[name] == 1 else f"{name}-{taken[name]}", key))
    return found


def _named(note: str) -> tuple[str, str]:
    try:
        name, key = json.loads(note)
    except ValueError:
        return "(no name)", ""
    return str(name) or "(no name)", str(key)


def _program(tape: Tape, joined: Longs, name: str, key: str, until: int) -> SharedProgram:
    number = int(joined[_SUBJECT])
    at = np.flatnonzero(tape.column("subject") == number)
    rows = tape.rows[at]
    left = rows[rows[:, _KIND] == ShareKind.LEFT]
    counted = _together(rows, ShareKind.COUNTED, ShareKind.HARVESTED)
    measured = _together(rows, ShareKind.MEASURED, ShareKind.INTERVAL)
    pick = [_TIME, _LEASE, _PLACE, _DETAIL, _VALUE, 7 + _VALUE, 7 + _DETAIL]
    ended = int(left[-1, _TIME]) if len(left) else until
    delays = [KernelDelay(*each) for each in _kernels(tape, at, rows, ShareKind.DELAYED)]
    charges = [KernelCharge(*each) for each in _kernels(tape, at, rows, ShareKind.CHARGED)]
    return SharedProgram(
        number,
        name,
        key,
        int(joined[_DETAIL]),
        int(joined[_VALUE]),
        int(joined[_TIME]),
        ended,
        "" if not len(left) else "died" if int(left[-1, _DETAIL]) == Ending.DIED else "left",
        counted[:, pick],
        measured[:, [_TIME, _VALUE, 7 + _DETAIL, 7 + _VALUE, _LEASE, _PLACE]],
        _of_rule(tape, at, rows, BOLDNESS),
        tuple(sorted(delays, key=lambda kernel: -int(kernel.delay[-1]))),
        int(joined[_LEASE]),
        tuple(sorted(charges, key=lambda kernel: -int(kernel.charge_ppm[-1]))),
        rows[rows[:, _KIND] == ShareKind.TAILED][:, [_TIME, _VALUE, _PLACE, _DETAIL, _LEASE]],
    )


def _together(rows: Longs, first: ShareKind, second: ShareKind) -> Longs:
    """Return rows of two kinds that were written at the same times, side by side."""
    one, other = (rows[rows[:, _KIND] == kind] for kind in (first, second))
    _, at, beside = np.intersect1d(one[:, _TIME], other[:, _TIME], return_indices=True)
    together: Longs = np.hstack((one[at], other[beside]))
    return together


def _of_rule(tape: Tape, at: Longs, rows: Longs, name: str) -> Longs:
    ruled = rows[:, _KIND] == ShareKind.RULED
    places = [int(rows[here, _PLACE]) for here in np.flatnonzero(ruled) if tape.notes.get(int(at[here])) == name]
    found: Longs = rows[ruled & np.isin(rows[:, _PLACE], places)][:, [_TIME, _VALUE]]
    return found


def _kernels(tape: Tape, at: Longs, rows: Longs, kind: ShareKind) -> Iterator[tuple[str, Longs, Longs]]:
    """Yield the kernels of a kind of rows: name, times and values."""
    of_kind = np.flatnonzero(rows[:, _KIND] == kind)
    for place in np.unique(rows[of_kind, _PLACE]).tolist():
        here = of_kind[rows[of_kind, _PLACE] == place]
        name = next((tape.notes[int(at[row])] for row in here if int(at[row]) in tape.notes), "(no name)")
        yield name, rows[here, _TIME], rows[here, _VALUE]


# --- numbers ------------------------------------------------------------------------------------------------------


def summarise(run: SharedRun) -> dict[str, Any]:
    """Return one row for a tape: the programs above, the others together, then each program."""
    rows = [program_row(run, program) for program in run.programs]
    known = [row for row in rows if row["slowdown"] is not None]
    since = min((program.joined for program in run.programs), default=0)
    seconds = (run.until - since) / SECOND
    return {
        "slowdown": max((row["slowdown"] for row in known), default=None),
        "slo": run.aims[-1, 2] / MILLION if len(run.aims) else None,
        "slo_p99": run.aims[-1, 3] / MILLION or None if len(run.aims) else None,
        "floor": run.aims[-1, 1] / MILLION if len(run.aims) else None,
        "above_aim_share": max((row["above_aim_share"] for row in known), default=None),
        "harvested_s": sum(row["harvested_s"] for row in rows),
        "delay_s": sum(row["delay_s"] for row in rows),
        "held_share": int(run.held[-1, 1]) / SECOND / seconds if len(run.held) and seconds else 0.0,
        "seconds": seconds,
        "programs": rows,
    }


def program_row(run: SharedRun, program: SharedProgram) -> dict[str, Any]:
    """Return the numbers of one program."""
    launches, waits, waited, work, harvested, delay = program.last
    last = program.slowdown[-1, 1:].tolist() if len(program.slowdown) else [None] * 5
    return {
        "program": program.name,
        "key": program.key,
        "priority": program.priority,
        "pid": program.pid,
        "joined_s": program.joined / SECOND,
        "ended_s": program.ended / SECOND,
        "how": program.how,
        "launches": launches,
        "waits": waits,
        "waited_s": waited / SECOND,
        "gpu_s": work / SECOND,
        "busy_share": work / program.lived,
        "harvested_s": harvested / SECOND,
        "harvested_share": harvested / program.lived,
        "delay_s": delay / SECOND,
        "slowdown": program.mean_slowdown(),
        "above_aim_share": program.share_above(run.aims),
        **{
            f"slowdown_{name}": None if ppm is None else ppm / MILLION
            for name, ppm in zip(("last", "low", "high"), last[:3], strict=True)
        },
        **{
            f"slowdown_p99{name}": int(program.tail[-1, at]) / MILLION if len(program.tail) else None
            for at, name in enumerate(("", "_low", "_high"), 1)
        },
        "sms": (program.sms_ppm or MILLION) / MILLION,
        "slowdown_holds": last[3] or 0,
        "slowdown_steps": last[4] or 0,
        "delays": [
            {"kernel": kernel.name, "delayed": run.delayed(program, kernel), "delay_s": int(kernel.delay[-1]) / SECOND}
            for kernel in program.kernels
        ],
        "charges": [
            {"kernel": kernel.name, "charge": int(kernel.charge_ppm[-1]) / MILLION}
            for kernel in program.charges
            if kernel.charge_ppm[-1]
        ],
    }
