"""Measure what functions and loads take in the workers of a live server: alone, and beside each other.

Orders go to the worker processes past the policy, which decides nothing meanwhile. Times are those that the server
sees, from the order to the answer, as its tape has them.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from headway.fleet.live.server import Server
from headway.fleet.live.workers.messages import Answer, Evict, Finished, Loaded, Rejected, Run
from headway.fleet.live.workers.payload import Payload, release

MS = 1e6
BATCHES = (1, 2, 4)
CPU_RUNS = 20
Keep = Callable[..., None]


class Timing(NamedTuple):
    """What one batch took, in milliseconds."""

    load: float
    """Until its models were there; 0: they were."""
    run: float
    """From then on, or from the order on, until the server had its results."""
    own: float
    """The function itself, by the worker's clock."""


class Drive:
    """The workers of a server, driven by hand."""

    def __init__(self, server: Server, examples: dict[str, Callable[[int], list[Any]]]) -> None:
        """``examples``: of the entry tasks, by name."""
        self._server, self.catalogue = server, server.state.catalogue
        self.workers = range(len(server.processes))
        self._names = [function.name for function in self.catalogue.functions]
        self._resident: list[dict[int, None]] = [{} for _ in self.workers]
        self._lease, self._open = 1 << 40, dict[int, tuple[asyncio.Future[Finished], list[float]]]()
        self._examples, self.inputs = examples, dict[int, list[tuple[Payload, ...]]]()
        self._made: list[Payload] = []
        for index, process in enumerate(server.processes):
            process._on_answer = partial(self._answered, index)  # type: ignore[attr-defined]

    def _answered(self, worker: int, answer: Answer) -> None:
        lease = getattr(answer, "lease", None)
        if (waiting := self._open.get(lease)) is None:
            return
        if isinstance(answer, Loaded):
            waiting[1].append(time.perf_counter())
        elif isinstance(answer, Finished):
            waiting[1].append(time.perf_counter())
            waiting[0].set_result(answer)
        elif isinstance(answer, Rejected):
            waiting[0].set_exception(RuntimeError(answer.reason))

    async def order(self, worker: int, function: int, batch: int, *, fresh: bool = False) -> tuple[Timing, Finished]:
        """Run a batch on a worker; ``fresh``: its models are loaded for it, and all others go."""
        kind, resident = self.catalogue.functions[function], self._resident[worker]
        missing = [model for model in kind.models if model not in resident]
        evict = tuple(model for model in resident if model not in kind.models) if missing or fresh else ()
        if fresh and not missing:
            for model in kind.models:
                self._server.processes[worker].send(Evict(model))
            missing = list(kind.models)
        self._resident[worker] = dict.fromkeys([*kind.models, *(m for m in resident if m not in evict)])
        cell = self._server.state.latency.least(worker, function)
        self._lease += 1
        lease, given = self._lease, tuple(self.inputs[function][:batch])
        waiting: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        self._open[lease] = waiting, []
        began = time.perf_counter()
        self._server.processes[worker].send(Run(lease, function, given, kind.models, evict, cell.cpus, cell.slices))
        answer = await asyncio.wait_for(waiting, 60)
        if answer.failures:
            raise RuntimeError(f"{kind.name}: {answer.failures}")
        *loaded, ended = self._open.pop(lease)[1]
        there = loaded[0] if missing and loaded else began
        return Timing(1e3 * (there - began) if missing else 0.0, 1e3 * (ended - there), answer.run_ns / MS), answer

    async def run(self, worker: int, function: int, batch: int = 1, *, fresh: bool = False) -> Timing:
        """Run a batch; return what it took."""
        timing, answer = await self.order(worker, function, batch, fresh=fresh)
        for result in answer.results:
            release(result)
        return timing

    async def push_examples(self) -> None:
        """Push examples through the graphs, so that every function has inputs."""
        count = max(BATCHES)
        for graph in self.catalogue.graphs:
            results: list[tuple[Payload, ...]] = []
            for at, task in enumerate(graph.tasks):
                if before := graph.predecessors[at]:
                    rows = list(zip(*(results[other] for other in before), strict=True))
                else:
                    made = self._examples[self._names[task.function]](count)
                    rows = [(self._server._packer.pack(value),) for value in made]
                self.inputs.setdefault(task.function, rows)
                _, answer = await self.order(0, task.function, count)
                results.append(answer.results)
                self._made += [payload for row in rows for payload in row] + list(answer.results)

    def end(self) -> None:
        """Remove what was made, and take the models out of the workers."""
        for payload in self._made:
            with suppress(FileNotFoundError):
                release(payload)
        for worker in self.workers:
            for model in self._resident[worker]:
                self._server.processes[worker].send(Evict(model))

    # --- what is measured -------------------------------------------------------------------------------------------

    def distinct(self) -> list[int]:
        """Return a function for each set of models: those with the same models do the same."""
        found: dict[tuple[int, ...], int] = {}
        for at, function in enumerate(self.catalogue.functions):
            if function.models:
                found.setdefault(function.models, at)
        return list(found.values())

    async def on_cpus(self, keep: Keep) -> None:
        """Time the functions that need no GPU."""
        latency = self._server.state.latency
        for function, name in enumerate(self._names):
            cell = latency.least(0, function)
            for batch in BATCHES if not cell.slices else ():
                if batch <= latency.batches(0, function)[-1]:
                    taken = [await self.run(0, function, batch) for _ in range(CPU_RUNS)]
                    keep(part="cpu", function=name, batch=batch, cpus=cell.cpus, ms=[round(t.run, 4) for t in taken])

    async def mix(self, keep: Keep, seconds: float, seed: int) -> None:
        """Run drawn functions and batches on all workers at once, with pauses as long as the runs before them.

        Neighbours are then drawn too: what they cost is told from what the machine does by itself in the meantime.
        """
        until = time.perf_counter() + seconds
        on_gpu = [at for at, function in enumerate(self.catalogue.functions) if function.models]

        async def client(worker: int) -> list[list[float]]:
            drawn, taken, deck = random.Random(f"{seed} {worker}"), [], list[tuple[int, int]]()
            while time.perf_counter() < until:
                if not deck:  # each as often as any other
                    deck = [(function, batch) for function in on_gpu for batch in BATCHES]
                    drawn.shuffle(deck)
                function, batch = deck.pop()
                timing = await self.run(worker, function, batch)
                end = time.perf_counter()
                taken.append([worker, function, batch, round(1e3 * end - timing.run, 3), round(1e3 * end, 3)])
                await asyncio.sleep(timing.run / 1e3 * drawn.expovariate(1.0))
            return taken

        found = await asyncio.gather(*(client(worker) for worker in self.workers))
        slices = [self._server.state.latency.least(worker, on_gpu[0]).slices for worker in self.workers]
        cpus = self._server.state.latency.least(0, on_gpu[0]).cpus
        samples = [each for taken in found for each in taken]
        keep(part="mix", functions=self._names, slices=slices, cpus=cpus, samples=samples)

    async def loads(self, keep: Keep) -> None:
        """Time loads of models, each with the eviction of the one before: on one worker, on several at once."""
        light = sorted(self.distinct(), key=lambda at: self._server.state.latency.base[0][at])
        for count in dict.fromkeys((1, 2, 3, len(self.workers))):

            async def cycle(worker: int) -> list[tuple[str, float]]:
                taken = []
                for step in range(2 * len(light)):
                    function = light[(step + 2 * worker) % len(light)]
                    took = (await self.run(worker, function, fresh=True)).load
                    models = self.catalogue.functions[function].models
                    taken.append((self.catalogue.models[models[0]].name, round(took, 3)))
                return taken

            found = await asyncio.gather(*(cycle(worker) for worker in range(count)))
            keep(part="load", workers=count, ms=[each for taken in found for each in taken])
