"""Folder of checkpoints: one is there as a whole or not at all, and the last one stays until the next is on the disk.

    checkpoints/
      lock             held while a program trains
      000012/
        state          what the program wrote: a file or a folder
        steps.json     how far it was, and which program it is
        random-0.json  the random states of rank 0

A checkpoint is written under another name, flushed to the disk and then renamed. Older ones are removed after that.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError
from headway.files import write_whole
from headway.program.progress import Position
from headway.program.protocol import CHECKPOINTS
from headway.program.randomness import States

PROCESS = secrets.token_hex(8)
"""This process, unlike any before it."""
STATE = "state"
_FORMAT = 1
_ABOUT = "steps.json"
_NAME = re.compile(r"\d{6,}")
_DRAFT = re.compile(r"\.headway-\d+\.part")


@dataclass(frozen=True)
class Meta:
    """What a checkpoint says of itself."""

    position: Position
    program: str
    ranks: int
    process: str

    def written(self) -> str:
        """Return it as JSON."""
        return json.dumps({"format": _FORMAT, **vars(self), "position": vars(self.position)})


@dataclass(frozen=True)
class Moment:
    """Random states of a rank at a checkpoint: at the start of the epoch, and now."""

    epoch: States
    now: States


class Folder:
    """A folder of checkpoints; only rank 0 opens and publishes."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = -1

    def open(self) -> None:
        """Make the folder, and keep other programs out of it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            for entry in self.path.iterdir():
                if _DRAFT.fullmatch(entry.name):
                    shutil.rmtree(entry)
        except OSError as problem:
            raise self._refused(problem) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                f"checkpoint folder {self.path} is in use by another process: give each program its own folder=, "
                "and call init_process_group before headway.steps where several train together"
            ) from None
        except OSError:  # some network file systems have no locks
            pass

    def close(self) -> None:
        """Let others use it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _refused(self, problem: OSError) -> CheckpointError:
        return CheckpointError(
            f"checkpoint folder {self.path} cannot be written ({problem.strerror or problem}): "
            f"give another folder=, or set {CHECKPOINTS}"
        )

    # --- reading ----------------------------------------------------------------------------------------------

    def last(self) -> int:
        """Return the number of the last checkpoint; 0 where there is none."""
        found = [int(entry.name) for entry in self.path.iterdir() if _NAME.fullmatch(entry.name)]
        return max(found, default=0)

    def of(self, number: int) -> Path:
        """Return the folder of a checkpoint."""
        return self.path / f"{number:06d}"

    def meta(self, number: int) -> Meta:
        """Return what a checkpoint says of itself."""
        found = self._read(number, _ABOUT)
        try:
            if found["format"] != _FORMAT:
                raise ValueError
            position = Position(**found["position"])
            return Meta(position, str(found["program"]), int(found["ranks"]), str(found["process"]))
        except (KeyError, TypeError, ValueError):
            raise self._foreign(number) from None

    def moment(self, number: int, rank: int) -> Moment:
        """Return the random states of a rank."""
        found = self._read(number, f"random-{rank}.json")
        try:
            return Moment(found["epoch"], found["now"])
        except (KeyError, TypeError):
            raise self._foreign(number) from None

    def _read(self, number: int, name: str) -> Any:
        try:
            return json.loads((self.of(number) / name).read_bytes())
        except (OSError, ValueError):
            raise self._foreign(number) from None

    def _foreign(self, number: int) -> CheckpointError:
        return CheckpointError(
            f"{self.of(number)} is no checkpoint of headway.steps, or a newer one: remove it, or give another folder="
        )

    # --- writing ----------------------------------------------------------------------------------------------

    def draft(self, number: int) -> Path:
        """Return where a checkpoint is written before it counts."""
        return self.path / f".headway-{number}.part"

    def begin(self, number: int) -> None:
        """Make the draft of a checkpoint."""
        try:
            self.draft(number).mkdir()
        except OSError as problem:
            raise self._refused(problem) from None

    def discard(self, number: int) -> None:
        """Remove a draft that could not be finished."""
        shutil.rmtree(self.draft(number), ignore_errors=True)

    def write_moment(self, number: int, rank: int, moment: Moment) -> None:
        """Write the random states of a rank to a draft."""
        write_whole(self.draft(number) / f"random-{rank}.json", json.dumps(vars(moment)), CheckpointError)

    def write_state(self, number: int, meta: Meta, save: Callable[[Path], object]) -> None:
        """Let the program write its state to a draft, and say what it is."""
        path = self.draft(number) / STATE
        save(path)
        if not path.exists():
            raise CheckpointError(f"checkpoint= wrote nothing to {path}: write a file or a folder of that name")
        write_whole(self.draft(number) / _ABOUT, meta.written(), CheckpointError)

    def publish(self, number: int) -> None:
        """Make a draft the last checkpoint, for good; remove those before it."""
        try:
            flush(self.draft(number))
            os.rename(self.draft(number), self.of(number))
            _flush_one(self.path)
        except OSError as problem:
            raise self._refused(problem) from None
        for entry in self.path.iterdir():
            if _NAME.fullmatch(entry.name) and int(entry.name) < number:
                with contextlib.suppress(OSError):  # the next one removes it
                    shutil.rmtree(entry)


def flush(folder: Path) -> None:
    """Make a folder with all that is in it durable."""
    for place, _, files in os.walk(folder):
        for path in (Path(place) / name for name in files):
            if path.is_file() and not path.is_symlink():
                _flush_one(path)
        _flush_one(Path(place))


def _flush_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
