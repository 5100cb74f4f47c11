"""Folders of brokers' tapes: where they are, which are kept, and the files beside a tape."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from headway.errors import ShareError
from headway.files import write_whole
from headway.formats import toml_text

if TYPE_CHECKING:
    from headway.core.tape import Tape

KEPT = 8
"""Tapes of a GPU that are kept; older ones go when another begins."""
_QUIET_S = 60.0
"""A tape that was written within this time belongs to a broker that runs."""


def usual(gpu: int, begun_s: float) -> Path:
    """Return the folder of a broker that was given none: by GPU and by when it began."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "headway" / "share" / f"gpu-{gpu}" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(begun_s))


def checked(folder: Path) -> Path:
    """Return a folder for a new tape; raise ShareError where there is something in it, or it cannot be one."""
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ShareError(f"--out {folder}: holds files already: choose a new folder")
    except NotADirectoryError:
        raise ShareError(f"--out {folder}: is a file, not a folder") from None
    except OSError as problem:
        raise ShareError(f"--out {folder}: cannot be used ({problem.strerror})") from None
    return folder.absolute()


def begin(folder: Path, about: Mapping[str, Any]) -> None:
    """Make a folder and write into it what is known before the first row; remove the oldest beside it."""
    from headway.core.tape import EXPERIMENT_NAME, SCHEMA_VERSION

    folder.mkdir(parents=True, exist_ok=True)
    _remove_old(folder)
    document = {"version": SCHEMA_VERSION, "scale": "share", "share": about, "policy": {"name": "headway"}}
    write_whole(folder / EXPERIMENT_NAME, toml_text.write(document))


def _remove_old(folder: Path) -> None:
    """Remove the oldest of the tapes that no --out was given for; others are never touched."""
    if folder.parent.parent != usual(0, 0).parent.parent:
        return
    from headway.core.tape import EXPERIMENT_NAME, STREAM_NAME

    tapes = sorted(each for each in folder.parent.iterdir() if (each / EXPERIMENT_NAME).is_file())
    for old in [each for each in tapes if each != folder][: -(KEPT - 1)]:
        stream = old / STREAM_NAME
        if not stream.exists() or time.time() - stream.stat().st_mtime > _QUIET_S:
            rmtree(old, ignore_errors=True)


def finish(folder: Path, tape: "Tape") -> None:
    """Write beside a whole tape that it is whole."""
    from headway.core.tape import RESULT_NAME

    result = {"policy": "headway", "digest": tape.digest, "stopped": False, "seed": 0, "seeds": 1}
    write_whole(folder / RESULT_NAME, json.dumps(result, indent=2) + "\n")
