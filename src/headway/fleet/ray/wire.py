"""The worker inside a replica: its own threads, and the queues between them and the loop of the replica.

The worker is that of ``headway.fleet.live.workers.worker``, with queues where a process has its socket.
"""

import asyncio
import fcntl
import os
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from queue import SimpleQueue
from shutil import rmtree
from time import sleep
from typing import IO

import msgspec

from headway.door.frames import framed
from headway.fleet.live.workers import payload
from headway.fleet.live.workers.batch import reason
from headway.fleet.live.workers.messages import (
    NO_LEASE,
    Answer,
    Fetch,
    Fetched,
    Finished,
    Loaded,
    Order,
    Rejected,
    Run,
    Setup,
    Stop,
)
from headway.fleet.live.workers.worker import Link, Worker, prepared_worker

_HOLD_S = 0.002
"""``Loaded`` travels with the end of its batch where that comes so soon: most models are there already."""

_FLUSH_S = 0.5
"""Ray does not say when an answer has left a process: it is given so long."""

_USED = "used"
"""The file of a folder that is locked by whoever uses it."""
_in_use: list[IO[str]] = []
"""Locked for the life of this process."""


class Wire(Link):
    """Queues of a worker: orders from the loop of the replica, answers to it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._ends: dict[int, asyncio.Future[bytes]] = {}
        """By lease: the future of what is answered when it ends."""
        self._loaded: dict[int, tuple[bytes, asyncio.TimerHandle]] = {}
        self._closed = False

    # --- in the loop of the replica -----------------------------------------------------------------------------

    def give(self, order: Order) -> "asyncio.Future[bytes] | None":
        """Hand an order to the worker; return the future of its last answers, None where it has none."""
        end: asyncio.Future[bytes] | None = None
        if isinstance(order, Run | Fetch):
            end = self._ends[order.lease] = self._loop.create_future()
        self._orders.put(order)
        return end

    async def rest(self) -> AsyncIterator[bytes]:
        """Yield the answers that end no order, until the worker has ended."""
        while (data := await self._out.get()) is not None:
            yield data

    def _arrived(self, answer: Answer | None) -> None:
        if answer is None:
            self._out.put_nowait(None)
        elif isinstance(answer, Loaded):
            data = framed(answer)
            self._loaded[answer.lease] = data, self._loop.call_later(_HOLD_S, self._out.put_nowait, data)
        elif isinstance(answer, Finished | Fetched | Rejected) and answer.lease in self._ends:
            loaded, timer = self._loaded.pop(answer.lease, (b"", None))
            if timer is not None:
                timer.cancel()
            if not (end := self._ends.pop(answer.lease)).done():
                end.set_result(loaded + framed(answer))  # once more, if it went out before: it may be overtaken
        else:
            self._out.put_nowait(framed(answer))

    # --- in the threads of the worker -----------------------------------------------------------------------------

    def send(self, message: Answer) -> None:
        """Send an answer; after the worker's end, end the thread that does so."""
        if self._closed:
            raise SystemExit
        self._loop.call_soon_threadsafe(self._arrived, message)

    def flush(self) -> None:
        """Return when what was sent has left this process: the loop has it, and Ray had the time to send it."""
        handed = threading.Event()
        self._loop.call_soon_threadsafe(handed.set)
        handed.wait(_FLUSH_S)
        sleep(_FLUSH_S)

    def orders(self) -> Iterator[Order]:
        """Yield orders as they come, up to the last."""
        while True:
            order = self._orders.get()
            if order is None:
                return
            yield order
            if isinstance(order, Stop):
                return

    def close(self) -> None:
        """Tell the server that there is nothing more to come."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._arrived, None)


def placed(setup: Setup) -> Setup:
    """Return a setup whose host copies lie on this node, under the number of its raylet.

    What killed replicas left here is removed: of raylets that are gone, and of servers that no replica works for.
    """
    payload.sweep_dead()
    own = f"{payload.NAME}-{os.getppid()}"
    folder = payload.FOLDER / f"{own}-{Path(setup.host_folder).name.removeprefix(payload.NAME + '-')}"
    with (payload.FOLDER / f"{own}-turn").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        for other in payload.FOLDER.glob(f"{own}-*-host"):
            if other != folder and not _is_used(other):
                rmtree(other, ignore_errors=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        _in_use.append((folder / _USED).open("a"))
        fcntl.flock(_in_use[-1], fcntl.LOCK_SH)
    return msgspec.structs.replace(setup, host_folder=str(folder))


def _is_used(folder: Path) -> bool:
    """Return whether a replica of this node works with a folder."""
    try:
        with (folder / _USED).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, FileNotFoundError):  # or somebody is removing it
        return True
    return False


def work(wire: Wire, setup: Setup) -> None:
    """Be a worker, in a thread of its own, until the server says stop. A failure of ours ends the replica."""
    try:
        try:
            worker = prepared_worker(wire, setup)
        except Exception as problem:  # noqa: BLE001 - the user's file; the server says it
            traceback.print_exc(file=sys.stderr)
            wire.send(Rejected(NO_LEASE, reason(problem)))
            wire.close()
            return
        worker.hello()
        threading.Thread(target=_read, args=(worker, wire), daemon=True, name="orders").start()
        worker.work()
        rmtree(setup.host_folder, ignore_errors=True)
        wire.close()
    except BaseException:  # noqa: BLE001 - without this thread the replica would hang
        traceback.print_exc(file=sys.stderr)
        os._exit(1)


def _read(worker: Worker, wire: Wire) -> None:
    try:
        worker.read(wire.orders())
    except BaseException:  # noqa: BLE001 - as above
        traceback.print_exc(file=sys.stderr)
        os._exit(1)
