"""Where the broker of one GPU keeps its files, and who holds them.

``/dev/shm/headway-share-0`` is the block of GPU 0, and beside it lie, with an ending of their own, the lock, the list
of users, the broker's state, what it is asked, and the folder of MPS. ``HEADWAY_SHARE_FOLDER`` puts them elsewhere:
into a folder that containers mount. A lock is held by ``flock``, which the kernel takes back when its holder dies, so
that none goes stale; the files of a broker that was killed are told by their free lock.
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

from headway.errors import ShareError
from headway.live.kernels import files

FOLDER = "HEADWAY_SHARE_FOLDER"
SIGNED_S = 3.0
"""So long at most a broker that has just got its lock takes to sign it."""
_LARGEST_LOG = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """The files of the broker of one GPU."""

    folder: Path
    gpu: int

    @property
    def block(self) -> Path:
        """Return the socket that hands out the shared memory; what a client is given as HEADWAY_SHARE."""
        return self.folder / f"headway-share-{self.gpu}"

    def _beside(self, ending: str) -> Path:
        return self.folder / f"headway-share-{self.gpu}.{ending}"

    @property
    def lock(self) -> Path:
        """Held by the broker as long as it lives."""
        return self._beside("lock")

    @property
    def users(self) -> Path:
        """Held, together, by everyone who runs a program; by the broker alone when it takes its leave."""
        return self._beside("users")

    @property
    def state(self) -> Path:
        """Return what the broker says of itself."""
        return self._beside("json")

    @property
    def asked(self) -> Path:
        """Return what the broker is asked: settings of the dial, and to stop."""
        return self._beside("asked.json")

    @property
    def mps(self) -> Path:
        """Pipes and logs of the MPS that the broker started."""
        return self._beside("mps")

    @property
    def log(self) -> Path:
        """Return where a broker in the background writes; it outlives the broker."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"
        return cache / f"share-{self.gpu}.log"

    def leftovers(self) -> list[Path]:
        """Return the files that are there now."""
        paths = (self.block, self.state, self.asked, self.mps, self.users, self.lock)
        return [path for path in paths if os.path.lexists(path)]

    def foreign(self, path: Path) -> str:
        """Return why what lies in the place of one of them is not ours to remove; empty where it is."""
        listener = path == self.block or path.suffix == ".draft"
        return files.foreign(path, folder=path == self.mps, socket=listener)


def place_of(gpu: int) -> Place:
    """Return the place of a GPU's broker on this machine."""
    chosen = os.environ.get(FOLDER, "")
    folder = Path(chosen) if chosen else Path("/dev/shm")
    if not folder.is_dir():
        what = f"{FOLDER}={chosen}" if chosen else "/dev/shm"
        raise ShareError(f"{what} is no folder: make it, on a tmpfs that every program sees (mkdir /dev/shm/headway)")
    if not os.access(folder, os.W_OK):
        raise ShareError(f"{folder} cannot be written to: set {FOLDER} to a folder of your own under /dev/shm")
    return Place(folder, gpu)


def checked(place: Place) -> Place:
    """Return the same, if nothing lies there but what a broker of this user left; one line otherwise."""
    for path in place.leftovers():
        if why := place.foreign(path):
            raise ShareError(why)
    return place


def places() -> list[Place]:
    """Return those in which something lies, by their GPU."""
    folder = place_of(0).folder
    names = {path.name.removeprefix("headway-share-").partition(".")[0] for path in folder.glob("headway-share-*")}
    return [Place(folder, number) for number in sorted(int(name) for name in names if name.isdecimal())]


# --- locks ----------------------------------------------------------------------------------------------------------


def hold(path: Path, *, alone: bool) -> int | None:
    """Take a lock, alone or together with others, and return its handle; None if it cannot be had now."""
    kind = (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB
    while True:
        handle = files.opened(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, kind)
        except BlockingIOError:
            os.close(handle)
            return None
        # Its last holder may have removed the file between the two calls: then this is a lock that nobody else sees.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(handle).st_ino == os.stat(path).st_ino:
                return handle
        os.close(handle)


def hold_within(path: Path, seconds: float, *, alone: bool) -> int | None:
    """Return the same, tried again for a while: someone may hold it for a moment only to see who does."""
    until = time.monotonic() + seconds
    while (handle := hold(path, alone=alone)) is None and time.monotonic() < until:
        time.sleep(0.02)
    return handle


def held(path: Path) -> bool:
    """Return whether somebody holds a lock alone."""
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
    """Write into a lock who holds it: what lies beside it may still be that of the one before."""
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)


def holder(path: Path) -> int:
    """Return who signed a lock; 0 if nobody did. That it is held still is another question."""
    try:
        return int(files.read(path))
    except (OSError, ValueError):
        return 0


def check_signed(place: Place) -> None:
    """Refuse a lock that is held and not signed: a broker signs its lock as soon as it has it."""
    if not wait_until(lambda: not held(place.lock) or bool(holder(place.lock)), SIGNED_S):
        raise ShareError(
            f"{place.lock} is held, but by no broker of headway: end the process that holds it "
            f"(fuser -v {place.lock} names it)"
        )


def wait_until(condition: Callable[[], bool], seconds: float, pause_s: float = 0.02) -> bool:
    """Return whether a condition holds within so many seconds; it is looked at after every pause."""
    until = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < until:
        time.sleep(pause_s)
    return holds


def current_state(place: Place) -> dict[str, Any]:
    """Return what the broker that runs says of itself; empty if none runs or it has not said anything yet."""
    pid, state = holder(place.lock), read_json(place.state)
    return state if pid and state.get("pid") == pid and held(place.lock) else {}


@contextlib.contextmanager
def using(place: Place, seconds: float = 30.0) -> Iterator[None]:
    """Be counted among those who run a program: the broker does not take its leave meanwhile."""
    if (handle := hold_within(place.users, seconds, alone=False)) is None:
        raise ShareError(
            f"the broker of GPU {place.gpu} takes its leave and does not end: headway share stop --kill ends it"
        )
    try:
        yield
    finally:
        os.close(handle)


# --- what is written --------------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """Return what is in a file of ours; empty where there is none or it is broken."""
    try:
        found = json.loads(files.read(path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Put a file there whole: a reader sees the old one or the new one. Raises OSError."""
    files.write(path, json.dumps(value).encode())


def ask(place: Place, **wishes: Any) -> None:
    """Tell a running broker; what was asked before and is not named stays."""
    try:
        write_json(place.asked, {**read_json(place.asked), **wishes})
    except OSError as problem:
        raise ShareError(f"the broker cannot be told: {place.asked}: {problem.strerror}") from None


def remove(place: Place) -> list[Path]:
    """Take away everything of ours that lies there; returns what did. What is not ours stays as it is."""
    gone = [path for path in place.leftovers() if not place.foreign(path)]
    drafts = place.folder.glob(f"headway-share-{place.gpu}.*.draft")
    for path in (*gone, *(draft for draft in drafts if not place.foreign(draft))):
        remove_one(path)
    return gone


def remove_one(path: Path) -> None:
    """Take away a file of ours, or the folder of MPS, if it is there."""
    if path.is_dir() and not path.is_symlink():
        rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        raise ShareError(f"{path} cannot be removed: {problem.strerror}: have it removed by its owner") from None


def open_log(place: Place) -> int:
    """Return the broker's log, appended to, begun anew when it has grown large."""
    place.log.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(handle).st_size > _LARGEST_LOG:
        os.ftruncate(handle, 0)
    return handle
