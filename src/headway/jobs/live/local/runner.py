"""Runner of one program: a small process of its own, which outlives the queue and knows how the program ended.

``python -m headway.jobs.live.local.runner FOLDER`` carries out ``order.json`` of the folder of a lease, once: it holds
the lock of the folder while it is there, and whoever makes the file ``began`` first is the one that starts the program.
How that ended is written to ``exit.json`` in one go. If the runner is killed, the kernel kills the program too.

SIGTERM ends the program: it gets a SIGTERM itself, has its grace period, and is killed with all its children. SIGINT
kills it at once.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.device import locks as places, processes
from headway.errors import HeadwayError
from headway.files import write_whole
from headway.program.protocol import SAVED

ORDER, LOCK, BEGAN, EXIT = "order.json", "lock", "began", "exit.json"
SAVED_MARK = "saved"
"""File that a program makes when it has saved: its launcher may not pass the status on."""
NOT_FOUND, NOT_RUN = 127, 126
_PDEATHSIG, _SUBREAPER = 1, 36
_LOCK_S = 10.0
_AGAIN_S = 0.5
_WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def main(folder: Path) -> None:
    """Carry out the order in a folder, unless another runner did."""
    lock = places.hold_within(folder / LOCK, _LOCK_S, alone=True)  # closed by the end of the process
    if lock is None:
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    if (begun := claim(folder)) is None:
        return
    order = json.loads((folder / ORDER).read_bytes())
    _prctl(_SUBREAPER, 1)
    Running(order, folder, begun, before).to_the_end()


def claim(folder: Path) -> int | None:
    """Return the descriptor of the file that only the first runner of a lease can make; None for all others."""
    with contextlib.suppress(FileExistsError):
        return os.open(folder / BEGAN, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return None


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Running:
    """A program, from its start to the end of its last child."""

    def __init__(self, order: dict[str, Any], folder: Path, begun: int, mask: set[int | signal.Signals]) -> None:
        self._order, self._folder, self._begun, self._mask = order, folder, begun, mask
        self._program: subprocess.Popen[bytes] | None = None
        self._kill_at: float | None = None
        """By the monotonic clock; None: nobody asked it to end."""
        self._cgroup_tasks: list[str] = order["cgroup_tasks"]

    def to_the_end(self) -> None:
        """Start the program, wait for its end, and write that down."""
        status, reason = self._start()
        if self._program is not None:
            status = self._wait(self._program)
            self._end_children(self._program.pid)
            if status != SAVED and (self._folder / SAVED_MARK).exists():
                status, reason = SAVED, f"saved, exit status {status}"
        ended = {"status": status, "reason": reason, "ended_s": time.time(), "stopped": self._kill_at is not None}
        while True:
            try:
                return write_whole(self._folder / EXIT, json.dumps(ended))
            except (OSError, HeadwayError):  # a full disk: it is known here until it can be written
                signal.sigtimedwait(_WATCHED, _AGAIN_S)

    def _start(self) -> tuple[int, str]:
        order = self._order
        try:
            with open(order["stdout"], "ab") as out, open(order["stderr"], "ab") as err:
                self._program = subprocess.Popen(
                    order["command"],
                    cwd=order["cwd"],
                    env=order["environment"],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    preexec_fn=self._prepared(os.getpid()),
                )
        except (FileNotFoundError, NotADirectoryError) as problem:
            return NOT_FOUND, f"{problem.filename or order['command'][0]} is not there"
        except (OSError, ValueError, subprocess.SubprocessError) as problem:
            return NOT_RUN, f"{order['command'][0]!r} cannot be run: {getattr(problem, 'strerror', None) or problem}"
        pids = (os.getpid(), self._program.pid)
        told = {"runner": pids[0], "program": pids[1], "ticks": [processes.start_ticks(pid) for pid in pids]}
        with contextlib.suppress(OSError):
            os.pwrite(self._begun, json.dumps({**told, "began_s": time.time()}).encode(), 0)
        return 0, ""

    def _prepared(self, runner: int) -> Callable[[], None]:
        """Return what the new process does before it becomes the program."""
        cpus, mask, tasks = set(self._order["cpus"]), self._mask, self._cgroup_tasks

        def prepare() -> None:
            _prctl(_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != runner:  # it was killed before the kernel knew
                os._exit(NOT_RUN)
            for path in tasks:
                with contextlib.suppress(OSError), open(path, "w") as file:
                    file.write(str(os.getpid()))
            if cpus:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(0, cpus)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a queue in the background ignores some
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        return prepare

    def _wait(self, program: "subprocess.Popen[bytes]") -> int:
        """Return how the program ended; pass on requests to end it."""
        while (status := program.poll()) is None:
            left = None if self._kill_at is None else self._kill_at - time.monotonic()
            if left is not None and left <= 0:
                self._signal(program.pid, signal.SIGKILL)
            got = signal.sigtimedwait(_WATCHED, min(1.0, max(0.01, left)) if left is not None else 1.0)
            if got is not None and got.si_signo == signal.SIGINT:
                self._kill_at = time.monotonic()
            elif got is not None and got.si_signo == signal.SIGTERM and self._kill_at is None:
                self._kill_at = time.monotonic() + self._order["grace_s"]
                with contextlib.suppress(ProcessLookupError):
                    program.send_signal(signal.SIGTERM)
        return status

    def _end_children(self, group: int) -> None:
        """End what the program left running; orphans of it are children of this process."""
        if self._kill_at is not None:  # they may be at their last step: the rest of the grace period is theirs
            self._signal(group, signal.SIGTERM)
            while time.monotonic() < self._kill_at and self._has_children():
                if (got := signal.sigtimedwait(_WATCHED, 0.05)) is not None and got.si_signo == signal.SIGINT:
                    break
        while self._has_children():
            self._signal(group, signal.SIGKILL)
            for pid in children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            signal.sigtimedwait(_WATCHED, 0.05)

    @staticmethod
    def _has_children() -> bool:
        """Reap what has ended; return whether anything is left."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    @staticmethod
    def _signal(group: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def children() -> list[int]:
    """Return the children of this process."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
