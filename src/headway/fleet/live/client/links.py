"""Reach a server over its local socket: one request a connection at a time, or many at once under asyncio."""

import asyncio
import socket
import threading
from itertools import count
from pathlib import Path
from typing import cast

import msgspec

from headway.door.frames import Frames, framed
from headway.door.local_socket import short_address
from headway.errors import HeadwayError, NoServerError, RequestError, RequestLostError, ServeError
from headway.fleet.live.doors.control import MOST_BYTES, OUTCOMES, Answered, Outcome, Question
from headway.fleet.live.doors.front import Reply
from headway.fleet.live.doors.place import Place

LOST = "the server ended, or closed the connection, before it answered"
_CHUNK = 1 << 18


def message_of(question: Question) -> bytes:
    """Return a question as bytes; raise ServeError where a value cannot be written."""
    try:
        return framed(question)
    except (TypeError, ValueError, OverflowError) as problem:
        raise ServeError(f"the input cannot be sent: {problem}") from None


def reply_of(outcome: Outcome) -> Reply:
    """Return what came over the socket as every door says it."""
    if type(outcome) is Answered:
        return Reply(200, outcome.value)
    assert not isinstance(outcome, Answered)
    return Reply(outcome.status, None, outcome.reason, outcome.retry_after_s, outcome.field)


def connected(path: Path) -> socket.socket:
    """Return a connection to a server's socket."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_address(path) as address:
            link.connect(address)
    except OSError as problem:
        link.close()
        why = "one starts or stops there; try again" if _starts(path.parent) else problem.strerror
        raise NoServerError(f"no server answers in {path.parent}: {why}") from None
    return link


def _starts(folder: Path) -> bool:
    """Return whether a server holds a folder; where that cannot be known, it does not."""
    try:
        return Place(folder).runs
    except (OSError, HeadwayError):
        return False


def too_long(timeout_s: float | None) -> RequestError:
    """Return the error for a server that says nothing."""
    return RequestError(f"the server said nothing for {timeout_s or 0:g} s, far past the deadline")


class SocketLink:
    """Connections that threads take and give back; a call has one to itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()
        self._numbers = count(1)

    def ask(self, question: Question, timeout_s: float | None) -> Reply:
        """Return the answer to a question."""
        data = message_of(msgspec.structs.replace(question, number=next(self._numbers)))
        link = self._sent(data, timeout_s)
        try:
            reply = self._received(link)
        except TimeoutError:
            link.close()
            raise too_long(timeout_s) from None
        except OSError as problem:
            link.close()
            raise RequestLostError(f"{LOST}: {problem.strerror or problem}") from None
        except BaseException:
            link.close()
            raise
        with self._lock:
            self._idle.append(link)
        return reply

    def _sent(self, data: bytes, timeout_s: float | None) -> socket.socket:
        """Return the connection that took a message: one that lay idle may be that of a server which has ended."""
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            link = kept or connected(self._path)
            link.settimeout(timeout_s)
            try:
                link.sendall(data)
            except OSError as problem:
                link.close()
                if kept is None:
                    raise RequestLostError(f"{LOST}: {problem.strerror or problem}") from None
            else:
                return link

    def _received(self, link: socket.socket) -> Reply:
        frames = Frames(OUTCOMES, MOST_BYTES)
        while data := link.recv(_CHUNK):
            for outcome in frames.feed(data):
                return reply_of(outcome)
        raise RequestLostError(LOST)

    def close(self) -> None:
        """Close the connections that lie idle."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()


class AsyncSocketLink(asyncio.Protocol):
    """One connection with any number of questions in flight."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._numbers = count(1)
        self._opening = asyncio.Lock()
        self._frames = Frames(OUTCOMES, MOST_BYTES)

    async def open(self) -> None:
        """Connect, where that is not so."""
        if self._is_open():
            return
        async with self._opening:
            if not self._is_open():
                self._frames = Frames(OUTCOMES, MOST_BYTES)
                self._loop = asyncio.get_running_loop()
                link = connected(self._path)
                link.setblocking(False)
                await self._loop.create_connection(lambda: self, sock=link)

    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, question: Question, timeout_s: float | None) -> "asyncio.Future[Reply]":
        """Return the future of the answer to a question."""
        number = next(self._numbers)
        data = message_of(msgspec.structs.replace(question, number=number))
        future: asyncio.Future[Reply] = self._loop.create_future()
        if not self._is_open():
            future.set_exception(RequestLostError(LOST))
            return future
        self._waiting[number] = future
        assert self._transport is not None
        self._transport.write(data)
        if timeout_s is not None:
            timer = self._loop.call_later(timeout_s, self._give_up, number, timeout_s)
            future.add_done_callback(lambda done: timer.cancel())
        return future

    def _give_up(self, number: int, timeout_s: float) -> None:
        if (future := self._waiting.pop(number, None)) is not None and not future.done():
            future.set_exception(too_long(timeout_s))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the way to the server."""
        self._transport = cast(asyncio.Transport, transport)  # that of uvloop is none by its class

    def data_received(self, data: bytes) -> None:
        """Hand answers to those who wait for them."""
        try:
            for outcome in self._frames.feed(data):
                future = self._waiting.pop(outcome.number, None)
                if future is not None and not future.done():
                    future.set_result(reply_of(outcome))
        except (msgspec.MsgspecError, ValueError) as problem:
            self._fail(RequestError, f"an answer cannot be read: {problem}")

    def connection_lost(self, problem: Exception | None) -> None:
        """Tell all who wait."""
        self._fail(RequestLostError, LOST)

    def _fail(self, kind: type[RequestError], reason: str) -> None:
        if self._transport is not None:
            self._transport.close()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(kind(reason))

    async def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()
            await asyncio.sleep(0)  # it is closed by the loop
