"""What a worker computes on: a CPU, or a GPU by the driver's virtual memory functions (``cuda.py``)."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from headway.errors import InputError
from headway.live.serving.ranges import CpuRange, Range


class Device(Protocol):
    """A place for models and their batches."""

    overhead_bytes: int
    """What the process takes there besides models and activations."""

    def reserve(self, size_bytes: int) -> Range:
        """Return a range of addresses for a model."""

    def share(self, models_bytes: int) -> None:
        """Leave activations what so many bytes of models leave of the budget."""

    def use_cpus(self, cpus: int) -> None:
        """Let the calling thread compute on so many CPUs."""

    def wait(self) -> None:
        """Wait until what the calling thread asked of the device is done."""

    def used_bytes(self, models_bytes: int) -> tuple[int, int]:
        """Return the bytes of models and activations by our own count, and what the device reports; 0: nothing."""


class Threads(threading.local):
    """How many CPUs torch uses in each thread; a change costs microseconds, so it is remembered."""

    cpus = 0

    def use(self, cpus: int) -> None:
        """Let torch compute on so many CPUs in the calling thread."""
        if cpus != self.cpus and (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(max(1, cpus))
            self.cpus = cpus


class Cpu:
    """The memory and the cores of this machine."""

    def __init__(self) -> None:
        self.overhead_bytes = 0
        self._threads = Threads()

    def reserve(self, size_bytes: int) -> Range:
        """Return a range in the memory of this process."""
        return CpuRange(size_bytes)

    def share(self, models_bytes: int) -> None:
        """Do nothing: nobody counts what functions allocate on a CPU."""

    def use_cpus(self, cpus: int) -> None:
        """Let the calling thread compute on so many CPUs."""
        self._threads.use(cpus)

    def wait(self) -> None:
        """Do nothing: a function has computed when it returns."""

    def used_bytes(self, models_bytes: int) -> tuple[int, int]:
        """Return the bytes of models."""
        return models_bytes, 0


def device_named(name: str, memory_bytes: int, folder: Path, say: Callable[[str], None]) -> Device:
    """Return a device by name: ``cpu``, ``cuda:0``; raise InputError where there is no such thing."""
    if name == "cpu":
        return Cpu()
    kind, _, number = name.partition(":")
    if kind == "cuda" and (number or "0").isdigit():
        from headway.live.serving.cuda import open_gpu

        return open_gpu(int(number or 0), memory_bytes, folder, say)
    raise InputError(f"device {name!r}: must be cpu or cuda:NUMBER")
