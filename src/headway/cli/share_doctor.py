"""``headway share doctor``: what the machine lacks."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from headway.cli import console
from headway.cli.share import GpuFlag, JsonFlag, share
from headway.cli.share_wiring import library, part
from headway.errors import HeadwayError
from headway.live.kernels.doctor import Check, checks


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
