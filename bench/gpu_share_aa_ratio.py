"""What moments of holding tell of a slow-down: steps in them against steps beside, by several ways of comparing.

Pure functions of arrays, times in nanoseconds. A hold is a moment in which those below are held. A step counts as held
when all of it lies in a hold and begins after the drain (what was in flight below has ended by then), as beside when
none of it does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
MS = 1_000_000
NEAR_NS = 500 * MS
"""As far from a hold its steps are compared with others, or three holds where these are longer."""
CLOSE_NS = 100 * MS
"""The same for those that are close, or one hold."""
PACE, FAR_PACE, LIKE = 0.02, 0.1, 9
SURE = 1.96 * 1.2533 * 1.4826
"""Of a median: 95 % lie within so many median deviations over the root of the count, if they were normal."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps in the order of their begin; steps of one key are alike."""

    begin: Longs
    end: Longs
    key: Longs

    def cut(self, first_ns: int, last_ns: int) -> "Steps":
        """Return the steps that lie between two times."""
        a, b = np.searchsorted(self.begin, (first_ns, last_ns))
        b -= int(b > a and self.end[b - 1] > last_ns)
        return Steps(self.begin[a:b], self.end[a:b], self.key[a:b])

    @property
    def took(self) -> Doubles:
        """Return how long each took."""
        return (self.end - self.begin).astype(np.float64)

    def by_pause(self) -> "Steps":
        """Return the same steps; alike are those that also came after a pause of the same length, by powers of 4."""
        pause = np.maximum(1, self.begin[1:] - self.end[:-1]) if len(self.begin) else self.begin
        bucket = np.concatenate(([0], np.log2(pause / 50e3).clip(0) // 2 + 1)).astype(np.int64)[: len(self.begin)]
        return Steps(self.begin, self.end, self.key * 64 + bucket)


class Split(NamedTuple):
    """Which steps are beside; which are held, and in which hold (-1: in none)."""

    beside: Flags
    hold: Longs


class Estimate(NamedTuple):
    """A slow-down, the half-width of its interval (where there is one), and on how many holds and steps it rests."""

    ratio: float
    half: float
    holds: int
    steps: int


NOTHING = Estimate(float("nan"), float("nan"), 0, 0)


def split(steps: Steps, holds: Longs, drain_ns: int, also: Longs | None = None) -> Split:
    """Return which steps are held and which beside; steps that touch ``also`` (held for another reason) are neither."""
    hold = np.searchsorted(holds[:, 0], steps.begin, "right") - 1
    at = np.maximum(hold, 0)
    inside = (hold >= 0) & (steps.begin >= holds[at, 0] + drain_ns) & (steps.end <= holds[at, 1])
    beside = ~_touches(steps, holds)
    if also is not None and len(also):
        beside &= ~_touches(steps, also)
    return Split(beside, np.where(inside, hold, -1))


def _touches(steps: Steps, spans: Longs) -> Flags:
    last = np.searchsorted(spans[:, 0], steps.end, "left") - 1
    return (last >= 0) & (spans[np.maximum(last, 0), 1] > steps.begin)


def pooled(steps: Steps, holds: Longs, where: Split) -> Estimate:
    """The median of all steps beside over that of all held ones."""
    held = where.hold >= 0
    if not held.any() or not where.beside.any():
        return NOTHING
    took = steps.took
    ratio = float(np.median(took[where.beside]) / np.median(took[held]))
    return Estimate(ratio, float("nan"), len(np.unique(where.hold[held])), int(held.sum()))


def like(steps: Steps, holds: Longs, where: Split) -> Estimate:
    """The same for each kind of step by itself; the mean over kinds, by held steps."""
    took, held, found = steps.took, where.hold >= 0, []
    for key in np.unique(steps.key[held]):
        mine = steps.key == key
        if (mine & where.beside).any():
            ratio = np.median(took[mine & where.beside]) / np.median(took[mine & held])
            found.append((float(np.log(ratio)), int((mine & held).sum())))
    count = sum(n for _, n in found)
    if not count:
        return NOTHING
    return Estimate(
        float(np.exp(sum(v * n for v, n in found) / count)), float("nan"), len(np.unique(where.hold[held])), count
    )


def pairs(steps: Steps, holds: Longs, where: Split) -> Estimate:
    """The median of the steps just before and after each hold, as long as it was, over that of its own; their median.

    Where a hold is short, at least one step on each side is taken.
    """
    values, count, took = [], 0, steps.took
    held_at, beside_at = np.flatnonzero(where.hold >= 0), np.flatnonzero(where.beside)
    begins = steps.begin[beside_at]
    for number, mine in _by_hold(held_at, where.hold[held_at]):
        start, stop = holds[number]
        a, b, c = np.searchsorted(begins, (2 * start - stop, start, 2 * stop - start))
        near = beside_at[min(a, max(b - 1, 0)) : max(c, min(b + 1, len(beside_at)))]
        if len(near):
            values.append(float(np.log(_median(took[near]) / _median(took[mine]))))
            count += len(mine)
    return _of_medians(np.array(values), count)


def near(steps: Steps, holds: Longs, where: Split) -> Estimate:
    """Each held step against the median of like steps near in time; the median a hold, then of all holds."""
    return _of_medians(*hold_values(steps, windows(holds, NEAR_NS, 3), where))


def near_mean(steps: Steps, holds: Longs, where: Split) -> Estimate:
    """As ``near``, with the mean over holds, without the tenth at either end."""
    return _of_means(*hold_values(steps, windows(holds, NEAR_NS, 3), where))


def close(steps: Steps, holds: Longs, where: Split) -> Estimate:
    """As ``near``, with a shorter reach."""
    return _of_medians(*hold_values(steps, windows(holds, CLOSE_NS, 1), where))


def close_mean(steps: Steps, holds: Longs, where: Split) -> Estimate:
    """As ``near_mean``, with a shorter reach."""
    return _of_means(*hold_values(steps, windows(holds, CLOSE_NS, 1), where))


def cycle_mean(steps: Steps, holds: Longs, where: Split) -> Estimate:
    """As ``near_mean``, against all steps back to the hold before and up to the one after."""
    return _of_means(*hold_values(steps, cycle_windows(holds), where))


def windows(holds: Longs, far_ns: int, times: int) -> Longs:
    """Return from when to when steps are near each hold: as far from it as given, or so many holds."""
    far = np.maximum(far_ns, times * (holds[:, 1] - holds[:, 0]))
    return np.stack((holds[:, 0] - far, holds[:, 1] + far), axis=1)


def cycle_windows(holds: Longs) -> Longs:
    """Return from when to when there is no other hold."""
    big = np.iinfo(np.int64)
    before, after = np.append(big.min, holds[:-1, 1]), np.append(holds[1:, 0], big.max)
    return np.stack((before, after), axis=1)


def _of_means(values: Doubles, count: int) -> Estimate:
    if len(values) < 2:
        return NOTHING
    cut = len(values) // 10
    kept = np.sort(values)[cut : len(values) - cut]
    # Of a trimmed mean: the spread is that of the values drawn in to the outermost kept ones.
    spread = float(np.clip(values, kept[0], kept[-1]).std(ddof=1)) / (1 - 2 * cut / len(values))
    ratio = float(np.exp(kept.mean()))
    return Estimate(ratio, ratio * student(len(values)) * spread / len(values) ** 0.5, len(values), count)


def hold_values(steps: Steps, reach: Longs, where: Split) -> tuple[Doubles, int]:
    """Return for each hold the median logarithm of its steps' slow-down, and how many steps that rests on.

    ``reach`` says for each hold from when to when other steps are compared with its own.
    """
    logs = np.log(steps.took)
    held_at = np.flatnonzero(where.hold >= 0)
    groups = {int(k): np.flatnonzero(where.beside & (steps.key == k)) for k in np.unique(steps.key[held_at])}
    begins = {k: steps.begin[at] for k, at in groups.items()}
    values, count = [], 0
    for number, mine in _by_hold(held_at, where.hold[held_at]):
        found: list[float] = []
        for key in np.unique(steps.key[mine]):
            a, b = np.searchsorted(begins[int(key)], reach[number])
            if b > a:
                usual = _median(logs[groups[int(key)][a:b]])
                found += (usual - logs[mine[steps.key[mine] == key]]).tolist()
        if found:
            values.append(_median(np.array(found)))
            count += len(found)
    return np.array(values), count


def paced_values(steps: Steps, cpu: Longs, reach: Longs, where: Split) -> tuple[Doubles, Doubles, int]:
    """Return what holds tell by steps whose processor took about as long, what they tell by all, and how many steps.

    ``cpu``: the time of the processor in each step. It changes by far more than what is looked for, and for a second at
    a time. What those beside do to it is the median of the difference of both, over all holds.
    """
    logs, held_at = np.log(steps.took), np.flatnonzero(where.hold >= 0)
    groups = {int(k): np.flatnonzero(where.beside & (steps.key == k)) for k in np.unique(steps.key[held_at])}
    begins = {k: steps.begin[at] for k, at in groups.items()}
    values, plain, count = [], [], 0
    for number, mine in _by_hold(held_at, where.hold[held_at]):
        found: list[tuple[float, float]] = []
        for key in np.unique(steps.key[mine]):
            a, b = np.searchsorted(begins[int(key)], reach[number])
            if b > a:
                near = groups[int(key)][a:b]
                usual = _median(logs[near])
                for each in mine[steps.key[mine] == key]:
                    if (like := at_pace(int(cpu[each]), cpu[near], logs[near], float(np.exp(usual)))) is not None:
                        found.append((like - logs[each], usual - logs[each]))
        if found:
            values.append(_median(np.array([each for each, _ in found])))
            plain.append(_median(np.array([each for _, each in found])))
            count += len(found)
    return np.array(values), np.array(plain), count


def at_pace(cpu_ns: int, cpu: Longs, logs: Doubles, step_ns: float) -> float | None:
    """Return the median of those whose processor took as long, to a fiftieth of a step, or of the nearest nine.

    None where the nearest differ by more than a tenth.
    """
    far = np.abs(cpu - cpu_ns)
    like = far <= step_ns * PACE
    if like.sum() < LIKE:
        like = far <= min(step_ns * FAR_PACE, float(np.sort(far)[min(LIKE, len(far)) - 1]))
    return _median(logs[like]) if like.any() else None


def _median(values: Doubles) -> float:
    """Return the median; of few values, several times as fast as NumPy's."""
    values = np.sort(values)
    return float(values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def _by_hold(at: Longs, hold: Longs) -> list[tuple[int, Longs]]:
    if not len(at):
        return []
    edges = np.flatnonzero(np.diff(hold)) + 1
    return [(int(hold[part[0]]), at[part]) for part in np.split(np.arange(len(at)), edges)]


def _of_medians(values: Doubles, count: int) -> Estimate:
    if len(values) < 2:
        return NOTHING
    middle = float(np.median(values))
    spread = float(np.median(np.abs(values - middle)))
    ratio = float(np.exp(middle))
    return Estimate(ratio, ratio * SURE * spread / len(values) ** 0.5, len(values), count)


def student(count: int) -> float:
    """About the 97.5 % point of Student's distribution."""
    free = max(1, count - 1)
    return 1.96 + 2.4 / free + 8.4 / free**3


def near_pause(steps: Steps, holds: Longs, where: Split) -> Estimate:
    """As ``near_mean``; alike are also the pauses before."""
    return near_mean(steps.by_pause(), holds, where)


WAYS: dict[str, Callable[[Steps, Longs, Split], Estimate]] = {
    "pooled medians": pooled,
    "medians of like steps": like,
    "median of neighbours": pairs,
    "like and near, median": near,
    "like and near, mean": near_mean,
    "like and close, median": close,
    "like and close, mean": close_mean,
    "like, near and pause, mean": near_pause,
    "like, whole cycle, mean": cycle_mean,
}


def drawn_holds(first_ns: int, last_ns: int, hold_ns: int, share: float, draw: np.random.Generator) -> Longs:
    """Return holds of one length at random, one a period, so that they take this share of the time."""
    period = round(hold_ns / share)
    starts = np.arange(first_ns, last_ns - period + 1, period)
    starts = starts + draw.integers(0, max(1, period - hold_ns), len(starts))
    return np.stack((starts, starts + hold_ns), axis=1)
