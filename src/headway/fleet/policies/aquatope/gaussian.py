"""Gaussian process with a Matérn 5/2 kernel, a length scale for each coordinate, and its own noise; for Aquatope.

Length scales and noise are powers of two and ten, chosen by the marginal likelihood with a weak prior; the variance
follows in closed form. Discrete choices keep rounding errors of one machine from growing into another plan.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from headway.fleet.policies.aquatope.space import Floats

_NOISES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Variance of the noise over that of the process."""
_WIDEST = 4
"""Length scales reach from 2^-4 to 2^4 of the cube's edge."""
_JITTER = 1e-6
"""Added to the diagonal where values without noise are conditioned on."""


@dataclass(frozen=True)
class Shape:
    """Hyperparameters: exponents of the length scales, and the position of the noise."""

    scales: tuple[int, ...]
    noise: int = 2


def kernel(a: Floats, b: Floats, scales: tuple[int, ...]) -> Floats:
    """Return the Matérn 5/2 correlations of two sets of points."""
    lengths = 2.0 ** np.array(scales, dtype=np.float64)
    a, b = a / lengths, b / lengths
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None] - 2.0 * (a @ b.T)
    return _matern(squares)


def _matern(squares: Floats) -> Floats:
    far = np.sqrt(5.0 * np.maximum(squares, 0.0))
    correlations: Floats = (1.0 + far + far * far / 3.0) * np.exp(-far)
    return correlations


class Process:
    """A process fitted to values at points; values are kept with mean 0 and deviation 1."""

    def __init__(self, points: Floats, values: Floats, shape: Shape) -> None:
        self.points, self.shape = points, shape
        self.mean = float(values.mean())
        self.deviation = float(values.std()) or 1.0
        self.values = (values - self.mean) / self.deviation
        self._correlations = kernel(points, points, shape.scales)
        noisy = self._correlations + _NOISES[shape.noise] * np.eye(len(points))
        self._inverse = np.linalg.inv(noisy)
        self._weights = self._inverse @ self.values
        self.variance = max(float(self.values @ self._weights) / len(values), 1e-9)

    def standard(self, value: float) -> float:
        """Return a value on the scale of the process."""
        return (value - self.mean) / self.deviation

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the variance, without noise, at points; on the scale of the process."""
        across = kernel(points, self.points, self.shape.scales)
        explained = (across @ self._inverse * across).sum(axis=1)
        return across @ self._weights, self.variance * np.maximum(1.0 - explained, 0.0)

    def leave_one_out(self) -> tuple[Floats, Floats]:
        """Return for each value the mean and the variance, with noise, that the other values predict for it."""
        own = np.diag(self._inverse)
        return self.values - self._weights / own, self.variance / own

    def draws(self, normals: Floats) -> Floats:
        """Return joint draws of the values without noise at its own points, a column for each column of normals."""
        explained = self._correlations @ self._inverse
        covariance = self.variance * (self._correlations - explained @ self._correlations)
        jitter = self.variance * _JITTER * np.eye(len(covariance))
        root = np.linalg.cholesky((covariance + covariance.T) / 2.0 + jitter)
        return (explained @ self.values)[:, None] + root @ normals


class Conditioned:
    """A process given values without noise at points, in several draws at once."""

    def __init__(self, process: Process, points: Floats, draws: Floats) -> None:
        self.process, self.points, self.draws = process, points, draws
        near = kernel(points, points, process.shape.scales) + _JITTER * np.eye(len(points))
        self._inverse = np.linalg.inv(near)
        self._weights = self._inverse @ draws

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Return the means, a column for each draw, and the deviation, the same for all draws."""
        across = kernel(points, self.points, self.process.shape.scales)
        explained = (across @ self._inverse * across).sum(axis=1)
        return across @ self._weights, np.sqrt(self.process.variance * np.maximum(1.0 - explained, 1e-12))

    def extended(self, point: Floats, normals: Floats) -> "Conditioned":
        """Return the process given one more point, with the values that ``normals`` draw for it."""
        means, deviation = self.predict(point)
        drawn = means + deviation[:, None] * normals
        return Conditioned(self.process, np.concatenate((self.points, point)), np.concatenate((self.draws, drawn)))


def fit(points: Floats, values: Floats, shape: Shape, sweeps: int = 1) -> Process:
    """Return the process with the most likely hyperparameters, by steps up and down from given ones."""
    spread = float(values.std()) or 1.0
    standard = (values - values.mean()) / spread
    squares = [(column[:, None] - column[None]) ** 2 for column in points.T]
    scales, noise = list(shape.scales), shape.noise
    total = np.zeros((len(values), len(values)))
    for square, scale in zip(squares, scales, strict=True):
        total += square * 4.0**-scale
    best = _likelihood(total, standard, noise) + _prior(scales)
    for _ in range(sweeps):
        for axis, square in enumerate(squares):
            for step in (1, -1):
                moved = scales[axis] + step
                if abs(moved) > _WIDEST:
                    continue
                trial = total + square * (4.0**-moved - 4.0 ** -scales[axis])
                likely = _likelihood(trial, standard, noise) + _prior([*scales[:axis], moved, *scales[axis + 1 :]])
                if likely > best + 1e-6:
                    best, total, scales[axis] = likely, trial, moved
                    break
        for other in (noise + 1, noise - 1):
            if 0 <= other < len(_NOISES):
                likely = _likelihood(total, standard, other) + _prior(scales)
                if likely > best + 1e-6:
                    best, noise = likely, other
                    break
    return Process(points, values, Shape(tuple(scales), noise))


def _likelihood(squares: Floats, values: Floats, noise: int) -> float:
    """Return the log marginal likelihood at the best variance, without its constant."""
    root = np.linalg.cholesky(_matern(squares) + _NOISES[noise] * np.eye(len(values)))
    white = np.linalg.solve(root, values)
    count = len(values)
    variance = max(float(white @ white) / count, 1e-9)
    return -0.5 * count * float(np.log(variance)) - float(np.log(np.diag(root)).sum())


def _prior(scales: list[int]) -> float:
    """Return the log of a wide log-normal prior of the length scales about the square root of their number."""
    middle = float(np.log2(sqrt(max(1, len(scales)))))
    return -0.125 * sum((scale - middle) ** 2 for scale in scales)
