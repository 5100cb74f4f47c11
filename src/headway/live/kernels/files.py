"""Files in a folder that others can write to: no link is followed, and nothing of another user is taken for ours.

``/dev/shm`` is everybody's. Whoever puts a link or a file of theirs where the broker's is to be must get neither a file
of ours overwritten nor a word in how programs share; the user gets one line.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

from headway.errors import ShareError

_ROOT = 0
_LINK = "is a symbolic link, and none is followed here"
_NOT_PLAIN = "is no plain file"
_REMEDY = "have it removed, or choose another folder (HEADWAY_SHARE_FOLDER)"


def opened(path: Path, flags: int) -> int:
    """Open a file of ours, or make it, readable by nobody else; a handle. Raises FileNotFoundError where none is."""
    try:
        # Without O_NONBLOCK a named pipe in its place would be waited for.
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
    """Return whether what is there is ours, or root's; to root, whose programs may look after everybody's, all is."""
    return os.geteuid() in (_ROOT, about.st_uid) or about.st_uid == _ROOT


def _why(path: Path, problem: OSError) -> str:
    if problem.errno == errno.ELOOP:
        return f"{path} {_LINK}: {_REMEDY}"
    whose = ": it belongs to another user's broker" if isinstance(problem, PermissionError) else ""
    return f"{path}: {problem.strerror}{whose}"


def read(path: Path) -> bytes:
    """Return all that is in a file of ours. Raises FileNotFoundError where none is."""
    with open(opened(path, os.O_RDONLY), "rb") as file:
        return file.read()


def write(path: Path, content: bytes) -> None:
    """Put a file there whole, readable by nobody else: a reader sees the old one or the new one. Raises OSError."""
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
    """Return why what lies there is not ours to remove or replace, in one line.

    Empty where it is, or where nothing lies.
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
        what = "is a folder, and none of headway's"
    elif not (
        stat.S_ISDIR(about.st_mode)
        if folder
        else stat.S_ISREG(about.st_mode) or (socket and stat.S_ISSOCK(about.st_mode))
    ):
        what = "is no folder" if folder else _NOT_PLAIN
    elif about.st_uid != os.geteuid():
        what = f"belongs to another user ({about.st_uid})"
    else:
        return ""
    return f"{path} {what}: {_REMEDY}"


def own_folder(path: Path) -> bool:
    """Return whether a folder of ours is there: no link, and nobody else's."""
    try:
        about = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
