"""Engine of this machine: a runner process for each lease, found again by the files of its folder.

The folder of a lease says everything: no ``began``, nothing was started yet; its lock is held, the runner is there;
``exit.json``, the program has ended; neither, the runner was killed and its program with it. So a queue that was killed
takes up where it was, and an order that is given twice is carried out once.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.device import locks as places, processes
from headway.errors import QueueError
from headway.files import write_whole
from headway.jobs.live.engine import Ended, Order
from headway.jobs.live.local.cgroups import Cgroups
from headway.jobs.live.local.cpus import CpuBooks
from headway.jobs.live.local.runner import BEGAN, EXIT, LOCK, ORDER, SAVED_MARK, claim
from headway.jobs.live.store import Program
from headway.program.protocol import CHECKPOINTS, PROGRESS, SAVED_FILE
from headway.units import WHOLE_GPU_MILLI

MARK = "HEADWAY_LEASE_FOLDER"
"""Variable by which every process of a lease is known."""


@dataclass(slots=True)
class _Watch:
    """A lease whose program may be there."""

    order: Order
    folder: Path
    child: int = 0
    """The process of its runner, where this process started it and it has not ended."""
    stopping: int = 0
    """The signal that it was last asked to end with; 0: it was not."""


class LocalEngine:
    """Runs programs on this machine."""

    def __init__(
        self,
        folder: Path,
        programs: Callable[[int], Program],
        devices: Sequence[str],
        cpus: Sequence[int],
        cgroups: Cgroups | None = None,
        *,
        shares: bool = False,
    ) -> None:
        """``devices``: by GPU what CUDA_VISIBLE_DEVICES calls it; ``cpus``: those that programs may run on.

        ``shares``: whether they are real GPUs, which programs with a part of one share by ``headway share``.
        """
        self._shares = shares
        self._folder, self._programs, self._devices = folder, programs, devices
        self._cpus, self._cgroups = CpuBooks(cpus, quotas=cgroups is not None), cgroups
        self._watched: dict[int, _Watch] = {}

    def folder_of(self, lease: int) -> Path:
        """Return the folder of a lease."""
        return self._folder / "leases" / str(lease)

    def logs_of(self, job: int) -> tuple[Path, Path]:
        """Return the files of what a job printed, and of its errors."""
        return logs_of(self._folder, job)

    # --- starting ---------------------------------------------------------------------------------------------

    def launch(self, order: Order) -> None:
        """Start the runner of a lease. Raises OSError or QueueError, also where the disk is full."""
        if self.adopt(order):
            return
        folder = self.folder_of(order.lease)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._cpus.give_back(order.lease)
        write_whole(folder / ORDER, json.dumps(self._written(order, folder)), QueueError)
        child = subprocess.Popen(
            [sys.executable, "-m", "headway.jobs.live.local.runner", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, MARK: str(folder)},
            start_new_session=True,
            cwd="/",
        )
        child.returncode = 0  # it outlives this object on purpose, and is reaped by its number
        self._watched[order.lease] = _Watch(order, folder, child.pid)

    def adopt(self, order: Order) -> bool:
        """Watch what an earlier queue has started; return whether its runner has begun."""
        folder = self.folder_of(order.lease)
        if not (folder / BEGAN).exists():
            return False
        self._watched[order.lease] = _Watch(order, folder)
        self._cpus.take(order.lease, _read(folder / ORDER).get("cpus", ()), order.cpu_milli)
        return True

    def _written(self, order: Order, folder: Path) -> dict[str, Any]:
        """Return what the runner has to know."""
        program = self._programs(order.job)
        out, err = self.logs_of(order.job)
        out.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        cpus = self._cpus.given(order.lease, order.cpu_milli)
        tasks = self._cgroups.make(order, cpus) if self._cgroups is not None else []
        return {
            "command": self._command(program, order),
            "cwd": program.folder,
            "environment": {**program.environment, **self._variables(order, folder)},
            "stdout": str(out),
            "stderr": str(err),
            "grace_s": program.grace_s,
            "cpus": cpus,
            "cgroup_tasks": tasks,
        }

    def _command(self, program: Program, order: Order) -> tuple[str, ...]:
        """Return what is run: the program, under ``headway share`` where it has a part of a real GPU."""
        if not self._shares or order.gpu_milli == WHOLE_GPU_MILLI:
            return program.command
        first = ("--priority", str(program.share_priority), "--name", f"job {order.job}")
        return (sys.executable, "-m", "headway", "share", "run", *first, "--", *program.command)

    def _variables(self, order: Order, folder: Path) -> Mapping[str, str]:
        return {
            "CUDA_VISIBLE_DEVICES": ",".join(self._devices[gpu] for gpu in order.gpus),
            "HEADWAY_JOB": str(order.job),
            "HEADWAY_LEASE": str(order.lease),
            MARK: str(folder),
            PROGRESS: str(folder / "progress"),
            SAVED_FILE: str(folder / SAVED_MARK),
            CHECKPOINTS: str(self.logs_of(order.job)[0].with_name("checkpoints")),
            "HEADWAY_STARTED_AGAIN": "1" if order.again else "0",
        }

    def regrant(self, order: Order) -> None:
        """Give a running program other CPUs and memory; where it is to run on others, all its threads are moved."""
        if (watch := self._watched.get(order.lease)) is None:
            return
        watch.order = order
        before = self._cpus.give_back(order.lease)
        cpus = self._cpus.given(order.lease, order.cpu_milli)
        if self._cgroups is not None:
            self._cgroups.make(order, cpus)
        for pid in marked(watch.folder) if cpus != before else ():
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    with contextlib.suppress(OSError):
                        os.sched_setaffinity(int(thread), cpus or self._cpus.all)

    # --- ending -----------------------------------------------------------------------------------------------

    def stop(self, lease: int, *, at_once: bool = False) -> None:
        """Ask the runner of a lease to end its program; one that has not begun never will."""
        folder = self.folder_of(lease)
        if (watch := self._watched.get(lease)) is None:
            watch = self._watched[lease] = _Watch(Order(lease, -1), folder)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (claimed := claim(folder)) is not None:
            os.close(claimed)
        watch.stopping = signal.SIGINT if at_once else signal.SIGTERM
        self._signal(watch)

    def _signal(self, watch: _Watch) -> None:
        """Pass a request to end on to the runner, as soon as it can be found: it holds its lock from early on."""
        lock = watch.folder / LOCK
        told = int(_read(watch.folder / BEGAN).get("runner", 0))
        for pid in (told,) if told else marked(watch.folder) if places.held(lock) else ():
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)
                try:
                    if processes.has_open(pid, lock):
                        signal.pidfd_send_signal(handle, watch.stopping)
                        watch.stopping = 0
                finally:
                    os.close(handle)

    def poll(self) -> list[Ended]:
        """Return the leases whose programs are gone."""
        found = [ended for watch in list(self._watched.values()) if (ended := self._looked_at(watch)) is not None]
        for ended in found:
            del self._watched[ended.lease]
            self._cpus.give_back(ended.lease)
            if self._cgroups is not None:
                self._cgroups.remove(ended.lease)
        return found

    def _looked_at(self, watch: _Watch) -> Ended | None:
        """Return how a program ended; None while it is there, or its runner is about to start it."""
        if watch.child:
            with contextlib.suppress(ChildProcessError):
                watch.child = 0 if os.waitpid(watch.child, os.WNOHANG)[0] else watch.child
        if watch.stopping:
            self._signal(watch)
        lease = watch.order.lease
        if places.held(watch.folder / LOCK):
            return None
        if (ended := _read(watch.folder / EXIT)) or not self._is_lost(watch):
            return _ended(lease, ended) if ended else None
        grouped = self._cgroups.processes(lease) if self._cgroups is not None else ()
        if kill((*marked(watch.folder), *grouped)):
            return None  # it is gone when nothing of it is left
        return Ended(lease, lost=True)

    def _is_lost(self, watch: _Watch) -> bool:
        """Return whether no runner is there and none will come: one began and is gone, or it ended before it began."""
        if (watch.folder / BEGAN).exists():
            # Once more: the runner may have taken its lock, or written its end, since that was looked at.
            return not places.held(watch.folder / LOCK) and not (watch.folder / EXIT).exists()
        if watch.child:
            return False
        if (claimed := claim(watch.folder)) is None:
            return False
        os.close(claimed)
        return True

    # --- what is known of a program ---------------------------------------------------------------------------

    def progress(self, lease: int) -> float | None:
        """Return the share that a program wrote to the file that ``HEADWAY_PROGRESS`` names."""
        try:
            share = float((self.folder_of(lease) / "progress").read_bytes()[:64])
        except (OSError, ValueError):
            return None
        return share if 0 <= share <= 1 else None

    def forget(self, lease: int) -> None:
        """Remove what only a running lease needs; how it ended stays."""
        for name in (ORDER, LOCK):
            with contextlib.suppress(OSError):
                (self.folder_of(lease) / name).unlink(missing_ok=True)


def _ended(lease: int, told: Mapping[str, Any]) -> Ended:
    """Return the end of a program as its runner wrote it down."""
    return Ended(lease, int(told["status"]), reason=str(told["reason"]), ended_s=float(told.get("ended_s", 0)))


def runs_still(folder: Path, lease: int) -> bool:
    """Return whether the runner of a lease is there, in the folder of a run: its queue may be gone."""
    return places.held(folder / "leases" / str(lease) / LOCK)


def logs_of(folder: Path, job: int) -> tuple[Path, Path]:
    """Return the files of what a job printed, and of its errors, in the folder of a run."""
    place = folder / "jobs" / str(job)
    return place / "stdout", place / "stderr"


def _read(path: Path) -> dict[str, Any]:
    """Return the object in a file; empty where there is none, or it is not whole yet."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def marked(folder: Path) -> list[int]:
    """Return the processes of a lease: those with its folder in their environment, and all of its program's session."""
    wanted = f"{MARK}={folder}".encode()
    told = _read(folder / BEGAN)
    leader, ticks = int(told.get("program", 0)), int(told.get("ticks", (0, 0))[1])
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        pid = int(entry)
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in environment or (leader and processes.session(pid) == leader and _same(leader, ticks)):
            found.append(pid)
    return found


def _same(leader: int, ticks: int) -> bool:
    """Return whether the id of a session's leader was not given to another process since."""
    return processes.start_ticks(leader) in (0, ticks)


def kill(pids: Iterable[int]) -> bool:
    """Kill processes of a lease whose runner is gone; return whether there were any."""
    others = {pid for pid in pids if pid != os.getpid()}
    for pid in others:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return bool(others)
