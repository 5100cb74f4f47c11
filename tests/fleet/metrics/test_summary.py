"""The numbers of a serving run: against a plain walk over any tape, and by hand where fingers are enough."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.core.tape import Tape
from headway.errors import TapeError
from headway.fleet.metrics.cost import costs
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.metrics.little import little
from headway.fleet.metrics.summary import critical_paths, messages, summarise
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import GIB, Fleet, Gpu, Worker
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, pack
from headway.units import HOUR, MILLISECOND, SECOND
from tests.fleet.metrics.naive import naive
from tests.fleet.restless import Restless
from tests.fleet.rich import WORLD, rich
from tests.fleet.worlds import MB, World, chain, drive, function, workers, worlds


def summary(world: World, tape: Tape, warmup: float = 0.0, **options: Any) -> dict[str, Any]:
    return summarise(
        world.catalogue, world.fleet, world.requests, tape, latency=world.latency(), warmup=warmup, **options
    )


def agree(world: World, tape: Tape, warmup: float) -> None:
    expected = naive(world, tape, int(warmup * len(world.requests)))
    found = summary(world, tape, warmup)
    assert set(expected) == set(found) - {"policy", "graphs", "tenants"}
    for key, value in expected.items():
        assert found[key] == (pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value), key
    present, stayed = little(world.catalogue, world.fleet, world.requests, tape)
    assert present == stayed


@given(worlds(), st.sampled_from([0.0, 0.25]), st.integers(0, 3), st.sampled_from([1.0, 1.0, 0.6]))
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_every_number_is_that_of_a_plain_walk(world: World, warmup: float, seed: int, share: float) -> None:
    tape = drive(Restless(seed), world).tape
    agree(world, tape.until(int(tape.column("time")[-1] * share)), warmup)


def test_the_rich_tape_has_the_numbers_of_a_plain_walk() -> None:
    agree(WORLD, rich().tape, 0.0)
    agree(WORLD, rich().tape, 0.5)
    found = summary(WORLD, rich().tape)
    counted = ("lost_tasks", "evictions", "prefetches_used", "cold_starts", "dropped", "cost_keepalive_usd", "moves")
    assert all(found[key] > 0 for key in counted), "otherwise the comparison says little"
    assert found["prefetches_used"] < found["prefetches"]


def test_requests_need_not_be_numbered_from_zero() -> None:
    renamed = replace(WORLD, requests=tuple(r._replace(id=1000 - 3 * r.id) for r in WORLD.requests))
    agree(renamed, drive(Restless(2), renamed).tape, 0.25)


# --- by hand ------------------------------------------------------------------------------------------------------

TWO = World(
    Catalogue(
        (Model("m", 97 * MB),),
        (function("f", 100, 0), function("g", 50, cold_start=30 * MILLISECOND, instance_bytes=GIB)),
        (chain("both", 0, 1), chain("g", 1)),
    ),
    workers(2, memory_bytes=1000 * MB),
    (
        Request(0, 0, 0, 0, deadline=300 * MILLISECOND),
        Request(1, 1, 0, 1, deadline=20 * MILLISECOND),
        Request(2, 1, 10 * MILLISECOND, 1),
    ),
)
MS = MILLISECOND


def _tape(*rows: tuple[int, ...]) -> Tape:
    return Tape(np.array(rows, dtype=np.int64))


def _batch(now: int, lease: int, worker: int, called: int, *tasks: tuple[int, int]) -> list[tuple[int, ...]]:
    run = (now, Kind.RUN, tasks[0][0], lease, worker, called, pack(1, 1, 0))
    return [run, *((now, Kind.TASK, request, lease, worker, task, now) for request, task in tasks)]


BY_HAND = _tape(
    (0, Kind.ARRIVED, 0, 0, 0, 0, 300 * MS),
    (0, Kind.ARRIVED, 1, 0, 1, 1, 20 * MS),
    *_batch(0, 1, 0, 0, (0, 0)),
    (0, Kind.LOAD, -1, 1, 0, 0, 10 * MS),
    (10 * MS, Kind.LOADED, -1, 1, 0, 0, 0),
    (10 * MS, Kind.ARRIVED, 2, 0, 1, 1, 0),
    *_batch(10 * MS, 2, 1, 1, (1, 0), (2, 0)),
    (10 * MS, Kind.COLD, -1, 2, 1, 1, 30 * MS),
    (40 * MS, Kind.LOADED, -1, 2, 1, 0, 0),
    (90 * MS, Kind.FINISHED, -1, 2, 1, 1, 2),
    (90 * MS, Kind.DONE, 1, 0, 1, 0, 90 * MS),
    (90 * MS, Kind.DONE, 2, 0, 1, 0, 80 * MS),
    (110 * MS, Kind.FINISHED, -1, 1, 0, 0, 1),
    *_batch(110 * MS, 3, 1, 1, (0, 1)),
    (160 * MS, Kind.FINISHED, -1, 3, 1, 1, 1),
    (160 * MS, Kind.DONE, 0, 0, 1, 1, 160 * MS),
)


def test_by_hand() -> None:
    found = summary(TWO, BY_HAND, policy="by hand")
    assert found["policy"] == "by hand"
    assert (found["requests"], found["completed"], found["dropped"], found["tasks"]) == (3, 3, 0, 4)
    slow = [160 / 150, 90 / 50, 80 / 50]
    assert found["slowdown_mean"] == pytest.approx(sum(slow) / 3)
    assert found["slowdown_p50"] == pytest.approx(80 / 50)
    assert found["latency_p50_s"] == pytest.approx(0.09)
    assert found["latency_p99_s"] == pytest.approx(0.09 + 0.98 * 0.07)
    assert found["slo_hit_rate"] == 0.5  # request 1 was late, request 2 has no deadline
    assert found["goodput_per_s"] == pytest.approx(2 / 0.16)
    assert found["cache_hit_rate"] == 0.0
    assert found["edges_kept"] == 0.0
    assert found["bytes_fetched"] == 97 * MB
    assert found["batch_mean"] == pytest.approx(4 / 3)
    assert (found["cold_starts"], found["workers_used"], found["lost_tasks"]) == (1, 2, 0)
    assert found["gpu_utilisation"] == pytest.approx((110 + 80 + 50) / 320)
    assert found["effective_gpu_utilisation"] == pytest.approx((100 + 50 + 50) / 320)
    assert found["memory_utilisation"] == pytest.approx(97 / 2000)
    held = (0.034 + 0.67) * 240 * MS / HOUR
    idle = 0.0044 * (30 + 20) * MS / HOUR  # while it starts, and between its two batches; with the last the tape ends
    assert found["cost_keepalive_usd"] == pytest.approx(idle)
    assert found["cost_total_usd"] == pytest.approx(held + idle)
    assert found["cost_per_request_usd"] == pytest.approx((held + idle) / 3)
    assert found["cost_fleet_usd"] == pytest.approx(2 * (4 * 0.034 + 0.67) * 160 * MS / HOUR)
    assert found["makespan_s"] == pytest.approx(0.16)


def test_graphs_are_measured_one_by_one_and_pay_for_what_they_used() -> None:
    both, single = summary(TWO, BY_HAND)["graphs"]
    assert both == {
        "graph": "both",
        "requests": 1,
        "measured": 1,
        "dropped": 0,
        "dropped_warmup": 0,
        "slowdown_mean": pytest.approx(160 / 150),
        "latency_p99_s": pytest.approx(0.16),
        "slo_hit_rate": 1.0,
        "cost_per_request_usd": pytest.approx(0.704 * 160 * MS / HOUR + 0.0044 * 50 * MS / HOUR / 3),
    }
    assert single["slo_hit_rate"] == 0.0
    assert single["cost_per_request_usd"] == pytest.approx(0.704 * 40 * MS / HOUR + 0.0044 * 50 * MS / HOUR / 3)


def test_batches_on_a_worker_with_a_rent_of_its_own_cost_their_part_of_it() -> None:
    dear = replace(TWO.fleet.workers[0], hour_usd=3 * (4 * 0.034 + 0.67))
    world = replace(TWO, fleet=replace(TWO.fleet, workers=(dear, TWO.fleet.workers[1])))
    found = costs(Ledger(world.catalogue, world.fleet, world.requests, BY_HAND))
    assert found.batches_usd == pytest.approx(0.704 * (3 * 110 + 80 + 50) * MS / HOUR)


def test_a_process_costs_its_memory_from_the_moment_it_is_asked_for() -> None:
    ahead = _tape(
        (0, Kind.START_INSTANCE, -1, 1, 0, 1, 30 * MS),
        (10 * MS, Kind.START_INSTANCE, -1, 2, 1, 1, 30 * MS),
        (20 * MS, Kind.WORKER_FAILED, -1, 0, 1, 0, 0),
        (30 * MS, Kind.INSTANCE_STARTED, -1, 1, 0, 1, 0),
        (50 * MS, Kind.START_INSTANCE, -1, 3, 0, 1, 30 * MS),
        (60 * MS, Kind.WOKE, -1, 0, -1, 0, 0),
    )
    found = costs(Ledger(TWO.catalogue, TWO.fleet, TWO.requests, ahead))
    assert found.keepalive_usd == pytest.approx(0.0044 * (60 + 10 + 10) * MS / HOUR)


@given(worlds(), st.integers(0, 3))
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
def test_what_requests_pay_is_what_all_costs(world: World, seed: int) -> None:
    ledger = Ledger(world.catalogue, world.fleet, world.requests, drive(Restless(seed), world).tape)
    found = costs(ledger)
    assert float(found.requests_usd.sum()) == pytest.approx(found.total_usd)


def test_the_first_requests_are_not_measured() -> None:
    found = summary(TWO, BY_HAND, warmup=1 / 3)
    assert (found["requests"], found["measured"]) == (3, 2)
    assert found["slowdown_mean"] == pytest.approx((90 + 80) / 100)
    assert found["slo_hit_rate"] == 0.0
    assert found["edges_kept"] is None
    assert found["cost_total_usd"] == summary(TWO, BY_HAND)["cost_total_usd"]


def test_a_dropped_request_is_a_miss_and_has_no_latency() -> None:
    rows = BY_HAND.rows.copy()
    last = len(rows) - 1
    rows[last, 1] = Kind.DROP
    found = summary(TWO, Tape(rows))
    assert (found["completed"], found["dropped"]) == (2, 1)
    assert found["slo_hit_rate"] == 0.0
    assert found["slowdown_mean"] == pytest.approx((90 + 80) / 100)


def test_nothing_has_no_numbers() -> None:
    nothing = replace(TWO, requests=())
    found = summary(nothing, Tape(np.empty((0, 7), dtype=np.int64)))
    assert found["requests"] == 0
    assert found["slowdown_mean"] is None
    assert found["cost_per_request_usd"] is None
    assert found["gpu_utilisation"] == found["goodput_per_s"] == 0.0


def test_a_part_of_a_tape_counts_who_waits_and_forgives_deadlines_to_come() -> None:
    found = summary(TWO, BY_HAND.until(50 * MS))
    assert (found["requests"], found["completed"], found["unfinished"]) == (3, 0, 3)
    assert found["slo_hit_rate"] == 0.0  # request 1 is late already, request 0 may still make it
    assert found["latency_mean_s"] is None
    assert found["goodput_per_s"] == 0.0


def test_the_critical_path_has_each_task_on_the_fastest_type_of_gpu() -> None:
    def made(slow: int, fast: int) -> Function:
        cells = {
            "T4": {Configuration(1, 1, 1): slow},
            "A100": {Configuration(1, 1, 1): fast, Configuration(1, 2, 1): 1},
        }
        return Function("f", (), Profile(cells))

    catalogue = Catalogue((), (made(10, 4), made(20, 30)), (chain("a", 0, 0, 1), chain("b", 1)))
    fleet = Fleet((Worker("x", Gpu("T4", 1)), Worker("y", Gpu("A100", 1)), Worker("z", Gpu("T4", 1))))
    world = World(catalogue, fleet, ())
    assert critical_paths(catalogue, world.latency()).tolist() == [28, 20]


def test_messages_are_rows_pushed_to_all_others_and_inputs_sent() -> None:
    tape = _tape(
        (5, Kind.TASK_ARRIVED, 0, 1, 1, 0, 0),
        (5, Kind.STALE, 0, 1, -1, 0, Kind.TASK_ARRIVED),
        (5, Kind.STALE, -1, 1, 0, 0, Kind.FINISHED),
        (5, Kind.TASK, 0, 1, 0, 0, 5),
        (5, Kind.TASK, 1, 1, 0, 0, 9),
    )
    assert messages(tape, pushes=10, workers=4) == 10 * 3 + 3
    assert messages(tape, pushes=10, workers=4, central=True) == 10 + 3


def test_a_tape_of_another_workload_or_fleet_is_refused() -> None:
    with pytest.raises(TapeError, match="names request 2, which the workload does not have"):
        summary(replace(TWO, requests=TWO.requests[:2]), BY_HAND)
    with pytest.raises(TapeError, match="names worker 1, the fleet has 1"):
        summary(replace(TWO, fleet=workers(1)), BY_HAND)


def test_a_run_of_some_thousand_requests_adds_up() -> None:
    count, graph = 4_000, chain("one", 0)
    world = World(
        Catalogue((), (function("f", 1),), (graph,)),
        workers(1),
        tuple(Request(i, 0, i * 2 * MS, 0) for i in range(count)),
    )
    found = summary(world, drive("hash", world, bounded=False).tape, warmup=0.1)
    assert found["measured"] == count * 9 // 10
    assert found["slowdown_mean"] == found["slowdown_p95"] == 1.0
    assert found["gpu_utilisation"] == pytest.approx(0.5, rel=1e-3)
    assert found["makespan_s"] == pytest.approx((count - 1) * 2e-3 + 1e-3)
    assert found["cost_total_usd"] == pytest.approx(0.704 * count * MS / HOUR)
    assert SECOND * found["goodput_per_s"] == pytest.approx(SECOND * 500, rel=1e-3)
