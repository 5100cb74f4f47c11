"""Measure what a batch takes besides its profile where an application is served: decision, messages, copies of values.

A server answers requests one after the other, so that none waits for another. Between them are pauses of different
lengths: a process that has slept longer takes longer to wake up, and its caches are colder. The overhead, by how long a
worker has been idle, is the one with which a simulation of these requests takes as long in the mean as they took, after
pauses of each length.
"""

import asyncio
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from headway.core import tape
from headway.errors import ProfileError
from headway.fleet.experiment.scene import REQUESTS_NAME, FleetScene
from headway.fleet.live.application import examples_of
from headway.fleet.live.options import Options
from headway.fleet.live.scene import live_scene, served
from headway.fleet.live.server import Server
from headway.fleet.live.workers.devices import devices_of
from headway.fleet.model.request import Request
from headway.fleet.scenarios.app import read_app
from headway.fleet.scenarios.tables.settings import ServingExperiment, ServingTable
from headway.fleet.traces import stored as request_table
from headway.runs.domain import StoredRun
from headway.runs.play import play
from headway.runs.registry import domain_of
from headway.units import MILLISECOND, SECOND

WARM, LEAST, WORKERS = 10, 20, 2
"""Requests that do not count, requests after pauses of each length at least, workers."""
MEASURED_S = 60.0
"""How long it serves: over a few seconds a machine may be a tenth faster or slower than usual."""
IDLE = (0, 4 * MILLISECOND, 16 * MILLISECOND, 64 * MILLISECOND)
"""Where a length begins: pauses of each length are drawn up to the next one."""
_LONGEST = 4 * IDLE[-1]
_PATIENCE_NS = 120 * 10**9
_PROBE_NS = MILLISECOND // 10
"""The overhead that is tried in simulation, to see by how much longer requests take with it."""
_ROUNDS = 4
"""How often all lengths are corrected: a worker is idle for a little longer than a pause, so one moves the next."""


class Timed(NamedTuple):
    """A request that was served alone, of which length the pause before it was, and its latency on the tape."""

    request: Request
    length: int
    """A place in ``IDLE``; -1: it does not count."""
    latency: float


def overhead_of(path: Path, profile: Path, device: str) -> dict[int, int]:
    """Return the overhead of a batch of an application by idle time of its worker, served with its profile on a device.

    ``profile`` is a file without an overhead; some are written into it for a moment.
    """
    devices = devices_of(device or "auto")
    experiment = ServingExperiment(serving=ServingTable(scenario=str(path), profile=str(profile), workers=WORKERS))
    taken = _served(live_scene(experiment, devices=devices), path, devices)
    text = profile.read_text()

    def simulated(overhead: Sequence[int]) -> list[float]:
        by_idle = ", ".join(f'"{idle}ns" = "{time}ns"' for idle, time in zip(IDLE, overhead, strict=True))
        profile.write_text(f"overhead = {{ {by_idle} }}\n{text}")
        return _by_length(taken, _simulated(live_scene(experiment, devices=devices), taken))

    try:
        return dict(zip(IDLE, _solved(simulated, _by_length(taken, [each.latency for each in taken])), strict=True))
    finally:
        profile.write_text(text)


def _solved(simulated: Callable[[Sequence[int]], list[float]], wanted: Sequence[float]) -> list[int]:
    """Return the overheads with which simulated means are the wanted ones; a longer sleep never costs less."""
    found = [0] * len(wanted)
    for _ in range(_ROUNDS):
        for length, mean in enumerate(wanted):
            without = simulated(found)[length]
            slope = (simulated(_raised(found, length, _PROBE_NS))[length] - without) / _PROBE_NS
            if slope > 0:  # else no worker was idle for so long
                found = _raised(found, length, round((mean - without) / slope))
    return found


def _raised(overhead: Sequence[int], length: int, more: int) -> list[int]:
    """Return overheads with more for one length: no less than before it, and no more than those behind it."""
    raised = max(0, *overhead[:length], overhead[length] + more)
    return [*overhead[:length], raised, *(max(raised, each) for each in overhead[length + 1 :])]


def _served(scene: FleetScene, path: Path, devices: tuple[str, ...]) -> list[Timed]:
    """Serve requests one after the other, after pauses of all lengths; return what the tape says of them.

    What counts is the tape: it is also what a simulation is compared with.
    """
    if not (examples := examples_of(read_app(path))):
        raise ProfileError(f"app {path}: no first task has an example that can be sent: give it one of JSON values")
    with tempfile.TemporaryDirectory(prefix="headway-overhead-") as text:
        folder = Path(text)
        options = Options(app=path.resolve(), folder=folder / "server", devices=devices, warm=True)
        with served(scene, options, folder / "run") as server:
            lengths = asyncio.run(_asked(server, examples))
        requests = request_table.read(folder / "run" / REQUESTS_NAME)
        run = StoredRun(folder, replace(scene, requests=requests), tape.read(folder / "run"), True, {})
        return [Timed(*each) for each in zip(requests, lengths, _stays(run), strict=True)]


async def _asked(server: Server, examples: Mapping[str, Any]) -> list[int]:
    """Send requests, each when the one before it has its answer and after a pause; return the length of each pause."""
    lengths: list[int] = []
    draw, ends = random.Random(0), (*IDLE[1:], _LONGEST)
    await server.start()
    until = server.clock() + MEASURED_S * SECOND
    try:
        for graph in cycle(examples):
            length = draw.randrange(len(IDLE))
            await asyncio.sleep(draw.uniform(IDLE[length], ends[length]) / SECOND)
            await server.submit(graph, examples[graph], deadline_ns=_PATIENCE_NS)
            lengths.append(length if len(lengths) >= WARM else -1)
            if server.clock() > until and min(map(lengths.count, range(len(IDLE)))) >= LEAST:
                break
    finally:
        await server.stop()
    return lengths


def _by_length(taken: Sequence[Timed], latencies: Sequence[float]) -> list[float]:
    """Return the mean latency of requests after pauses of each length."""
    groups: list[list[float]] = [[] for _ in IDLE]
    for request, latency in zip(taken, latencies, strict=True):
        if request.length >= 0:
            groups[request.length].append(latency)
    return [fmean(group) for group in groups]


def _simulated(scene: FleetScene, taken: Sequence[Timed]) -> list[float]:
    """Return the latencies of the same requests in simulation, in nanoseconds."""
    alone = replace(scene, requests=tuple(each.request for each in taken)).simulated()
    assert alone is not None  # it is a server's
    return _stays(StoredRun(Path(), alone, play(alone).tape, True, {}))


def _stays(run: StoredRun) -> list[float]:
    """Return the latency of each request of a run, in nanoseconds; all were answered."""
    return [SECOND * latency for latency in domain_of(run.scene.experiment).view.stays(run).values()]
