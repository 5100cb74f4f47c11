"""Memory of models on a GPU: virtual addresses for the worker's life, physical pages while a model is resident.

The driver's virtual memory functions, through ctypes. Tensors over a range keep their addresses when the model goes and
comes back, so that CUDA graphs captured over its weights stay valid. Copies go over a stream of their own and overlap
with what runs.
"""

import ctypes
import mmap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from headway.fleet.live.weights.host import Source
from headway.fleet.live.weights.memory import DriverError
from headway.fleet.live.weights.safetensors import aligned

_CHUNK_BYTES = 64 << 20
"""Of one copy: 1.2 ms at 55 GB/s, after which another thread's copy has its turn, and a batch that ends its end."""
_STAGE_BYTES = 16 << 20
_READ_WRITE = 3
_RELAXED = 2
_NON_BLOCKING = 1
_NOT_READY = 600
MPS_CODES = range(805, 811)
"""Errors of MPS itself: the process of another client has ended its server, or there is none."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _AllocationProperties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class Driver:
    """The CUDA driver, for one GPU; any thread may call."""

    def __init__(self, library: Any, index: int) -> None:
        self._library = library
        self.index = index
        self._device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._location = _Location(1, index)
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(index))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; raise DriverError where it fails."""
        if code := getattr(self._library, name)(*arguments):
            raise DriverError(name, code)

    def state(self) -> int:
        """Return the error that the context is in, without waiting for what runs; 0: none."""
        try:
            with self.current():
                code = int(self._library.cuStreamQuery(self._stream))
        except DriverError as problem:
            return problem.code
        return 0 if code == _NOT_READY else code

    def named(self, code: int) -> str:
        """Return the driver's name of an error."""
        text = ctypes.c_char_p()
        found = self._library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text)) == 0 and text.value
        return f"{found.decode()} ({code})" if found else f"error {code}"

    def uuid(self) -> str:
        """Return the name of the GPU that no other has, as NVML writes it."""
        found = (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid", ctypes.byref(found), self._device)
        text = bytes(found).hex()
        return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def open(self) -> None:
        """Make the context that torch uses too, and the stream for copies."""
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self._stream = ctypes.c_void_p()
        granularity, properties = ctypes.c_size_t(), self._properties()
        with self.current():
            self.call("cuStreamCreate", ctypes.byref(self._stream), ctypes.c_uint(_NON_BLOCKING))
            self.call(
                "cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(properties), ctypes.c_int(0)
            )
        self.granularity = granularity.value
        self._stage: mmap.mmap | None = None
        self._stage_turn = threading.Lock()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Have the context current in the calling thread, and let it work while another thread captures a graph."""
        mode = ctypes.c_int(_RELAXED)
        self.call("cuCtxPushCurrent_v2", self._context)
        try:
            self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
            try:
                yield
            finally:
                self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _properties(self) -> _AllocationProperties:
        return _AllocationProperties(1, 0, self._location)

    def reserve(self, size_bytes: int) -> int:
        """Return the address of a new range of virtual memory."""
        address, zero = ctypes.c_uint64(), ctypes.c_uint64(0)
        with self.current():
            size = ctypes.c_size_t(size_bytes)
            self.call("cuMemAddressReserve", ctypes.byref(address), size, ctypes.c_size_t(0), zero, zero)
        return address.value

    def map(self, address: int, size_bytes: int) -> int:
        """Put new physical memory behind a range; return its handle. Where a step fails, none of it stays."""
        handle, size, no_flags = ctypes.c_uint64(), ctypes.c_size_t(size_bytes), ctypes.c_ulonglong(0)
        place, properties = ctypes.c_uint64(address), self._properties()
        access = _Access(self._location, _READ_WRITE)
        with self.current():
            self.call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties), no_flags)
            try:
                self.call("cuMemMap", place, size, ctypes.c_size_t(0), handle, no_flags)
                try:
                    self.call("cuMemSetAccess", place, size, ctypes.byref(access), ctypes.c_size_t(1))
                except DriverError:
                    self.call("cuMemUnmap", place, size)
                    raise
            except DriverError:
                self.call("cuMemRelease", handle)
                raise
        return handle.value

    def unmap(self, address: int, size_bytes: int, handle: int) -> None:
        """Give the physical memory behind a range back."""
        with self.current():
            self.call("cuMemUnmap", ctypes.c_uint64(address), ctypes.c_size_t(size_bytes))
            self.call("cuMemRelease", ctypes.c_uint64(handle))

    def register(self, memory: mmap.mmap) -> None:
        """Pin host memory, so that copies from it run at the speed of the link and beside the GPU's work."""
        with self.current():
            place = ctypes.c_void_p(_address(memory))
            self.call("cuMemHostRegister_v2", place, ctypes.c_size_t(len(memory)), ctypes.c_uint(0))

    def copy(self, address: int, host: int, size_bytes: int) -> None:
        """Copy host memory to the GPU; return when it is there."""
        with self.current():
            for begin in range(0, size_bytes, _CHUNK_BYTES):
                size = ctypes.c_size_t(min(_CHUNK_BYTES, size_bytes - begin))
                target, source = ctypes.c_uint64(address + begin), ctypes.c_void_p(host + begin)
                self.call("cuMemcpyHtoDAsync_v2", target, source, size, self._stream)
                self.call("cuStreamSynchronize", self._stream)

    def copy_staged(self, address: int, size_bytes: int, read: Callable[[int, memoryview], None]) -> None:
        """Copy what ``read`` writes, from some byte on, into the memory it is given; return when it is there."""
        with self._stage_turn:
            if self._stage is None:
                self._stage = mmap.mmap(-1, _STAGE_BYTES)
                self.register(self._stage)
            for begin in range(0, size_bytes, _STAGE_BYTES):
                size = min(_STAGE_BYTES, size_bytes - begin)
                with memoryview(self._stage) as whole, whole[:size] as part:
                    read(begin, part)
                self.copy(address + begin, _address(self._stage), size)


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class GpuRange:
    """A range of addresses on a GPU."""

    def __init__(self, driver: Driver, size_bytes: int, say: Callable[[str], None]) -> None:
        self.size_bytes = aligned(size_bytes, driver.granularity)
        self.address = driver.reserve(self.size_bytes)
        self._driver = driver
        self.link = f"link of GPU {driver.index}"
        self._say = say
        self._handle: int | None = None
        self._host: mmap.mmap | None = None

    def attach(self, source: Source) -> None:
        """Pin the copy in host memory; where that is refused, copies from it are slower."""
        if source.shared and self._host is None:
            self._host = mmap.mmap(source.handle, 0)
            try:
                self._driver.register(self._host)
            except DriverError as problem:
                self._say(f"{source.path} is not pinned ({problem}): it is copied at a fraction of the link's speed")

    def map(self) -> None:
        """Put pages behind the addresses."""
        self._handle = self._driver.map(self.address, self.size_bytes)

    def fill(self, source: Source) -> None:
        """Copy the weights of a model here."""
        self.attach(source)
        for piece in source.pieces:
            target = self.address + piece.begin
            if source.shared and self._host is not None:
                self._driver.copy(target, _address(self._host) + piece.file, piece.size_bytes)
            else:
                self._driver.copy_staged(target, piece.size_bytes, partial(source.read_piece, piece))

    def write(self, begin: int, values: memoryview) -> None:
        """Copy some bytes here."""

        def read(skip: int, part: memoryview) -> None:
            part[:] = values[skip : skip + part.nbytes]

        self._driver.copy_staged(self.address + begin, values.nbytes, read)

    def unmap(self) -> None:
        """Give the pages back."""
        if self._handle is not None:
            self._driver.unmap(self.address, self.size_bytes, self._handle)
            self._handle = None

    def flat(self) -> Any:
        """Return the range as a tensor of bytes; it is mapped, for torch asks the driver where it lies."""
        import torch

        view = {"shape": (self.size_bytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}
        holder = type("Holder", (), {"__cuda_array_interface__": view})()
        with self._driver.current():
            return torch.as_tensor(holder, device=f"cuda:{self._driver.index}")
