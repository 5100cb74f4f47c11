"""Local socket of a queue: its own user's way in, one answer to each question; and the loop behind it."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any, cast

import msgspec

from headway.door.frames import Frames, framed
from headway.door.local_socket import is_own, listening
from headway.errors import HeadwayError, QueueError
from headway.jobs.live.messages import (
    MOST_BYTES,
    QUESTIONS,
    Answer,
    Answered,
    Cancel,
    Question,
    Refused,
    Status,
    Stop,
    Submit,
)
from headway.jobs.live.place import Place
from headway.jobs.live.queue import LiveQueue

TICK_S = 0.05
"""How often programs are looked at while any is there."""
IDLE_S = 1.0


async def serve(queue: LiveQueue, place: Place, on_open: Callable[[], None] = lambda: None) -> None:
    """Answer clients and let the queue decide, until a signal or a client ends it."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    connections: set[_Connection] = set()

    def stop(kill: bool, at_once: bool) -> None:
        queue.stop(kill=kill, at_once=at_once)
        changed.set()

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, False, False)
    queue.turn()
    listener = listening(place.socket, QueueError)
    server = await loop.create_unix_server(lambda: _Connection(queue, stop, changed, connections), sock=listener)
    on_open()
    try:
        while not queue.over:
            queue.turn()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _pause(queue))
            changed.clear()
        if queue.broken:
            raise QueueError(queue.failure)
    finally:
        server.close()
        for connection in list(connections):
            connection.close()
        place.socket.unlink(missing_ok=True)


def _pause(queue: LiveQueue) -> float:
    tick = TICK_S if len(queue.cluster.holdings) else IDLE_S
    due = queue.wait_s
    return tick if due is None else min(tick, due)


class _Connection(asyncio.Protocol):
    """One client."""

    _transport: asyncio.Transport

    def __init__(
        self,
        queue: LiveQueue,
        stop: Callable[[bool, bool], None],
        changed: asyncio.Event,
        all_of_them: "set[_Connection]",
    ) -> None:
        self._queue, self._stop, self._changed, self._all = queue, stop, changed, all_of_them
        self._frames = Frames(QUESTIONS, MOST_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._all.add(self)
        if not is_own(transport.get_extra_info("socket")):
            self._transport.abort()

    def connection_lost(self, problem: Exception | None) -> None:
        self._all.discard(self)

    def close(self) -> None:
        """Send what is left to send, and end."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        try:
            for question in self._frames.feed(data):
                self._send(self._answer(question))
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            self._send(Refused(f"a message cannot be read: {problem}"))
            self._transport.close()

    def _answer(self, question: Question) -> Answer:
        try:
            return Answered(self._done(question))
        except HeadwayError as problem:
            return Refused(str(problem))

    def _done(self, question: Question) -> Any:
        self._changed.set()
        match question:
            case Submit():
                return self._queue.submit(question)
            case Cancel():
                return self._queue.cancel(question.job, at_once=question.at_once)
            case Status():
                return self._queue.status()
            case Stop():
                self._stop(question.kill, question.at_once)
                return None

    def _send(self, answer: Answer) -> None:
        if not self._transport.is_closing():
            self._transport.write(framed(answer))
