"""Serve Compass's graphs for real on one GPU, policy by policy and load by load: ``scripts/gpu-serve fleet``.

Five workers of 14 GB share a GPU by MPS; the four graphs of ``examples/pipeline/compass.py`` have networks of stated
sizes and random weights. Workers are warmed up. Loads, and drawn functions side by side, are timed in the workers,
which gives the profile and the table of pairs that policies and simulations read. Then the fleet is saturated once to
learn what it can do, and policies in random order serve Poisson arrivals at parts of that, in random order too, on the
same workers; ten seconds before each do not count. A part whose lines are in the file is not measured again. ``--dry``
runs all of it on the CPU with networks of megabytes. Needs torch and msgspec, neither polars nor plotly, and 42 GB of
shared memory.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench import gpu_serve_tables as tables
from bench.gpu_serve_drive import Drive
from headway.core.tape import TapeWriter
from headway.errors import HeadwayError
from headway.fleet.live.options import Options
from headway.fleet.live.server import Server
from headway.fleet.live.workers import payload
from headway.fleet.live.workers.messages import Evict
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import Request
from headway.fleet.policies.registry import build
from headway.fleet.profiling.process import SHARES, Mps
from headway.fleet.scenarios import file as scenario_file
from headway.fleet.scenarios.app import read_app
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.state.state import ServingState
from headway.formats import toml
from headway.units import SECOND

ROOT = Path(__file__).resolve().parent.parent
APP = ROOT / "examples" / "pipeline" / "compass.py"
POLICIES = ("headway", "compass", "jit", "hash", "heft")
LOADS = (0.5, 0.8, 0.95)
WORKERS = 5
CONTEXT_BYTES = 1_000_000_000
"""What a worker's process may take of its 14 GB besides models and activations: its context, libraries, workspaces."""
WARM_SECONDS, WARM_LOAD = 10.0, 0.8
"""Before the loads of a policy, with other requests; what was open is answered first."""
BASE = ROOT / "docs/background/results/h200-serving/compass.profile.toml"
"""Sizes of inputs, results and activations, from ``headway profile model``."""
FOLDER_VERSION = 2
"""Of run folders (headway.runs.settings.files, which needs polars)."""
CALM = {"OMP_NUM_THREADS": "3", "OMP_WAIT_POLICY": "PASSIVE"}
"""Five workers build their models at once: threads that wait must not spin on the CPUs of others."""
COUNTED = ("tasks", "batches", "loads", "cache_hits", "evictions", "moved_bytes", "rejected_actions")


class Lines:
    """Results as lines of JSON; what is there is not measured again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def has(self, **keys: Any) -> bool:
        """Return whether a row with these values is there."""
        return any(all(row.get(key) == value for key, value in keys.items()) for row in self.rows)

    def one(self, **keys: Any) -> dict[str, Any]:
        """Return the first row with these values."""
        return next(row for row in self.rows if all(row.get(key) == value for key, value in keys.items()))

    def keep(self, **row: Any) -> None:
        """Append a row."""
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


@contextmanager
def mps(wanted: bool) -> Iterator[dict[str, str]]:
    """Run MPS while the body runs; yield what its clients have in their environment."""
    if not wanted:
        yield {}
        return
    daemon = Mps()
    try:
        environment = daemon.environment(SHARES)
        # before its clients, which tell themselves from who was there; a pipe would never end: the server inherits it
        order = f"start_server -uid {os.getuid()}\n".encode()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = ["nvidia-cuda-mps-control"]
        subprocess.run(command, input=order, env={**os.environ, **environment}, check=False, timeout=30, **quiet)
        yield environment
    finally:
        daemon.end()


class Fleet:
    """What is served, and how: Compass's graphs."""

    name, app, workers = "compass", APP, WORKERS
    policies = POLICIES
    further: Mapping[str, Any] = {}
    """Keys of a run besides."""

    def __init__(self, given: argparse.Namespace, lines: Lines, environment: dict[str, str]) -> None:
        self.given, self.lines, self.environment = given, lines, environment
        self.servers: list[Server] = []
        """One after the other, on the same workers."""
        self.device = "cpu" if given.dry else "cuda:0"
        self.folder = Path(given.work)
        self.profile, self.pairs = given.out / f"{self.name}.profile.toml", given.out / "pairs.json"
        self.context_bytes = 0 if given.dry else CONTEXT_BYTES
        self.memory = "14MB" if given.dry else 14 * 10**9 - CONTEXT_BYTES
        app = read_app(self.app)
        self.inputs = {graph.name: graph.tasks[0].example(1)[0] for graph in app.graphs}  # type: ignore[misc]
        self.examples = {task.name: task.example for task in app.tasks if task.example is not None}
        self.models = app.models
        self.drawn = random.Random(given.seed)

    async def calibrate(self) -> None:
        """Time functions and loads in the workers; write the profile and the table of pairs that follow."""
        base = self.base()
        if not self.profile.exists():
            tables.write(base, self.profile)
        async with self.server("hash", self.folder / "calibrate") as (server, _):
            drive = Drive(server, self.examples)
            began = time.monotonic()
            await drive.push_examples()
            await drive.on_cpus(self.lines.keep)
            await drive.loads(self.lines.keep)
            await drive.mix(self.lines.keep, self.given.mix, self.given.seed)
            drive.end()
            models = {each.name: str(each.models) for each in server.state.catalogue.functions if each.models}
        fitted = tables.fit(self.lines.one(part="mix"), models)
        made = tables.profile(base, self.lines.rows, fitted, "timed in live workers, scripts/gpu-serve")
        tables.write(made, self.profile)
        tables.write_pairs(fitted, self.pairs)
        self.lines.keep(part="calibrated", seconds=round(time.monotonic() - began, 1))

    def base(self) -> toml.Document:
        """Return a profile with the sizes of models and activations; those of small networks are next to nothing."""
        document = toml.read(BASE, "profile")
        if self.given.dry:
            document["models"] = {model.name: {"weights": model.memory_bytes} for model in self.models}
            for table in document["functions"].values():
                table["activation"] = 0
        return document

    def experiment(self, policy: str) -> ServingExperiment:
        """Return the tables of a run."""
        serving = {"scenario": str(self.app), "workers": self.workers, "gpu_memory": self.memory, "engine": "local"}
        serving |= {"profile": str(self.profile), "devices": 1, **self.further}
        serving |= {"interference": str(self.pairs)} if self.pairs.exists() else {}
        return toml.typed({"serving": serving, "policy": {"name": policy}}, ServingExperiment, "fleet")

    @asynccontextmanager
    async def server(self, policy: str, run: Path) -> AsyncIterator[tuple[Server, list[Request]]]:
        """Yield a server that writes its tape into a folder; it takes over the workers of the one before, emptied."""
        experiment = self.experiment(policy)
        built = scenario_file.load(experiment)
        chosen = build(policy)
        latency = LatencyModel(built.catalogue, built.fleet, built.interference, built.by_share)
        central = experiment.serving.control == "central" or chosen.central
        state = ServingState(built.catalogue, built.fleet, latency, push_interval=10_000_000, central=central)
        chosen.bind(state)
        shutil.rmtree(run, ignore_errors=True)
        tape, requests = TapeWriter(run), list[Request]()
        options = Options(
            self.app,
            self.folder,
            (self.device,),
            self.environments(),
            warm=True,
            context_bytes=self.context_bytes,
            hang_after=30 * SECOND,
        )
        self._store(experiment, run)
        server = Server(state, chosen, tape, options, record=requests.append, log=_say)
        if self.servers:
            await _take_over(server, self.servers[-1])
        else:
            began = time.monotonic()
            await server.start()
            self.lines.keep(part="start", seconds=round(time.monotonic() - began, 1))
        self.servers.append(server)
        try:
            yield server, requests
            await server.drain()
        finally:
            tape.close()
            (run / "requests.json").write_text(json.dumps([list(request) for request in requests]))

    def environments(self) -> tuple[dict[str, str], ...]:
        """Return the environments of the workers, in turn."""
        return (self.environment,)

    def _store(self, experiment: ServingExperiment, run: Path) -> None:
        """Write what makes the folder one of a run, all but its tape and requests."""
        (run / "scenario.toml").write_text(scenario_file.written(experiment) or "")
        stored = msgspec.structs.replace(
            experiment,
            serving=msgspec.structs.replace(
                experiment.serving,
                scenario="scenario.toml",
                slices="",  # they are in its tables
                devices=0,
                profile=self.profile.name,
                interference=self.pairs.name if experiment.serving.interference else "",
            ),
        )
        (run / "experiment.toml").write_text(
            toml.write({"version": FOLDER_VERSION, "scale": "fleet", **msgspec.to_builtins(stored)})
        )
        for path in (self.profile, self.pairs):
            if path.exists():
                shutil.copy(path, run)

    async def stop(self) -> None:
        """Stop the workers and leave nothing behind."""
        if self.servers:
            await self.servers[-1].stop()
        for server in self.servers:
            payload.sweep(server._prefix)
            shutil.rmtree(server._host_folder, ignore_errors=True)

    async def press(self, server: Server, seconds: float) -> int:
        """Keep as many requests open as the fleet can take; return how many were answered."""
        drawn, answered, until = random.Random(1), 0, time.monotonic() + seconds

        async def client() -> None:
            nonlocal answered
            while time.monotonic() < until:
                graph = drawn.choice(server.graphs)
                await server.submit(graph, self.inputs[graph])
                answered += time.monotonic() < until

        await asyncio.gather(*(client() for _ in range(3 * self.workers)))
        return answered

    async def saturate(self, seconds: float) -> None:
        """Note how many requests the fleet answers a second when it has all it can take."""
        async with self.server("headway", self.folder / "saturate") as (server, _):
            await self.press(server, WARM_SECONDS)
            answered = await self.press(server, 1.5 * seconds)
            self.lines.keep(part="saturate", per_second=answered / seconds / 1.5, **_seen(server.status()))

    async def serve(self, policy: str, seconds: float) -> None:
        """Serve each load under one policy."""
        per_second = self.lines.one(part="saturate")["per_second"]
        run = self.folder / policy
        async with self.server(policy, run) as (server, requests):
            await self.open_loop(server, per_second * WARM_LOAD, WARM_SECONDS, self.given.seed + 1)
            for load in self.drawn.sample(LOADS, len(LOADS)):
                first, before = len(requests), server.status()
                row = await self.open_loop(server, per_second * load, seconds, self.given.seed)
                status = server.status()
                ids = {"first": requests[first].id, "last": requests[-1].id} if len(requests) > first else {}
                counted = {key: status[key] - before[key] for key in COUNTED}
                self.lines.keep(part="serve", policy=policy, load=load, **row, **ids, **counted, **_seen(status))
        self.lines.keep(part="policy", policy=policy)
        self._pack()

    def _pack(self) -> None:
        """Keep the runs so far in one file."""
        with tarfile.open(self.given.out / "runs.tar.gz", "w:gz") as file:
            for path in sorted(self.folder.iterdir()):
                if (path / "tape.parquet").exists():
                    file.add(path, path.name)

    async def open_loop(
        self, server: Server, rate: float, seconds: float, seed: int, deadlines: Mapping[str, int] | None = None
    ) -> dict[str, Any]:
        """Send requests at drawn times; return latencies from these times on. ``deadlines``: by graph."""
        drawn, began, at = random.Random(seed), time.monotonic(), 0.0
        latencies: list[float] = []
        failed: list[str] = []
        in_time = 0

        async def one(graph: str, due: float) -> None:
            nonlocal in_time
            deadline = (deadlines or {}).get(graph)
            try:
                await server.submit(graph, self.inputs[graph], deadline_ns=deadline)
                latencies.append(time.monotonic() - due)
                in_time += deadline is None or latencies[-1] <= deadline / SECOND
            except HeadwayError as problem:
                failed.append(str(problem))

        tasks = []
        while (at := at + drawn.expovariate(rate)) < seconds:
            await asyncio.sleep(max(0.0, began + at - time.monotonic()))
            tasks.append(asyncio.ensure_future(one(drawn.choice(server.graphs), began + at)))
        await asyncio.gather(*tasks)
        row: dict[str, Any] = {"rate": round(rate, 3), "answered": len(latencies), "failed": len(failed)}
        row |= {"reasons": failed[:3], "in_time": in_time}
        if ordered := sorted(latencies):
            row["mean_s"] = round(sum(ordered) / len(ordered), 4)
            for p in (50, 90, 99):
                row[f"p{p}_s"] = round(ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 4)
        return row


def _say(line: str) -> None:
    print(line, flush=True)


async def _take_over(server: Server, before: Server) -> None:
    """Give a server the workers of the one before, which has nothing open, and take the models out of them."""
    for task in before._tasks:
        task.cancel()
    if before._alarm is not None:
        before._alarm.cancel()
    await asyncio.sleep(1.0)  # models that are fetched ahead are there by then
    for process, own in zip(before.processes, server.processes, strict=True):
        process._on_answer, process._on_gone, process._setup = own._on_answer, own._on_gone, own._setup
        for model in range(len(server.state.catalogue.models)):
            process.send(Evict(model))
    server.processes, server._host_folder, server.ready = before.processes, before._host_folder, True
    server._keep(server._watch())


def _seen(status: dict[str, Any]) -> dict[str, Any]:
    """Return what the workers hold, by their own count and as the device reports it, and how late functions are."""
    workers = status["workers"]
    of = {key: [worker[key] for worker in workers] for key in ("booked_bytes", "used_bytes", "device_bytes", "starts")}
    return {**of, "drift": {name: round(ratio, 3) for name, ratio in status["drift"].items()}}


def flags(about: str | None) -> argparse.ArgumentParser:
    """Return the flags of a measurement."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out/gpu-serve")))
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/gpu-serve"), help="weights and runs; removed at the end"
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="of each load")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds after which nothing new is begun")
    parser.add_argument("--policies", default="", help="some of them")
    parser.add_argument("--seed", type=int, default=7, help="of orders and arrivals")
    parser.add_argument("--mix", type=float, default=60.0, help="seconds of drawn functions side by side")
    parser.add_argument("--dry", action="store_true")
    return parser


def main() -> None:
    """Measure what is missing, until the budget of time is spent."""
    given = flags(__doc__).parse_args()
    run(Fleet, given, "fleet.jsonl")


def run(kind: type[Fleet], given: argparse.Namespace, results: str) -> None:
    """Measure what is missing of one kind."""
    os.environ["HEADWAY_EXAMPLE_SCALE"] = "0.001" if given.dry else "1"
    for place in (given.out, given.work):
        place.mkdir(parents=True, exist_ok=True)
    lines, began = Lines(given.out / results), time.monotonic()
    try:
        with mps(not given.dry) as environment:
            fleet = kind(given, lines, {**environment, **CALM})
            asyncio.run(_measure(fleet, began))
    finally:
        shutil.rmtree(given.work, ignore_errors=True)


async def _measure(fleet: Fleet, began: float) -> None:
    """Serve what is missing, as long as there is time for all loads of a policy."""
    given, lines, longest = fleet.given, fleet.lines, 3 * fleet.given.seconds + 20
    try:
        if not lines.has(part="calibrated"):
            await fleet.calibrate()
        if not lines.has(part="saturate"):
            await fleet.saturate(given.seconds)
        policies = given.policies.split(",") if given.policies else list(fleet.policies)
        for policy in fleet.drawn.sample(policies, len(policies)):
            if lines.has(part="policy", policy=policy):
                continue
            if (start := time.monotonic()) - began + longest > given.budget:
                print(f"time is up before {policy}", file=sys.stderr)
                break
            await fleet.serve(policy, given.seconds)
            longest = max(longest, time.monotonic() - start)
    finally:
        await fleet.stop()


if __name__ == "__main__":
    main()
