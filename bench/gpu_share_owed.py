"""What has not been measured with the present build yet, most needed first; and the next of it, within a budget.

    scripts/gpu-share owed [--state FOLDER] [--from results.tar.gz]              lists it; needs no GPU
    scripts/gpu-share next [--state FOLDER] [--from results.tar.gz] [--out FOLDER] [--budget 540]

``next`` goes down the list as far as the budget reaches; called again it goes on. A machine that starts empty is given
what earlier calls brought back: ``--from`` unpacks it into a state folder without rows.
"""

import argparse
import tarfile
import time
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.gpu_share_dial import AGAIN_S, AROUND_S, build_id
from bench.gpu_share_rows import rows

Row = dict[str, Any]
Part = Callable[[argparse.Namespace, float], None]
START_S = 45.0
"""Until the programs of a part run."""
AIMS = (1.05, 1.2, 1.02)
PAIR_S = 24.0
LONG_S = 60.0


@dataclass(frozen=True)
class Piece:
    """Rows that one part of ``scripts/gpu-share`` measures in one set of processes."""

    part: str
    why: str
    wanted: tuple[str, ...]
    """Names of its rows."""
    done: frozenset[str]
    row_s: float
    """Seconds that a row takes, about."""
    flags: Row = field(default_factory=dict)
    """What the part is told beside what the command is."""
    whole: bool = False
    """It cannot be cut: it has to fit into the budget as a whole."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The rows that are not there."""
        return tuple(name for name in self.wanted if name not in self.done)

    @property
    def seconds(self) -> float:
        """How long the rest of it takes."""
        return START_S + self.row_s * len(self.missing) if self.missing else 0.0

    @property
    def least_s(self) -> float:
        """The least budget with which it is begun: to measure for less time than it takes to start is a waste."""
        return self.seconds if self.whole else START_S + max(self.row_s, min(START_S, self.seconds - START_S))


def plan(state: Path) -> list[Piece]:
    """Everything that is measured of a build, most needed first."""
    from bench import gpu_share_aa_programs as programs
    from bench.gpu_share import FRESH, PAIRS, THINKS_MS

    here = build_id()

    def mine(name: str) -> list[Row]:
        return [row for row in rows(state / f"{name}.jsonl") if row.get("build") == here]

    def of_build(name: str) -> frozenset[str]:
        return frozenset({name} if mine(name) else ())

    def of_any(name: str) -> frozenset[str]:  # what MPS, time slicing and programs alone do hangs on no build
        return frozenset(map(_name, rows(state / f"{name}.jsonl")))

    aims: dict[str, set[float]] = {}
    for row in mine("dialled"):
        if row.get("sms", 100) == 100:
            aims.setdefault(_name(row), set()).add(row["slo"])
    at_all = frozenset(pair for pair, told in aims.items() if told >= set(AIMS))
    at_first = frozenset(pair for pair, told in aims.items() if AIMS[0] in told)
    new, known = _named(programs.NEW_PAIRS), _named(programs.PAIRS)
    above = tuple(dict.fromkeys(high for high, _ in programs.NEW_PAIRS))
    before = tuple(f"{pair} {think}" for pair in _named((*PAIRS, *FRESH)) for think in THINKS_MS)
    settings = frozenset(f"{_name(row)} {row['think_ms']:g}" for row in mine("pairs"))
    return [
        Piece("new", "aims, first ten seconds, rate below, energy", new, at_all, _pair_s(AIMS), _told(AIMS)),
        Piece("limits", "the best setting of MPS", new, of_any("limits"), 25.0, {"only": ";".join(new)}),
        Piece("open", "what the gate costs one that is never held", ("open",), of_build("open"), 30.0, whole=True),
        Piece("sliced", "time slicing", new, of_any("sliced"), 10.0, {"only": ";".join(new)}),
        Piece("commands", "what a user types", ("commands",), of_build("commands"), 60.0, whole=True),
        Piece("coverage", "every launch is seen", ("coverage",), of_build("coverage"), 60.0, whole=True),
        Piece("kills", "deaths beside a program above", ("kills",), of_build("kills"), 150.0, whole=True),
        Piece("known", "pairs that it once misread", known, at_first, _pair_s(AIMS[:1]), _told(AIMS[:1])),
        Piece("alone", "against 60 s alone", above, of_any("alone"), LONG_S + 5, {"pair_seconds": LONG_S}),
        Piece("both", "the settings of before", before, settings, 14.0),
    ]


def _told(aims: Sequence[float]) -> Row:
    return {"pair_seconds": PAIR_S, "slo": ",".join(f"{aim:g}" for aim in aims)}


def _pair_s(aims: Sequence[float]) -> float:
    return PAIR_S + AGAIN_S * (len(aims) - 1) + AROUND_S


def _named(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{high}+{low}" for high, low in pairs)


def _name(row: Row) -> str:
    return str(row["program"]) if "program" in row else f"{row['high']}+{row['low']}"


def listed(pieces: Sequence[Piece]) -> list[str]:
    """The list, as a person reads it."""
    owed = [piece for piece in pieces if piece.missing]
    if not owed:
        return [f"build {build_id()}: nothing is owed"]
    total = sum(piece.seconds for piece in owed)
    lines = [f"build {build_id()}: about {total:,.0f} s of a GPU are owed, most needed first"]
    for piece in owed:
        some = ", ".join(piece.missing[:3]) + (", …" if len(piece.missing) > 3 else "")
        count = f"{len(piece.missing)} of {len(piece.wanted)}"
        lines.append(f"{piece.part:9} {piece.seconds:6,.0f} s  {count:>8}  {piece.why}: {some}")
    return lines


def owed(given: argparse.Namespace, _: float) -> None:
    """Print what is owed."""
    restore(given)
    print("\n".join(listed(plan(given.state))), flush=True)


def go_on(given: argparse.Namespace, budget_s: float, parts: dict[str, Part]) -> None:
    """Measure what is owed, most needed first, as far as the budget reaches; then print what is left."""
    restore(given)
    end, failed = time.monotonic() + budget_s, []
    for piece in plan(given.state):
        left = end - time.monotonic()
        if not piece.missing or left < piece.least_s:
            continue
        print(f"{piece.part}: {len(piece.missing)} rows, {left:.0f} s left", flush=True)
        told = copy(given)
        vars(told).update(piece.flags)
        try:
            parts[piece.part](told, left)
        except Exception as problem:  # noqa: BLE001 - the others are measured all the same
            failed.append(f"{piece.part}: {problem!r}")
            print(f"failed: {failed[-1]}", flush=True)
    print("\n".join(listed(plan(given.state))), flush=True)
    if failed:
        raise SystemExit("; ".join(failed))


def restore(given: argparse.Namespace) -> None:
    """Unpack what earlier calls brought back, where the state folder has no rows yet."""
    if given.restored is None or any(given.state.glob("*.jsonl")):
        return
    with tarfile.open(given.restored) as kept:
        kept.extractall(given.state, filter="data")
    print(f"went on from {given.restored}", flush=True)
