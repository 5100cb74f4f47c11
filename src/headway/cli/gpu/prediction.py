"""Define ``headway gpu predict``. A GPU machine without the other dependencies runs it by itself."""

from copy import copy

import typer

from headway.cli.answers import show_answer
from headway.cli.app import app
from headway.cli.options import JSON, Given, argument, command, option
from headway.gpu import predict as predicting


def add_predict(group: typer.Typer) -> None:
    """Add the command to the commands of the gpu scale."""

    @command(
        group,
        "predict",
        [
            argument(
                "high", str, "The high-priority program: a kernel trace, or a known name; NAME@0 to NAME@9.", "HIGH"
            ),
            argument("low", list[str], "The low-priority programs.", "LOW…"),
            option("slo", str | None, "The target slow-down, e.g. 1.05."),
            option("floor", str | None, "The share of the GPU that low-priority programs keep, e.g. 5%."),
            option("think", str, "Time between requests of HIGH: 5ms.", default="0s"),
            option("alone", str | None, "What a request of HIGH takes alone there: 4.8ms, or p50 and p95: 4.8ms,6ms."),
            option("first", str | None, "Headway meets them for the first time, so long before the end: 30s."),
            option("seconds", float, "Simulated seconds.", default=1.0),
            option("seed", int, "Draws where in its program each begins.", default=0),
            JSON,
        ],
        "Say what programs would do to each other on one GPU, from their recorded kernels, before they share it.\n\n"
        "headway gpu predict api.parquet train.parquet\n\n"
        "Of 32 settings on an H200 that were predicted before they were measured the slow-down was within 15 % in all, "
        "the rate below in 19 (half of all within 12 %).",
    )
    def predict(given: Given) -> None:
        settings = {name: value for name, value in given.items() if name not in ("high", "low", "as_json")}
        show_answer(predicting.answer(given["high"], given["low"], settings), given["as_json"])


def only() -> typer.Typer:
    """Return the program with this command alone."""
    group = typer.Typer(name="gpu", no_args_is_help=True, context_settings=app.info.context_settings)
    group.callback()(lambda: None)  # one command: its name is still to be given
    add_predict(group)
    alone = copy(app)
    alone.registered_commands, alone.registered_groups = [], []
    alone.add_typer(group)
    return alone
