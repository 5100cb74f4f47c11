"""A replica of the workers' deployment: takes orders of the server by calls, and answers.

The server attaches to a replica: that call streams what the worker says unasked, and lives as long as the replica. Each
order is a call of its own, whose result is how it ended. Calls may overtake each other, so orders are numbered.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator

import msgspec
import ray
from ray import serve

from headway.fleet.live.workers.messages import ORDERS, Setup
from headway.fleet.ray.wire import Wire, placed, work

_LEAVE_S = 0.2
ELSEWHERE = b"-"
"""Answered to an order that Serve brought to the wrong replica: nothing of it was done. No answer is so short."""


class About(msgspec.Struct, frozen=True, array_like=True):
    """Who answers: the first item of the stream."""

    replica: str
    actor: str
    pid: int
    free: bool
    """Whether it is the server's now; else it had another before, and ends to make room for a fresh one."""


class WorkerReplica:
    """Runs one worker, for one server."""

    def __init__(self) -> None:
        self._id = serve.get_replica_context().replica_id.unique_id
        self._actor = ray.get_runtime_context().get_actor_name() or ""
        self._wire: Wire | None = None
        self._early: dict[int, tuple[bytes, asyncio.Future[bytes]]] = {}
        self._next = 0

    async def attach(self, setup: bytes, used: frozenset[str]) -> AsyncIterator[bytes]:
        """Become a worker; yield who it is, then what it says unasked. ``used`` is for the router."""
        free = self._wire is None
        yield msgspec.msgpack.encode(About(self._id, self._actor, os.getpid(), free))
        if not free:
            asyncio.get_running_loop().call_later(_LEAVE_S, os._exit, 0)
            return
        order = ORDERS.decode(setup)
        assert isinstance(order, Setup)
        self._wire = Wire()
        threading.Thread(target=work, args=(self._wire, placed(order)), daemon=True, name="worker").start()
        async for data in self._wire.rest():
            yield data

    async def take(self, replica: str, number: int, order: bytes) -> bytes:
        """Carry out an order in its turn; return the answers that end it, ``ELSEWHERE`` for one of another replica."""
        if replica != self._id or self._wire is None:
            return ELSEWHERE
        turn: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._early[number] = order, turn
        while self._next in self._early:
            data, end = self._early.pop(self._next)
            self._next += 1
            _chain(self._wire.give(ORDERS.decode(data)), end)
        return await turn


def _chain(found: "asyncio.Future[bytes] | None", end: "asyncio.Future[bytes]") -> None:
    """Set a future to the result of another; at once where there is none."""
    if found is None:
        end.set_result(b"")
    else:
        found.add_done_callback(lambda done: None if end.done() else end.set_result(done.result()))
