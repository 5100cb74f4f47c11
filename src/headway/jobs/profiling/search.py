"""Choose the CPU counts to measure: Synergy's search from all CPUs down, then points that interpolation might miss.

The search (Mohan et al., OSDI 2022): all CPUs first; where throughput is within 10 % of the point before, half as many;
otherwise so many fewer as the program has GPUs; none below the lower end. Where it departs:

- where two points are in proportion to their CPUs everything below is, and the lower end is next;
- a step is at least a quarter of where the search is, so that large machines do not have too many; and where an eighth
  of the range is less than a CPU a GPU it may be as small as that, so that small machines have some;
- throughput is interpolated between points, so a knee between two of them is an error. If more CPUs help ever less,
  the curve lies above the chord of two neighbours and below the lines through the points beyond them; where these
  leave more than 5 % to doubt the corner is measured as well;
- programs start another thread or worker with each whole CPU, and the curve has steps there. So where it rises between
  two neighbours, and not just in proportion, the middle is measured, and again until it is where the line has it.
"""

import math
from collections.abc import Generator, Mapping
from itertools import pairwise

SAME = 0.10
"""Throughput within this share of the point before is the same."""
PROPORTIONAL = 0.05
DOUBT = 0.05
MOST_POINTS = 16
_FINEST = 0.05
_PARTS = 8
_SHORTEST_STEP = 4


def points(low: float, high: float, *, gpus: int = 1, whole: bool = False) -> Generator[float, float, None]:
    """Yield the CPU counts to measure, one after another: yields one, is sent its throughput."""
    least = unit(low, high, gpus, whole)
    seen: dict[float, float] = {high: (yield high)}
    at = high
    while at > low:
        at = max(low, _next(seen, least, whole))
        seen[at] = yield at
    while len(seen) < MOST_POINTS and (corner := _doubtful(seen, whole)) is not None:
        seen[corner] = yield corner
    straight: set[float] = set()
    while len(seen) < MOST_POINTS and (gap := _unsure(seen, least, straight)) is not None:
        below, above = gap
        middle = float((below + above) // 2) if whole else _on_grid((below + above) / 2)
        share = (middle - below) / (above - below)
        expected = seen[below] + share * (seen[above] - seen[below])
        seen[middle] = yield middle
        if abs(expected / seen[middle] - 1) <= DOUBT:
            straight |= {below, middle}


def unit(low: float, high: float, gpus: int, whole: bool) -> float:
    """Return the smallest step between points, and that of a grid over everything."""
    step = min(float(gpus), (high - low) / _PARTS)
    return max(1.0, math.floor(step)) if whole else max(_FINEST, _on_grid(step))


def _next(seen: Mapping[float, float], least: float, whole: bool) -> float:
    """Return the point after the lowest so far."""
    at, *above = sorted(seen)
    if not above or seen[at] >= (1 - SAME) * seen[above[0]]:
        return float(at // 2) if whole else _on_grid(at / 2)
    if abs(seen[at] / at / (seen[above[0]] / above[0]) - 1) <= PROPORTIONAL:
        return 0.0
    step = max(least, at / _SHORTEST_STEP)
    return at - math.ceil(step) if whole else _on_grid(at - step)


def _on_grid(cpus: float) -> float:
    return round(round(cpus / _FINEST) * _FINEST, 2)


def _doubtful(seen: Mapping[float, float], whole: bool) -> float | None:
    """Return where throughput may lie furthest above the line between two neighbours; None where that is not far."""
    cpus = sorted(seen)
    worst, doubtful = DOUBT, None
    for index in range(len(cpus) - 1):
        corner, doubt = _corner(seen, cpus, index)
        place = float(round(corner)) if whole else _on_grid(corner)
        if cpus[index] < place < cpus[index + 1] and doubt > worst:
            worst, doubtful = doubt, place
    return doubtful


def _unsure(seen: Mapping[float, float], least: float, straight: set[float]) -> tuple[float, float] | None:
    """Return the neighbours between which throughput rises most, but not in proportion, and nobody has looked."""
    cpus = sorted(seen)
    worst, pair = 1 + SAME, None
    for a, b in pairwise(cpus):
        rise = seen[b] / seen[a]
        proportional = abs(rise * a / b - 1) <= PROPORTIONAL
        if a not in straight and b - a >= 1.5 * least and not proportional and rise > worst:
            worst, pair = rise, (a, b)
    return pair


def _corner(seen: Mapping[float, float], cpus: list[float], index: int) -> tuple[float, float]:
    """Return where the curve can be furthest above its chord in the gap above a point, and how far, as a share."""
    a, b = cpus[index], cpus[index + 1]
    below = cpus[index - 1] if index else 0.0
    rising = (seen[a] - seen.get(below, 0.0)) / (a - below)
    beyond = cpus[index + 2] if index + 2 < len(cpus) else None
    after = max(0.0, (seen[beyond] - seen[b]) / (beyond - b)) if beyond is not None else 0.0
    chord = (seen[b] - seen[a]) / (b - a)
    if rising <= chord or chord <= after:
        return a, 0.0
    # the line from a with the slope before it meets the line into b with the slope behind it
    corner = (seen[b] - seen[a] + rising * a - after * b) / (rising - after)
    line = seen[a] + chord * (corner - a)
    return corner, rising * (corner - a) / line + seen[a] / line - 1
