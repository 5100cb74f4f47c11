"""Processes that run networks on a share of a GPU's SMs: start them, send them orders, end them.

A share is a number of sevenths, as MIG divides a GPU. NVIDIA's MPS gives a process its percentage of the SMs when the
process starts; memory bandwidth and the L2 cache stay shared.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from headway.errors import ProfileError
from headway.fleet.model.fleet import WHOLE, percent_of

SHARES = WHOLE
LONGEST_S = 240.0
"""Timeout for one answer."""


class Mps:
    """A daemon of NVIDIA's MPS, with its own folders."""

    def __init__(self) -> None:
        """Start the daemon."""
        self._folder = tempfile.TemporaryDirectory(prefix="headway-mps-")
        for folder in self._mps_folders().values():
            Path(folder).mkdir()
        try:
            self._tell(["-d"], "", 20)
            self._tell([], "get_default_active_thread_percentage\n", 10)
        except FileNotFoundError:
            self.end()
            raise ProfileError("nvidia-cuda-mps-control is not installed") from None
        except (OSError, subprocess.SubprocessError) as problem:
            self.end()
            raise ProfileError(f"the MPS daemon does not start: {problem}") from None

    def environment(self, share: int) -> dict[str, str]:
        """Return the environment of a process with this share of the SMs."""
        return {**self._mps_folders(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{percent_of(share)}"}

    def _mps_folders(self) -> dict[str, str]:
        place = self._folder.name
        return {"CUDA_MPS_PIPE_DIRECTORY": f"{place}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{place}/log"}

    def _tell(self, arguments: list[str], order: str, limit_s: float) -> None:
        # Output is discarded: the daemon keeps inherited files open, and a pipe would never end.
        subprocess.run(
            ["nvidia-cuda-mps-control", *arguments],
            input=order,
            text=True,
            env={**os.environ, **self._mps_folders()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=limit_s,
            check=True,
        )

    def end(self) -> None:
        """Stop the daemon."""
        with suppress(OSError, subprocess.SubprocessError):
            self._tell([], "quit\n", 20)
        with suppress(OSError):
            self._folder.cleanup()


class Worker:
    """A process that loads networks and times them."""

    def __init__(
        self,
        device: str,
        environment: dict[str, str] | None = None,
        log: Path | None = None,
        program: str = "headway.fleet.profiling.model_worker",
    ) -> None:
        """Start the process, on a share of the GPU if the environment says so; its output goes to ``log``."""
        source = str(Path(__file__).parents[3])
        paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._said = (log or Path(os.devnull)).open("ab")
        # Waiting threads of torch would otherwise spin on the few CPUs that other threads of the process need.
        calm = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
        self.spawned_ns = time.monotonic_ns()
        self._process = subprocess.Popen(
            [sys.executable, "-m", program, device],
            env={**os.environ, "PYTHONPATH": paths, **calm, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )
        self._rest = b""
        try:
            self.about = self.answer()
        except BaseException:
            self.end()
            raise

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        """Send an order and return its answer."""
        self.tell(do, **order)
        return self.answer()

    def tell(self, do: str, **order: Any) -> None:
        """Send an order; ``answer`` returns its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ProfileError(self._ended()) from None

    def answer(self, limit_s: float = LONGEST_S) -> dict[str, Any]:
        """Wait for the next answer and return it."""
        until = time.monotonic() + limit_s
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            if not select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
                raise ProfileError(f"a network that is measured has not answered for {limit_s:g} s")
            if not (more := os.read(pipe, 1 << 16)):
                raise ProfileError(self._ended())
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        if refused := reply.get("refused"):
            raise ProfileError(refused)
        return reply

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        return f"the process that runs the network ended with status {self._process.returncode}"

    def end(self) -> None:
        """Close its input, at which it ends; kill what is left of it."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(15)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._said.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
