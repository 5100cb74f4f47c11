"""Worker processes of a server: start them, talk to them, notice when they are gone or hang, and start them again."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Protocol, TypeAlias

from headway.door.frames import Frames, framed
from headway.fleet.live.workers.forking import UNKNOWN, ForkedProcess, Template
from headway.fleet.live.workers.messages import ANSWERS, Answer, Hello, Order, Setup, Stop

_QUICK_S = 10.0
"""A worker that lives no longer than this has failed at its start, and is started again more slowly each time."""
_LONGEST_PAUSE_S = 8.0
_END_WITHIN_S = 5.0


class Connection(Protocol):
    """A server's end of one worker, wherever that runs; it outlives the worker, which may be started again."""

    starts: int
    hello: Hello | None
    """What it said when it was ready; None: it is not."""
    stopping: bool

    @property
    def pid(self) -> int:
        """Return its process id; 0 where there is none."""

    @property
    def pause_s(self) -> float:
        """Return how long to wait before it is started again."""

    async def start(self) -> None:
        """Have it started; ``hello`` is set when it is ready."""

    def send(self, order: Order) -> None:
        """Send an order; one to a worker that is gone is lost."""

    def kill(self) -> None:
        """End it at once."""

    async def stop(self, within_s: float = 5.0) -> None:
        """Let it end by itself; kill it when it does not within a time."""

    async def ended(self) -> str:
        """Return how it ended, once it has."""


class WorkerProcess(asyncio.Protocol):
    """One worker: its process, its socket, and how often it was started."""

    def __init__(
        self,
        setup: Callable[[int], Setup],
        on_answer: Callable[[Answer], None],
        on_gone: Callable[[], None],
        environment: Mapping[str, str],
        template: Template,
    ) -> None:
        """``setup`` makes the first message of the n-th start; ``on_gone`` is called when it is lost."""
        self._setup = setup
        self._on_answer = on_answer
        self._on_gone = on_gone
        self._environment = environment
        self._template = template
        self._frames = Frames(ANSWERS)
        self._process: ForkedProcess | None = None
        self._transport: asyncio.Transport | None = None
        self._began = 0.0
        self._quick_ends = 0
        self.starts = 0
        self.hello: Hello | None = None
        """What it said when it was ready; None: it is not."""
        self.stopping = False

    @property
    def pid(self) -> int:
        """Return its process id; 0 where there is none."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Start the process and send its first message; ``hello`` is set when it has answered."""
        self.starts += 1
        self._began, self.hello, self._frames = monotonic(), None, Frames(ANSWERS)
        try:
            await self._template.ready()
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    self._process = self._template.fork(theirs.fileno(), self._environment)
            except OSError:
                ours.close()
                raise
        except OSError:
            self._quick_ends += 1
            raise
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.send(self._setup(self.starts))

    def send(self, order: Order) -> None:
        """Send an order; one to a worker that is gone is lost, and its end is told by ``on_gone``."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed(order))

    def data_received(self, data: bytes) -> None:
        """Hand on the answers in what came."""
        for answer in self._frames.feed(data):
            if isinstance(answer, Hello):
                self.hello = answer
            self._on_answer(answer)

    def connection_lost(self, problem: Exception | None) -> None:
        """End the process, whatever is left of it, and tell that it is lost; ``ended`` waits for its end."""
        self._transport = self.hello = None
        self.kill()
        self._quick_ends = self._quick_ends + 1 if monotonic() - self._began < _QUICK_S else 0
        self._on_gone()

    @property
    def pause_s(self) -> float:
        """Return how long to wait before it is started again."""
        return 0.0 if not self._quick_ends else min(0.25 * 2**self._quick_ends, _LONGEST_PAUSE_S)

    def kill(self) -> None:
        """End the process at once, and the processes that it started."""
        if self._process is not None and self._process.returncode is None:  # else its number may be another's
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._process.kill()

    def _runs(self) -> bool:
        """Return whether the process runs; one that has ended is left as it is, so that its number stays its own."""
        return self._process is not None and self._process.returncode is None and self._process.runs()

    async def stop(self, within_s: float = 5.0) -> None:
        """Let the process end by itself; kill it when it does not within a time."""
        self.stopping = True
        self.send(Stop())
        until = monotonic() + within_s
        while self._runs() and monotonic() < until:
            await asyncio.sleep(0.01)
        self.kill()  # also what it started, where it has ended by itself
        await self.ended()
        if self._transport is not None:
            self._transport.abort()

    async def ended(self) -> str:
        """Return how a process ended that was killed; with much GPU memory that takes it seconds, and others go on."""
        if self._process is None:
            return "it was never started"
        until = monotonic() + _END_WITHIN_S
        while (status := self._process.poll()) is None:
            if monotonic() > until:
                return "it cannot be ended"
            await asyncio.sleep(0.005)
        if status == UNKNOWN:
            return "nobody knows how"
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


Connect: TypeAlias = Callable[
    [Callable[[int], Setup], Callable[[Answer], None], Callable[[], None], Mapping[str, str]], Connection
]
"""Makes the connection of a worker; see ``WorkerProcess``."""


@dataclass(frozen=True)
class Engine:
    """Where workers run."""

    connect: Connect
    shares_memory: bool = True
    """Whether values travel in shared memory: all workers are on the machine of the server."""
    close: Callable[[], None] = lambda: None
    """Called when all workers have ended."""


def local_engine(app: Path) -> Engine:
    """Return the engine whose workers are processes of this machine, forked from one template."""
    template = Template(app)
    return Engine(partial(WorkerProcess, template=template), close=template.stop)
