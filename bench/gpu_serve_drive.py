"""Measure what functions and loads take in the workers of a live server: alone, and beside each other.

Orders go to the worker processes past the policy, which decides nothing meanwhile. Times are those that the server
sees, from the order to the answer, as its tape has them.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

from headway.live.serving.messages import Answer, Evict, Finished, Loaded, Rejected, Run
from headway.live.serving.payload import Payload, release
from headway.live.serving.server import Server

MS = 1e6
BATCHES = (1, 2, 4)
LEAST_RUNS, MOST_RUNS, LEAST_S = 5, 25, 0.25
WINDOW_S = 0.7
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

    async def alone(self, keep: Keep, workers: Sequence[int]) -> None:
        """Time every function on each of some workers, nothing beside it."""
        for worker in workers:
            for function, name in enumerate(self._names):
                for batch in BATCHES:
                    if batch > self._server.state.latency.batches(worker, function)[-1]:
                        continue
                    taken = await self._repeat(lambda w=worker, f=function, b=batch: self.run(w, f, b))  # type: ignore[misc]
                    cell = self._server.state.latency.least(worker, function)
                    shown = {"worker": worker, "function": name, "batch": batch, "cpus": cell.cpus}
                    keep(part="alone", **shown, slices=cell.slices, **_listed(taken))

    async def _repeat(self, once: Callable[[], Awaitable[Timing]]) -> list[Timing]:
        """Return some timings; the first, which may load models, does not count."""
        await once()
        began, taken = time.monotonic(), list[Timing]()
        while len(taken) < LEAST_RUNS or (time.monotonic() - began < LEAST_S and len(taken) < MOST_RUNS):
            taken.append(await once())
        return taken

    async def _window(self, jobs: Sequence[tuple[int, int]], seconds: float = WINDOW_S) -> list[list[Timing]]:
        """Run (worker, function) side by side, each again and again; return the timings of whole runs."""
        for worker, function in jobs:
            await self.run(worker, function)
        until, counts = time.monotonic() + seconds, [0] * len(jobs)

        async def again(at: int, worker: int, function: int) -> list[Timing]:
            taken = []
            while time.monotonic() < until or min(counts) < 3:
                taken.append(await self.run(worker, function))
                counts[at] += 1
            return taken[1:]

        return list(await asyncio.gather(*(again(at, *job) for at, job in enumerate(jobs))))

    async def beside(self, keep: Keep, workers: tuple[int, int]) -> None:
        """Time functions in pairs, each against itself alone just before."""
        distinct = self.distinct()
        for function in distinct:
            for worker in workers:
                taken = (await self._window([(worker, function)], 0.5))[0]
                keep(part="solo", worker=worker, function=self._names[function], **_listed(taken))
        for pair in combinations_with_replacement(distinct, 2):
            taken = await self._window(list(zip(workers, pair, strict=True)))
            names = [self._names[function] for function in pair]
            keep(part="beside", workers=list(workers), functions=names, timings=[_listed(each) for each in taken])

    async def crowd(self, keep: Keep) -> None:
        """Time functions with all other workers busy: with the same function, and with a mixture."""
        distinct = self.distinct()
        for function in distinct:
            mixed = [distinct[(distinct.index(function) + 1 + 2 * step) % len(distinct)] for step in self.workers]
            for others in ([function] * len(self.workers), mixed):
                jobs = [(worker, function if not worker else others[worker]) for worker in self.workers]
                taken = await self._window(jobs)
                names = [self._names[job[1]] for job in jobs]
                keep(part="crowd", functions=names, **_listed(taken[0]))

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

    async def pinned(self, keep: Keep) -> None:
        """Time the longest function with threads of the worker held to its share of the CPUs, and free, by turns."""
        long = max(self.distinct(), key=lambda at: self._server.state.latency.base[0][at])
        short = min(self.distinct(), key=lambda at: self._server.state.latency.base[0][at])
        for crowded in (False, True):
            for held in (False, True) * 2:
                with self._held(held):
                    for function in (long, short):
                        jobs = [(worker, function) for worker in (self.workers if crowded else [0])]
                        taken = (await self._window(jobs))[0]
                        name = self._names[function]
                        keep(part="pinned", held=held, crowded=crowded, function=name, **_listed(taken))

    @contextmanager
    def _held(self, held: bool) -> Any:
        here = sorted(os.sched_getaffinity(0))
        share = max(1, len(here) // len(self.workers))
        for worker, process in enumerate(self._server.processes):
            _hold(process.pid, (here[worker * share :][:share] if held else here) or here)
        try:
            yield
        finally:
            for process in self._server.processes:
                _hold(process.pid, here)


def _hold(pid: int, cpus: Sequence[int]) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)


def _listed(taken: Sequence[Timing]) -> dict[str, list[float]]:
    return {"ms": [round(each.run, 4) for each in taken], "own_ms": [round(each.own, 4) for each in taken]}
