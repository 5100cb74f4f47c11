"""Which process is meant by a number in the shared block, and whether it still lives.

A number alone may be reused, so the block keeps the moment at which the process began as well. A client in a container
has another number there than here; its beginning is the same in both, and a broker outside can find it by that.
"""

import contextlib
import os
from pathlib import Path

PROC = Path("/proc")
_STATE, _BEGAN = 0, 19
"""Places in /proc/PID/stat after the name in parentheses: fields 3 and 22."""


def _stat(pid: int | str, proc: Path = PROC) -> list[str]:
    """Return what follows the name in a process's stat; nothing if there is no such process."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _began(fields: list[str]) -> int:
    """Return when the process of a stat began; -1 if there is none."""
    return int(fields[_BEGAN]) if len(fields) > _BEGAN else -1


def start_ticks(pid: int) -> int:
    """Return when a process began, in clock ticks since the machine did; 0 if there is none."""
    return max(0, _began(_stat(pid)))


def alive(pid: int, ticks: int) -> bool:
    """Return whether that very process lives; one that has ended and was not waited for does not."""
    fields = _stat(pid)
    began = _began(fields)
    return began >= 0 and fields[_STATE] not in "ZX" and ticks in (0, began)


def pid_here(pid: int, ticks: int, proc: Path = PROC) -> int:
    """Return the number that a client's process has here: its own, or another if it is in a container; or 0."""
    if (began := _began(_stat(pid, proc))) >= 0 and ticks in (0, began):
        return pid
    for entry in filter(str.isdigit, os.listdir(proc)) if ticks else ():
        if _began(_stat(entry, proc)) == ticks and _innermost(proc / entry) == pid:
            return int(entry)
    return 0


def has_open(pid: int, path: Path, proc: Path = PROC) -> bool:
    """Return whether a process holds a file open: that a number is written in it proves nothing."""
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
    """Return the number that a process has in the innermost container it is in."""
    try:
        for line in (process / "status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except (OSError, ValueError):
        pass
    return 0
