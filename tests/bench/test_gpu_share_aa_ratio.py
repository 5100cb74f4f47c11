"""Ways of comparing held steps with others: on drawn steps whose slow-down is known, each finds it."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench import gpu_share_aa_tables as tables
from bench.gpu_share_aa_ratio import MS, WAYS, Steps, cycle_mean, cycle_windows, drawn_holds, near_mean, pooled, split

SECOND = 1_000 * MS


def drawn(
    slowdown: float, seed: int = 1, kinds: tuple[float, ...] = (3.0,), drift: float = 0.0, slow_after_ns: int = 0
) -> tuple[Steps, ...]:
    """Return 20 s of steps and their holds, 5 % of the time; beside, steps take longer by the slow-down.

    Not so within ``slow_after_ns`` of a hold.
    """
    draw = np.random.default_rng(seed)
    holds = drawn_holds(0, 20 * SECOND, 50 * MS, 0.05, draw)
    begin, end, key, now, turn = [], [], [], 0, 0
    while now < 20 * SECOND:
        number = int(np.searchsorted(holds[:, 0], now, "right")) - 1
        held = number >= 0 and holds[number, 0] + 2 * MS <= now < holds[number, 1] + slow_after_ns
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


def test_only_the_whole_cycle_sees_a_slow_down_that_comes_back_late() -> None:
    """Those below need 100 ms after each hold to slow the program down again: its neighbours do not show it."""
    steps, holds = drawn(1.2, slow_after_ns=100 * MS)
    where = split(steps, holds, 2 * MS)
    assert WAYS["median of neighbours"](steps, holds, where).ratio < 1.15
    assert cycle_mean(steps, holds, where).ratio == pytest.approx(1.2, abs=0.02)


def test_a_cycle_goes_from_hold_to_hold() -> None:
    found = cycle_windows(np.array([[10, 20], [50, 60], [90, 95]]))
    assert found[1].tolist() == [20, 90]
    assert found[0, 1] == 50
    assert found[2, 0] == 60
    assert found[0, 0] < 0
    assert found[2, 1] > 10**18


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
    assert {row["alike_by"] for row in rows} == {"kind"}
    assert {row["held_share"] for row in rows} == {0.05, 0.5}
    for row in rows:
        assert row["middle"] == pytest.approx(1.0, abs=0.02)
        assert row["half_width_95"] < 0.05
    assert {row["over_s"] for row in rows} == {3, 10} | ({20} if steps.end[-1] >= 19.9 * SECOND else set())


def recorded() -> dict[str, "np.ndarray"]:
    """Return a pair in which steps under the gate take 1.1 times as long as alone."""
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
    return {
        "begin": np.array(begin),
        "due": np.array(begin),
        "end": np.array(end),
        "kind": np.ones(count, np.int64),
        "spans": np.array(spans),
        "said": np.array([(2 * SECOND, 0, 1_040_000, 0), (3 * SECOND, 1, 1_060_000, 0), (4 * SECOND, 0, 1_060_000, 0)]),
    }


def test_a_pair_has_what_its_holds_say_and_what_its_own_clock_does() -> None:
    found = recorded()
    rows = list(tables.pair_of("a+b", found))
    assert len(rows) == len(tables.DRAINS_MS) * len(WAYS)
    for row in rows:
        assert row["own_clock"] == pytest.approx(1.1, abs=0.01)
        assert row["own_edges"] == pytest.approx(1.1, abs=0.01)
        assert row["dial_last"] == 1.06
        if row["drain_ms"] < 40:  # no hold is longer than that
            assert row["ratio"] == pytest.approx(1.1, abs=0.03)
    assert len(tables.dial_holds(found["said"], found["spans"])) == 1


def test_steps_by_the_time_since_a_hold(tmp_path: Path) -> None:
    np.savez(tmp_path / "a+b.npz", **recorded())
    rows = list(tables.ramp(tmp_path))
    assert {(row["above"], row["below"]) for row in rows} == {("a", "b")}
    for row in rows:
        if row["steps"] > 50:
            wanted = 1.0 if row["since_hold"] == "begin" else 1.1
            assert row["against_alone"] == pytest.approx(wanted, abs=0.01)
    assert {row["since_hold"] for row in rows if row["steps"] > 50} == {"begin", "end"}


def test_clocks_are_those_of_the_recording(tmp_path: Path) -> None:
    begin = np.array([100, 300, 100 + SECOND, 200 + 2 * SECOND])
    took = np.array([2, 4, 6, 90]) * MS
    np.savez(tmp_path / "a.npz", begin=begin, end=begin + took, kind=np.ones(4, np.int64))
    looks = [
        (50, 9, 9, 9),
        (150, 1980, 600_000, 50),
        (250, 1600, 700_000, 60),
        (350, 1700, 690_000, 62),
        (4 * SECOND, 9, 9, 9),
    ]
    names = ("ns", "sm_mhz", "power_mw", "celsius")
    lines = [json.dumps(dict(zip(names, look, strict=True))) for look in looks]
    (tmp_path / "power.jsonl").write_text("\n".join(lines) + "\n")
    (row,) = tables.clocks(tmp_path)
    assert (row["recording"], row["looks"]) == ("a", 3)
    assert (row["sm_mhz_least"], row["sm_mhz_middle"], row["sm_mhz_most"]) == (1600, 1700, 1980)
    assert (row["power_w_middle"], row["celsius_most"]) == (690, 62)
    assert (row["step_ms_least"], row["step_ms_most"]) == (3, 6)  # the last second is not whole
