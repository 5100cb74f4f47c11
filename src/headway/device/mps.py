"""NVIDIA's Multi-Process Service (MPS): find, start, query and stop its control daemon.

Only under MPS do kernels of two programs run at the same time. Without it the driver switches between their time
slices, twice for each kernel that fills a gap of another program: only long gaps are filled (``coarse``), and one line
says why. A daemon that headway starts has its own folders, so that other programs do not use it. One that runs already
is used and left running.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.device import shared_files as files
from headway.device.locks import Place, wait_until
from headway.device.nvidia import Gpu, any_gpu
from headway.errors import ShareError

CONTROL = "nvidia-cuda-mps-control"
PIPE, LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
SMS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
DEFAULT_PIPE = Path("/tmp/nvidia-mps")
MODES = ("auto", "on", "off")
_SECONDS = 20
_LONGEST_SOCKET = 107
"""Longest path of a socket in bytes; MPS appends names to its folder."""


@dataclass(frozen=True, slots=True)
class Mps:
    """A control daemon of MPS that answers."""

    pipe: Path
    log: Path
    owned: bool
    """Started by headway, and so stopped by it."""

    def environment(self) -> dict[str, str]:
        """Return the environment variables by which clients find it."""
        return {PIPE: str(self.pipe), LOG: str(self.log)}

    def ask(self, line: str, seconds: float = _SECONDS) -> str | None:
        """Return the daemon's answer to one command; None if it does not answer."""
        if (program := shutil.which(CONTROL)) is None:
            return None
        try:
            ended = subprocess.run(
                [program],
                input=f"{line}\n",
                env={**os.environ, **self.environment()},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return ended.stdout if ended.returncode == 0 else None

    def servers(self) -> list[int] | None:
        """Return the process ids of the MPS servers; None if the daemon does not answer."""
        answer = self.ask("get_server_list")
        return None if answer is None else _numbers(answer)

    def clients(self) -> list[tuple[int, int]]:
        """Return (server, client) process ids for each client."""
        return [
            (server, client)
            for server in self.servers() or ()
            for client in _numbers(self.ask(f"get_client_list {server}") or "")
        ]

    def terminate(self, pid: int) -> bool:
        """End a client's work on the GPU without harm to others; return False if it is not a client."""
        for server, client in self.clients():
            if client == pid:
                return self.ask(f"terminate_client {server} {client}") is not None
        return False

    def stop(self) -> bool:
        """Stop the daemon and its servers, if headway started it; return whether it has ended."""
        if not self.owned:
            return True
        self.ask("quit", seconds=60)
        return wait_until(lambda: not _control_pid(self.pipe), 10, 0.05)


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdigit()]


def _control_pid(pipe: Path) -> int:
    """Return the process id of the daemon of a folder, from its pid file; 0 if it does not run."""
    try:
        pid = int((pipe / f"{CONTROL}.pid").read_text().split()[0])
        os.kill(pid, 0)
    except PermissionError:
        return pid
    except (OSError, ValueError, IndexError):
        return 0
    return pid


def running(place: Place) -> Mps | None:
    """Return a daemon that answers: the one headway started, the one that the environment names, or the usual one."""
    our_pipe = place.mps / "pipe"
    for pipe, owned in ((our_pipe, True), (Path(os.environ.get(PIPE, "")), False), (DEFAULT_PIPE, False)):
        if not pipe.is_dir() or str(pipe) == "." or (owned and not files.own_folder(place.mps)):
            continue
        log = place.mps / "log" if owned else Path(os.environ.get(LOG, "/var/log/nvidia-mps"))
        daemon = Mps(pipe, log, owned)
        if daemon.servers() is not None:
            return daemon
    return None


def start(place: Place, gpu: Gpu) -> Mps | str:
    """Start a daemon for one GPU and return it; where that fails return the reason as text."""
    if (program := shutil.which(CONTROL)) is None:
        return f"{CONTROL} is not installed"
    pipe, log = place.mps / "pipe", place.mps / "log"
    if len(str(pipe)) + 20 > _LONGEST_SOCKET:
        return f"the name of {pipe} is too long for its sockets"
    try:
        place.mps.mkdir(exist_ok=True, mode=0o700)
        if not files.own_folder(place.mps):
            return f"{place.mps} belongs to another user or is a link: have it removed"
        for folder in (pipe, log):
            folder.mkdir(exist_ok=True, mode=0o700)
    except OSError as problem:
        return f"{problem.filename} cannot be made: {problem.strerror}"
    mps = Mps(pipe, log, owned=True)
    kept = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES")}
    environment = {**kept, **mps.environment(), **({"CUDA_VISIBLE_DEVICES": gpu.uuid} if gpu.uuid else {})}
    try:
        ended = subprocess.run(
            [program, "-d"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # a file, not a pipe: the daemon would keep it open
            timeout=_SECONDS,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"{CONTROL} -d did not start ({problem})"
    if ended.returncode == 0 and wait_until(lambda: mps.servers() is not None, 5, 0.1):
        return mps
    return f"{CONTROL} -d was refused (status {ended.returncode}{_last_log_line(log)})"


def _last_log_line(log: Path) -> str:
    try:
        lines = (log / "control.log").read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f"; its log: {lines[-1]}" if lines else ""


def find_or_start(place: Place, gpu: Gpu, mode: str) -> tuple[Mps | None, str]:
    """Return the MPS to use and a line about it: one that runs, one that is started now, or None and the reason."""
    if mode == "off":
        return None, "coarse: MPS was turned off"
    if (running_daemon := running(place)) is not None:
        return running_daemon, f"MPS: a daemon that runs already, at {running_daemon.pipe}"
    started = "nothing is looked for" if any_gpu() and mode == "auto" else start(place, gpu)
    if isinstance(started, Mps):
        return started, f"MPS: started, at {started.pipe}"
    if mode == "on":
        raise ShareError(f"--mps on: {started}; --mps auto goes on without, and fills only long gaps")
    return None, f"coarse: no MPS ({started}); only gaps of half a millisecond and more are filled"


def client_environment(
    mps: Mps | None, place: Place, memory_bytes: int, priority: int = 0, sms_ppm: int = 0
) -> Mapping[str, str]:
    """Return the environment of a program that runs under MPS, or that must not use any where there is none.

    All but the highest priority run below normal in MPS: a kernel of the highest then waits for one wave of theirs, not
    for all their blocks. MPS has these two levels only. ``sms_ppm``: the share of the SMs; 0: all of them.
    """
    if mps is None:
        return {PIPE: str(place.mps / "none")}
    limit = {MEMORY: memory_limit(memory_bytes)} if memory_bytes else {}
    if sms_ppm:
        limit[SMS] = f"{sms_ppm / 10_000:g}"
    return {**mps.environment(), **limit, PRIORITY: "1" if priority else "0"}


def memory_limit(memory_bytes: int) -> str:
    """Return a memory limit in the syntax of MPS: for the one device that a program sees, in MiB or GiB."""
    gib, rest = divmod(memory_bytes, 1 << 30)
    return f"0={gib}G" if rest == 0 else f"0={memory_bytes >> 20}M"
