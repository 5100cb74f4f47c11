"""The fit of drawn runs finds what functions take alone and what neighbours cost, in a made world that has both."""

from math import exp, log
from random import Random

import pytest

from bench import gpu_serve_tables as tables

ALONE_MS = {"long": 40.0, "short": 8.0}
COST = {("long", "long"): 0.2, ("long", "short"): 0.2, ("short", "long"): 0.2, ("short", "short"): 0.2}
STEP_MS, WORKERS = 0.25, 4


def made(costs: dict[tuple[str, str], float], until_ms: float, seed: int = 1) -> dict[str, object]:
    """Return what a mixture of runs leaves: each slowed down by those beside it while they are there."""
    drawn, names, now = Random(seed), list(ALONE_MS), 0.0
    running: list[tuple[str, float, float] | None] = [None] * WORKERS
    free_at, samples = [0.0] * WORKERS, []
    while now < until_ms:
        for worker in range(WORKERS):
            if running[worker] is None and now >= free_at[worker]:
                name = drawn.choice(names)
                running[worker] = (name, now, ALONE_MS[name] * exp(drawn.gauss(0, 0.02)))
        now += STEP_MS
        for worker, run in enumerate(list(running)):
            if run is not None:
                others = [each[0] for at, each in enumerate(running) if each is not None and at != worker]
                left = run[2] - STEP_MS * exp(-sum(costs[run[0], other] for other in others))
                running[worker] = (run[0], run[1], left)
                if left <= 0:
                    samples.append([worker, names.index(run[0]), 1, run[1], now])
                    running[worker], free_at[worker] = None, now + (now - run[1]) * drawn.expovariate(1.0)
    return {"functions": names, "slices": [1] * WORKERS, "cpus": 2, "samples": samples}


def test_costs_and_times_alone_are_found() -> None:
    fitted = tables.fit(made(COST, 20_000), {name: name for name in ALONE_MS})
    assert fitted.mean == pytest.approx(0.2, abs=0.04)
    for name, ms in ALONE_MS.items():
        assert fitted.cells[name, 1, 1][0] == pytest.approx(ms, rel=0.1)
    assert all(log(ratio) == pytest.approx(0.2, abs=0.1) for ratio in fitted.pairs.values())


def test_pairs_that_differ_are_told_apart() -> None:
    costs = {pair: 0.4 if pair == ("long", "long") else 0.0 for pair in COST}
    fitted = tables.fit(made(costs, 20_000), {name: name for name in ALONE_MS})
    assert max(fitted.pairs, key=fitted.pairs.__getitem__) == ("long", "long")


def test_functions_with_the_same_models_are_one_to_their_neighbours() -> None:
    fitted = tables.fit(made(COST, 2_000), dict.fromkeys(ALONE_MS, "weights"))
    assert list(fitted.pairs) == [("weights", "weights")]
    assert {cell[0] for cell in fitted.cells} == set(ALONE_MS)
