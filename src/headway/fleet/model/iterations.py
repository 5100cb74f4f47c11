"""How long one iteration of a language model takes, interpolated from measured iterations.

An iteration computes decode rows (one token of each running request), prefill tokens (parts of prompts), or both.
Decode rows are interpolated over rows and mean context, prefill tokens over their number and the tokens before them.
Both in one iteration take the sum, and what the measured mixtures differ from it. Beyond the cells the line goes on.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headway.units import MILLISECOND

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Line = Mapping[int, float]
LEAST_NS = 2
"""A request that an iteration admits is said to compute 1 ns after it began, before it can end."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Measured iterations in milliseconds, and what a server adds to them."""

    decode: Mapping[int, Line]
    """By decode rows: milliseconds by context."""
    prefill: Mapping[int, Line]
    """By prefill tokens: milliseconds by the tokens before them."""
    mixed: Mapping[tuple[int, int, int], float]
    """By decode rows, their context and prefill tokens."""
    host_ms: float = 0.0
    """What the host takes for each iteration."""
    row_sizes: tuple[int, ...] = ()
    """Decode rows are padded to the next of these; empty: they are not padded."""
    mixed_row_sizes: tuple[int, ...] = ()
    """The same where prefill tokens are in the iteration."""
    token_sizes: tuple[int, ...] = ()
    """Prefill tokens are padded to the next of these."""
    undivided_rows: int = 1
    """From so many rows on, attention does not divide the context of a row among processors."""
    longest_ms: tuple[float, float] = (0.0, 0.0)
    """Milliseconds for each 1,000 tokens that the longest context is above the mean: below ``undivided_rows``, and
    from there on."""


class Decode(NamedTuple):
    """The decode rows of an iteration: how many, the sum of their contexts, and the longest of them."""

    rows: int = 0
    total: int = 0
    longest: int = 0


NO_ROWS = Decode()


class IterationTable:
    """Nanoseconds of iterations."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self._decode: dict[int, tuple[FloatArray, FloatArray, FloatArray]] = {}
        self._lines: dict[tuple[int, int], Line] = {}
        """Lines of iterations with prefill tokens, by decode rows and prefill tokens, once they were needed."""
        prompts = {tokens: line[0] for tokens, line in cells.prefill.items() if 0 in line}
        self._prompts = prompts
        self._after = {
            tokens: {before: ms - _along(tokens, prompts) for before, ms in line.items()}
            for tokens, line in cells.prefill.items()
            if len(line) > 1
        }
        self._shared: dict[int, dict[int, dict[int, float]]] = {}
        """By rows, prefill tokens and context: what a mixture takes more than its two parts."""
        for (rows, context, tokens), ms in cells.mixed.items():
            parts = self._decode_ms(rows, context) + self._prefill_ms(tokens, 0)
            self._shared.setdefault(rows, {}).setdefault(tokens, {})[context] = ms - parts
        self._befores = sorted({before for line in self._after.values() for before in line} | {0})
        self._contexts = sorted({context for line in cells.decode.values() for context in line})
        self._mixed_contexts = sorted({context for _, context, _ in cells.mixed} | set(self._contexts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IterationTable) and self.cells == other.cells

    __hash__ = None  # type: ignore[assignment]

    def decode_times(self, rows: Decode, count: int, growth: int, ended_longest: int = 0) -> IntArray:
        """Return the nanoseconds of ``count`` iterations of the same decode rows, one after the other.

        Of the rows ``growth`` grow by a token in each, ``rows.longest`` being the longest of these; the others have
        ended and wait for the batch, ``ended_longest`` being the longest of them.
        """
        width = _padded(rows.rows, self.cells.row_sizes)
        knots, values, slopes = self._decode_line(width)
        step = np.arange(count, dtype=np.int64)
        total = rows.total + growth * step
        at = total / width
        left = np.clip(np.searchsorted(knots, at, "right") - 1, 0, len(knots) - 1)
        longest = np.maximum(rows.longest + step, ended_longest)
        above = np.maximum(longest - total / rows.rows, 0.0)
        ms = values[left] + slopes[left] * (at - knots[left]) + above * self._above_ms(width) + self.cells.host_ms
        return np.maximum(np.rint(ms * MILLISECOND), LEAST_NS).astype(np.int64)

    def time(self, rows: Decode, tokens: int, before: float) -> int:
        """Return the nanoseconds of an iteration with prefill tokens, ``before`` tokens before them in the mean."""
        cells = self.cells
        padded = _padded(tokens, cells.token_sizes)
        ms = cells.host_ms + _along(before, self._prefill_line(padded))
        if rows.rows:
            width = _padded(rows.rows, cells.mixed_row_sizes)
            above = max(rows.longest - rows.total / rows.rows, 0.0)
            ms += _along(rows.total / width, self._mixed_line(width, padded)) + above * self._above_ms(width)
        return max(LEAST_NS, round(ms * MILLISECOND))

    # --- lines: the sizes that occur are few, and each line is interpolated once ----------------------------------

    def _decode_line(self, width: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the contexts at which the time of so many rows bends, the milliseconds there, and the slopes."""
        if width not in self._decode:
            contexts, values = self._contexts, [self._decode_ms(width, context) for context in self._contexts]
            slopes = [
                (right - left) / (beyond - here)
                for left, right, here, beyond in zip(values, values[1:], contexts, contexts[1:], strict=False)
            ]
            slopes.append(slopes[-1] if slopes else 0.0)
            self._decode[width] = (np.array(contexts, float), np.array(values, float), np.array(slopes, float))
        return self._decode[width]

    def _prefill_line(self, tokens: int) -> Line:
        """Return the milliseconds of prefill tokens alone by the tokens before them."""
        if (line := self._lines.get((0, tokens))) is None:
            line = self._lines[0, tokens] = {before: self._prefill_ms(tokens, before) for before in self._befores}
        return line

    def _mixed_line(self, width: int, tokens: int) -> Line:
        """Return by context what decode rows add to prefill tokens."""
        if (line := self._lines.get((width, tokens))) is None:
            line = self._lines[width, tokens] = {
                context: self._decode_ms(width, context) + self._shared_ms(width, context, tokens)
                for context in self._mixed_contexts
            }
        return line

    def _above_ms(self, width: int) -> float:
        """Return the milliseconds of each token that the longest context is above the mean."""
        return self.cells.longest_ms[width >= self.cells.undivided_rows] / 1000

    def _decode_ms(self, rows: float, context: float) -> float:
        return _along(rows, {known: _along(context, line) for known, line in self.cells.decode.items()})

    def _prefill_ms(self, tokens: int, before: float) -> float:
        """Return the milliseconds of prefill tokens alone.

        Fewer tokens than were measured after a context cost as much for it as the fewest that were.
        """
        ms = _along(tokens, self._prompts)
        if before and self._after:
            ms += _along(max(tokens, min(self._after)), {n: _along(before, line) for n, line in self._after.items()})
        return ms

    def _shared_ms(self, rows: float, context: float, tokens: float) -> float:
        """Return what both in one iteration take more than one after the other; beyond the cells the nearest holds."""
        if not self._shared:
            return 0.0
        planes = {
            known: _clipped(tokens, {chunk: _clipped(context, line) for chunk, line in plane.items()})
            for known, plane in self._shared.items()
        }
        return _clipped(rows, planes)


def _along(at: float, line: Line) -> float:
    """Return the value at a point between the known ones; beyond them the line goes on."""
    known = sorted(line)
    if len(known) == 1:
        return line[known[0]]
    left = min(max(bisect_right(known, at) - 1, 0), len(known) - 2)
    low, high = known[left], known[left + 1]
    share = (at - low) / (high - low)
    return line[low] * (1 - share) + line[high] * share


def _clipped(at: float, line: Line) -> float:
    return _along(min(max(at, min(line)), max(line)), line)


def _padded(count: int, sizes: Sequence[int]) -> int:
    return next((size for size in sizes if size >= count), count)
