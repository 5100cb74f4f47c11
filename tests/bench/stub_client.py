"""A process of a pair on the stub driver: as bench.gpu_share_client, with kernels of 20 microseconds for networks.

A program is named by its launches a request: ``6``.
"""

import ctypes
import sys
import time
from pathlib import Path

import numpy as np

from bench.gpu_share_client import DONE, PROGRAM, READY, RING, STATE, THINK

KERNEL_NS = 20_000


def main() -> None:
    """Do what the control says."""
    folder, name, wanted = Path(sys.argv[1]), sys.argv[2], sys.argv[4].split(",")
    control = np.memmap(folder / f"{name}.control", dtype=np.int64, mode="r+", shape=(8,))
    log = np.memmap(folder / f"{name}.log", dtype=np.int64, mode="r+", shape=(RING, 2))
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == 0
    cuda.stubFunction.restype = ctypes.c_void_p
    kernel = ctypes.c_void_p(cuda.stubFunction(b"spin", ctypes.c_int64(KERNEL_NS), ctypes.c_int64(0), 0))
    number = ctypes.c_uint64(1)
    pointer = ctypes.cast(ctypes.byref(number), ctypes.c_void_p)
    parameters = (ctypes.c_void_p * 2)(pointer, pointer)

    def request(launches: int) -> None:
        for _ in range(launches):
            assert cuda.cuLaunchKernel(kernel, 264, 1, 1, 128, 1, 1, 0, None, parameters, None) == 0
        assert cuda.cuCtxSynchronize() == 0

    for program in wanted:
        request(int(program))
    (folder / f"{name}.digests.json").write_text("{}")
    control[READY] = 1
    while control[STATE] != 2:
        if control[STATE] == 0:
            time.sleep(0.001)
            continue
        program = int(control[PROGRAM])
        while control[STATE] == 1 and control[PROGRAM] == program:
            begin = time.monotonic_ns()
            request(int(wanted[program]))
            done = int(control[DONE])
            log[done % RING] = (begin, time.monotonic_ns())
            control[DONE] = done + 1
            time.sleep(int(control[THINK]) / 1e9)
        control[READY] += 1


if __name__ == "__main__":
    main()
