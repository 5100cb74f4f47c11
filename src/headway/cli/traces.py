"""Define the commands about trace files: inspect one, list the formats, convert and cut."""

import os
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from headway.cli import console
from headway.cli.app import app
from headway.cli.flags import BadRowsFlag, EndFlag, ForceFlag, FormatFlag, JsonFlag, MapFlag, StartFlag, StrictFlag
from headway.cli.options import Given, argument, command, option
from headway.errors import ExperimentError, unknown_name
from headway.fleet.traces.registry import REQUEST_FORMATS, load_requests, request_format
from headway.formats.head import head_of
from headway.jobs import traces
from headway.jobs.model.job import Job
from headway.jobs.show.terminal import trace as inspection
from headway.jobs.tables.cluster import within
from headway.jobs.tables.settings import Synergy, Synthetic, check_synergy, check_synthetic, span
from headway.jobs.traces.inspect import (
    formats as formats_known,
    inspect as inspected,
    inspect_requests as inspected_requests,
)
from headway.jobs.traces.trace import dropped_note
from headway.jobs.traces.workloads.cut import cut
from headway.jobs.traces.workloads.window import between, check_order, moment
from headway.runs.folder.folder import check_output
from headway.units import counted, format_duration

KINDS = {
    "philly": ("gpus", "load", "outcomes", "estimates", "longest"),
    "synergy": ("rate", "split", "gpus_per_job"),
}
"""What ``generate`` can draw, and the flags that it has for each besides jobs and seed."""
ENDINGS = (".csv", ".csv.gz", ".parquet", ".pq", ".parquet.gz", ".pq.gz")
LOADS = (0.001, 1000)

trace = typer.Typer(
    name="trace",
    help="Look into trace files, and make new ones.\n\nStart with: headway trace inspect FILE",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(trace)

FileArgument = Annotated[str, typer.Argument(help="A trace, plain or gzip.", metavar="FILE", show_default=False)]
FromArgument = Annotated[str, typer.Argument(help="The trace to read.", metavar="IN", show_default=False)]
ToArgument = Annotated[
    str, typer.Argument(help="The trace to write: .csv or .parquet, .gz packs it.", metavar="OUT", show_default=False)
]


@trace.command()
def inspect(
    path: FileArgument,
    format: FormatFlag = None,
    columns: MapFlag = None,
    gpus: Annotated[int | None, typer.Option(help="Say also what the load is on so many GPUs.", min=1)] = None,
    start: StartFlag = "",
    end: EndFlag = "",
    strict: StrictFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what a trace holds: jobs, GPUs, load over time, durations, oddities, and rows that would be dropped and why.

    A trace of requests is told too: its rate and its tokens.

    headway trace inspect jobs.csv

    headway trace inspect venus.csv.gz --gpus 1050 --json
    """
    if requests := _requests(path, format, columns):
        record = inspected_requests(load_requests(path, requests, strict=bool(strict), skip_bad_rows=True))
    else:
        found = _read(path, format, columns, strict, skip_bad_rows=True)
        record = inspected(between(found, start, end), gpus or 0)
    if as_json:
        console.print_json(record)
    else:
        console.say(*inspection.lines(record, Path(path).name))


@trace.command()
def formats(as_json: JsonFlag = False) -> None:
    """List the formats that can be read.

    headway trace formats
    """
    known = formats_known()
    if as_json:
        console.print_json(known)
        return
    widest = max(len(each["name"]) for each in known)
    for each in known:
        console.say(f"{each['name']:<{widest}}  {each['holds']:<8}  {each['description']}")


@trace.command()
def convert(
    source: FromArgument,
    out: ToArgument,
    format: FormatFlag = None,
    columns: MapFlag = None,
    strict: StrictFlag = None,
    start: StartFlag = "",
    end: EndFlag = "",
    skip_bad_rows: BadRowsFlag = None,
    force: ForceFlag = False,
) -> None:
    """Write a trace in headway's own format.

    headway trace convert venus.csv.gz venus.parquet

    headway trace convert mine.csv jobs.csv --map submit=queued_at,work=seconds,gpus=num_gpus
    """
    target = _free(out, force)
    found = _read(source, format, columns, strict, skip_bad_rows)
    part = between(found, start, end) if start or end else found
    _write(part.jobs, target, part, source)


@trace.command("slice")
def slice_(
    source: FromArgument,
    out: ToArgument,
    start: StartFlag = "",
    end: EndFlag = "",
    jobs: Annotated[
        str, typer.Option("--jobs", help="By number, from 0, the second not included: 4000:5000.", metavar="A:B")
    ] = "",
    tenant: Annotated[list[str] | None, typer.Option("--tenant", help="Of this tenant; may be repeated.")] = None,
    format: FormatFlag = None,
    columns: MapFlag = None,
    strict: StrictFlag = None,
    skip_bad_rows: BadRowsFlag = None,
    force: ForceFlag = False,
) -> None:
    """Write part of a trace; its first job is submitted at 0.

    headway trace slice philly.csv.gz week.csv --from 14d --to 21d

    headway trace slice jobs.csv middle.parquet --jobs 4000:5000 --tenant vision
    """
    target = _free(out, force)
    numbers = _numbers(jobs)
    check_order(start, end)
    found = _read(source, format, columns, strict, skip_bad_rows)
    first, last = (moment(found, text, flag) if text else None for text, flag in ((start, "--from"), (end, "--to")))
    part = cut(found.jobs, start=first or 0, end=last, numbers=numbers, tenants=tenant or ())
    _write(part, target, found, source)


@trace.command()
def scale(
    source: FromArgument,
    out: ToArgument,
    load: Annotated[str, typer.Option(help="Let jobs arrive so many times as fast, e.g. 1.3.", show_default=False)],
    start: StartFlag = "",
    end: EndFlag = "",
    format: FormatFlag = None,
    columns: MapFlag = None,
    strict: StrictFlag = None,
    skip_bad_rows: BadRowsFlag = None,
    force: ForceFlag = False,
) -> None:
    """Write a trace whose jobs arrive faster, or slower.

    headway trace scale jobs.csv busier.csv --load 1.3
    """
    target = _free(out, force)
    traces.load_scale((), load)  # refuses what is no number before anything is read
    within("load", Fraction(load), *LOADS)
    found = _read(source, format, columns, strict, skip_bad_rows)
    part = between(found, start, end) if start or end else found
    _write(traces.load_scale(part.jobs, load), target, part, source)


@command(
    trace,
    "generate",
    [
        argument("kind", str, "What to draw: philly or synergy.", "KIND", "philly"),
        option(
            "out", str | None, "The trace to write, .csv or .parquet, .gz packs it; else it is printed.", metavar="FILE"
        ),
        option("jobs", int, "How many jobs.", default=10_000),
        option("seed", int, "The same seed draws the same jobs.", default=0, min=0),
        option("gpus", int | None, "For a cluster of so many GPUs: 512 if left out.", panel="philly", min=1),
        option("load", float | None, "GPU time of the jobs over that of the cluster: 0.8 if left out.", panel="philly"),
        option("outcomes", bool | None, "Some jobs fail or are cancelled.", "--outcomes/--no-outcomes", panel="philly"),
        option("estimates", bool | None, "Users announce run times.", "--estimates/--no-estimates", panel="philly"),
        option("longest", str | None, "No job has more work than this: 60d if left out.", panel="philly"),
        option("rate", str | None, "Arrivals: 9/h if left out; 0.5/min, 216/d.", panel="synergy"),
        option(
            "split", str | None, "Image, language and speech jobs in percent: 20,70,10 if left out.", panel="synergy"
        ),
        option(
            "gpus_per_job",
            str | None,
            "single (if left out), or multi: 1 to 8.",
            panel="synergy",
            metavar="single|multi",
        ),
        option("force", bool, "Overwrite what is there.", default=False),
    ],
    "Draw a workload of any size.\n\n"
    "headway trace generate philly --jobs 100000 --gpus 1024 --load 0.9 --seed 7 --out jobs.parquet\n\n"
    "headway trace generate synergy --split 50,0,50 --rate 9/h --jobs 1000 --seed 42 --out jobs.csv",
)
def generate(given: Given) -> None:
    """Draw jobs, and write or print them."""
    kind = given["kind"]
    if kind not in KINDS:
        raise ExperimentError(unknown_name("kind of workload", kind, KINDS))
    for other, flags in KINDS.items():
        if other != kind and (wrong := [name for name in flags if given[name] is not None]):
            raise ExperimentError(f"--{wrong[0].replace('_', '-')} is for generate {other}, not {kind}")
    target = _free(given["out"], given["force"]) if given["out"] else None
    options = {name: given[name] for name in KINDS[kind] if given[name] is not None}
    drawn = _drawn(kind, given["jobs"], given["seed"], options)
    if target is None:
        _print(drawn)
    else:
        _write(drawn, target)


def _print(jobs: Sequence[Job]) -> None:
    """Print the jobs as CSV on stdout."""
    with TemporaryDirectory(prefix="headway-") as place:
        path = Path(place) / "jobs.csv"
        traces.write(jobs, path)
        sys.stdout.write(path.read_text(encoding="utf-8"))


def _drawn(kind: str, jobs: int, seed: int, options: dict[str, Any]) -> tuple[Job, ...]:
    """Return a synthetic workload of a kind; missing options have the defaults of an experiment file."""
    if kind == "synergy":
        options = {"gpus" if name == "gpus_per_job" else name: value for name, value in options.items()}
        check_synergy(Synergy(jobs=jobs, **options))
        return traces.synergy_like(jobs, seed=seed, **options)
    table = check_synthetic(Synthetic(jobs=jobs, **options))
    longest = span(table.longest, "--longest")
    return traces.philly_like(jobs, seed=seed, **options | {"longest": longest})


def _requests(path: str, format: str | None, columns: str | None) -> str:
    """Return the format of a trace that holds requests; empty for one of jobs."""
    if format is not None or columns is not None:
        return format if format in REQUEST_FORMATS else ""
    return request_format(head_of(Path(path)))


def _read(
    path: str, format: str | None, columns: str | None, strict: bool | None, skip_bad_rows: bool | None
) -> traces.Trace:
    return traces.load(
        path, format or "", columns=columns or "", strict=bool(strict), skip_bad_rows=bool(skip_bad_rows)
    )


def _free(out: str, force: bool) -> Path:
    """Return where to write to, refused before anything is read if that could not be done."""
    path = Path(out)
    check_output(path, "trace")
    if not path.name.lower().endswith(ENDINGS):
        raise ExperimentError(f"{out}: the name must end in .csv or .parquet; .gz after it packs the file")
    if path.is_dir():
        raise ExperimentError(f"{out}: is a directory, not a file")
    if path.exists() and not force:
        raise ExperimentError(f"{out}: is already there; --force overwrites it")
    if not path.parent.is_dir():
        raise ExperimentError(f"{out}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise ExperimentError(f"{out}: the folder {path.parent} cannot be written to")
    return path


def _write(jobs: Sequence[Job], path: Path, trace: traces.Trace | None = None, source: str = "") -> None:
    """Write jobs, and then say what was read of the source, what was not, and what was written."""
    traces.write(jobs, path, _starts(jobs, trace) if trace is not None else None)
    if trace is not None:
        for line in trace.notes:
            console.note(f"note: {line}")
        if trace.dropped:
            console.note(f"note: {dropped_note(trace.dropped, trace.rows, source)}")
        console.note(f"{source}: {counted(len(trace.jobs), 'job')} of {trace.rows:,} rows ({trace.format})")
    over = format_duration(jobs[-1].submit - jobs[0].submit)
    console.note(f"{path}: {counted(len(jobs), 'job')} over {over} written")


def _starts(jobs: Sequence[Job], trace: traces.Trace) -> dict[str, int]:
    """Return when jobs really started, on the clock of those that are written; empty where arrivals were rescaled."""
    before = {job.name: job.submit for job in trace.jobs}
    shifts = {before[job.name] - job.submit for job in jobs if job.name in trace.starts}
    if len(shifts) != 1:
        return {}
    (shift,) = shifts
    return {job.name: trace.starts[job.name] - shift for job in jobs if job.name in trace.starts}


def _numbers(text: str) -> tuple[int, int | None]:
    """Return ``4000:5000`` as two numbers; either may be left out."""
    if not text:
        return 0, None
    first, colon, last = (part.strip() for part in text.partition(":"))
    if not colon or not all(not part or (part.isdecimal() and part.isascii()) for part in (first, last)):
        raise ExperimentError(f"--jobs {text!r} is not understood: write it like 4000:5000, 4000: or :1000")
    numbers = int(first or 0), int(last) if last else None
    if numbers[1] is not None and numbers[1] <= numbers[0]:
        raise ExperimentError(f"--jobs {text!r}: the second number must be above the first")
    return numbers
