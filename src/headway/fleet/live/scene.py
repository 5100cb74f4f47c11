"""Serve an application for real: from the tables of an experiment to a server, and from what it did to a run folder.

The folder of a live run is like that of a simulated one, so that it can be replayed, audited, shown and explained. Its
requests are those that came.
"""

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from headway.core.tape import TapeWriter
from headway.errors import ExperimentError
from headway.fleet.experiment.scene import REQUESTS_NAME, FleetScene, with_plans
from headway.fleet.live.options import LOCAL, Options
from headway.fleet.live.server import Server
from headway.fleet.live.workers.devices import CPU
from headway.fleet.live.workers.process import Engine
from headway.fleet.model.request import Groups, Request
from headway.fleet.scenarios import file as scenario_file
from headway.fleet.scenarios.limits import deadlines
from headway.fleet.scenarios.tables.settings import COLD, ServingExperiment, check
from headway.fleet.traces.stored import RequestStream
from headway.runs.domain import RunParts, RunResult, with_table
from headway.runs.folder.folder import claimed, store
from headway.runs.measured import numbers
from headway.units import SECOND


def live_scene(
    experiment: ServingExperiment, engine: str = LOCAL, context_bytes: int = 0, devices: Sequence[str] = ()
) -> FleetScene:
    """Return the scene of a server before its first request; ``engine`` says where its workers run.

    ``context_bytes``: what each worker's process takes of its GPU memory before any model; the books hold the rest.
    ``devices``: those that workers share in turn; none: each has its own. Those on the CPU share those of this machine.
    """
    check(experiment)
    for key, value in (("autoscale", experiment.serving.autoscale), ("controller", experiment.serving.controller)):
        if value not in ("", "none"):
            raise ExperimentError(f"serving.{key} {value}: real workers decide in real time; leave it out")
    if (start := experiment.serving.start) != COLD:
        raise ExperimentError(f"serving.start {start}: real workers begin without models; leave it out, or use --warm")
    here = len(os.sched_getaffinity(0)) if set(devices) == {CPU} else 0
    shared = {"devices": len(set(devices)), "shared_cpus": experiment.serving.shared_cpus or here}
    resolved = with_table(experiment, "serving", engine=engine, **shared)
    built = scenario_file.load(resolved)
    if context_bytes:
        least = min(worker.gpu.memory_bytes for worker in built.fleet.workers)
        if least <= context_bytes:
            raise ExperimentError(f"--gpu-memory {least:,} bytes: a process takes {context_bytes:,} of them for itself")
        resolved = with_table(resolved, "serving", gpu_memory=least - context_bytes)
        built = scenario_file.load(resolved)
    expected = tuple(Request(0, graph, 0, 0, limit) for graph, limit in enumerate(deadlines(resolved, built)[0]))
    return replace(with_plans(FleetScene(resolved, built, expected)), requests=())


@contextmanager
def served(
    scene: FleetScene,
    options: Options,
    out: Path | None = None,
    log: Callable[[str], None] = lambda line: None,
    engine: Engine | None = None,
) -> Iterator[Server]:
    """Yield a server that has not been started; what it did is kept in the folder ``out``, if that is given."""
    state, policy = scene.bound()
    options = replace(options, guesses="; ".join(scene.built.guesses))
    requests: RequestStream | None = None
    with claimed(out), _system_memory():
        if out is not None:
            store(scene, out)
            requests = RequestStream(out / REQUESTS_NAME)
        tape = TapeWriter(out, keep=False) if out is not None else _Nowhere()
        record: Callable[[Request], None] = requests.append if requests is not None else lambda request: None
        server = Server(state, policy, tape, options, deadlines(scene.experiment, scene.built)[0], record, log, engine)
        if requests is not None:
            server.on_flush = requests.flush
        try:
            yield server
        finally:
            closed = tape.close()
            if requests is not None:
                names = tuple(server.tenants)
                all_requests = requests.close(Groups((), names) if len(names) > 1 else scene.groups)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
                took = (False, server.clock() / SECOND, peak, out, ())
                end = RunParts(state, policy, server.fleet, exact=False)
                numbers(RunResult(replace(scene, requests=all_requests), scene.policy_name(), closed, *took, end))


@contextmanager
def _system_memory() -> Iterator[None]:
    """Let Arrow take its memory from the system meanwhile: its own pool grows for hours over small batches."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


class _Nowhere(TapeWriter):
    """A tape that is not kept."""

    def __init__(self) -> None:
        super().__init__()
        self.append = lambda row: None

    def note(self, text: str) -> None:
        """Do nothing."""
