"""Files in a folder that other users can write to: links are not followed, other users' files are not used.

All users can write to ``/dev/shm``. A user who puts a link or a file where the broker's file belongs must neither have
a file of ours overwritten nor influence how programs share. The user gets one line.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

from headway.errors import ShareError

_ROOT = 0
_LINK = "is a symbolic link, and links are not followed here"
_NOT_PLAIN = "is not a regular file"
_REMEDY = "have it removed, or choose another folder (HEADWAY_SHARE_FOLDER)"


def opened(path: Path, flags: int) -> int:
    """Open a file of this user, or make it, readable by no other; return its descriptor.

    Raises FileNotFoundError where there is none.
    """
    try:
        # Without O_NONBLOCK opening a named pipe in its place would block.
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except FileNotFoundError as problem:
        if flags & os.O_CREAT:
            raise ShareError(_why(path, problem)) from None
        raise
    except OSError as problem:
        raise ShareError(_why(path, problem)) from None
    about = os.fstat(handle)
    ours = about.st_uid == os.geteuid() if flags & os.O_CREAT else trusted(about)
    if stat.S_ISREG(about.st_mode) and ours:
        return handle
    os.close(handle)
    what = _NOT_PLAIN if not stat.S_ISREG(about.st_mode) else f"belongs to another user ({about.st_uid})"
    raise ShareError(f"{path} {what}: {_REMEDY}")


def trusted(about: os.stat_result) -> bool:
    """Return whether a file is this user's or root's; root trusts every file."""
    return os.geteuid() in (_ROOT, about.st_uid) or about.st_uid == _ROOT


def _why(path: Path, problem: OSError) -> str:
    if problem.errno == errno.ELOOP:
        return f"{path} {_LINK}: {_REMEDY}"
    whose = ": it belongs to another user's broker" if isinstance(problem, PermissionError) else ""
    return f"{path}: {problem.strerror}{whose}"


def read(path: Path) -> bytes:
    """Return the content of a file of this user. Raises FileNotFoundError where there is none."""
    with open(opened(path, os.O_RDONLY), "rb") as file:
        return file.read()


def write(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by no other user: a reader sees the old or the new content. Raises OSError."""
    if why := foreign(path):
        raise FileExistsError(errno.EEXIST, why.removeprefix(f"{path} "), str(path))
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def foreign(path: Path, *, folder: bool = False, socket: bool = False) -> str:
    """Return, in one line, why this user may not remove or replace what is at a path.

    Empty where it may, or where nothing is there.
    """
    try:
        about = os.lstat(path)
    except FileNotFoundError:
        return ""
    except OSError as problem:
        return _why(path, problem)
    if stat.S_ISLNK(about.st_mode):
        what = _LINK
    elif stat.S_ISDIR(about.st_mode) and not folder:
        what = "is a folder, not a file of headway"
    elif not (
        stat.S_ISDIR(about.st_mode)
        if folder
        else stat.S_ISREG(about.st_mode) or (socket and stat.S_ISSOCK(about.st_mode))
    ):
        what = "is not a folder" if folder else _NOT_PLAIN
    elif about.st_uid != os.geteuid():
        what = f"belongs to another user ({about.st_uid})"
    else:
        return ""
    return f"{path} {what}: {_REMEDY}"


def own_folder(path: Path) -> bool:
    """Return whether a path is a folder of this user, and not a link."""
    try:
        about = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
