"""Worker process of ``fleet.profiling.model``: reads orders from stdin, times networks, and answers in JSON.

It is a separate process because MPS gives a process its share of the SMs when it starts, and because a cold start can
only be measured on a new one. Output of the network's program goes to stderr; answers have their own pipe.
"""

import time

BEGAN_NS = time.monotonic_ns()  # before anything else is imported: imports are part of a cold start

import importlib.util  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from headway.errors import ProfileError  # noqa: E402
from headway.fleet.profiling.device import Device, resident_bytes, serve, timed, weights_bytes  # noqa: E402


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


class Networks(Device):
    """The loaded networks on one device; times them."""

    def __init__(self, device: str) -> None:
        super().__init__(device, BEGAN_NS)
        self.subjects: dict[str, Subject] = {}

    # --- what can be asked for ----------------------------------------------------------------------------------

    def load(self, name: str, factory: str) -> dict[str, Any]:
        """Make a network by its factory and load it onto the device."""
        subject = Subject(made_by(factory), factory)
        subject.network.eval()
        built_ns = time.monotonic_ns()
        before = self.used()
        subject.network.to(self.device)
        self.synchronise()
        loaded_ns = time.monotonic_ns()
        self.subjects[name] = subject
        return {
            "built_ns": built_ns,
            "loaded_ns": loaded_ns,
            "weights_bytes": weights_bytes(subject.network),
            "allocated_bytes": self.used() - before,
            "tensors": len([*subject.network.parameters(), *subject.network.buffers()]),
        }

    def first(self, name: str) -> dict[str, Any]:
        """Run a network once, after which the process is ready."""
        subject = self.subjects[name]
        self._run(subject, subject.made_inputs(1))
        return {"ready_ns": time.monotonic_ns(), "resident_bytes": resident_bytes()}

    def gpu(self, name: str, batch: int, cpus: int, runs: int, least_s: float) -> dict[str, Any]:
        """Time the network alone: inputs to the device, the network, its outputs back to the host."""
        self.hold(cpus)
        subject = self.subjects[name]
        inputs = subject.made_inputs(batch)
        return self.timed_with_peak(lambda: self._run(subject, inputs), runs, least_s)

    def cpu(self, name: str, batch: int, cpus: int, runs: int, least_s: float, first: int = 0) -> dict[str, Any]:
        """Time the CPU work before and after the network, with an idle device, on the CPUs from ``first`` on."""
        place = first % len(self.all_cpus)
        self.hold_these((self.all_cpus[place:] + self.all_cpus[:place])[:cpus])
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
        self.hold(cpus)
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
        self.hold_these(cpus)
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
        return self.timed_loads(self.subjects[name].network)

    def drop(self, name: str) -> dict[str, Any]:
        """Forget a network."""
        del self.subjects[name]
        self.empty()
        return {}

    # --- how --------------------------------------------------------------------------------------------------

    def _run(self, subject: Subject, inputs: Any) -> Any:
        torch = self.torch
        with torch.inference_mode():
            given = inputs if isinstance(inputs, tuple) else (inputs,)
            there = [each.to(self.device, non_blocking=True) if torch.is_tensor(each) else each for each in given]
            here = self.moved(subject.network(*there))
        self.synchronise()
        return here


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


if __name__ == "__main__":
    serve(Networks)
