"""A server with real worker processes: answers, faults, deadlines; each run's tape is sound and replays identically."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.core.replay import first_difference
from headway.errors import RequestError, RequestLateError, RequestRefusedError, TaskFailedError, UnknownGraphError
from headway.fleet.audit.replay import about
from headway.fleet.live.options import Options
from headway.fleet.live.scene import live_scene, served
from headway.fleet.live.server import Server
from headway.fleet.live.workers.payload import FOLDER
from headway.fleet.model.rows import Kind
from headway.runs.folder.folder import open_run
from headway.runs.settings.files import typed
from headway.units import DAY, MILLISECOND, SECOND

APP = Path(__file__).with_name("app.py")
Body = Callable[[Server], Awaitable[None]]


class Bench:
    """Runs a body with a started server, and checks what is left of the run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log: list[str] = []

    def run(self, body: Body, policy: str = "headway", memory: str = "1GB", **options: Any) -> dict[str, Any]:
        """Serve with two workers; return the last status."""
        serving = {"scenario": str(APP), "workers": 2, "gpu_memory": memory}
        scene = live_scene(typed({"scale": "fleet", "serving": serving, "policy": {"name": policy}}, "test"))
        chosen = replace(Options(APP, self.folder / "server"), **options)
        with served(scene, chosen, self.folder / "run", self.log.append) as server:
            status = asyncio.run(self._within(server, body))
        self._check_folder()
        assert not list(FOLDER.glob(f"{server._prefix}*")), "nothing is left in shared memory"
        return status

    async def _within(self, server: Server, body: Body) -> dict[str, Any]:
        await server.start()
        try:
            await asyncio.wait_for(body(server), 120)
            await server.drain()
            return server.status()
        finally:
            await server.stop()

    def _check_folder(self) -> None:
        run = open_run(self.folder / "run", trust=True)
        assert run.scene.audit(run.tape, complete=True) == []
        again = run.scene.replay(run.tape, complete=True)
        assert (difference := first_difference(run.tape, again, Kind, about)) is None, difference
        self.tape = run.tape


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def ends_of(server: Server, orders: list[dict[str, Any]], graph: str = "both") -> list[Any]:
    """How each of some requests ends: its answer, or its error."""
    return await asyncio.gather(*(server.submit(graph, order) for order in orders), return_exceptions=True)


@pytest.mark.parametrize("policy", ["headway", "hash", "compass", "jit", "heft", "esg"])
def test_requests_pass_through_their_graph_and_the_run_replays(bench: Bench, policy: str) -> None:
    async def body(server: Server) -> None:
        for number, answer in enumerate(await ends_of(server, [{"n": n} for n in range(20)])):
            assert answer == {"n": number, "trail": ["begin", "read", "begin", "speak", "join"]}
        assert await server.submit("one", {"n": 0}) == {"n": 0, "trail": ["read"]}

    status = bench.run(body, policy)
    counted = {"accepted": 20, "answered": 20, "in_time": 20, "late": 0, "refused": 0, "failed": 0}
    assert status["graphs"]["both"] == counted
    assert status["tasks"] == 81
    assert len(bench.tape.of(Kind.DONE)) == 21


def test_models_that_do_not_fit_together_take_turns_in_memory(bench: Bench) -> None:
    async def body(server: Server) -> None:
        answers = await ends_of(server, [{"n": n} for n in range(8)])
        assert all(isinstance(answer, dict) for answer in answers), answers
        for worker in server.status()["workers"]:
            assert worker["used_bytes"] <= worker["memory_bytes"] == 50_000_000

    status = bench.run(body, "hash", "50MB")
    assert status["evictions"] > 0
    assert status["moved_bytes"] == status["loads"] * 40_000_000


def test_a_task_that_raises_fails_its_own_request_alone(bench: Bench) -> None:
    async def body(server: Server) -> None:
        orders = [{"n": n, "do": "raise" if n == 3 else "", "at": "speak"} for n in range(8)]
        ends = await ends_of(server, orders)
        assert [type(end) for end in ends] == [TaskFailedError if n == 3 else dict for n in range(8)]
        assert str(ends[3]) == "task speak: ValueError: cannot do 3"

    assert bench.run(body)["graphs"]["both"]["failed"] == 1
    assert len(bench.tape.of(Kind.REQUEST_FAILED)) == 1


@pytest.mark.parametrize("policy", ["headway", "hash"])
def test_a_killed_worker_is_started_again_and_every_request_is_answered_once(
    bench: Bench, tmp_path: Path, policy: str
) -> None:
    async def body(server: Server) -> None:
        kill = {"n": 0, "do": "kill", "at": "read", "once": str(tmp_path / "killed")}
        ends = await ends_of(server, [kill, *({"n": n} for n in range(1, 30))])
        assert all(isinstance(end, dict) for end in ends), ends
        while not all(worker["up"] for worker in server.status()["workers"]):
            await asyncio.sleep(0.05)

    status = bench.run(body, policy)
    assert sorted(worker["starts"] for worker in status["workers"]) == [1, 2]
    assert any("signal SIGKILL" in line for line in bench.log)
    assert len(bench.tape.of(Kind.WORKER_FAILED)) == len(bench.tape.of(Kind.WORKER_RECOVERED)) == 1
    assert len(bench.tape.of(Kind.DONE)) == 30


def test_a_request_that_ends_every_worker_fails_alone(bench: Bench) -> None:
    async def body(server: Server) -> None:
        with pytest.raises(TaskFailedError, match=r"^task read: 3 workers ended while they had it$"):
            await server.submit("both", {"n": 0, "do": "kill-always", "at": "read"}, deadline_ns=DAY)
        assert (await server.submit("both", {"n": 1}, deadline_ns=DAY))["n"] == 1

    bench.run(body)
    assert len(bench.tape.of(Kind.WORKER_FAILED)) == 3


def test_a_worker_that_hangs_is_killed_and_its_tasks_run_elsewhere(bench: Bench, tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        hang = {"n": 0, "do": "hang", "at": "speak", "once": str(tmp_path / "hung")}
        ends = await ends_of(server, [hang, {"n": 1}])
        assert all(isinstance(end, dict) for end in ends), ends

    bench.run(body, hang_after=300 * MILLISECOND)
    assert any("hangs in speak" in line for line in bench.log)


def test_a_request_that_is_too_late_ends_with_what_it_waits_for(bench: Bench) -> None:
    async def body(server: Server) -> None:
        late = server.submit("one", {"n": 0, "do": "sleep", "s": 3}, deadline_ns=100 * MILLISECOND)
        with pytest.raises(RequestLateError, match=r"^late: read is running on worker-\d for "):
            await late
        assert (await server.submit("one", {"n": 1}))["n"] == 1

    status = bench.run(body, "hash", grace=0)
    assert status["graphs"]["one"]["late"] == 1


def test_what_is_not_taken_is_refused_with_a_reason(bench: Bench) -> None:
    async def body(server: Server) -> None:
        with pytest.raises(UnknownGraphError, match=r"unknown graph 'bot'; did you mean 'both'\?"):
            await server.submit("bot", {})
        ends = await ends_of(server, [{"n": n, "do": "sleep", "s": 0.2} for n in range(4)], "one")
        assert [type(end) for end in ends] == [dict, dict, RequestRefusedError, RequestRefusedError]
        assert str(ends[2]) == "2 requests are open, as many as the server takes"
        draining = asyncio.ensure_future(server.drain())
        await asyncio.sleep(0)
        with pytest.raises(RequestRefusedError, match="it drains"):
            await server.submit("one", {})
        await draining

    bench.run(body, most_open=2)


def test_a_policy_that_fails_leaves_no_request_without_an_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    class BrokenError(Exception):
        pass

    def broken(now: int, state: Any) -> Any:
        raise BrokenError("no idea")

    async def body(server: Server) -> None:
        monkeypatch.setattr(server.policy, "decide", broken)
        with pytest.raises(RequestError, match="the policy hash failed: BrokenError: no idea"):
            await server.submit("one", {"n": 0})
        with pytest.raises(RequestRefusedError, match="BrokenError"):
            await server.submit("one", {"n": 1})

    serving = {"scenario": str(APP), "workers": 1}
    scene = live_scene(typed({"scale": "fleet", "serving": serving, "policy": {"name": "hash"}}, "test"))
    with served(scene, Options(APP, bench.folder / "server")) as server:
        asyncio.run(bench._within(server, body))


def test_a_server_that_is_stopped_ends_its_workers_and_tells_open_requests(bench: Bench) -> None:
    pids: list[int] = []

    async def body(server: Server) -> None:
        pids.extend(worker["pid"] for worker in server.status()["workers"])
        sleeping = server.submit("one", {"n": 0, "do": "sleep", "s": 30})
        await asyncio.sleep(0.3)
        await server.stop()
        with pytest.raises(RequestRefusedError, match="the server stops"):
            await sleeping

    bench.run(body, "hash")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_a_tenant_and_a_deadline_of_a_request_are_on_the_tape(bench: Bench) -> None:
    async def body(server: Server) -> None:
        await server.submit("one", {"n": 0}, tenant="blue", deadline_ns=9 * SECOND)

    bench.run(body)
    arrived = bench.tape.of(Kind.ARRIVED)[0].tolist()
    assert arrived[3] == 1
    assert arrived[6] - arrived[0] == pytest.approx(9 * SECOND, abs=SECOND)
