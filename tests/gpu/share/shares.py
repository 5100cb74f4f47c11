"""A place for a broker, a client that is this very process, and stand-ins for NVIDIA's programs."""

import os
import stat
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from headway.device import processes
from headway.device.locks import Place
from headway.gpu.control.dial import Dial
from headway.gpu.share.block.block import LEFT, LIVE, SharedBlock, Slot
from headway.gpu.share.broker.broker import Broker


class Memory:
    """A store that keeps what it is given."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}
        self.pairs: dict[tuple[str, str], dict[str, Any]] = {}

    def learnt(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {pair: dict(row) for pair, row in self.pairs.items()}

    def save_learnt(self, learnt: dict[tuple[str, str], dict[str, Any]]) -> None:
        self.pairs = {**self.pairs, **{pair: {**self.pairs.get(pair, {}), **row} for pair, row in learnt.items()}}

    def load(self, program: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]] | None:
        return self.kept.get(program)

    def save(self, program: str, kernels: list[dict[str, Any]], steps: list[dict[str, Any]]) -> None:
        self.kept[program] = (kernels, steps)


def broker_at(folder: Path, **options: Any) -> tuple[Broker, SharedBlock, list[str]]:
    """A broker with a fresh block, and the lines that it says."""
    place = Place(folder, 0)
    block = SharedBlock.create(place.block, 132, time.monotonic_ns())
    said: list[str] = []
    return Broker(place, block, options.pop("dial", Dial()), say=said.append, **options), block, said


def join(block: SharedBlock, index: int, *, name: str, priority: int, pid: int | None = None, ticks: int = -1) -> Slot:
    """Do what the shim does at a program's first launch."""
    slot: Slot = block.slots[index]
    owner = os.getpid() if pid is None else pid
    slot.priority, slot.since_ns, slot.owner = priority, time.monotonic_ns(), owner
    slot.start_ticks = processes.start_ticks(owner) if ticks < 0 else ticks
    slot.name, slot.program = name.encode(), f"{name}.py".encode()
    slot.state = LIVE
    return slot


def leave(slot: Slot) -> None:
    """And at its end."""
    slot.state = LEFT


def program_at(path: Path, body: str) -> Path:
    """A program of Python that stands in for another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


MPS_CONTROL = """
    import os, subprocess, sys
    from pathlib import Path

    pipe = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    mark, heard = pipe / "nvidia-cuda-mps-control.pid", pipe.parent / "heard"
    if sys.argv[1:] == ["-d"]:
        if os.environ.get("MPS_REFUSES"):
            (Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "control.log").write_text("no permission")
            sys.exit(1)
        daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
        mark.write_text(str(daemon.pid))
        sys.exit(0)
    if not mark.exists():
        sys.exit(1)
    line = sys.stdin.read().strip()
    with heard.open("a") as file:
        file.write(line + chr(10))
    if line == "get_server_list":
        print(7)
    elif line.startswith("get_client_list"):
        clients = pipe.parent / "clients"
        print(clients.read_text() if clients.exists() else "")
    elif line == "quit":
        os.kill(int(mark.read_text()), 9)
        mark.unlink()
"""
"""Stands in for NVIDIA's control of MPS: its daemon sleeps, its clients are those in a file."""
