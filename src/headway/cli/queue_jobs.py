"""Define ``headway queue list``, ``show``, ``logs`` and ``report``: what became of the jobs of a queue."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from headway.cli import console
from headway.cli.flags import JsonFlag
from headway.cli.queue import FolderFlag, queue
from headway.errors import QueueError
from headway.live.training import client
from headway.live.training.listing import ENDING, RUNNING, WAITING, Listed, listed
from headway.live.training.local import logs_of
from headway.live.training.messages import Status, described
from headway.live.training.place import Place, place_of
from headway.live.training.store import Past, read
from headway.report.terminal import framed
from headway.units import SECOND, counted, format_duration, format_size

JobArgument = Annotated[int, typer.Argument(help="The job's number.", metavar="JOB")]
_FOLLOW_S = 0.2


@queue.command("list")
def list_jobs(
    every: Annotated[bool, typer.Option("--all", help="Those that have ended too.")] = False,
    folder: FolderFlag = "",
    as_json: JsonFlag = False,
) -> None:
    """List the jobs that wait and run.

    headway queue list --all
    """
    place = place_of(folder)
    jobs = [job for job in listed(*_past(place)) if every or job.state in (WAITING, RUNNING, ENDING)]
    if as_json:
        console.print_json([job.record() for job in jobs])
        return
    table = framed(("job", "name", "tenant", "state", "GPUs"), ("GPUs wanted", "CPUs", "memory", "waited", "ran"))
    for job in jobs:
        table.add_row(
            *(str(job.id), job.name, job.tenant, job.state, ",".join(map(str, job.on_gpus)) or "–"),
            *(str(job.gpus), f"{job.cpus:g}", format_size(job.memory_bytes) if job.memory_bytes else "–"),
            *(_shown(job.waited_s), _shown(job.ran_s)),
        )
    console.note(_head(place))
    console.out().print(table)


@queue.command()
def show(job: JobArgument, folder: FolderFlag = "", as_json: JsonFlag = False) -> None:
    """Show one job: its command, its leases and how they ended.

    headway queue show 7
    """
    place = place_of(folder)
    found = _job(place, job)
    if as_json:
        console.print_json(found.record())
        return
    wants = [counted(found.gpus, "GPU"), f"{found.cpus:g} CPU{'s' * (found.cpus != 1)}"]
    wants += [format_size(found.memory_bytes)] if found.memory_bytes else []
    console.say(
        f"job {found.id} ({found.name}) of {found.tenant}: {found.state}",
        f"  command: {shlex.join(found.command)}",
        f"  folder: {found.folder}",
        f"  wants {', '.join(wants)}; expected to take {_shown(found.estimate_s)}",
        f"  waited {_shown(found.waited_s)}, ran {_shown(found.ran_s)}; {counted(found.starts, 'start')}, "
        f"{counted(found.preemptions, 'preemption')}, {counted(found.failures, 'failure')}, "
        f"{counted(found.interruptions, 'interruption')}",
        *(f"  lease {each['lease']} on GPUs {each['gpus']}: {each['told']}; {each['reason']}" for each in found.leases),
    )
    if found.state == WAITING:
        console.note(f"why it waits: headway explain {place.folder} {job} --at end")
    console.note(f"all that happened to it: headway story {place.folder} {job}")


@queue.command()
def logs(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it prints, until it ends.")] = False,
    errors: Annotated[bool, typer.Option("--stderr", help="What it wrote as errors.")] = False,
    folder: FolderFlag = "",
) -> None:
    """Print what a job has printed, over all its starts.

    headway queue logs -f 7
    """
    place = place_of(folder)
    past, _ = _past(place)
    _job(place, job)
    path = logs_of(place.run(past.run), job)[int(errors)]
    out = getattr(sys.stdout, "buffer", None)
    handle: BinaryIO | None = None
    try:
        while True:
            ended = _job(place, job).state not in (WAITING, RUNNING, ENDING)
            handle = handle or _opened(path)
            while handle is not None and (data := handle.read(1 << 16)):
                out.write(data) if out is not None else sys.stdout.write(data.decode(errors="replace"))
            sys.stdout.flush()
            if not follow or ended:
                _tell_of_errors(*logs_of(place.run(past.run), job), errors)
                return
            time.sleep(_FOLLOW_S)
    finally:
        if handle is not None:
            handle.close()


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
    folder: FolderFlag = "",
) -> None:
    """Make a page of the queue so far: waits, GPUs in use, tenants, a map of who held what.

    headway queue report -o queue.html
    """
    from headway.cli.stored_runs import report as page

    place = place_of(folder)
    _past(place)
    page([str(place.folder)], out=out)


# --- what is read -------------------------------------------------------------------------------------------------


def _past(place: Place) -> tuple[Past, float]:
    """Return what the store says, and how long ago the run began."""
    past = read(place.store)
    if past is None:
        raise QueueError(f"no queue was ever started in {place.folder}: {place.how_to_start}")
    return past, time.time() - past.began.wall_s


def _job(place: Place, number: int) -> Listed:
    jobs = listed(*_past(place))
    if not 0 <= number < len(jobs):
        raise QueueError(f"job {number}: there is no such job: headway queue list --all shows them")
    return jobs[number]


def _head(place: Place) -> str:
    try:
        status: dict[str, Any] = client.ask(place, Status())
    except QueueError as problem:
        return str(problem)
    return f"{described(status)}{'; ' + status['failure'] if status['failure'] else ''}"


def _shown(seconds: float) -> str:
    return format_duration(round(seconds * SECOND)) if seconds else "–"
