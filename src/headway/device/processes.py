"""Processes named in the shared block: their ids here, and whether they still run.

A process id may be reused, so the block also holds the time at which the process started. A client in a container has
another id there than here, but the same start time: the broker finds it by that.
"""

import contextlib
import os
from pathlib import Path

PROC = Path("/proc")
_STATE, _SESSION, _BEGAN = 0, 3, 19
"""Positions in /proc/PID/stat after the name in parentheses: fields 3, 6 and 22."""


def _stat(pid: int | str, proc: Path = PROC) -> list[str]:
    """Return the fields after the name in a process's stat; empty if there is no such process."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _began(fields: list[str]) -> int:
    """Return the start time in the fields of a stat; -1 if there is none."""
    return int(fields[_BEGAN]) if len(fields) > _BEGAN else -1


def start_ticks(pid: int) -> int:
    """Return the start time of a process, in clock ticks since boot; 0 if there is none."""
    return max(0, _began(_stat(pid)))


def session(pid: int) -> int:
    """Return the session of a process that runs; 0 if there is none, or it is a zombie."""
    fields = _stat(pid)
    return int(fields[_SESSION]) if len(fields) > _SESSION and fields[_STATE] not in "ZX" else 0


def alive(pid: int, ticks: int) -> bool:
    """Return whether the process with this id and start time runs; a zombie does not."""
    fields = _stat(pid)
    began = _began(fields)
    return began >= 0 and fields[_STATE] not in "ZX" and ticks in (0, began)


def pid_here(pid: int, ticks: int, proc: Path = PROC) -> int:
    """Return the id here of a client's process: the same, or another if it is in a container; 0: not visible here."""
    if (began := _began(_stat(pid, proc))) >= 0 and ticks in (0, began):
        return pid
    for entry in filter(str.isdigit, os.listdir(proc)) if ticks else ():
        if _began(_stat(entry, proc)) == ticks and _innermost(proc / entry) == pid:
            return int(entry)
    return 0


def has_open(pid: int, path: Path, proc: Path = PROC) -> bool:
    """Return whether a process has a file open."""
    try:
        wanted = path.stat()
        handles = list((proc / str(pid) / "fd").iterdir())
    except OSError:
        return False
    for handle in handles:
        with contextlib.suppress(OSError):
            if os.path.samestat(handle.stat(), wanted):
                return True
    return False


def _innermost(process: Path) -> int:
    """Return the id of a process in the innermost container that it runs in."""
    try:
        for line in (process / "status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except (OSError, ValueError):
        pass
    return 0
