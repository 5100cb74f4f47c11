"""Safety of preloaded libraries: only one that no user but this one, or root, can have written is loaded.

That holds for the file and for every folder on its path: a user who can write to one of them could put another library
there. A folder that everybody can write to is accepted only with the sticky bit (``/tmp``), and never as the last one.
Links are resolved first: the path that was checked is the one that is loaded.
"""

import hashlib
import os
import stat
from pathlib import Path

from headway.errors import ShareError

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def checked(path: Path) -> Path:
    """Return the resolved path of a library; raise ShareError where others could have written it, or there is none."""
    try:
        resolved = path.resolve(strict=True)
        about = os.lstat(resolved)
    except OSError as problem:
        raise ShareError(f"{path}: {problem.strerror}: headway share build makes one") from None
    if not stat.S_ISREG(about.st_mode):
        raise ShareError(f"{path} is not a library: it is not a regular file")
    if why := refusal(resolved):
        raise ShareError(why)
    return resolved


def refusal(path: Path, *, there: bool = True) -> str:
    """Return why a library is not loaded from a resolved path; empty where only this user and root can write it.

    With ``there=False`` the file does not exist yet, and only its folders are checked.
    """
    for part in (*reversed(path.parents), *((path,) if there else ())):
        try:
            about = os.lstat(part)
        except OSError as problem:
            return f"{part}: {problem.strerror}"
        if about.st_uid not in (os.geteuid(), 0):
            return f"{path} is not loaded: {part} belongs to another user ({about.st_uid})"
        is_sticky_parent = (
            stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX and part not in (path, path.parent)
        )
        if about.st_mode & _OTHERS and not is_sticky_parent:
            return f"{path} is not loaded: others may write to {part}: chmod go-w {part}"
    return ""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content; empty where it is not a safe regular file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_uid not in (os.geteuid(), 0) or about.st_mode & _OTHERS:
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_folder(path: Path) -> None:
    """Make a folder and its parents; new ones are for this user alone. Raises OSError."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)
