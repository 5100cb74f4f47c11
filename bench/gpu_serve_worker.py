"""Drive a real worker process on one GPU over its socket, without a server: ``scripts/gpu-serve worker``.

Models come and go while batches run, a task keeps a CUDA graph over a model that was evicted in between, one request
runs out of memory, the process is killed: what it answers and what the device reports. One line of JSON a step.
``--dry`` uses CPU memory. Needs torch and msgspec.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from headway.door.frames import Frames, framed
from headway.fleet.live.workers.messages import (
    ANSWERS,
    Answer,
    Beat,
    Evict,
    Fetch,
    Finished,
    Hello,
    Loaded,
    Lost,
    Order,
    Run,
    Setup,
)
from headway.fleet.live.workers.payload import Packer, release, sweep, unpack

BUDGET_BYTES = 14 * 10**9
PREFIX = f"headway-bench-{os.getpid()}"
FUNCTIONS, MODELS = ("noop", "infer", "replay", "greedy"), ("large", "small")
APP = '''
import torch
from headway.program.pipeline import graph, model, task

DEVICE, SIDE, GREEDY = "{device}", {side}, {greedy}

class Layers(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(SIDE, SIDE, dtype=torch.bfloat16) for _ in range(count))
    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x

@model(memory="2GB")
def large():
    return Layers(16)

@model(memory="1GB")
def small():
    return Layers(4)

CAPTURED = []

@task(max_batch=8, slices=1)
def noop(xs):
    return xs

@task(models=[large], max_batch=8)
def infer(net, xs):
    given = torch.stack([torch.full((SIDE,), float(x), dtype=torch.bfloat16) for x in xs]).to(DEVICE)
    return list(net(given).float().cpu())

@task(models=[small], max_batch=1)
def replay(net, xs):
    """Replays a graph that was captured over the model when it was first here."""
    if DEVICE == "cpu":
        return [float(net(torch.ones(4, SIDE, dtype=torch.bfloat16)).double().sum()) for _ in xs]
    if not CAPTURED:
        given = torch.ones(4, SIDE, dtype=torch.bfloat16, device=DEVICE)
        net(given)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            result = net(given)
        CAPTURED.extend((captured, result, given))
    captured, result, _ = CAPTURED
    captured.replay()
    return [float(result.double().sum()) for _ in xs]

@task(max_batch=8, slices=1)
def greedy(xs):
    """Takes more memory than there is for the input 1, next to none for others."""
    taken = [torch.ones(GREEDY if x else 1024, dtype=torch.uint8, device=DEVICE) for x in xs]
    if DEVICE == "cpu" and any(xs):
        raise MemoryError("as told")
    return [each.numel() for each in taken]

ALL = [graph(each.name, each) for each in (noop, infer, replay, greedy)]
'''


class Driven:
    """The worker process and the socket to it."""

    def __init__(self, folder: Path, device: str) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.settimeout(300)
        command = [sys.executable, "-m", "headway.fleet.live.workers.worker", str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
        theirs.close()
        self._frames, self._answers, self._leases = Frames(ANSWERS), list[Answer](), 0
        self.beat = Beat(0)
        self._packer = Packer(f"{PREFIX}-driver")
        host = f"/dev/shm/{PREFIX}-host"
        app = str(folder / "app.py")
        self.send(Setup(app, 0, FUNCTIONS, MODELS, BUDGET_BYTES, device, f"{PREFIX}-worker", host, ""))

    def send(self, order: Order) -> None:
        """Send an order."""
        self._ours.sendall(framed(order))

    def answer(self) -> Answer:
        """Return the next answer that is no beat; note beats."""
        while not self._answers:
            if not (data := self._ours.recv(1 << 20)):
                raise ConnectionError("the worker is gone")
            for each in self._frames.feed(data):
                if isinstance(each, Beat):
                    self.beat = each
                else:
                    self._answers.append(each)
        return self._answers.pop(0)

    def run(self, function: str, *inputs: Any, models: tuple[int, ...] = (), evict: tuple[int, ...] = ()) -> int:
        """Send a batch; return its lease."""
        self._leases += 1
        given = tuple((self._packer.pack(value),) for value in inputs)
        self.send(Run(self._leases, FUNCTIONS.index(function), given, models, evict))
        return self._leases

    def done(self) -> tuple[list[Any], dict[int, str], int]:
        """Wait for a batch; return results, failures, and its nanoseconds."""
        while isinstance(found := self.answer(), Loaded | Lost):  # what ran out of memory has evicted models
            pass
        if not isinstance(found, Finished):
            raise ValueError(f"{found}")
        values = [unpack(each) if each.data else None for each in found.results]
        for each in found.results:
            release(each)
        return values, found.failures, found.run_ns

    def next_beat(self) -> Beat:
        """Wait for a beat that is new."""
        before = self.beat
        while self.beat is before:
            self.run("noop", 0)
            self.done()
            time.sleep(0.01)
        return self.beat


def play(driven: Driven, write: Any) -> None:
    """Go through the steps."""
    began = time.perf_counter()
    hello = driven.answer()
    if not isinstance(hello, Hello):
        raise ValueError(f"{hello}")
    write(
        "hello", seconds=time.perf_counter() - began, model_bytes=hello.model_bytes, overhead_bytes=hello.overhead_bytes
    )
    took = []
    for _ in range(3000):
        began = time.perf_counter()
        driven.run("noop", 0)
        driven.done()
        took.append(time.perf_counter() - began)
    write("noop", p50_us=sorted(took)[1500] * 1e6, p99_us=sorted(took)[2970] * 1e6)
    driven.run("replay", 0, models=(1,))
    first = driven.done()[0]
    same = 0
    for _ in range(5):
        driven.run("infer", 1, 2, models=(0,), evict=(1,))
        driven.done()
        driven.run("replay", 0, models=(1,), evict=(0,))
        same += driven.done()[0] == first
    write("graph", same=same, of=5, result=first)
    driven.send(Fetch(10**6, 0))
    driven.run("replay", 0, models=(1,))
    answers = [driven.answer() for _ in range(3)]
    write("fetch", answers=[f"{type(each).__name__}" for each in answers], text=str(answers)[:400])
    beat = driven.next_beat()
    write("memory", used_bytes=beat.used_bytes, device_bytes=beat.device_bytes, overhead_bytes=hello.overhead_bytes)
    driven.run("greedy", 0, 1, 0)
    results, failures, _ = driven.done()
    beat = driven.next_beat()
    write("greedy", results=results, failures=failures, used_bytes=beat.used_bytes, device_bytes=beat.device_bytes)
    driven.run("infer", 1, models=(0,))
    write("after", works=driven.done()[1] == {})
    driven.send(Evict(0))
    beat = driven.next_beat()
    write("evicted", used_bytes=beat.used_bytes, device_bytes=beat.device_bytes)


def device_used_bytes() -> int:
    """Return what all processes take of the GPU."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(ended.stdout.split()[0]) << 20 if ended.returncode == 0 else 0


def main() -> None:
    """Start a worker, go through the steps, kill it, and see that nothing is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "gpu-serve-worker.jsonl")
    parser.add_argument("--dry", action="store_true", help="on CPU memory, with small models")
    options = parser.parse_args()

    def write(step: str, **values: Any) -> None:
        line = json.dumps({"step": step, **values})
        print(line, flush=True)
        with options.out.open("a") as file:
            file.write(line + "\n")

    device, side, greedy = ("cpu", 64, 1 << 20) if options.dry else ("cuda:0", 8192, 20 * 10**9)
    with tempfile.TemporaryDirectory() as folder:
        app = APP.replace("{device}", device).replace("{side}", str(side)).replace("{greedy}", str(greedy))
        (Path(folder) / "app.py").write_text(app)
        before = 0 if options.dry else device_used_bytes()
        driven = Driven(Path(folder), device)
        try:
            play(driven, write)
        finally:
            driven.process.kill()
            driven.process.wait()
            time.sleep(0 if options.dry else 2)  # the driver takes a moment
            swept = sweep(f"{PREFIX}-worker") + sweep(f"{PREFIX}-driver")
            shutil.rmtree(f"/dev/shm/{PREFIX}-host", ignore_errors=True)
            after = 0 if options.dry else device_used_bytes()
            left = [path.name for path in Path("/dev/shm").glob(f"{PREFIX}*")]
            write("killed", swept=swept, left=left, used_before_bytes=before, used_after_bytes=after)


if __name__ == "__main__":
    main()
