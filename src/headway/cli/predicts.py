"""``headway gpu predict``: what programs would do to each other on one GPU, before they share it."""

from collections.abc import Mapping
from typing import Any

import typer
from rich.table import Table

from headway.cli import console
from headway.cli.options import Given, argument, command, option
from headway.cli.scales import JSON
from headway.cli.share import floor_ppm, slo_ppm
from headway.errors import InputError
from headway.experiment.gpu import predict as predicting
from headway.report.progress import share_bar
from headway.units import parse_duration


def add(group: typer.Typer) -> None:
    """Add the command to the group of one GPU."""
    parameters = [
        argument(
            "high", str, "The program above: a kernel trace, or one that is known here; NAME@0 to NAME@9.", "HIGH"
        ),
        argument("low", list[str], "Those below it.", "LOW…"),
        option("slo", str, "The slow-down aimed at, e.g. 1.05.", default=""),
        option("floor", str, "The share that those below keep, e.g. 5%.", default=""),
        option("think", str, "Time between requests of the program above: 5ms.", default="0s"),
        option("alone", str, "What a request of HIGH takes alone there: 4.8ms. Else: as recorded.", default=""),
        option("seconds", float, "How long to play them out.", default=1.0),
        option("seed", int, "Where each begins is drawn by it.", default=0),
        JSON,
    ]
    about = "Say what programs would do to each other on one GPU, from their recorded kernels, before they share it."
    known = (
        "Of 32 settings on an H200 that were predicted before they were measured the slow-down was within 15 % in all, "
        "the rate below in 19 (half of all within 12 %)."
    )
    command(group, "predict", parameters, f"{about}\n\nheadway gpu predict api.parquet train.parquet\n\n{known}")(
        predict
    )


def predict(given: Given) -> None:
    """Play each way to share."""
    alone = given["alone"]
    with share_bar("predict") as tell:
        found: Mapping[str, Any] = predicting.predict(
            given["high"],
            given["low"],
            slo_ppm=slo_ppm(given["slo"]),
            floor_ppm=floor_ppm(given["floor"]) if given["floor"] else None,
            think=parse_duration(given["think"], what="--think"),
            alone=_alone(alone),
            seconds=given["seconds"],
            seed=given["seed"],
            tell=tell,
            say=console.note,
        )
    if given["as_json"]:
        console.print_json(found)
        return
    out = console.out()
    who = f"{found['high']} above {', '.join(found['low'])}: busy {100 * found['busy_share_alone']:.0f} % alone"
    console.say(f"{who}, slow-down aimed at {found['slo']:g}×")
    if alone:
        told = f"processors are taken to need {found['cpu_factor']:.2f} times as long as in the traces"
        console.say(f"a request alone takes {alone}: {told}")
    below = "rate of the one below" if len(found["low"]) == 1 else "rates below, added up"
    out.print(_modes({predicting.MODES[name]: row for name, row in found["modes"].items()}, below))
    console.say(predicting.OFF_ALONE if alone else predicting.OFF)
    if found["stored"]:
        console.note(f"kept in {found['stored']}")


def _alone(text: str) -> int:
    took = parse_duration(text, what="--alone") if text else 0
    if text and took <= 0:
        raise InputError(f"--alone {text}: a request takes some time; leave it out to take it as recorded")
    return took


def _modes(modes: Mapping[str, Mapping[str, Any]], below: str) -> Table:
    table = Table(box=None)
    for name in ("policy", "slow-down p50", "p99", below, "GPU busy"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for name, row in modes.items():
        numbers = (row["slowdown_p50"], row["slowdown_p99"])
        shares = (row["low_share"], row["busy_share"])
        times = [f"{each:.3f}×" if each is not None else "–" for each in numbers]
        table.add_row(name, *times, *(f"{100 * each:.0f} %" if each is not None else "–" for each in shares))
    return table
