"""Measure what keeping models in GPU memory by virtual addresses costs: ``python -m bench.gpu_residency OUT.jsonl``.

A model gets a range of virtual addresses for life. Physical memory is mapped there while the model is resident, so that
a CUDA graph captured over its weights stays valid after they went and came back. Measured on one GPU: mapping and
unmapping by size, copies from host memory (pageable, pinned, shared memory registered with CUDA), a graph replayed
after its weights were somewhere else, copies beside computing, and two processes copying at once.

One JSON line a measurement; times in milliseconds, rates in GB/s. Needs torch and a driver, nothing else of headway.
"""

import ctypes
import json
import multiprocessing as mp
import sys
import time
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import torch

MB, GB = 1 << 20, 1 << 30
_DRIVER = ctypes.CDLL("libcuda.so.1")


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


_DEVICE = _Location(1, 0)
_READ_WRITE = 3


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver; raise with its number where it fails."""
    if code := getattr(_DRIVER, name)(*arguments):
        raise RuntimeError(f"{name} failed with {code}")


class Range:
    """A reserved range of virtual addresses, backed by physical memory while it is mapped."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.address, zero = ctypes.c_uint64(), ctypes.c_uint64(0)
        call("cuMemAddressReserve", ctypes.byref(self.address), ctypes.c_size_t(size), zero, zero, zero)
        self._handle = ctypes.c_uint64()

    def map(self) -> None:
        """Create physical memory and map it here."""
        properties = _AllocationProperties(1, 0, _DEVICE)
        size = ctypes.c_size_t(self.size)
        call("cuMemCreate", ctypes.byref(self._handle), size, ctypes.byref(properties), ctypes.c_ulonglong(0))
        call("cuMemMap", self.address, size, ctypes.c_size_t(0), self._handle, ctypes.c_ulonglong(0))
        access = _Access(_DEVICE, _READ_WRITE)
        call("cuMemSetAccess", self.address, size, ctypes.byref(access), ctypes.c_size_t(1))

    def unmap(self) -> None:
        """Unmap it and give the physical memory back."""
        call("cuMemUnmap", self.address, ctypes.c_size_t(self.size))
        call("cuMemRelease", self._handle)

    def tensor(self, rows: int, columns: int) -> torch.Tensor:
        """Return bfloat16 weights at the beginning of the range."""
        view = {"shape": (rows * columns,), "typestr": "<i2", "data": (self.address.value, False), "version": 3}
        holder = type("Holder", (), {"__cuda_array_interface__": view})()
        return torch.as_tensor(holder, device="cuda").view(torch.bfloat16).view(rows, columns)


def timed(action: Callable[[], object]) -> float:
    """Return how many milliseconds an action takes until the GPU has done it."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    action()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3


def median(values: list[float]) -> float:
    """Return the middle one of some values."""
    return sorted(values)[len(values) // 2]


def mapping(write: Callable[..., None]) -> None:
    """Measure mapping and unmapping by size."""
    for size in (2 * MB, 64 * MB, 512 * MB, 2 * GB, 8 * GB, 32 * GB):
        place = Range(size)
        maps, unmaps = [], []
        for _ in range(7):
            maps.append(timed(place.map))
            unmaps.append(timed(place.unmap))
        write("map", bytes=size, map_ms=median(maps), map_first_ms=maps[0], unmap_ms=median(unmaps))


def _copies(source: torch.Tensor, target: torch.Tensor, times: int = 5) -> float:
    """Return GB/s of copying one tensor into another, the best of some tries."""
    best = min(timed(lambda: target.copy_(source, non_blocking=True)) for _ in range(times))
    return source.numel() * source.element_size() / best / 1e6


def copying(write: Callable[..., None]) -> None:
    """Measure copies from host memory of each kind, in chunks and whole."""
    for size in (2 * MB, 64 * MB, 2 * GB):
        target = torch.empty(size, dtype=torch.uint8, device="cuda")
        pageable = torch.ones(size, dtype=torch.uint8)
        began = time.perf_counter()
        pinned = pageable.pin_memory()
        pin_ms = (time.perf_counter() - began) * 1e3
        shared = SharedMemory(create=True, size=size)
        view = torch.frombuffer(shared.buf, dtype=torch.uint8, count=size)
        view.fill_(1)
        began = time.perf_counter()
        torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(view.data_ptr(), size, 0))
        register_ms = (time.perf_counter() - began) * 1e3
        write(
            "copy",
            bytes=size,
            pageable_gb_s=_copies(pageable, target),
            pinned_gb_s=_copies(pinned, target),
            registered_gb_s=_copies(view, target),
            back_gb_s=_copies(target, pinned),
            pin_ms=pin_ms,
            register_ms=register_ms,
        )
        torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(view.data_ptr()))
        del view, target
        shared.unlink()


def graphs(write: Callable[..., None]) -> None:
    """Replay a graph after its weights went away, other physical memory came, and they were copied in again."""
    side, layers = 8192, 8
    place = Range(side * side * 2 * layers)
    place.map()
    torch.manual_seed(0)
    host = (torch.randn(layers * side, side, dtype=torch.float32) / side**0.5).to(torch.bfloat16).pin_memory()
    weights = place.tensor(layers * side, side)
    weights.copy_(host)
    given = torch.randn(16, side, dtype=torch.bfloat16, device="cuda")

    def work() -> torch.Tensor:
        x = given
        for layer in range(layers):
            x = torch.relu(x @ weights[layer * side : (layer + 1) * side])
        return x

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = work()
    graph.replay()
    torch.cuda.synchronize()
    before = answer.clone()
    same, there, away = [], [], []
    for turn in range(10):
        away.append(timed(place.unmap))
        elsewhere = torch.full((256 * MB * (turn % 3 + 1),), 7, dtype=torch.uint8, device="cuda")

        def back() -> None:
            place.map()
            weights.copy_(host, non_blocking=True)

        there.append(timed(back))
        answer.zero_()
        graph.replay()
        torch.cuda.synchronize()
        same.append(bool(torch.equal(answer, before)))
        del elsewhere
    write("graph", bytes=place.size, same=sum(same), of=len(same), unmap_ms=median(away), map_copy_ms=median(there))
    copier = torch.cuda.Stream()
    target = torch.empty_like(weights)
    alone = median([timed(lambda: [graph.replay() for _ in range(20)]) for _ in range(5)])
    copy_alone = median([timed(lambda: target.copy_(host, non_blocking=True)) for _ in range(5)])

    def both() -> None:
        with torch.cuda.stream(copier):
            target.copy_(host, non_blocking=True)
        for _ in range(20):
            graph.replay()

    together = median([timed(both) for _ in range(5)])
    write("overlap", compute_ms=alone, copy_ms=copy_alone, both_ms=together)


def _copier(barrier: Any, rates: Any) -> None:
    source = torch.ones(2 * GB, dtype=torch.uint8).pin_memory()
    target = torch.empty(2 * GB, dtype=torch.uint8, device="cuda")
    _copies(source, target, 2)
    barrier.wait()
    began = time.perf_counter()
    for _ in range(10):
        target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    rates.put(20 * GB / (time.perf_counter() - began) / 1e9)


def sharing(write: Callable[..., None]) -> None:
    """Measure one, two and four processes that copy at once: do they share one link?"""
    context = mp.get_context("spawn")
    for count in (1, 2, 4):
        barrier, rates = context.Barrier(count), context.Queue()
        processes = [context.Process(target=_copier, args=(barrier, rates)) for _ in range(count)]
        for process in processes:
            process.start()
        got = [rates.get(timeout=120) for _ in processes]
        for process in processes:
            process.join()
        write("link", processes=count, each_gb_s=got, all_gb_s=sum(got))


def budget(write: Callable[..., None]) -> None:
    """Measure what a process takes besides its tensors: context, libraries, a graph."""
    free = [torch.cuda.mem_get_info()[0]]
    a = torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda")
    torch.cuda.synchronize()
    free.append(torch.cuda.mem_get_info()[0])
    a @ a
    torch.cuda.synchronize()
    free.append(torch.cuda.mem_get_info()[0])
    total = torch.cuda.mem_get_info()[1]
    reserved = torch.cuda.memory_reserved()
    write("budget", total=total, free_at_start=free[0], after_tensor=free[1], after_matmul=free[2], reserved=reserved)


def main() -> None:
    """Run all parts; each writes its lines as it goes."""

    def write(part: str, **values: Any) -> None:
        line = json.dumps({"part": part, **values})
        print(line, flush=True)
        with Path(sys.argv[1]).open("a") as out:
            out.write(line + "\n")

    torch.cuda.init()
    for part in (budget, mapping, graphs, copying, sharing):
        try:
            part(write)
        except (RuntimeError, OSError, ValueError, AttributeError, TypeError) as problem:
            write("failed", name=part.__name__, problem=f"{type(problem).__name__}: {problem}")  # the others go on


if __name__ == "__main__":
    main()
