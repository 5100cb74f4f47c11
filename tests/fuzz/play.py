"""One input played and judged: the command runs in a forked process of its own, with streams as in a terminal's pipe.

The process that forks has imported every command and run none, so that a fork costs milliseconds and starts without
threads; it is never the process of the tests.
"""

import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

MOST_SECONDS = 60.0
"""Wall time of one input: valid ones take well under one."""
MOST_BYTES = 6 << 30
_VERDICTS = {"audit": " finding", "replay": "different: ", "sweep": " cells failed"}
"""What commands say that end with 1 because of what they found."""
_RIDDLES = ("Traceback", "internal error", "MemoryError", "OverflowError", "RecursionError")


@dataclass(frozen=True, slots=True)
class Input:
    """One command line; the files it names were written into the folder in which it is run."""

    words: tuple[str, ...]
    must_fail: str = ""
    """Why it must be refused; empty: it may be accepted."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an input."""

    words: tuple[str, ...]
    status: int
    out: str
    err: str
    wrong: str
    """What must not be, in a few words; empty if all is well."""
    seconds: float


def prepare() -> None:
    """Import every command; what forks from here starts with all of it."""
    os.environ.update(POLARS_MAX_THREADS="1", OMP_NUM_THREADS="1", RAY_USAGE_STATS_ENABLED="0", NO_COLOR="1")
    os.environ.pop("HEADWAY_DEBUG", None)
    import headway.cli.gpu.sharing
    import headway.cli.program  # noqa: F401
    from headway.runs.registry import DOMAINS, domain

    for name in DOMAINS:
        assert domain(name).view


def play(made: "Maker", number: int, kept: Path | None = None) -> Outcome:
    """Make an input by its number, run it, and say what is wrong with what it did."""
    folder = kept or Path(mkdtemp(prefix="headway-fuzz-"))
    began = time.monotonic()
    try:
        (folder / "at").mkdir(parents=True)
        child = os.fork()
        if not child:
            _child(made, number, folder)
        status = _wait(child, began + MOST_SECONDS)
        seconds = time.monotonic() - began
        return _judged(folder, status, seconds)
    finally:
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)


Maker = object
"""A callable of (number, folder) that writes files and gives an Input."""


def _child(made: "Maker", number: int, folder: Path) -> None:
    """Never comes back: the process ends with the status of the command."""
    status = 99
    try:
        os.chdir(folder / "at")
        os.environ.update(HOME=str(folder), XDG_CACHE_HOME=str(folder / "cache"), TMPDIR=str(folder))
        os.environ.update(HEADWAY_SHARE_FOLDER=str(folder / "share"), HEADWAY_PROFILES=str(folder / "profiles"))
        given = made(number, folder / "at")  # type: ignore[operator]
        (folder / "input").write_text(json.dumps([list(given.words), given.must_fail]))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        for stream, name in ((1, "out"), (2, "err")):
            opened = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(opened, stream)
        sys.stdout = open(1, "w", encoding="utf-8", errors="strict", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        status = command(list(given.words))
    except BaseException:  # noqa: BLE001 - whatever comes this far is what a user would see as a traceback
        sys.stderr.write(traceback.format_exc())
        status = 98
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def command(words: list[str]) -> int:
    from headway.cli import main

    try:
        main(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _wait(child: int, until: float) -> int | None:
    """The exit status, negative for a signal; None where the input took too long and was ended."""
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.003)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _judged(folder: Path, status: int | None, seconds: float) -> Outcome:
    if not (folder / "input").exists():
        return Outcome((), status or 0, "", "", "the input could not be made", seconds)
    words, must_fail = json.loads((folder / "input").read_text())
    out, err = (
        (folder / name).read_text(errors="replace") if (folder / name).exists() else "" for name in ("out", "err")
    )
    wrong = _wrong(words, must_fail, status, out, err)
    return Outcome(tuple(words), -1000 if status is None else status, out, err, wrong, seconds)


def _wrong(words: list[str], must_fail: str, status: int | None, out: str, err: str) -> str:
    if status is None:
        return f"no end within {MOST_SECONDS:g} s"
    if status < 0:
        return f"killed by signal {-status}"
    if riddle := next((riddle for riddle in _RIDDLES if riddle in err), ""):
        return riddle
    if status == 0:
        silent = "" if (out + err).strip() else "no word of what was done"
        return f"accepted: {must_fail}" if must_fail else silent or _unreadable(words, out)
    if status not in (1, 2):
        return f"exit status {status}"
    if any(_VERDICTS.get(word, "\0") in err for word in words[:2]):
        return ""
    told = [line for line in err.splitlines() if line.startswith("headway: ")]
    if len(told) != 1 or not err.rstrip("\n").endswith(told[0]) or len(told[0]) < len("headway: ") + 5:
        return f"{len(told)} lines that say why"
    return ""


def _unreadable(words: list[str], out: str) -> str:
    """What is wrong with results that were asked for as JSON."""
    if "--json" not in words:
        return ""
    try:
        json.loads(out, parse_constant=_refuse)
    except ValueError as problem:
        return f"its JSON cannot be read: {problem}"
    return ""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
