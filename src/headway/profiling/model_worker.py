"""Worker process of ``profiling.model``: reads orders from stdin, times networks, and answers in JSON.

It is a separate process because MPS gives a process its share of the SMs when it starts, and because a cold start can
only be measured on a new one. Output of the network's program goes to stderr; answers have their own pipe.
"""

import time

BEGAN_NS = time.monotonic_ns()  # before anything else is imported: imports are part of a cold start

import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from contextlib import suppress  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from headway.errors import ProfileError  # noqa: E402

WARM_RUNS = 2
MOST_RUNS = 50
LOADS = 5


class Subject:
    """The result of a factory: a network, its inputs, and the CPU work before and after it."""

    def __init__(self, made: Any, what: str) -> None:
        network, inputs = made if isinstance(made, tuple) and len(made) == 2 else (None, None)
        self.network: Any = getattr(made, "network", network)
        self.inputs: Callable[[int], Any] | None = getattr(made, "inputs", inputs)
        self.prepare: Callable[[int, int], Any] | None = getattr(made, "prepare", None)
        self.finish: Callable[[Any, int], Any] | None = getattr(made, "finish", None)
        self._made = made
        import torch

        if not isinstance(self.network, torch.nn.Module) or not (callable(self.inputs) or callable(self.prepare)):
            raise ProfileError(
                f"{what} gave {type(made).__name__}: it must give (network, inputs), a torch module and a "
                "function from a batch size to what it takes, or an object with these as attributes"
            )

    def sizes(self) -> dict[str, int]:
        """Return the bytes of a request and of its answer, as the program says; those of an answer may come later."""
        return {key: int(getattr(self._made, key, 0)) for key in ("input_bytes", "output_bytes")}

    def made_inputs(self, batch: int) -> Any:
        """Return a batch of inputs for the network."""
        if self.inputs is not None:
            return self.inputs(batch)
        assert self.prepare is not None
        return self.prepare(batch, 1)


class Networks:
    """The loaded networks on one device; times them."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch = torch
        self.device = torch.device(device)
        self.imported_ns = time.monotonic_ns()
        if self.device.type == "cuda":
            if not torch.cuda.is_available():
                raise ProfileError("torch sees no GPU")
            torch.zeros(1, device=self.device)
            self.synchronise()
        self.context_ns = time.monotonic_ns()
        self.all_cpus = sorted(os.sched_getaffinity(0))
        self.subjects: dict[str, Subject] = {}
        self.weights: dict[str, int] = {}
        torch.set_grad_enabled(False)

    # --- what can be asked for ----------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """Return the device, and the times of the steps of this process's start."""
        torch = self.torch
        device: dict[str, Any] = {"device": "cpu", "sms": 0, "memory_bytes": 0}
        if self.device.type == "cuda":
            properties = torch.cuda.get_device_properties(self.device)
            device = {
                "device": properties.name,
                "sms": properties.multi_processor_count,
                "memory_bytes": properties.total_memory,
            }
        stamps = {"began_ns": BEGAN_NS, "imported_ns": self.imported_ns, "context_ns": self.context_ns}
        return {**device, **stamps, "torch": torch.__version__, "cuda": torch.version.cuda or "", "cpus": self.all_cpus}

    def load(self, name: str, factory: str) -> dict[str, Any]:
        """Make a network by its factory and load it onto the device."""
        subject = Subject(made_by(factory), factory)
        subject.network.eval()
        built_ns = time.monotonic_ns()
        before = self._used()
        subject.network.to(self.device)
        self.synchronise()
        loaded_ns = time.monotonic_ns()
        tensors = [*subject.network.parameters(), *subject.network.buffers()]
        self.subjects[name] = subject
        self.weights[name] = sum(each.numel() * each.element_size() for each in tensors)
        return {
            "built_ns": built_ns,
            "loaded_ns": loaded_ns,
            "weights_bytes": self.weights[name],
            "allocated_bytes": self._used() - before,
            "tensors": len(tensors),
        }

    def first(self, name: str) -> dict[str, Any]:
        """Run a network once, after which the process is ready."""
        subject = self.subjects[name]
        self._run(subject, subject.made_inputs(1))
        return {"ready_ns": time.monotonic_ns(), "resident_bytes": resident_bytes()}

    def gpu(self, name: str, batch: int, cpus: int, runs: int, least_s: float) -> dict[str, Any]:
        """Time the network alone: inputs to the device, the network, its outputs back to the host."""
        self._hold(cpus)
        subject = self.subjects[name]
        inputs = subject.made_inputs(batch)
        cuda = self.torch.cuda
        if self.device.type == "cuda":
            cuda.empty_cache()
            cuda.reset_peak_memory_stats()
        before = self._used()
        taken = timed(lambda: self._run(subject, inputs), runs, least_s)
        peak = cuda.max_memory_allocated() - before if self.device.type == "cuda" else 0
        return {"ns": taken, "peak_bytes": peak}

    def cpu(self, name: str, batch: int, cpus: int, runs: int, least_s: float, first: int = 0) -> dict[str, Any]:
        """Time the CPU work before and after the network, with an idle device, on the CPUs from ``first`` on."""
        place = first % len(self.all_cpus)
        self._hold_these((self.all_cpus[place:] + self.all_cpus[:place])[:cpus])
        subject = self.subjects[name]
        outputs = self._run(subject, subject.made_inputs(batch))

        def once() -> None:
            if subject.prepare is not None:
                subject.prepare(batch, cpus)
            if subject.finish is not None:
                subject.finish(outputs, cpus)

        return {"ns": timed(once, runs, least_s), **subject.sizes()}

    def joint(self, name: str, batch: int, cpus: int, runs: int, least_s: float) -> dict[str, Any]:
        """Time all parts one after the other, as for a request."""
        self._hold(cpus)
        subject = self.subjects[name]
        ready = subject.made_inputs(batch) if subject.prepare is None else None

        def once() -> None:
            inputs = ready if subject.prepare is None else subject.prepare(batch, cpus)
            outputs = self._run(subject, inputs)
            if subject.finish is not None:
                subject.finish(outputs, cpus)

        return {"ns": timed(once, runs, least_s)}

    def window(self, name: str, batch: int, cpus: list[int], begin_ns: int, end_ns: int) -> dict[str, Any]:
        """Run a network without a pause until ``end_ns``; return the times of the runs within the window."""
        self._hold_these(cpus)
        subject = self.subjects[name]
        inputs = subject.made_inputs(batch)
        taken = []
        while (begin := time.monotonic_ns()) < end_ns:
            self._run(subject, inputs)
            end = time.monotonic_ns()
            if begin >= begin_ns and end <= end_ns:
                taken.append(end - begin)
        return {"ns": taken}

    def loads(self, name: str) -> dict[str, Any]:
        """Time copies of the weights to the device, from pageable and from page-locked memory."""
        torch, there = self.torch, self.subjects[name].network.state_dict().values()
        times: dict[str, Any] = {}
        for kind in ("pageable", "pinned") if self.device.type == "cuda" else ("pageable",):
            here = [tensor.detach().cpu() for tensor in there]
            if kind == "pinned":
                here = [tensor.pin_memory() for tensor in here]
            targets = [torch.empty_like(tensor) for tensor in there]

            def copy(here: list[Any] = here, targets: list[Any] = targets) -> None:
                for source, target in zip(here, targets, strict=True):
                    target.copy_(source, non_blocking=True)
                self.synchronise()

            times[f"{kind}_ns"] = timed(copy, LOADS, 0.0)
        return times

    def drop(self, name: str) -> dict[str, Any]:
        """Forget a network."""
        del self.subjects[name]
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()
        return {}

    # --- how --------------------------------------------------------------------------------------------------

    def _run(self, subject: Subject, inputs: Any) -> Any:
        torch = self.torch
        with torch.inference_mode():
            given = inputs if isinstance(inputs, tuple) else (inputs,)
            there = [each.to(self.device, non_blocking=True) if torch.is_tensor(each) else each for each in given]
            here = moved(subject.network(*there), torch)
        self.synchronise()
        return here

    def synchronise(self) -> None:
        """Wait until the device has finished its work."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def _used(self) -> int:
        return int(self.torch.cuda.memory_allocated()) if self.device.type == "cuda" else 0

    def _hold(self, cpus: int) -> None:
        self._hold_these(self.all_cpus[:cpus])

    def _hold_these(self, cpus: list[int]) -> None:
        """Pin all threads of this process to these CPUs, and give torch as many threads."""
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):  # a thread that ended in the meantime
                os.sched_setaffinity(int(thread), cpus)
        self.torch.set_num_threads(len(cpus))


def timed(once: Callable[[], Any], runs: int, least_s: float) -> list[int]:
    """Return the times of at least ``runs`` runs, and of more until ``least_s`` is over, after some warm-up runs."""
    for _ in range(WARM_RUNS):
        once()
    taken: list[int] = []
    begin = now = time.perf_counter_ns()
    while len(taken) < runs or (now - begin < least_s * 1e9 and len(taken) < MOST_RUNS):
        once()
        taken.append(time.perf_counter_ns() - now)
        now = time.perf_counter_ns()
    return taken


def moved(outputs: Any, torch: Any) -> Any:
    """Return the outputs of a network in host memory, copied to page-locked memory as a service would do."""
    if torch.is_tensor(outputs):
        if outputs.device.type == "cpu":
            return outputs
        return torch.empty(outputs.shape, dtype=outputs.dtype, pin_memory=True).copy_(outputs, non_blocking=True)
    if isinstance(outputs, dict):
        return {key: moved(each, torch) for key, each in outputs.items()}
    if isinstance(outputs, list | tuple):
        return [moved(each, torch) for each in outputs]
    return outputs


def made_by(factory: str) -> Any:
    """Call ``PROGRAM.py:NAME`` and return its result."""
    path, _, name = factory.rpartition(":")
    place = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(place.stem, place) if place.is_file() else None
    if spec is None or spec.loader is None or not name:
        raise ProfileError(f"{factory}: there is no such program; write PROGRAM.py:FACTORY")
    sys.path.insert(0, str(place.parent))
    module = sys.modules.get(spec.name)
    if module is None or getattr(module, "__file__", None) != str(place):
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    if not callable(factory_function := getattr(module, name, None)):
        raise ProfileError(f"{factory}: {place.name} has no function {name!r}")
    return factory_function()


def resident_bytes() -> int:
    """Return the private resident memory of this process."""
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(row.split()[1]) for row in rows if row.startswith("Private_"))


def main() -> None:
    """Answer each order on stdin with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(reply: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the profiler is gone
            answers.write(json.dumps(reply) + "\n")

    try:
        networks = Networks(sys.argv[1])
        answer(networks.about())
    except (ProfileError, RuntimeError, ImportError) as problem:
        answer({"refused": first_line(problem)})
        return
    for line in sys.stdin:  # until the profiler is gone
        order = json.loads(line)
        try:
            answer(getattr(networks, order.pop("do"))(**order))
        except ProfileError as problem:
            answer({"refused": str(problem)})
        except Exception as problem:  # noqa: BLE001  whatever a user's program raises is told in one line
            answer({"refused": f"{type(problem).__name__}: {first_line(problem)}"})


def first_line(problem: BaseException) -> str:
    """Return the first line of an exception's text."""
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


if __name__ == "__main__":
    main()
