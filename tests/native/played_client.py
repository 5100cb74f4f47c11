"""A shipped program on the stub driver: its launches with the CPU time before each, kernels of the same durations.

Controlled as ``bench.gpu_share_client`` is. A program that never waits is no further ahead than one request.
"""

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.gpu_share_alike import REQUESTS
from bench.gpu_share_client import DONE, PROGRAM, READY, RING, STATE, THINK
from headway.experiment.kernel_sources import program_of
from headway.kernels.device import Device
from headway.kernels.expected import learn
from headway.kernels.program import Client

CALL_NS = 3_500
"""What a launch takes through ctypes: part of the CPU time before it."""
now = time.monotonic_ns


class Played(NamedTuple):
    """One launch."""

    gap_ns: int
    function: ctypes.c_void_p
    blocks: int
    lasts_ns: int
    waits: bool


class Program:
    """The requests of a program, and how far ahead of the GPU it may be; 0 where it waits."""

    def __init__(self, name: str, cuda: ctypes.CDLL) -> None:
        program = program_of(name)
        lasts = learn(Client(name, program), Device()).lasts
        functions = [
            ctypes.c_void_p(cuda.stubFunction(f"{name}-{at}".encode(), ctypes.c_int64(each), ctypes.c_int64(0), 0))
            for at, each in enumerate(lasts)
        ]
        self.requests: list[list[Played]] = [[] for _ in program.firsts]
        for launch, request in zip(program.launches, program.request_of, strict=True):
            blocks = max(1, min(2**30, program.kernels[launch.kernel].blocks))
            played = (max(0, launch.gap - CALL_NS), functions[launch.kernel], blocks, lasts[launch.kernel])
            self.requests[request].append(Played(*played, launch.waits))
        self.ahead_ns = 0 if len(program.firsts) > 1 else program.duration // REQUESTS.get(name, 3)
        self.next = self.end_ns = 0

    def request(self, cuda: ctypes.CDLL, parameters: ctypes.Array[ctypes.c_void_p]) -> None:
        """The next one."""
        for launch in self.requests[self.next % len(self.requests)]:
            until = now() + launch.gap_ns
            while now() < until or self.end_ns - now() > self.ahead_ns > 0:
                pass
            cuda.cuLaunchKernel(launch.function, launch.blocks, 1, 1, 256, 1, 1, 0, None, parameters, None)
            self.end_ns = max(now() + 6_000, self.end_ns) + launch.lasts_ns
            if launch.waits:
                cuda.cuCtxSynchronize()
        self.next += 1


def main() -> None:
    """Do what the control says."""
    folder, name, core, wanted = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].split(",")
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core % len(os.sched_getaffinity(0))]})
    control = np.memmap(folder / f"{name}.control", dtype=np.int64, mode="r+", shape=(8,))
    log = np.memmap(folder / f"{name}.log", dtype=np.int64, mode="r+", shape=(RING, 2))
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == 0
    cuda.stubFunction.restype = ctypes.c_void_p
    number = ctypes.c_uint64(1)
    pointer = ctypes.cast(ctypes.byref(number), ctypes.c_void_p)
    parameters = (ctypes.c_void_p * 2)(pointer, pointer)
    programs = [Program(each, cuda) for each in wanted]
    for program in programs:
        program.request(cuda, parameters)
        cuda.cuCtxSynchronize()
    (folder / f"{name}.digests.json").write_text("{}")
    control[READY] = 1
    while control[STATE] != 2:
        if control[STATE] == 0:
            time.sleep(0.001)
            continue
        chosen = int(control[PROGRAM])
        while control[STATE] == 1 and control[PROGRAM] == chosen:
            begin = now()
            programs[chosen].request(cuda, parameters)
            done = int(control[DONE])
            log[done % RING] = (begin, now())
            control[DONE] = done + 1
            time.sleep(int(control[THINK]) / 1e9)
        cuda.cuCtxSynchronize()
        control[READY] += 1


if __name__ == "__main__":
    main()
