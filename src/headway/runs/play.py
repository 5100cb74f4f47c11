"""Run one experiment of any scale to its end, in memory or into a folder."""

import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from headway.core.collector import no_collection
from headway.core.scheduler import Scheduler
from headway.core.tape import TapeWriter
from headway.errors import HeadwayError, StalledRunError
from headway.runs.blame import blamed
from headway.runs.domain import Progress, RunResult, Scene
from headway.runs.folder.folder import claimed, forget, store
from headway.runs.mutation_check import is_watched, refuse_findings, unchanged
from headway.runs.registry import domain_of
from headway.runs.stopping import stops_on_interrupt


def run(experiment: Any, progress: Progress | None = None) -> RunResult:
    """Play an experiment out. Ctrl-C ends it after the step in progress; what was done is then on the tape."""
    folder = Path(experiment.run.out) if experiment.run.out else None
    with claimed(folder):
        return play(domain_of(experiment).prepare(experiment), folder, progress)


def play(
    scene: Scene,
    folder: Path | None = None,
    progress: Progress | None = None,
    begin: Callable[[TapeWriter], Any] | None = None,
) -> RunResult:
    """Run a prepared scene; from its beginning, or from where ``begin`` has led it.

    The folder is one that whoever calls this has claimed. A run that fails, by a mistake of the policy say, leaves
    nothing there; one that is stopped or killed leaves what was done.
    """
    try:
        return _play(scene, folder, progress, begin)
    except BaseException as problem:
        if folder is not None and (isinstance(problem, HeadwayError) or blamed(problem) is not None):
            forget(folder)
        raise


def _play(
    scene: Scene, folder: Path | None, progress: Progress | None, begin: Callable[[TapeWriter], Any] | None
) -> RunResult:
    if folder is not None:
        store(scene, folder)
    with no_collection():  # a run makes no cycles, and the collector would walk the whole workload again and again
        started = perf_counter()
        tape = TapeWriter(folder)
        begun = scene.begin() if begin is None else begin(tape)
        state, policy = begun.state, begun.policy
        scheduler = Scheduler(state, policy, begun.executor, tape, exact=getattr(begun, "exact", True))
        scheduler.decide_ns = [] if scene.times_decisions(policy) else None
        watched = is_watched(scene.policy_parts(policy))
        with unchanged(policy.name, scene.inputs(), watched=watched):
            try:
                with stops_on_interrupt(scheduler.stop):
                    scheduler.run(None if progress is None else lambda now: progress(scene.progress(state, now)))
            except StalledRunError as problem:
                raise StalledRunError(f"{problem}{_left(scene.unfinished(state))}") from None
            finally:
                closed = tape.close()
        wall_s = perf_counter() - started
        if watched and begin is None:
            refuse_findings(policy.name, scene.audit(closed, complete=not scheduler.stopped))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    took = (scheduler.stopped, wall_s, peak, folder, scheduler.decide_ns or ())
    return RunResult(scene, scene.policy_name(), closed, *took, begun)


def _left(names: Sequence[str]) -> str:
    """Say who is left in a run in which nothing will happen any more, and that the policy has no wish."""
    if not names:
        return ""
    others = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f": {names[0]}{others} {'is' if len(names) == 1 else 'are'} left, and the policy asked for nothing more"
