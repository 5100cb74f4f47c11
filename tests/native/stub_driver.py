"""The stub driver from Python, and a process of a pair on it: what it does is said by its control."""

import ctypes
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench.gpu_share_client import DONE, PROGRAM, READY, RING, STATE, THINK


class Stub:
    """The driver, through the shim if there is one."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        assert self.cuda.cuInit(0) == 0
        self.cuda.stubFunction.restype = ctypes.c_void_p
        self._number = ctypes.c_uint64(1)
        pointer = ctypes.cast(ctypes.byref(self._number), ctypes.c_void_p)
        self._parameters = (ctypes.c_void_p * 2)(pointer, pointer)

    def kernel(self, name: str, work_ns: int) -> ctypes.c_void_p:
        """One that takes so long."""
        return ctypes.c_void_p(self.cuda.stubFunction(name.encode(), ctypes.c_int64(work_ns), ctypes.c_int64(0), 0))

    def launch(self, kernel: ctypes.c_void_p, blocks: int = 264, threads: int = 128) -> None:
        """Into the default stream."""
        assert self.cuda.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, None, self._parameters, None) == 0

    def wait(self) -> None:
        """For all of it."""
        assert self.cuda.cuCtxSynchronize() == 0


def serve(folder: Path, name: str, requests: Sequence[Callable[[], None]], stub: Stub) -> None:
    """Do the request that the control names, over and over, until it says that it is enough."""
    control = np.memmap(folder / f"{name}.control", dtype=np.int64, mode="r+", shape=(8,))
    log = np.memmap(folder / f"{name}.log", dtype=np.int64, mode="r+", shape=(RING, 2))
    for request in requests:
        request()
        stub.wait()
    (folder / f"{name}.digests.json").write_text("{}")
    control[READY] = 1
    while control[STATE] != 2:
        if control[STATE] == 0:
            time.sleep(0.001)
            continue
        chosen = int(control[PROGRAM])
        while control[STATE] == 1 and control[PROGRAM] == chosen:
            begin = time.monotonic_ns()
            requests[chosen]()
            done = int(control[DONE])
            log[done % RING] = (begin, time.monotonic_ns())
            control[DONE] = done + 1
            time.sleep(int(control[THINK]) / 1e9)
        stub.wait()
        control[READY] += 1
