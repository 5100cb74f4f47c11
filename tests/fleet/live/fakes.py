"""A driver, a torch and an NVML that work on host memory and note what they are asked, for tests without a GPU."""
# ruff: noqa: N802 - functions are called as the driver calls them

import ctypes
import mmap
from types import SimpleNamespace
from typing import Any

from headway.device.gpu_memory import Meter

GRANULARITY = 1 << 16
CONTEXT = 0xC0


CONTEXTLESS = ("cuInit", "cuDeviceGet", "cuDeviceGetUuid", "cuDevicePrimaryCtxRetain", "cuGetErrorName")


class FakeLibrary:
    """A driver whose device memory is host memory; it notes its calls, and fails where it is told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}
        self.mapped: dict[int, int] = {}
        self.handles: set[int] = set()
        self.registered: list[int] = []
        self.contexts: list[int] = []
        self.mode = 0
        self._ranges: list[mmap.mmap] = []
        self._next = 1

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            needs_context = name not in CONTEXTLESS
            assert not needs_context or "PushCurrent" in name or self.contexts, f"{name} without a context"
            found: int = getattr(self, f"_{name}", lambda *_: 0)(*arguments) or 0
            return found

        return call

    def since(self) -> list[str]:
        """What was called since it was last asked, without the frame of every call."""
        found = [name for name in self.calls if "Current" not in name and "Mode" not in name]
        self.calls.clear()
        return found

    def _cuDevicePrimaryCtxRetain(self, context: Any, _: Any) -> None:
        context._obj.value = CONTEXT

    def _cuCtxPushCurrent_v2(self, context: Any) -> None:
        self.contexts.append(context.value)

    def _cuCtxPopCurrent_v2(self, _: Any) -> None:
        self.contexts.pop()

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> None:
        mode._obj.value, self.mode = self.mode, mode._obj.value

    def _cuDeviceGetUuid(self, found: Any, _: Any) -> None:
        found._obj[:] = bytes(range(16))

    def _cuMemGetAllocationGranularity(self, found: Any, *_: Any) -> None:
        found._obj.value = GRANULARITY

    def _cuMemAddressReserve(self, address: Any, size: Any, *_: Any) -> None:
        assert size.value % GRANULARITY == 0
        self._ranges.append(mmap.mmap(-1, size.value))
        address._obj.value = ctypes.addressof(ctypes.c_char.from_buffer(self._ranges[-1]))

    def _cuMemCreate(self, handle: Any, size: Any, *_: Any) -> None:
        handle._obj.value = self._next
        self.handles.add(self._next)
        self._next += 1

    def _cuMemMap(self, address: Any, size: Any, offset: Any, handle: Any, _: Any) -> None:
        assert handle.value in self.handles
        assert address.value not in self.mapped
        self.mapped[address.value] = size.value

    def _cuMemUnmap(self, address: Any, size: Any) -> None:
        assert self.mapped.pop(address.value) == size.value
        ctypes.memset(address.value, 0xEE, size.value)

    def _cuMemRelease(self, handle: Any) -> None:
        self.handles.remove(handle.value)

    def _cuMemHostRegister_v2(self, address: Any, size: Any, _: Any) -> None:
        assert address.value not in self.registered
        self.registered.append(address.value)

    def _cuMemcpyHtoDAsync_v2(self, target: Any, source: Any, size: Any, _: Any) -> None:
        assert any(begin <= target.value <= begin + length - size.value for begin, length in self.mapped.items())
        assert self.mode == 2, "a copy that a capture in another thread would forbid"
        ctypes.memmove(target.value, source.value, size.value)


class FakeTorch:
    """As much of torch as a budget needs."""

    def __init__(self) -> None:
        self.reserved = 0
        self.calls: list[Any] = []
        self.cuda = SimpleNamespace(
            get_device_properties=lambda _: SimpleNamespace(total_memory=1000),
            memory_reserved=lambda _: self.reserved,
            set_device=lambda index: self.calls.append(f"cuda:{index}"),
            empty_cache=lambda: self.calls.append("empty"),
            set_per_process_memory_fraction=lambda share, _: self.calls.append(round(share, 3)),
            synchronize=lambda index: self.calls.append(f"wait cuda:{index}"),
        )


class FakeMeter(Meter):
    """A driver that reports what it is told to."""

    def __init__(self, reported: int = 0) -> None:
        self.reported = reported

    def used_bytes(self) -> int:
        return self.reported


class FakeNvml:
    """The bindings of NVML."""

    class NVMLError(Exception):
        """Whatever goes wrong."""

    def __init__(self) -> None:
        self.processes: dict[int, int | None] = {}

    def nvmlInit(self) -> None:
        """Nothing to do."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-1":
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetComputeRunningProcesses(self, _: str) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes.items()]

    def nvmlDeviceGetMPSComputeRunningProcesses(self, _: str) -> list[Any]:
        raise self.NVMLError("not supported")

    def nvmlDeviceGetMemoryInfo(self, _: str) -> Any:
        return SimpleNamespace(used=sum(used or 0 for used in self.processes.values()))
