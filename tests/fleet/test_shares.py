"""Workers with a fixed share of a device: a batch takes all of it, policies choose the share by choosing the worker."""

import pytest

from headway.errors import ExperimentError, ProfileError
from headway.fleet.model.catalogue import ANY_GPU, Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import FIXED, WHOLE, Fleet, Gpu, Worker, cpus_of, find_slices
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.policies.registry import POLICIES, build
from headway.fleet.scenarios.tables.settings import parse_slices
from headway.units import MILLISECOND
from tests.conformance.serving import check_all
from tests.fleet.worlds import MB, World

SHARES = (1, 3, 7)
TIMES = {1: 14, 3: 6, 7: 3}
"""Milliseconds of one request by share."""


def cells(shares: tuple[int, ...] = SHARES) -> dict[Configuration, int]:
    """Times that fall with the share and grow with the batch."""
    return {
        Configuration(batch, 1, share): TIMES[share] * MILLISECOND * (1 + batch) // 2
        for share in shares
        for batch in (1, 2)
    }


def catalogue(shares: tuple[int, ...] = SHARES) -> Catalogue:
    """A chain of two functions with a model each, and one on CPUs alone behind them."""
    two = [Function(name, (at,), Profile({ANY_GPU: cells(shares)})) for at, name in enumerate(("sees", "speaks"))]
    joins = Function("joins", (), Profile({ANY_GPU: {Configuration(1, 1, 0): MILLISECOND}}))
    graph = Graph("g", tuple(Task(f.name, at) for at, f in enumerate((*two, joins))), ((0, 1), (1, 2)))
    return Catalogue((Model("a", 40 * MB), Model("b", 50 * MB)), (*two, joins), (graph,))


def fleet(shares: tuple[int, ...] = SHARES) -> Fleet:
    """A worker a share, all on one device."""
    gpus = [Gpu("gpu", 100 * MB, share, FIXED) for share in shares]
    return Fleet(tuple(Worker(f"share-{gpu.slices}", gpu, cpus=2, device=0) for gpu in gpus))


def world(gap: int = 4 * MILLISECOND, slo: int = 40 * MILLISECOND, **more: object) -> World:
    """Sixty requests."""
    requests = tuple(Request(at, 0, gap * at, at % 3, gap * at + slo if slo else 0) for at in range(60))
    return World(catalogue(), fleet(), requests, **more)  # type: ignore[arg-type]


def test_a_batch_takes_the_whole_share_or_nothing_of_it() -> None:
    gpu = Gpu("gpu", MB, 3, FIXED)
    assert find_slices(gpu, 3, 0) == (0, 0b111)
    assert [find_slices(gpu, slices, 0) for slices in (1, 2, 4, 7)] == [None] * 4
    assert find_slices(gpu, 3, 0b111) is None
    assert find_slices(gpu, 0, 0b111) == (0, 0)


def test_a_worker_has_the_cells_of_its_share() -> None:
    latency = LatencyModel(catalogue(), fleet())
    for worker, share in enumerate(SHARES):
        assert {cell.slices for cell in latency.cells(worker, 0)} == {share}
        assert latency.base[worker][0] == TIMES[share] * MILLISECOND
        assert latency.run_time(worker, 2, 1, 1, 0) == MILLISECOND, "without slices anywhere"
    with pytest.raises(ProfileError, match="function sees: its profile has no cell with 3 slices"):
        LatencyModel(catalogue((1, 7)), fleet())


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_keeps_its_promises(name: str) -> None:
    check_all(lambda: build(name), world())


def test_neighbours_on_one_device_slow_each_other_down() -> None:
    ten_percent = {(a, b): 1_100_000 for a in (0, 1) for b in (0, 1)}
    alone, beside = (check_all(lambda: build("hash"), world(interference=table)) for table in ({}, ten_percent))
    times = [sum(row.value for row in run.rows(Kind.DONE)) for run in (alone, beside)]
    assert times[0] < times[1]


@pytest.mark.parametrize("name", ["esg", "infless", "headway"])
def test_shares_are_chosen(name: str) -> None:
    run = check_all(lambda: build(name), world(gap=5 * MILLISECOND))
    taken = {unpack(row.value)[1] for row in run.rows(Kind.RUN)}
    assert len(taken - {0}) > 1, taken
    assert taken <= {0, *SHARES}
    assert run.world.fleet.workers[0].gpu.whole == WHOLE


def test_a_share_of_cpus_is_at_least_one_and_goes_round() -> None:
    assert cpus_of(1, [4, 5]) == (4,)
    assert cpus_of(7, [4, 5]) == (4, 5)
    assert cpus_of(3, [0, 1, 2, 3, 4, 5, 6], first=5) == (0, 5, 6)


@pytest.mark.parametrize("text", ["0", "8", "1,x", "1;2", "1.5", "mig:1", "MIG-3g"])
def test_what_is_no_share_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"MIG is not served|sevenths of a GPU, from 1 to 7"):
        parse_slices(text)
    assert parse_slices("1, 2,4") == (1, 2, 4)
    assert parse_slices("") == ()
