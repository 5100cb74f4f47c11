"""Call a server from Python: over its local socket, which is fastest, or over HTTP.

``hw.client()`` finds the server that runs here; ``hw.client("reading")`` takes one by its name or folder,
``hw.client("http://host:8000")`` one anywhere. ``AsyncClient`` is the same for asyncio: many calls may be in flight.
"""

import asyncio
import os
from asyncio import Future
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Protocol

import msgspec

from headway.errors import (
    HeadwayError,
    NoServerError,
    RequestError,
    RequestLateError,
    RequestLostError,
    RequestRefusedError,
    ServeError,
    TaskFailedError,
    UnknownGraphError,
)
from headway.fleet.live.client.http_links import AsyncHttpLink, HttpLink
from headway.fleet.live.client.links import AsyncSocketLink, SocketLink
from headway.fleet.live.doors.control import Drain, Question, Status, Stop, Submit
from headway.fleet.live.doors.front import Reply
from headway.fleet.live.doors.place import find
from headway.fleet.live.doors.tokens import VARIABLE
from headway.fleet.live.doors.values import plain
from headway.units import SECOND, parse_duration

GRACE_S = 10.0
"""A server that has not answered so long after a deadline is given up."""
AGAIN_S = 0.1
"""A request that may be sent again, because its server is gone, is sent after this time."""
_GONE = (NoServerError, RequestLostError)


class Link(Protocol):
    """A way to a server."""

    def ask(self, question: Question, timeout_s: float | None) -> Reply:
        """Return the answer to a question."""

    def close(self) -> None:
        """Close what is open."""


class AsyncLink(Protocol):
    """A way to a server, for asyncio."""

    async def open(self) -> None:
        """Connect."""

    def ask(self, question: Question, timeout_s: float | None) -> "Future[Reply]":
        """Return the future of the answer to a question."""

    async def close(self) -> None:
        """Close what is open."""


def client(server: str | os.PathLike[str] = "", *, token: str = "") -> "Client":
    """Return a client of a server: its address, its folder or its name; without any, the one that runs here."""
    return Client(server, token=token)


class Client:
    """Calls a server and waits for each answer; threads may share one."""

    def __init__(self, server: str | os.PathLike[str] = "", *, token: str = "") -> None:
        text = os.fspath(server)
        self._link: Link = HttpLink(text, _token(token)) if _is_address(text) else SocketLink(find(text).socket)

    def call(
        self,
        graph: str,
        value: Any = None,
        *,
        deadline: str | float | None = None,
        key: str = "",
        tenant: str = "",
        priority: int = 0,
    ) -> Any:
        """Return what a graph makes of a value: JSON-able, or bytes.

        ``deadline``: ``"600ms"``, or seconds. Calls under one ``key`` have one answer; with a deadline too, one whose
        server is gone is sent again until then. Raises ``RequestRefusedError``, ``RequestLateError``,
        ``TaskFailedError`` or ``ServeError``, each with the reason.
        """
        question = submission(graph, value, deadline, key, tenant, priority)
        until = _retried_until(question)
        while True:
            try:
                return result_of(self._link.ask(question, _patience(question)))
            except _GONE:
                if (later := _later(question, until)) is None:
                    raise
                question = later
            sleep(AGAIN_S)

    def status(self) -> dict[str, Any]:
        """Return what the server says of itself: graphs, requests, workers."""
        return _status_of(self._link.ask(Status(0), GRACE_S))

    def drain(self) -> None:
        """Have the server refuse new requests; return when all others are answered."""
        result_of(self._link.ask(Drain(0), None))

    def stop(self, *, drain: bool = True) -> None:
        """Tell the server to end, after the requests that it has."""
        result_of(self._link.ask(Stop(0, drain), GRACE_S))

    def close(self) -> None:
        """Close the connections."""
        self._link.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient:
    """Calls a server from asyncio: ``async with hw.AsyncClient() as server: await server.call("reading", "text")``."""

    def __init__(self, server: str | os.PathLike[str] = "", *, token: str = "") -> None:
        text = os.fspath(server)
        self._link: AsyncLink = (
            AsyncHttpLink(text, _token(token)) if _is_address(text) else AsyncSocketLink(find(text).socket)
        )

    async def call(
        self,
        graph: str,
        value: Any = None,
        *,
        deadline: str | float | None = None,
        key: str = "",
        tenant: str = "",
        priority: int = 0,
    ) -> Any:
        """Return what a graph makes of a value; see ``Client.call``."""
        question = submission(graph, value, deadline, key, tenant, priority)
        until = _retried_until(question)
        while True:
            try:
                await self._link.open()
                return result_of(await self.ask(question))
            except _GONE:
                if (later := _later(question, until)) is None:
                    raise
                question = later
            await asyncio.sleep(AGAIN_S)

    def ask(self, question: Submit) -> "Future[Reply]":
        """Send a request on a client that is open; return the future of its reply, which may be a failure."""
        return self._link.ask(question, _patience(question))

    async def status(self) -> dict[str, Any]:
        """Return what the server says of itself."""
        await self._link.open()
        return _status_of(await self._link.ask(Status(0), GRACE_S))

    async def drain(self) -> None:
        """Have the server refuse new requests; return when all others are answered."""
        await self._link.open()
        result_of(await self._link.ask(Drain(0), None))

    async def stop(self, *, drain: bool = True) -> None:
        """Tell the server to end, after the requests that it has."""
        await self._link.open()
        result_of(await self._link.ask(Stop(0, drain), GRACE_S))

    async def open(self) -> None:
        """Connect; ``call`` does so by itself."""
        await self._link.open()

    async def close(self) -> None:
        """Close the connections."""
        await self._link.close()

    async def __aenter__(self) -> "AsyncClient":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()


# --- questions and answers ------------------------------------------------------------------------------------------


def submission(
    graph: str,
    value: Any,
    deadline: str | float | None = None,
    key: str = "",
    tenant: str = "",
    priority: int = 0,
) -> Submit:
    """Return a request, checked as far as a client can."""
    return Submit(0, graph, plain(value), deadline_of(deadline), key, tenant, priority)


def deadline_of(text: str | float | None) -> int:
    """Return a deadline in nanoseconds; 0 where there is none."""
    if text is None or text == "":
        return 0
    time = parse_duration(text, what="deadline") if isinstance(text, str) else round(text * SECOND)
    if time <= 0:
        raise ServeError(f"deadline {text!r}: longer than nothing, like 600ms")
    return time


def result_of(reply: Reply) -> Any:
    """Return the value of a reply; raise the error that it stands for."""
    if reply.status == 200:
        return reply.value
    raise problem_of(reply)


def problem_of(reply: Reply) -> HeadwayError:
    """Return the error that a reply stands for."""
    match reply.status:
        case 404:
            return UnknownGraphError(reply.reason)
        case 429 | 503:
            return RequestRefusedError(reply.reason, reply.retry_after_s)
        case 504:
            return RequestLateError(reply.reason)
        case 500:
            return TaskFailedError(reply.reason)
        case status if 400 <= status < 500:
            return ServeError(reply.reason)
    return RequestError(reply.reason or f"the server answered with status {reply.status}")


def _status_of(reply: Reply) -> dict[str, Any]:
    found = result_of(reply)
    if not isinstance(found, dict):
        raise ServeError("its status cannot be read: it is no server of headway, or of another version")
    return found


def _patience(question: Submit) -> float | None:
    return question.deadline_ns / SECOND + GRACE_S if question.deadline_ns else None


def _retried_until(question: Submit) -> float:
    """Return until when a request may be sent again: its deadline if it has a key, which has one answer; else never."""
    return monotonic() + question.deadline_ns / SECOND if question.key and question.deadline_ns else 0.0


def _later(question: Submit, until: float) -> Submit | None:
    """Return a request as it is sent again after a pause, with what is left of its deadline; None: it is too late."""
    left_s = until - monotonic() - AGAIN_S
    return msgspec.structs.replace(question, deadline_ns=round(left_s * SECOND)) if left_s > 0 else None


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _token(given: str) -> str:
    return given or os.environ.get(VARIABLE, "")
