"""What a worker computes on: a CPU, or a GPU by the driver's virtual memory functions (``gpu.py``)."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from headway.errors import InputError
from headway.fleet.live.weights.ranges import CpuRange, Range
from headway.program.threads import Threads


class Fault(NamedTuple):
    """Why a process can no longer use its device: only a new one can."""

    reason: str
    is_own: bool
    """Whether it is of our own making, not of another process that shares the device by MPS."""


class Device(Protocol):
    """A place for models and their batches."""

    overhead_bytes: int
    """What the process takes there besides models and activations."""

    def reserve(self, size_bytes: int) -> Range:
        """Return a range of addresses for a model."""

    def share(self, models_bytes: int) -> None:
        """Leave activations what so many bytes of models leave of the budget."""

    def trim(self) -> None:
        """Give back memory that is kept for later."""

    def use_cpus(self, cpus: int) -> None:
        """Let the calling thread compute on so many CPUs."""

    def wait(self) -> None:
        """Wait until what the calling thread asked of the device is done."""

    def fault(self) -> Fault | None:
        """Return why this process can no longer use the device; None: it can."""

    def used_bytes(self, models_bytes: int) -> tuple[int, int]:
        """Return the bytes of models and activations by our own count, and what the device reports; 0: nothing."""


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

    def trim(self) -> None:
        """Do nothing: what is freed is free."""

    def use_cpus(self, cpus: int) -> None:
        """Let the calling thread compute on so many CPUs."""
        self._threads.use(cpus)

    def wait(self) -> None:
        """Do nothing: a function has computed when it returns."""

    def fault(self) -> Fault | None:
        """Return None: a fault of a CPU ends the process."""
        return None

    def used_bytes(self, models_bytes: int) -> tuple[int, int]:
        """Return the bytes of models."""
        return models_bytes, 0


def device_named(name: str, memory_bytes: int, folder: Path, say: Callable[[str], None]) -> Device:
    """Return a device by name: ``cpu``, ``cuda:0``; raise InputError where there is no such thing."""
    if name == "cpu":
        return Cpu()
    kind, _, number = name.partition(":")
    if kind == "cuda" and (number or "0").isdigit():
        from headway.fleet.live.weights.gpu import open_gpu

        return open_gpu(int(number or 0), memory_bytes, folder, say)
    raise InputError(f"device {name!r}: must be cpu or cuda:NUMBER")
