"""The command that makes a report of runs: one HTML file that opens without a network."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from headway.cli import console
from headway.cli.app import app
from headway.cli.flags import TrustFlag
from headway.cli.results import write_page
from headway.experiment.pages import check_target, folders


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
    write_page(folders(runs, console.note), target, baseline=baseline, title=title, trust=trust)
    if open_it:
        webbrowser.open(target.resolve().as_uri())
