"""Define the program that commands are added to, and the options that all of them have."""

from typing import Annotated

import typer

from headway import __version__
from headway.cli import console

app = typer.Typer(
    name="headway",
    help="Try scheduling policies for GPU clusters on your own trace.\n\nStart with: headway demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        console.say(f"headway {__version__}")
        raise typer.Exit


@app.callback()
def _headway(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    pass
