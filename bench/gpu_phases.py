"""Phases of a processor, from recordings of a program alone: how slow, how often, how long.

    python -m bench.gpu_phases FILE.npz...

A recording holds ``begin``, ``launched`` and ``end`` of each step in ns: its first launch, its last one, and the end of
the wait. From the first launch to the last one is CPU time. Two states of it are fitted, each with its mean and spread,
and the probabilities to change from step to step (a hidden Markov model, by Baum and Welch).
"""

import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
ROUNDS = 300
STRAY = 1e-4
"""Likelihood of a step that belongs to neither state."""


class Phases(NamedTuple):
    """What was found: of the fast state, then of the slow one."""

    mean_ms: tuple[float, float]
    spread: tuple[float, float]
    slow_share: float
    """Of the steps."""
    length_s: tuple[float, float]
    """Mean length of a phase."""

    @property
    def slower(self) -> float:
        """By how much a slow phase is slower."""
        return self.mean_ms[1] / self.mean_ms[0]


def phases(launching_ms: Floats, took_ms: Floats) -> Phases:
    """Fit both states to the CPU times of steps."""
    logs = np.log(launching_ms)
    mean, spread = np.quantile(logs, (0.1, 0.9)), np.full(2, 0.08)
    change = np.array([[0.97, 0.03], [0.03, 0.97]])
    likely = np.zeros((len(logs), 2))
    for _ in range(ROUNDS):
        likely, change = _expected(np.exp(-(((logs[:, None] - mean) / spread) ** 2) / 2) / spread + STRAY, change)
        weight = likely.sum(axis=0)
        mean = (likely * logs[:, None]).sum(axis=0) / weight
        spread = np.maximum(0.01, np.sqrt((likely * (logs[:, None] - mean) ** 2).sum(axis=0) / weight))
    order = np.argsort(mean)
    state = np.argsort(order)[likely.argmax(axis=1)]
    edges = [0, *(np.flatnonzero(np.diff(state)) + 1).tolist(), len(state)]
    runs = [(int(state[first]), took_ms[first:last].sum() / 1e3) for first, last in pairwise(edges)]
    lengths = [[length for which, length in runs if which == each] for each in (0, 1)]
    return Phases(
        tuple(np.exp(mean[order]).tolist()),
        tuple(spread[order].tolist()),
        float(likely[:, order[1]].mean()),
        tuple(float(np.mean(each)) if each else 0.0 for each in lengths),  # type: ignore[arg-type]
    )


def _expected(emitted: Floats, change: Floats) -> tuple[Floats, Floats]:
    """How likely each step is in each state, and the changes from state to state that follow."""
    count = len(emitted)
    ahead, behind, scale = np.zeros((count, 2)), np.ones((count, 2)), np.zeros(count)
    before = np.full(2, 0.5)
    for at in range(count):
        ahead[at] = before * emitted[at]
        scale[at] = ahead[at].sum()
        ahead[at] /= scale[at]
        before = ahead[at] @ change
    pairs = np.zeros((2, 2))
    for at in range(count - 2, -1, -1):
        value = emitted[at + 1] * behind[at + 1] / scale[at + 1]
        behind[at] = change @ value
        pairs += ahead[at][:, None] * change * value
    likely = ahead * behind
    return likely / likely.sum(axis=1, keepdims=True), pairs / pairs.sum(axis=1, keepdims=True)


def main() -> None:
    """Print a line a recording."""
    for name in sys.argv[1:]:
        steps = np.load(name)
        begin, launched, end = (steps[key] / 1e6 for key in ("begin", "launched", "end"))
        found = phases(launched - begin, end - begin)
        p50, p95 = np.percentile(end - begin, (50, 95))
        print(
            f"{Path(name).stem}: {len(begin)} steps, p50 {p50:.2f} ms, p95 {p95:.2f}; launching takes "
            f"{found.mean_ms[0]:.2f} and {found.mean_ms[1]:.2f} ms ({found.slower:.2f} times), spread "
            f"{found.spread[0]:.3f} and {found.spread[1]:.3f}; slow {found.slow_share:.2f} of the steps; phases of "
            f"{found.length_s[0]:.2f} and {found.length_s[1]:.2f} s"
        )


if __name__ == "__main__":
    main()
