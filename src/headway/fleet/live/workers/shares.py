"""Shares of a device that workers have from their start on: of a GPU's SMs by MPS, of CPUs by affinity.

A process keeps its percentage of the SMs for life, so there is a worker for each size. Memory is not divided by MPS:
each worker has its budget. GPUs in MIG mode are refused: their instances are devices that we do not find.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from headway.device import mps
from headway.device.locks import Place
from headway.device.nvidia import Gpu
from headway.errors import ServeError
from headway.fleet.live.workers.devices import CPU
from headway.fleet.model.fleet import FIXED, Worker, cpus_of, percent_of

PERCENT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def cpus_for(workers: Sequence[Worker], index: int, device: str) -> tuple[int, ...]:
    """Return the CPUs that a worker with a share of them may run on, those of others last; empty: all."""
    worker = workers[index]
    if device != CPU or worker.gpu.geometry != FIXED:
        return ()
    here = sorted(os.sched_getaffinity(0))
    before = sum(len(cpus_of(other.gpu.slices, here)) for other in workers[:index])
    return cpus_of(worker.gpu.slices, here, before)


@contextmanager
def environments(workers: Sequence[Worker], devices: Sequence[str]) -> Iterator[tuple[dict[str, str], ...]]:
    """Yield the environment of each worker; MPS runs meanwhile where one of them has a share of a GPU."""
    on = [devices[index % len(devices)] for index in range(len(workers))]
    if all(device == CPU or worker.gpu.geometry != FIXED for worker, device in zip(workers, on, strict=True)):
        yield ({},) * len(workers)
        return
    with tempfile.TemporaryDirectory(prefix="headway-mps-") as folder, _daemon(Path(folder)) as daemon:
        yield tuple(
            {} if device == CPU else {**daemon.environment(), PERCENT: str(percent_of(worker.gpu.slices))}
            for worker, device in zip(workers, on, strict=True)
        )


@contextmanager
def _daemon(folder: Path) -> Iterator[mps.Mps]:
    """Yield a daemon of MPS for all GPUs: one that runs already, else one of our own."""
    found = mps.running(place := Place(folder, 0)) or mps.start(place, Gpu(0, "", "", "", 0))
    if isinstance(found, str):
        raise ServeError(f"shares of a GPU need MPS: {found}; leave out --slices for whole GPUs")
    try:
        _start_server(found)
        yield found
    finally:
        found.stop()


def _start_server(daemon: mps.Mps) -> None:
    """Start the server before its clients, which tell their own memory from what was there; it inherits our files."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [mps.CONTROL],
            input=f"start_server -uid {os.getuid()}\n".encode(),
            env={**os.environ, **daemon.environment()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=30,
        )


def check_no_mig() -> None:
    """Raise ServeError for a GPU that is divided by MIG."""
    if (program := shutil.which("nvidia-smi")) is None:
        return
    command = [program, "--query-gpu=index,mig.mode.current", "--format=csv,noheader"]
    with suppress(OSError, subprocess.TimeoutExpired):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        for index, _, mode in (line.partition(",") for line in ended.stdout.splitlines()):
            if mode.strip() == "Enabled":
                remedy = f"turn it off, nvidia-smi -i {index} -mig 0, and give shares with --slices"
                raise ServeError(f"GPU {index} is in MIG mode, which is not served: {remedy}")
