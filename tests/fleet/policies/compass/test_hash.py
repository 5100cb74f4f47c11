"""``hash``: drawn by name, the same every time, evenly, and only where a task can run."""

from collections import Counter

from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.compass.hash import hash_of
from headway.units import MILLISECOND, SECOND
from tests.fleet.worlds import MB, World, chain, drive, function, workers

CATALOGUE = Catalogue((Model("a", 50 * MB),), (function("f", 1, 0), function("g", 1)), (chain("x", 0, 1),))


def _placed(policy: str, fleet: Fleet, count: int = 40, **more: tuple[tuple[int, int, int], ...]) -> list[int]:
    requests = tuple(Request(i, 0, i * MILLISECOND, 0) for i in range(count))
    return [row.place for row in drive(policy, World(CATALOGUE, fleet, requests, **more)).rows(Kind.PLACE)]


def test_draws_are_even_and_do_not_depend_on_each_other() -> None:
    count = Counter(hash_of(request, task, 0) % 5 for request in range(4000) for task in range(4))
    assert max(count.values()) - min(count.values()) < 400  # of 3,200 each
    pairs = Counter((hash_of(request, 0, 7) % 2, hash_of(request, 1, 7) % 2) for request in range(4000))
    assert max(pairs.values()) - min(pairs.values()) < 200  # of 1,000 each


def test_the_same_every_time_and_another_with_another_salt() -> None:
    assert _placed("hash", workers(4)) == _placed("hash", workers(4))
    assert _placed("hash", workers(4)) != _placed("hash(salt=1)", workers(4))


def test_other_arrivals_are_another_draw() -> None:
    early = tuple(Request(i, 0, i * MILLISECOND, 0) for i in range(40))
    late = tuple(request._replace(arrival=request.arrival + 1) for request in early)
    places = [
        [row.place for row in drive("hash", World(CATALOGUE, workers(4), requests)).rows(Kind.PLACE)]
        for requests in (early, late)
    ]
    assert places[0] != places[1]


def test_only_where_a_task_can_run() -> None:
    fleet = Fleet(tuple(Worker(f"w{i}", Gpu("T4", size * MB), host=i) for i, size in enumerate((10, 60, 10, 60))))
    requests = tuple(Request(i, 0, i * MILLISECOND, 0) for i in range(40))
    rows = drive("hash", World(CATALOGUE, fleet, requests)).rows(Kind.PLACE)
    assert {row.place for row in rows if row.detail == 0} == {1, 3}
    assert {row.place for row in rows if row.detail == 1} == {0, 1, 2, 3}


def test_a_worker_that_is_down_gets_nothing_and_its_tasks_go_elsewhere() -> None:
    fleet = workers(3)
    requests = tuple(Request(i, 0, i * MILLISECOND, 0) for i in range(40))
    run = drive("hash", World(CATALOGUE, fleet, requests, ((1, 20 * MILLISECOND, SECOND),)))
    assert not [row for row in run.rows(Kind.PLACE) if row.place == 1 and row.time >= 20 * MILLISECOND]
    assert [row for row in run.rows(Kind.PLACE) if row.place == 1]
    assert len(run.rows(Kind.DONE)) == 40
