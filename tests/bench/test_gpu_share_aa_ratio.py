"""Ways of comparing held steps with others: on drawn steps whose slow-down is known, each finds it."""

import numpy as np
import pytest

from bench import gpu_share_aa_tables as tables
from bench.gpu_share_aa_ratio import MS, WAYS, Steps, drawn_holds, near_mean, pooled, split

SECOND = 1_000 * MS


def drawn(slowdown: float, seed: int = 1, kinds: tuple[float, ...] = (3.0,), drift: float = 0.0) -> tuple[Steps, ...]:
    """Return 20 s of steps and their holds, 5 % of the time; beside, steps take longer by the slow-down."""
    draw = np.random.default_rng(seed)
    holds = drawn_holds(0, 20 * SECOND, 50 * MS, 0.05, draw)
    begin, end, key, now, turn = [], [], [], 0, 0
    while now < 20 * SECOND:
        number = int(np.searchsorted(holds[:, 0], now, "right")) - 1
        held = number >= 0 and holds[number, 0] + 2 * MS <= now < holds[number, 1]
        kind = turn % len(kinds)
        usual = kinds[kind] * (1 + drift * np.sin(now / SECOND))
        took = int(usual * MS * draw.lognormal(0, 0.03) * (1.0 if held else slowdown))
        begin.append(now)
        end.append(now + took)
        key.append(kind)
        now, turn = now + took + 50_000, turn + 1
    return Steps(np.array(begin), np.array(end), np.array(key)), holds


@pytest.mark.parametrize("slowdown", [1.0, 1.05, 1.3])
@pytest.mark.parametrize("way", list(WAYS))
def test_every_way_finds_a_known_slow_down(way: str, slowdown: float) -> None:
    steps, holds = drawn(slowdown)
    found = WAYS[way](steps, holds, split(steps, holds, 2 * MS))
    assert found.ratio == pytest.approx(slowdown, abs=0.02)
    assert found.holds == 20
    assert found.steps > 200


def test_like_steps_are_compared_with_like_ones() -> None:
    """Long holds fit more of the long steps than short ones do: what is pooled is then a ratio of mixtures."""
    steps, holds = drawn(1.1, kinds=(2.0, 40.0))
    where = split(steps, holds, 2 * MS)
    assert abs(pooled(steps, holds, where).ratio - 1.1) > 0.05
    assert near_mean(steps, holds, where).ratio == pytest.approx(1.1, abs=0.02)


def test_what_is_near_does_not_see_a_drift() -> None:
    off: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(8):
        steps, holds = drawn(1.05, seed, drift=0.3)
        where = split(steps, holds, 2 * MS)
        for way, estimate in WAYS.items():
            off[way].append(abs(estimate(steps, holds, where).ratio - 1.05))
    assert max(off["like and near, mean"]) < 0.02
    assert np.mean(off["like and near, mean"]) < np.mean(off["pooled medians"]) / 2


def test_the_interval_covers_what_is_true_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(30):
        steps, holds = drawn(1.05, seed, kinds=(3.0, 9.0), drift=0.1)
        found = near_mean(steps, holds, split(steps, holds, 2 * MS))
        inside += abs(found.ratio - 1.05) <= found.half
    assert inside >= 26


def test_a_step_that_a_hold_cuts_is_on_neither_side() -> None:
    steps = Steps(np.array([0, 10, 20, 30, 40, 60]), np.array([9, 19, 29, 39, 59, 69]), np.zeros(6, np.int64))
    where = split(steps, np.array([[15, 45]]), 3)
    assert where.beside.tolist() == [True, False, False, False, False, True]
    assert where.hold.tolist() == [-1, -1, 0, 0, -1, -1]
    assert split(steps, np.array([[15, 45]]), 3, np.array([[62, 63]])).beside.tolist()[-1] is False


def test_steps_after_pauses_of_another_length_are_not_alike() -> None:
    steps = Steps(np.array([0, 20, 40 * MS, 41 * MS]), np.array([10, 30, 41 * MS - 9, 42 * MS]), np.zeros(4, np.int64))
    assert len(set(steps.by_pause().key.tolist()[1:])) == 2


def test_noise_of_drawn_steps_is_small_and_centred() -> None:
    steps, _ = drawn(1.0)
    rows = list(tables.noise_of("drawn", steps, draws=20))
    assert {row["way"] for row in rows} == set(WAYS)
    for row in rows:
        assert row["middle"] == pytest.approx(1.0, abs=0.02)
        assert row["half_width_95"] < 0.05
    assert {row["over_s"] for row in rows} == {3, 10} | ({20} if steps.end[-1] >= 19.9 * SECOND else set())


def test_a_pair_has_what_its_holds_say_and_what_its_own_clock_does() -> None:
    draw, now = np.random.default_rng(2), 0
    spans, begin, end = [], [], []
    for _ in range(4):
        for code, length in ((0, 1.5), *((1, 0.8), (2, 0.04)) * 6):
            spans.append((now, now + int(length * SECOND), code))
            while now < spans[-1][1]:
                took = int(3 * MS * draw.lognormal(0, 0.02) * (1.1 if code == 1 else 1.0))
                begin.append(now)
                end.append(now + took)
                now += took
            spans[-1] = (spans[-1][0], now, code)
    count = len(begin)
    found = {
        "begin": np.array(begin),
        "due": np.array(begin),
        "end": np.array(end),
        "kind": np.ones(count, np.int64),
        "spans": np.array(spans),
        "said": np.array([(2 * SECOND, 0, 1_040_000, 0), (3 * SECOND, 1, 1_060_000, 0), (4 * SECOND, 0, 1_060_000, 0)]),
    }
    rows = list(tables.pair_of("a+b", found))
    assert len(rows) == 3 * len(WAYS)
    for row in rows:
        assert row["own_clock"] == pytest.approx(1.1, abs=0.01)
        assert row["ratio"] == pytest.approx(1.1, abs=0.03)
        assert row["dial_last"] == 1.06
    assert len(tables.dial_holds(found["said"], found["spans"])) == 1
