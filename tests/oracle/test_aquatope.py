"""Aquatope's search takes the choices of a slow, literal form of its rules: dense algebra, point by point."""

from math import exp, inf, sqrt
from statistics import NormalDist

import numpy as np
import pytest

from headway.fleet.model.catalogue import Configuration
from headway.fleet.policies.aquatope.acquisition import Belief, believe, propose, score
from headway.fleet.policies.aquatope.gaussian import Process, Shape, fit, kernel
from headway.fleet.policies.aquatope.optimise import Sample, chosen, without_outliers
from headway.fleet.policies.aquatope.pool import PAST, Forecast
from headway.fleet.policies.aquatope.space import Floats, Space, value_at
from headway.fleet.policies.central.fronts import Option
from headway.streams import stream

CASES = range(200)
NORMAL = NormalDist()
NOISES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
JITTER = 1e-6


def matern(a: Floats, b: Floats, scales: tuple[int, ...]) -> float:
    """The correlation of two points, by the formula."""
    far = sqrt(5.0 * sum(((x - y) / 2.0**scale) ** 2 for x, y, scale in zip(a, b, scales, strict=True)))
    return (1.0 + far + far**2 / 3.0) * exp(-far)


def matrix(a: Floats, b: Floats, scales: tuple[int, ...]) -> Floats:
    return np.array([[matern(x, y, scales) for y in b] for x in a])


def drawn_process(random: np.random.Generator, count: int, axes: int) -> Process:
    """A process of random values at random points."""
    shape = Shape(tuple(int(s) for s in random.integers(-2, 3, axes)), int(random.integers(1, 6)))
    return Process(random.random((count, axes)), random.normal(size=count) * 3.0 + 1.0, shape)


def drawn_space(random: np.random.Generator) -> Space:
    """One or two tasks with three to five of 27 cells each."""
    tasks = []
    for _ in range(int(random.integers(1, 3))):
        cells = [divmod(int(at), 9) for at in random.permutation(27)[: int(random.integers(3, 6))]]
        configurations = [Configuration(1 + high, 1 + low // 3, 1 + low % 3) for high, low in cells]
        tasks.append([Option(1, 1, configuration) for configuration in configurations])
    return Space(tasks)


@pytest.mark.parametrize("seed", CASES)
def test_the_kernel_and_the_posterior_are_those_of_the_formulas(seed: int) -> None:
    random = stream(seed, "posterior")
    process = drawn_process(random, 6, 3)
    at, scales = random.random((4, 3)), process.shape.scales
    assert kernel(at, process.points, scales) == pytest.approx(matrix(at, process.points, scales), abs=1e-9)
    across = matrix(at, process.points, scales)
    noisy = matrix(process.points, process.points, scales) + NOISES[process.shape.noise] * np.eye(6)
    means, variances = process.predict(at)
    assert means == pytest.approx(across @ np.linalg.solve(noisy, process.values), abs=1e-5)
    explained = np.diag(across @ np.linalg.solve(noisy, across.T))
    assert variances == pytest.approx(process.variance * (1.0 - explained), abs=1e-5)


def test_leaving_one_out_says_what_a_process_of_the_others_says() -> None:
    for seed in CASES:
        random = stream(seed, "leave-one-out")
        process = drawn_process(random, int(random.integers(3, 9)), 2)
        noise = NOISES[process.shape.noise]
        means, variances = process.leave_one_out()
        for left, (mean, variance) in enumerate(zip(means, variances, strict=True)):
            others = [at for at in range(len(means)) if at != left]
            points = process.points[others]
            noisy = matrix(points, points, process.shape.scales) + noise * np.eye(len(others))
            across = matrix(process.points[[left]], points, process.shape.scales)[0]
            assert mean == pytest.approx(across @ np.linalg.solve(noisy, process.values[others]), abs=1e-5)
            literal = process.variance * (1.0 + noise - across @ np.linalg.solve(noisy, across))
            assert variance == pytest.approx(literal, rel=1e-4, abs=1e-8)


def literal_score(belief: Belief, at: Floats) -> float:
    """Improvement times probability of feasibility, for one draw after the other."""
    total, draws = 0.0, belief.objective.draws.shape[1]
    worst = belief.objective.draws.min() - 1.0
    for draw in range(draws):
        values = belief.objective.draws[:, draw]
        best, chance = max(values), 1.0
        if belief.latency is not None:
            times = belief.latency.draws[:, draw]
            best = max((v if t <= belief.limit else worst for v, t in zip(values, times, strict=True)))
            mean, deviation = literal_normal(belief.latency.process, belief.latency.points, times, at)
            chance = NORMAL.cdf((belief.limit - mean) / deviation)
        mean, deviation = literal_normal(belief.objective.process, belief.objective.points, values, at)
        ahead = (mean - best) / deviation
        total += deviation * (ahead * NORMAL.cdf(ahead) + NORMAL.pdf(ahead)) * chance
    return total / draws


def literal_normal(process: Process, points: Floats, values: Floats, at: Floats) -> tuple[float, float]:
    """Mean and deviation at a point, given values without noise."""
    scales = process.shape.scales
    near = matrix(points, points, scales) + JITTER * np.eye(len(points))
    across = matrix(at[None], points, scales)[0]
    explained = across @ np.linalg.solve(near, across)
    return across @ np.linalg.solve(near, values), sqrt(process.variance * max(1.0 - explained, 1e-12))


def test_the_next_sample_is_the_one_that_the_literal_acquisition_ranks_first() -> None:
    for seed in CASES:
        random = stream(seed, "acquisition")
        space = drawn_space(random)
        points = [tuple(point) for point in space.all_points().tolist()]
        known = {points[at] for at in random.permutation(len(points))[: int(random.integers(2, len(points)))][:4]}
        coordinates = space.coordinates(np.array(sorted(known)))
        shape = Shape(tuple(int(s) for s in random.integers(-1, 2, coordinates.shape[1])), int(random.integers(3, 6)))
        objective, latency = (Process(coordinates, random.normal(size=len(known)), shape) for _ in range(2))
        timed = latency if random.random() < 0.8 else None
        belief, pending = believe(objective, timed, float(random.normal()), 1, random)
        belief = belief._replace(
            objective=_first(belief.objective, 3), latency=_first(belief.latency, 3) if belief.latency else None
        )
        pending = [(first[:, :3], second[:, :3]) for first, second in pending]
        (pick,) = propose(space, belief, pending, known, np.array(sorted(known)), random)
        assert pick not in known
        fresh = [point for point in points if point not in known]
        literal = {point: literal_score(belief, space.coordinates(np.array([point]))[0]) for point in fresh}
        assert score(belief, space.coordinates(np.array(fresh))) == pytest.approx(list(literal.values()), abs=1e-5)
        assert literal[pick] == pytest.approx(max(literal.values()), rel=1e-4, abs=1e-6)


def _first(conditioned, count):  # type: ignore[no-untyped-def]
    """The same belief with its first draws only: a literal form of 32 takes long."""
    return type(conditioned)(conditioned.process, conditioned.points, conditioned.draws[:, :count])


def test_samples_are_left_out_where_the_others_predict_something_else() -> None:
    dropped = 0
    for seed in CASES:
        random = stream(seed, "outliers")
        space = drawn_space(random)
        points = [tuple(point) for point in space.all_points().tolist()][:12]
        samples = [Sample(p, float(random.normal(50, 5)), float(random.normal(90, 9))) for p in points]
        coordinates = space.coordinates(np.array(points))
        shapes = (Shape((1,) * coordinates.shape[1], 4), Shape((0,) * coordinates.shape[1], 5))
        kept = []
        columns = [np.array([-s.cost for s in samples]), np.array([s.latency for s in samples])]
        for at, sample in enumerate(samples):
            inside = True
            for values, shape in zip(columns, shapes, strict=True):
                process = Process(coordinates, values, shape)
                mean, variance = (numbers[at] for numbers in process.leave_one_out())
                inside &= mean - 1.96 * sqrt(variance) <= process.values[at] <= mean + 1.96 * sqrt(variance)
            if inside:
                kept.append(sample)
        assert without_outliers(space, samples, shapes) == (kept if len(kept) > 1 else samples)
        dropped += len(samples) - len(kept)
    assert dropped > 20


def test_the_plan_is_the_sample_of_least_cost_and_penalty() -> None:
    for seed in CASES:
        random = stream(seed, "choice")
        samples = [Sample((at,), float(c), float(t)) for at, (c, t) in enumerate(random.random((12, 2)) * 200)]
        limit = float(random.random() * 200)
        literal = max(samples, key=lambda s: -s.cost - 100.0 * (s.latency > limit))
        assert chosen(samples, limit, penalty=100.0) == literal
        in_time = [sample for sample in samples if sample.latency <= limit]
        repaired = min(in_time, key=lambda s: s.cost) if in_time else min(samples, key=lambda s: s.latency)
        assert chosen(samples, limit, penalty=inf) == repaired


def test_a_coordinate_means_the_nearest_value_on_a_full_grid() -> None:
    for seed in CASES:
        random = stream(seed, "grid")
        axes = [sorted({int(v) for v in random.integers(1, 30, int(random.integers(1, 6)))}) for _ in range(3)]
        cells = [Configuration(b, c, s) for b in axes[0] for c in axes[1] for s in axes[2]]
        space = Space([[Option(1, 1, cell) for cell in cells]])
        x = random.random(3)
        (option,) = space.options(space.nearest(x[None])[0].tolist())
        assert option.configuration == tuple(value_at(values, v) for values, v in zip(axes, x, strict=True))


def test_the_fit_never_lowers_the_likelihood() -> None:
    for seed in range(30):
        random = stream(seed, "fit")
        points = random.random((14, 3))
        values = np.sin(6.0 * points[:, 0]) + 0.1 * random.normal(size=14)
        start = Shape((1, 1, 1))
        assert _posterior(points, values, fit(points, values, start, 3).shape) >= _posterior(points, values, start)


def _posterior(points: Floats, values: Floats, shape: Shape) -> float:
    """The logarithm of likelihood times prior, with determinants."""
    standard = (values - values.mean()) / values.std()
    noisy = matrix(points, points, shape.scales) + NOISES[shape.noise] * np.eye(len(values))
    variance = standard @ np.linalg.solve(noisy, standard) / len(values)
    prior = -0.125 * sum((scale - np.log2(sqrt(len(shape.scales)))) ** 2 for scale in shape.scales)
    return float(-0.5 * len(values) * np.log(variance) - 0.5 * np.linalg.slogdet(noisy)[1] + prior)


def test_the_pool_is_that_of_the_regression_over_all_steps() -> None:
    for seed in CASES:
        random = stream(seed, "pool")
        counts = [int(c) for c in random.poisson(random.random() * 8, int(random.integers(1, 80)))]
        forecast = Forecast()
        for count in counts:
            forecast.observe(count)
        rows = [_features(counts[:at]) for at in range(1, len(counts))]
        prior = np.diag([1.0, 4.0, 4.0, 4.0])
        errors = [1.0]
        for at in range(len(rows)):
            errors.append((counts[at + 1] - rows[at] @ _solved(prior, rows[:at], counts[1 : at + 1])) ** 2)
        now = _features(counts)
        precision = prior + sum((np.outer(row, row) for row in rows), np.zeros((4, 4)))
        deviation = sqrt(sum(errors) / len(errors) * (1.0 + now @ np.linalg.solve(precision, now)))
        wanted = now @ _solved(prior, rows, counts[1:]) + 2.0 * deviation
        literal = max(0, int(np.ceil(wanted - 1e-6))) if any(counts[-PAST:]) else 0
        assert forecast.wanted(2.0) == literal


def _features(past: list[int]) -> Floats:
    window = past[-PAST:]
    return np.array([1.0, window[-1], np.mean(window[-12:]), np.mean(window)])


def _solved(prior: Floats, rows: list[Floats], counts: list[int]) -> Floats:
    precision, moment = prior.copy(), prior @ np.array([0.0, 1.0, 0.0, 0.0])
    for row, count in zip(rows, counts, strict=True):
        precision += np.outer(row, row)
        moment = moment + row * count
    return np.linalg.solve(precision, moment)
