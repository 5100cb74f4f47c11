"""``headway explain``: one job at one moment of a run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TimeElapsedColumn

from headway.cli import console
from headway.cli.app import app
from headway.cli.flags import JsonFlag, RunArgument, TrustFlag
from headway.experiment.jobs import asking
from headway.experiment.jobs.scene import JobsScene
from headway.experiment.jobs.view import job_number
from headway.experiment.registry import domain_of
from headway.experiment.stored import stored
from headway.report.terminal import PlainColumn, err
from headway.training.state import TrainingState
from headway.units import format_duration

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
    found = stored(folder, "what is there is explained", trust=trust, note=console.note)
    view = domain_of(found.scene.experiment).view
    if not isinstance(found.scene, JobsScene):
        view.explain(found, job, at, draws)
    number = job_number(found.scene.jobs, job)
    time = asking.moment_of(found, at, number)
    with _bar(time) as (resuming, drawing):
        told = asking.explain(found, number, time, draws, resuming, drawing)
    console.print_json(told.record()) if as_json else console.say(*told.lines())


@contextmanager
def _bar(
    until: int,
) -> Iterator[tuple[Callable[[int, TrainingState], None] | None, Callable[[int, int], None] | None]]:
    """A bar on stderr for taking the run up and for going on with it. None where nobody looks."""
    if not err().is_terminal:
        yield None, None
        return
    columns = (PlainColumn("{task.description}"), BarColumn(), PlainColumn("{task.fields[at]}"), TimeElapsedColumn())
    with Progress(*columns, console=err(), transient=True) as bar:
        task = bar.add_task("taking the run up", total=1.0, at="")

        def resuming(now: int, _state: TrainingState) -> None:
            bar.update(task, completed=now / until if until else 1.0, at=format_duration(now))

        def drawing(done: int, count: int) -> None:
            bar.update(task, description="going on", completed=done / count, at=f"{done} of {count} continuations")

        yield resuming, drawing
