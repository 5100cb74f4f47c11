"""Scalers by hand: Kubernetes' ratio rule, a worker for so many tasks, and headway's forecast, margin and patience."""

from math import ceil

import pytest
from hypothesis import given, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.model.latency import LatencyModel
from headway.fleet.policies.scalers.headway import Forecast
from headway.fleet.policies.scalers.kinds import Kinds
from headway.fleet.policies.scalers.parts import Scaler, Seen, Stabilised
from headway.fleet.policies.scalers.registry import SCALERS, build
from headway.fleet.state.state import ServingState
from headway.units import MINUTE, SECOND
from tests.fleet.worlds import MB, chain, function, workers

CATALOGUE = Catalogue((Model("a", 10 * MB),), (function("f", 1000, 0),), (chain("one", 0),))


def bound(spec: str, count: int = 40, startup: int = 60 * SECOND) -> tuple[Scaler, ServingState]:
    fleet = workers(count)
    state = ServingState(CATALOGUE, Fleet(fleet.workers, startup=startup))
    scaler = build(spec)
    assert scaler is not None
    scaler.bind(state, Kinds(CATALOGUE, state.fleet, state.latency, scaler.least, scaler.most))
    return scaler, state


def seen(rented: int, busy: float = 0.0, *, starting: int = 0, tasks: int = 0, arrived: int = 0, **more: int) -> Seen:
    usable = rented - starting
    return Seen(
        15 * SECOND, [arrived], [more.pop("answered", arrived)], **more,
        busy_workers=busy, usable_workers=usable, rented=[rented], starting=starting, open_tasks=tasks,
    )  # fmt: skip


# --- utilisation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rented", "busy", "starting", "wanted"),
    [
        (10, 6.0, 0, 10),  # at the target
        (10, 6.5, 0, 10),  # within the tolerance of a tenth
        (10, 9.0, 0, 15),  # 10 × 0.9 / 0.6
        (10, 9.1, 0, 16),  # rounded up
        (10, 3.0, 0, 5),
        (10, 0.0, 0, 1),  # not below the least
        (40, 40.0, 0, 40),  # not above the fleet
        (14, 10.0, 4, 17),  # four start: 14 × (10 / 14) / 0.6
        (14, 8.0, 4, 14),  # 4 workers that start will be enough
    ],
)
def test_the_ratio_rule_is_that_of_kubernetes(rented: int, busy: float, starting: int, wanted: int) -> None:
    scaler, state = bound("utilisation(window=0s)")
    assert list(scaler.scale(0, state, seen(rented, busy, starting=starting))) == [wanted]


def test_a_fleet_shrinks_once_fewer_were_wanted_for_the_window() -> None:
    scaler, state = bound("utilisation(window=60s)")
    assert list(scaler.scale(0, state, seen(10, 9.0))) == [15]
    for at in (15, 30, 45):
        assert list(scaler.scale(at * SECOND, state, seen(15, 3.0))) == [15]
    assert list(scaler.scale(60 * SECOND, state, seen(15, 3.0))) == [5]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=40), st.integers(0, 7))
def test_the_highest_number_within_a_window_is_that_of_a_plain_look_back(numbers: list[int], window: int) -> None:
    stabilised = Stabilised(window)
    for now, number in enumerate(numbers):
        within = [number, *(numbers[at] for at in range(now) if at > now - window)]
        assert stabilised.highest(now, number) == max(within)


# --- queue -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tasks", "wanted"), [(0, 1), (1, 1), (6, 2), (7, 3), (500, 40)])
def test_a_worker_for_so_many_tasks(tasks: int, wanted: int) -> None:
    scaler, state = bound("queue(tasks=3,window=0s)")
    assert list(scaler.scale(0, state, seen(5, tasks=tasks))) == [wanted]


# --- headway ---------------------------------------------------------------------------------------------------------


def test_a_steady_load_is_met_with_its_margin_and_no_more() -> None:
    scaler, state = bound("headway(gain=0)")
    wanted = 0
    for tick in range(400):  # ten a second, a second each: ten workers and what they lose
        wanted = sum(scaler.scale(tick * 15 * SECOND, state, seen(14, 10.0, arrived=150)))
    assert wanted == ceil(10 + 10**0.5)


def test_a_burst_is_answered_in_one_step_and_so_is_its_end() -> None:
    scaler, state = bound("headway(gain=0)", startup=30 * SECOND)
    for tick in range(40):
        scaler.scale(tick * 15 * SECOND, state, seen(6, 3.0, arrived=45))
    burst = sum(scaler.scale(600 * SECOND, state, seen(6, 6.0, arrived=225, answered=90)))
    assert burst >= 15
    after = [sum(scaler.scale((600 + 15 * k) * SECOND, state, seen(20, 3.0, arrived=45))) for k in range(1, 4)]
    assert after[0] == burst, "kept for a start-up time: a restart would cost as much"
    assert after[-1] <= 7


def test_misses_widen_the_margin_and_hits_narrow_it() -> None:
    scaler, state = bound("headway(gain=0.1,goal=0.9,hold=0)")
    still = [sum(scaler.scale(k * 15 * SECOND, state, seen(14, 10.0, arrived=150))) for k in range(40)][-1]
    missed = sum(scaler.scale(600 * SECOND, state, seen(14, 10.0, arrived=150, ended=150, missed=30)))
    assert missed > still
    starts = seen(14, 10.0, arrived=150, starting=3, ended=150, missed=150)
    assert sum(scaler.scale(615 * SECOND, state, starts)) == missed, "what starts cannot have answered yet"
    for k in range(600):
        last = sum(scaler.scale((630 + 15 * k) * SECOND, state, seen(14, 10.0, arrived=150, ended=150)))
    assert last <= 11, "no margin is left where nothing is ever missed"


def test_the_shape_of_an_earlier_day_is_forecast() -> None:
    forecast = Forecast(every=MINUTE, smooth=MINUTE, day=96 * MINUTE)
    loads = [8.0 if 40 <= minute % 96 < 50 else 2.0 for minute in range(140)]
    told = [forecast.ahead(minute * MINUTE, load, 0.01, 2 * MINUTE) for minute, load in enumerate(loads)]
    assert told[38] == pytest.approx(2.0), "on the first day nobody knows"
    assert told[96 + 38] == pytest.approx(8.0), "on the second the rise is two minutes ahead"


# --- kinds -----------------------------------------------------------------------------------------------------------


def test_kinds_are_taken_cheapest_first_and_every_function_keeps_a_worker() -> None:
    times = {"small": {Configuration(1, 1, 1): SECOND}, "large": {Configuration(1, 1, 1): SECOND // 4}}
    light, heavy = (Function(name, (model,), Profile(times)) for model, name in enumerate(("light", "heavy")))
    catalogue = Catalogue((Model("m", 10 * MB), Model("n", 500 * MB)), (light, heavy), (chain("a", 0), chain("b", 1)))
    fleet = Fleet(
        tuple(Worker(f"s{i}", Gpu("small", 100 * MB), hour_usd=1.0) for i in range(4))
        + tuple(Worker(f"l{i}", Gpu("large", 800 * MB), hour_usd=3.0) for i in range(3))
    )
    kinds = Kinds(catalogue, fleet, LatencyModel(catalogue, fleet), 1, 0)
    assert [kind.workers for kind in kinds.kinds] == [(4, 5, 6), (0, 1, 2, 3)]  # 0.75 a request against 1, and all run
    assert kinds.floors == [1, 0]
    assert [kinds.spread(count) for count in (0, 1, 4, 9)] == [[1, 0], [1, 0], [3, 1], [3, 4]]
    assert kinds.bounded([0, 2]) == [1, 2]
    assert kinds.first(2) == (4, 5)


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("utilization", "unknown autoscaler"),
        ("utilisation(target=1.2)", "autoscale utilisation: option target=1.2 is not a number between 0.01 and 1"),
        ("utilisation(target=0)", "option target=0 is not a number between"),
        ("queue(least=5,most=3)", "autoscale queue: least=5 is above most=3: lower least, or raise most"),
        ("headway(least=0)", "option least=0 is not a number of 1 or more"),
        ("queue(tasks=0)", "option tasks=0 is not a number of 0.01 or more"),
        ("headway(initial=9,most=4)", "initial=9 is not between least=1 and most=4"),
        ("headway(every=0s)", "option every=0s is not"),
        ("queue(task=3)", "unknown option 'task'"),
        ("headway(goal=2)", "option goal=2 is not a number between"),
    ],
)
def test_a_scaler_that_makes_no_sense_is_refused_in_one_line(spec: str, said: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        build(spec)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_none_is_no_scaler_and_all_others_are_known_by_name() -> None:
    assert build("none") is None
    assert build("") is None
    assert {name: type(build(name)) for name in SCALERS} == SCALERS
