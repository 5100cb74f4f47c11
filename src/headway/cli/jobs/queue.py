"""Define ``headway queue``: run training jobs on this machine as a policy decides."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from headway.cli import console
from headway.cli.app import app
from headway.errors import QueueError, unknown_name
from headway.gpu.share.shim.launch import script_of, why_not_run
from headway.jobs.live import client
from headway.jobs.live.listing import numbered
from headway.jobs.live.local.machine import AUTO, machine
from headway.jobs.live.messages import Cancel, Status, Stop, Submit, described
from headway.jobs.live.place import Place, place_of
from headway.jobs.live.store import read
from headway.units import SECOND, WHOLE_GPU_MILLI, counted, format_duration, parse_duration, parse_size

queue = typer.Typer(
    name="queue",
    help="Run training jobs on this machine, one policy for all of them.\n\nStart with: headway queue start",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(queue)

FolderFlag = Annotated[str, typer.Option("--folder", help="Of the queue; else the one of this user.", metavar="FOLDER")]
JobArgument = Annotated[str, typer.Argument(help="A job, by its number or its name.", metavar="JOB")]
_READY_S = 60.0


@queue.command()
def start(
    gpus: Annotated[
        str, typer.Option(help="auto: all here; 2: so many, slots where it has none; those of before if left out.")
    ] = "",
    policy: Annotated[
        str, typer.Option(help="As in headway jobs simulate; that of before, or fifo+easy, if left out.")
    ] = "",
    engine: Annotated[
        str, typer.Option(help="local: this machine; slurm: jobs of the Slurm here; that of before if left out.")
    ] = "",
    estimate: Annotated[str, typer.Option(help="Run time of jobs whose users do not say it; 1h at first.")] = "",
    profiles: Annotated[
        list[str] | None,
        typer.Option(help="Profiles of programs, for policies that divide CPUs: a file or folder.", metavar="FILE"),
    ] = None,
    folder: FolderFlag = "",
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay here; Ctrl-C ends the queue.")] = False,
) -> None:
    """Start the queue of this user; one that was stopped or killed goes on where it was, with its programs.

    headway queue start

    headway queue start --gpus 4 --policy srtf+easy

    headway queue start --engine slurm --policy srtf+easy
    """
    place, guess = place_of(folder), _span(estimate, "--estimate") if estimate else 0
    _check_engine(engine, gpus)
    if foreground:
        from headway.jobs.live.ground import run_queue

        line = f"queue in {place.folder}, process {os.getpid()}"
        run_queue(place, gpus, policy, guess, profiles or (), _stamped, lambda: console.note(line), engine=engine)
        return
    if place.runs:
        raise QueueError(f"{place.folder}: a queue runs there already (process {place.pid})")
    words = [f"--gpus={gpus}", f"--policy={policy}", f"--engine={engine}", f"--estimate={estimate}"]
    words += [f"--folder={place.folder}"]
    words += [f"--profiles={Path(path).expanduser().absolute()}" for path in profiles or ()]
    console.note(f"queue in {place.folder}: {_in_background(place, words)}; log: {place.log}")


def _check_engine(engine: str, gpus: str) -> None:
    """Refuse here rather than in the log."""
    if engine not in ("", "local", "slurm"):
        raise QueueError(unknown_name("engine", engine, ("local", "slurm")))
    if engine == "slurm" and gpus:
        raise QueueError("--gpus is of --engine local: Slurm says itself which GPUs it has")
    if engine != "slurm":
        machine(gpus or AUTO)


def _span(text: str, what: str) -> int:
    span = parse_duration(text, what=what)
    if span <= 0:
        raise QueueError(f"{what} {text}: longer than nothing, like 2h")
    return span


def _stamped(line: str) -> None:
    console.note(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")


def _in_background(place: Place, words: list[str]) -> str:
    """Start a queue in a session of its own, and return what it says when it is ready."""
    try:
        place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        raise QueueError(f"{place.log} cannot be written: {problem.strerror}") from None
    began = os.lseek(log, 0, os.SEEK_END)
    command = [sys.executable, "-m", "headway", "queue", "start", "--foreground", *words]
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    finally:
        os.close(log)
    until = time.monotonic() + _READY_S
    while time.monotonic() < until:
        if child.poll() is not None:
            with place.log.open("rb") as file:
                file.seek(began)
                said = file.read().decode(errors="replace").strip().splitlines()
            raise QueueError(said[-1].removeprefix("headway: ") if said else f"it ended with status {child.returncode}")
        if place.pid == child.pid:
            with contextlib.suppress(QueueError):  # a socket that a killed queue left answers nobody
                status = client.ask(place, Status())
                child.returncode = 0  # it outlives this process on purpose: do not wait for it
                return described(status)
        time.sleep(0.02)
    raise QueueError(f"the queue did not get ready: {place.log} may say why")


@queue.command(context_settings={"ignore_unknown_options": False})
def submit(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments.", metavar="-- COMMAND…")],
    gpus: Annotated[str, typer.Option(help="Whole GPUs, or 0.5 of one.", metavar="NUMBER")] = "1",
    cpus: Annotated[
        int | None, typer.Option(help="CPUs; if left out, the machine's share that goes with the GPUs.", min=0)
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory: 64GB. Not counted if left out.", metavar="SIZE")] = "",
    tenant: Annotated[str, typer.Option(help="Who it is for.")] = "default",
    estimate: Annotated[str, typer.Option(help="How long it takes: 2h.", metavar="TIME")] = "",
    profile: Annotated[
        str, typer.Option(help="What CPUs and memory do for it: the name of a profile of the queue.", metavar="NAME")
    ] = "",
    name: Annotated[str, typer.Option(help="What it is called; else its script.")] = "",
    retries: Annotated[int, typer.Option(help="How often it is started again when it fails.", min=0)] = 0,
    grace: Annotated[
        str, typer.Option(help="Between SIGTERM and the end by force, when it is preempted or cancelled.")
    ] = "30s",
    priority: Annotated[int, typer.Option(help="Larger is more urgent, for policies that look at it.")] = 0,
    no_preempt: Annotated[bool, typer.Option("--no-preempt", help="Never stop it for another job.")] = False,
    nodes: Annotated[int, typer.Option(help="On Slurm: so many nodes, with equal GPUs.", min=1)] = 1,
    partition: Annotated[str, typer.Option(help="On Slurm: where; its default if left out.")] = "",
    folder: FolderFlag = "",
) -> None:
    """Give a program to the queue; it runs in this folder, with this environment. Prints the job's number.

    headway queue submit --gpus 2 --cpus 8 --memory 64GB --estimate 2h -- python train.py --epochs 90
    """
    if why := why_not_run(command):
        raise QueueError(why)
    asked = Submit(
        tuple(command),
        os.getcwd(),
        dict(os.environ),
        *_gpus(gpus),
        cpus=-1 if cpus is None else cpus,
        memory_bytes=parse_size(memory, what="--memory") if memory else 0,
        tenant=tenant,
        estimate=_span(estimate, "--estimate") if estimate else 0,
        name=name or script_of(command),
        retries=retries,
        grace_s=parse_duration(grace, what="--grace") / SECOND,
        priority=priority,
        preemptible=not no_preempt,
        model=profile,
        nodes=nodes if gpus or nodes > 1 else 0,
        partition=partition,
    )
    console.say(str(client.ask(place_of(folder), asked)))


def _gpus(text: str) -> tuple[int, int]:
    """Return whole GPUs and thousandths of each; QueueError for anything but a number of them or a part of one."""
    if text.isdecimal() and len(text) < 7:
        return int(text), WHOLE_GPU_MILLI
    try:
        milli = round(float(text) * WHOLE_GPU_MILLI)
    except (ValueError, OverflowError):
        milli = 0
    if not 0 < milli < WHOLE_GPU_MILLI:
        raise QueueError(f"--gpus {text}: a whole number, or a part of one GPU like 0.5")
    return 1, milli


@queue.command()
def cancel(
    job: JobArgument,
    now: Annotated[bool, typer.Option("--now", help="Kill it, without its grace period.")] = False,
    folder: FolderFlag = "",
) -> None:
    """End a job, whether it waits or runs; a running one gets SIGTERM, and is killed after its grace period.

    headway queue cancel 7
    """
    place = place_of(folder)
    number = int(job) if job.isdecimal() else numbered(read(place.store), job)
    console.note(f"job {number} {client.ask(place, Cancel(number, now))} and is cancelled")


@queue.command()
def stop(
    kill: Annotated[
        bool, typer.Option("--kill", help="End its programs too; their jobs wait for the next start.")
    ] = False,
    now: Annotated[bool, typer.Option("--now", help="With --kill: without their grace periods.")] = False,
    wait: Annotated[str, typer.Option(help="How long to wait for its end.")] = "60s",
    folder: FolderFlag = "",
) -> None:
    """End the queue. Its programs go on, and headway queue start finds them again.

    headway queue stop
    """
    seconds = parse_duration(wait, what="--wait") / SECOND
    place = place_of(folder)
    client.ask(place, Stop(kill, now))
    until = time.monotonic() + seconds
    while place.runs:
        if time.monotonic() > until:
            raise QueueError(f"its programs have not ended within {wait}: headway queue stop --kill --now kills them")
        time.sleep(0.02)
    console.note("stopped" if kill else "stopped; programs that run go on: headway queue start finds them")


@queue.command("release-all")
def release_all(folder: FolderFlag = "") -> None:
    """Give the jobs of a stopped queue back to Slurm, in their order; those that run go on.

    headway queue stop && headway queue release-all
    """
    from headway.jobs.slurm.live.ground import release_all as give_back

    place = place_of(folder)
    if place.runs:
        raise QueueError(f"the queue runs (process {place.pid}): headway queue stop, then give its jobs back")
    given = give_back(place, console.note)
    for each in given:
        lost = f"; it lost {format_duration(round(each.lost_s) * SECOND)} of age there" if each.lost_s else ""
        nice = f"; nice {each.nice}, to keep the order" if each.nice else ""
        told = f"still held: {each.problem}" if each.problem else f"released{lost}{nice}"
        console.say(f"job {each.job}, Slurm's {each.number}: {told}")
    console.note(f"{counted(len(given), 'job')} given back to Slurm")
