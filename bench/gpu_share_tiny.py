"""A tiny CUDA program: the driver by ctypes, a kernel of PTX that spins by the GPU's clock. It starts in half a second.

    python -m bench.gpu_share_tiny LOG [LAUNCHES] [THINK_MS] [REQUESTS]

A request is LAUNCHES kernels of 50 microseconds and a wait for them; LOG gets when each began and ended, two int64
of the monotonic clock. Without REQUESTS it goes on until SIGTERM. It imports nothing of ours: it is to start fast.
"""

import ctypes
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

SPAN = struct.Struct("=qq")
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 long)
{
    .reg .pred %p<2>;
    .reg .b64 %r<5>;
    ld.param.u64 %r1, [long];
    mov.u64 %r2, %globaltimer;
again:
    mov.u64 %r3, %globaltimer;
    sub.u64 %r4, %r3, %r2;
    setp.lt.u64 %p1, %r4, %r1;
    @%p1 bra again;
    ret;
}
\x00"""
KERNEL_NS = 50_000


def main() -> None:
    """Requests, one after another, until told to stop."""
    path, *numbers = sys.argv[1:]
    launches, think_ms, requests = (*map(int, numbers), *(20, 0, 0)[len(numbers) :])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    cuda = ctypes.CDLL("libcuda.so.1")
    function = _function(cuda)
    long = ctypes.c_uint64(KERNEL_NS)
    pointer = ctypes.cast(ctypes.byref(long), ctypes.c_void_p)
    parameters = (ctypes.c_void_p * 2)(pointer, pointer)  # the driver takes one, its stub of the tests two
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    done = 0
    while not stopped and (not requests or done < requests):
        begin = time.monotonic_ns()
        for _ in range(launches):
            _must(cuda.cuLaunchKernel(function, 528, 1, 1, 128, 1, 1, 0, None, parameters, None))
        _must(cuda.cuCtxSynchronize())
        os.write(log, SPAN.pack(begin, time.monotonic_ns()))
        done += 1
        if think_ms:
            time.sleep(think_ms / 1e3)


def _function(cuda: Any) -> ctypes.c_void_p:
    """The kernel, in the primary context."""
    _must(cuda.cuInit(0))
    if hasattr(cuda, "stubFunction"):  # the driver of the tests knows no PTX
        cuda.stubFunction.restype = ctypes.c_void_p
        return ctypes.c_void_p(cuda.stubFunction(b"spin", ctypes.c_int64(KERNEL_NS), ctypes.c_int64(0), 0))
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _must(cuda.cuDeviceGet(ctypes.byref(device), 0))
    _must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _must(cuda.cuCtxSetCurrent(context))
    _must(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    _must(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"spin"))
    return function


def _must(result: int) -> None:
    if result:
        raise SystemExit(f"the driver says {result}")


def spans(path: Path) -> list[tuple[int, int]]:
    """Begin and end of every request that a program has logged whole."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    return [SPAN.unpack_from(content, at) for at in range(0, len(content) - SPAN.size + 1, SPAN.size)]


if __name__ == "__main__":
    main()
