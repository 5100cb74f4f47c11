"""Limit a program to some CPUs and memory: by control groups, or by CPU affinity where there are none.

Everything that the program starts is held with it, and ended with it: by the group, by its session, and by a mark in
its environment, whichever of them it slipped out of.
"""

import math
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.device import cgroups
from headway.errors import ProfileError
from headway.units import format_size

LEAST_CPUS = 0.05
NO_PROGRAM = "no program was given: write it behind --, like headway profile job -- python train.py"
MARK = "HEADWAY_RUN"
THREADS = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "BLIS_NUM_THREADS", "RAYON_NUM_THREADS"),
)
"""What libraries size their pools of threads by; torch goes by the first two."""
_GRACE_S = 1.0
_LAUNCH = Path(__file__).with_name("limited.py")


@dataclass(frozen=True)
class Limits:
    """What this machine offers to hold a program by."""

    room: cgroups.Room | None
    cpu_numbers: tuple[int, ...]
    cpus: float
    """How many CPUs there are to give."""
    memory_bytes: int

    @property
    def fractions(self) -> bool:
        """Return whether parts of a CPU can be given."""
        return self.room is not None

    @property
    def means(self) -> str:
        """Return how CPUs are limited, in words."""
        return "affinity, whole CPUs only" if self.room is None else f"cgroup v{self.room.version} quota"

    def check_memory(self, size_bytes: int) -> None:
        """Refuse a limit that this machine cannot set."""
        if size_bytes > self.memory_bytes:
            said = f"a memory limit of {format_size(size_bytes)}"
            raise ProfileError(f"{said}: this machine has {format_size(self.memory_bytes)}; lower --memory")
        if self.room is None or not self.room.memory:
            raise ProfileError(
                f"a memory limit of {format_size(size_bytes)} cannot be set: no memory control group can be written "
                "here; run as root or under systemd-run --user --scope -p Delegate=yes, or leave --memory out"
            )

    def start(
        self,
        command: Sequence[str],
        cpus: float,
        *,
        memory_bytes: int = 0,
        threads: int = 0,
        env: Mapping[str, str] | None = None,
        pin: Sequence[int] = (),
        output: int | None = subprocess.DEVNULL,
        at_once: bool = True,
    ) -> "Held":
        """Start a program with so many CPUs (and so much memory, only on these CPUs).

        With ``at_once`` false it starts with all CPUs until ``Held.limit``, where quotas can be changed: importing
        takes long with a tenth of a CPU.
        """
        program = _found(command, env)
        if self.room is None and cpus != int(cpus):
            raise ProfileError(
                f"{cpus:g} CPUs: this machine has no control group for CPU time that can be written, so only whole "
                "CPUs can be given; run as root or under systemd-run --user --scope -p Delegate=yes"
            )
        group = None if self.room is None else cgroups.Group(self.room)
        try:
            if group is not None:
                group.limit_cpus(cpus if at_once else max(cpus, self.cpus))
                if memory_bytes:
                    group.limit_memory(memory_bytes)
                if pin:
                    group.pin(pin)
            on = tuple(pin) or (() if group is not None else self.cpu_numbers[: int(cpus)])
            mark = f"{os.getpid()}-{secrets.token_hex(8)}"
            join_files = [] if group is None else group.join_files
            process = subprocess.Popen(
                [sys.executable, "-I", _LAUNCH, str(os.getpid()), ",".join(map(str, on)), *join_files, "--", *program],
                env={**os.environ, **thread_variables(cpus, threads), **(env or {}), MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException:
            if group is not None:
                group.end()
            raise
        return Held(process, group, mark, cpus)


def here() -> Limits:
    """Return what there is on this machine, for this process."""
    numbers = tuple(sorted(os.sched_getaffinity(0)))
    quota = cgroups.allowed_cpus()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limits(
        room=cgroups.find(),
        cpu_numbers=numbers,
        cpus=min(len(numbers), math.inf if quota is None else quota),
        memory_bytes=min(memory, cgroups.allowed_memory() or memory),
    )


def thread_variables(cpus: float, threads: int = 0) -> dict[str, str]:
    """Return what tells a program how many CPUs it has."""
    count = threads or max(1, math.ceil(cpus))
    return {**dict.fromkeys(THREADS, str(count)), "HEADWAY_CPUS": f"{cpus:g}"}


def _found(command: Sequence[str], env: Mapping[str, str] | None) -> list[str]:
    if not command:
        raise ProfileError(NO_PROGRAM)
    path = {**os.environ, **(env or {})}.get("PATH")
    if (program := shutil.which(command[0], path=path)) is None:
        there = " (it is there, but cannot be executed)" if Path(command[0]).is_file() else ""
        raise ProfileError(f"{command[0]}: there is no such program{there}; is its name right, its environment active?")
    return [program, *command[1:]]


class Held:
    """A program at work, with all that it started."""

    def __init__(self, process: "subprocess.Popen[Any]", group: cgroups.Group | None, mark: str, cpus: float) -> None:
        self.process = process
        self.group = group
        self.cpus = cpus
        self._mark = f"{MARK}={mark}".encode()
        self._used_s = 0.0

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def limit(self) -> None:
        """Limit the program to its CPUs from now on."""
        if self.group is not None:
            self.group.limit_cpus(self.cpus)

    def processes(self) -> list[int]:
        """Return the program and what it started, wherever that went."""
        ids = set(self.group.processes()) if self.group is not None else set()
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal() and int(folder.name) not in ids:
                with suppress(OSError):
                    if self._mark in (folder / "environ").read_bytes().split(b"\0"):
                        ids.add(int(folder.name))
        return sorted(ids)

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far by all its processes."""
        counted = self.group.cpu_seconds() if self.group is not None else None
        if counted is None:
            counted = sum(map(_cpu_seconds, self.processes()))
        self._used_s = max(self._used_s, counted)
        return self._used_s

    def memory_bytes(self) -> int:
        """Return the memory of all its processes, what they share counted once."""
        return sum(map(_memory_bytes, self.processes()))

    def end(self) -> None:
        """Ask it to end, then kill whatever is left; safe to call again."""
        with suppress(OSError):
            self.cpu_seconds()
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE_S)
        with suppress(ProcessLookupError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        if self.group is not None:
            self.group.end()
        cgroups.kill_all(self.processes)  # what left the group or never was in one
        self.process.wait()


def _cpu_seconds(process: int) -> float:
    with suppress(OSError):
        times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _memory_bytes(process: int) -> int:
    return 1024 * sum(cgroups.numbers_of(Path(f"/proc/{process}/smaps_rollup"), "Pss"))


def busy_seconds() -> float:
    """Return the CPU time that all processes of the machine have used since it started."""
    user, nice, system, _, _, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
