"""What a profiler left that was killed with no time to clean up (``kill -9``): swept when the next profiling starts.

Its program ends with it, but not what the program had started: processes with the profiler's mark in their environment,
and control groups with its number in their names. Only those of a profiler that is gone are touched, and nothing that
lives in another container, where numbers mean other processes.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from headway.profiling import cgroups
from headway.profiling.limits import MARK, ended

_GROUP = re.compile(r"headway-(\d+)-(?:trial-)?\d+")
_MARK = re.compile(rf"(?:^|\0){MARK}=((\d+)-[0-9a-f]+)".encode())
_LONGEST_S = 5.0


def leftovers(room: cgroups.Room | None) -> None:
    """Kill what a killed profiler's program left running, and take its groups away."""
    _kill(lambda: set(_marked()))
    for parent in set(room.folders.values()) if room is not None else ():
        for folder in _groups(parent):
            if all(map(_seen_here, _inside(folder))):
                _kill(partial(_inside, folder))
                cgroups.take_away(folder, tries=20)


def _marked() -> Iterator[int]:
    """Processes that a profiler started that is gone; not what started this one."""
    mine = os.environ.get(MARK, "").encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            found = _MARK.search((folder / "environ").read_bytes())
            if found and found[1] != mine and ended(int(found[2])) and _seen_here(int(folder.name)):
                yield int(folder.name)


def _groups(parent: Path) -> list[Path]:
    """Groups of profilers that are gone; one with our own number that we did not make is of an earlier process."""
    found = []
    for folder in parent.glob("headway-*"):
        name = _GROUP.fullmatch(folder.name)
        if name and folder.name not in cgroups.own and (int(name[1]) == os.getpid() or ended(int(name[1]))):
            found.append(folder)
    return found


def _inside(folder: Path) -> set[int]:
    with suppress(OSError):
        return set(map(int, (folder / "cgroup.procs").read_text().split()))
    return set()


def _seen_here(process: int) -> bool:
    """Whether a process is numbered by the same count as this one: otherwise its profiler's number says nothing."""
    if not process:  # how the kernel shows one of another container
        return False
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return len(line.split()) == 2
    return True  # gone meanwhile, or a kernel that does not say


def _kill(found: Callable[[], set[int]]) -> None:
    """Kill until there is none left: they may start others meanwhile."""
    until = time.monotonic() + _LONGEST_S
    while (left := {each for each in found() if not ended(each)}) and time.monotonic() < until:
        for process in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
