"""Local socket of a server: its fast door for programs of the same user, and the way to drain and stop it.

Messages are msgpack with their length before them. Many requests may be in flight on one connection; each has a number,
and answers come in the order in which they are ready.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from headway.door.frames import Frames, framed
from headway.door.local_socket import listening
from headway.errors import HeadwayError, ServeError
from headway.fleet.live.doors.front import Call, Front, Reply
from headway.fleet.live.doors.values import plain

MOST_BYTES = 1 << 30


class Submit(Struct, frozen=True, array_like=True, tag=0):
    """Answer a request."""

    number: int
    graph: str
    value: Any
    deadline_ns: int = 0
    key: str = ""
    tenant: str = ""
    priority: int = 0


class Status(Struct, frozen=True, array_like=True, tag=1):
    """Say what is going on."""

    number: int


class Drain(Struct, frozen=True, array_like=True, tag=2):
    """Take no more requests; answered when all others are."""

    number: int


class Stop(Struct, frozen=True, array_like=True, tag=3):
    """End the server, after its requests where ``drain`` says so; answered at once."""

    number: int
    drain: bool = True


class Answered(Struct, frozen=True, array_like=True, tag=0):
    """What was asked for."""

    number: int
    value: Any


class Failed(Struct, frozen=True, array_like=True, tag=1):
    """Why it came to nothing, with the status that HTTP has for it."""

    number: int
    status: int
    reason: str
    retry_after_s: float = 0.0
    field: str = ""


Question: TypeAlias = Submit | Status | Drain | Stop
Outcome: TypeAlias = Answered | Failed


def _no_extension(code: int, data: Any) -> Any:
    raise ValueError(f"msgpack extension {code}: values are JSON or bytes")


QUESTIONS: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question, ext_hook=_no_extension)
OUTCOMES: msgspec.msgpack.Decoder[Outcome] = msgspec.msgpack.Decoder(Outcome, ext_hook=_no_extension)
Stopping = Callable[[bool], None]


class Control:
    """The server's end of the socket."""

    def __init__(self, path: Path, front: Front, stop: Stopping) -> None:
        """``stop`` is called with whether to drain first."""
        self._path, self._front, self._stop = path, front, stop
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen, in place of a socket that a killed server left."""
        listener = listening(self._path, ServeError)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connected, sock=listener)

    def _connected(self) -> "_Connection":
        return _Connection(self._front, self._stop, self._connections)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


class _Connection(asyncio.Protocol):
    """One client."""

    _transport: asyncio.Transport

    def __init__(self, front: Front, stop: Stopping, all_of_them: "set[_Connection]") -> None:
        self._front, self._stop, self._all = front, stop, all_of_them
        self._frames = Frames(QUESTIONS, MOST_BYTES)
        self._draining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # that of uvloop is none by its class
        self._all.add(self)

    def connection_lost(self, problem: Exception | None) -> None:
        self._all.discard(self)

    def pause_writing(self) -> None:
        """Read no more questions from a client that does not read its answers."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def close(self) -> None:
        """Send what is left to send, and end."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        try:
            for question in self._frames.feed(data):
                self._take(question)
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            self._send(Failed(0, 400, f"a message cannot be read: {problem}"))
            self._transport.close()

    def _take(self, question: Question) -> None:
        number = question.number
        match question:
            case Submit():
                call = Call(
                    question.graph,
                    question.value,
                    question.deadline_ns,
                    question.key,
                    question.tenant,
                    question.priority,
                )
                self._front.call(call, lambda reply: self._answer(number, reply))
            case Status():
                self._send(Answered(number, plain(self._front.status())))
            case Drain():
                self._draining = asyncio.ensure_future(self._drain(number))
            case Stop():
                self._send(Answered(number, None))
                self._stop(question.drain)

    async def _drain(self, number: int) -> None:
        try:
            await self._front.drain()
        except HeadwayError as problem:
            self._send(Failed(number, 500, str(problem)))
        else:
            self._send(Answered(number, None))

    def _answer(self, number: int, reply: Reply) -> None:
        if reply.status == 200:
            self._send(Answered(number, reply.value))
        else:
            self._send(Failed(number, reply.status, reply.reason, reply.retry_after_s, reply.field))

    def _send(self, outcome: Outcome) -> None:
        if self._transport.is_closing():
            return
        try:
            data = framed(outcome)
        except (TypeError, ValueError, OverflowError) as problem:
            data = framed(Failed(outcome.number, 500, f"the result cannot be sent: {problem}"))
        self._transport.write(data)
