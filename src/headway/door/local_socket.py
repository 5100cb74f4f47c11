"""Local sockets of a user's own servers: made so that no other user can connect, and who is at the other end."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from headway.errors import InputError

_BACKLOG = 512
_CREDENTIALS = struct.Struct("3i")


@contextlib.contextmanager
def short_address(path: Path) -> Iterator[str]:
    """Give a short address for a path: that of a socket may have about a hundred letters."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listening(path: Path, error: type[InputError]) -> socket.socket:
    """Return a socket that listens at a path, in place of one that a killed server left."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # before it is bound: no other user can connect
        path.unlink(missing_ok=True)
        with short_address(path) as address:
            listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as problem:
        listener.close()
        raise error(f"{path}: no socket can be made there: {problem.strerror}") from None
    return listener


def connected(path: Path, timeout_s: float | None) -> socket.socket:
    """Return a connection to the socket at a path. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with short_address(path) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the id of the process at the other end, 0 where it is not visible here, and its user."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(told)
    return process, user


def is_own(connection: socket.socket) -> bool:
    """Return whether the process at the other end is of this user, or of root."""
    return peer(connection)[1] in (0, os.geteuid())
