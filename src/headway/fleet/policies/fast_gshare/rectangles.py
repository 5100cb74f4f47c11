"""Placement by maximal rectangles: a GPU is a rectangle of slices × quota, a pod a smaller one.

The free area of a GPU is kept as all its maximal free rectangles, which may overlap. A pod goes into the corner of the
free rectangle that it fills best. Slices and quota are not interchangeable: no pod is turned.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Rectangle(NamedTuple):
    """A part of a GPU: from slice ``x`` and quota ``y`` on."""

    x: int
    y: int
    width: int
    height: int

    @property
    def area(self) -> int:
        """Return slices × quota."""
        return self.width * self.height

    def contains(self, other: "Rectangle") -> bool:
        """Return whether another rectangle lies within this one."""
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.width <= self.x + self.width
            and other.y + other.height <= self.y + self.height
        )

    def without(self, other: "Rectangle") -> list["Rectangle"]:
        """Return the maximal rectangles that are left of this one: itself, or up to four pieces."""
        right, top = self.x + self.width, self.y + self.height
        other_right, other_top = other.x + other.width, other.y + other.height
        if other.x >= right or other_right <= self.x or other.y >= top or other_top <= self.y:
            return [self]
        pieces = (
            Rectangle(self.x, self.y, other.x - self.x, self.height),
            Rectangle(other_right, self.y, right - other_right, self.height),
            Rectangle(self.x, self.y, self.width, other.y - self.y),
            Rectangle(self.x, other_top, self.width, top - other_top),
        )
        return [piece for piece in pieces if piece.width > 0 and piece.height > 0]


def free_rectangles(width: int, height: int, held: Iterable[Rectangle]) -> list[Rectangle]:
    """Return the maximal free rectangles of a GPU with these pods, leftmost and lowest first."""
    free = {Rectangle(0, 0, width, height)}
    for pod in held:
        pieces = {piece for rectangle in free for piece in rectangle.without(pod)}
        free = {piece for piece in pieces if not any(other != piece and other.contains(piece) for other in pieces)}
    return sorted(free)


def best_area_fit(
    free: Iterable[Rectangle], width: int, height: int, starts: Sequence[int] | None = None
) -> tuple[int, Rectangle] | None:
    """Return the area left over in the free rectangle that a pod fills best, and the pod's place; None: it never fits.

    ``starts``: the slices where a pod may begin, where not in any corner.
    """
    best: tuple[int, Rectangle] | None = None
    for rectangle in free:
        for x in (rectangle.x,) if starts is None else starts:
            pod = Rectangle(x, rectangle.y, width, height)
            left = rectangle.area - pod.area
            if rectangle.contains(pod) and (best is None or (left, pod) < best):
                best = left, pod
    return best
