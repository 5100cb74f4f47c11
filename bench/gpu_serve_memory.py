"""Measure a serving worker's memory of models on one GPU, through the classes that workers use.

Run by ``scripts/gpu-serve memory``. Each step is a process of its own and leaves one or more lines of JSON; a step
whose lines are in the file is not run again. Times in milliseconds, rates in GB/s. ``--dry`` runs all of it on CPU
memory with small models, to try the script itself. Needs torch, and pynvml where the device is to be asked; of what
headway itself needs, nothing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from headway.fleet.live.weights.device import Device, device_named
from headway.fleet.live.weights.host import Host
from headway.fleet.live.weights.memory import Memory, is_out_of_memory
from headway.fleet.live.weights.residents import Placed, prepared

MB, GB = 1 << 20, 1 << 30
BUDGET_BYTES = 14 * 10**9
STEPS = ("open", "sizes", "graph", "capture", "overlap", "room", "budget", "share")
_SECOND = "second"


class Layers(torch.nn.Module):
    """Square layers one after the other; their values are cheap to make and differ from row to row."""

    def __init__(self, side: int, count: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = torch.nn.ParameterList()
        for number in range(count):
            row = torch.arange(side, dtype=torch.float32) * (number + 1)
            weight = torch.sin(row).outer(torch.cos(row)) / side**0.5
            self.layers.append(torch.nn.Parameter(weight.to(dtype), requires_grad=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input after all layers."""
        for weight in self.layers:
            x = torch.tanh(x @ weight)
        return x


class Bench:
    """The device, where copies lie, and where lines go."""

    def __init__(self, options: argparse.Namespace, step: str) -> None:
        self.dry: bool = options.dry
        self.step = step
        self.out: Path = options.out
        self.folder = Path(options.folder)
        name = "cpu" if self.dry else "cuda:0"
        self.where = torch.device(name)
        self.dtype = torch.float32 if self.dry else torch.bfloat16
        self.host = Host(self.folder, None, "bench", print)
        began = time.perf_counter()
        self.device: Device = device_named(name, BUDGET_BYTES, self.folder, print)
        self.open_ms = (time.perf_counter() - began) * 1e3

    def write(self, **values: Any) -> None:
        """Write a line."""
        line = json.dumps({"step": self.step, **values})
        print(line, flush=True)
        with self.out.open("a") as file:
            file.write(line + "\n")

    def wait(self) -> None:
        """Wait until the device has done everything."""
        if not self.dry:
            torch.cuda.synchronize()

    def timed(self, action: Callable[[], object]) -> float:
        """Return how many milliseconds an action takes until the device has done it."""
        self.wait()
        began = time.perf_counter()
        action()
        self.wait()
        return (time.perf_counter() - began) * 1e3

    def model(self, size_bytes: int) -> Placed:
        """Return a model of layers of 128 MiB each (smaller ones have one layer), its host copy made and pinned."""
        if self.dry:
            size_bytes //= 1024
        each = min(size_bytes, 128 * MB)
        side = int((each // self.dtype.itemsize) ** 0.5)
        name = f"layers-{size_bytes}"
        found = prepared(
            name, lambda: Layers(side, max(1, size_bytes // each), self.dtype), 0, self.host, self.device.reserve
        )
        assert isinstance(found, Placed)
        return found

    def reported_bytes(self) -> int:
        """Return what the device says that this process takes."""
        return self.device.used_bytes(0)[1]

    def torch_bytes(self) -> int:
        """Return what torch has taken."""
        return 0 if self.dry else torch.cuda.memory_reserved()


def median(values: list[float]) -> float:
    """Return the middle one of some values."""
    return sorted(values)[len(values) // 2]


def step_open(bench: Bench) -> None:
    """What the context costs, and whether the device tells our process from others."""
    free, total = (0, 0) if bench.dry else torch.cuda.mem_get_info()
    bench.write(
        open_ms=bench.open_ms,
        overhead_bytes=bench.device.overhead_bytes,
        reported_bytes=bench.reported_bytes(),
        torch_bytes=bench.torch_bytes(),
        free_bytes=free,
        total_bytes=total,
        host_free_bytes=shutil.disk_usage(bench.folder).free,
        torch=torch.__version__,
        device="cpu" if bench.dry else torch.cuda.get_device_name(),
    )


def step_sizes(bench: Bench) -> None:
    """Loading and evicting, by size; the first load binds the module's tensors."""
    for size in (2 * MB, 64 * MB, 512 * MB, 2 * GB, 8 * GB):
        began = time.perf_counter()
        model = bench.model(size)
        prepare_ms = (time.perf_counter() - began) * 1e3
        first_ms = bench.timed(model.load)
        evicts, loads = [], []
        for _ in range(7):
            evicts.append(bench.timed(model.evict))
            loads.append(bench.timed(model.load))
        model.evict()
        bench.write(
            bytes=model.size_bytes,
            prepare_ms=prepare_ms,
            first_load_ms=first_ms,
            load_ms=median(loads),
            evict_ms=median(evicts),
            load_gb_s=model.size_bytes / median(loads) / 1e6,
        )


def captured(bench: Bench, model: Any, given: torch.Tensor) -> tuple[Callable[[], object], torch.Tensor]:
    """Return what replays the model's work on an input, and where its result lies."""
    if bench.dry:
        result = model(given)
        return lambda: result.copy_(model(given)), result
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        model(given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = model(given)
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay, result


def _input(bench: Bench, model: Placed) -> torch.Tensor:
    side = model.value.layers[0].shape[0]
    return torch.linspace(-1, 1, 16 * side).reshape(16, side).to(bench.where, bench.dtype)


def step_graph(bench: Bench) -> None:
    """A graph over a model that goes while others come, and comes back: bit-identical?"""
    model, others = bench.model(1 * GB), [bench.model(512 * MB), bench.model(2 * GB)]
    model.load()
    address = model.value.layers[0].data_ptr()
    given = _input(bench, model)  # kept: the graph reads it at each replay
    replay, result = captured(bench, model.value, given)
    before, same, loads = result.clone(), 0, []
    for turn in range(10):
        model.evict()
        other = others[turn % 2]
        other.load()
        other.value(_input(bench, other))
        elsewhere = torch.full((64 * MB * (turn % 3 + 1) // (1024 if bench.dry else 1),), 7, device=bench.where)
        bench.wait()
        loads.append(bench.timed(model.load))
        result.zero_()
        replay()
        bench.wait()
        same += bool(torch.equal(result, before)) and model.value.layers[0].data_ptr() == address
        other.evict()
        del elsewhere
    differs = bool(before.abs().sum() > 0)
    bench.write(bytes=model.size_bytes, same=same, of=10, result_is_not_zero=differs, load_ms=median(loads))


def step_capture(bench: Bench) -> None:
    """Capture graphs while another thread loads and evicts: neither may break the other."""
    model, other = bench.model(512 * MB), bench.model(2 * GB)
    model.load()
    given, stop, loads = _input(bench, model), threading.Event(), 0
    problems: list[str] = []

    def come_and_go() -> None:
        nonlocal loads
        try:
            while not stop.is_set():
                other.load()
                other.evict()
                loads += 1
        except Exception as problem:  # noqa: BLE001 - it is what is measured
            problems.append(f"{type(problem).__name__}: {problem}")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    expected, same, captures = None, 0, 0
    try:
        for _ in range(20):
            replay, result = captured(bench, model.value, given)
            replay()
            bench.wait()
            expected = result.clone() if expected is None else expected
            same += bool(torch.equal(result, expected))
            captures += 1
    except RuntimeError as problem:
        problems.append(f"{type(problem).__name__}: {problem}")
    stop.set()
    thread.join()
    bench.write(captures=captures, of=20, same=same, loads=loads, problems=problems)


def step_overlap(bench: Bench) -> None:
    """Computing alone, loading alone, both at once."""
    model, other = bench.model(1 * GB), bench.model(2 * GB)
    model.load()
    replay, _ = captured(bench, model.value, _input(bench, model))

    def compute() -> None:
        for _ in range(60):
            replay()

    def load() -> None:
        other.load()

    def both() -> None:
        thread = threading.Thread(target=load)
        thread.start()
        compute()
        thread.join()

    computes = [bench.timed(compute) for _ in range(5)]
    loads, together = [], []
    for _ in range(5):
        loads.append(bench.timed(load))
        other.evict()
        together.append(bench.timed(both))
        other.evict()
    bench.write(bytes=other.size_bytes, compute_ms=median(computes), load_ms=median(loads), both_ms=median(together))


def step_room(bench: Bench) -> None:
    """A task that runs out of memory: models that nobody uses go, and it has room."""
    models = [bench.model(2 * GB), bench.model(8 * GB)]
    memory = Memory(models, BUDGET_BYTES - bench.device.overhead_bytes, bench.device)
    for number in range(2):
        memory.reserve((number,))
        memory.load(number)
        memory.release((number,))
    need = 6 * GB // (1024 if bench.dry else 1)
    refused, had_room = False, False
    try:
        torch.empty(need, dtype=torch.uint8, device=bench.where)
    except RuntimeError as problem:
        refused = is_out_of_memory(problem)
    evicted = len(memory.make_room())
    try:
        kept = torch.empty(need, dtype=torch.uint8, device=bench.where)
        had_room = kept.numel() == need
    except RuntimeError as problem:
        print(problem)
    bench.write(refused_first=refused, evicted=evicted, had_room=had_room, reported_bytes=bench.reported_bytes())


def step_budget(bench: Bench) -> None:
    """Fill the budget with models, a graph and activations; what does the device report?"""
    models = [bench.model(size) for size in (512 * MB, 1 * GB, 2 * GB)]
    memory = Memory(models, BUDGET_BYTES - bench.device.overhead_bytes, bench.device)
    memory.reserve(range(3))
    for number in range(3):
        memory.load(number)
    replay, _ = captured(bench, models[1].value, _input(bench, models[1]))
    replay()
    bench.wait()
    memory.release(range(3))
    bench.device.used_bytes(memory.used_bytes)  # as a beat does: libraries have grown
    bench.device.share(memory.used_bytes)
    kept = []
    try:
        while not bench.dry:
            kept.append(torch.ones(256 * MB, dtype=torch.uint8, device=bench.where))
    except RuntimeError as problem:
        if not is_out_of_memory(problem):
            raise
    bench.wait()
    ours, reported = bench.device.used_bytes(memory.used_bytes)
    bench.write(
        budget_bytes=BUDGET_BYTES,
        models_bytes=memory.used_bytes,
        torch_bytes=bench.torch_bytes(),
        overhead_bytes=bench.device.overhead_bytes,
        ours_and_overhead_bytes=ours + bench.device.overhead_bytes,
        reported_bytes=reported,
        reported_of_budget=reported / BUDGET_BYTES,
    )


def step_share(bench: Bench) -> None:
    """A second process loads the model from the same host copy: how long, and the same result?"""
    model = bench.model(2 * GB)
    model.load()
    ours = float(model.value(_input(bench, model)).double().sum())
    inode = bench.host.path(model.name).stat().st_ino
    command = [sys.executable, "-m", "bench.gpu_serve_memory", _SECOND, "--out", str(bench.out)]
    command += ["--folder", str(bench.folder), *(["--dry"] if bench.dry else [])]
    subprocess.run(command, check=True)
    rows = [json.loads(line) for line in bench.out.read_text().splitlines()]
    theirs = next(row for row in reversed(rows) if row["step"] == _SECOND)
    bench.write(same_result=theirs["result"] == ours, same_copy=theirs["inode"] == inode, second=theirs)


def step_second(bench: Bench) -> None:
    """The second process."""
    began = time.perf_counter()
    model = bench.model(2 * GB)
    prepare_ms = (time.perf_counter() - began) * 1e3
    load_ms = bench.timed(model.load)
    result = float(model.value(_input(bench, model)).double().sum())
    inode = bench.host.path(model.name).stat().st_ino
    bench.write(prepare_ms=prepare_ms, load_ms=load_ms, result=result, inode=inode)


def main() -> int:
    """Run the steps that are missing, each in a process of its own, within a number of seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", nargs="?", default="all", choices=("all", *STEPS, _SECOND))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "gpu-serve-memory.jsonl")
    parser.add_argument("--folder", default="/dev/shm/headway-bench-memory", help="of host copies")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds after which no further step begins")
    parser.add_argument("--dry", action="store_true", help="on CPU memory, with small models")
    options = parser.parse_args()
    if options.step != "all":
        globals()[f"step_{options.step}"](Bench(options, options.step))
        return 0
    deadline, failed = time.monotonic() + options.budget, 0
    try:
        for step in STEPS:
            done = options.out.read_text() if options.out.exists() else ""
            if f'"step": "{step}"' in done:
                continue
            if time.monotonic() > deadline:
                print("time is up: run it again to go on")
                return 3
            command = [sys.executable, "-m", "bench.gpu_serve_memory", step, "--out", str(options.out)]
            ended = subprocess.run(
                [*command, "--folder", options.folder, *(["--dry"] if options.dry else [])], check=False
            )
            failed += ended.returncode != 0
            print(f"{step}: {'done' if ended.returncode == 0 else f'failed with {ended.returncode}'}", flush=True)
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
