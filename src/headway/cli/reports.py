"""The command that makes a report of runs: one HTML file that opens without a network."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from headway.cli import serving
from headway.cli.app import app
from headway.cli.flags import TrustFlag
from headway.cli.pages import Place, check_target, folders, opened, position, told, write
from headway.cli.progress import share_bar
from headway.errors import ExperimentError
from headway.experiment import is_serving
from headway.report import page
from headway.report.measured import Comparison


def serving_runs(runs: list[str]) -> list[Place] | None:
    """The runs where all are of a fleet; None where all are of jobs. The two do not go together."""
    found = folders(runs)
    kinds = {is_serving(place.folder) for place in found}
    if len(kinds) > 1:
        raise ExperimentError("some of these runs are of jobs and some of a fleet: a report shows one kind")
    return found if kinds == {True} else None


@app.command()
def report(
    runs: Annotated[
        list[str], typer.Argument(help="Folders of runs (--out), or a folder that holds several.", metavar="RUN…")
    ],
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write.", metavar="FILE.html")] = "report.html",
    baseline: Annotated[
        str | None, typer.Option(help="The run that others are measured against; the first if left out.")
    ] = None,
    title: Annotated[str, typer.Option(help="A line above the headline.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is not a report.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    trust: TrustFlag = False,
) -> None:
    """Show one run, or several side by side, on a page of its own: figures, tables and a map of the cluster.

    headway report runs/srtf -o srtf.html

    headway report runs/fifo runs/srtf runs/las -o comparison.html --baseline fifo --open
    """
    target = Path(out)
    check_target(target, force)
    if (fleets := serving_runs(runs)) is not None:
        base = serving.position(fleets, baseline, trust)
        serving.write_report([place.folder for place in fleets], target, base, title, trust=trust)
        if open_it:
            webbrowser.open(target.resolve().as_uri())
        return
    with share_bar("report") as tell:
        found = opened(folders(runs), tell, trust=trust)
        both = Comparison(found, position(found, baseline))
        write(target, page.build(both, title, tell))
    told(target, len(found))
    if open_it:
        webbrowser.open(target.resolve().as_uri())
