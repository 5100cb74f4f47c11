"""A server without workers: each graph does one thing, so that the doors in front of it can be tested."""

import asyncio
from collections.abc import Callable
from typing import Any

from headway.errors import RequestLateError, RequestRefusedError, TaskFailedError


class FakeServer:
    """Answers at once, fails, refuses or holds on, as the name of the graph says."""

    def __init__(self) -> None:
        self.graphs = ("echo", "fails", "full", "held", "late", "odd")
        self.ready = True
        self.failure = ""
        self.accepted: list[tuple[str, Any, int | None, str, int]] = []
        self.waiting: list[tuple[asyncio.Future[Any], Any]] = []
        self.odd: Callable[[Any], Any] = lambda value: value
        self.drained = self.stopped = False

    def submit(
        self, graph: str, value: Any, *, deadline_ns: int | None = None, tenant: str = "", priority: int = 0
    ) -> "asyncio.Future[Any]":
        if graph == "full":
            raise RequestRefusedError("120 requests wait, at most 120", 2.5)
        self.accepted.append((graph, value, deadline_ns, tenant, priority))
        future = asyncio.get_running_loop().create_future()
        if graph == "held":
            self.waiting.append((future, value))
        elif graph == "late":
            future.set_exception(RequestLateError("late by 3 ms: task caption waited for its model"))
        elif graph == "fails":
            future.set_exception(TaskFailedError("task caption: ValueError: no image"))
        elif graph == "odd":
            future.set_result(self.odd(value))
        else:
            future.set_result(value)
        return future

    def release(self) -> None:
        """Answer what is held."""
        for future, value in self.waiting:
            future.set_result(value)
        self.waiting.clear()

    def status(self) -> dict[str, Any]:
        worker = {"pid": 4711, "starts": 1, "queued": 2, "running": 1, "memory_bytes": 100, "booked_bytes": 10}
        more = {"resident": ["vit"], "used_bytes": 9, "device_bytes": 0}
        workers = [{"name": "w0", "up": True, **worker, **more}, {"name": "w1", "up": False, **worker, **more}]
        counts = {"open": len(self.waiting), "tasks": 3, "cache_hits": 2, "moved_bytes": 5_000}
        return {"policy": "hash", "failure": "", "drift": {"vit": 1.25}, **counts, "workers": workers}

    async def start(self) -> None:
        self.ready = True

    async def drain(self) -> None:
        while self.waiting:
            await asyncio.sleep(0.001)
        self.drained = True

    async def stop(self) -> None:
        self.stopped, self.ready = True, False
        for future, _ in self.waiting:
            future.set_exception(RequestRefusedError("the server stops", 1.0))
        self.waiting.clear()
