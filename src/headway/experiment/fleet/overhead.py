"""Measure what a batch takes besides its profile where an application is served: decision, messages, copies of values.

A server answers requests one after the other, so that none waits for another. Between them are pauses, as under load:
processes that have slept wake up, and functions run with colder caches than in the profiler. The overhead is the one
with which a simulation of these requests takes as long in the mean as they took.
"""

import asyncio
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from headway.errors import ProfileError
from headway.experiment.domain import StoredRun
from headway.experiment.fleet.live import live_scene, served
from headway.experiment.fleet.scene import FleetScene
from headway.experiment.fleet.serving import examples_of
from headway.experiment.play import play
from headway.experiment.registry import domain_of
from headway.formats.serving.settings import ServingExperiment, ServingTable
from headway.live.serving.devices import devices_of
from headway.live.serving.options import Options
from headway.live.serving.server import Server
from headway.scenarios.app import read_app
from headway.serving.request import Request
from headway.units import MILLISECOND, SECOND

WARM, REQUESTS, WORKERS = 5, 300, 2
_LONGEST_PAUSE_S = 0.06
_PATIENCE_NS = 120 * 10**9
_PROBE_NS = MILLISECOND
"""The overhead that is tried in simulation, to see by how much longer requests take with it."""


def overhead_of(path: Path, profile: Path, device: str) -> int:
    """Return the overhead of a batch of an application in nanoseconds, served with its profile on a device.

    ``profile`` is a file without an overhead; one is written into it for a moment.
    """
    app = read_app(path)
    if not (examples := examples_of(app)):
        raise ProfileError(f"app {path}: no first task has an example that can be sent: give it one of JSON values")
    devices = devices_of(device or "auto")
    serving = ServingTable(scenario=str(path), profile=str(profile), workers=WORKERS)
    experiment = ServingExperiment(serving=serving)
    scene = live_scene(experiment, devices=devices)
    with tempfile.TemporaryDirectory(prefix="headway-overhead-") as folder:
        options = Options(app=path.resolve(), folder=Path(folder), devices=devices)
        with served(scene, options) as server:
            taken = asyncio.run(_latencies(server, examples))
    names = [graph.name for graph in scene.built.catalogue.graphs]
    numbers = [names.index(graph) for graph, _ in taken]
    without = _simulated(scene, numbers)
    text = profile.read_text()
    profile.write_text(f'overhead = "{_PROBE_NS}ns"\n{text}')
    slope = (_simulated(live_scene(experiment, devices=devices), numbers) - without) / _PROBE_NS
    profile.write_text(text)
    return max(0, round((fmean(latency for _, latency in taken) - without) / slope))


async def _latencies(server: Server, examples: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return graph and latency of each request in nanoseconds; the first ones of each graph do not count."""
    found: list[tuple[str, int]] = []
    draw = random.Random(0)
    await server.start()
    try:
        for graph, value in examples.items():
            for each in range(WARM + -(-REQUESTS // len(examples))):
                await asyncio.sleep(draw.uniform(0, _LONGEST_PAUSE_S))
                begun = server.clock()
                await server.submit(graph, value, deadline_ns=_PATIENCE_NS)
                if each >= WARM:
                    found.append((graph, server.clock() - begun))
    finally:
        await server.stop()
    return found


def _simulated(scene: FleetScene, graphs: Sequence[int]) -> float:
    """Return the mean latency of requests one after the other in simulation, in nanoseconds."""
    requests = tuple(Request(each, graph, each * SECOND, 0) for each, graph in enumerate(graphs))
    alone = replace(scene, requests=requests).simulated()
    assert alone is not None  # it is a server's
    result = play(alone)
    stays = domain_of(alone.experiment).view.stays(StoredRun(Path(), alone, result.tape, True, {}))
    return fmean(stays.values()) * SECOND
