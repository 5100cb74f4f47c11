"""``infless`` takes what a slow, literal form of its rules takes: instances for a rate, weights for instances."""

import random
from itertools import pairwise

import pytest

from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.policies.infless.dispatch import divide
from headway.fleet.policies.infless.instances import Instances
from headway.fleet.policies.infless.planner import Rates
from headway.fleet.policies.infless.stage import Stage
from headway.units import MILLISECOND
from tests.fleet.worlds import World, chain

Started = list[tuple[int, Configuration]]


def literal_grid(cells: dict[Configuration, int], slices: int) -> list[Configuration]:
    """At most half a GPU, and a CPU a request (two for a batch of 1); all cells where that leaves no batch of 1."""
    half = [c for c in cells if 2 * c.slices <= slices and c.cpus <= (2 if c.batch == 1 else c.batch)]
    return half if [c for c in half if c.batch == 1] else list(cells)


def literal_scale_up(
    nodes: list[tuple[int, int]],
    cells: dict[Configuration, int],
    slo_ms: int,
    rate: float,
    *,
    paper: bool,
    grid: bool,
) -> Started:
    """The published loop on whole ms, with an exit: nodes of (CPUs, slices), all empty."""
    free = [list(node) for node in nodes]
    started: Started = []
    residual = rate
    while residual > 0 and len(started) < 20:
        choice = None
        for batch in sorted({cell.batch for cell in cells}, reverse=True):
            best = 0.0
            for node, (cpus, slices) in enumerate(nodes):
                allowed = literal_grid(cells, slices) if grid else cells
                for cell in sorted((c for c in allowed if c.batch == batch), key=lambda c: (-c.cpus, -c.slices)):
                    time = cells[cell]
                    if time > (slo_ms / 2 if batch > 1 else slo_ms):
                        continue
                    up = batch * 1000 // time
                    low = batch * 1000 // (slo_ms - time) if batch > 1 else 1
                    if not up or low > residual or cell.cpus > free[node][0] or cell.slices > free[node][1]:
                        continue
                    need = 64 * cell.cpus + 142 * (100 * cell.slices / slices)
                    whole = 64 * cpus + 142 * 100
                    left = 64 * free[node][0] + 142 * (100 * free[node][1] / slices) - need
                    efficiency = (up / need if paper else up) / max(1e-9, left / whole)
                    if efficiency > best * (1 + 1e-9):  # equal ones: the first
                        best, choice = efficiency, (node, cell, up)
            if choice is not None:
                break
        if choice is None:
            return started
        node, cell, up = choice
        free[node][0] -= cell.cpus
        free[node][1] -= cell.slices
        started.append((node, cell))
        residual -= up
    return started


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("seed", range(200))
def test_instances_are_those_of_the_literal_loop(seed: int, grid: bool) -> None:
    draw = random.Random(seed)
    nodes = [(draw.choice([4, 8, 16]), draw.choice([4, 7])) for _ in range(draw.randint(1, 3))]
    base = draw.randint(5, 300)
    cells = {
        Configuration(b, c, s): max(1, round(base * (0.3 + 0.7 * b) / (c**0.4 * s**0.7) * draw.uniform(0.9, 1.1)))
        for b in (1, 2, 4, 8)
        for c in draw.sample([1, 2, 3, 4], 2)
        for s in draw.sample([1, 2, 3, 4], 2)
    }
    slo_ms = draw.choice([draw.randint(20, 900), 2 * draw.choice(list(cells.values()))])  # some just fit
    rate, paper = float(draw.randint(1, 200)), draw.random() < 0.5
    times = {cell: time * MILLISECOND for cell, time in cells.items()}
    function = Function("f", (), Profile({"": times}))
    fleet = Fleet(tuple(Worker(f"w{i}", Gpu("T4", 1, s), cpus=c, host=i) for i, (c, s) in enumerate(nodes)))
    state = World(Catalogue((), (function,), (chain("one", 0),)), fleet, ()).state(central=True)
    metric = "paper" if paper else "code"
    instances = Instances(state, most_batch=0, safety=0.0, metric=metric, whole=True, grid=grid)
    stage = Stage((0, 0), 0, function, slo_ms * MILLISECOND, 0)
    assert list(instances.scale_up(state, stage, rate, 20)) == []  # no process to start
    started = [(instance.plan.worker, instance.plan.cell.configuration) for instance in stage.instances]
    assert started == literal_scale_up(nodes, cells, slo_ms, rate, paper=paper, grid=grid)


def literal_weights(rate: float, windows: list[Rates]) -> list[float]:
    """The published dispatch, one subset after the other."""

    def spread(kept: list[int]) -> list[float]:
        low, up = sum(windows[i].low for i in kept), sum(windows[i].up for i in kept)
        part = (up - rate) / (up - low) if up > low else 0.0
        return [w.up - part * (w.up - w.low) if i in kept else 0.0 for i, w in enumerate(windows)]

    everyone = list(range(len(windows)))
    low, up = sum(w.low for w in windows), sum(w.up for w in windows)
    if rate > up:
        return [w.up for w in windows]
    if rate >= low + 0.8 * (up - low):
        return spread(everyone)
    for least in (0.8, 0.4, 0.2, 0.0):
        for stopped in range(2 ** len(windows) - 1):
            kept = [i for i in everyone if not stopped >> i & 1]
            low, up = sum(windows[i].low for i in kept), sum(windows[i].up for i in kept)
            if low <= rate <= up and rate - low >= least * (up - low):
                return spread(kept)
    weights, left = [], rate
    for window in windows:
        weights.append(min(window.up, left))
        left -= weights[-1]
    return weights


@pytest.mark.parametrize("seed", range(200))
def test_weights_are_those_of_the_literal_dispatch(seed: int) -> None:
    draw = random.Random(seed)
    windows = []
    for _ in range(draw.randint(1, 7)):
        low = draw.randint(1, 20)
        windows.append(Rates(float(low), float(low + draw.randint(0, 40)), 0))
    rate = draw.uniform(0.0, 1.2) * sum(window.up for window in windows)
    weights, excess, _ = divide(rate, windows)
    assert list(weights) == pytest.approx(literal_weights(rate, windows))
    assert sum(weights) + excess == pytest.approx(rate)  # nobody is lost
    assert all(weight <= window.up + 1e-9 for weight, window in zip(weights, windows, strict=True))


def test_the_search_for_a_subset_ends_where_the_published_one_does() -> None:
    """With 20 instances the last masks are not looked at: all but one of the first are stopped in them."""
    windows = [Rates(10.0 * 2**i, 10.0 * 2**i + 1, 0) for i in range(20)]
    assert all(a.up < b.low for a, b in pairwise(windows))
    weights, _, stopped = divide(10.5, windows)  # only the first alone holds it: mask 0b1111...10, past the end
    assert stopped is None
    assert weights == (10.5, *[0.0] * 19)


def test_of_many_instances_the_last_are_always_kept() -> None:
    """Of 40 instances the masks that are looked at hold the first 20, so they take no more memory than those."""
    weights, _, stopped = divide(39.0, [Rates(1.0, 2.0, 0)] * 40)
    assert stopped == 2**19 - 1  # 21 are kept, at 18 / 21 of their windows; with one more it would be 17 / 22
    assert weights == pytest.approx((*[0.0] * 19, *[39 / 21] * 21))
