"""Define ``headway profile kernels``: run a program once, and show where it leaves the GPU idle.

The group of all commands that measure is made here, because this one needs nothing that a GPU machine may lack.
"""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from headway.cli import console
from headway.cli.app import app
from headway.cli.gpu.share_wiring import library, program_key
from headway.device import nvidia as gpus
from headway.errors import ProfileError
from headway.gpu.profiling.coverage import Coverage, coverage_of
from headway.gpu.profiling.kernels import kernel_rows, step_rows, times_of, trace_of
from headway.gpu.profiling.recording import Recorded
from headway.gpu.profiling.run import run
from headway.gpu.profiling.summary import THRESHOLD_NS, GapBin, Summary, readable, summarise
from headway.gpu.programs import trace as kernel_trace
from headway.gpu.programs.store import KernelStore
from headway.gpu.programs.trace import KernelTrace
from headway.gpu.show import timeline as kernel_timeline
from headway.units import exact_duration, format_duration, parse_duration

__all__ = ["app", "kernels", "profile"]

profile = typer.Typer(
    name="profile",
    help="Measure what CPUs and memory do for a program, batch, CPUs and shares of a GPU for a network or an app, "
    "or where the kernels of a program leave the GPU idle.\n\n"
    "Start with: headway profile job -- python train.py, headway profile model app.py, "
    "or headway profile kernels -- python serve.py",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(profile)

_SHOWN = 12
"""Kernels in the table; all are in the profile."""
_BAR = 40
"""Columns of the longest bar."""
_LONGEST_NAME = 64


@profile.command(context_settings={"allow_interspersed_args": False})
def kernels(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The program and its arguments.", metavar="-- COMMAND", show_default=False),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop it so long after its first launch.", show_default="until it ends")
    ] = None,
    name: Annotated[str, typer.Option(help="What it is kept as; that of headway share run if left out.")] = "",
    out: Annotated[
        str, typer.Option(help="Write the trace here.", metavar="FILE.parquet", show_default="with the profile")
    ] = "",
    perfetto: Annotated[str, typer.Option(help="Write a timeline for ui.perfetto.dev.", metavar="FILE.json[.gz]")] = "",
    threshold: Annotated[str, typer.Option(help="A shorter gap cannot be harvested.", metavar="TIME")] = exact_duration(
        THRESHOLD_NS
    ),
    gpu: Annotated[int | None, typer.Option(help="The GPU's number; the first if left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")] = False,
) -> None:
    """Run a CUDA program and show how busy it keeps the GPU, how long its gaps are and which kernels matter.

    headway profile kernels --seconds 10 -- python serve.py

    headway profile kernels --name api --out api.parquet --perfetto api.json.gz -- python serve.py
    """
    given = list(command or [])
    least = parse_duration(threshold, what="--threshold")
    _check_targets(out, perfetto)
    if not given:
        raise ProfileError("no program was given: headway profile kernels -- python serve.py")
    if shutil.which(given[0]) is None:
        raise ProfileError(f"{given[0]}: there is no such program")
    device = gpus.usable(gpus.chosen(gpu))
    program = name or program_key(given)
    recorded = run(given, seconds, library=library(), program=program, say=console.note)
    _complain(recorded)
    times = times_of(recorded)
    trace = trace_of(recorded, given, program=program, gpu=device.name, driver=device.driver, times=times)
    summary = summarise(trace, least)
    store = KernelStore(device.name, device.driver)
    store.save(program, kernel_rows(recorded, times), step_rows(recorded), summary.shares())
    target = Path(out) if out else store.path(program).with_suffix(".parquet")
    kernel_trace.write(target, trace)
    seen = coverage_of(recorded) if recorded.about.get("cupti") else None
    files = {"trace": str(target), "profile": str(store.path(program))}
    if perfetto:
        files["perfetto"] = str(kernel_timeline.write_recorded(Path(perfetto), [recorded], [program]))
    if as_json:
        console.print_json(_document(trace, summary, seen) | files)
        return
    _show(trace, summary, seen)
    console.say(*(f"{what}: {file}" for what, file in files.items()))


def _check_targets(out: str, perfetto: str) -> None:
    """Refuse output files that cannot be written, before the program is run."""
    if out and not Path(out).absolute().parent.is_dir():
        raise ProfileError(f"--out {out}: there is no folder {Path(out).absolute().parent}")
    if out and Path(out).is_dir():
        raise ProfileError(f"--out {out}: is a folder, not a file")
    if out and Path(out).suffix != ".parquet":
        raise ProfileError(f"--out {out}: a trace is a Parquet file: give a name that ends in .parquet")
    if perfetto:
        kernel_timeline.check(Path(perfetto))


def _complain(recorded: Recorded) -> None:
    if not recorded.about.get("cupti"):
        why = recorded.about.get("why") or "CUPTI is missing"
        console.note(f"times on the GPU are worked out from sampled durations: {why}")
    if lost := recorded.number("dropped") + recorded.number("activities_dropped"):
        console.note(f"{lost:,} records were lost or had not ended: the last launches are left out")


def _document(trace: KernelTrace, summary: Summary, seen: Coverage | None) -> dict[str, Any]:
    about = {key: trace.metadata[key] for key in ("program", "gpu", "driver", "sms", "command", "times")}
    return {**about, "coverage": None if seen is None else asdict(seen), **asdict(summary)}


def _show(trace: KernelTrace, summary: Summary, seen: Coverage | None) -> None:
    about = trace.metadata
    console.say(
        f"{about['program']} on {about['gpu']}, driver {about['driver']}: {summary.launches:,} launches in "
        f"{format_duration(summary.span_ns)}: {summary.launches_per_s:,.0f} launches and {summary.waits_per_s:,.0f} "
        "waits a second",
        f"busy {_percent(summary.busy_share)}, idle {_percent(summary.idle_share)}; "
        f"{_percent(summary.harvestable_share)} of the GPU can be harvested, in gaps of "
        f"{format_duration(summary.threshold_ns)} and more; {_percent(summary.without_mps_share)} without MPS",
    )
    if seen is not None:
        cost = f"; {seen.ns_a_launch} ns a launch in the shim" if seen.ns_a_launch else ""
        console.say(f"the shim saw {seen.seen:,} launches, CUPTI {seen.counted:,}{cost}")
    for table in (_histogram(summary.gaps), _kernels(summary)):
        console.out().print(table)
    if len(summary.kernels) > _SHOWN:
        rest = sum(use.share for use in summary.kernels[_SHOWN:])
        console.say(f"and {len(summary.kernels) - _SHOWN} more, {_percent(rest)} of the GPU time")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _histogram(bins: list[GapBin]) -> Table:
    """Return a table of idle gaps by length; bars are shares of the idle time. Empty bins at both ends are left out."""
    table = Table(*console.right("gap", "gaps", "of idle time"), "", box=None)
    used = [index for index, each in enumerate(bins) if each.gaps]
    most = max((each.share for each in bins), default=0.0)
    for each in bins[used[0] : used[-1] + 1] if used else ():
        bar = "█" * round(_BAR * each.share / most) if most else ""
        table.add_row(_range(each), f"{each.gaps:,}", _percent(each.share), bar)
    return table


def _range(each: GapBin) -> str:
    if not each.to_ns:
        return f"from {format_duration(each.from_ns)}"
    return f"{format_duration(each.from_ns) if each.from_ns else '0'} to {format_duration(each.to_ns)}"


def _kernels(summary: Summary) -> Table:
    numbers = console.right("launches", "of GPU time", "mean", "longest", "blocks", "an SM")
    table = Table(Column("kernel", overflow="fold"), *numbers, box=None)
    for use in summary.kernels[:_SHOWN]:
        name = readable(use.name)
        table.add_row(
            name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…",
            f"{use.count:,}",
            _percent(use.share),
            format_duration(use.mean_ns),
            format_duration(use.longest_ns),
            f"{use.blocks:,}" if use.kind == 1 else "",
            str(use.per_sm),
        )
    return table
