"""``heft``: the plan of ``compass`` as if every worker were idle and held every model."""

from hypothesis import given, settings

from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.compass.heft import Heft
from headway.fleet.policies.registry import build, describe
from headway.units import MILLISECOND
from tests.fleet.worlds import MB, World, drive, function, workers, worlds

MS = MILLISECOND
FORK = Graph(
    "fork",
    (Task("in", 0), Task("long", 1), Task("short", 2), Task("out", 2)),
    ((0, 1), (0, 2), (1, 3), (2, 3)),
)
CATALOGUE = Catalogue((Model("a", 40 * MB),), (function("f", 50, 0), function("g", 90), function("h", 30)), (FORK,))


def _places(policy: str, count: int = 1, ingress: int = 1) -> list[list[int]]:
    requests = tuple(Request(i, 0, i * MS, ingress) for i in range(count))
    run = drive(build(policy), World(CATALOGUE, workers(3), requests))
    return [[row.place for row in run.rows(Kind.PLACE) if row.subject == i] for i in range(count)]


def test_the_longest_branch_stays_and_the_other_goes_to_the_first_worker() -> None:
    assert _places("heft") == [[1, 1, 0, 1]]


def test_neither_queues_nor_models_change_its_mind() -> None:
    assert _places("heft", 5) == [[1, 1, 0, 1]] * 5


def test_as_the_authors_have_it_every_request_begins_on_the_first_worker() -> None:
    assert [places[0] for places in _places("heft(ingress=off)", 3, ingress=2)] == [0, 0, 0]
    assert build("heft", authors=True).__dict__["ingress"] is False


@given(world=worlds())
@settings(max_examples=15, deadline=None)
def test_it_is_compass_without_its_terms(world: World) -> None:
    one = drive("heft", world).tape.rows.tolist()
    other = drive("compass(adjust=off,load=off,cache=off)", world).tape.rows.tolist()
    assert one == other


def test_its_name_tells_its_options() -> None:
    assert describe(Heft()) == "heft"
    assert describe(Heft(evict="fifo", prefetch=0)) == "heft(evict=fifo,prefetch=0)"
