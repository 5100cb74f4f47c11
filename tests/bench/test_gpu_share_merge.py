"""Passes over the same pairs as one."""

from math import hypot

import pytest

from bench.gpu_share_merge import Row, between, error, merge, slow
from bench.gpu_share_rows import slow99


def row(p50: float, slowdown: float | None, *, spread: float = 0.01, low: float = 10.0, high: str = "a") -> Row:
    gate: Row = {"p50_ms": p50 * 1.2, "p99_ms": 4.0, "requests": 100, "low_per_s": [low], "error": spread}
    gate |= {"p99_over_ms": [-1.0, 3.0]} | ({"slowdown": slowdown} if slowdown else {})
    alone = {"p50_ms": p50, "p99_ms": 2.0, "requests": 50}
    return {"high": high, "low": "b", "think_ms": 0, "alone": alone, "gate": gate, "low_alone_per_s": [2 * low]}


def test_every_figure_is_the_mean_of_the_passes() -> None:
    (made,) = merge([row(2.0, 1.04, low=10), row(4.0, 1.02, low=30)])
    assert made["alone"] == {"p50_ms": 3.0, "p99_ms": 2.0, "requests": 100}
    assert slow(made, "gate") == pytest.approx(1.03)
    assert slow99(made, "gate") == 2.0
    assert (made["gate"]["low_per_s"], made["low_alone_per_s"], made["passes"]) == ([20], [40], 2)
    assert made["gate"]["requests"] == 200


def test_passes_that_differ_are_off_by_that_much() -> None:
    (near,) = merge([row(2.0, 1.04), row(2.0, 1.04)])
    assert error(near, "gate") == pytest.approx(hypot(0.01, 0.01) / 2)
    (far,) = merge([row(2.0, 1.30), row(2.0, 1.10)])
    assert error(far, "gate") == pytest.approx(0.1)


def test_a_mode_without_rounds_goes_by_its_median() -> None:
    (made,) = merge([row(2.0, None), row(2.0, 1.4)])
    assert slow(made, "gate") == pytest.approx((1.2 + 1.4) / 2)


def test_a_pair_of_one_pass_stands_for_itself() -> None:
    alone = row(5.0, 1.3, high="c")
    first, second = merge([row(2.0, 1.1), row(3.0, 1.2), alone])
    assert first["passes"] == 2
    assert second == alone
    assert (slow(second, "gate"), error(second, "gate")) == (1.3, 0.01)


def test_a_mean_is_known_better_than_each() -> None:
    assert between([2.0, 2.0], [[1.0, 4.0], [1.0, 4.0]]) == pytest.approx([2 - 0.5**0.5, 2 + 2 * 0.5**0.5])
    assert between([0.0, 4.0], [[-0.1, 0.1], [3.9, 4.1]]) == pytest.approx([2 - 3.28, 2 + 3.28])
    (made,) = merge([row(2.0, 1.1), row(2.0, 1.1)])
    assert made["gate"]["p99_over_ms"] == pytest.approx([2 - 3 / 2**0.5, 2 + 1 / 2**0.5])


def test_what_one_pass_lacks_is_the_other_ones() -> None:
    one, other = row(2.0, 1.1), row(2.0, 1.3)
    one["stream"] = {"p50_ms": 3.0, "p99_ms": 4.0, "requests": 7, "slowdown": 1.5, "error": 0.2}
    del other["gate"]["p99_over_ms"]
    (made,) = merge([one, other])
    assert (slow(made, "stream"), error(made, "stream"), made["stream"]["requests"]) == (1.5, 0.2, 7)
    assert made["gate"]["p99_over_ms"] == pytest.approx([-1.0, 3.0])
