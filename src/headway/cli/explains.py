"""``headway explain``: one job at one moment of a run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TimeElapsedColumn

from headway.cli import console
from headway.cli.app import app
from headway.cli.flags import JsonFlag, RunArgument, TrustFlag
from headway.cli.stored import job_number, stored
from headway.errors import ExperimentError, InputError, TapeError
from headway.experiment import StoredRun
from headway.experiment.whatif import origin
from headway.metrics.training.ledger import Ledger
from headway.report.explanation import explain as explained
from headway.report.explanation import moment_to_ask
from headway.report.terminal import PlainColumn
from headway.training.state import TrainingState
from headway.units import format_duration, parse_duration, seconds

AtFlag = Annotated[
    str | None,
    typer.Option(
        "--at",
        help="When, since the run began: 36h, 2d 3h, end. Left out: the middle of its first wait.",
        metavar="TIME",
    ),
]
DrawsFlag = Annotated[
    int | None,
    typer.Option(
        "--draws", help="Continuations for the expected start; if left out, 40, or 30 of large runs.", min=5, max=1000
    ),
]


@app.command()
def explain(
    folder: RunArgument,
    job: Annotated[str, typer.Argument(help="A job, by its id in the trace or its number.", metavar="JOB")],
    at: AtFlag = None,
    draws: DrawsFlag = None,
    trust: TrustFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Say why a job does not run at a time, which moves or preemptions would admit it, and when to expect its start.

    headway explain runs/srtf 17

    headway explain runs/srtf 17 --at "2d 3h"
    """
    found = stored(folder, trust=trust)
    scene = found.scene
    number = job_number(scene.jobs, job)
    time = _time(found, at, number)
    with _as_it_came(found), _bar(time) as (resuming, drawing):
        told = explained(
            scene.cluster,
            scene.jobs,
            found.tape,
            scene.policy(),
            number,
            time,
            speed=scene.speed(),
            costs=scene.costs(),
            faults=scene.faults(),
            completions=scene.completions(),
            draws=draws,
            resuming=resuming,
            drawing=drawing,
        )
    if as_json:
        console.print_json(told.record())
    else:
        console.say(*told.lines())


def _time(found: StoredRun, at: str | None, job: int) -> int:
    """The moment that is meant, which has to lie within what is recorded."""
    last = int(found.tape.column("time")[-1])
    end = last if found.complete else max(0, last - 1)  # the last step of a run that was cut short may be half a step
    if at is None:
        return min(end, moment_to_ask(Ledger(found.tape, found.scene.jobs, found.scene.cluster), job))
    if at.strip() == "end":
        return end
    try:
        time = parse_duration(at, what="--at")
    except InputError as problem:
        raise InputError(f"{problem} (or write end)") from None
    if time > end:
        how = "ends" if found.complete else "was cut short"
        raise ExperimentError(f"--at {at}: the run {how} at {format_duration(last)}")
    return time


@contextmanager
def _as_it_came(found: StoredRun) -> Iterator[None]:
    """Where a run was continued under changes, its second part does not follow from its first: say so."""
    try:
        yield
    except TapeError:
        if (came := origin(found.folder)) is None:
            raise
        since = format_duration(seconds(came.at_s))
        raise TapeError(
            f"run folder {found.folder}: was continued under changes from {since} on and cannot be taken up after "
            f"that: ask for an earlier --at, or in the run it came from, {came.run}"
        ) from None


@contextmanager
def _bar(
    until: int,
) -> Iterator[tuple[Callable[[int, TrainingState], None] | None, Callable[[int, int], None] | None]]:
    """A bar on stderr for taking the run up and for going on with it. None where nobody looks."""
    if not console.err().is_terminal:
        yield None, None
        return
    columns = (PlainColumn("{task.description}"), BarColumn(), PlainColumn("{task.fields[at]}"), TimeElapsedColumn())
    with Progress(*columns, console=console.err(), transient=True) as bar:
        task = bar.add_task("taking the run up", total=1.0, at="")

        def resuming(now: int, _state: TrainingState) -> None:
            bar.update(task, completed=now / until if until else 1.0, at=format_duration(now))

        def drawing(done: int, count: int) -> None:
            bar.update(task, description="going on", completed=done / count, at=f"{done} of {count} continuations")

        yield resuming, drawing
