"""Socket of the shared block: the broker sends the file descriptor of its memory to programs that connect.

The memory has no path that anybody could truncate or overwrite (``memfd``), and it is sealed: it neither shrinks nor
grows. A program that maps it never touches a page that is gone. See docs/background/decisions/0013.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import threading
from collections import deque
from collections.abc import Collection
from pathlib import Path

from headway.device import processes, shared_files as files
from headway.door.local_socket import peer, short_address
from headway.errors import ShareError

REMOVED = "was removed"
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_ANSWER_S = 2.0
"""Timeout for the broker's answer."""
_BACKLOG = 128
_JOINS_NS = 3_000_000_000
"""A program that has no slot after this long gets none."""
_WORD_S = 0.2
"""Timeout for the byte by which a program says what it is."""
_PROGRAM, _READER = b"p", b"r"
"""Sent by a program that takes a slot, and by a reader of the block."""


def sealed_memory(size: int) -> int:
    """Return the descriptor of new memory, allocated and sealed: its size cannot change. Raises OSError."""
    handle = os.memfd_create("headway-share", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # A page that could not be allocated later would kill the program that touches it.
        os.posix_fallocate(handle, 0, size)
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, SEALS)
    except OSError:
        os.close(handle)
        raise
    return handle


def is_sealed(handle: int) -> bool:
    """Return whether memory is sealed against shrinking."""
    try:
        return bool(fcntl.fcntl(handle, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except OSError:
        return False


class BlockListener:
    """The broker's end of the socket: a thread that answers each connection."""

    def __init__(self, path: Path, handle: int) -> None:
        """Listen at ``path``, replacing what is there. Raises OSError."""
        self.path = path
        self._handle = handle
        self.heard: deque[int] = deque(maxlen=256)
        """Ids of the processes that connected as programs, in order."""
        self._open()

    def _open(self) -> None:
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.draft")
        draft.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(self._socket.fileno(), 0o600)  # before it is bound: other users cannot connect
            with short_address(draft) as address:
                self._socket.bind(address)
            self._socket.listen(_BACKLOG)
            self._inode = os.lstat(draft).st_ino
            threading.Thread(
                target=_answer, args=(self._socket, self._handle, self.heard), name="block-socket", daemon=True
            ).start()
            draft.replace(self.path)  # last: it answers already
        except OSError:
            self.close()
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise

    def closed_by_others(self) -> str:
        """Return how the socket's file was removed or replaced; empty where it was not."""
        try:
            about = os.lstat(self.path)
        except FileNotFoundError:
            return REMOVED
        except OSError as problem:
            return f"cannot be read: {problem.strerror}"
        return "" if stat.S_ISSOCK(about.st_mode) and about.st_ino == self._inode else "was replaced by something else"

    def reopen(self) -> None:
        """Listen at the path again. Raises OSError."""
        self.close()
        self._open()

    def close(self) -> None:
        """Stop listening. The path stays."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()


class ProgramsWithoutSlot:
    """Programs that connected and got no slot: they go on ungated."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def pids(self, heard: "deque[int]", here: Collection[int], now_ns: int) -> list[int]:
        """Return the ids of those that still run and connected a while ago; ``here``: processes that have a slot."""
        while heard:
            pid = heard.popleft()
            self._known.setdefault(pid, (processes.start_ticks(pid), now_ns))
        self._known = {
            pid: (ticks, since)
            for pid, (ticks, since) in self._known.items()
            if pid not in here and processes.alive(pid, ticks)
        }
        return sorted(pid for pid, (_, since) in self._known.items() if now_ns - since > _JOINS_NS)


def _answer(listening: socket.socket, handle: int, heard: "deque[int]") -> None:
    while True:
        try:
            asking, _ = listening.accept()
        except OSError as problem:
            if problem.errno in (errno.ECONNABORTED, errno.EINTR, errno.EMFILE, errno.ENFILE):
                threading.Event().wait(0.05)
                continue
            return  # closed
        with asking, contextlib.suppress(OSError):
            asking.settimeout(_WORD_S)
            socket.send_fds(asking, [b"\0"], [handle])
            if asking.recv(1) == _PROGRAM and (process := peer(asking)[0]):
                heard.append(process)


def asked(path: Path) -> int:
    """Return the descriptor of the shared memory, asked for at a socket.

    Raises FileNotFoundError where there is no socket, ShareError where it belongs to another user.
    """
    about = os.lstat(path)
    if not stat.S_ISSOCK(about.st_mode):
        os.close(files.opened(path, os.O_RDWR))  # raises for a link, or for another user's file
        raise ShareError(f"{path} is not a shared block of this version of headway: restart the broker")
    if not files.trusted(about):
        raise ShareError(files.foreign(path, socket=True))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ANSWER_S)
        try:
            with short_address(path) as address:
                asking.connect(address)
            asking.send(_READER)
            _, user = peer(asking)
            if os.geteuid() not in (0, user) and user != 0:
                raise ShareError(f"{path} is answered by another user ({user}): have it removed")
            _, handles, _, _ = socket.recv_fds(asking, 1, 1)
        except TimeoutError:
            raise ShareError(f"{path}: the broker does not answer: headway share stop --kill ends it") from None
        except OSError as problem:
            raise ShareError(f"no shared block at {path}: {problem.strerror}") from None
    if len(handles) != 1:
        raise ShareError(f"no shared block at {path}: the broker has none to give")
    return handles[0]
