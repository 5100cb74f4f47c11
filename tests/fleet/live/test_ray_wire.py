"""Replicas of Ray without a cluster: orders that go astray, answers before an end, what killed replicas leave."""

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headway.door.frames import framed
from headway.errors import ServeError
from headway.fleet.live.doors.place import Place
from headway.fleet.live.doors.serve import Doors
from headway.fleet.live.workers import payload
from headway.fleet.live.workers.messages import Answer, Fetch, Finished, Order, Run, Setup
from headway.runs.sweep import ray_pool

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own
    ray_pool.library("ray.serve")
    from headway.fleet.ray import deploy, engine, replica as replica_module, wire
    from headway.fleet.ray.ingress import Plan
    from headway.fleet.ray.replica import ELSEWHERE, About

pytestmark = pytest.mark.filterwarnings("ignore")
ABOUT = About("r1", "actor", 1, True)
SETUP = Setup("app.py", 0, (), (), 1, "cpu", "", "/dev/shm/headway-77-abc-host", "")


class Astray:
    """Replicas whose first calls come to the wrong one."""

    def __init__(self, wrong: int) -> None:
        self.wrong, self.numbers = wrong, list[int]()

    async def attach(self, setup: Setup) -> tuple[About, AsyncIterator[bytes]]:
        raise AssertionError

    async def take(self, replica: str, number: int, order: Order) -> bytes:
        self.numbers.append(number)
        if self.wrong:
            self.wrong -= 1
            return ELSEWHERE
        assert isinstance(order, Run)
        return framed(Finished(order.lease, (), {}, 0))


@pytest.mark.parametrize(("wrong", "tries"), [(0, 1), (2, 3), (100, 4)])
def test_an_order_that_comes_to_another_replica_is_sent_again_and_then_the_replica_is_given_up(
    monkeypatch: pytest.MonkeyPatch, wrong: int, tries: int
) -> None:
    monkeypatch.setattr(engine, "_TRIES", 4)
    monkeypatch.setattr(engine, "_TRY_S", 0.001)
    killed: list[Any] = []
    monkeypatch.setattr(engine.ray, "kill", killed.append)
    heard: list[Answer] = []

    async def play() -> None:
        replicas: Any = Astray(wrong)
        worker = engine.ReplicaWorker(replicas, lambda start: SETUP, heard.append, lambda: None, {})
        worker._about, worker._actor = ABOUT, "its actor"
        worker.send(Run(5, 0, (), ()))
        await asyncio.gather(*worker._calls)
        assert replicas.numbers == [0] * tries

    asyncio.run(play())
    assert heard == ([] if wrong == 100 else [Finished(5, (), {}, 0)])
    assert killed == (["its actor"] if wrong == 100 else [])


def test_a_replica_says_that_an_order_is_of_another_and_does_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(replica_id=SimpleNamespace(unique_id="mine"))
    monkeypatch.setattr(replica_module.serve, "get_replica_context", lambda: context)
    runtime = SimpleNamespace(get_actor_name=lambda: "actor")
    monkeypatch.setattr(replica_module.ray, "get_runtime_context", lambda: runtime)

    async def play() -> None:
        found = replica_module.WorkerReplica()
        found._wire = wire.Wire()
        order = msgspec.msgpack.encode(Run(5, 0, (), ()))
        assert await found.take("another", 0, order) == ELSEWHERE
        taken = asyncio.ensure_future(found.take("mine", 0, order))
        await asyncio.sleep(0)
        found._wire.send(Finished(5, (), {}, 0))
        assert await taken == framed(Finished(5, (), {}, 0))

    asyncio.run(play())


def test_what_was_sent_has_reached_the_loop_when_a_worker_ends_after_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "sleep", lambda seconds: None)
    monkeypatch.setattr(wire, "_FLUSH_S", 30)

    async def play() -> None:
        link = wire.Wire()
        end = link.give(Fetch(3, 0))
        assert end is not None
        done_when_flushed: list[bool] = []

        def thread() -> None:
            link.send(Finished(3, (), {0: "illegal address"}, 0))
            link.flush()
            done_when_flushed.append(end.done())

        worker = threading.Thread(target=thread)
        worker.start()
        while worker.is_alive():
            await asyncio.sleep(0.001)
        assert done_when_flushed == [True]

    asyncio.run(play())


def test_what_killed_replicas_left_on_a_node_is_removed_and_what_others_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload, "FOLDER", tmp_path)
    monkeypatch.setattr(wire.os, "getppid", lambda: 1)
    left, dead = tmp_path / "headway-1-5-old-host", tmp_path / f"headway-{1 << 30}-6-x-host"
    for folder in (left, dead):
        folder.mkdir()
        (folder / "net.weights").touch()
    ours = Path(wire.placed(SETUP).host_folder)
    assert ours == tmp_path / "headway-1-77-abc-host"
    assert not left.exists()
    assert not dead.exists()
    other = msgspec.structs.replace(SETUP, host_folder="/dev/shm/headway-78-def-host")
    assert Path(wire.placed(other).host_folder).exists()
    assert ours.exists(), "this process still works with it"
    wire._in_use.pop(0).close()
    wire.placed(other)
    assert not ours.exists()
    wire._in_use.clear()


@pytest.mark.parametrize(
    ("host", "token", "fine"), [("0.0.0.0", "", False), ("0.0.0.0", "x" * 20, True), ("::1", "", True)]
)
def test_where_serve_runs_already_its_own_address_decides_whether_a_token_is_needed(
    tmp_path: Path, host: str, token: str, fine: bool
) -> None:
    opening: Any = None
    plan = Plan(opening, Doors(Place(tmp_path), port=9000, token=token), about={"url": "http://127.0.0.1:9000"})
    http = SimpleNamespace(host=host, port=8000)
    if fine:
        found = deploy._at(plan, http)
        assert (found.doors.host, found.doors.port) == (host, 8000)
        assert found.about["url"].endswith(":8000")
    else:
        with pytest.raises(ServeError, match=r"^Serve runs already, at 0\.0\.0\.0: others can reach it.*a token"):
            deploy._at(plan, http)
