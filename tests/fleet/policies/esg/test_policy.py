"""What ``esg`` does, and with it every policy that pulls from the pool: queues, dispatch, processes, latecomers."""

from dataclasses import replace

import pytest

from headway.core.tape import TapeRow
from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.policies.esg.policy import Esg
from headway.fleet.policies.registry import build
from headway.units import MILLISECOND, SECOND
from tests.fleet.worlds import MB, Run, World, chain, drive, workers

MS = MILLISECOND
POOLED = ("esg", "stagewise", "plan-once", "exact")


def scaled(name: str, ms: int, *models: int, batches: tuple[int, ...] = (1, 2, 4), **options: int) -> Function:
    """Twice the slices, 0.6 of the time; twice the batch, 1.6 of it."""
    steps = {1: 1.0, 2: 0.6, 4: 0.36}
    longer = {1: 1.0, 2: 1.6, 4: 2.56}
    cells = {Configuration(b, 1, s): round(ms * MS * longer[b] * steps[s]) for b in batches for s in steps}
    return Function(name, models, Profile({"": cells}), **options)


def fleet(count: int, slices: int = 4, memory_bytes: int = 100 * MB) -> Fleet:
    return workers(count, memory_bytes, slices=slices)


def started(run: Run) -> list[tuple[int, int, int, int]]:
    """(when, worker, slices, tasks) of every batch."""
    sizes: dict[int, int] = {}
    for row in run.rows(Kind.TASK):
        sizes[row.lease] = sizes.get(row.lease, 0) + 1
    return [(row.time, row.place, unpack(row.value)[1], sizes[row.lease]) for row in run.rows(Kind.RUN)]


def answers(run: Run) -> dict[int, int]:
    return {row.subject: row.time for row in run.rows(Kind.DONE)}


TWO = Catalogue((), (scaled("f", 100), scaled("g", 50)), (chain("two", 0, 1),))


@pytest.mark.parametrize("name", POOLED)
def test_the_tighter_the_deadline_the_more_slices(name: str) -> None:
    for deadline, slices in ((151 * MS, [1, 1]), (61 * MS, [4, 4]), (0, [1, 1])):
        run = drive(name, World(TWO, fleet(1), (Request(0, 0, 0, 0, deadline),)))
        assert [row[2] for row in started(run)] == slices
        assert not deadline or answers(run)[0] <= deadline


def test_what_a_stage_lost_the_next_one_makes_good() -> None:
    noisy = replace(TWO.functions[0], profile=replace(TWO.functions[0].profile, spread=0.2))
    for seed in range(8):
        world = World(replace(TWO, functions=(noisy, TWO.functions[1])), fleet(1), (Request(0, 0, 0, 0, 151 * MS),))
        run = drive(Esg(deviations=0.0), replace(world, seed=seed))
        (_, _, first, _), (began, _, second, _) = started(run)
        assert first == 1
        assert second == next(s for s, t in ((1, 50), (2, 30), (4, 18)) if began + t * MS <= 151 * MS or s == 4)


def test_run_times_that_vary_leave_a_reserve() -> None:
    noisy = replace(TWO.functions[1], profile=replace(TWO.functions[1].profile, spread=0.1))
    world = World(Catalogue((), (noisy,), (chain("one", 0),)), fleet(1), (Request(0, 0, 0, 0, 55 * MS),))
    assert started(drive(Esg(deviations=0.0), world))[0][2] == 1
    assert started(drive(Esg(deviations=2.0), world))[0][2] == 2


@pytest.mark.parametrize("name", ["esg", "stagewise", "exact"])
def test_a_queue_that_grew_is_run_as_a_batch(name: str) -> None:
    catalogue = Catalogue((), (scaled("f", 100),), (chain("one", 0),))
    requests = tuple(Request(index, 0, index, 0, 10 * SECOND) for index in range(5))
    run = drive(name, World(catalogue, fleet(1, slices=1), requests))
    assert [row[3] for row in started(run)] == [1, 4]


def test_who_waits_is_served_before_who_comes_when_room_is_made() -> None:
    catalogue = Catalogue(
        (), (scaled("f", 100, batches=(1,)), scaled("g", 50, batches=(1,))), (chain("one", 0), chain("two", 1))
    )
    requests = (Request(0, 0, 0, 0), Request(1, 1, 1, 0), Request(2, 0, 100 * MS, 0))
    run = drive("esg", World(catalogue, fleet(1, slices=1), requests))
    assert answers(run) == {0: 100 * MS, 1: 150 * MS, 2: 250 * MS}


def test_after_repeated_failures_the_least_configuration_is_tried() -> None:
    """Request 1 wants all four slices, one is free all the time while short ones come and go."""
    catalogue = Catalogue(
        (),
        (scaled("f", 100), scaled("long", 1000, batches=(1,)), scaled("g", 10)),
        tuple(chain(n, i) for i, n in enumerate("abc")),
    )
    requests = [Request(0, 1, 0, 0), Request(1, 0, 1, 0, 41 * MS)]
    requests += [Request(2 + index, 2, index * 4 * MS + 2, 0) for index in range(9)]
    run = drive(Esg(patience=3), World(catalogue, fleet(1), tuple(requests)))
    assert [row[2] for row in started(run)].count(4) == 0
    assert answers(run)[1] < 1000 * MS


def test_the_predecessors_worker_is_preferred() -> None:
    requests = tuple(Request(index, 0, index * 400 * MS, 0) for index in range(4))
    run = drive("esg", World(TWO, fleet(3), requests))
    places = [row[1] for row in started(run)]
    assert places[::2] == places[1::2]


@pytest.mark.parametrize("name", POOLED)
def test_it_is_preferred_to_one_that_has_the_weights(name: str) -> None:
    """The second stage's weights are on worker 0 by then, the first stage of the second request ran on worker 1."""
    catalogue = Catalogue(
        (Model("m", 40 * MB), Model("n", 40 * MB)),
        (scaled("f", 100, 0, batches=(1,)), scaled("g", 50, 1, batches=(1,)), scaled("h", 170, batches=(1,))),
        (chain("two", 0, 1), chain("one", 2)),
    )
    busy = tuple(Request(index, 1, 200 * MS, 0) for index in range(1, 5))
    world = World(catalogue, fleet(2), (Request(0, 0, 0, 0), *busy, Request(5, 0, 290 * MS, 0)))
    batches = [row[1] for row in started(drive(name, world))]
    assert batches == [0, 0, 0, 0, 0, 0, 1, 1]  # worker 0 has room and the weights when the last one starts


def test_of_warm_workers_the_fullest_is_taken() -> None:
    catalogue = Catalogue((), (scaled("f", 100, batches=(1,)),), (chain("one", 0),))
    requests = tuple(Request(index, 0, index, 0) for index in range(5))
    run = drive("esg", World(catalogue, fleet(2), requests))
    assert [row[1] for row in started(run)] == [0, 0, 0, 0, 1]


# --- warm processes ---------------------------------------------------------------------------------------------

COLD = Catalogue(
    (), (scaled("f", 100, cold_start=2 * SECOND), scaled("g", 50, cold_start=3 * SECOND)), (chain("two", 0, 1),)
)


@pytest.mark.parametrize("name", POOLED)
def test_no_batch_holds_slices_while_a_process_starts(name: str) -> None:
    requests = tuple(Request(index, 0, index * 40 * MS, 0, index * 40 * MS + 200 * MS) for index in range(200))
    run = drive(name, World(COLD, fleet(2), requests))
    assert not run.rows(Kind.COLD)
    answered = answers(run)
    hits = [answered[request.id] <= request.deadline for request in requests]
    assert not any(hits[:70])
    assert all(hits[120:])


def test_later_stages_are_warm_when_the_first_request_gets_there() -> None:
    requests = tuple(Request(index, 0, index * 50 * MS, 0) for index in range(3))
    run = drive("esg", World(COLD, fleet(1), requests))
    begun = {row.detail: row.time for row in reversed(run.rows(Kind.START_INSTANCE))}
    assert begun == {0: 0, 1: 50 * MS}
    assert answers(run)[0] == 3 * SECOND + 130 * MS  # the second stage's process began with the second request


def test_without_prewarming_they_are_not() -> None:
    run = drive(Esg(prewarm=False), World(COLD, fleet(1), (Request(0, 0, 0, 0),)))
    assert answers(run)[0] == 5 * SECOND + 150 * MS


def test_processes_that_were_let_go_are_back_when_the_next_request_is_due() -> None:
    requests = tuple(Request(index, 0, index * 100 * SECOND, 0) for index in range(4))
    world = World(COLD, replace(fleet(1), keep_alive=10 * SECOND), requests)
    answered = answers(drive("esg", world))
    latencies = [answered[request.id] - request.arrival for request in requests]
    assert latencies[:2] == [5 * SECOND + 150 * MS, 3 * SECOND + 50 * MS]
    assert latencies[2:] == [150 * MS, 150 * MS]


# --- who is late ------------------------------------------------------------------------------------------------


def crowd() -> World:
    """Requests that can never keep their deadline, then some that can."""
    catalogue = Catalogue((), (scaled("f", 100, batches=(1,)),), (chain("one", 0),))
    hopeless = [Request(index, 0, 0, 0, 30 * MS) for index in range(40)]
    others = [Request(40 + index, 0, 150 * MS + index * 50 * MS, 0, 320 * MS + index * 50 * MS) for index in range(10)]
    return World(catalogue, fleet(2), (*hopeless, *others))


@pytest.mark.parametrize("name", POOLED)
def test_who_is_late_anyway_goes_last_at_least_cost_and_is_answered(name: str) -> None:
    run = drive(name, crowd())
    answered = answers(run)
    assert len(answered) == 50
    assert {row[2] for row in started(run)} == {1}
    assert all(answered[request.id] <= request.deadline for request in run.world.requests[40:])


def test_as_the_paper_has_it_they_take_what_is_fastest() -> None:
    run = drive(Esg(late="plan"), crowd())
    assert started(run)[0][2] == 4
    assert len(answers(run)) == 50


@pytest.mark.parametrize("late", ["last", "plan"])
def test_one_who_is_late_does_not_hurry_those_beside_it(late: str) -> None:
    """While the one slice is taken, request 1 loses its deadline and 2 to 4 keep theirs: they wait behind 0."""
    catalogue = Catalogue((), (scaled("f", 100), scaled("g", 100, batches=(1,))), (chain("one", 0), chain("two", 1)))
    first = tuple(Request(index, 1, 0, 0) for index in range(4))
    patient = tuple(Request(index, 0, 2, 0, 100 * MS + 257 * MS) for index in range(5, 8))
    run = drive(Esg(late=late), World(catalogue, fleet(1), (*first, Request(4, 0, 1, 0, 50 * MS), *patient)))
    wanted = [(4, 1)] if late == "plan" else [(2, 1), (1, 1), (1, 1)]
    assert [row[3:1:-1] for row in started(run)[4:]] == wanted
    assert all(answers(run)[request.id] <= request.deadline for request in patient)


def test_the_authors_plan_for_the_late_and_keep_no_reserve() -> None:
    for name in POOLED:
        policy = build(name, authors=True)
        assert (policy.__dict__["late"], policy.__dict__["deviations"]) == ("plan", 0.0)
        assert build(f"{name}(late=last)", authors=True).__dict__["late"] == "last"


@pytest.mark.parametrize("name", POOLED)
@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ("patience=-1", "patience=-1 is not a number of 0 or more"),
        ("deviations=-1", "deviations=-1.0 is not a number of 0 or more"),
        ("deviations=nan", "deviations=nan is not a number of 0 or more"),
        ("deviations=inf", "deviations=inf is not a number of 0 or more"),
        ("late=never", "late=never is neither last nor plan"),
    ],
)
def test_options_that_make_no_sense_are_named(name: str, option: str, rule: str) -> None:
    with pytest.raises(ExperimentError, match=f"^policy {name}: option {rule}$"):
        build(f"{name}({option})")


@pytest.mark.parametrize("spec", ["esg(ranks=0)", "esg(group=0)", "stagewise(ranks=-1)", "exact(ranks=0)"])
def test_nothing_can_be_searched_with_less_than_one(spec: str) -> None:
    with pytest.raises(ExperimentError, match="is not a number of 1 or more"):
        build(spec)


def test_a_plan_may_be_greedy_from_the_start_but_no_less() -> None:
    assert build("plan-once(cutoff=0)").name == "plan-once"
    with pytest.raises(ExperimentError, match="policy plan-once: option cutoff=-1 is not a number of 0 or more"):
        build("plan-once(cutoff=-1)")


# --- memory, faults, joins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POOLED)
def test_what_was_used_least_recently_makes_room(name: str) -> None:
    models = tuple(Model(letter, 40 * MB) for letter in "abc")
    functions = tuple(scaled(model.name, 100, index, batches=(1,)) for index, model in enumerate(models))
    catalogue = Catalogue(models, functions, tuple(chain(model.name, index) for index, model in enumerate(models)))
    requests = tuple(Request(index, graph, index * SECOND, 0) for index, graph in enumerate((0, 1, 0, 2)))
    run = drive(name, World(catalogue, fleet(1), requests))
    assert [row.detail for row in run.rows(Kind.EVICTED)] == [1]


DIAMOND = Graph("d", tuple(Task(f"t{i}", i % 2) for i in range(4)), ((0, 1), (0, 2), (1, 3), (2, 3)))


@pytest.mark.parametrize("name", POOLED)
def test_forks_and_joins_keep_their_deadlines_though_workers_die(name: str) -> None:
    catalogue = replace(TWO, graphs=(DIAMOND,))
    requests = tuple(Request(index, 0, index * 300 * MS, 0, index * 300 * MS + 290 * MS) for index in range(12))
    world = World(catalogue, fleet(3), requests)
    answered = answers(drive(name, world))
    assert all(answered[request.id] <= request.deadline for request in requests)
    outages = ((0, 400 * MS, 200 * MS), (1, 1000 * MS, SECOND), (2, 1050 * MS, 500 * MS))
    run = drive(name, replace(world, outages=outages))
    assert sorted(answers(run)) == list(range(12))
    assert run.rows(Kind.LOST)


def test_a_function_that_fits_nowhere_is_named() -> None:
    big = Fleet((Worker("w", Gpu("T4", 10 * MB, slices=4), cpus=4),))
    catalogue = Catalogue((Model("m", 20 * MB),), (scaled("f", 100, 0),), (chain("one", 0),))
    with pytest.raises(ExperimentError, match="function f: no worker can hold any of its configurations"):
        drive("esg", World(catalogue, big, (Request(0, 0, 0, 0),)))


def test_on_gpus_of_two_types_the_slower_one_is_planned_for() -> None:
    cells = {
        "T4": {Configuration(1, 1, s): time * MS for s, time in ((1, 100), (2, 55), (4, 40))},
        "A100": {Configuration(1, 1, 1): 40 * MS},
    }
    catalogue = Catalogue((), (Function("f", (), Profile(cells)),), (chain("one", 0),))
    mixed = Fleet(
        tuple(Worker(f"w{i}", Gpu(kind, 100 * MB, slices=4), cpus=4) for i, kind in enumerate(("A100", "T4")))
    )
    requests = tuple(Request(index, 0, index * 5 * MS, 0, index * 5 * MS + 60 * MS) for index in range(3))
    run = drive("esg", World(catalogue, mixed, requests))
    assert [(row[1], row[2]) for row in started(run)][:1] == [(1, 2)]
    assert _latest(run.rows(Kind.DONE)) <= 200 * MS


def _latest(rows: list[TapeRow]) -> int:
    return max(row.time for row in rows)
