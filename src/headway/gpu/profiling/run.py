"""Run a program under the tracing shim, and read its recording."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headway.errors import ProfileError
from headway.gpu.profiling.recording import Recorded, read

Say = Callable[[str], None]
GRACE_S = 10.0
"""Time that a program has to end after it was told to."""
_POLL_S = 0.05
_STDERR = 2


def run(
    command: Sequence[str],
    seconds: float | None = None,
    *,
    library: Path,
    program: str = "",
    environment: Mapping[str, str] | None = None,
    say: Say | None = None,
) -> Recorded:
    """Run a command to its end, or until ``seconds`` after its first launch; return its recording.

    ``library`` is the shim. Of several processes the one with most launches is taken. The program's output goes to
    stderr, so that stdout holds only the results.
    """
    _check(command, seconds, library)
    with tempfile.TemporaryDirectory(prefix="headway-trace-") as folder:
        place = Path(folder)
        status = _ran(command, seconds, _environment(place, seconds, library, program, environment), place)
        recordings = [read(path) for path in sorted(place.glob("trace.*")) if path.suffix != ".part"]
    shown = " ".join(command)
    if not recordings and status == -signal.SIGINT:
        raise ProfileError(
            f"{shown}: stopped; ended by a signal it wrote no trace: --seconds 10 takes ten seconds of it"
        )
    if not recordings:
        failed = f"it ended with status {status}; " if status else ""
        raise ProfileError(f"{shown}: no launch was seen: {failed}is it a CUDA program, and did it end by itself?")
    chosen = max(recordings, key=lambda recording: len(recording.launches))
    if say is not None:
        if status and seconds is None:
            say(f"{shown}: ended with status {status}; what it launched until then is taken")
        if len(recordings) > 1:
            say(f"{shown}: {len(recordings)} processes launched kernels; that with most is taken, {chosen.process}")
    return chosen


def _check(command: Sequence[str], seconds: float | None, library: Path) -> None:
    if not command:
        raise ProfileError("no program was given: headway profile kernels -- python serve.py")
    if shutil.which(command[0]) is None:
        raise ProfileError(f"{command[0]}: there is no such program")
    if seconds is not None and not 0 < seconds < 86_400:
        raise ProfileError(f"--seconds {seconds:g}: must be more than 0 and less than a day")
    if not library.is_file():
        raise ProfileError(f"{library}: the shim is not there; headway share build makes it")


def _environment(
    place: Path, seconds: float | None, library: Path, program: str, more: Mapping[str, str] | None
) -> dict[str, str]:
    variables = {**os.environ, **(more or {})}
    variables.pop("HEADWAY_SHARE", None)  # a program is measured alone, not as a client of a broker
    loaded = variables.get("LD_PRELOAD", "")
    variables["LD_PRELOAD"] = f"{library.resolve()}:{loaded}" if loaded else str(library.resolve())
    variables["HEADWAY_TRACE"] = str(place / "trace")
    variables["HEADWAY_PROGRAM"] = program
    variables.pop("HEADWAY_TRACE_SECONDS", None)
    if seconds is not None:
        variables["HEADWAY_TRACE_SECONDS"] = f"{seconds:.3f}"
    return variables


def _ran(command: Sequence[str], seconds: float | None, environment: Mapping[str, str], place: Path) -> int:
    """Run the program and return its exit status; with ``seconds``, end it when its trace is written."""
    try:
        process = subprocess.Popen(
            list(command), env=dict(environment), stdin=subprocess.DEVNULL, stdout=_STDERR, start_new_session=True
        )
    except OSError as problem:
        raise ProfileError(f"{command[0]}: cannot be started ({problem.strerror or problem})") from None
    try:
        while process.poll() is None:
            if seconds is not None and _written(place):
                break
            time.sleep(_POLL_S)
    except KeyboardInterrupt:  # the program may write its trace yet
        _signal(process, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    finally:
        _end(process)
    return process.returncode


def _written(place: Path) -> bool:
    return any(path.suffix != ".part" for path in place.glob("trace.*"))


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and its children."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    _signal(process, signal.SIGKILL)
    process.wait()
