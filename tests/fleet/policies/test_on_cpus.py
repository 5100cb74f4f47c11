"""Tasks that take CPUs alone, under every registered policy: no slice, no GPU memory, and not held up by a full GPU."""

from dataclasses import replace

import pytest

from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import MIG, Fleet, Gpu, Worker
from headway.fleet.model.request import Request
from headway.fleet.policies.registry import POLICIES, build
from headway.units import MILLISECOND, SECOND
from tests.conformance.serving import check_all
from tests.fleet.worlds import MB, World, chain, drive, function

RETRIEVE = Function("retrieve", (), Profile({"": {Configuration(1, 2, 0): 12 * MILLISECOND}}))
CATALOGUE = Catalogue(
    (Model("embedder", 40 * MB), Model("ranker", 40 * MB)),
    (function("embed", 20, 0), RETRIEVE, function("rank", 30, 1)),
    (chain("search", 0, 1, 2), chain("look up", 1)),
)
FLEET = Fleet(tuple(Worker(f"w{i}", Gpu("T4", 100 * MB), cpus=4, host=i) for i in range(2)))
REQUESTS = tuple(Request(i, i % 2, i * 15 * MILLISECOND, i % 2, 0 if i % 3 else 20 * SECOND) for i in range(12))
WORLD = World(CATALOGUE, FLEET, REQUESTS)
SIDE_BY_SIDE = ("esg", "stagewise", "plan-once", "exact", "headway", "infless", "fast-gshare", "orion-dag", "aquatope")
"""Policies that run several batches on a worker at once."""


@pytest.mark.parametrize("geometry", ["free", MIG])
@pytest.mark.parametrize("process", [0, 200 * MILLISECOND])
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_runs_a_graph_with_a_task_on_cpus(name: str, process: int, geometry: str) -> None:
    fleet = FLEET
    if geometry == MIG:
        workers = [replace(worker, gpu=Gpu("T4", 8 * 100 * MB, 7, MIG)) for worker in FLEET.workers]
        fleet = Fleet(tuple(workers))
    kinds = tuple(replace(kind, cold_start=process) for kind in CATALOGUE.functions)
    run = check_all(lambda: build(name), replace(WORLD, catalogue=replace(CATALOGUE, functions=kinds), fleet=fleet))
    ledger = Ledger(run.world.catalogue, run.world.fleet, run.world.requests, run.tape)
    on_cpus = ledger.function == 1
    assert on_cpus.any()
    assert not ledger.slices[on_cpus].any()
    assert (ledger.cpus[on_cpus] == 2).all()
    assert ledger.slices[~on_cpus].all()


@pytest.mark.parametrize("control", [True, False])
@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_a_task_on_cpus_runs_while_the_gpu_is_full(name: str, control: bool) -> None:
    """A long task holds the only slice; the one on CPUs ends long before it."""
    catalogue = Catalogue((), (function("train", 5000), RETRIEVE), (chain("long", 0), chain("look up", 1)))
    fleet = Fleet((FLEET.workers[0],))
    requests = (Request(0, 0, 0, 0), Request(1, 1, 100 * MILLISECOND, 0))
    run = drive(build(name), World(catalogue, fleet, requests, central=control or POLICIES[name].central))
    ledger = Ledger(catalogue, fleet, requests, run.tape)
    assert ledger.latency[0] >= 5 * SECOND
    assert ledger.latency[1] < SECOND


def test_a_worker_takes_as_many_processes_of_a_task_on_cpus_as_it_has_cpus() -> None:
    """Thirty look-ups at once on one slice and four CPUs: two run at a time, each in a process of its own."""
    kind = replace(RETRIEVE, cold_start=10 * MILLISECOND, profile=Profile({"": {Configuration(1, 1, 0): SECOND}}))
    catalogue = Catalogue((), (kind,), (chain("look up", 0),))
    requests = tuple(Request(i, 0, i * MILLISECOND, 0) for i in range(30))
    run = drive(build("esg"), World(catalogue, Fleet((FLEET.workers[0],)), requests))
    ledger = Ledger(catalogue, run.world.fleet, requests, run.tape)
    assert ledger.horizon < 15 * SECOND  # one after the other they take 30
