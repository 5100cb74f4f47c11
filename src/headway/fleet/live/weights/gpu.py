"""A GPU as a worker uses it: ranges for models, and a limit for what torch allocates, within one budget.

The budget holds the context and its libraries, models, and what torch allocates: activations, and pools of CUDA graphs.
"""

import ctypes
import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.device.gpu_memory import Meter
from headway.errors import InputError
from headway.fleet.live.weights.cuda import MPS_CODES, Driver, GpuRange
from headway.fleet.live.weights.device import Fault
from headway.fleet.live.weights.ranges import Range
from headway.program.threads import Threads

ASSUMED_OVERHEAD_BYTES = 700 << 20
"""Of context and libraries where the driver does not say: what an H200 takes."""


class Gpu:
    """One GPU and this process's budget on it."""

    def __init__(
        self,
        driver: Driver,
        torch: Any,
        meter: Meter,
        memory_bytes: int,
        overhead_bytes: int,
        say: Callable[[str], None],
    ) -> None:
        self.overhead_bytes = overhead_bytes
        self._driver, self._torch, self._meter, self._say = driver, torch, meter, say
        self._memory_bytes = memory_bytes
        self._total_bytes = int(torch.cuda.get_device_properties(driver.index).total_memory)
        self._now_bytes = overhead_bytes
        """The overhead as last measured: libraries load their kernels when they are first used."""
        self._threads = Threads()

    def reserve(self, size_bytes: int) -> Range:
        """Return a range of addresses for a model."""
        return GpuRange(self._driver, size_bytes, self._say)

    def share(self, models_bytes: int) -> None:
        """Leave activations what so many bytes of models leave of the budget."""
        cuda, index = self._torch.cuda, self._driver.index
        free = max(0, self._memory_bytes - self._now_bytes - models_bytes)
        with self._driver.current():
            if cuda.memory_reserved(index) > free:
                cuda.empty_cache()
            cuda.set_per_process_memory_fraction(min(1.0, free / self._total_bytes), index)

    def trim(self) -> None:
        """Give back what torch keeps for later."""
        with self._driver.current():
            self._torch.cuda.empty_cache()

    def use_cpus(self, cpus: int) -> None:
        """Let the calling thread compute on this GPU and so many CPUs."""
        self._torch.cuda.set_device(self._driver.index)
        self._threads.use(cpus)

    def wait(self) -> None:
        """Wait until all that this process asked of the GPU is done, on whatever stream: then its models may go.

        A model that is being copied meanwhile is waited for by the chunk, not to its end.
        """
        self._torch.cuda.synchronize(self._driver.index)

    def fault(self) -> Fault | None:
        """Return why the context is dead: an illegal address of ours, say, or of another client of MPS."""
        code = self._driver.state()
        return Fault(f"the GPU's context is dead: {self._driver.named(code)}", code not in MPS_CODES) if code else None

    def used_bytes(self, models_bytes: int) -> tuple[int, int]:
        """Return the bytes of models and of torch, and what the driver reports for the process; 0: nothing."""
        ours = models_bytes + int(self._torch.cuda.memory_reserved(self._driver.index))
        reported = self._meter.used_bytes()
        if reported:
            self._now_bytes = max(self.overhead_bytes, reported - ours)
        return ours, reported


def open_gpu(index: int, memory_bytes: int, folder: Path, say: Callable[[str], None]) -> Gpu:
    """Return a GPU of this machine, its context made and its overhead measured; raise InputError where it has none."""
    import torch

    try:
        driver = Driver(ctypes.CDLL("libcuda.so.1"), index)
    except OSError:
        raise InputError(f"device cuda:{index}: there is no CUDA driver here; use cpu") from None
    folder.mkdir(parents=True, exist_ok=True)
    meter = Meter(driver.uuid())
    with (folder / f"cuda-{index}.lock").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # one at a time: who is new on the GPU is us
        before, all_before = meter.by_process(), meter.all_bytes()
        driver.open()
        torch.cuda.set_device(index)
        side = torch.ones(64, 64, device=f"cuda:{index}")
        (side @ side).sum().item()  # libraries take their memory with the first product
        meter.learn(before)
        overhead = meter.used_bytes() or max(0, meter.all_bytes() - all_before)
        fcntl.flock(turn, fcntl.LOCK_UN)
    overhead = overhead - torch.cuda.memory_reserved(index) if overhead else ASSUMED_OVERHEAD_BYTES
    if overhead >= memory_bytes:
        raise InputError(f"device cuda:{index}: the context takes {overhead} bytes, the budget is {memory_bytes}")
    gpu = Gpu(driver, torch, meter, memory_bytes, overhead, say)
    gpu.share(0)
    return gpu
