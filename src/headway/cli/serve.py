"""Define ``headway serve``: answer requests to pipelines of one's own, on this machine."""

from typing import Annotated

import typer

from headway.cli.app import app

serve = typer.Typer(
    name="serve",
    help="Serve pipelines of your own on this machine.\n\nStart with: headway serve start app.py",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(serve)

ServerFlag = Annotated[
    str,
    typer.Option(
        "--server", help="Its address, folder or name; else the one that runs here.", metavar="URL|FOLDER|NAME"
    ),
]
TokenFlag = Annotated[str, typer.Option("--token-file", help="Holds the token; or set HEADWAY_TOKEN.", metavar="FILE")]
