"""Contention that is not waiting: which kernel below slows the program above, by how much, learnt from holds.

A kernel that runs beside the program above may slow it down though no launch of it ever waits: by memory bandwidth,
caches, power. The reflex reckons with waits and shared SMs only. Each hold tells how slow the program above was around
it; counters of the programs below tell how long each of their kernels ran beside it then, and what delay was reckoned
for that. What is slower than reckoned belongs to the kernels that ran: a least-squares fit over the holds of the last
minutes tells by how much a unit of each one's time beside delays the program above. Coefficients are not negative, and
are drawn toward zero, or toward what was known before; only one that is surely above zero is charged.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Reversible, Sequence
from dataclasses import dataclass, field
from math import exp, sqrt
from operator import mul
from typing import NamedTuple

from headway.gpu.control.holds import Measured
from headway.gpu.control.slowdown import MILLION, Hold, Step, deviation

Kernel = tuple[str, int]
"""A kernel below: its program, and its number."""
Clients = tuple[int, int]
"""A counter: the client, and the number of its kernel."""
KEPT_NS = 120_000_000_000
SAMPLES_NS = 8_000_000_000
LEAST_ROWS = 15
"""Nothing new is said before so many holds."""
LEAST_PPM = 10_000
"""What delays by less than this part of its time is not charged."""
MOST_PPM = 2_000_000
_TOLD = 16
"""A hold tells of so many kernels, those that ran longest."""
_MOST_KERNELS = 8
_LEAST_SHARE = 0.03
"""Kernels with less of the time beside are one: the rest."""
_USUAL = 0.3
"""Standard deviation of contention before anything is known of it, in parts of a kernel's time."""
_RECKONED = 0.5
"""Of the factor by which delays are as reckoned, which is about 1."""
_SURE = 2.0
_ROUNDS = 3
_FAR = 3.0
"""A hold that is further off than so many standard deviations counts less."""
_LEAST_NOISE = 0.003
_STEP = 0.2
"""A charge is left as it is while it is right up to this part of it."""
_KEPT = 0.7
"""Of a charge so much is believed after two minutes that do not confirm it."""
_MOST_BESIDE = 100


class Sample(NamedTuple):
    """Counters of all programs below at one moment."""

    at_ns: int
    beside_ns: Mapping[Clients, int]
    """By client and kernel: GPU time launched so far that was to run beside programs above."""
    harm_ns: int
    """Delay above that was reckoned for that so far, without contention."""
    programs: Mapping[int, str]
    """The program of each client."""


class Row(NamedTuple):
    """What one hold tells, per unit of the time of the steps around it."""

    at_ns: int
    lost: float
    """The part of the time that the program above lost."""
    reckoned: float
    beside: Mapping[Kernel, float]
    others: float = 0.0
    """Of all kernels that are not among these."""


class Found(NamedTuple):
    """The contention of one kernel: delay above by its time beside, and the standard deviation of that."""

    value: float
    error: float


# --- from counters to rows ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Samples:
    """The counters of the last seconds."""

    kept: deque[Sample] = field(default_factory=deque)

    def add(self, sample: Sample) -> None:
        """Take in the counters of now."""
        self.kept.append(sample)
        while sample.at_ns - self.kept[0].at_ns > SAMPLES_NS:
            self.kept.popleft()

    def row(self, measured: Measured, steps: Reversible[Step]) -> Row | None:
        """Return what a hold tells; None where the counters around it are not known."""
        beside: dict[Kernel, float] = {}
        harm = time = 0.0
        parts = _around(measured.hold) if measured.hold is not None else []
        if not parts:
            return None
        for begin, end in parts:
            grown = self._between(begin, end)
            if grown is None:
                return None
            for kernel, ns in grown[0].items():
                beside[kernel] = beside.get(kernel, 0.0) + ns
            harm += grown[1]
        for step in reversed(steps):
            if step.end_ns <= parts[0][0]:
                break
            time += sum(max(0, min(end, step.end_ns) - max(begin, step.begin_ns)) for begin, end in parts)
        time = min(time, sum(end - begin for begin, end in parts))
        if time <= 0 or sum(beside.values()) > _MOST_BESIDE * time:
            return None  # nobody's numbers
        ordered = sorted((kernel for kernel in beside if beside[kernel] > 0), key=lambda kernel: -beside[kernel])
        rates = {kernel: beside[kernel] / time for kernel in ordered[:_TOLD]}
        others = sum(beside[kernel] for kernel in ordered[_TOLD:]) / time
        return Row(measured.at_ns, 1 - exp(-measured.value.excess), harm / time, rates, others)

    def _between(self, begin_ns: int, end_ns: int) -> tuple[dict[Kernel, float], float] | None:
        """Return by how much counters grew in a stretch of time; None where that is not known."""
        first, last = self._at(begin_ns), self._at(end_ns)
        if first is None or last is None:
            return None
        grown: dict[Kernel, float] = {}
        for (client, number), ns in last[0].items():
            program, before = last[2].get(client, ""), first[0].get((client, number), 0.0)
            if ns < before or first[2].get(client, program) != program:
                return None  # another program has its slot now
            if program:
                grown[program, number] = grown.get((program, number), 0.0) + ns - before
        harm = last[1] - first[1]
        return (grown, harm) if harm >= 0 else None

    def _at(self, at_ns: int) -> tuple[dict[Clients, float], float, Mapping[int, str]] | None:
        """Return counters at a moment, in proportion between two samples."""
        before = after = None
        for sample in reversed(self.kept):
            if sample.at_ns <= at_ns:
                before = sample
                break
            after = sample
        if before is None or (after is None and before.at_ns < at_ns):
            return None
        if after is None:
            return dict(before.beside_ns), float(before.harm_ns), before.programs
        part = (at_ns - before.at_ns) / (after.at_ns - before.at_ns)
        counts = {key: part * ns + (1 - part) * before.beside_ns.get(key, 0) for key, ns in after.beside_ns.items()}
        return counts, part * after.harm_ns + (1 - part) * before.harm_ns, after.programs


def _around(hold: Hold) -> list[tuple[int, int]]:
    """Return the stretches of time whose steps are compared with those in a hold."""
    again = hold.end_ns + hold.settle_ns
    parts = [
        (max(hold.begin_ns - hold.reach_ns, hold.since_ns), hold.begin_ns),
        (again, min(again + hold.reach_ns, hold.until_ns)),
    ]
    return [(begin, end) for begin, end in parts if end > begin]


# --- from rows to contention -------------------------------------------------------------------------------------


def fit(rows: Sequence[Row], known: Mapping[Kernel, float] | None = None) -> dict[Kernel, Found]:
    """Return the contention of the kernels that ran most beside the program above, by all rows.

    ``known``: what was known before; others are drawn toward zero.
    """
    known = known or {}
    kernels = _dominant(rows, known)
    if not kernels:
        return {}
    table = [
        [row.reckoned for row in rows],
        *([row.beside.get(kernel, 0.0) for row in rows] for kernel in kernels),
        [row.others + sum(share for kernel, share in row.beside.items() if kernel not in kernels) for row in rows],
    ]
    middle = [1.0, *(known.get(kernel, 0.0) for kernel in kernels), 0.0]
    spread = [_RECKONED, *(_USUAL / 2 * (1 + middle[1 + at]) for at in range(len(kernels))), _USUAL]
    lost = [row.lost for row in rows]
    noise = max(_LEAST_NOISE, deviation(lost))
    weights = [1.0] * len(rows)
    best, errors = middle, spread
    for _ in range(_ROUNDS):
        best, errors = _solve(table, lost, [weight / noise**2 for weight in weights], middle, spread)
        missed = [each - _dot(best, line) for each, line in zip(lost, zip(*table, strict=True), strict=True)]
        noise = max(_LEAST_NOISE, deviation(missed))
        weights = [min(1.0, _FAR * noise / max(abs(each), 1e-9)) for each in missed]
    return {kernel: Found(best[1 + at], errors[1 + at]) for at, kernel in enumerate(kernels)}


def _dominant(rows: Sequence[Row], known: Mapping[Kernel, float]) -> list[Kernel]:
    """Return the kernels with most of the time beside, and those that are charged: what is dear goes less often."""
    total: dict[Kernel, float] = {}
    for row in rows:
        for kernel, share in row.beside.items():
            total[kernel] = total.get(kernel, 0.0) + share
    least = _LEAST_SHARE * (sum(total.values()) + sum(row.others for row in rows))
    most = sorted(total, key=lambda kernel: (-total[kernel], kernel))[:_MOST_KERNELS]
    seen = [kernel for kernel in known if total.get(kernel, 0.0) > 0]
    return list(dict.fromkeys([*(kernel for kernel in most if total[kernel] > least), *seen]))


def _dot(some: Iterable[float], others: Iterable[float]) -> float:
    return float(sum(map(mul, some, others)))


def _solve(
    table: Sequence[Sequence[float]],
    lost: Sequence[float],
    weights: Sequence[float],
    middle: Sequence[float],
    spread: Sequence[float],
) -> tuple[list[float], list[float]]:
    """Return the coefficients of columns that fit best and are not negative, and the standard deviation of each."""
    size = len(middle)
    scaled = [list(map(mul, weights, column)) for column in table]
    square = [[_dot(column, other) for other in table] for column in scaled]
    right = [_dot(column, lost) + middle[at] / spread[at] ** 2 for at, column in enumerate(scaled)]
    for at in range(size):
        square[at][at] += 1 / spread[at] ** 2
    best = list(middle)
    for _ in range(300):  # each in its turn, until none moves: there are few of them
        moved = 0.0
        for at in range(size):
            value = max(0.0, best[at] + (right[at] - _dot(square[at], best)) / square[at][at])
            moved, best[at] = max(moved, abs(value - best[at])), value
        if moved < 1e-6:
            break
    free = [at for at in range(size) if best[at] > 0]
    errors = list(spread)
    variances = _diagonal_of_inverse([[square[at][other] for other in free] for at in free])
    for at, variance in zip(free, variances, strict=True):
        errors[at] = sqrt(max(0.0, variance))
    return best, errors


def _diagonal_of_inverse(square: list[list[float]]) -> list[float]:
    """Return the diagonal of the inverse of a positive definite matrix."""
    size = len(square)
    wide = [[*line, *(1.0 if at == other else 0.0 for other in range(size))] for at, line in enumerate(square)]
    for at in range(size):
        pivot = wide[at][at]
        wide[at] = [value / pivot for value in wide[at]]
        for other in range(size):
            if other != at and (part := wide[other][at]):
                wide[other] = [value - part * mine for value, mine in zip(wide[other], wide[at], strict=True)]
    return [wide[at][size + at] for at in range(size)]


# --- of one program above ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Contention:
    """What is known of the contention of all kernels below one program above."""

    charged_ppm: dict[Kernel, int] = field(default_factory=dict)
    """What the reflex is to reckon with."""
    rows: deque[Row] = field(default_factory=deque)
    _known: dict[Kernel, float] = field(default_factory=dict)
    _known_ns: int = 0

    def recall(self, known_ppm: Mapping[Kernel, int]) -> None:
        """Begin with what was known before."""
        self.charged_ppm.update(known_ppm)
        self._known.update({kernel: ppm / MILLION for kernel, ppm in known_ppm.items()})

    def add(self, row: Row) -> None:
        """Take in what a hold has told."""
        if not self.rows:
            self._known_ns = row.at_ns
        self.rows.append(row)
        while row.at_ns - self.rows[0].at_ns > KEPT_NS:
            self.rows.popleft()
        if row.at_ns - self._known_ns > KEPT_NS:  # what was learnt from holds that are forgotten now
            self._known_ns = row.at_ns
            self._known = {kernel: _KEPT * ppm / MILLION for kernel, ppm in self.charged_ppm.items()}

    def learn(self) -> None:
        """Charge the kernels that surely contend, by all holds that are kept; what changes little is left as it is."""
        if len(self.rows) < LEAST_ROWS:
            return
        for kernel, (value, error) in fit(self.rows, self._known).items():
            sure = kernel in self._known or value > _SURE * error
            ppm = min(MOST_PPM, round(value * MILLION))
            before = self.charged_ppm.get(kernel, 0)
            if not sure or ppm < LEAST_PPM:
                self.charged_ppm.pop(kernel, None)
            elif abs(ppm - before) > _STEP * before:
                self.charged_ppm[kernel] = ppm

    def eased(self, before_ppm: Mapping[Kernel, int], scale: float) -> float:
        """Return about by what factor the program above loses less or more by charges that were ``before_ppm``.

        A kernel is let through in inverse proportion to its price. ``scale``: what the dial multiplies reckoned delays
        with now.
        """
        late = list(self.rows)[-LEAST_ROWS:]
        beside: dict[Kernel, float] = {}
        for row in late:
            for kernel, share in row.beside.items():
                beside[kernel] = beside.get(kernel, 0.0) + share
        reckoned = sum(row.reckoned for row in late) / max(sum(beside.values()), 1e-9)
        lost = now = 0.0
        for kernel, share in beside.items():
            old, new = (charged.get(kernel, 0) / MILLION for charged in (before_ppm, self.charged_ppm))
            truth, usual = reckoned + max(old, new), max(reckoned * scale, 1e-3)
            lost += truth * share
            now += truth * share * (usual + old) / (usual + new)
        return now / lost if lost > 0 else 1.0
