"""Interference of programs on one GPU: a table of slow-downs of pairs, and the rules for pairs not in it.

A row holds, for a program, a co-runner and the share of the SMs that the program may use, the program's slow-down
against running alone with the same SMs, and the throughput that the co-runner keeps. Jobs on parts of a GPU and batches
on one worker read their slow-downs here. They get plain numbers: the other scales know nothing of kernels.

A pair that is not in the table is looked up in this order:

1. The pair at another share of the SMs: the row with the nearest share; of two as near a measured one, then the
   smaller share.
2. The reversed pair: the throughput of the co-runner in that row gives the slow-down; where it is not known, the two
   count as slowing each other down alike.
3. The median of all rows. ``lookup`` says for which co-runners.

Beside several programs the slow-downs are multiplied.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from math import prod
from statistics import median
from typing import Any, NamedTuple

from headway.errors import ProfileError, unknown_name
from headway.units import REFERENCE_SPEED_PPM, counted

LEAST_SLOWDOWN_PPM = 100_000
MOST_SLOWDOWN_PPM = 1_000_000_000
MOST_HARVEST_PPM = 10_000_000


@dataclass(frozen=True, slots=True)
class Pair:
    """One row of the table."""

    program: str
    co_runner: str
    sm_share_ppm: int
    """Share of the SMs that the program may use; a million: all of them."""
    slowdown_ppm: int
    """Its time beside the co-runner over its time alone with the same SMs; a million: no slower."""
    harvest_ppm: int
    """Throughput of the co-runner beside the program over its throughput alone; 0: not known."""
    measured: bool
    """False: predicted from the two programs alone."""


class Slowdown(NamedTuple):
    """The slow-down of a program, and the co-runners for which it was guessed."""

    slowdown_ppm: int
    unknown: tuple[str, ...]
    """Co-runners without a row for this program: they count with the median."""


class PairTable:
    """Slow-downs by program, co-runner and share of the SMs."""

    def __init__(self, pairs: Sequence[Pair], where: str = "table", names: Mapping[str, str] | None = None) -> None:
        """Index the rows. ``names``: patterns of other names of programs, to their names here; the first match wins."""
        if not pairs:
            raise ProfileError(f"{where}: holds no pairs")
        self.where = where
        self.pairs = tuple(pairs)
        self.programs = frozenset(name for pair in pairs for name in (pair.program, pair.co_runner))
        self.default_ppm = round(median(pair.slowdown_ppm for pair in pairs))
        """The slow-down of a pair that is not in the table."""
        self.names = dict(names or {})
        for pattern, program in self.names.items():
            if program not in self.programs:
                raise ProfileError(f"{where}, programs {pattern!r}: {unknown_name('program', program, self.programs)}")
        self._rows: dict[tuple[str, str], list[Pair]] = {}
        for pair in pairs:
            self._rows.setdefault((pair.program, pair.co_runner), []).append(pair)
        self._known: dict[tuple[str, tuple[str, ...], int], Slowdown] = {}

    @classmethod
    def from_rows(
        cls, rows: Iterable[Any], where: str = "table", names: Mapping[str, str] | None = None
    ) -> "PairTable":
        """Return a table of the rows of a ``pairs.json``; of two for one share the measured one, then the later."""
        pairs: dict[tuple[str, str, int], Pair] = {}
        for number, row in enumerate(rows):
            pair = _pair(row, f"{where}, row {number}")
            key = (pair.program, pair.co_runner, pair.sm_share_ppm)
            if key not in pairs or pair.measured >= pairs[key].measured:
                pairs[key] = pair
        return cls(tuple(pairs.values()), where, names)

    def program_of(self, name: str) -> str:
        """Return the table's name of a program: that of the first pattern that matches, else its own."""
        return next((program for pattern, program in self.names.items() if fnmatchcase(name, pattern)), name)

    def knows(self, name: str) -> bool:
        """Return whether any row has a program."""
        return self.program_of(name) in self.programs

    def lookup(self, program: str, co_runners: Sequence[str], share_ppm: int) -> Slowdown:
        """Return the slow-down of a program beside others, at a share of the SMs."""
        key = (program, tuple(sorted(co_runners)), share_ppm)
        if (result := self._known.get(key)) is None:
            result = self._known[key] = self._lookup(*key)
        return result

    def slowdown_ppm(self, program: str, co_runners: Sequence[str], share_ppm: int) -> int:
        """Return the slow-down alone, without the guessed co-runners."""
        return self.lookup(program, co_runners, share_ppm).slowdown_ppm

    def _lookup(self, program: str, co_runners: tuple[str, ...], share_ppm: int) -> Slowdown:
        if not co_runners:
            return Slowdown(REFERENCE_SPEED_PPM, ())
        known = [self._beside(self.program_of(program), self.program_of(other), share_ppm) for other in co_runners]
        unknown = tuple(other for other, slower in zip(co_runners, known, strict=True) if slower is None)
        # one division at the end: the order of the neighbours must not show
        product = prod(self.default_ppm if slower is None else slower for slower in known)
        product //= REFERENCE_SPEED_PPM ** (len(known) - 1)
        return Slowdown(min(max(product, 1), MOST_SLOWDOWN_PPM), unknown)

    def _beside(self, program: str, other: str, share_ppm: int) -> int | None:
        if rows := self._rows.get((program, other)):
            return _nearest(rows, share_ppm).slowdown_ppm
        if rows := self._rows.get((other, program)):
            row = _nearest(rows, share_ppm)
            return _from_harvest(row.harvest_ppm) if row.harvest_ppm else row.slowdown_ppm
        return None


def _nearest(rows: Sequence[Pair], share_ppm: int) -> Pair:
    return min(rows, key=lambda row: (abs(row.sm_share_ppm - share_ppm), not row.measured, row.sm_share_ppm))


def _from_harvest(harvest_ppm: int) -> int:
    """Return the slow-down of a program with this throughput."""
    slower = (REFERENCE_SPEED_PPM**2 + harvest_ppm // 2) // harvest_ppm
    return min(max(slower, LEAST_SLOWDOWN_PPM), MOST_SLOWDOWN_PPM)


def expanded(
    table: PairTable, names: Sequence[str], shares_ppm: Iterable[int]
) -> tuple[dict[tuple[int, int, int], int], list[tuple[str, str]]]:
    """Return the slow-downs of all pairs of some programs at some shares, by position, and the unknown pairs."""
    slowdowns: dict[tuple[int, int, int], int] = {}
    unknown = []
    for share in sorted(set(shares_ppm)):
        for program, name in enumerate(names):
            for other, co_runner in enumerate(names):
                slowdowns[program, other, share], guessed = table.lookup(name, (co_runner,), share)
                if guessed and (name, co_runner) not in unknown:
                    unknown.append((name, co_runner))
    return slowdowns, unknown


# --- one row --------------------------------------------------------------------------------------------------


_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "program": (lambda value: isinstance(value, str) and bool(value), "must be a name"),
    "co_runner": (lambda value: isinstance(value, str) and bool(value), "must be a name"),
    "sm_share_ppm": (lambda value: _whole(value, 1, REFERENCE_SPEED_PPM), "must lie in 1 to 1,000,000"),
    "slowdown_ppm": (
        lambda value: _whole(value, LEAST_SLOWDOWN_PPM, MOST_SLOWDOWN_PPM),
        f"must lie in {LEAST_SLOWDOWN_PPM:,} to {MOST_SLOWDOWN_PPM:,} (1,000,000: no slower than alone)",
    ),
    "harvest_ppm": (lambda value: _whole(value, 0, MOST_HARVEST_PPM), f"must lie in 0 to {MOST_HARVEST_PPM:,}"),
    "measured": (lambda value: isinstance(value, bool), "must be true or false"),
}


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _pair(row: Any, where: str) -> Pair:
    """Return a checked row; further keys are ignored."""
    if not isinstance(row, Mapping):
        raise ProfileError(f"{where}: is no object with the keys {', '.join(_RULES)}")
    names = [field_.name for field_ in fields(Pair)]
    if missing := [name for name in names if name not in row]:
        raise ProfileError(f"{where}: {counted(len(missing), 'key')} missing: {', '.join(missing)}")
    for name in names:
        holds, rule = _RULES[name]
        if not holds(row[name]):
            raise ProfileError(f"{where}: {name} is {row[name]!r}: {rule}")
    return Pair(**{name: row[name] for name in names})
