"""Who is given up, and what is dear when it is scarce."""

from hypothesis import given, settings, strategies as st

from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.policies.headway.central.admission import (
    DOUBLING,
    PLENTIFUL,
    UPDATE_INTERVAL,
    Admission,
    ShadowPrices,
)
from headway.fleet.policies.headway.central.offers import menus_of
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND, SECOND
from tests.fleet.worlds import chain

MS = MILLISECOND


def two_speeds(ms: int, spread: float = 0.0) -> Function:
    cells = {Configuration(1, 1, 1): ms * MS, Configuration(1, 1, 4): ms * MS // 2, Configuration(2, 1, 4): ms * MS}
    return Function("f", (), Profile({"": cells}, spread), cold_start=SECOND)


def admission_of(*functions: Function, graph: Graph | None = None) -> tuple[ServingState, Admission]:
    made = graph or chain("g", *range(len(functions)))
    fleet = Fleet(tuple(Worker(f"w{i}", Gpu("A100", 1 << 30, 7), 16) for i in range(2)))
    state = ServingState(Catalogue((), functions, (made,)), fleet, central=True)
    return state, Admission(state, menus_of(state))


@given(times=st.lists(st.integers(2, 500), min_size=1, max_size=5), left=st.integers(-100, 1500), data=st.data())
@settings(max_examples=100, deadline=None)
def test_given_up_is_only_who_is_late_even_with_the_fastest_of_everything(
    times: list[int], left: int, data: st.DataObject
) -> None:
    _, admission = admission_of(*map(two_speeds, times))
    task = data.draw(st.integers(0, len(times) - 1))
    fastest = sum(time * MS // 2 for time in times[task:])
    ready_from = [0] * len(times)
    assert admission.is_hopeless(0, 0, task, left * MS, ready_from) == (fastest > left * MS)


def test_the_longest_branch_says_whether_there_is_hope() -> None:
    graph = Graph("j", (Task("a", 0), Task("b", 1), Task("c", 2), Task("d", 0)), ((0, 1), (0, 2), (1, 3), (2, 3)))
    _, admission = admission_of(two_speeds(10), two_speeds(200), two_speeds(40), graph=graph)
    ready_from = [0, 0, 0]
    assert admission.earliest(0, 0, 0, ready_from) == (5 + 100 + 5) * MS
    assert not admission.is_hopeless(0, 0, 0, 110 * MS, ready_from)
    assert admission.is_hopeless(0, 0, 0, 109 * MS, ready_from)
    assert not admission.is_hopeless(0, 0, 2, 25 * MS, ready_from), "the other branch is not this task's to judge"


def test_a_process_that_is_still_starting_counts() -> None:
    _, admission = admission_of(two_speeds(20), two_speeds(40))
    assert admission.earliest(0, 0, 0, [0, 0]) == 30 * MS
    assert admission.earliest(0, 0, 0, [100 * MS, 0]) == 130 * MS
    assert admission.earliest(0, 0, 0, [0, 100 * MS]) == 120 * MS
    assert admission.is_hopeless(0, 0, 0, 119 * MS, [0, 100 * MS])
    assert not admission.is_hopeless(0, 0, 1, 50 * MS, [100 * MS, 0]), "what is done needs no process"


def test_runs_may_be_lucky() -> None:
    _, sure = admission_of(two_speeds(100))
    _, lucky = admission_of(two_speeds(100, 0.05))
    assert sure.is_hopeless(0, 0, 0, 48 * MS, [0])
    assert not lucky.is_hopeless(0, 0, 0, 48 * MS, [0])
    assert lucky.is_hopeless(0, 0, 0, 40 * MS, [0])


def use(state: ServingState, cpus: float, slices: float) -> None:
    for worker in state.workers:
        worker.cpus_free = round(worker.worker.cpus * (1 - cpus))
        worker.slices_free = round(worker.worker.gpu.slices * (1 - slices))


def looked(prices: ShadowPrices, state: ServingState, times: int, start: int) -> int:
    for _ in range(times):
        start += UPDATE_INTERVAL
        prices.update(start, state)
    return start


def test_what_is_taken_becomes_dearer_and_then_cheaper_again() -> None:
    state, _ = admission_of(two_speeds(10))
    prices = ShadowPrices(5.0)
    use(state, cpus=1.0, slices=0.3)
    now = looked(prices, state, 4, 0)
    assert prices.multipliers[0] > 1.0
    assert prices.multipliers[1] == 1.0
    assert prices.are_raised
    use(state, cpus=0.1, slices=0.1)
    looked(prices, state, 10, now)
    assert prices.multipliers == (1.0, 1.0)
    assert not prices.are_raised


def test_slices_never_cost_what_an_answer_is_worth() -> None:
    state, _ = admission_of(two_speeds(10))
    prices = ShadowPrices(5.0)
    use(state, cpus=1.0, slices=1.0)
    looked(prices, state, 50, 0)
    assert prices.multipliers == (4.0, 4.0)
    cheap = ShadowPrices(2.0)
    looked(cheap, state, 50, 0)
    assert cheap.multipliers[1] <= 0.8 * 2.0


@given(used=st.floats(0.0, 1.0), start=st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_a_price_settles_at_what_the_utilisation_asks_for(used: float, start: float) -> None:
    """It neither climbs for as long as the fleet is busy, nor stays up after a rush."""
    state, _ = admission_of(two_speeds(10))
    prices = ShadowPrices(5.0)
    use(state, start, start)
    now = looked(prices, state, 20, 0)
    use(state, used, used)
    now = looked(prices, state, 20, now)
    settled = prices.multipliers
    looked(prices, state, 20, now)
    assert prices.multipliers == settled
    busy = 1 - state.workers[0].slices_free / state.workers[0].worker.gpu.slices
    asked = min(max(2.0 ** ((busy - PLENTIFUL) / DOUBLING), 1.0), 4.0)
    assert asked / 1.5 < settled[1] < asked * 1.5


def test_it_looks_now_and_then_only() -> None:
    state, _ = admission_of(two_speeds(10))
    prices = ShadowPrices(5.0)
    use(state, cpus=1.0, slices=1.0)
    assert not any(prices.update(now, state) for now in range(0, UPDATE_INTERVAL, UPDATE_INTERVAL // 10))


def test_a_fleet_that_is_down_is_not_crowded() -> None:
    state, _ = admission_of(two_speeds(10))
    use(state, cpus=1.0, slices=1.0)
    for worker in state.workers:
        worker.up = False
    prices = ShadowPrices(5.0)
    looked(prices, state, 5, 0)
    assert not prices.are_raised
