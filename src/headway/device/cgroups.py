"""Find where this process may make control groups, in version 1 or 2, and make the one that a program runs in.

Nothing that is there is changed: groups of our own are made, used and taken away, and that is all. Version 1 has a tree
for each controller, and a group goes below the one that this process is in, so that what limits this process limits the
program too. Version 2 has one tree, in which a folder that holds processes cannot hand controllers down (but for the
root): the nearest folder from there upwards that does hand CPU time down already is used. Telling one to is for whoever
runs the machine: a folder with processes in it becomes a threaded domain by it, and takes no new group from then on.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from headway.errors import ProfileError
from headway.units import format_size

PERIOD_US = 20_000
"""Quotas are handed out for so long at a time: short, so that a program is slowed evenly rather than stopped in bursts
of the kernel's own 100 ms."""
WANTED = ("cpu", "memory", "cpuset")
_numbers = count(1)
own: set[str] = set()
"""The names of the groups that this process made."""


@dataclass(frozen=True)
class Room:
    """A place for groups: its version, and for each controller the folder below which groups can be made."""

    version: int
    folders: Mapping[str, Path]

    @property
    def memory(self) -> bool:
        """Return whether memory can be limited."""
        return "memory" in self.folders


def find(process: Path = Path("/proc/self")) -> Room | None:
    """Return where this process may make groups that limit CPU time or memory; None where it may not."""
    joined, mounts = _joined(process)
    for version, group in ((2, _second(joined, mounts)), (1, _first(joined, mounts))):
        if "cpu" in group:
            return Room(version, group)
    return None


def _joined(process: Path) -> tuple[list[list[str]], list["_Mount"]]:
    """Return the groups that a process is in, (number, controllers, path) each, and where the trees are mounted."""
    try:
        lines = (process / "cgroup").read_text().splitlines()
        return [line.split(":", 2) for line in lines], _mounts((process / "mountinfo").read_text())
    except OSError:
        return [], []


def allowed_cpus(process: Path = Path("/proc/self")) -> float | None:
    """Return how many CPUs the groups that this process is in leave it; None where they set no quota."""
    quotas = [quota for folder in _above(process, "cpu") if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def allowed_memory(process: Path = Path("/proc/self")) -> int | None:
    """Return how much memory they leave it, in bytes; None where they set no limit."""
    limits = []
    for folder in _above(process, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                limits.append(int((folder / name).read_text()))
    return min(limits, default=None)


def _above(process: Path, controller: str) -> list[Path]:
    """Return the folders, from this process's own up to the top, that may limit it by a controller."""
    folders: list[Path] = []
    joined, mounts = _joined(process)
    for number, names, path in joined:
        for mount in mounts:
            second = mount.kind == "cgroup2" and number == "0" and not names
            if second or (mount.kind == "cgroup" and controller in names.split(",") and controller in mount.options):
                folder = mount.at(path)
                folders += [each for each in (folder, *folder.parents) if mount.folder in (each, *each.parents)]
    return folders


def _quota(folder: Path) -> float | None:
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        used = int((folder / "cpu.cfs_quota_us").read_text())
        return None if used < 0 else used / int((folder / "cpu.cfs_period_us").read_text())
    return None


@dataclass(frozen=True)
class _Mount:
    folder: Path
    root: str
    kind: str
    options: frozenset[str]

    def at(self, path: str) -> Path:
        """Return the folder of a group; a container may see the tree from its own group on."""
        below = path[len(self.root) :] if self.root != "/" and path.startswith(self.root) else path
        return self.folder / below.strip("/")


def _mounts(text: str) -> list[_Mount]:
    mounts = []
    for line in text.splitlines():
        front, _, back = line.partition(" - ")
        kind, _, options = back.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, folder = front.split()[3:5]
            mounts.append(_Mount(Path(folder.replace("\\040", " ")), root, kind, frozenset(options.split(","))))
    return mounts


def _first(joined: list[list[str]], mounts: list[_Mount]) -> dict[str, Path]:
    """Return the folders by controller in version 1, where each controller has a tree of its own."""
    folders = {}
    for controller in (*WANTED, "cpuacct"):
        paths = [path for _, names, path in joined if controller in names.split(",")]
        for mount in mounts:
            if mount.kind == "cgroup" and controller in mount.options and paths:
                folder = mount.at(paths[0])
                if _can_make(folder):
                    folders[controller] = folder
    return folders


def _second(joined: list[list[str]], mounts: list[_Mount]) -> dict[str, Path]:
    """Return the same in version 2: the nearest folder, from this process's own upwards, that hands CPU time down."""
    paths = [path for number, names, path in joined if number == "0" and not names]
    for mount in mounts:
        if mount.kind != "cgroup2" or not paths:
            continue
        folder = mount.at(paths[0])
        while True:
            if (handed := _handed_down(folder)) and "cpu" in handed and _can_make(folder):
                return dict.fromkeys(handed, folder)
            if folder == mount.folder or mount.folder not in folder.parents:
                break
            folder = folder.parent
    return {}


def _handed_down(folder: Path) -> list[str]:
    """Return the controllers that groups below this folder have."""
    try:
        given = (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return []
    return [name for name in WANTED if name in given]


def _can_make(folder: Path) -> bool:
    """Return whether a group that takes processes can be made here, by making one and removing it."""
    trial = folder / f"headway-{os.getpid()}-trial-{next(_numbers)}"
    try:
        trial.mkdir()
    except OSError:
        return False
    try:
        return (trial / "cgroup.type").read_text().strip() == "domain"
    except OSError:  # version 1 has no such file
        return True
    finally:
        with suppress(OSError):
            trial.rmdir()


def _free_name(room: Room) -> str:
    """Return a name that no group has: one of a killed process that had our number may be left."""
    while True:
        name = f"headway-{os.getpid()}-{next(_numbers)}"
        if not any((folder / name).exists() for folder in room.folders.values()):
            return name


class Group:
    """A control group for one run of a program: what it may use, who is in it, what it has used, and its end."""

    def __init__(self, room: Room) -> None:
        self.room = room
        name = _free_name(room)
        own.add(name)
        self.folders = {controller: folder / name for controller, folder in room.folders.items()}
        for folder in dict.fromkeys(self.folders.values()):
            folder.mkdir()

    def limit_cpus(self, cpus: float) -> None:
        """Limit the group to so many CPUs, a fraction perhaps, which it gets before other programs."""
        quota = max(1000, round(cpus * PERIOD_US))
        folder = self.folders["cpu"]
        with suppress(OSError):
            weight, most = ("cpu.weight", 10_000) if self.room.version == 2 else ("cpu.shares", 262_144)
            (folder / weight).write_text(str(most))
        if self.room.version == 2:
            _put(folder / "cpu.max", f"{quota} {PERIOD_US}", f"{cpus:g} CPUs")
        else:
            _put(folder / "cpu.cfs_period_us", f"{PERIOD_US}", f"{cpus:g} CPUs")
            _put(folder / "cpu.cfs_quota_us", f"{quota}", f"{cpus:g} CPUs")

    def limit_memory(self, size_bytes: int) -> None:
        """Limit the group to so much memory, the page cache included, and no swap."""
        said = f"a memory limit of {format_size(size_bytes)}"
        if "memory" not in self.folders:
            raise ProfileError(f"{said} cannot be set here: no memory control group can be written; leave --memory out")
        folder, second = self.folders["memory"], self.room.version == 2
        _put(folder / ("memory.max" if second else "memory.limit_in_bytes"), str(size_bytes), said)
        with suppress(OSError):  # kernels without accounting of swap have no such file
            if second:
                (folder / "memory.swap.max").write_text("0")
            else:
                (folder / "memory.memsw.limit_in_bytes").write_text(str(size_bytes))

    def pin(self, cpus: Iterable[int]) -> bool:
        """Pin the group to these CPUs by a cpuset; return whether there is one."""
        if "cpuset" not in self.folders:
            return False
        folder = self.folders["cpuset"]
        if self.room.version == 1:  # a new group of version 1 has no memory nodes, and takes no process without
            _put(folder / "cpuset.mems", (folder.parent / "cpuset.mems").read_text().strip(), "memory nodes")
        _put(folder / "cpuset.cpus", ",".join(map(str, sorted(cpus))), "a cpuset")
        return True

    @property
    def join_files(self) -> list[str]:
        """Return the files that a process writes itself into to join the group."""
        used = {
            folder: controller
            for controller, folder in self.folders.items()
            if not (self.room.version == 1 and controller == "cpuset" and not self._pinned)
        }
        return [str(folder / "cgroup.procs") for folder in used]

    @property
    def _pinned(self) -> bool:
        try:
            return bool((self.folders["cpuset"] / "cpuset.cpus").read_text().strip())
        except OSError:
            return False

    def processes(self) -> list[int]:
        """Return the processes in the group."""
        return sorted(set().union(*(inside(folder) for folder in set(self.folders.values()))))

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of all its processes, those that have ended too; None where it is not counted."""
        if self.room.version == 2:
            used = numbers_of(self.folders["cpu"] / "cpu.stat", "usage_usec")
            return used[0] / 1e6 if used else None
        with suppress(OSError, KeyError):
            return int((self.folders["cpuacct"] / "cpuacct.usage").read_text()) / 1e9
        return None

    def out_of_memory(self) -> bool:
        """Return whether the kernel killed a process of it for its memory."""
        if "memory" not in self.folders:
            return False
        files = (self.folders["memory"] / name for name in ("memory.events", "memory.oom_control"))
        return any(sum(numbers_of(file, "oom_kill")) for file in files)

    def end(self) -> None:
        """Kill everything in it, and take it away."""
        with suppress(OSError):
            if self.room.version == 2:
                (self.folders["cpu"] / "cgroup.kill").write_text("1")
        kill_all(self.processes)
        for folder in set(self.folders.values()):
            take_away(folder)


def inside(folder: Path) -> set[int]:
    """Return the processes of a group; none where it is gone."""
    with suppress(OSError):
        return set(map(int, (folder / "cgroup.procs").read_text().split()))
    return set()


def numbers_of(path: Path, key: str) -> list[int]:
    """Return the numbers behind a key in a file of lines like ``usage_usec 1200``; none where there is no such line."""
    with suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith((f"{key} ", f"{key}:")):
                return [int(word) for word in line.split()[1:] if word.isdecimal()]
    return []


def ended(process: int) -> bool:
    """Return whether a process is gone, or is only kept until somebody asks for its status."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def kill_all(processes: Callable[[], Iterable[int]], longest_s: float = 10.0) -> None:
    """Kill processes until none is found any more: they may start others meanwhile."""
    until = time.monotonic() + longest_s
    while (left := [process for process in processes() if not ended(process)]) and time.monotonic() < until:
        for process in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def take_away(folder: Path, tries: int = 100) -> None:
    """Remove a group; its last process may be on its way out still."""
    for _ in range(tries):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
        else:
            return


def _put(path: Path, text: str, what: str) -> None:
    try:
        path.write_text(text)
    except OSError as problem:
        raise ProfileError(f"{what} cannot be set here: {path}: {problem.strerror}") from None
