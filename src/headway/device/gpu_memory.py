"""What the driver says that processes take on a GPU, by NVML; nothing where its bindings are not installed."""

import importlib
import os
from typing import Any


class Meter:
    """Reads the memory of one GPU."""

    def __init__(self, uuid: str) -> None:
        self.process = os.getpid()
        """This process as the driver numbers it: in a container that is another number."""
        self._nvml: Any = None
        try:
            nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            return
        try:
            nvml.nvmlInit()
            self._gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = nvml
        except nvml.NVMLError:
            return

    def by_process(self) -> dict[int, int]:
        """Return the bytes of each process, also of those that share the GPU by MPS."""
        found: dict[int, int] = {}
        for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
            if self._nvml is None or not hasattr(self._nvml, name):
                continue
            try:
                for each in getattr(self._nvml, name)(self._gpu):
                    found[each.pid] = max(found.get(each.pid, 0), each.usedGpuMemory or 0)
            except self._nvml.NVMLError:
                continue
        return found

    def learn(self, before: dict[int, int]) -> None:
        """Learn our number: ours, or that of the one process that was not there before."""
        now = self.by_process()
        new = [process for process in now if process not in before]
        if self.process not in now and len(new) == 1:
            self.process = new[0]

    def used_bytes(self) -> int:
        """Return what this process takes; 0: the driver does not say."""
        return self.by_process().get(self.process, 0)

    def all_bytes(self) -> int:
        """Return what is taken of the GPU by all; 0: the driver does not say."""
        if self._nvml is None:
            return 0
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(self._gpu).used)
        except self._nvml.NVMLError:
            return 0
