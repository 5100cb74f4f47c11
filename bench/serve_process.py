"""A server in a process of its own for the measurements of live serving, started by its command; and what it leaves."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headway as hw
from headway.errors import HeadwayError

START_WITHIN_S = 180.0


class Served:
    """A server and its folder; it may be killed and started again."""

    def __init__(self, app: Path, folder: Path, *more: str, keep: bool = False) -> None:
        """``more``: further words of ``headway serve start``; ``keep``: with a run folder for each start."""
        self.folder = folder
        self.runs: list[Path] = []
        """The run folder of each start."""
        self._killed: list[int] = []
        """Processes of servers that were killed."""
        self._log = folder.parent / "log.txt"
        self._words, self._keep = (str(app), "--folder", str(folder), *more), keep
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        words = list(self._words)
        if self._keep:
            self.runs.append(self.folder.parent / f"run-{len(self.runs)}")
            words += ["--out", str(self.runs[-1])]
        # Modules that were compiled once are kept: a restart that compiles all of them takes seconds longer.
        kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-m", "headway", "serve", "start", *words]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=kept)

    def restart(self) -> None:
        """Kill the server as hard as can be, and start it again."""
        self._killed += self.processes()
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    async def status(self) -> dict[str, Any]:
        """Return what the server says of itself."""
        async with hw.AsyncClient(self.folder) as client:
            return await client.status()

    async def ready(self) -> None:
        """Return when it answers, with all its workers."""
        until = time.monotonic() + START_WITHIN_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended:\n{self._log.read_text()}")
            try:
                found = await self.status()
                if found["ready"] and all(worker["up"] for worker in found["server"]["workers"]):
                    return
            except (HeadwayError, OSError):
                pass
            await asyncio.sleep(0.1)
        raise SystemExit(f"the server is not ready within {START_WITHIN_S:g} s:\n{self._log.read_text()}")

    def stop(self) -> None:
        """End it in good order; kill it where that takes too long."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def processes(self) -> list[int]:
        """Return the server and the processes that it started, also those of servers that were killed."""
        above = parents()
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in above.items() if parent == pid]
        return self._killed + found

    def left(self, processes: Sequence[int]) -> list[str]:
        """Return what is there after its end: some of these processes, shared memory under their names."""
        shared = [path.name for pid in processes for path in Path("/dev/shm").glob(f"headway-{pid}-*")]
        return [*(f"process {pid}" for pid in alive(processes, 10)), *shared]


@contextmanager
def served(app: Path, folder: Path, *more: str) -> Iterator[Path]:
    """Run a server until the context ends; yield the folder that clients find it by."""
    place = Path(tempfile.mkdtemp(dir=folder))
    server = Served(app, place / "server", *more)
    try:
        asyncio.run(server.ready())
        yield server.folder
    finally:
        server.stop()


def parents() -> dict[int, int]:
    """Return the parent of each process of this machine."""
    return {int(path.parent.name): _parent(path) for path in Path("/proc").glob("[0-9]*/stat")}


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return -1


def own_bytes(pid: int) -> int:
    """Return the memory that a process has written and shares with nobody; 0 where it has ended.

    Pages of libraries that it only reads are the kernel's: they count as private while no other process happens to use
    the same library, and go back and forth as others begin and end.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Private_Dirty:", "Swap:")))


def open_files(pid: int) -> int:
    """Return how many files a process has open; 0 where it has ended."""
    return len(list(Path(f"/proc/{pid}/fd").glob("*")))


def alive(pids: Sequence[int], within_s: float) -> list[int]:
    """Return the processes that have not ended within a time."""
    until = time.monotonic() + within_s
    while left := [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]:
        if time.monotonic() > until:
            return left
        time.sleep(0.05)
    return []
