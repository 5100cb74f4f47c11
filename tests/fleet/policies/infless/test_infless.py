"""``infless`` at work: batches that wait, the scaling clock, keep-alive, failures."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.actions import Action
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.policies.infless import Infless
from headway.fleet.policies.infless.instances import Instances
from headway.fleet.policies.infless.planner import Cell, Planned, rates_of
from headway.fleet.policies.infless.stage import Stage
from headway.fleet.policies.registry import build
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND, SECOND
from tests.fleet.policies.infless.example import CATALOGUE
from tests.fleet.policies.worked_example import A, B, C
from tests.fleet.worlds import Run, World, chain, drive

MS = MILLISECOND


def nodes(count: int, **options: Any) -> Fleet:
    gpu = Gpu("T4", 1 << 30, slices=7)
    return Fleet(tuple(Worker(f"w{i}", gpu, cpus=16, host=i) for i in range(count)), **options)


def deploying(monkeypatch: pytest.MonkeyPatch, chosen: Callable[[Stage], Cell]) -> None:
    """Let each stage begin with an instance of this configuration, each task on the worker of its number."""

    def deploy(self: Instances, state: ServingState, stage: Stage) -> Iterator[Action]:
        cell = chosen(stage)
        rates = rates_of(cell, stage.slo)
        assert rates is not None
        yield from self._open(state, stage, Planned(stage.key[1], cell, rates), first=True, reserved=True)

    monkeypatch.setattr(Instances, "deploy", deploy)


def served(times: dict[tuple[int, int, int], int], **options: Any) -> Catalogue:
    """One function of these times, alone in its graph."""
    cells = {Configuration(*sizes): ms * MS for sizes, ms in times.items()}
    return Catalogue((), (Function("f", (), Profile({"": cells}), **options),), (chain("one", 0),))


def starts(run: Run) -> list[tuple[float, int]]:
    """When each batch began, in ms, and its size."""
    sizes: dict[int, int] = {}
    for row in run.rows(Kind.TASK):
        sizes[row.lease] = sizes.get(row.lease, 0) + 1
    return [(row.time / MS, sizes[row.lease]) for row in run.rows(Kind.RUN)]


def latencies(run: Run) -> list[float]:
    return [row.value / MS for row in sorted(run.rows(Kind.DONE), key=lambda row: row.subject)]


def test_the_timeline_of_the_worked_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code's plan, arrivals every 50 ms: A pairs them up, B follows at once, C runs one by one."""
    plan = ((A, (2, 1, 2)), (B, (2, 2, 4)), (C, (1, 1, 2)))

    def chosen(stage: Stage) -> Cell:
        table, sizes = plan[stage.function]
        return Cell(Configuration(*sizes), table[sizes] * MS)

    deploying(monkeypatch, chosen)
    requests = tuple(Request(i, 0, i * 50 * MS, 0, i * 50 * MS + 600 * MS) for i in range(8))
    run = drive(Infless(metric="code", grid=False), World(CATALOGUE, nodes(3), requests))
    by_stage = [[row.time // MS for row in run.rows(Kind.RUN) if row.place == stage] for stage in range(3)]
    assert by_stage[0] == [50, 150, 250, 350]
    assert by_stage[1] == [140, 240, 340, 440]
    assert by_stage[2] == [240, 280, 340, 380, 440, 480, 540, 580]
    assert [round(ms) for ms in latencies(run)] == [280, 270] * 4  # a message takes 2 µs


@given(gaps=st.lists(st.integers(0, 300), min_size=1, max_size=25), batch=st.sampled_from([2, 4]))
@settings(max_examples=40, deadline=None)
def test_a_batch_runs_when_it_is_full_or_its_first_request_has_waited_for_the_timeout(
    gaps: list[int], batch: int
) -> None:
    times = {(batch, 1, 1): 70, (1, 1, 1): 70}  # however many there are
    arrivals, now = [], 0
    for gap in gaps:
        arrivals.append(now := now + gap)
    expected, free, left = [], 0, list(arrivals)
    while left:
        heads = left[:batch]
        full = heads[-1] if len(heads) == batch else left[0] + 130
        begin = max(free, min(full, left[0] + 130))
        size = sum(arrival <= begin for arrival in heads)
        expected.append((float(begin), size))
        free, left = begin + 70, left[size:]
    requests = tuple(Request(i, 0, at * MS, 0, (at + 200) * MS) for i, at in enumerate(arrivals))
    with pytest.MonkeyPatch.context() as patch:
        deploying(patch, lambda stage: Cell(Configuration(batch, 1, 1), 70 * MS))
        run = drive(Infless(replicas=1), World(served(times), nodes(1), requests))
    assert starts(run) == expected


def test_without_waiting_a_batch_takes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = tuple(Request(i, 0, at * MS, 0, (at + 200) * MS) for i, at in enumerate((0, 10, 20)))
    deploying(monkeypatch, lambda stage: Cell(Configuration(4, 1, 1), 70 * MS))
    world = World(served({(4, 1, 1): 70, (1, 1, 1): 30}), nodes(1), requests)
    assert starts(drive(Infless(), world)) == [(130, 3)]
    assert starts(drive(Infless(wait=False), world)) == [(0, 1), (30, 2)]


def steady(rate: int, seconds: int, begin: int = 0, first: int = 0) -> list[Request]:
    every = SECOND // rate
    at = [begin * SECOND + i * every for i in range(rate * seconds)]
    return [Request(first + i, 0, time, 0, time + 200 * MS) for i, time in enumerate(at)]


def test_instances_follow_the_rate_at_the_scaling_clock() -> None:
    """60 requests a second for 30 s, then 5: a batch of 4 is added for what the first cannot take, and goes again."""
    busy = steady(60, 30)
    quiet = steady(5, 60, 30, len(busy))
    catalogue = served({(4, 1, 1): 50, (1, 1, 1): 45}, cold_start=SECOND)
    run = drive(Infless(), World(catalogue, nodes(1), (*busy, *quiet)), bounded=False)
    begun = [row.time / SECOND for row in run.rows(Kind.START_INSTANCE)]
    assert begun == [0.0, 10.0]  # the first serves 22 a second; a batch of 4 suits 26 to 80
    ended = [row.time / SECOND for row in run.rows(Kind.STOP_INSTANCE)]
    assert len(ended) == 1
    assert 60 <= ended[0] <= 70  # three rounds without work
    sizes = {size for at, size in starts(run) if 15_000 < at < 30_000}
    assert 4 in sizes


def test_a_large_batch_is_not_started_for_a_rate_that_does_not_fill_it() -> None:
    run = drive(
        Infless(),
        World(served({(4, 1, 1): 50, (1, 1, 1): 45}), nodes(1), tuple(steady(30, 25))),
        bounded=False,
    )
    assert {size for _, size in starts(run)} == {1}  # 8 a second are left over; a batch of 4 wants 26


def test_no_more_instances_than_replicas() -> None:
    requests = tuple(steady(80, 25))
    for replicas in (1, 2, 3):
        world = World(served({(1, 1, 1): 45}, cold_start=MS), nodes(1), requests)
        run = drive(Infless(replicas=replicas), world, bounded=False)
        assert len(run.rows(Kind.START_INSTANCE)) == replicas


def test_a_process_is_started_before_the_next_request_is_due() -> None:
    """One request every half hour, processes kept for ten minutes: known after ten idle times."""
    times = [i * 1800 * SECOND for i in range(15)]
    requests = tuple(Request(i, 0, at, 0, at + 200 * MS) for i, at in enumerate(times))
    world = World(served({(1, 1, 1): 45}, cold_start=5 * SECOND), nodes(1), requests)
    warm = latencies(drive(Infless(), world, bounded=False))
    assert warm[:11] == [5045] * 11
    assert warm[11:] == [45] * 4
    for options in ("prewarm=off", "histogram=off"):
        assert latencies(drive(build(f"infless({options})"), world, bounded=False)) == [5045] * 15


def test_stages_of_a_graph_are_deployed_with_its_first_request() -> None:
    functions = tuple(Function(n, (), Profile({"": {Configuration(1, 1, 1): 40 * MS}}), SECOND) for n in "fg")
    world = World(Catalogue((), functions, (chain("two", 0, 1),)), nodes(1), (Request(0, 0, 0, 0, SECOND),))
    assert latencies(drive(Infless(), world)) == [1080]
    assert latencies(drive(Infless(prewarm=False), world)) == [2080]


def test_what_waits_where_a_worker_fails_runs_elsewhere() -> None:
    requests = tuple(Request(i, 0, i * MS, 0, 900 * MS) for i in range(4))
    world = World(served({(1, 1, 1): 45}), nodes(2), requests, outages=((0, 60 * MS, 400 * MS),))
    run = drive(Infless(), world)
    assert sorted(row.subject for row in run.rows(Kind.DONE)) == [0, 1, 2, 3]
    assert {row.place for row in run.rows(Kind.RUN) if row.time > 60 * MS} == {1}


def test_stages_that_find_nothing_free_share_a_worker() -> None:
    functions = tuple(Function(n, (), Profile({"": {Configuration(1, 1, 7): 40 * MS}})) for n in "fgh")
    catalogue = Catalogue((), functions, (chain("three", 0, 1, 2),))
    world = World(catalogue, nodes(1), tuple(Request(i, 0, 0, 0, SECOND) for i in range(3)))
    run = drive(Infless(), world)
    assert len(run.rows(Kind.DONE)) == 3
    assert {unpack(row.value)[1] for row in run.rows(Kind.RUN)} == {7}


def test_the_published_grid_gives_at_most_half_a_gpu() -> None:
    catalogue = served({(1, 1, slices): 80 // slices for slices in (1, 2, 3, 5, 7)})
    world = World(catalogue, nodes(1), (Request(0, 0, 0, 0, SECOND),))
    assert unpack(drive(Infless(metric="code"), world).rows(Kind.RUN)[0].value)[1] == 3
    assert unpack(drive(Infless(metric="code", grid=False), world).rows(Kind.RUN)[0].value)[1] == 7


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("metric=best", "metric=best is neither paper nor code"),
        ("replicas=0", "replicas=0 is not a number of 1 or more"),
        ("batch=-1", "batch=-1 is not a number of 0 or more"),
        ("gamma=1.5", "gamma=1.5 is not a number from 0 to 1"),
        ("safety=nan", "safety=nan is not a number of 0 or more"),
        ("scale=0s", "scale=0s is not 1ms or more"),
        ("dispatch=10us", "dispatch=10us is not 1ms or more"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(spec: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=f"policy infless: option {said}"):
        build(f"infless({spec})")
