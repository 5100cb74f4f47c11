"""Define ``headway share status`` and ``doctor``: show the programs that share the GPU, and what the machine lacks."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from headway.cli import console
from headway.cli.gpu.share import GpuFlag, JsonFlag, place_named, share
from headway.cli.gpu.share_watch import watch as watch_screen
from headway.cli.gpu.share_wiring import library, part
from headway.errors import HeadwayError, ShareError, printable
from headway.gpu.profiling.summary import readable
from headway.gpu.share.block.slot_profiles import SHAPES
from headway.gpu.share.broker.status import since, snapshot
from headway.gpu.share.shim.doctor import Check, checks
from headway.show.terminal import fitted
from headway.units import format_duration, parse_duration

_RIGHT = ("prio", "pid", "launches", "waited", "waits", "GPU busy", "harvested", "delay caused", "slow-down")
_EXPENDABLE = ("by kernel", "waits", "pid", "launches", "delay caused", "waited", "state", "prio")
"""What a narrow screen does without, in this order."""
Row = Mapping[str, Any]


@share.command()
def status(
    gpu: GpuFlag = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option(help="How often, with --watch.")] = "1s",
    as_json: JsonFlag = False,
) -> None:
    """Show who shares a GPU: launches, waits, what was harvested, and who delayed whom.

    headway share status --watch
    """
    place = place_named(gpu)
    pause = parse_duration(every, what="--every") / 1e9
    if pause <= 0:
        raise ShareError(f"--every {every}: longer than nothing")
    if as_json and watch:
        raise ShareError("--json and --watch do not go together: ask for --json again and again")
    now = snapshot(place)
    if as_json:
        console.print_json(now)
    elif watch:
        watch_screen(lambda: snapshot(place), _screen, lambda seen: _print(seen, table_of(seen, None)), pause)
    else:
        _print(now, table_of(now, None))


def _print(now: Row, table: Table) -> None:
    console.say(*head(now))
    if now["tape"] and now["clients"]:
        console.say(f"tape: headway report {now['tape']}")
    if now["clients"]:
        console.out().print(table)
    elif left := len(now.get("left", ())):
        console.say(f"no program now; {left} have left")
    else:
        console.say("no program has launched anything yet")


def _screen(now: Row, before: Row | None, width: int) -> Group:
    """Return what is watched: the broker and its settings, and as much of the table as fits."""
    lines = Text("\n".join(printable(line) for line in head(now)), overflow="fold")
    if not now["clients"]:
        return Group(lines, Text("no program now"))
    return Group(lines, fitted(lambda without: table_of(now, before, without), _EXPENDABLE, width)[0])


def head(now: Row) -> list[str]:
    """Return the broker and its settings, in sentences."""
    who = f"GPU {now['gpu']} {now['gpu_name']}: broker {now['broker']}, up {format_duration(round(now['up_s'] * 1e9))}"
    tail = f" (p99 {now['slo_p99']:g}×)" if now.get("slo_p99") else ""
    lines = [f"{who}; slow-down aimed at {now['slo']:g}×{tail}, floor {100 * now['floor']:g} %", now["mode_line"]]
    if not now["healthy"]:
        lines.append(f"the broker has been silent for {now['silent_ms']:.0f} ms: programs go on ungated")
    if now["stopping"]:
        lines.append("the broker takes its leave: programs go on ungated")
    if outside := now.get("outside"):
        numbers = ", ".join(map(str, outside))
        why = "no slot was free, or it loads the shim of another version"
        lines.append(f"ungated, for want of a slot: process {numbers} ({why})")
    return lines


def table_of(now: Row, before: Row | None, without: Sequence[str] = ()) -> Table:
    """Return one row a program; busy shares since the snapshot before."""
    names = [name for name in ("name", *_RIGHT, "by kernel", "state") if name not in without]
    table = Table(
        *(Column(name, justify="right" if name in _RIGHT else "left", overflow="fold") for name in names), box=None
    )
    earlier = {row["slot"]: row for row in before["clients"]} if before else {}
    for row in sorted(now["clients"], key=lambda each: (each["priority"], each["slot"])):
        cells = {
            "name": row["name"],
            "prio": str(row["priority"]),
            "pid": str(row["pid"]),
            "launches": f"{row['launches']:,}",
            "waited": f"{row['waited_ms']:,.0f} ms",
            "waits": f"{row['waits']:,}",
            "GPU busy": f"{100 * since(row, earlier.get(row['slot'])):.1f} %",
            "harvested": f"{row['harvested_ms']:,.0f} ms",
            "delay caused": f"{row['delay_ms']:,.1f} ms",
            "slow-down": _slowdown(row),
            "by kernel": readable(row["blamed_kernel"])[:40] or "–",
            "state": _state(row, bool(now["stopping"])),
        }
        table.add_row(*(cells[name] for name in names))
    return table


def _slowdown(row: Row) -> str:
    """Return the slow-down of a program that others run beside, its interval, and how many steps it rests on."""
    if row["gated"] or row["slowdown"] is None:
        return "–"
    low, high = row["slowdown_low"], row["slowdown_high"]
    text = f"{row['slowdown']:.3f}× ({low:.3f} to {high:.3f}, {row['slowdown_steps']:,} steps)"
    if row["slowdown_p99"] is not None:
        text += f"; p99 {row['slowdown_p99']:.2f}× ({row['slowdown_p99_low']:.2f} to {row['slowdown_p99_high']:.2f})"
    return text


def _state(row: Row, stopping: bool) -> str:
    if row["open"] and stopping:
        return "ungated: the broker takes its leave"
    if row["open"]:
        return "ungated: it does not trust the broker"
    if row["held"]:
        return "held, to see those above alone"
    state = "gated" if row["gated"] else "goes first"
    if row["sms"] < 1:
        state += f", with {100 * row['sms']:g} % of the SMs"
    return state if row["kernel_rows"] < SHAPES else f"{state}; new shapes of kernels are known by name only"


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
    results = list(checks(gpu, library))
    coverage: Mapping[str, Any] | None = None
    if command and all(check.ok for check in results if check.needed):
        check, coverage = _covered(command)
        results.append(check)
    elif command:
        results.append(Check("coverage", False, "not measured", "put right what is wrong above"))
    well = all(check.ok for check in results if check.needed)
    if as_json:
        measured = {"coverage": coverage} if coverage else {}
        console.print_json({"ok": well, "checks": [check.row() for check in results], **measured})
    else:
        _show_checks(results)
    raise typer.Exit(0 if well else 1)


def _covered(command: list[str]) -> tuple[Check, Mapping[str, Any] | None]:
    try:
        module = part("gpu.profiling.coverage", "coverage")
        measured = module.coverage(command, library=library(), say=console.note)
    except HeadwayError as problem:
        return Check("coverage", False, "not measured", str(problem)), None
    row = {"seen": measured.seen, "counted": measured.counted, "ns_a_launch": measured.ns_a_launch}
    line = f"{measured.seen:,} launches seen, {measured.counted:,} by CUPTI"
    if measured.ns_a_launch:  # 0: too few launches for one to be timed
        line += f"; {measured.ns_a_launch} ns a launch"
    advice = "" if measured.equal else "launches that go past the shim are not gated: please report the program"
    return Check("coverage", measured.equal, line, advice), row


def _show_checks(results: list[Check]) -> None:
    table = Table(*(Column(name, overflow="fold") for name in ("", "check", "found")), box=None)
    for check in results:
        mark = "ok" if check.ok else ("!!" if check.needed else "–")
        table.add_row(mark, check.name, check.found)
        if check.advice:
            table.add_row("", "", f"→ {check.advice}")
    console.out().print(table)
