"""Play a scene out: one run, whatever its scale, in memory or into a folder."""

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from headway.core.scheduler import Scheduler
from headway.core.tape import TapeWriter
from headway.errors import ExperimentError
from headway.experiment.domain import Begun, Progress, RunResult, Scene
from headway.experiment.folder import stored_into
from headway.experiment.interrupts import stops_on_interrupt
from headway.experiment.registry import domain_of
from headway.units import no_collection


def run(experiment: Any, progress: Progress | None = None) -> RunResult:
    """Play an experiment out. Ctrl-C ends it after the step in progress; what was done is then on the tape."""
    folder = Path(experiment.run.out) if experiment.run.out else None
    return play(domain_of(experiment).prepare(experiment), folder, progress)


def play(
    scene: Scene,
    folder: Path | None = None,
    progress: Progress | None = None,
    begin: Callable[[TapeWriter], Begun] | None = None,
) -> RunResult:
    """Run a prepared scene; from its beginning, or from where ``begin`` has led it."""
    if folder is not None:
        stored_into(scene, folder)
    before = scene.workload()
    with no_collection():  # a run makes no cycles, and the collector would walk the whole workload again and again
        started = perf_counter()
        tape = TapeWriter(folder)
        begun = scene.begin() if begin is None else begin(tape)
        scheduler = Scheduler(begun.state, begun.policy, begun.executor, tape)
        scheduler.decide_ns = [] if scene.times_decisions else None
        with stops_on_interrupt(scheduler.stop):
            try:
                scheduler.run(None if progress is None else lambda now: progress(scene.far(begun.state, now)))
            finally:
                closed = tape.close()
        wall_s = perf_counter() - started
    if scene.workload() != before:
        raise ExperimentError(f"policy {begun.policy.name}: changed the workload while it ran; a policy changes nothing")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    name = scene.domain.policy_name(scene.experiment)
    return RunResult(
        scene, name, closed, scheduler.stopped, wall_s, peak, folder, scheduler.decide_ns or (), begun
    )
