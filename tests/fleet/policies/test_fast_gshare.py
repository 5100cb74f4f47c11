"""``fast-gshare``: the sheet's example with its numbers, its places, its batches and its clock."""

from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.fleet import MIG, Fleet, Gpu, Worker
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.policies.central.fronts import options_on
from headway.fleet.policies.esg.stagewise import shares_by_mean
from headway.fleet.policies.fast_gshare import FastGshare
from headway.fleet.policies.fast_gshare.planner import (
    Share,
    in_time,
    most_efficient,
    scale_down,
    scale_up,
    shares_of,
    with_cpus_by_slice,
)
from headway.fleet.policies.fast_gshare.pods import Pods
from headway.fleet.policies.fast_gshare.rectangles import Rectangle, best_area_fit, free_rectangles
from headway.fleet.policies.registry import build, describe
from headway.units import MILLISECOND, SECOND, Duration
from tests.fleet.policies.worked_example import A, B, C
from tests.fleet.worlds import Run, World, chain, drive, workers

MS = MILLISECOND
Cell = tuple[int, int, int]
BUDGETS = {"A": 194.0, "B": 273.1, "C": 132.9}


def cells(table: dict[Cell, int]) -> dict[Configuration, int]:
    return {Configuration(*cell): time * MS for cell, time in table.items()}


def called(name: str, table: dict[Cell, int], cold_start: int = 0) -> Function:
    return Function(name, (), Profile({"": cells(table)}), cold_start=cold_start)


def node(count: int = 1) -> Fleet:
    """Workers of 16 CPUs and 7 slices."""
    return Fleet(tuple(Worker(f"w{i}", Gpu("T4", 1 << 30, slices=7), cpus=16, host=i) for i in range(count)))


def steady(count: int, gap: int, deadline: int, start: int = 0) -> tuple[Request, ...]:
    return tuple(Request(i, 0, start + i * gap * MS, 0, start + (i * gap + deadline) * MS) for i in range(count))


def sizes(run: Run) -> list[int]:
    """How many tasks each batch had."""
    leases = [row.lease for row in run.rows(Kind.TASK)]
    return [leases.count(row.lease) for row in run.rows(Kind.RUN)]


# --- the sheet's example ------------------------------------------------------------------------------------------


def test_the_deadline_is_split_by_mean_time() -> None:
    catalogue = Catalogue((), (called("a", A), called("b", B), called("c", C)), (chain("abc", 0, 1, 2),))
    state = World(catalogue, node(), ()).state()
    shares = shares_by_mean(state, [options_on(state, function) for function in range(3)])
    assert [round(share * 600, 1) for share in shares[0]] == list(BUDGETS.values())


@pytest.mark.parametrize(
    ("name", "table", "best", "rate", "per_slice"),
    [
        ("A", A, (4, 2, 2), 28.57, 14.29),
        ("B", B, (4, 2, 4), 25.00, 6.25),
        ("C", C, (4, 1, 1), 33.33, 33.33),
    ],
)
def test_the_most_efficient_share(name: str, table: dict[Cell, int], best: Cell, rate: float, per_slice: float) -> None:
    shares = in_time(shares_of(cells(table)), int(BUDGETS[name] * MS))
    assert len(shares) == 5  # all meet their budgets
    chosen = most_efficient(shares)
    assert chosen.configuration == best
    assert (round(float(chosen.throughput), 2), round(float(chosen.efficiency), 2)) == (rate, per_slice)


@pytest.mark.parametrize(
    ("table", "rate", "planned"),
    [
        (A, 20, [((2, 1, 2), 1)]),
        (B, 20, [((4, 2, 4), 1)]),  # (2, 2, 4) serves exactly 20, and not more
        (C, 20, [((2, 1, 1), 1)]),  # as many as (1, 1, 2), with fewer slices
        (A, 50, [((4, 2, 2), 1), ((2, 1, 2), 1)]),
        (B, 50, [((4, 2, 4), 2)]),
        (C, 50, [((4, 1, 1), 1), ((2, 1, 1), 1)]),  # (1, 1, 1) serves exactly the rest
    ],
)
def test_pods_for_a_rate(table: dict[Cell, int], rate: int, planned: list[tuple[Cell, int]]) -> None:
    found = scale_up(shares_of(cells(table)), Fraction(rate))
    assert [(share.configuration, count) for share, count in found] == planned


def test_without_the_residual_rule_the_rest_gets_one_more_of_the_most_efficient() -> None:
    found = scale_up(shares_of(cells(A)), Fraction(50), residual=False)
    assert [(share.configuration, count) for share, count in found] == [((4, 2, 2), 1), ((4, 2, 2), 1)]


def test_a_share_that_misses_the_budget_is_not_taken_however_efficient() -> None:
    shares = in_time(shares_of(cells(A)), 95 * MS)
    assert {share.configuration for share in shares} == {(1, 1, 2), (2, 1, 2)}
    assert [share.configuration for share in in_time(shares_of(cells(A)), 10 * MS)] == [(1, 1, 2)]


def test_half_the_quota_is_half_the_throughput_at_the_same_efficiency() -> None:
    whole, half = shares_of({Configuration(2, 1, 3): 60 * MS}, (100, 50))
    assert (half.time, half.throughput) == (120 * MS, whole.throughput / 2)
    assert half.efficiency == whole.efficiency
    assert most_efficient([whole, half]) == half  # of equal ones the smallest


def test_pods_go_least_efficient_first_and_never_more_than_there_are() -> None:
    good, poor = (Share(Configuration(1, 1, slices), 100 * MS) for slices in (1, 2))
    held = {good: 2, poor: 1}
    assert scale_down(held, Fraction(5)) == {}
    assert scale_down(held, Fraction(10)) == {poor: 1}
    assert scale_down(held, Fraction(25)) == {poor: 1, good: 1}
    assert scale_down(held, Fraction(99)) == {poor: 1, good: 2}
    assert scale_down(held, Fraction(99), least=1) == {poor: 1, good: 1}


# --- places -------------------------------------------------------------------------------------------------------


def test_a_pod_goes_where_least_is_left_over() -> None:
    """Beside 40 × 60 there are two free rectangles: all that is right of it, and all that is above."""
    free = free_rectangles(100, 100, [Rectangle(0, 0, 40, 60)])
    assert free == [Rectangle(0, 60, 100, 40), Rectangle(40, 0, 60, 100)]
    assert best_area_fit(free, 20, 30) == (3400, Rectangle(0, 60, 20, 30))
    assert best_area_fit(free, 20, 50) == (5000, Rectangle(40, 0, 20, 50))
    assert best_area_fit(free, 70, 30) == (1900, Rectangle(0, 60, 70, 30))
    assert best_area_fit(free, 50, 70) == (2500, Rectangle(40, 0, 50, 70))
    assert best_area_fit(free, 70, 50) is None  # pods are not turned
    assert free_rectangles(100, 100, []) == [Rectangle(0, 0, 100, 100)]


def test_pods_fill_a_gpu_before_the_next() -> None:
    catalogue = Catalogue((), (called("f", {(1, 1, 3): 50, (1, 1, 4): 40}),), (chain("one", 0),))
    state = World(catalogue, node(2), ()).state()
    pods = Pods(state)
    three, four = shares_of(state.latency.cells(0, 0))
    for share, place in (
        (three, (4, 0, Rectangle(0, 0, 3, 100))),
        (four, (0, 0, Rectangle(3, 0, 4, 100))),
        (four, (3, 1, Rectangle(0, 0, 4, 100))),
        (three, (0, 1, Rectangle(4, 0, 3, 100))),
    ):
        found = pods.find(0, share, state.workers)
        assert found is not None
        assert (found[0] // 100, *found[1:]) == place
        pods.add(0, (0, 0), 0, share, found)
    assert pods.find(0, three, state.workers) is None
    assert [pod.share for pod in pods.by_stage[0, 0]] == [three, three, four, four]


def test_with_mig_pods_go_where_instances_may_begin() -> None:
    table = {(1, 1, slices): 100 // slices for slices in (1, 2, 3, 4, 7)}
    catalogue = Catalogue((), (called("f", table),), (chain("one", 0),))
    gpu = Gpu("T4", 1 << 30, 7, MIG)
    state = World(catalogue, Fleet((Worker("w", gpu, cpus=16),)), ()).state()
    pods = Pods(state)
    shares = {share.configuration.slices: share for share in shares_of(state.latency.cells(0, 0))}
    places = []
    for slices in (1, 3, 2):
        found = pods.find(0, shares[slices], state.workers)
        assert found is not None
        places.append(found[2][::2])
        pods.add(0, (0, 0), 0, shares[slices], found)
    assert places == [(0, 1), (4, 4), (2, 2)]
    assert pods.find(0, shares[2], state.workers) is None
    assert pods.find(0, shares[1], state.workers) is not None


def test_a_pod_needs_a_cell_for_every_smaller_batch() -> None:
    """Two tasks could not run on one slice."""
    catalogue = Catalogue((), (called("f", {(1, 1, 1): 10, (2, 1, 2): 20, (4, 1, 1): 30}),), (chain("one", 0),))
    pods = Pods(World(catalogue, node(), ()).state())
    assert pods.is_possible(0, Configuration(1, 1, 1))
    assert pods.sizes_on(0, 0, Configuration(2, 1, 2)) == {1: (1, 1, 1), 2: (2, 1, 2)}
    assert not pods.is_possible(0, Configuration(4, 1, 1))


def test_cpus_go_with_the_slices() -> None:
    table = cells({(1, cpus, slices): 10 for cpus in (1, 2, 4, 8) for slices in (1, 3)} | {(2, 8, 1): 10})
    assert list(with_cpus_by_slice(table, Fraction(16, 7))) == [(1, 2, 1), (1, 4, 3), (2, 8, 1)]


# --- batches ------------------------------------------------------------------------------------------------------

PAIR = Catalogue((), (called("f", {(1, 1, 1): 60, (2, 1, 1): 80}),), (chain("one", 0),))


def test_a_batch_waits_until_it_is_full_or_its_budget_leaves_no_more() -> None:
    requests = (Request(0, 0, 0, 0, 200 * MS), Request(1, 0, 50 * MS, 0, 250 * MS), Request(2, 0, SECOND, 0, 1200 * MS))
    run = drive(FastGshare(), World(PAIR, node(), requests))
    assert [(row.time, size) for row, size in zip(run.rows(Kind.RUN), sizes(run), strict=True)] == [
        (50 * MS, 2),
        (1120 * MS, 1),  # 200 − 80 after its arrival
    ]
    assert run.rows(Kind.DONE)[-1].value == 180 * MS  # alone it takes 60
    hasty = drive(FastGshare(wait=False), World(PAIR, node(), requests))
    assert [row.time for row in hasty.rows(Kind.RUN)] == [0, 60 * MS, SECOND]


def test_without_a_deadline_nothing_waits() -> None:
    run = drive(FastGshare(), World(PAIR, node(), (Request(0, 0, 0, 0), Request(1, 0, 10 * MS, 0))))
    assert [row.time for row in run.rows(Kind.RUN)] == [0, 60 * MS]


@given(gaps=st.lists(st.integers(0, 150), min_size=1, max_size=12), deadline=st.integers(60, 400))
@settings(max_examples=40, deadline=None)
def test_no_task_waits_beyond_its_timeout_while_its_pod_is_free(gaps: list[int], deadline: int) -> None:
    times = [sum(gaps[:i]) * MS for i in range(len(gaps))]
    requests = tuple(Request(i, 0, time, 0, time + deadline * MS) for i, time in enumerate(times))
    run = drive(FastGshare(least=1), World(PAIR, node(), requests))
    finished = [row.time for row in run.rows(Kind.FINISHED)]
    first = {row.lease: row.subject for row in reversed(run.rows(Kind.TASK))}
    timeout = max(0, deadline - (80 if deadline >= 80 else 60)) * MS
    for batch, row in enumerate(run.rows(Kind.RUN)):
        free = finished[batch - 1] if batch else 0
        assert row.time <= max(times[first[row.lease]] + timeout, free)


# --- the clock ----------------------------------------------------------------------------------------------------


def pods_after(policy: FastGshare, world: World) -> dict[Cell, int]:
    drive(policy, world)
    counts: dict[Cell, int] = {}
    for pod in policy._pods.by_stage[0, 0]:
        counts[pod.share.configuration] = counts.get(pod.share.configuration, 0) + 1
    return counts


def test_after_ten_seconds_pods_follow_the_rate() -> None:
    """At first one pod of the most efficient share, 28.57 a second; 50 come; 21.43 are missing: (2, 1, 2) has 22.22."""
    catalogue = Catalogue((), (called("a", A),), (chain("one", 0),))
    world = World(catalogue, node(), steady(520, 20, 194))
    assert pods_after(FastGshare(cpus="any"), world) == {(4, 2, 2): 1, (2, 1, 2): 1}
    assert pods_after(FastGshare(cpus="any", residual=False), world) == {(4, 2, 2): 2}
    assert pods_after(FastGshare(every=Duration(60 * SECOND), cpus="any"), world) == {(4, 2, 2): 1}
    assert pods_after(FastGshare(band=0.8, cpus="any"), world) == {(4, 2, 2): 1}


def test_pods_go_when_the_rate_falls() -> None:
    catalogue = Catalogue((), (called("a", A),), (chain("one", 0),))
    requests = steady(520, 20, 194)
    slow = tuple(Request(520 + i, 0, (11 + i) * SECOND, 0, (12 + i) * SECOND) for i in range(25))
    policy = FastGshare(cpus="any")
    run = drive(policy, World(catalogue, node(), (*requests, *slow)))
    assert [pod.share.configuration for pod in policy._pods.by_stage[0, 0]] == [(4, 2, 2)]
    assert not policy._pods.retiring
    assert len(run.rows(Kind.DONE)) == 545


def test_processes_come_and_go_with_the_pods() -> None:
    catalogue = Catalogue((), (called("a", A, 2 * SECOND), called("b", B, SECOND)), (chain("two", 0, 1),))
    world = World(catalogue, node(), (Request(0, 0, 0, 0, SECOND), Request(1, 0, 25 * SECOND, 0, 26 * SECOND)))
    run = drive(FastGshare(), world)
    assert [row.time for row in run.rows(Kind.START_INSTANCE)] == [0, 0]
    assert not run.rows(Kind.STOP_INSTANCE)
    late = drive(FastGshare(prewarm=False), world)
    assert len({row.time for row in late.rows(Kind.START_INSTANCE)}) == 2  # the second when its task is there
    gone = drive(FastGshare(least=0), world)
    assert [row.time for row in gone.rows(Kind.STOP_INSTANCE)] == [20 * SECOND] * 2  # none came for ten seconds
    assert [row.time for row in gone.rows(Kind.START_INSTANCE)] == [0, 0, 25 * SECOND, 25 * SECOND]


def test_a_pod_that_is_starting_for_waiting_tasks_stays() -> None:
    """The rate is 0 again before the process is there."""
    catalogue = Catalogue((), (called("a", A, 2 * SECOND),), (chain("one", 0),))
    run = drive(FastGshare(every=Duration(100 * MS), least=0), World(catalogue, node(), steady(1, 0, 500)))
    assert len(run.rows(Kind.START_INSTANCE)) == 1
    assert run.rows(Kind.DONE)[0].time == 2060 * MS


def test_stages_without_room_take_the_place_of_idle_pods() -> None:
    """Three stages and one slice: each takes the place of the one before."""
    one = {(1, 1, 1): 50}
    catalogue = Catalogue((), (called("f", one), called("g", one), called("h", one)), (chain("three", 0, 1, 2),))
    run = drive(FastGshare(), World(catalogue, workers(1), tuple(Request(i, 0, 0, 0) for i in range(3))))
    assert len(run.rows(Kind.DONE)) == 3


def test_pods_of_a_failed_worker_are_placed_anew() -> None:
    requests = steady(20, 100, 500)
    run = drive(FastGshare(), World(PAIR, node(2), requests, outages=((0, 520 * MS, SECOND),)))
    assert {row.place for row in run.rows(Kind.RUN)} == {0, 1}
    assert len(run.rows(Kind.DONE)) == 20


# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("fast-gshare(every=1us)", "option every=1us is not 1ms or more"),
        ("fast-gshare(band=-1)", "option band=-1.0 is not a number of 0 or more"),
        ("fast-gshare(least=-1)", "option least=-1 is not a number of 0 or more"),
        ("fast-gshare(cpus=all)", "option cpus=all is neither share nor any"),
    ],
)
def test_options_that_make_no_sense_are_one_line(spec: str, problem: str) -> None:
    with pytest.raises(ExperimentError, match=f"^policy fast-gshare: {problem}$"):
        build(spec)


def test_the_authors_program_has_a_dead_band_and_no_residual_rule() -> None:
    assert describe(build("fast-gshare", authors=True)) == "fast-gshare(band=0.2,residual=off)"


def test_slices_of_a_batch_are_those_of_its_pod() -> None:
    catalogue = Catalogue((), (called("a", A),), (chain("one", 0),))
    run = drive(FastGshare(cpus="any"), World(catalogue, node(), steady(8, 20, 194)))
    assert [unpack(row.value)[:2] for row in run.rows(Kind.RUN)] == [(2, 2), (2, 2), (1, 2)]
    assert sizes(run) == [3, 4, 1]  # the first after 194 − 140 ms; one alone has a cell with one CPU only
