"""Draw small pictures of numbers over time with characters: for a terminal that is watched."""

from collections.abc import Sequence

_EIGHTHS = " ▁▂▃▄▅▆▇█"
VALUE, INTERVAL, AIM, NOTHING = "●", "░", "┄", " "
Point = tuple[float, float, float] | None
"""Lower end, value, upper end; None where nothing was known."""


def spark(values: Sequence[float | None], top: float) -> str:
    """Return a line of bars, one a value; ``top`` is the height of a full one, what is unknown is blank."""
    return "".join(_bar(value, top) for value in values)


def _bar(value: float | None, top: float) -> str:
    if value is None:
        return NOTHING
    filled = round(8 * value / top) if top > 0 else 0
    return _EIGHTHS[max(1, min(8, filled))]  # what is known to be nothing has the lowest bar


def band(points: Sequence[Point], aim: float, height: int) -> list[str]:
    """Return values with their intervals, a column a point, the highest line first; labels stand on the left.

    The scale holds all values, the aim and 1; of the intervals what fits into twice that.
    """
    low, high = _scale(points, aim)
    step = (high - low) / max(1, height - 1)
    rows = [high - step * row for row in range(height)]
    aimed = min(range(height), key=lambda row: abs(rows[row] - aim))
    return [
        f"{rows[row]:6.3f} ┤" + "".join(_cell(point, rows[row], step, row == aimed) for point in points)
        for row in range(height)
    ]


def _scale(points: Sequence[Point], aim: float) -> tuple[float, float]:
    values = [1.0, aim, *(point[1] for point in points if point is not None)]
    low, high = min(values), max(values)
    room = max(0.01, (high - low) / 2)
    known = [point for point in points if point is not None]
    lowest = max(low - room, min((point[0] for point in known), default=low))
    highest = min(high + room, max((point[2] for point in known), default=high))
    return min(low, lowest), max(high, highest, low + 0.01)


def _cell(point: Point, level: float, step: float, is_aim: bool) -> str:
    blank = AIM if is_aim else NOTHING
    if point is None:
        return blank
    low, value, high = point
    if abs(value - level) <= step / 2:
        return VALUE
    return INTERVAL if low - step / 2 <= level <= high + step / 2 and not is_aim else blank
