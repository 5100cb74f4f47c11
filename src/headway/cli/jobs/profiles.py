"""Define the commands about profiles of training programs: measure one, list profiles, show one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table

from headway.cli import console
from headway.cli.flags import JsonFlag
from headway.cli.gpu.kernel_profiles import profile
from headway.errors import InputError, ProfileError, unknown_name
from headway.jobs.profiling.job import profile as measured
from headway.jobs.profiling.matrix import wanted_cpus
from headway.jobs.profiling.steady import Rate
from headway.jobs.profiling.watch import Tell
from headway.profiling import store
from headway.show.terminal import PlainColumn, err
from headway.units import SECOND, format_duration, format_size, parse_duration, parse_size


@profile.command(context_settings={"allow_interspersed_args": False})
def job(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The program and its arguments.", metavar="-- COMMAND", show_default=False),
    ] = None,
    cpus: Annotated[
        str, typer.Option(help="CPU counts to search between, 0.5-16; or just these: 0.5,1,2.", show_default="all")
    ] = "",
    memory: Annotated[
        str, typer.Option(help="Memory a GPU: 20GB-250GB, or just these: 20GB,60GB.", show_default="by the data")
    ] = "",
    steps: Annotated[int, typer.Option(help="Steps to measure at each point.")] = 50,
    gpus: Annotated[int, typer.Option(help="GPUs that the program uses.")] = 1,
    pattern: Annotated[
        str, typer.Option(help="A step for each match in the output, without headway.step().", metavar="RE")
    ] = "",
    model: Annotated[str, typer.Option(help="The name of the profile; without it the script's.")] = "",
    dataset: Annotated[str, typer.Option(help="The data: its file or folder, or its size.", metavar="PATH|SIZE")] = "",
    bytes_per_sample: Annotated[str, typer.Option(help="What a sample takes on disk: 110KB.", metavar="SIZE")] = "",
    check: Annotated[str, typer.Option(help="Measure here too, only to compare: 0.75,1.5.", metavar="CPUS")] = "",
    out: Annotated[str, typer.Option(help="Write the profile here as well.", metavar="FILE.toml")] = "",
    again: Annotated[bool, typer.Option("--again", help="Measure although there is a profile of it.")] = False,
    timeout: Annotated[str, typer.Option(help="The longest that one point may take.")] = "5m",
    as_json: JsonFlag = False,
) -> None:
    """Run a training program at a few CPU counts and write down what CPUs and memory do for it.

    headway profile job -- python train.py --epochs 100

    headway profile job --cpus 0.5-16 --dataset images/ --bytes-per-sample 110KB -- python train.py

    headway profile job --pattern 'step (\\d+)' --model mine --out mine.toml -- ./train.sh
    """
    try:
        with _progress() as tell:
            found = measured(
                command or [],
                cpus=cpus,
                memory=memory,
                steps=steps,
                gpus=gpus,
                pattern=pattern,
                model=model,
                dataset=dataset,
                bytes_per_sample=parse_size(bytes_per_sample, what="--bytes-per-sample") if bytes_per_sample else 0,
                check=_counts(check),
                timeout_s=parse_duration(timeout, what="--timeout") / SECOND,
                out=Path(out) if out else None,
                again=again,
                say=console.note,
                tell=tell,
            )
    except InputError as problem:
        for lines in getattr(problem, "__notes__", ()):
            for line in lines.splitlines():
                console.note(line)
        raise
    if found.found_again:
        console.note(f"measured before: {found.path} (--again measures anew)")
    _show(found.document, found.path, as_json, again=found.found_again)


def _counts(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise ProfileError(f"--check {text!r} is not understood: write CPU counts like 0.75,1.5") from None


@profile.command("list")
def list_(as_json: JsonFlag = False) -> None:
    """List the profiles that were measured here.

    headway profile list
    """
    kept = list(store.listed())
    if as_json:
        console.print_json([_row(each) for each in kept])
        return
    if not kept:
        console.note(f"no profile is in {store.folder()}: headway profile job -- python train.py makes one")
        return
    table = Table("model", "wants", "samples/s", "± %", "GPU", "key", "command", box=None)
    for each in kept:
        row = _row(each)
        rate, error = f"{row['samples_per_second']:.4g}", f"{100 * row['error']:.1f}"
        table.add_row(row["model"], f"{row['wants_cpus']:g} CPUs", rate, error, row["gpu"], row["key"], row["command"])
    console.out().print(table)


def _row(kept: store.Stored) -> dict[str, Any]:
    document, measured = kept.document, kept.document["measured"]
    return {
        "model": document["model"],
        "wants_cpus": wanted_cpus(document),
        "samples_per_second": measured["samples_per_second"],
        "error": document["error"],
        "gpu": measured["hardware"]["gpu"],
        "key": kept.key,
        "command": " ".join(measured["program"]["command"]),
        "file": str(kept.path),
    }


@profile.command()
def show(
    name: Annotated[str, typer.Argument(help="A model, a key or the start of one, or a file.", metavar="NAME")],
    as_json: JsonFlag = False,
) -> None:
    """Show a profile that was measured.

    headway profile show train
    """
    path = Path(name)
    kept = list(store.listed(path.parent if path.suffix == ".toml" else None))
    matching = [each for each in kept if each.document["model"] == name or each.key.startswith(name)]
    matching = [each for each in kept if each.path == path] or matching
    if not kept:
        where = path.parent if path.suffix == ".toml" else store.folder()
        raise ProfileError(
            f"there is no profile {name!r}: none is stored in {where} yet; "
            "headway profile job -- python train.py makes one"
        )
    if not matching:
        raise ProfileError(unknown_name("profile", name, {str(each.document["model"]) for each in kept}))
    _show(matching[-1].document, matching[-1].path, as_json)


# --- what is printed ------------------------------------------------------------------------------------------------


@contextmanager
def _progress() -> Iterator[Tell | None]:
    """Yield a function that shows the point being measured, on one line of a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (SpinnerColumn(), PlainColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=err(), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def tell(cpus: float, rate: Rate | None) -> None:
            known = "no steady steps yet" if rate is None else f"{rate.steps} steps, {rate.per_second:.4g} samples/s"
            bar.update(task, description=f"{cpus:g} CPUs: {known}")

        yield tell


def _show(document: store.Document, path: Path, as_json: bool, again: bool = False) -> None:
    if as_json:
        wants = wanted_cpus(document)
        console.print_json({**document, "wants_cpus": wants, "file": str(path), "measured_before": again})
        return
    out = console.out()
    out.print(_points(document))
    if checks := document["measured"].get("checks"):
        out.print(_checks(checks))
    console.say(*_verdict(document), f"profile: {path}")


def _points(document: store.Document) -> Table:
    points = document["measured"]["points"]
    most = points[-1]["fitted_per_second"]
    table = Table(*console.right("CPUs", "samples/s", "± %", "of the most"), box=None)
    for point in points:
        share = 100 * point["fitted_per_second"] / most
        cells = (f"{point['fitted_per_second']:.4g}", f"{100 * point['error']:.1f}", f"{share:.0f} %")
        table.add_row(f"{point['cpus']:g}", *cells)
    return table


def _checks(checks: list[dict[str, Any]]) -> Table:
    table = Table(*console.right("check at CPUs", "measured", "± %", "predicted", "off by"), box=None)
    for check in checks:
        measured, predicted = f"{check['per_second']:.4g}", f"{check['predicted_per_second']:.4g}"
        off = f"{100 * check['off']:+.1f} %"
        table.add_row(f"{check['cpus']:g}", measured, f"{100 * check['error']:.1f}", predicted, off)
    return table


def _verdict(document: store.Document) -> Iterator[str]:
    """Yield what a person wants to know, in sentences."""
    wants, measured = wanted_cpus(document), document["measured"]
    cpus, column = [0.0, *document["cpus"]], [0.0, *(row[-1] for row in document["throughput"])]
    yield f"wants {wants:g} CPUs a GPU; at 1 CPU {100 * np.interp(1.0, cpus, column):.0f} % of its speed"
    if len(document["memory"]) > 1:
        least, first = document["memory"][0], document["throughput"][-1][0]
        yield (
            f"with {least} a GPU, none of its {format_size(document['dataset'])} of data kept, "
            f"{100 * first:.0f} % of its speed; reads {format_size(document['reads_per_second'])}/s a GPU at full speed"
        )
    else:
        yield (
            "memory: one column, its data set is not known: use headway.CachedDataset, "
            "or give --dataset and --bytes-per-sample"
        )
    cost = measured["cost"]
    took, all_of_it = (format_duration(round(cost[key] * SECOND)) for key in ("wall_s", "exhaustive_wall_s"))
    yield (
        f"took {took} and {cost['cpu_s']:.0f} CPU seconds for {cost['runs']} runs; "
        f"all {cost['exhaustive_runs']} cells would take {all_of_it}"
    )
