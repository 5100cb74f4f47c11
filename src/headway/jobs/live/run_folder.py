"""Write the run folder of a queue from its store: like that of a simulated run, to replay, audit, show and explain it.

It is made anew whenever it is asked for and more has happened. The store rules; nothing reads the folder back.
"""

import os
import resource
from dataclasses import replace
from pathlib import Path

from headway.core.replay import RecordedEvents
from headway.core.tape import FINAL_NAME, holds_tape, read as read_tape, write as write_tape
from headway.device.locks import hold_within
from headway.errors import TapeError
from headway.formats.dates import Calendar, local_zone
from headway.jobs.experiment.observed import seen
from headway.jobs.live.ground import clock_of, kept, rebuilt, scene_of
from headway.jobs.live.place import STORE_NAME, Place
from headway.jobs.live.store import Past, read
from headway.jobs.traces.past import Past as Dates
from headway.runs.domain import RunParts, RunResult
from headway.runs.folder.folder import RESULT_NAME, store as store_scene
from headway.runs.measured import numbers
from headway.units import SECOND

_LOCK_S = 30.0
QUEUE = "queue"
"""What the jobs of a queue are read from."""


def queue_of(folder: Path) -> tuple[Place, int | None] | None:
    """Return the queue whose folder this is, or that of one of its runs, with its number; None for any other."""
    if (folder / STORE_NAME).is_file():
        return Place(folder), None
    runs = folder.resolve().parent
    if runs.name == "runs" and folder.resolve().name.isdecimal() and (runs.parent / STORE_NAME).is_file():
        return Place(runs.parent), int(folder.resolve().name)
    return None


def exported(folder: Path) -> Path:
    """Return the run folder of a queue with all that has happened so far; any other folder as it is."""
    found = queue_of(folder)
    if found is None:
        return folder
    place, number = found
    past = read(place.store, number)
    if past is None or not past.jobs:
        raise TapeError(f"{folder}: no job was submitted to this queue yet")
    target = place.run(past.run)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = hold_within(target / ".export", _LOCK_S, alone=True)
    if lock is None:
        raise TapeError(f"{target}: another process writes the run of this queue: try again")
    try:
        if not _is_up_to_date(past, target):
            _export(past, target)
    finally:
        os.close(lock)
    return target


def now(folder: Path) -> int | None:
    """Return how far the run in a folder is by now, in nanoseconds; None where it is no queue's, or not its last."""
    if (found := queue_of(folder)) is None:
        return None
    past = read(found[0].store)
    return clock_of(past)() if past is not None and past.run == found[1] else None


def stopped(folder: Path) -> str:
    """Say that the queue of a run does not run; nothing while it does."""
    found = queue_of(folder)
    if found is None or found[0].runs:
        return ""
    return f"no queue runs in {found[0].folder}: {found[0].how_to_start}, which goes on with these jobs"


def _is_up_to_date(past: Past, target: Path) -> bool:
    if not (holds_tape(target) and (target / RESULT_NAME).exists()):
        return False
    return len(read_tape(target)) == len(past.tape)


def _export(past: Past, target: Path) -> None:
    for name in (RESULT_NAME, FINAL_NAME):
        (target / name).unlink(missing_ok=True)
    tape = past.tape
    began = Calendar(round(past.began.wall_s * SECOND), True, local_zone())
    dated = Dates(source=QUEUE, begins=began.written(), zone=began.zone)
    scene = replace(scene_of(kept(past), seen(past.jobs, tape)), past=dated)
    store_scene(scene, target)
    write_tape(tape, target)
    if not len(tape):
        return
    state, policy = rebuilt(scene, tape, lambda line: None)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    took = (bool(state.jobs), int(tape.column("time")[-1]) / SECOND, peak, target, ())
    end = RunParts(state, policy, RecordedEvents(iter(())), exact=False)
    numbers(RunResult(scene, scene.policy_name(), tape, *took, end))
