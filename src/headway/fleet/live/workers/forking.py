"""The server's side of the template: start it, have workers forked, and learn how they ended."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headway.fleet.live.workers.template import MOST_BYTES, TOLD, Asked, Fork, Forked, Reap, Reaped, Told

UNKNOWN = 255
"""The status of a process whose template has ended before it."""
_IMPORT_WITHIN_S = 60.0
_ANSWER_WITHIN_S = 5.0


class ForkedProcess:
    """A worker that the template forked; what of ``Popen`` a server needs."""

    def __init__(self, template: "Template", pid: int) -> None:
        self._template, self._parent = template, template.pid
        self._handle = -1
        self._handle = os.pidfd_open(pid)
        self.pid = pid
        self.returncode: int | None = None

    def __del__(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    def runs(self) -> bool:
        """Return whether it runs; one that has ended keeps its number until ``poll``."""
        watch = select.poll()  # unlike select.select, for any number of open files
        watch.register(self._handle, select.POLLIN)
        return not watch.poll(0)

    def poll(self) -> int | None:
        """Return its exit status once it has ended; None before."""
        if self.returncode is None and not self.runs():
            self.returncode = self._template.reaped(self.pid, self._parent)
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        signal.pidfd_send_signal(self._handle, signal.SIGKILL)


class Template:
    """The process that workers of one application are forked from; started when it is needed."""

    def __init__(self, app: Path) -> None:
        self._app = app
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int:
        """Return its process id; 0 where there is none."""
        return self._process.pid if self._process is not None else 0

    async def ready(self) -> None:
        """Return when workers can be forked; raise OSError where that cannot be."""
        async with self._starting:
            if self._process is not None and self._process.poll() is None:
                return
            if not await self._started(str(self._app)) and not await self._started():
                raise OSError("the template of workers does not start; what it said is above")

    async def _started(self, *words: str) -> bool:
        """Start a template and wait for it; return whether workers can be forked from it."""
        self.stop()
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headway.fleet.live.workers.template", str(theirs.fileno()), *words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._link.setblocking(False)
        said = asyncio.get_running_loop().sock_recv(self._link, MOST_BYTES)
        try:
            is_ready = bool(await asyncio.wait_for(said, _IMPORT_WITHIN_S))
        except OSError:
            return False
        self._link.settimeout(_ANSWER_WITHIN_S)
        return is_ready

    def fork(self, handle: int, environment: Mapping[str, str]) -> ForkedProcess:
        """Return a new worker on a socket, with more variables in its environment; raise OSError where that fails."""
        told = self._ask(Fork(dict(environment)), [handle])
        assert isinstance(told, Forked)
        return ForkedProcess(self, told.pid)

    def reaped(self, pid: int, parent: int) -> int:
        """Return how a worker ended that has; only the template that forked it can tell."""
        if parent != self.pid:
            return UNKNOWN
        try:
            told = self._ask(Reap(pid))
        except OSError:
            return UNKNOWN
        assert isinstance(told, Reaped)
        return told.status

    def _ask(self, asked: Asked, handles: list[int] | None = None) -> Told:
        if self._link is None:
            raise OSError("the template of workers has ended")
        try:
            socket.send_fds(self._link, [msgspec.msgpack.encode(asked)], handles or [])
            data = self._link.recv(MOST_BYTES)
        except OSError:
            data = b""
        if not data:
            self.stop()
            raise OSError("the template of workers has ended")
        return TOLD.decode(data)

    def stop(self) -> None:
        """End the process; workers that it forked go on."""
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._link = self._process = None
