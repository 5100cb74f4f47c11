"""What both training programs need of the machine: their CPUs, reads past the page cache, and a device.

The device is a GPU, the CPUs, or a stand-in: the model is trained on the CPUs, and a step is held until the time has
passed that a real accelerator would take. It stands for one on a machine that has none; its speed is a number you give.
"""

import math
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

PAGE_BYTES = 4096


def cpus() -> float:
    """The CPUs this program was given."""
    told = os.environ.get("HEADWAY_CPUS", "")
    return float(told) if told else float(len(os.sched_getaffinity(0)))


def whole_cpus() -> int:
    """Threads or processes that can work at once."""
    return max(1, math.ceil(cpus()))


def leave_when_told() -> None:
    """End as at the end of the program when asked to: a GPU that is shared wants its users to say goodbye."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def read(path: str | Path, offset: int = 0, length: int | None = None, *, direct: bool = False) -> bytes:
    """Bytes of a file; ``direct`` reads from the disk itself, in whole pages, and leaves the page cache out."""
    try:
        file = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    except OSError as problem:
        sys.exit(f"{path}: cannot be read{' directly' if direct else ''}: {problem.strerror}")
    try:
        wanted = os.fstat(file).st_size - offset if length is None else length
        if not direct:
            return os.pread(file, wanted, offset)
        begin = offset // PAGE_BYTES * PAGE_BYTES
        room = -(-(offset + wanted - begin) // PAGE_BYTES) * PAGE_BYTES
        with mmap.mmap(-1, room) as aligned:
            os.preadv(file, [aligned], begin)
            return aligned[offset - begin : offset - begin + wanted]
    finally:
        os.close(file)


class Device:
    """Where steps run, and how long one takes at least."""

    def __init__(self, name: str, step_ms: float) -> None:
        chosen = ("cuda" if torch.cuda.is_available() else "stand-in") if name == "auto" else name
        self.stand_in = chosen == "stand-in"
        self.cuda = chosen == "cuda"
        self.torch = torch.device("cuda" if self.cuda else "cpu")
        self._step_s = step_ms / 1000
        print(f"device: {chosen}" + (f", {step_ms:g} ms a step" if self.stand_in else ""), flush=True)

    def step(self, train: Callable[[], Any]) -> Any:
        """Train one step; on the stand-in no sooner done than the accelerator would be."""
        begun = time.monotonic()
        loss = train()
        if self.stand_in and (left := self._step_s - (time.monotonic() - begun)) > 0:
            time.sleep(left)
        return loss
