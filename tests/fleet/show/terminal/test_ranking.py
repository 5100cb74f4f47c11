"""Which policy is best: most requests in time, then least cost, with a tolerance for both."""

from typing import Any

from hypothesis import given, strategies as st

from headway.fleet.show.terminal.ranking import NEAR_COST, NEAR_HITS, best


def row(policy: str, hits: float | None, usd: float | None, slowdown: float = 1.0) -> dict[str, Any]:
    return {"policy": policy, "slo_hit_rate": hits, "cost_per_request_usd": usd, "slowdown_mean": slowdown}


def names(*rows: dict[str, Any]) -> list[str]:
    return [each["policy"] for each in best(rows)]


def test_more_in_time_is_better_whatever_it_costs() -> None:
    assert names(row("a", 0.99, 1.0), row("b", 0.98, 0.1)) == ["a"]


def test_of_those_with_nearly_as_many_in_time_the_cheapest_is_best() -> None:
    assert names(row("a", 1.0, 1.0), row("b", 0.9985, 0.9), row("c", 0.99, 0.1)) == ["b"]


def test_costs_that_hardly_differ_are_equal() -> None:
    assert names(row("a", 1.0, 1.0), row("b", 1.0, 1.015), row("c", 1.0, 1.03)) == ["a", "b"]


def test_without_deadlines_the_least_slow_down_is_best() -> None:
    assert names(row("a", None, 1.0, 2.0), row("b", None, 2.0, 1.5)) == ["b"]


def test_who_answered_nothing_is_not_compared() -> None:
    assert names(row("a", None, None), row("b", 0.2, 1.0)) == ["b"]
    assert names() == []


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 10)), min_size=1, max_size=8))
def test_nobody_is_clearly_better_than_the_best(values: list[tuple[float, float]]) -> None:
    rows = [row(str(index), *value) for index, value in enumerate(values)]
    chosen = best(rows)
    assert chosen
    for each in chosen:
        for other in rows:
            assert other["slo_hit_rate"] <= each["slo_hit_rate"] + NEAR_HITS + 1e-9
            near = other["slo_hit_rate"] >= max(hits for hits, _ in values) - NEAR_HITS
            assert not near or other["cost_per_request_usd"] * NEAR_COST >= each["cost_per_request_usd"] - 1e-9
