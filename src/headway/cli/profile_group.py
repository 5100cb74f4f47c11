"""``headway profile``: the group of commands that measure. It needs nothing that a GPU machine may lack."""

import typer

from headway.cli.app import app

profile = typer.Typer(
    name="profile",
    help="Measure what CPUs and memory do for a program, batch, CPUs and shares of a GPU for a network, "
    "or where the kernels of a program leave the GPU idle.\n\n"
    "Start with: headway profile job -- python train.py, headway profile model serve.py:factory, "
    "or headway profile kernels -- python serve.py",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(profile)
