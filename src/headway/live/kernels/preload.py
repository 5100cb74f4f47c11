"""Which library may be loaded into other people's programs: one that nobody but its user, or root, can have written.

That holds for the file and for every folder on the way to it: whoever may write to one of them could put another
library there. A folder that everybody may write to is passed only where it keeps others from touching what is ours
(``/tmp``), and is never the last one. Links are resolved first: the path that was checked is the one that is loaded.
"""

import hashlib
import os
import stat
from pathlib import Path

from headway.errors import ShareError

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def checked(path: Path) -> Path:
    """Return the library to load, without links.

    One line where others could have written it, or where there is none.
    """
    try:
        found = path.resolve(strict=True)
        about = os.lstat(found)
    except OSError as problem:
        raise ShareError(f"{path}: {problem.strerror}: headway share build makes one") from None
    if not stat.S_ISREG(about.st_mode):
        raise ShareError(f"{path} is no library: it is no plain file")
    if why := refusal(found):
        raise ShareError(why)
    return found


def refusal(path: Path, *, there: bool = True) -> str:
    """Why nothing is loaded from a path without links, in one line; empty where only this user and root can write it.

    With ``there=False`` the file is still to come, and only its folders count.
    """
    for each in (*reversed(path.parents), *((path,) if there else ())):
        try:
            about = os.lstat(each)
        except OSError as problem:
            return f"{each}: {problem.strerror}"
        if about.st_uid not in (os.geteuid(), 0):
            return f"{path} is not loaded: {each} belongs to another user ({about.st_uid})"
        passed = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX and each not in (path, path.parent)
        if about.st_mode & _OTHERS and not passed:
            return f"{path} is not loaded: others may write to {each}: chmod go-w {each}"
    return ""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, read from the file that was opened.

    Empty where it is none or not ours.
    """
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
    """Make a folder and those above it, each for this user alone where it is new. Raises OSError."""
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)
