"""Clean up after a profiler that was killed (``kill -9``), when the next profiling starts.

Its program ends with it, but not what the program had started: processes with the profiler's mark in their environment,
and control groups with its number in their names. Only those of a profiler that is gone are touched, and nothing that
lives in another container, where numbers mean other processes.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from headway.device import cgroups
from headway.device.cgroups import ended
from headway.device.limits import MARK

_GROUP = re.compile(r"headway-(\d+)-(?:trial-)?\d+")
_MARK = re.compile(rf"(?:^|\0){MARK}=((\d+)-[0-9a-f]+)".encode())
_LONGEST_S = 5.0


def remove_leftovers(room: cgroups.Room | None) -> None:
    """Kill what a killed profiler's program left running, and take its groups away."""
    cgroups.kill_all(_marked, _LONGEST_S)
    for parent in set(room.folders.values()) if room is not None else ():
        for folder in _groups(parent):
            if all(map(_seen_here, cgroups.inside(folder))):
                cgroups.kill_all(partial(cgroups.inside, folder), _LONGEST_S)
                cgroups.take_away(folder, tries=20)


def _marked() -> Iterator[int]:
    """Yield processes that a profiler started that is gone; not what started this one."""
    mine = os.environ.get(MARK, "").encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            mark = _MARK.search((folder / "environ").read_bytes())
            if mark and mark[1] != mine and ended(int(mark[2])) and _seen_here(int(folder.name)):
                yield int(folder.name)


def _groups(parent: Path) -> list[Path]:
    """Return groups of profilers that are gone; one with our own number that we did not make is an earlier one's."""
    groups = []
    for folder in parent.glob("headway-*"):
        name = _GROUP.fullmatch(folder.name)
        if name and folder.name not in cgroups.own and (int(name[1]) == os.getpid() or ended(int(name[1]))):
            groups.append(folder)
    return groups


def _seen_here(process: int) -> bool:
    """Return whether a process has the same numbering as this one: if not, its profiler's number says nothing."""
    # The kernel shows a process of another container as 0; one number, or none where it is gone or the kernel is old.
    return process != 0 and len(cgroups.numbers_of(Path(f"/proc/{process}/status"), "NSpid")) <= 1
