"""Take looks at a cluster from files, in the order in which they were written."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

from headway.errors import TraceError
from headway.jobs.slurm.shadow.folder import Shadow
from headway.jobs.slurm.shadow.records import read_dump
from headway.runs.stopping import stops_on_interrupt


def take(shadow: Shadow, paths: Sequence[str], say: Callable[[str], None]) -> bool:
    """Take the looks that were not taken before, and write the run; return whether it was stopped on the way.

    Without any, the run stands as it was left.
    """
    if not paths and not shadow.records.looks:
        raise TraceError("no look was taken yet: name the dumps, or give --slurm")
    stopped = Event()
    again = 0
    with stops_on_interrupt(stopped.set):
        for path in paths:
            if stopped.is_set():
                break
            look = read_dump(Path(path))
            if look.digest in shadow.records.digests:
                again += 1
                continue
            shadow.take(look)
    if again:
        say(f"note: {again:,} of {len(paths):,} dumps were taken before")
    if shadow.played is None:
        shadow.play()
    shadow.store()
    return stopped.is_set()
