"""Measure what a batch takes besides its profile where an application is served: decision, messages, copies of values.

A server of one worker answers requests one after the other, so that nothing waits for anything else. Between them are
pauses, as under load: processes that have slept wake up, and functions run with colder caches than in the profiler.
"""

import asyncio
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from headway.errors import ProfileError
from headway.experiment.fleet.live import live_scene, served
from headway.experiment.fleet.serving import examples_of
from headway.formats.serving.settings import ServingExperiment, ServingPolicyTable, ServingTable
from headway.live.serving.devices import devices_of
from headway.live.serving.options import Options
from headway.live.serving.server import Server
from headway.scenarios.app import read_app
from headway.serving.workerstate import Batch

WARM, REQUESTS = 5, 50
_LONGEST_PAUSE_S = 0.06
_PATIENCE_NS = 120 * 10**9


def overhead_of(path: Path, profile: Path, device: str) -> int:
    """Return the mean overhead of a batch of an application in nanoseconds, served with its profile on a device."""
    app = read_app(path)
    if not (examples := examples_of(app)):
        raise ProfileError(f"app {path}: no first task has an example that can be sent: give it one of JSON values")
    devices = devices_of(device or "auto")
    serving = ServingTable(scenario=str(path), profile=str(profile), workers=1)
    experiment = ServingExperiment(serving=serving, policy=ServingPolicyTable(name="hash"))
    with tempfile.TemporaryDirectory(prefix="headway-overhead-") as folder:
        options = Options(app=path.resolve(), folder=Path(folder), devices=devices[:1])
        with served(live_scene(experiment, devices=options.devices), options) as server:
            samples = asyncio.run(_samples(server, examples))
    return max(0, round(fmean(samples)))


async def _samples(server: Server, examples: Mapping[str, Any]) -> list[int]:
    """Return what each batch took beyond its profile; the first requests of each graph do not count."""
    found: list[int] = []
    draw = random.Random(0)

    def note(worker: int, batch: Batch, run_ns: int) -> None:
        if batch.start == batch.began:
            found.append(server.clock() - batch.end)

    await server.start()
    try:
        for graph, value in examples.items():
            for _ in range(WARM):
                await server.submit(graph, value, deadline_ns=_PATIENCE_NS)
        server.fleet.on_ran = note
        for graph, value in examples.items():
            for _ in range(REQUESTS):
                await asyncio.sleep(draw.uniform(0, _LONGEST_PAUSE_S))
                await server.submit(graph, value, deadline_ns=_PATIENCE_NS)
    finally:
        await server.stop()
    return found
