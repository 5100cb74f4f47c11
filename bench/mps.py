"""NVIDIA's MPS daemon: without it the kernels of two programs never run at the same time."""

import os
import subprocess
import tempfile
import time
from pathlib import Path


class Mps:
    """The daemon through which two programs share the GPU at the same time; each one in folders of its own."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def environment(self, percent: int = 100) -> dict[str, str]:
        """What a client needs to find the daemon, and to have so much of the SMs."""
        return {**self._meeting(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{percent}"}

    def _meeting(self) -> dict[str, str]:
        assert self._folder is not None, "restart comes first"
        return {"CUDA_MPS_PIPE_DIRECTORY": f"{self._folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{self._folder}/log"}

    def restart(self) -> None:
        """End the daemon if there is one, start another."""
        self.end()
        self._folder = Path(tempfile.mkdtemp(prefix="headway-mps-"))
        for folder in self._meeting().values():
            Path(folder).mkdir()
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **self._meeting()}, check=True)

    def end(self) -> None:
        """Tell the daemon to go, and wait until it has."""
        if self._folder is None:
            return
        try:
            self._tell("quit\n", 20)
            for _ in range(50):
                if self._tell("get_server_list\n", 5).returncode:
                    break
                time.sleep(0.1)
        except subprocess.TimeoutExpired:
            print("the MPS daemon does not answer; a new one is started beside it")
        self._folder = None

    def _tell(self, order: str, limit_s: float) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["nvidia-cuda-mps-control"],
            input=order,
            env={**os.environ, **self._meeting()},
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )

    def terminate(self, pid: int) -> None:
        """Take a client off the GPU: its work ends, the others' does not."""
        for server in self._tell("get_server_list\n", 5).stdout.split():
            self._tell(f"terminate_client {server} {pid}\n", 10)

    def said(self) -> str:
        """The end of the daemon's logs, for a look at what went wrong."""
        found = sorted((self._folder / "log").glob("*.log")) if self._folder else []
        return "\n".join(f"{log.name}: {line}" for log in found for line in log.read_text().splitlines()[-12:])
