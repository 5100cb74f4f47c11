"""Take requests from every door, HTTP and the local socket: check, hand to the server, remember by key, count.

A request is answered by a ``Reply``, whose status is that of HTTP at both doors. The request itself never makes this
module raise.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b
from time import perf_counter_ns
from typing import Any, Protocol

import msgspec

from headway.errors import (
    HeadwayError,
    InputError,
    RequestLateError,
    RequestRefusedError,
    ServeError,
    TaskFailedError,
    UnknownGraphError,
    unknown_name,
)
from headway.fleet.live.doors.values import plain
from headway.fleet.live.options import GRACE
from headway.fleet.live.request_counts import RequestCounts
from headway.units import DAY, SECOND

LONGEST_DEADLINE = 7 * DAY
MOST_BODY_BYTES = 64 << 20
"""Of a request over HTTP, where the server does not say otherwise."""
MOST_PRIORITY = 100
LONGEST_NAME = 255
"""Characters of an idempotency key or a tenant."""
MOST_TENANTS = 10_000
"""A name that a client makes up for each request must not fill the memory."""
DRAINING = "the server drains and takes no more requests: call another one, or later"
RETRY_S = 1.0
"""What is said where nobody knows better."""


class Server(Protocol):
    """What runs the pipelines: ``headway.fleet.live.server`` on this machine."""

    @property
    def graphs(self) -> Collection[str]:
        """Return the names of the graphs."""

    @property
    def ready(self) -> bool:
        """Return whether all workers are there."""

    @property
    def failure(self) -> str:
        """Return why the server cannot go on; empty where it can."""

    def submit(
        self, graph: str, value: Any, *, deadline_ns: int | None = None, tenant: str = "", priority: int = 0
    ) -> "asyncio.Future[Any]":
        """Accept a request, ``deadline_ns`` from now at the latest; return the future of its result."""

    def status(self) -> dict[str, Any]:
        """Return what is going on."""

    async def start(self) -> None:
        """Start the workers."""

    async def drain(self) -> None:
        """Return when no request is left."""

    async def stop(self) -> None:
        """End the workers."""


class Call(msgspec.Struct, frozen=True):
    """A request as a door understood it."""

    graph: str
    value: Any
    deadline_ns: int = 0
    """From now; 0: that of the graph."""
    key: str = ""
    """Requests under one key have one answer."""
    tenant: str = ""
    priority: int = 0


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """What a request came to."""

    status: int
    value: Any = None
    reason: str = ""
    retry_after_s: float = 0.0
    field: str = ""
    """The part of the request that is wrong."""


class Keys(Protocol):
    """Where answers are kept by their key; ``headway.fleet.live.doors.keys``."""

    async def find(self, tenant: str, key: str) -> tuple[bytes, Reply] | None:
        """Return the digest of the request and its answer."""

    async def keep(self, tenant: str, key: str, digest: bytes, reply: Reply) -> Reply:
        """Keep an answer; return the one that is kept, which may be an earlier one."""


Answering = Callable[[Reply], None]
KEPT = frozenset((200, 500, 504))
"""Answers to requests that were accepted. One that was refused may be sent again under its key."""


class Front:
    """What all doors share: the server, the answers by key, and what is counted."""

    def __init__(
        self,
        server: Server,
        keys: Keys | None = None,
        *,
        about: Mapping[str, Any] | None = None,
        examples: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``about``: what a status says of the server besides; ``examples``: by graph, an input."""
        self.server = server
        self.draining = False
        self.counts = RequestCounts()
        self._keys = keys
        self._about = dict(about or {})
        self._slos: Mapping[str, int] = self._about.get("slo_ns", {})
        self.examples = dict(examples or {})
        self._say = say
        self._known = frozenset(server.graphs)
        self._tenants = {""}
        self._in_flight: dict[tuple[str, str], tuple[bytes, asyncio.Future[Reply]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def call(self, call: Call, answer: Answering) -> None:
        """Have a request answered: ``answer`` is called once, now or later."""
        if (wrong := self._wrong(call)) is not None:
            self.counts.add(call.graph if call.graph in self._known else "", wrong.status)
            answer(wrong)
        elif call.key:
            task = asyncio.ensure_future(self._by_key(call, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._submit(call, answer)

    async def answered(self, call: Call) -> Reply:
        """Return the answer to a request."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.call(call, lambda reply: None if future.done() else future.set_result(reply))
        return await future

    def _wrong(self, call: Call) -> Reply | None:
        """Return the answer to a request that cannot be handed on."""
        if call.graph not in self._known:
            return Reply(404, reason=unknown_name("graph", call.graph[:LONGEST_NAME], self._known))
        if not 0 <= call.deadline_ns <= LONGEST_DEADLINE:
            return Reply(422, reason="deadline: above 0 and at most 7 days", field="deadline")
        if not 0 <= call.priority <= MOST_PRIORITY:
            return Reply(422, reason=f"priority {call.priority}: 0 to {MOST_PRIORITY}", field="priority")
        for field, text in (("key", call.key), ("tenant", call.tenant)):
            if len(text) > LONGEST_NAME:
                return Reply(422, reason=f"{field}: at most {LONGEST_NAME} characters", field=field)
        if call.tenant not in self._tenants:
            if len(self._tenants) > MOST_TENANTS:
                return Reply(422, reason=f"tenant: there are {MOST_TENANTS:,} others already", field="tenant")
            self._tenants.add(call.tenant)
        return None

    def _submit(self, call: Call, answer: Answering) -> None:
        began, graph = perf_counter_ns(), call.graph
        try:
            if self.draining:
                raise RequestRefusedError(DRAINING)
            future = self.server.submit(
                graph,
                call.value,
                deadline_ns=call.deadline_ns or None,
                tenant=call.tenant,
                priority=call.priority,
            )
        except HeadwayError as problem:
            self._end(graph, began, self._failure(problem), answer)
            return
        future.add_done_callback(lambda done: self._end(graph, began, self._reply(done), answer))

    @property
    def takes_requests(self) -> bool:
        """Return whether requests are taken: the workers are there, nothing failed, and nobody drains."""
        return self.server.ready and not self.draining and not self.server.failure

    def _end(self, graph: str, began: int, reply: Reply, answer: Answering) -> None:
        self.counts.add(graph, reply.status, perf_counter_ns() - began)
        answer(reply)

    def _reply(self, future: "asyncio.Future[Any]") -> Reply:
        """Return the answer of a future that is done."""
        if future.cancelled():
            return Reply(503, reason="the server stopped before the request was answered", retry_after_s=RETRY_S)
        if (problem := future.exception()) is not None:
            return self._failure(problem)
        try:
            return Reply(200, plain(future.result()))
        except ServeError as unfit:
            return Reply(500, reason=f"the result cannot be sent: {unfit}")

    def _failure(self, problem: BaseException) -> Reply:
        """Return the answer that an error stands for."""
        reason = " ".join(str(problem).split()) or type(problem).__name__
        match problem:
            case RequestRefusedError():
                status = 429 if self.takes_requests else 503
                return Reply(status, reason=reason, retry_after_s=problem.retry_after_s)
            case RequestLateError():
                return Reply(504, reason=reason)
            case TaskFailedError():
                return Reply(500, reason=reason)
            case UnknownGraphError():
                return Reply(404, reason=reason)
            case InputError():
                return Reply(422, reason=reason, field="input")
            case HeadwayError():
                return Reply(500, reason=reason)
            case _:
                return Reply(500, reason=f"internal error: {type(problem).__name__}: {reason}")

    # --- one answer a key -------------------------------------------------------------------------------------------

    async def _by_key(self, call: Call, answer: Answering) -> None:
        """Answer a request by what is kept or on its way under its key; else compute its answer and keep it."""
        place, digest = (call.tenant, call.key), _digest(call)
        if (other := self._in_flight.get(place)) is not None:
            reply = await self._awaited(call, other[1]) if other[0] == digest else _used(call.key)
            self.counts.add_repeated(call.graph, reply.status)
            answer(reply)
            return
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._in_flight[place] = digest, future
        reply = Reply(503, reason="the server stopped before the request was answered", retry_after_s=RETRY_S)
        try:
            reply = await self._kept_or_computed(call, digest)
        finally:
            del self._in_flight[place]
            future.set_result(reply)
            answer(reply)

    async def _awaited(self, call: Call, first: "asyncio.Future[Reply]") -> Reply:
        """Return the answer of the first request under a key, or that it does not come within this one's deadline."""
        limit = call.deadline_ns or self._slos.get(call.graph, 0)
        try:
            return await asyncio.wait_for(asyncio.shield(first), (limit + GRACE) / SECOND if limit else None)
        except TimeoutError:
            return Reply(504, reason=f"late: the first request under key {call.key!r} is still being answered")

    async def _kept_or_computed(self, call: Call, digest: bytes) -> Reply:
        keys = self._keys
        try:
            found = await keys.find(call.tenant, call.key) if keys is not None else None
        except (OSError, sqlite3.Error) as problem:
            return Reply(500, reason=f"answers by key cannot be read: {problem}")
        if found is not None:
            reply = found[1] if found[0] == digest else _used(call.key)
            self.counts.add_repeated(call.graph, reply.status)
            return reply
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._submit(call, future.set_result)
        reply = await future
        if keys is None or reply.status not in KEPT:
            return reply
        try:
            return await keys.keep(call.tenant, call.key, digest, reply)
        except (OSError, sqlite3.Error) as problem:  # it was computed: an answer without a memory is better than none
            self._say(f"an answer could not be kept under its key: {problem}")
            return reply

    # --- the rest ---------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return what is going on, as the server and the doors see it."""
        return {
            **self._about,
            "ready": self.takes_requests,
            "draining": self.draining,
            "graphs": sorted(self._known),
            "examples": {name: self.examples[name] for name in sorted(self.examples)},
            "requests": self.counts.rows(),
            "server": self.server.status(),
        }

    async def drain(self) -> None:
        """Refuse new requests; return when all others are answered."""
        self.draining = True
        await self.server.drain()
        while self._tasks:
            await asyncio.wait(self._tasks)


def _used(key: str) -> Reply:
    return Reply(422, reason=f"key {key!r} was used for another request: take a new key", field="key")


def _digest(call: Call) -> bytes:
    """Return what tells requests under one key apart: graph and input."""
    try:
        data = msgspec.msgpack.encode((call.graph, call.value))
    except (TypeError, ValueError, OverflowError):  # a number beyond 64 bits, which JSON may have
        data = repr((call.graph, call.value)).encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=16).digest()
