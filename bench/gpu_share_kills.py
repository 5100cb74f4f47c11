"""Clients killed beside a latency-critical program: does it go on, does anything hang, is anything left?

A tiny client (the driver by ctypes, a kernel of PTX that spins) starts in half a second, so that many can die.

    python -m bench.gpu_share_kills          (the client; ``kills`` below starts it)
"""

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.gpu_share_client import DONE
from bench.gpu_share_session import MS, Modes, Session
from headway.kernels.dial import Dial

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 rounds)
{
    .reg .pred %p<2>;
    .reg .b64 %r<4>;
    ld.param.u64 %r1, [rounds];
    mov.u64 %r2, 0;
again:
    add.u64 %r2, %r2, 1;
    setp.lt.u64 %p1, %r2, %r1;
    @%p1 bra again;
    ret;
}
\x00"""


def main() -> None:
    """Launch kernels of about 50 microseconds until somebody puts an end to it."""
    os.sched_setaffinity(0, {4, 5})
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _must(cuda.cuInit(0))
    _must(cuda.cuDeviceGet(ctypes.byref(device), 0))
    _must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _must(cuda.cuCtxSetCurrent(context))
    _must(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    _must(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"spin"))
    rounds = ctypes.c_uint64(20_000)
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(rounds), ctypes.c_void_p))
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    while not stopped:
        for _ in range(20):
            _must(cuda.cuLaunchKernel(function, 528, 1, 1, 128, 1, 1, 0, None, parameters, None))
        _must(cuda.cuCtxSynchronize())


def _must(result: int) -> None:
    if result:
        raise SystemExit(f"the driver says {result}")


def kills(state: Path, library: Path, sms: int, budget_s: float, times: int = 30) -> dict[str, Any]:
    """Kill the client in three ways, the broker's sign of life now and then; watch the program above."""
    drawn = random.Random(7)
    end = time.monotonic() + budget_s - 8
    row: dict[str, Any] = {"ways": {}}
    with Session(state / "kills", library, sms) as session:
        session.start("high", 2, 0, ["resnet50"])
        session.ready()
        session.choose("high", "resnet50")
        for index in range(times):
            if time.monotonic() > end:
                break
            way = ("drain", "mps", "kill")[index % 3]
            found = row["ways"].setdefault(way, {"times": 0, "went_on": 0, "ended": 0, "worst_ms": 0.0, "said": []})
            _one(session, way, found, drawn)
            print(index, way, found["went_on"], found["worst_ms"], flush=True)
            if session.programs["high"].process.poll() is not None:
                found["said"].append(session.said("high")[-300:])
                break
        assert session.block
        time.sleep(0.3)
        row["slots_live"] = sum(1 for slot in session.block.slots if slot.state == 2 and _lives(slot.owner))
        row["high_lives"] = session.programs["high"].process.poll() is None
    row["left_in_shm"] = [path.name for path in Path("/dev/shm").glob("headway-bench*")]
    return row


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _one(session: Session, way: str, found: dict[str, Any], drawn: random.Random) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": f"src:{Path.cwd()}",
        "LD_PRELOAD": str(session.library),
        "HEADWAY_SHARE": "/dev/shm/headway-bench",
        "HEADWAY_PRIORITY": "5",
        "HEADWAY_NAME": "victim",
        "CUDA_MPS_CLIENT_PRIORITY": "1",
        **session.mps_environment(),
    }
    victim = subprocess.Popen(
        [sys.executable, "-m", "bench.gpu_share_kills"], env=environment, stderr=subprocess.DEVNULL
    )
    assert session.block
    end = time.monotonic() + 15
    while time.monotonic() < end and not any(s.state == 2 and s.owner == victim.pid for s in session.block.slots):
        time.sleep(0.01)
    modes = Modes(session, "high", ["victim"], Dial())
    modes.stay("gate", 0.4 + drawn.random() * 0.3)
    high = session.programs["high"]
    before, at = int(high.control[DONE]), time.monotonic_ns()
    if way == "drain":
        victim.terminate()
    elif way == "mps":
        session.terminate(victim.pid)
    else:
        victim.kill()
    try:
        victim.wait(10)
        found["ended"] += 1
    except subprocess.TimeoutExpired:
        victim.kill()
        victim.wait(10)
    time.sleep(0.6)
    spans = high.spans(before)
    after = spans[spans[:, 1] > at]
    found["times"] += 1
    found["went_on"] += int(len(after) > 3)
    if len(after):
        found["worst_ms"] = max(found["worst_ms"], float((after[:, 1] - after[:, 0]).max() / MS))
    for index, slot in enumerate(session.block.slots):
        if slot.owner == victim.pid:
            session.block.clear(index)


if __name__ == "__main__":
    main()
