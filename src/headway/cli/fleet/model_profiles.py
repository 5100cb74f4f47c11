"""Define ``headway profile model``: measure a network, or the tasks of an application."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from headway.cli import console
from headway.cli.flags import JsonFlag
from headway.cli.gpu.kernel_profiles import profile
from headway.errors import ProfileError
from headway.fleet.profiling import application as app_profile, model as model_profile
from headway.fleet.profiling.device import AUTO
from headway.fleet.profiling.session import Effort, Grid
from headway.show.progress import share_bar
from headway.units import format_duration, format_size

BATCHES, SHARES = "1,2,4,8", "1,2,3,4,5,6,7"
DEVICES = ("cuda", "cpu")


@profile.command()
def model(
    program: Annotated[
        str,
        typer.Argument(
            help="A function that gives a network and its inputs; or an app, with all its tasks.",
            metavar="PROGRAM.py:FACTORY|APP.py",
        ),
    ],
    task: Annotated[str, typer.Option(help="Of an app: just these tasks.", metavar="NAMES", show_default="all")] = "",
    batches: Annotated[
        str, typer.Option(help="Batch sizes.", show_default=f"{BATCHES}; of a task up to its largest")
    ] = "",
    cpus: Annotated[
        str,
        typer.Option(help="CPU counts; of a task, besides its own.", show_default="those of 1,2,4,8 that are there"),
    ] = "",
    shares: Annotated[
        str,
        typer.Option(help="Sevenths of the GPU's multiprocessors.", show_default=f"{SHARES}; of a task the whole GPU"),
    ] = "",
    overhead: Annotated[
        bool, typer.Option("--overhead", help="Of an app: also serve it, to measure what a batch takes besides.")
    ] = False,
    runs: Annotated[int, typer.Option(help="Runs of each cell, at least.", min=2, max=100_000)] = 10,
    device: Annotated[str, typer.Option(help="cuda or cpu.", show_default="cuda; for an app what is there")] = "",
    name: Annotated[str, typer.Option(help="The name of the function; the factory's if left out.")] = "",
    out: Annotated[str, typer.Option(help="Write the profile here.", metavar="FILE.toml")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Run a network, or the tasks of an app, at a few batch sizes and CPU counts; write a profile that scenarios take.

    headway profile model serve.py:classify --out classify.toml

    headway fleet simulate mine.toml --set serving.profile=classify.toml

    headway profile model app.py --out app.profile.toml
    """
    if device and device not in DEVICES:
        raise ProfileError(f"--device {device}: must be {' or '.join(DEVICES)}")
    target = Path(out) if out else None
    if target is not None and not target.parent.is_dir():
        raise ProfileError(f"--out {target}: there is no folder {target.parent}")
    of_app, effort = program.endswith(".py"), Effort(runs=runs)
    _refuse(of_app, program, {"--name": name}, {"--task": task, "--overhead": "of an app" if overhead else ""})
    sizes, counts = (_integers(flag, text) for flag, text in (("--batches", batches), ("--cpus", cpus)))
    if of_app:
        names = tuple(each.strip() for each in task.split(",")) if task else ()
        wanted = app_profile.Wanted(names, sizes, counts, _integers("--shares", shares))
        _app(Path(program), wanted, effort, device or AUTO, target, as_json=as_json, overhead=overhead)
        return
    here = model_profile.default_grid(console.note if not cpus else None)
    whole = _integers("--shares", shares or SHARES) if device != "cpu" else (7,)
    grid = Grid(sizes or _integers("--batches", BATCHES), counts or here.cpus, whole)
    with share_bar("profile") as tell:
        found = model_profile.measure(
            program, grid, name=name, effort=effort, device=device or "cuda", say=console.note, tell=_told(tell)
        )
    if target is not None:
        model_profile.write(found, target)
    if as_json:
        console.print_json(model_profile.document([found], found.name))
    else:
        _show_model(found)
    if target is not None:
        console.note(f"profile: {target}")


def _refuse(of_app: bool, program: str, of_networks: Mapping[str, str], of_apps: Mapping[str, str]) -> None:
    """Raise for a flag that has no meaning for what is measured."""
    for flag, given in (of_networks if of_app else of_apps).items():
        if given and of_app:
            raise ProfileError(f"{flag} {given}: is of a network, PROGRAM.py:FACTORY; leave it out for an app")
        if given:
            raise ProfileError(f"{flag} {given}: is of an app, APP.py; {program} is one function")


def _app(
    path: Path,
    wanted: app_profile.Wanted,
    effort: Effort,
    device: str,
    target: Path | None,
    *,
    as_json: bool,
    overhead: bool,
) -> None:
    """Measure an application and show what was found."""
    with share_bar("profile") as tell:
        found = app_profile.measure(path, wanted, effort=effort, device=device, tell=_told(tell))
    if overhead:
        found = _with_overhead(path, found, device)
    if target is not None:
        app_profile.write(found, target)
    if as_json:
        console.print_json(app_profile.document(found))
    else:
        _show_app(found)
    if target is not None:
        console.note(f"profile: {target}")


def _with_overhead(path: Path, found: app_profile.AppProfile, device: str) -> app_profile.AppProfile:
    """Return a profile with what a batch takes besides where the application is served by it."""
    from headway.fleet.profiling.overhead import overhead_of

    with tempfile.TemporaryDirectory(prefix="headway-profile-") as folder:
        app_profile.write(found, profile_file := Path(folder) / "app.profile.toml")
        served_on = {"cuda": "cuda:0"}.get(device, device)
        return replace(found, overhead=overhead_of(path, profile_file, served_on))


def _told(tell: Callable[[str, float], None]) -> Callable[[int, int, str], None]:
    """Return a function of the measurements done, their total and the next one, for a progress bar."""
    return lambda done, whole, what: tell(what, done / max(1, whole))


def _integers(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise ProfileError(f"{flag} {text!r} is not understood: write whole numbers like 1,2,4") from None


def _show_model(profile: model_profile.ModelProfile) -> None:
    headings = console.right("batch", "CPUs", "share", "ms", "± %")
    table = Table(*headings, box=None, pad_edge=False, header_style="bold")
    for cell in profile.cells:
        table.add_row(str(cell.batch), str(cell.cpus), f"{cell.share}/7", f"{cell.ms:.2f}", f"{100 * cell.spread:.1f}")
    console.out().print(table)
    worst = max((abs(check.off) for check in profile.checks), default=0.0)
    console.say(
        f"{profile.name} on {profile.gpu or 'the CPU'}: weights {format_size(profile.weights_bytes)}, cold start "
        f"{profile.cold_start_s:.1f} s, cells measured whole are within {100 * worst:.1f} %"
    )


def _show_app(profile: app_profile.AppProfile) -> None:
    table = Table("task", *console.right("batch", "CPUs", "slices", "ms", "± %", "result"), box=None, pad_edge=False)
    for task in profile.tasks:
        for cell in task.cells:
            numbers = (str(cell.batch), str(cell.cpus), str(cell.share), f"{cell.ms:.3g}", f"{100 * cell.spread:.1f}")
            table.add_row(task.name, *numbers, format_size(task.output_bytes))
    console.out().print(table)
    for model in profile.models:
        size = format_size(model.weights_bytes) if model.weights_bytes else "its bytes cannot be counted"
        load = f", loaded in {min(model.load_ms.values()):.3g} ms" if model.load_ms else ""
        console.say(f"model {model.name}: {size}{load}, built in {model.build_ms:.3g} ms")
    console.say(f"{profile.name} on {profile.gpu or 'the CPU'}{_besides(profile)}")


def _besides(profile: app_profile.AppProfile) -> str:
    """Return what a batch takes besides its function, in words."""
    if not profile.overhead:
        return ""
    (_, busy), *_, (idle, most) = profile.overhead.items()
    return (
        f"; a batch takes {format_duration(busy)} besides, {format_duration(most)} after {format_duration(idle)} idle"
    )
