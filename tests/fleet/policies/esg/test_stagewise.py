"""``stagewise``: a fixed share a stage, and nothing handed on."""

from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.policies.esg.stagewise import Stagewise
from headway.units import MILLISECOND
from tests.fleet.worlds import Run, World, chain, drive, workers

MS = MILLISECOND


def stepped(name: str, *times: int) -> Function:
    """One, two, four slices."""
    cells = {Configuration(1, 1, 1 << step): time * MS for step, time in enumerate(times)}
    return Function(name, (), Profile({"": cells}))


FLEET: Fleet = workers(1, slices=4)


def slices(run: Run) -> list[int]:
    return [unpack(row.value)[1] for row in run.rows(Kind.RUN)]


def test_what_a_stage_saves_is_lost_to_the_next() -> None:
    """The second stage scales badly: whoever looks ahead gives it all the time that the first one does not need."""
    catalogue = Catalogue((), (stepped("f", 80, 45, 26), stepped("g", 60, 59, 58)), (chain("two", 0, 1),))
    world = World(catalogue, FLEET, (Request(0, 0, 0, 0, 106 * MS),))
    assert slices(drive("esg", world)) == [2, 1]
    run = drive(Stagewise(), world)
    assert slices(run) == [2, 4]  # 57 ms are the second stage's share; the 4 that the first one saved are not
    assert run.rows(Kind.DONE)[0].value == 103 * MS


def test_shares_follow_the_longest_way_through_a_task() -> None:
    graph = Graph("d", tuple(Task(f"t{i}", i) for i in range(4)), ((0, 1), (0, 2), (1, 3), (2, 3)))
    functions = (stepped("a", 10), stepped("b", 80, 40), stepped("c", 20, 10), stepped("d", 10))
    policy = Stagewise()
    state = World(Catalogue((), functions, (graph,)), FLEET, ()).state(central=True)
    policy.bind(state)
    shares = policy._shares[0]
    assert shares[0] + shares[1] + shares[3] == 1.0
    assert shares[2] == 15 / 35


def test_who_waited_longer_than_the_share_takes_the_fastest() -> None:
    catalogue = Catalogue((), (stepped("f", 80, 50, 30), stepped("g", 500)), (chain("one", 0), chain("two", 1)))
    requests = (*(Request(index, 1, 0, 0) for index in range(4)), Request(4, 0, 1, 0, 600 * MS))
    run = drive(Stagewise(), World(catalogue, workers(1, slices=4), requests))
    assert slices(run) == [1, 1, 1, 1, 1]
    late = (*requests[:4], Request(4, 0, 1, 0, 535 * MS))
    assert slices(drive(Stagewise(), World(catalogue, workers(1, slices=4), late)))[-1] == 4
