"""Mixes of two kinds: the search finds what trying all of them finds, in few trials, and says how many."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from headway.fleet.ask import capacity_planning, mixed_plans
from headway.fleet.ask.capacity_planning import Plan, Search
from headway.fleet.ask.mixed_plans import candidates, cheapest
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.scenarios.build import Built, WorkloadDefaults

SMALL = Worker("s", Gpu("small", 1 << 30), hour_usd=1.0)
LARGE = Worker("l", Gpu("large", 1 << 30), hour_usd=2.5)


def built() -> Built:
    return Built(Catalogue((), (), ()), Fleet((SMALL, LARGE)), WorkloadDefaults())


def alone(kind: Worker, count: int) -> Plan:
    return Plan(kind, count, 1.0, None, 0.5, count * (kind.hour_usd or 0.0), None)


def searched(
    monkeypatch: pytest.MonkeyPatch, enough: Callable[[int, int], bool], small: int, large: int
) -> tuple[mixed_plans.Mixed, list[tuple[int, int]]]:
    tried: list[tuple[int, int]] = []

    def is_enough(self: Search, count: int) -> bool:
        assert self.beside is not None
        first = self.kind.gpu.type == "small"
        pair = (count, self.beside[1]) if first else (self.beside[1], count)
        tried.append(pair)
        hour = pair[0] * 1.0 + pair[1] * 2.5
        self.tried[count] = Plan(self.kind, count, 0.99, None, 0.5, hour, None, beside=self.beside)
        return enough(*pair)

    monkeypatch.setattr(capacity_planning.Search, "is_enough", is_enough)
    plans = sorted([alone(SMALL, small), alone(LARGE, large)], key=lambda plan: (not plan.workers, plan.hour_usd))
    experiment: Any = None
    return cheapest(experiment, built(), 0.9, plans, lambda text, share: None), tried


@pytest.mark.parametrize(("small", "large", "served"), [(10, 4, 27), (10, 4, 31), (7, 3, 20), (12, 5, 36)])
def test_the_search_finds_what_trying_every_mix_finds(
    monkeypatch: pytest.MonkeyPatch, small: int, large: int, served: int
) -> None:
    def enough(x: int, y: int) -> bool:
        return 3 * x + 9 * y >= served

    found, tried = searched(monkeypatch, enough, small, large)
    best = min(small * 1.0, large * 2.5)
    every = [(x + 2.5 * y, x, y) for x in range(1, small) for y in range(1, large) if enough(x, y)]
    cheaper = sorted(mix for mix in every if mix[0] < best and mix[1] / small + mix[2] / large >= 0.8)
    assert (found.plan.hour_usd if found.plan else None) == (cheaper[0][0] if cheaper else None)
    assert len(tried) == len(set(tried)) <= mixed_plans.MOST_TRIALS
    assert (str(len(tried)) in found.note) == bool(tried)


def test_the_search_ends_after_few_trials_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found, tried = searched(monkeypatch, lambda x, y: False, 60, 20)
    assert found.plan is None
    assert len(tried) == mixed_plans.MOST_TRIALS
    assert found.note == "note: mixes of two kinds: 12 were tried, none was enough; the rest was left out"


def test_a_mix_is_one_row_of_the_plans() -> None:
    row = Plan(SMALL, 3, 0.99, 0.1, 0.5, 5.5, 0.001, beside=(LARGE, 1)).record()
    assert (row["gpu"], row["workers"], row["cost_hour_usd"]) == ("small + large", 4, 5.5)
    assert row["worker"] == "3 × small (1 GB, 1 CPU) + 1 × large (1 GB, 1 CPU)"


def test_one_kind_or_none_that_is_enough_has_no_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    found, tried = searched(monkeypatch, lambda x, y: True, 0, 0)
    assert (found, tried) == (mixed_plans.Mixed(), [])


@given(st.lists(st.integers(0, 9), min_size=2, max_size=3), st.data())
def test_candidates_are_cheaper_than_the_best_and_have_both_kinds(counts: list[int], data: st.DataObject) -> None:
    prices = [data.draw(st.sampled_from([0.5, 1.0, 2.5])) for _ in counts]
    whole = [count * price for count, price in zip(counts, prices, strict=True) if count]
    best = min(whole, default=0.0)
    for mix in candidates(counts, prices, best):
        assert mix.hour_usd < best
        assert min(mix.x, mix.y) >= 1
        assert mix.hour_usd == pytest.approx(mix.x * prices[mix.first] + mix.y * prices[mix.second])
