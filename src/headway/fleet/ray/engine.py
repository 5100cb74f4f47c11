"""The server's end of workers that are replicas of Ray Serve: attach, send orders, notice when one is gone.

Serve starts a replica in place of one that died. A worker that was lost is attached to one that no worker had before.
Where Serve chooses the number of replicas, some workers have none: they wait until there are more than have a worker.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import Context
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from headway.door.frames import Frames
from headway.fleet.live.workers.messages import (
    ANSWERS,
    NO_LEASE,
    Answer,
    Finished,
    Hello,
    Loaded,
    Order,
    Rejected,
    Run,
    Setup,
    Stop,
)
from headway.fleet.live.workers.process import Engine
from headway.fleet.ray.replica import ELSEWHERE, About

_LOST = (RayError, RayServeException)
_LOOK_S = 0.5
_TRIES, _TRY_S = 20, 0.1
"""How often an order is sent that Serve brings to another replica, and how long to wait between."""
_SERVE = "serve"
"""The namespace of Serve's actors."""
_encode = msgspec.msgpack.Encoder().encode


class Replicas:
    """The deployment of workers, and which replicas have had a worker."""

    def __init__(self, handle: "DeploymentHandle[Any]", running: Callable[[], int] | None = None) -> None:
        """``running`` counts the replicas that run, where Serve chooses their number: a call that waits counts as
        load there.
        """
        self._running, self._attached = running, 0
        self._take = handle.options(method_name="take")
        self._attach: Any = handle.options(method_name="attach", stream=True)
        self._used: set[str] = set()
        self._turn = asyncio.Lock()

    async def attach(self, setup: Setup) -> tuple[About, AsyncIterator[bytes]]:
        """Return a replica that is no worker yet, and what it says unasked; waits until there is one."""
        async with self._turn:
            while True:
                while self._running is not None and await asyncio.to_thread(self._running) <= self._attached:
                    await asyncio.sleep(_LOOK_S)
                stream: AsyncIterator[bytes] = aiter(
                    self._attach.remote(setup=_encode(setup), used=frozenset(self._used))
                )
                try:
                    about = msgspec.msgpack.decode(await anext(stream), type=About)
                except (*_LOST, StopAsyncIteration):  # it died meanwhile: Serve starts another
                    await asyncio.sleep(0.1)
                    continue
                self._used.add(about.replica)
                if about.free:
                    self._attached += 1
                    return about, stream

    def leave(self) -> None:
        """Count a worker that lost its replica."""
        self._attached -= 1

    async def take(self, replica: str, number: int, order: Order) -> bytes:
        """Return how an order ended."""
        found: bytes = await self._take.remote(replica=replica, number=number, order=_encode(order))
        return found


class ReplicaWorker:
    """One worker on Ray; what ``WorkerProcess`` is on this machine."""

    def __init__(
        self,
        replicas: Replicas,
        setup: Callable[[int], Setup],
        on_answer: Callable[[Answer], None],
        on_gone: Callable[[], None],
        environment: Mapping[str, str],
    ) -> None:
        """``setup`` makes the first message of the n-th start; ``environment`` is left to Ray's runtime environment."""
        self._replicas, self._setup, self._on_answer, self._on_gone = replicas, setup, on_answer, on_gone
        self._about: About | None = None
        self._actor: Any = None
        self._next = 0
        self._loading: set[int] = set()
        """Leases of batches of which nobody was told yet that their models are there."""
        self._listening: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self.starts = 0
        self.hello: Hello | None = None
        self.stopping = False
        self._told = ""
        """How the last replica ended."""

    @property
    def pid(self) -> int:
        """Return the process id of the replica, on its node; 0 where there is none."""
        return self._about.pid if self._about is not None else 0

    @property
    def pause_s(self) -> float:
        """Return 0: Serve takes its time with replicas that fail at their start."""
        return 0.0

    async def start(self) -> None:
        """Have the worker attached to a replica; ``hello`` is set when it is ready."""
        self.starts += 1
        # Without the context of whatever request is being answered: Serve would end our calls together with it.
        self._listening = asyncio.get_running_loop().create_task(self._listen(), context=Context())

    async def _listen(self) -> None:
        """Attach, and hear what the worker says unasked until it is gone."""
        told, why = "its replica ended", ""
        self.hello, self._next, self._loading = None, 0, set()
        try:
            self._about, stream = await self._replicas.attach(self._setup(self.starts))
            self._actor = await asyncio.to_thread(ray.get_actor, self._about.actor, _SERVE)
            frames = Frames(ANSWERS)
            async for data in stream:
                for answer in frames.feed(data):
                    if isinstance(answer, Rejected) and answer.lease == NO_LEASE and self.hello is None:
                        why = answer.reason
                    self._hear(answer)
        except (*_LOST, ValueError) as problem:  # ValueError: the actor is gone already
            told = type(problem).__name__
        if self._about is not None:
            self._replicas.leave()
        self._about, self._actor, self.hello = None, None, None
        self._told = why or told
        if not self.stopping:
            self._on_gone()

    def _hear(self, answer: Answer) -> None:
        """Hand an answer on; that models are loaded may come twice, and is told once."""
        if isinstance(answer, Hello):
            self.hello = answer
        elif isinstance(answer, Loaded):
            if answer.lease not in self._loading:
                return
            self._loading.discard(answer.lease)
        elif isinstance(answer, Finished | Rejected):
            self._loading.discard(answer.lease)
        self._on_answer(answer)

    def send(self, order: Order) -> None:
        """Send an order; one to a replica that is gone is lost, and its end is told by ``on_gone``."""
        if self._about is None:
            return
        if isinstance(order, Run):
            self._loading.add(order.lease)
        call = self._carry(self._about, self._next, order)
        self._next += 1
        task = asyncio.get_running_loop().create_task(call, context=Context())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _carry(self, about: About, number: int, order: Order) -> None:
        for _ in range(_TRIES):
            try:
                data = await self._replicas.take(about.replica, number, order)
            except _LOST:  # the stream ends too, and says so
                return
            if data != ELSEWHERE or about is not self._about:
                break
            await asyncio.sleep(_TRY_S)  # later orders wait for this one
        else:
            self._told = "Serve does not bring it its orders"
            self.kill()
            return
        if about is self._about:
            for answer in Frames(ANSWERS).feed(data):
                self._hear(answer)

    async def ended(self) -> str:
        """Return how the replica ended."""
        return self._told

    def kill(self) -> None:
        """End the replica at once."""
        if self._actor is not None:
            ray.kill(self._actor)

    async def stop(self, within_s: float = 5.0) -> None:
        """Let the worker end by itself; the replica is Serve's to end."""
        self.stopping = True
        if self._listening is None:
            return
        if self._about is not None and self.hello is not None:
            self.send(Stop())
            await asyncio.wait((self._listening,), timeout=within_s)
        self._listening.cancel()
        for call in self._calls:
            call.cancel()


def ray_engine(handle: "DeploymentHandle[Any]", running: Callable[[], int] | None = None) -> Engine:
    """Return the engine whose workers are the replicas of a deployment; see ``Replicas``."""
    replicas = Replicas(handle, running)

    def connect(
        setup: Callable[[int], Setup],
        on_answer: Callable[[Answer], None],
        on_gone: Callable[[], None],
        environment: Mapping[str, str],
    ) -> ReplicaWorker:
        return ReplicaWorker(replicas, setup, on_answer, on_gone, environment)

    return Engine(connect, shares_memory=False)
