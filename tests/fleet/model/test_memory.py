"""GPU memory to the byte, weights counted once and pinned while used, the host below it, and the disk below that."""

from dataclasses import replace

import numpy as np
import pytest

from headway.core.tape import Tape
from headway.errors import ExperimentError, ProfileError
from headway.fleet.audit.audit import audit
from headway.fleet.model.actions import EvictModel, FetchModel, RunBatch
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile, models_in
from headway.fleet.model.events import BatchFinished, ModelFetched, RequestArrived
from headway.fleet.model.fleet import MIG, Fleet, Gpu, Links, Worker
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.memory import GpuMemory
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, pack
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND, SECOND
from tests.fleet.worlds import MB, World, chain, drive, function

MODELS = (Model("a", 60 * MB), Model("b", 30 * MB), Model("c", 30 * MB))
CATALOGUE = Catalogue(
    MODELS,
    (function("f", 10, 0, activation_bytes=5 * MB), function("g", 10, 0, 1), function("h", 10, 2)),
    (chain("f", 0), chain("g", 1), chain("h", 2)),
)


def _state(memory_bytes: int, *graphs: int, host_bytes: int = 1 << 62, **options: bool) -> ServingState:
    """A worker with two slices and a request for each of these graphs; its link moves 1 MB a millisecond."""
    links = Links(host_to_gpu=1000 * MB, disk_to_host=500 * MB, write_back=options.pop("write_back", False))
    fleet = Fleet((Worker("w", Gpu("T4", memory_bytes, 2), 4, host_bytes),), links)
    state = ServingState(CATALOGUE, fleet, to_come=len(graphs), **options)
    for number, graph in enumerate(graphs):
        state.apply(0, RequestArrived(Request(number, graph, 0, 0)))
    return state


def _run(state: ServingState, now: int, request: int, evict: tuple[int, ...] = ()) -> int:
    action = RunBatch(0, ((request, 0),), evict=evict)
    assert state.check(action) is None, state.check(action)
    state.commit(now, action)
    return state.workers[0].running[state.leases].start


def test_weights_that_two_tasks_use_are_there_once() -> None:
    state = _state(95 * MB, 0, 1)
    memory = state.workers[0].memory
    assert _run(state, 0, 0) == 60 * MILLISECOND
    assert memory.free_bytes == 30 * MB
    assert _run(state, 1, 1) == 90 * MILLISECOND  # waits for the first model, then brings the second
    assert memory.free_bytes == 0
    assert memory.pins == {0: 2, 1: 1}
    state.apply(70 * MILLISECOND, BatchFinished(0, 1))
    assert memory.free_bytes == 5 * MB
    assert memory.pins == {0: 1, 1: 1}
    assert not memory.evictable(0)
    state.apply(100 * MILLISECOND, BatchFinished(0, 2))
    assert memory.evictable(0)
    assert memory.resident == 0b011


def test_a_byte_too_few_is_too_few() -> None:
    state = _state(65 * MB - 1, 0)
    assert "wants 65000000 bytes of GPU memory, worker w has 64999999" in (state.check(RunBatch(0, ((0, 0),))) or "")
    assert _state(65 * MB, 0).check(RunBatch(0, ((0, 0),))) is None


def _mig(memory_bytes: int, activation_bytes: int = 5 * MB) -> tuple[Catalogue, Fleet]:
    cells = {Configuration(b, 1, s): b * MILLISECOND for b in (1, 2) for s in (1, 2, 3, 7)}
    called = Function("f", (0,), Profile({"": cells}), activation_bytes=activation_bytes)
    catalogue = Catalogue((Model("a", 60 * MB),), (called,), (chain("f", 0),))
    return catalogue, Fleet((Worker("w", Gpu("A100", memory_bytes, 7, MIG), 4),))


def test_a_batch_must_fit_into_the_memory_of_its_mig_instance() -> None:
    catalogue, fleet = _mig(270 * MB)  # 67.5 MB with two slices: weights and one activation, not two
    state = ServingState(catalogue, fleet, to_come=2)
    for number in range(2):
        state.apply(0, RequestArrived(Request(number, 0, 0, 0)))
    told = state.check(RunBatch(0, ((0, 0),), slices=1))
    assert told is not None
    assert told.endswith("wants 65000000 bytes of GPU memory, a MIG instance of 1 slices on w has 33750000")
    assert state.check(RunBatch(0, ((0, 0),), slices=2)) is None
    assert state.check(RunBatch(0, ((0, 0), (1, 0)), slices=2)) is not None
    assert state.check(RunBatch(0, ((0, 0), (1, 0)), slices=3)) is None
    held = {Configuration(1, 1, 2), *(Configuration(b, 1, s) for b in (1, 2) for s in (3, 7))}
    assert set(state.latency.cells(0, 0)) == held
    assert state.latency.least(0, 0) == (1, 1, 2)


def test_a_function_that_fits_into_no_mig_instance_is_refused() -> None:
    with pytest.raises(ProfileError, match="function f: no cell fits into its MIG instance of GPU 'A100'"):
        LatencyModel(*_mig(60 * MB))
    assert LatencyModel(*_mig(65 * MB)).least(0, 0) == (1, 1, 7)


def test_the_audit_finds_a_batch_that_is_too_large_for_its_mig_instance() -> None:
    catalogue, fleet = _mig(520 * MB)
    world = World(catalogue, fleet, (Request(0, 0, 0, 0),))
    tape = drive("hash", world).tape
    rows = tape.rows.copy()
    assert audit(catalogue, fleet, world.requests, Tape(rows)) == []
    at = int(np.flatnonzero(rows[:, 1] == Kind.RUN)[0])
    rows[at, 6] = pack(1, 1, 0)
    smaller = _mig(519 * MB)[1]
    assert audit(catalogue, fleet, world.requests, Tape(rows)) == []
    found = audit(catalogue, smaller, world.requests, Tape(rows))
    assert {"memory", "profile"} == {finding.rule for finding in found}


def test_weights_come_while_a_process_starts_and_leave_the_link_to_others() -> None:
    cold = function("g", 10, 1, cold_start=100 * MILLISECOND)
    catalogue = replace(CATALOGUE, functions=(CATALOGUE.functions[0], cold, CATALOGUE.functions[2]))
    fleet = Fleet((Worker("w", Gpu("T4", 200 * MB, 3), 4),), Links(host_to_gpu=1000 * MB))
    state = ServingState(catalogue, fleet, to_come=3)
    for number, graph in enumerate((1, 0, 2)):
        state.apply(0, RequestArrived(Request(number, graph, 0, 0)))
    assert _run(state, 0, 0) == 100 * MILLISECOND  # its weights have been there since 30
    assert state.workers[0].link_free == 30 * MILLISECOND
    assert _run(state, 0, 1) == 90 * MILLISECOND
    assert _run(state, 0, 2) == 120 * MILLISECOND


def test_what_is_in_use_or_under_way_is_not_evicted() -> None:
    state = _state(100 * MB, 0, 2)
    _run(state, 0, 0)
    assert state.check(EvictModel(0, 0)) is not None
    state.commit(0, FetchModel(0, 1))
    assert state.check(EvictModel(0, 1)) is not None
    state.apply(90 * MILLISECOND, ModelFetched(0, 1, 2))
    assert state.check(EvictModel(0, 1)) is None
    assert state.check(RunBatch(0, ((1, 0),), evict=(0,))) is not None
    _run(state, 90 * MILLISECOND, 1, evict=(1,))
    assert state.workers[0].memory.resident == 0b101


def test_the_link_carries_one_model_after_the_other() -> None:
    state = _state(200 * MB, 0, 2)
    state.commit(0, FetchModel(0, 1))
    assert state.workers[0].memory.ready == {1: 30 * MILLISECOND}
    assert _run(state, 0, 0) == 90 * MILLISECOND
    assert _run(state, 10 * MILLISECOND, 1) == 120 * MILLISECOND


@pytest.mark.parametrize(("write_back", "start"), [(False, 30), (True, 90)])
def test_making_room_is_free_unless_weights_are_written_back(write_back: bool, start: int) -> None:
    state = _state(65 * MB, 0, 2, write_back=write_back)
    _run(state, 0, 0)
    state.apply(SECOND, BatchFinished(0, 1))
    assert _run(state, SECOND, 1, evict=(0,)) == SECOND + start * MILLISECOND


def test_what_the_host_does_not_hold_comes_from_disk_and_stays_in_the_host_if_there_is_room() -> None:
    state = _state(200 * MB, 0, 2, preloaded=False)
    worker = state.workers[0]
    assert _run(state, 0, 0) == (60 + 120) * MILLISECOND
    assert list(worker.host) == [0]
    state.apply(SECOND, BatchFinished(0, 1))
    state.commit(SECOND, EvictModel(0, 0))
    state.commit(SECOND, FetchModel(0, 0))
    assert worker.memory.ready[0] == SECOND + 60 * MILLISECOND
    small = _state(200 * MB, 0, host_bytes=50 * MB)
    assert list(small.workers[0].host) == [1]  # the largest does not fit at all
    assert _run(small, 0, 0) == 180 * MILLISECOND
    assert list(small.workers[0].host) == [1]


def test_the_host_lets_go_of_what_was_used_longest_ago() -> None:
    state = _state(200 * MB, 1, 2, host_bytes=95 * MB)
    worker = state.workers[0]
    assert list(worker.host) == [0, 1]
    rows: list[tuple[int, ...]] = []
    state.journal = rows.append
    _run(state, 0, 0)
    _run(state, 0, 1)
    assert [(row[5], row[6] // MILLISECOND) for row in rows if row[1] == Kind.LOAD] == [(0, 60), (1, 30), (2, 90)]
    assert list(worker.host) == [1, 2]
    assert worker.host_free_bytes == 35 * MB


def test_the_books_of_a_gpu() -> None:
    memory = GpuMemory(100 * MB, CATALOGUE)
    memory.add(0, now=1)
    memory.add(1, now=2)
    assert (memory.free_bytes, memory.resident, list(memory.order)) == (10 * MB, 0b11, [0, 1])
    memory.pin(0, now=5)
    memory.pin(0, now=6)
    memory.unpin(0)
    assert not memory.evictable(0)
    assert not memory.evictable(2)
    memory.unpin(0)
    assert memory.evictable(0)
    assert memory.order == {0: 6, 1: 2}
    memory.remove(1)
    assert (memory.free_bytes, memory.resident) == (40 * MB, 1)
    memory.clear()
    assert (memory.free_bytes, memory.resident, memory.order) == (100 * MB, 0, {})


def test_a_model_that_is_named_twice_is_there_once() -> None:
    twice = Function("f", (1, 0, 1), Profile({}))
    assert (twice.models, twice.mask) == ((1, 0), 0b11)
    assert CATALOGUE.size_of(0b101) == 90 * MB
    assert models_in(0b10110) == (1, 2, 4)


def test_a_catalogue_knows_all_that_it_names() -> None:
    with pytest.raises(ExperimentError, match="function f: unknown model 7"):
        Catalogue(MODELS, (function("f", 1, 7),), ())
    with pytest.raises(ExperimentError, match="graph g, task t0: unknown function 3"):
        Catalogue(MODELS, (function("f", 1),), (chain("g", 3),))
