"""Small fleets by hand for the tests of headway's parts."""

from collections.abc import Sequence

from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.events import RequestArrived
from headway.fleet.model.fleet import Fleet, Gpu, Links, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.policies.headway.worker.order import FleetTables, Mix
from headway.fleet.state.requeststate import RequestState
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND
from tests.fleet.worlds import MB, chain, function

FORK = Graph(
    "fork",
    (Task("a", 0), Task("b", 1), Task("c", 1), Task("d", 2)),
    ((0, 1), (0, 2), (1, 3), (2, 3)),
)
CATALOGUE = Catalogue(
    (Model("small", 40 * MB), Model("large", 80 * MB)),
    (function("quick", 20, 0), function("slow", 400, 1), function("bare", 5)),
    (FORK, chain("long", 1), chain("short", 0), chain("two", 2, 0)),
)
LONG, SHORT, TWO = 1, 2, 3


def fleet(count: int, memory_bytes: int = 130 * MB, *, write_back: bool = False) -> Fleet:
    """Equal workers on one host, where a fetch of the larger model takes 80 ms."""
    links = Links(host_to_gpu=1000 * MB, write_back=write_back)
    return Fleet(tuple(Worker(f"w{i}", Gpu("T4", memory_bytes)) for i in range(count)), links)


def state_of(count: int, push_interval: int = 0, catalogue: Catalogue = CATALOGUE, **options: int) -> ServingState:
    """A state before anything happens."""
    return ServingState(catalogue, fleet(count, **options), to_come=1000, push_interval=push_interval)


def land(state: ServingState, id: int, graph: int, now: int = 0, ingress: int = 0, deadline: int = 0) -> RequestState:
    """A request arrives."""
    state.apply(now, RequestArrived(Request(id, graph, now, ingress, deadline)))
    return state.requests[id]


def resident(state: ServingState, worker: int, models: Sequence[int], now: int = 0) -> None:
    """Have models on a worker."""
    state.touch(state.workers[worker], now)
    for model in models:
        state.workers[worker].memory.add(model, now)


def mixes_of(state: ServingState) -> tuple[FleetTables, list[Mix]]:
    """What the parts share."""
    tables = FleetTables(state)
    return tables, [Mix(tables) for _ in state.workers]


MS = MILLISECOND
