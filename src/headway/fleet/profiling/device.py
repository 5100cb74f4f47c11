"""The device that a measuring process runs on: its CPUs, its memory, the times of what runs there, and orders to it.

An order is a line of JSON on stdin: the name of a method, and its arguments. What the measured program prints goes to
stderr; answers have their own pipe.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from headway.errors import InputError, ProfileError
from headway.program.threads import Threads

WARM_RUNS = 2
WARM_S = 0.1
"""Short runs are warmed up for so long: the first ones make threads, fill caches and wake the processor."""
MOST_RUNS = 50
LOADS = 5
AUTO = "auto"
"""A GPU if torch sees one, else the CPU."""


class Device:
    """A GPU or the CPUs of this machine, for one process."""

    def __init__(self, device: str, began_ns: int) -> None:
        self.began_ns = began_ns
        self._threads = Threads()
        self.torch: Any = _torch(device)
        on_gpu = device.startswith("cuda") or (device == AUTO and self.torch is not None)
        self.is_cuda = on_gpu and self.torch.cuda.is_available()
        self.imported_ns = time.monotonic_ns()
        if device.startswith("cuda") and not self.is_cuda:
            raise ProfileError("torch sees no GPU")
        self.device: Any = None
        if self.torch is not None:
            self.torch.set_grad_enabled(False)
            self.device = self.torch.device("cpu" if not self.is_cuda else "cuda" if device == AUTO else device)
        if self.is_cuda:
            self.torch.zeros(1, device=self.device)
            self.synchronise()
        self.context_ns = time.monotonic_ns()
        self.all_cpus = sorted(os.sched_getaffinity(0))

    def about(self) -> dict[str, Any]:
        """Return the device, and the times of the steps of this process's start."""
        device: dict[str, Any] = {"device": "cpu", "sms": 0, "memory_bytes": 0}
        if self.is_cuda:
            properties = self.torch.cuda.get_device_properties(self.device)
            device = {
                "device": properties.name,
                "sms": properties.multi_processor_count,
                "memory_bytes": properties.total_memory,
            }
        stamps = {"began_ns": self.began_ns, "imported_ns": self.imported_ns, "context_ns": self.context_ns}
        versions = {"torch": "", "cuda": ""}
        if self.torch is not None:
            versions = {"torch": self.torch.__version__, "cuda": self.torch.version.cuda or ""}
        return {**device, **stamps, **versions, "cpus": self.all_cpus}

    def synchronise(self) -> None:
        """Wait until the device has finished its work."""
        if self.is_cuda:
            self.torch.cuda.synchronize()

    def used(self) -> int:
        """Return the bytes that this process holds on the GPU."""
        return int(self.torch.cuda.memory_allocated()) if self.is_cuda else 0

    def empty(self) -> None:
        """Give GPU memory back that is held for later."""
        if self.is_cuda:
            self.torch.cuda.empty_cache()

    def hold(self, cpus: int) -> None:
        """Pin this process to so many CPUs."""
        self.hold_these(self.all_cpus[:cpus])

    def hold_these(self, cpus: list[int]) -> None:
        """Pin all threads of this process to these CPUs, and let libraries compute with as many threads."""
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):  # a thread that ended in the meantime
                os.sched_setaffinity(int(thread), cpus)
        self._threads.use(len(cpus))

    def timed_with_peak(self, once: Callable[[], Any], runs: int, least_s: float) -> dict[str, Any]:
        """Return the times of runs, and the most GPU memory that they held besides what was there."""
        if self.is_cuda:
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()
        before = self.used()
        taken = timed(once, runs, least_s)
        return {"ns": taken, "peak_bytes": self.torch.cuda.max_memory_allocated() - before if self.is_cuda else 0}

    def timed_loads(self, network: Any) -> dict[str, Any]:
        """Time copies of a network's weights to the device, from pageable and from page-locked memory."""
        there = network.state_dict().values()
        times: dict[str, Any] = {}
        for kind in ("pageable", "pinned") if self.is_cuda else ("pageable",):
            here = [tensor.detach().cpu() for tensor in there]
            if kind == "pinned":
                here = [tensor.pin_memory() for tensor in here]
            targets = [self.torch.empty_like(tensor, device=self.device) for tensor in there]

            def copy(here: list[Any] = here, targets: list[Any] = targets) -> None:
                for source, target in zip(here, targets, strict=True):
                    target.copy_(source, non_blocking=True)
                self.synchronise()

            times[f"{kind}_ns"] = timed(copy, LOADS, 0.0)
        return times

    def moved(self, outputs: Any) -> Any:
        """Return outputs in host memory, copied to page-locked memory as a service would do."""
        if self.torch is not None and self.torch.is_tensor(outputs):
            if outputs.device.type == "cpu":
                return outputs
            here = self.torch.empty(outputs.shape, dtype=outputs.dtype, pin_memory=True)
            return here.copy_(outputs, non_blocking=True)
        if isinstance(outputs, dict):
            return {key: self.moved(each) for key, each in outputs.items()}
        if type(outputs) in (list, tuple):
            return type(outputs)(map(self.moved, outputs))
        return outputs


def _torch(device: str) -> Any:
    """Return torch; None where it is not installed and nothing needs it."""
    try:
        import torch
    except ImportError:
        if device.startswith("cuda"):
            raise
        return None
    return torch


def weights_bytes(network: Any) -> int:
    """Return the bytes of a torch module's parameters and buffers."""
    return sum(each.numel() * each.element_size() for each in [*network.parameters(), *network.buffers()])


def timed(once: Callable[[], Any], runs: int, least_s: float) -> list[int]:
    """Return the times of at least ``runs`` runs, and of more until ``least_s`` is over, after some warm-up runs."""
    warm, begin = 0, time.perf_counter_ns()
    while warm < WARM_RUNS or (time.perf_counter_ns() - begin < WARM_S * 1e9 and warm < MOST_RUNS):
        once()
        warm += 1
    taken: list[int] = []
    begin = now = time.perf_counter_ns()
    while len(taken) < runs or (now - begin < least_s * 1e9 and len(taken) < MOST_RUNS):
        once()
        taken.append(time.perf_counter_ns() - now)
        now = time.perf_counter_ns()
    return taken


def resident_bytes() -> int:
    """Return the private resident memory of this process."""
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(row.split()[1]) for row in rows if row.startswith("Private_"))


def first_line(problem: BaseException) -> str:
    """Return the first line of an exception's text."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def serve(make: Callable[[str], Device]) -> None:
    """Answer each order on stdin with a line of JSON; the first line is about the device."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(reply: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the profiler is gone
            answers.write(json.dumps(reply) + "\n")

    try:
        made = make(sys.argv[1])
        answer(made.about())
    except (ProfileError, RuntimeError, ImportError) as problem:
        answer({"refused": first_line(problem)})
        return
    for line in sys.stdin:  # until the profiler is gone
        order = json.loads(line)
        try:
            answer(getattr(made, order.pop("do"))(**order))
        except InputError as problem:
            answer({"refused": str(problem)})
        except Exception as problem:  # noqa: BLE001  whatever a user's program raises is told in one line
            answer({"refused": f"{type(problem).__name__}: {first_line(problem)}"})
