"""Write and read the folder of a run: lock it, read it back checked, refuse other output in it.

``claimed`` keeps a folder for one run. ``read`` gives its tape and its numbers, checked against each other.
``refuse_run`` keeps every other output out of it. A run folder is data: which code it may name is up to
``plugins.of_run``.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import numpy as np

from headway.core.tape import (
    EXPERIMENT_NAME as EXPERIMENT_NAME,
    FINAL_NAME,
    RESULT_NAME as RESULT_NAME,
    SCHEMA_VERSION as SCHEMA_VERSION,
    STREAM_NAME,
    Tape,
    holds_tape,
    read as read_tape,
)
from headway.errors import ExperimentError, InputError, TapeError
from headway.files import write_whole
from headway.formats import toml
from headway.runs.domain import Domain, StoredRun
from headway.runs.settings.files import check_version, scale_of

if TYPE_CHECKING:
    from headway.runs.domain import Scene

Record = TypeVar("Record")
QUEUE_NAME = "queue.sqlite"
"""The store of a queue, in its folder; its runs are made from it."""
WHATIF_NAME = "whatif.json"
CONTINUATION_NAME = "continuation"
"""In a folder of a what-if that is no run: the tape of what followed the changes."""
CLAIM_NAME = ".claim"
"""Locked by the process that writes the folder. The lock ends with the process, however that ends."""
_MOST_SHOWN = 12
"""Characters of a digest, in a message."""


# --- writing ----------------------------------------------------------------------------------------------------


def check_folder(folder: Path) -> None:
    """Refuse a folder for a run that holds anything, or that lies in the folder of another run.

    One that a run claimed which was killed before its tape began may be taken over.
    """
    try:
        names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
        begun = CLAIM_NAME in names and not holds_tape(folder)  # by one that was killed, or that ``_locked`` finds
        if names - {CLAIM_NAME} and not begun:
            holds = "a run" if holds_tape(folder) else "files"
            raise TapeError(f"run folder {folder} already holds {holds}: choose another folder or remove it")
        if folder.exists() and not folder.is_dir():
            raise TapeError(f"run folder {folder}: is a file, not a folder")
    except OSError as problem:
        raise TapeError(f"run folder {folder}: cannot be used ({problem.strerror or problem})") from None
    refuse_run(folder, f"run folder {folder}")


@contextmanager
def claimed(folder: Path | None) -> Iterator[None]:
    """Keep a folder for the run that is made within; a second run is refused before it writes anything.

    The folder may be there already if it is empty. What had to be made for it goes again if nothing comes of the run.
    """
    if folder is None:
        yield
        return
    check_folder(folder)
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _locked(folder / CLAIM_NAME)
    except OSError as problem:
        raise TapeError(f"run folder {folder}: cannot be used ({problem.strerror or problem})") from None
    try:
        check_folder(folder)  # once more: whoever held it before may have left a run
        yield
    finally:
        with suppress(OSError):
            os.unlink(folder / CLAIM_NAME)
        os.close(lock)
        with suppress(OSError):  # the first with something in it stays, and so do those that it lies in
            for each in made:
                each.rmdir()


def _locked(path: Path) -> int:
    """Return the open and locked claim file of a folder; a TapeError where another process holds it."""
    flags, is_new = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, True
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        handle, is_new = os.open(path, flags), False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        taken = not os.path.samestat(os.fstat(handle), os.stat(path))  # removed meanwhile by who held it
    except (BlockingIOError, FileNotFoundError):
        taken = True
    except OSError:  # a file system without locks: whoever made the file has the claim
        taken = not is_new
    if taken:
        os.close(handle)
        raise TapeError(
            f"run folder {path.parent}: another run is being written to it: choose another folder "
            f"(if no run is at work there, remove {path})"
        )
    return handle


@contextmanager
def whole_or_nothing(folder: Path, unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Remove a half-made run if the body fails, ``unless`` the run has begun by then.

    A folder that holds a run is refused before anything is written.
    """
    if holds_tape(folder):
        raise TapeError(f"run folder {folder} already holds a run: choose another folder or remove it")
    was_there = folder.is_dir()
    before = set(folder.iterdir()) if was_there else set()
    try:
        yield
    except BaseException as problem:
        if not unless():
            _remove(folder, before, was_there)
        if isinstance(problem, OSError):
            raise TapeError(f"run folder {folder}: cannot be written ({problem.strerror or problem})") from None
        raise


def forget(folder: Path) -> None:
    """Remove what a run that failed has left in the folder that was claimed for it, so that it can be tried again."""
    _remove(folder, {folder / CLAIM_NAME}, keep=True)


def _remove(folder: Path, but: set[Path], keep: bool) -> None:
    with suppress(OSError):
        for each in set(folder.iterdir()) - but:
            if each.is_dir() and not each.is_symlink():
                rmtree(each, ignore_errors=True)
            else:
                each.unlink(missing_ok=True)
        if not keep:
            folder.rmdir()


def store(scene: "Scene", folder: Path) -> None:
    """Write everything about a run but its outcome: the workload, the files that it needs, and the experiment."""
    with whole_or_nothing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        experiment = {"version": SCHEMA_VERSION, **msgspec.to_builtins(scene.store(folder))}
        write_whole(folder / EXPERIMENT_NAME, toml.write(experiment))


def store_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Put the numbers of a run beside its tape."""
    write_whole(folder / RESULT_NAME, msgspec.json.format(msgspec.json.encode(result)) + b"\n")


# --- what is not part of a run --------------------------------------------------------------------------------


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run, or what followed a change of one; not so for tables that were exported."""
    if (folder / STREAM_NAME).exists() or (folder / WHATIF_NAME).exists():
        return True
    return (folder / FINAL_NAME).exists() and (folder / EXPERIMENT_NAME).exists()


def refuse_run(path: Path, what: str, to_be_made: tuple[Path, ...] = (), error: type[InputError] = TapeError) -> None:
    """Refuse an output that lies in the folder of a run, or of one that is about to be made."""
    place = path.resolve()
    runs = [each.resolve() for each in to_be_made]
    for folder in (place, *place.parents):
        if folder in runs or is_run(folder):
            raise error(f"{what}: {folder} is the folder of a run, where nothing else is written: choose another place")


def check_output(path: Path, flag: str, to_be_made: tuple[Path, ...] = ()) -> None:
    """Refuse a file or folder, named by a flag, that lies in the folder of a run."""
    refuse_run(path, f"{flag} {path}", to_be_made, ExperimentError)


# --- reading ----------------------------------------------------------------------------------------------------


def read(folder: Path) -> tuple[Tape, dict[str, Any]]:
    """Return the tape of a run and its numbers, none of one that was killed; refuse what is not of the same run."""
    if not folder.is_dir():
        raise TapeError(f"run folder {folder}: there is no such folder")
    tape = read_tape(folder)
    path = folder / RESULT_NAME
    try:
        result = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return tape, {}
    except (OSError, ValueError) as problem:
        raise TapeError(f"run folder {folder}: {RESULT_NAME} cannot be read ({problem})") from None
    said = result.get("digest") if isinstance(result, dict) else None
    if said != tape.digest:
        about = f"{said[:_MOST_SHOWN]}…" if isinstance(said, str) else "none"
        raise TapeError(
            f"run folder {folder}: the tape is not the one that {RESULT_NAME} is about (digest "
            f"{tape.digest[:_MOST_SHOWN]}…, not {about}): one of them was changed, cut off or replaced"
        )
    return tape, result


def open_run(folder: str | Path, *, trust: bool = False) -> StoredRun:
    """Read a run folder as it was left: closed, stopped, or killed in the middle.

    It is data: a Python file that it names or holds is not run, now or later, unless ``trust`` says so.
    """
    folder = up_to_date(Path(folder))
    tape, result = read(folder)
    domain, document = _scale(folder)
    experiment = toml.typed(document, domain.tables, str(folder / EXPERIMENT_NAME))
    scene = domain.load(experiment, folder, trust=trust)
    check_rows(folder, tape, *scene.row_kinds())
    return StoredRun(folder, scene, tape, is_complete(result), result)


def up_to_date(folder: Path) -> Path:
    """Return the run folder of a queue with all that has happened there so far; any other folder as it is."""
    if not any((each / QUEUE_NAME).is_file() for each in (folder, folder.resolve().parent.parent)):
        return folder
    from headway.jobs.live.run_folder import exported

    return exported(folder)


def is_complete(result: Mapping[str, Any]) -> bool:
    """Return whether a run with these numbers went to its end: it was neither stopped nor killed."""
    return result.get("stopped") is False


def _scale(folder: Path) -> tuple[Domain, toml.Document]:
    """Return the scale that a run folder names, and its experiment; folders of other versions are refused."""
    path = kept_file(folder, EXPERIMENT_NAME)
    document = toml.read(path)
    check_version(document, f"run folder {folder}")
    return scale_of(document, str(path)), document


def kept_file(folder: Path, name: str) -> Path:
    """Return where a file lies that a run folder must hold."""
    if not (folder / name).is_file():
        raise TapeError(f"run folder {folder}: {name} is missing beside the tape")
    return folder / name


def kept_record(path: Path, kind: type[Record]) -> Record | None:
    """Return what a JSON file of a run folder says; None where there is no such file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as problem:
        raise TapeError(f"{path}: cannot be read ({problem})") from None


def scale_name(folder: str | Path) -> str:
    """Return the scale of a run folder by name."""
    return _scale(Path(folder))[0].name


@contextmanager
def explains_corrupt_tape(folder: Path, result: Mapping[str, Any]) -> Iterator[None]:
    """Say of a tape that no result vouches for, where reading it fails, that it contradicts itself."""
    try:
        yield
    except (LookupError, ValueError) as problem:
        if result:
            raise
        raise TapeError(
            f"run folder {folder}: the tape contradicts itself ({type(problem).__name__}: {problem}), and there is no "
            f"{RESULT_NAME} to check it by; headway audit says where"
        ) from problem


Limits: TypeAlias = Mapping[str, tuple[int, tuple[int, ...]]]


def check_rows(folder: Path, tape: Tape, kinds: type[IntEnum], limits: Limits) -> None:
    """Refuse a tape that cannot be of the workload beside it: unknown kinds, times that go back, numbers out of range.

    ``limits``: by column how many of that there are, and the kinds of rows for which that is so.
    """
    time, kind = tape.column("time"), tape.column("kind")
    wrong = {
        "the time": (np.diff(time, prepend=0) < 0),
        "the kind": ~np.isin(kind, [int(each) for each in kinds]),
        **{
            f"the {column}": np.isin(kind, of) & ((tape.column(column) < 0) | (tape.column(column) >= count))
            for column, (count, of) in limits.items()
        },
    }
    for what, rows in wrong.items():
        if rows.any():
            row = int(np.flatnonzero(rows)[0])
            raise TapeError(
                f"run folder {folder}: the tape is not of the workload beside it: {what} of row {row:,} is "
                f"{int(tape.column(what.removeprefix('the '))[row]):,}"
            )


# --- runs that were continued under changes ---------------------------------------------------------------------


class Origin(msgspec.Struct, frozen=True):
    """Where a folder that holds a what-if came from."""

    run: str
    at_s: float


def origin(folder: Path) -> Origin | None:
    """Return the run that was continued under changes in this folder; None if the folder is not a what-if."""
    return kept_record(folder / WHATIF_NAME, Origin)
