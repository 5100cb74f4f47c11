"""Limits of programs by control groups, where this user may make them: of version 2, or cpu and memory of version 1.

A group for each lease, below the one that this process is in. A machine that does not allow it runs programs without:
their CPUs are then kept by affinity alone, and their memory by nothing.
"""

import contextlib
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from headway.jobs.live.engine import Order

ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_CONTROLLERS = ("cpu", "memory")


class Cgroups:
    """The groups of one queue."""

    def __init__(self, parents: Sequence[Path], name: str, *, unified: bool) -> None:
        """``parents``: the groups in which those of leases are made; of version 2 one."""
        self._parents, self._name, self._unified = parents, name, unified

    def make(self, order: Order, cpus: Sequence[int]) -> list[str]:
        """Make or change the group of a lease; return the files that a process writes its id to, to be in it."""
        tasks = []
        for parent in self._parents:
            group = parent / f"{self._name}-{order.lease}"
            with contextlib.suppress(OSError):
                group.mkdir(exist_ok=True)
                self._limit(group, order)
                tasks.append(str(group / "cgroup.procs"))
        return tasks

    def _limit(self, group: Path, order: Order) -> None:
        quota_us = order.cpu_milli * _PERIOD_US // 1000
        memory = str(order.memory_bytes) if order.memory_bytes else ("max" if self._unified else "-1")
        limits = (
            {"cpu.max": f"{quota_us or 'max'} {_PERIOD_US}", "memory.max": memory}
            if self._unified
            else {"cpu.cfs_quota_us": str(quota_us or -1), "memory.limit_in_bytes": memory}
        )
        for file, text in limits.items():
            if (group / file).exists():
                (group / file).write_text(text)

    def processes(self, lease: int) -> list[int]:
        """Return the processes in the group of a lease."""
        found: set[int] = set()
        for parent in self._parents:
            with contextlib.suppress(OSError, ValueError):
                found |= set(map(int, (parent / f"{self._name}-{lease}" / "cgroup.procs").read_text().split()))
        return sorted(found)

    def remove(self, lease: int) -> None:
        """Remove the group of a lease whose processes are gone."""
        for parent in self._parents:
            with contextlib.suppress(OSError):
                (parent / f"{self._name}-{lease}").rmdir()


def name_of(folder: Path, run: int) -> str:
    """Return what the groups of a queue's run are called: no two queues of a machine have one name."""
    return f"headway-queue-{sha256(os.fsencode(folder.absolute())).hexdigest()[:10]}-{run}"


def found(name: str, root: Path = ROOT, mine: Path = Path("/proc/self/cgroup")) -> tuple[Cgroups | None, str]:
    """Return the control groups that this process may make, and in a line why there are none."""
    try:
        lines = [line.split(":", 2) for line in mine.read_text().splitlines()]
    except OSError as problem:
        return None, f"no limits by control groups: {problem.strerror}"
    unified = next((path for number, _, path in lines if number == "0"), None)
    if unified is not None and (root / "cgroup.controllers").exists():
        parent = root / unified.lstrip("/")
        why = _try(parent, name, ("cpu.max", "memory.max"), delegate=True)
        return (None, why) if why else (Cgroups([parent], name, unified=True), "")
    parents = []
    for controller in _CONTROLLERS:
        path = next((path for _, names, path in lines if controller in names.split(",")), None)
        if path is not None:
            own, top = root / controller / path.lstrip("/"), root / controller
            parents.append(own if own.is_dir() else top)
    if len(parents) < len(_CONTROLLERS):
        return None, "no limits by control groups: this machine has no controllers for cpu and memory"
    for parent, file in zip(parents, ("cpu.cfs_quota_us", "memory.limit_in_bytes"), strict=True):
        if why := _try(parent, name, (file,), delegate=False):
            return None, why
    return Cgroups(parents, name, unified=False), ""


def _try(parent: Path, name: str, files: Sequence[str], *, delegate: bool) -> str:
    """Make a group and remove it again; return why that does not do, empty where it does."""
    probe = parent / f"{name}-probe"
    try:
        if delegate:
            with contextlib.suppress(OSError):  # it may be so already, or another group's to say
                (parent / "cgroup.subtree_control").write_text("+cpu +memory")
        probe.mkdir()
        try:
            lacking = [file for file in files if not (probe / file).exists()]
        finally:
            probe.rmdir()
    except OSError as problem:
        return f"no limits by control groups: {parent}: {problem.strerror}"
    return f"no limits by control groups: {parent} has no {lacking[0]}" if lacking else ""
