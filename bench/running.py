"""Run a training program on some CPUs, watch its steps, and stop it: what the benchmarks of real programs share.

Only the standard library, for machines where little is installed. A program that ends early or says nothing is an error
with the end of its output.
"""

import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_RECORD = struct.Struct("<qq")
_PR_SET_PDEATHSIG = 1


class ProgramError(Exception):
    """A program that could not be measured, with what it last said."""


class Steps:
    """The steps of a training program that runs, by the file that ``headway.step`` writes."""

    def __init__(self, name: str, steps: Path) -> None:
        self.name, self._steps = name, steps

    def records(self) -> list[tuple[int, int]]:
        """(monotonic nanoseconds, samples) of every step so far."""
        content = self._steps.read_bytes() if self._steps.exists() else b""
        whole = len(content) // _RECORD.size * _RECORD.size
        return list(_RECORD.iter_unpack(content[:whole]))

    def check(self) -> None:
        """Complain if it has ended."""

    def output(self, lines: int = 15) -> str:
        """The end of what it printed."""
        return ""

    def wait_for_steps(self, count: int, limit_s: float) -> None:
        """Until so many steps are done."""
        until = time.monotonic() + limit_s
        while len(self.records()) < count:
            self.check()
            if time.monotonic() > until:
                raise ProgramError(f"{self.name} made under {count} steps in {limit_s:g} s:\n{self.output()}")
            time.sleep(0.1)

    def rate(self, begin: int, end: int) -> float:
        """Samples a second between two times, from the last step before the first to the last before the second."""
        inside = [record for record in self.records() if begin <= record[0] <= end]
        if len(inside) < 2:
            raise ProgramError(f"{self.name} made {len(inside)} steps in {(end - begin) / 1e9:.1f} s:\n{self.output()}")
        return sum(samples for _, samples in inside[1:]) / (inside[-1][0] - inside[0][0]) * 1e9


class Program(Steps):
    """A training program that runs."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        cpus: float,
        only: Iterable[int] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """``only`` are the CPUs it may use; it is told that it has ``cpus``."""
        self._folder = tempfile.TemporaryDirectory(prefix="headway-bench-")
        super().__init__(name, Path(self._folder.name) / "steps")
        self._said = Path(self._folder.name) / "output"
        threads = str(max(1, int(cpus)))
        told = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONUNBUFFERED": "1",
            "HEADWAY_STEPS": str(self._steps),
            "HEADWAY_CPUS": f"{cpus:g}",
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            **(environment or {}),
        }
        allowed = set(only) if only is not None else None

        def begin() -> None:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if allowed is not None:
                os.sched_setaffinity(0, allowed)

        with self._said.open("wb") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                env=told,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=begin,
            )

    def check(self) -> None:
        """Complain if it has ended."""
        if self._process.poll() is not None:
            raise ProgramError(f"{self.name} ended with status {self._process.returncode}:\n{self.output()}")

    def output(self, lines: int = 15) -> str:
        """The end of what it printed."""
        return "\n".join(self._said.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """Ask it to end, so that it can leave the GPU in order; then end whatever is left of it."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(15)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()


def measured(programs: Sequence[Steps], *, warm_steps: int, warm_s: float, window_s: float) -> list[float]:
    """Samples a second of programs that run at the same time, over one window after all are warm."""
    for program in programs:
        program.wait_for_steps(warm_steps, 120)
    time.sleep(warm_s)
    begin = time.monotonic_ns()
    until = time.monotonic() + window_s
    while time.monotonic() < until:
        time.sleep(min(0.5, max(0.0, until - time.monotonic())))
        for program in programs:
            program.check()
    end = time.monotonic_ns()
    return [program.rate(begin, end) for program in programs]


def python() -> str:
    """The interpreter that runs the programs: this one."""
    return sys.executable
