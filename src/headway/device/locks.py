"""Files and locks of the broker of one GPU: their paths, and who holds them.

``/dev/shm/headway-share-0`` is the socket of the block of GPU 0. Beside it, with other suffixes, are the lock, the lock
of the users, the broker's state, requests to it, and the folder of MPS. ``HEADWAY_SHARE_FOLDER`` puts them into another
folder, such as one that containers mount. Locks are held by ``flock``, which the kernel releases when the holder dies,
so that none goes stale. Files whose lock is free were left by a broker that was killed.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from headway.device import shared_files as files
from headway.errors import ShareError

FOLDER = "HEADWAY_SHARE_FOLDER"
SIGNED_S = 3.0
"""A broker that got its lock signs it within this time."""
_LARGEST_LOG = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """The files of the broker of one GPU."""

    folder: Path
    gpu: int

    @property
    def block(self) -> Path:
        """Return the path of the socket of the shared block; a client gets it as HEADWAY_SHARE."""
        return self.folder / f"headway-share-{self.gpu}"

    def _beside(self, ending: str) -> Path:
        return self.folder / f"headway-share-{self.gpu}.{ending}"

    @property
    def lock(self) -> Path:
        """Return the lock that the broker holds as long as it runs."""
        return self._beside("lock")

    @property
    def users(self) -> Path:
        """Return the lock that every running program shares, and that the broker holds alone when it ends."""
        return self._beside("users")

    @property
    def state(self) -> Path:
        """Return the file of the broker's state."""
        return self._beside("json")

    @property
    def asked(self) -> Path:
        """Return the file of requests to the broker: settings of the dial, and to stop."""
        return self._beside("asked.json")

    @property
    def mps(self) -> Path:
        """Return the folder of the pipes and logs of the MPS that the broker started."""
        return self._beside("mps")

    @property
    def log(self) -> Path:
        """Return the log of a broker in the background; it outlives the broker."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"
        return cache / f"share-{self.gpu}.log"

    def leftovers(self) -> list[Path]:
        """Return the files of this broker that exist."""
        paths = (self.block, self.state, self.asked, self.mps, self.users, self.lock)
        return [path for path in paths if os.path.lexists(path)]

    def foreign(self, path: Path) -> str:
        """Return why this user may not remove one of these files; empty where it may."""
        is_socket = path == self.block or path.suffix == ".draft"
        return files.foreign(path, folder=path == self.mps, socket=is_socket)


def place_of(gpu: int) -> Place:
    """Return the files of a GPU's broker on this machine."""
    chosen = os.environ.get(FOLDER, "")
    folder = Path(chosen) if chosen else Path("/dev/shm")
    if not folder.is_dir():
        what = f"{FOLDER}={chosen}" if chosen else "/dev/shm"
        raise ShareError(f"{what} is no folder: make it, on a tmpfs that every program sees (mkdir /dev/shm/headway)")
    if not os.access(folder, os.W_OK):
        raise ShareError(f"{folder} cannot be written to: set {FOLDER} to a folder of your own under /dev/shm")
    return Place(folder, gpu)


def checked(place: Place) -> Place:
    """Return the place if all its files belong to this user; raise ShareError otherwise."""
    for path in place.leftovers():
        if why := place.foreign(path):
            raise ShareError(why)
    return place


def places() -> list[Place]:
    """Return the places that have files, in order of their GPU."""
    folder = place_of(0).folder
    names = {path.name.removeprefix("headway-share-").partition(".")[0] for path in folder.glob("headway-share-*")}
    return [Place(folder, number) for number in sorted(int(name) for name in names if name.isdecimal())]


# --- locks ----------------------------------------------------------------------------------------------------------


def hold(path: Path, *, alone: bool) -> int | None:
    """Take a lock, exclusive (``alone``) or shared, and return its descriptor; None if it is not free."""
    kind = (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB
    while True:
        handle = files.opened(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, kind)
        except BlockingIOError:
            os.close(handle)
            return None
        # Its last holder may have removed the file between the two calls: then no other process sees this lock.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(handle).st_ino == os.stat(path).st_ino:
                return handle
        os.close(handle)


def hold_within(path: Path, seconds: float, *, alone: bool) -> int | None:
    """Return ``hold``, tried again for a while: others may hold the lock for a moment only to test it."""
    until = time.monotonic() + seconds
    while (handle := hold(path, alone=alone)) is None and time.monotonic() < until:
        time.sleep(0.02)
    return handle


def held(path: Path) -> bool:
    """Return whether a process holds a lock exclusively."""
    try:
        handle = files.opened(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def sign(handle: int) -> None:
    """Write this process's id into a lock: the files beside it may still be those of the holder before."""
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)


def holder(path: Path) -> int:
    """Return the process id that a lock is signed with, 0 if it is not; it may not be held any more."""
    try:
        return int(files.read(path))
    except (OSError, ValueError):
        return 0


def check_signed(place: Place) -> None:
    """Raise ShareError for a lock that is held and not signed: a broker signs its lock at once."""
    if not wait_until(lambda: not held(place.lock) or bool(holder(place.lock)), SIGNED_S):
        raise ShareError(
            f"{place.lock} is held, but by no broker of headway: end the process that holds it "
            f"(fuser -v {place.lock} names it)"
        )


def wait_until(condition: Callable[[], bool], seconds: float, pause_s: float = 0.02) -> bool:
    """Poll a condition for at most so many seconds; return whether it became true."""
    until = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < until:
        time.sleep(pause_s)
    return holds


def current_state(place: Place) -> dict[str, Any]:
    """Return the state of the running broker; empty if none runs or it has not published any yet."""
    pid, state = holder(place.lock), read_json(place.state)
    return state if pid and state.get("pid") == pid and held(place.lock) else {}


@contextlib.contextmanager
def using(place: Place, seconds: float = 30.0) -> Iterator[None]:
    """Hold the lock of the users while a program runs: the broker does not end meanwhile."""
    if (handle := hold_within(place.users, seconds, alone=False)) is None:
        raise ShareError(
            f"the broker of GPU {place.gpu} is stopping and does not end: headway share stop --kill ends it"
        )
    try:
        yield
    finally:
        os.close(handle)


# --- what is written --------------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of this user; empty where there is none or it is invalid."""
    try:
        value = json.loads(files.read(path))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically: a reader sees the old or the new content. Raises OSError."""
    files.write(path, json.dumps(value).encode())


def ask(place: Place, **wishes: Any) -> None:
    """Write requests for a running broker; earlier ones with other names stay."""
    try:
        write_json(place.asked, {**read_json(place.asked), **wishes})
    except OSError as problem:
        raise ShareError(f"the broker cannot be told: {place.asked}: {problem.strerror}") from None


def remove(place: Place) -> list[Path]:
    """Remove all files of this user's broker; return those that existed. Other users' files stay."""
    removed = [path for path in place.leftovers() if not place.foreign(path)]
    drafts = place.folder.glob(f"headway-share-{place.gpu}.*.draft")
    for path in (*removed, *(draft for draft in drafts if not place.foreign(draft))):
        remove_one(path)
    return removed


def remove_one(path: Path) -> None:
    """Remove a file, or the folder of MPS, if it exists."""
    if path.is_dir() and not path.is_symlink():
        rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        raise ShareError(f"{path} cannot be removed: {problem.strerror}: have it removed by its owner") from None


def open_log(place: Place) -> int:
    """Open the broker's log for appending and return its descriptor; truncate it when it is large."""
    place.log.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(handle).st_size > _LARGEST_LOG:
        os.ftruncate(handle, 0)
    return handle
