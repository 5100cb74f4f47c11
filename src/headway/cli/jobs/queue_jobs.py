"""Define ``headway queue list``, ``show``, ``logs`` and ``report``: what became of the jobs of a queue."""

import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from headway.cli import console
from headway.cli.flags import JsonFlag
from headway.cli.jobs.queue import FolderFlag, JobArgument, queue
from headway.errors import QueueError
from headway.jobs.live import client
from headway.jobs.live.listing import CANCELLED, ENDING, RUNNING, RUNS, WAITING, Listed, listed, numbered
from headway.jobs.live.local.engine import logs_of, runs_still
from headway.jobs.live.messages import Status, described
from headway.jobs.live.place import Place, place_of
from headway.jobs.live.store import Past, jobs_by_run, read
from headway.show.terminal import framed
from headway.units import SECOND, counted, format_duration, format_size

RunFlag = Annotated[
    int | None, typer.Option("--run", help="An earlier run of the queue, by its number; else the last.", metavar="RUN")
]
_FOLLOW_S = 0.2


@queue.command("list")
def list_jobs(
    every: Annotated[bool, typer.Option("--all", help="Those that have ended too.")] = False,
    run: RunFlag = None,
    folder: FolderFlag = "",
    as_json: JsonFlag = False,
) -> None:
    """List the jobs that wait and run.

    headway queue list --all
    """
    place = place_of(folder)
    past, now_s = _past(place, run)
    jobs = [job for job in listed(past, now_s) if every or run or job.state in (WAITING, RUNNING, ENDING)]
    if as_json:
        console.print_json([job.record() for job in jobs])
        return
    table = framed(("job", "name", "tenant", "state", "GPUs"), ("GPUs wanted", "CPUs", "memory", "waited", "ran"))
    for job in jobs:
        table.add_row(
            *(str(job.id), job.name, job.tenant, job.state, ",".join(map(str, job.on_gpus)) or "–"),
            *(f"{job.gpus:g}", f"{job.cpus:g}", format_size(job.memory_bytes) if job.memory_bytes else "–"),
            *(_shown(job.waited_s), _shown(job.ran_s)),
        )
    console.note(_head(place) if run is None else f"run {run}")
    console.out().print(table)
    for line in _earlier(place, past.run):
        console.note(line)


def _earlier(place: Place, run: int) -> list[str]:
    """Say where the jobs of earlier runs are."""
    return [
        f"{counted(jobs, 'job')} of run {number}: headway queue list --run {number}{place.flag}"
        for number, jobs in jobs_by_run(place.store).items()
        if number < run
    ]


@queue.command()
def show(job: JobArgument, run: RunFlag = None, folder: FolderFlag = "", as_json: JsonFlag = False) -> None:
    """Show one job: its command, its leases and how they ended.

    headway queue show 7
    """
    place = place_of(folder)
    past, now_s = _past(place, run)
    found = _job(past, now_s, job)
    if as_json:
        console.print_json(found.record())
        return
    wants = [f"{found.gpus:g} GPU{'s' * (found.gpus != 1)}", f"{found.cpus:g} CPU{'s' * (found.cpus != 1)}"]
    wants += [format_size(found.memory_bytes)] if found.memory_bytes else []
    console.say(
        f"job {found.id} ({found.name}) of {found.tenant}: {found.state}",
        f"  command: {shlex.join(found.command)}",
        f"  folder: {found.folder}",
        f"  wants {', '.join(wants)}; expected to take {_shown(found.estimate_s)}",
        f"  waited {_shown(found.waited_s)}, ran {_shown(found.ran_s)}; {counted(found.starts, 'start')}, "
        f"{counted(found.preemptions, 'preemption')}, {counted(found.failures, 'failure')}, "
        f"{counted(found.interruptions, 'interruption')}",
        *_leases(found),
    )
    where = place.folder if run is None else place.run(past.run)
    if found.state == WAITING:
        console.note(f"why it waits: headway explain {where} {found.id}")
    console.note(f"all that happened to it: headway story {where} {found.id}")


def _leases(job: Listed) -> Iterator[str]:
    """Say of each lease why it was given, and how it ended; the last one of a cancelled job by that."""
    for each in job.leases:
        gpus = f" on GPU{'s' * (len(each['gpus']) > 1)} {','.join(map(str, each['gpus']))}" if each["gpus"] else ""
        ended = "runs" if each["told"] == RUNS else f"ended: {each['told']}"
        if each is job.leases[-1] and job.state == CANCELLED and each["told"] != RUNS:
            ended = f"ended: cancelled ({each['told']})"
        yield f"  lease {each['lease']}{gpus}: started: {each['reason'] or 'as decided before'}; {ended}"


@queue.command()
def logs(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it prints, until it ends.")] = False,
    errors: Annotated[bool, typer.Option("--stderr", help="What it wrote as errors.")] = False,
    run: RunFlag = None,
    folder: FolderFlag = "",
) -> None:
    """Print what a job has printed, over all its starts.

    headway queue logs -f 7
    """
    place = place_of(folder)
    past, _ = _past(place, run)
    number = numbered(past, job)
    if past.programs[number].external:
        told = f"scontrol show job {past.programs[number].slurm} tells StdOut"
        raise QueueError(f"job {job} prints where its user's sbatch says: {told}")
    files = logs_of(place.run(past.run), number)
    out = getattr(sys.stdout, "buffer", None)
    handle: BinaryIO | None = None
    try:
        while True:
            over = _over(place, job, run) if follow else "asked once"
            handle = handle or _opened(files[int(errors)])
            while handle is not None and (data := handle.read(1 << 16)):
                out.write(data) if out is not None else sys.stdout.write(data.decode(errors="replace"))
            sys.stdout.flush()
            if over:
                _tell_of_errors(*files, errors)
                if "no queue" in over:
                    console.note(over)
                return
            time.sleep(_FOLLOW_S)
    finally:
        if handle is not None:
            handle.close()


def _over(place: Place, job: str, run: int | None) -> str:
    """Return why nothing more will be printed by a job: it has ended, or waits while no queue runs; else nothing."""
    alone = not place.runs  # before the store is read: what happened until then stands there
    past, now_s = _past(place, run)
    found = _job(past, now_s, job)
    if found.state not in (WAITING, RUNNING, ENDING):
        return found.state
    if not alone or not _is_local(past) or any(runs_still(place.run(past.run), each["lease"]) for each in found.leases):
        return ""
    return f"job {job} does not run, and no queue runs in {place.folder}: {place.how_to_start}"


def _is_local(past: Past) -> bool:
    """Return whether programs of a run are processes of this machine: whether one is there can be seen."""
    from headway.jobs.live.ground import LOCAL, kept

    return kept(past).experiment.run.engine == LOCAL


def _tell_of_errors(printed: Path, wrote: Path, errors: bool) -> None:
    """Say that there is something to read where a job has printed nothing, and wrote errors."""
    sizes = [path.stat().st_size if path.exists() else 0 for path in (printed, wrote)]
    if not errors and not sizes[0] and sizes[1]:
        console.note(f"it has printed nothing; --stderr shows the {format_size(sizes[1])} that it wrote as errors")


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


@queue.command()
def report(
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write.", metavar="FILE.html")] = "queue.html",
    run: RunFlag = None,
    folder: FolderFlag = "",
) -> None:
    """Make a page of the queue so far: waits, GPUs in use, tenants, a map of who held what.

    headway queue report -o queue.html
    """
    from headway.cli.stored_runs import report as page

    place = place_of(folder)
    past, _ = _past(place, run)
    page([str(place.run(past.run) if run is not None else place.folder)], out=out)
    for number, jobs in jobs_by_run(place.store).items():
        if number < past.run:
            console.note(f"{counted(jobs, 'job')} of run {number}: headway queue report --run {number}{place.flag}")


# --- what is read -------------------------------------------------------------------------------------------------


def _past(place: Place, run: int | None = None) -> tuple[Past, float]:
    """Return what the store says of a run, the last if none is named, and how long ago it began."""
    past = read(place.store, run)
    if past is None and run is not None and place.store.is_file():
        raise QueueError(f"--run {run}: there is no such run: headway queue list names those with jobs")
    if past is None:
        raise QueueError(f"no queue was ever started in {place.folder}: {place.how_to_start}")
    return past, time.time() - past.began.wall_s


def _job(past: Past, now_s: float, job: str) -> Listed:
    return listed(past, now_s)[numbered(past, job)]


def _head(place: Place) -> str:
    try:
        status: dict[str, Any] = client.ask(place, Status())
    except QueueError as problem:
        return str(problem)
    return f"{described(status)}{'; ' + status['failure'] if status['failure'] else ''}"


def _shown(seconds: float) -> str:
    return format_duration(round(seconds) * SECOND) if seconds else "–"
