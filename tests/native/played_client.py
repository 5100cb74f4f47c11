"""A shipped program on the stub driver: its launches with the CPU time before each, kernels of the same durations.

Controlled as ``bench.gpu_share_client`` is. A program that never waits is no further ahead than one request.
"""

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

from headway.gpu.model.device import Device
from headway.gpu.model.expected import learn
from headway.gpu.model.program import Client
from headway.gpu.programs.sources import program_of
from tests.native.stub_driver import Stub, serve

CALL_NS = 3_500
"""What a launch takes through ctypes: part of the CPU time before it."""
now = time.monotonic_ns
REQUESTS = {"matmul": 8, "graph-b64": 8}
"""Of a batch program, in one round of its trace; three of the others."""


class Played(NamedTuple):
    """One launch."""

    gap_ns: int
    function: ctypes.c_void_p
    blocks: int
    lasts_ns: int
    waits: bool


class Program:
    """The requests of a program, and how far ahead of the GPU it may be; 0 where it waits."""

    def __init__(self, name: str, stub: Stub) -> None:
        self.stub = stub
        program = program_of(name)
        lasts = learn(Client(name, program), Device()).lasts
        functions = [stub.kernel(f"{name}-{at}", each) for at, each in enumerate(lasts)]
        self.requests: list[list[Played]] = [[] for _ in program.request_starts]
        for launch, request in zip(program.launches, program.request_of, strict=True):
            blocks = max(1, min(2**30, program.kernels[launch.kernel].blocks))
            played = (max(0, launch.gap - CALL_NS), functions[launch.kernel], blocks, lasts[launch.kernel])
            self.requests[request].append(Played(*played, launch.waits))
        self.ahead_ns = 0 if len(program.request_starts) > 1 else program.duration // REQUESTS.get(name, 3)
        self.next = self.end_ns = 0

    def request(self) -> None:
        """The next one."""
        for launch in self.requests[self.next % len(self.requests)]:
            until = now() + launch.gap_ns
            while now() < until or self.end_ns - now() > self.ahead_ns > 0:
                pass
            self.stub.launch(launch.function, launch.blocks, 256)
            self.end_ns = max(now() + 6_000, self.end_ns) + launch.lasts_ns
            if launch.waits:
                self.stub.wait()
        self.next += 1


def main() -> None:
    """Do what the control says."""
    folder, name, core, wanted = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].split(",")
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core % len(os.sched_getaffinity(0))]})
    stub = Stub()
    serve(folder, name, [Program(each, stub).request for each in wanted], stub)


if __name__ == "__main__":
    main()
