"""``headway share doctor`` and ``predict``: what the machine lacks, and what two programs would do to each other."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from headway.cli import console
from headway.cli.share import FloorFlag, GpuFlag, JsonFlag, SloFlag, floor_ppm, share, slo_ppm
from headway.cli.share_wiring import library, part
from headway.errors import HeadwayError, InputError
from headway.live.kernels.doctor import Check, checks
from headway.units import parse_duration


@share.command(context_settings={"allow_interspersed_args": False})
def doctor(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A CUDA program: are all of its launches seen, at what cost?",
            metavar="[-- COMMAND]",
            show_default=False,
        ),
    ] = None,
    gpu: GpuFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Check what sharing needs: GPU, driver, MPS, compiler, library, shared memory; with a program, its coverage.

    headway share doctor

    headway share doctor -- python serve.py --requests 100
    """
    found = list(checks(gpu, library))
    coverage: Mapping[str, Any] | None = None
    if command and all(check.ok for check in found if check.needed):
        check, coverage = _covered(command)
        found.append(check)
    elif command:
        found.append(Check("coverage", False, "not measured", "put right what is wrong above"))
    well = all(check.ok for check in found if check.needed)
    if as_json:
        rows = [check.row() for check in found]
        console.print_json({"ok": well, "checks": rows, **({"coverage": coverage} if coverage else {})})
    else:
        _show(found)
    raise typer.Exit(0 if well else 1)


def _covered(command: list[str]) -> tuple[Check, Mapping[str, Any] | None]:
    try:
        module = part("profiling.kernels_coverage", "coverage")
        measured = module.coverage(command, library=library(), say=console.note)
    except HeadwayError as problem:
        return Check("coverage", False, "not measured", str(problem)), None
    row = {"seen": measured.seen, "counted": measured.counted, "ns_a_launch": measured.ns_a_launch}
    found = f"{measured.seen:,} launches seen, {measured.counted:,} by CUPTI"
    if measured.ns_a_launch:  # 0: too few launches for one to be timed
        found += f"; {measured.ns_a_launch} ns a launch"
    advice = "" if measured.equal else "launches that go past the shim are not gated: please report the program"
    return Check("coverage", measured.equal, found, advice), row


def _show(found: list[Check]) -> None:
    table = Table(box=None)
    for name in ("", "check", "found"):
        table.add_column(name, overflow="fold")
    for check in found:
        mark = "ok" if check.ok else ("!!" if check.needed else "–")
        table.add_row(mark, check.name, check.found)
        if check.advice:
            table.add_row("", "", f"→ {check.advice}")
    console.out().print(table)


@share.command()
def predict(
    high: Annotated[
        str,
        typer.Argument(
            help="The program above: a kernel trace, or one that is known here; NAME@0 to NAME@9 say priorities.",
            metavar="HIGH",
        ),
    ],
    low: Annotated[list[str], typer.Argument(help="Those below it.", metavar="LOW…")],
    slo: SloFlag = "",
    floor: FloorFlag = "",
    think: Annotated[str, typer.Option(help="Time between requests of the program above: 5ms.")] = "0s",
    alone: Annotated[
        str,
        typer.Option(
            help="What a request of HIGH takes alone there, the median with that --think: 4.8ms. Else: as recorded."
        ),
    ] = "",
    seconds: Annotated[float, typer.Option(help="How long to play them out.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Where each begins is drawn by it.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Say what two programs would do to each other on one GPU, from their recorded kernels, before they share.

    headway share predict api.parquet train.parquet

    Of 32 settings on an H200 that were predicted before they were measured the slow-down was within 15 % in all, the
    rate below in 19 (half of all within 12 %).
    """
    wiring = part("experiment.kernels", "share predict")
    with part("cli.progress", "share predict").share_bar("predict") as tell:
        found: Mapping[str, Any] = wiring.predict(
            high,
            low,
            slo_ppm=slo_ppm(slo),
            floor_ppm=floor_ppm(floor) if floor else None,
            think=parse_duration(think, what="--think"),
            alone=_alone(alone),
            seconds=seconds,
            seed=seed,
            tell=tell,
            say=console.note,
        )
    if as_json:
        console.print_json(found)
        return
    out = console.out()
    who = f"{found['high']} above {', '.join(found['low'])}: busy {100 * found['busy_share_alone']:.0f} % alone"
    console.say(f"{who}, slow-down aimed at {found['slo']:g}×")
    if alone:
        told = f"processors are taken to need {found['cpu_factor']:.2f} times as long as in the traces"
        console.say(f"a request alone takes {alone}: {told}")
    below = "rate of the one below" if len(found["low"]) == 1 else "rates below, added up"
    out.print(_modes({wiring.MODES[name]: row for name, row in found["modes"].items()}, below))
    console.say(wiring.OFF_ALONE if alone else wiring.OFF)
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
