"""A world and a run with a row of every kind: what the tests of audit, replay and metrics are made of."""

from functools import cache

from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import MIG, Fleet, Gpu, Links, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.units import MILLISECOND, SECOND
from tests.fleet.restless import Restless
from tests.fleet.worlds import MB, Run, World, drive

MODELS = (Model("a", 60 * MB), Model("b", 60 * MB), Model("c", 30 * MB))


def _profile(ms: int) -> Profile:
    cells = [Configuration(batch, cpus, slices) for batch in (1, 2) for cpus in (1, 2) for slices in (1, 2, 3, 7)]
    times = {cell: ms * MILLISECOND * (1 + cell.batch) // (1 + cell.cpus * cell.slices) + 1 for cell in cells}
    return Profile({"": times})


CATALOGUE = Catalogue(
    MODELS,
    (
        Function("f", (0,), _profile(60), activation_bytes=5 * MB),
        Function("g", (1, 2), _profile(90), cold_start=40 * MILLISECOND, instance_bytes=1000 * MB),
        Function("h", (), _profile(30), cold_start=10 * MILLISECOND),
    ),
    (
        Graph(
            "fork",
            (Task("in", 0, 3 * MB, MB), Task("l", 1, 0, MB), Task("r", 2, 0, MB), Task("out", 0, 0, 0)),
            ((0, 1), (0, 2), (1, 3), (2, 3)),
        ),
        Graph("chain", (Task("x", 2, MB, MB), Task("y", 1, 0, 0)), ((0, 1),)),
    ),
)
_MIG = Gpu("A100", 170 * MB, 7, MIG)
FLEET = Fleet(
    (
        Worker("w0", _MIG, 4, 100 * MB, host=0),
        Worker("w1", _MIG, 4, host=1),
        Worker("w2", Gpu("T4", 120 * MB, 7), 3, host=2, rack=1),
    ),
    Links(between_racks=1 << 28, write_back=True),
    keep_alive=60 * MILLISECOND,
)
WORLD = World(
    CATALOGUE,
    FLEET,
    tuple(
        Request(i, i % 2, i * 15 * MILLISECOND, i % 3, (i % 4 == 1) * (i * 15 * MILLISECOND + SECOND), i % 2)
        for i in range(24)
    ),
    outages=((0, 130 * MILLISECOND, 100 * MILLISECOND), (1, 320 * MILLISECOND, 50 * MILLISECOND)),
    preloaded=False,
)


@cache
def rich() -> Run:
    """The run; nobody may change it."""
    return drive(Restless(26), WORLD)
