"""``jit``: nothing is placed before it is sent; in the authors' form a plan of ``hash`` that is looked at again."""

from hypothesis import given, settings

from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.compass.jit import Jit
from headway.fleet.policies.registry import build
from headway.units import MILLISECOND, SECOND
from tests.fleet.worlds import MB, World, drive, function, workers, worlds

MS = MILLISECOND
FORK = Graph(
    "fork",
    (Task("in", 0), Task("l", 1), Task("r", 2), Task("out", 3)),
    ((0, 1), (0, 2), (1, 3), (2, 3)),
)
FUNCTIONS = (function("f", 50, 0), function("g", 90, 1), function("h", 30), function("j", 5))
CATALOGUE = Catalogue((Model("a", 40 * MB), Model("b", 40 * MB)), FUNCTIONS, (FORK,))


def _world(count: int = 20, gap: int = 30 * MS) -> World:
    requests = tuple(Request(i, 0, i * gap, i % 3) for i in range(count))
    return World(CATALOGUE, workers(3), requests, push_interval=10 * MS)


@given(world=worlds())
@settings(max_examples=15, deadline=None)
def test_a_task_is_placed_when_nothing_it_waits_for_is_left(world: World) -> None:
    run = drive("jit", world)
    assert not run.rows(Kind.PLACE)
    done: dict[tuple[int, int], int] = {}
    tasks: dict[int, list[tuple[int, int]]] = {}
    graph_of = {request.id: world.catalogue.graphs[request.graph] for request in world.requests}
    for time, kind, subject, lease, _, detail, value in run.tape.rows.tolist():
        if kind == Kind.TASK:
            tasks.setdefault(lease, []).append((subject, detail))
        elif kind == Kind.FINISHED:
            done |= dict.fromkeys(tasks[lease], time)
        elif kind == Kind.LOST and value == 1:
            done.pop((subject, detail), None)
        elif kind == Kind.MOVE:
            assert all((subject, before) in done for before in graph_of[subject].predecessors[detail])


def test_the_idle_worker_with_the_model_is_taken() -> None:
    requests = (Request(0, 0, 0, 2), Request(1, 0, SECOND, 0), Request(2, 0, SECOND + MS, 1))
    run = drive("jit", World(CATALOGUE, workers(3), requests))
    first = {(row.subject, row.detail): row.place for row in run.rows(Kind.MOVE)}
    assert first[0, 0] == first[1, 0] == 2  # where the model is
    assert first[2, 0] in (0, 1)  # rather than behind request 1


def test_as_the_authors_have_it_entries_and_joins_stay_where_hash_put_them() -> None:
    policy = build("jit", authors=True)
    assert isinstance(policy, Jit)
    assert policy.start == "hash"
    run = drive(policy, _world())
    hashed = drive("hash(evict=fifo,prefetch=0)", _world())
    places = [(row.subject, row.detail, row.place) for row in run.rows(Kind.PLACE)]
    assert places == [(row.subject, row.detail, row.place) for row in hashed.rows(Kind.PLACE)]
    moved = {row.detail for row in run.rows(Kind.MOVE)}
    assert moved
    assert moved <= {1, 2}


def test_as_the_authors_have_it_nothing_moves_from_a_worker_with_nothing_queued() -> None:
    run = drive("jit(start=hash,estimate=queued)", _world(3, 10 * SECOND))
    assert not [row for row in run.rows(Kind.MOVE) if row.detail == 1]


def test_looking_again_beats_hash() -> None:
    def mean(policy: str) -> float:
        rows = drive(policy, _world()).rows(Kind.DONE)
        return sum(row.value for row in rows) / len(rows)

    assert mean("jit") < mean("jit(start=hash)") < mean("hash")
