"""What goes wrong around tasks: values that cannot be read, a stop, workers lost at a bad moment, stubborn policies."""

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headway.errors import RequestRefusedError, ServeError, TaskFailedError
from headway.fleet.live import server as server_module
from headway.fleet.live.fleet import LiveFleet, OpenRequest
from headway.fleet.live.server import Server
from headway.fleet.live.workers import payload
from headway.fleet.live.workers.messages import Evict, Finished, Hello, Lost
from headway.fleet.live.workers.payload import FOLDER, Packer, Payload, unpack
from headway.fleet.live.workers.process import WorkerProcess
from headway.fleet.model.actions import EvictModel
from headway.fleet.model.events import ModelLost
from headway.fleet.model.rows import Kind
from headway.fleet.state.workerstate import Batch
from headway.units import DAY, MILLISECOND
from tests.fleet.live.test_server import Bench, bench
from tests.processes import gone, until

__all__ = ["bench"]


class Unpackable:
    """A value that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("a handle of this process")


def test_a_result_that_cannot_be_read_fails_its_own_request_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(server: Server) -> None:
        with monkeypatch.context() as within:
            within.setattr(payload, "unpack", lambda value: int("no number"))
            with pytest.raises(TaskFailedError, match="the result cannot be read: ValueError: invalid literal"):
                await server.submit("one", {"n": 0})
        assert not server.failure
        assert (await server.submit("one", {"n": 1}))["n"] == 1

    assert bench.run(body)["graphs"]["one"]["failed"] == 1


def test_an_input_that_cannot_be_packed_is_no_request(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(value: Any) -> Payload:
        raise OSError(28, os.strerror(28))

    async def body(server: Server) -> None:
        with pytest.raises(ServeError, match="the input does not travel: TypeError: a handle of this process"):
            await server.submit("one", Unpackable())
        with monkeypatch.context() as within:
            within.setattr(server._packer, "pack", full)
            with pytest.raises(RequestRefusedError, match="no room in /dev/shm: No space left on device"):
                await server.submit("one", {"n": 0})

    status = bench.run(body)
    assert (status["graphs"]["one"]["accepted"], status["graphs"]["one"]["refused"]) == (0, 1)
    assert len(bench.tape) == 0


def test_a_request_that_arrives_as_the_server_stops_is_told_so(bench: Bench) -> None:
    async def body(server: Server) -> None:
        request = server.submit("one", {"n": 0})
        await server.stop()
        assert not server.failure
        with pytest.raises(RequestRefusedError, match=r"^the server stops$"):
            await request

    bench.run(body)
    assert len(bench.tape.of(Kind.ARRIVED)) == len(bench.tape.of(Kind.REQUEST_FAILED)) == 1


def test_a_worker_that_is_lost_right_after_it_was_ready_is_not_taken_for_one_that_is_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(worker: int) -> None:
        pass

    async def body(server: Server) -> None:
        with monkeypatch.context() as within:
            within.setattr(server, "_restart", nothing)
            server._on_gone(0)
            await asyncio.sleep(0)
            server._on_answer(0, Hello(1, ()))
            server._on_gone(0)
            await asyncio.sleep(0.01)
            assert not server.state.workers[0].up

    bench.run(body)
    assert [len(bench.tape.of(kind)) for kind in (Kind.WORKER_FAILED, Kind.WORKER_RECOVERED)] == [2, 1]


def test_blocks_that_a_lost_worker_left_are_removed_and_those_in_use_stay(bench: Bench) -> None:
    async def body(server: Server) -> None:
        process = server.processes[0]
        left, needed = (FOLDER / f"{server._prefix}-0-1-{name}" for name in ("left", "needed"))
        for path in (left, needed):
            path.touch()
        graph = server.state.catalogue.graphs[0]
        server.fleet.open[-1] = OpenRequest(Payload(b"", needed.name), graph, lambda results, reason: None)
        process.kill()
        while process.starts == 1:
            await asyncio.sleep(0.01)
        assert (left.exists(), needed.exists()) == (False, True)
        del server.fleet.open[-1]

    bench.run(body)


def test_a_policy_that_asks_for_the_impossible_over_and_over_does_not_stop_the_loop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(server: Server) -> None:
        decide = server.policy.decide

        def stubborn(now: int, state: Any) -> Any:
            yield from decide(now, state)
            yield EvictModel(0, 1)

        monkeypatch.setattr(server.policy, "decide", stubborn)
        assert (await server.submit("one", {"n": 0}))["n"] == 0
        assert server.fleet.rejected
        monkeypatch.setattr(server.policy, "decide", decide)

    monkeypatch.setattr(bench, "_check_folder", lambda: None)  # the policy itself would not decide this again
    bench.run(body, "hash")


def test_a_full_disk_refuses_requests_and_leaves_none_without_an_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(28, os.strerror(28))

    async def body(server: Server) -> None:
        with monkeypatch.context() as within:
            within.setattr(server.tape, "flush", full)
            with pytest.raises(RequestRefusedError, match=r"the run cannot be kept: .* No space left on device"):
                await server.submit("one", {"n": 0, "do": "sleep", "s": 4})
        assert not server.status()["ready"]

    monkeypatch.setattr(bench, "_check_folder", lambda: None)  # the tape ends where the disk was full
    bench.run(body)


def test_deadlines_of_requests_that_have_ended_are_thrown_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_ENDED_KEPT", 3)

    async def body(server: Server) -> None:
        for number in range(8):
            await server.submit("one", {"n": number}, deadline_ns=7 * DAY)
        while len(server._deadlines) > 3:
            await asyncio.sleep(0.01)
        assert not server.fleet.open

    bench.run(body)


def test_models_that_a_worker_evicts_by_itself_are_gone_from_the_books_and_come_back(bench: Bench) -> None:
    async def body(server: Server) -> None:
        await asyncio.gather(*(server.submit("both", {"n": n}) for n in range(8)))
        loads = server.fleet.loads
        with pytest.raises(TaskFailedError, match="task begin: MemoryError: too much"):
            await server.submit("both", {"n": 8, "do": "memory", "at": "begin"})
        gone = [worker for worker in server.status()["workers"] if not worker["resident"]]
        assert [worker["booked_bytes"] for worker in gone] == [0]
        await asyncio.gather(*(server.submit("both", {"n": n}) for n in range(8)))
        assert server.fleet.loads > loads
        assert not server.fleet.rejected

    assert {worker["starts"] for worker in bench.run(body, "hash")["workers"]} == {1}
    assert set(bench.tape.of(Kind.MODEL_LOST)[:, -1]) == {1}


def test_a_model_that_an_order_on_its_way_brings_again_is_not_lost() -> None:
    model = SimpleNamespace(weights_bytes=10)
    worker = SimpleNamespace(memory=SimpleNamespace(loads={0: 1, 1: 1}))
    state: Any = SimpleNamespace(workers=[worker], leases=7, catalogue=SimpleNamespace(models=[model, model]))
    fleet = LiveFleet(state, lambda: 0, lambda worker, order: None)
    fleet._count_loads(0, (0, 1), ())
    state.leases = 9
    fleet._count_loads(0, (1,), ())
    assert (fleet.loads, fleet.hits, fleet.moved_bytes) == (2, 1, 20)
    fleet.on_answer(0, Lost((0, 1), 8))
    assert fleet._inbox == [ModelLost(0, 0)]
    assert (fleet.loads, fleet.hits, fleet.moved_bytes) == (3, 0, 30)


def test_a_worker_that_refuses_an_order_by_its_own_books_is_started_again_and_nothing_fails(bench: Bench) -> None:
    async def body(server: Server) -> None:
        request = server.submit("one", {"n": 1, "do": "sleep", "s": 0.5})
        while not (busy := [worker.id for worker in server.state.workers if worker.running]):
            await asyncio.sleep(0.01)
        server._send(busy[0], Evict(0))  # its model is in use
        assert (await request)["n"] == 1
        while not all(worker["up"] for worker in server.status()["workers"]):
            await asyncio.sleep(0.01)

    status = bench.run(body, "hash")
    assert (status["graphs"]["one"]["answered"], status["graphs"]["one"]["failed"]) == (1, 0)
    assert any("does not agree with the server (model words is in use" in line for line in bench.log)
    assert len(bench.tape.of(Kind.WORKER_FAILED)) == 1


def test_a_mistake_of_the_server_itself_fails_it_loudly(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise KeyError("a mistake")

    async def body(server: Server) -> None:
        with monkeypatch.context() as within:
            within.setattr(server, "_end_late", broken)
            with pytest.raises(RequestRefusedError, match="the server cannot go on: KeyError: 'a mistake'"):
                await server.submit("one", {"n": 0, "do": "sleep", "s": 4})
        with pytest.raises(RequestRefusedError, match="the server cannot go on"):
            await server.submit("one", {"n": 1})
        assert not server.status()["ready"]

    monkeypatch.setattr(bench, "_check_folder", lambda: None)  # the tape ends with the failure
    bench.run(body)
    assert any("the server cannot go on: KeyError" in line for line in bench.log)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_processes_that_a_worker_started_end_with_it(bench: Bench, end: str) -> None:
    children: list[int] = []

    async def body(server: Server) -> None:
        children.append((await server.submit("one", {"n": 1, "do": "child"}))["child"])
        if end == "kill":
            for process in server.processes:
                os.kill(process.pid, signal.SIGKILL)
            while not gone(children[0]):
                await asyncio.sleep(0.01)
            while not all(worker["up"] for worker in server.status()["workers"]):
                await asyncio.sleep(0.01)

    bench.run(body)
    until(lambda: gone(children[0]))


def test_the_first_result_stays_where_a_task_is_computed_again() -> None:
    graph: Any = SimpleNamespace(tasks=[SimpleNamespace(name="first")])
    running = {lease: Batch(lease, ((7, 0),), 0, (), 1, 0, 0) for lease in (1, 2)}
    state: Any = SimpleNamespace(workers=[SimpleNamespace(running=running)])
    fleet = LiveFleet(state, lambda: 0, lambda worker, order: None)
    fleet.open[7] = OpenRequest(Payload(b""), graph, lambda results, reason: None)
    packer = Packer(f"headway-{os.getpid()}-again")
    first, second = (packer.pack(np.full(1 << 17, byte, np.uint8)) for byte in (1, 2))
    try:
        for lease, result in ((1, first), (2, second)):
            fleet.on_answer(0, Finished(lease, (result,), {}, 0))
        assert fleet.open[7].results == [first]
        assert unpack(first)[0] == 1
        assert not (FOLDER / second.block).exists()
        assert fleet.blocks() == {first.block}
    finally:
        payload.sweep(packer.prefix)


def test_a_process_that_is_slow_to_end_does_not_stop_the_loop() -> None:
    gone: list[str] = []
    statuses = [None, None, -9]
    slow: Any = SimpleNamespace(
        pid=1 << 30, returncode=None, poll=lambda: statuses.pop(0), kill=lambda: gone.append("killed")
    )

    async def body() -> str:
        process = WorkerProcess(lambda start: None, lambda answer: None, lambda: gone.append("told"), {}, None)  # type: ignore[arg-type, return-value]
        process._process = slow
        process.connection_lost(None)
        assert gone == ["killed", "told"]
        assert statuses, "it has not ended yet"
        return await process.ended()

    assert asyncio.run(body()) == "signal SIGKILL"


def test_wakes_at_one_time_are_one() -> None:
    fleet = LiveFleet(SimpleNamespace(), lambda: 0, lambda worker, order: None)  # type: ignore[arg-type]
    for _ in range(5):
        fleet._wake_at(MILLISECOND)
    assert fleet._wakes == [fleet.due] == [MILLISECOND]
