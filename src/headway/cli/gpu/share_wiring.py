"""Load what ``headway share`` needs: the shim's library, and modules that a GPU machine may not have installed.

Sharing (``gpu.share``) and measuring (``gpu.profiling``) do not know of each other; here, above both, they meet. What
is not needed to run a program is imported when it is asked for: a GPU machine may lack what it needs.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.cli import console
from headway.errors import ShareError
from headway.gpu.share.shim import build, launch, preload

LIBRARY = "HEADWAY_SHARE_LIBRARY"
"""The shim to load instead of the one that is installed: for tests, and where it was built elsewhere."""


def part(name: str, wanted_for: str) -> Any:
    """Return a module of headway that needs more than sharing does; an error that names what is missing."""
    try:
        return importlib.import_module(f"headway.{name}")
    except ModuleNotFoundError as problem:
        missing = str(problem.name)
        if missing.startswith("headway"):
            raise
        raise ShareError(f"{wanted_for} needs {missing}, which is not installed here: pip install {missing}") from None


def library(again: bool = False) -> Path:
    """Return the path of the shim, built if it is not there yet."""
    if (chosen := os.environ.get(LIBRARY, "")) and not again:
        if not Path(chosen).is_file():
            raise ShareError(f"{LIBRARY}={chosen}: there is no such file: headway share build makes one")
        return preload.checked(Path(chosen))
    if not again and build.find() is None:
        console.note("headway: building the shim, once (a few seconds)")
    return build.build() if again else build.library()


def program_key(command: Sequence[str]) -> str:
    """Return the name under which measurements of a command are stored."""
    return launch.key_of(command) if command else ""
