"""``headway profile model``: measure a network for serving, over batch, CPUs and share of the GPU."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from headway.cli import console
from headway.cli.flags import JsonFlag
from headway.cli.profiles import profile
from headway.errors import ProfileError
from headway.profiling.model import ModelProfile, default_grid, document, measure, write
from headway.profiling.model_session import Effort, Grid
from headway.report.progress import share_bar
from headway.units import format_size


@profile.command()
def model(
    factory: Annotated[
        str, typer.Argument(help="A function that gives a network and its inputs.", metavar="PROGRAM.py:FACTORY")
    ],
    batches: Annotated[str, typer.Option(help="Batch sizes.")] = "1,2,4,8",
    cpus: Annotated[str, typer.Option(help="CPU counts; those of 1,2,4,8 that are there.")] = "",
    shares: Annotated[str, typer.Option(help="Sevenths of the GPU's multiprocessors.")] = "1,2,3,4,5,6,7",
    runs: Annotated[int, typer.Option(help="Runs of each cell, at least.", min=2, max=100_000)] = 10,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    name: Annotated[str, typer.Option(help="The name of the function; the factory's if left out.")] = "",
    out: Annotated[str, typer.Option(help="Write the profile here.", metavar="FILE.toml")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Run a network at a few batch sizes, CPU counts and shares of the GPU, and write a profile that scenarios take.

    headway profile model serve.py:classify --out classify.toml

    headway fleet simulate mine.toml --set serving.profile=classify.toml
    """
    if device not in ("cuda", "cpu"):
        raise ProfileError(f"--device {device}: must be cuda or cpu")
    target = Path(out) if out else None
    if target is not None and not target.parent.is_dir():
        raise ProfileError(f"--out {target}: there is no folder {target.parent}")
    here = default_grid(console.note if not cpus else None)
    all_cpus = _counts("--cpus", cpus) if cpus else here.cpus
    grid = Grid(_counts("--batches", batches), all_cpus, _counts("--shares", shares) if device == "cuda" else (7,))
    with share_bar("profile") as tell:

        def told(done: int, whole: int, what: str) -> None:
            tell(what, done / max(1, whole))

        found = measure(factory, grid, name=name, effort=Effort(runs=runs), device=device, say=console.note, tell=told)
    if target is not None:
        write(found, target)
    if as_json:
        console.print_json(document([found], found.name))
    else:
        _show(found)
    if target is not None:
        console.note(f"profile: {target}")


def _counts(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ProfileError(f"{flag} {text!r} is not understood: write whole numbers like 1,2,4") from None


def _show(found: ModelProfile) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("batch", "CPUs", "share", "ms", "± %"):
        table.add_column(heading, justify="right")
    for cell in found.cells:
        table.add_row(str(cell.batch), str(cell.cpus), f"{cell.share}/7", f"{cell.ms:.2f}", f"{100 * cell.spread:.1f}")
    console.out().print(table)
    worst = max((abs(check.off) for check in found.checks), default=0.0)
    console.say(
        f"{found.name} on {found.gpu or 'the CPU'}: weights {format_size(found.weights_bytes)}, cold start "
        f"{found.cold_start_s:.1f} s, cells measured whole are within {100 * worst:.1f} %"
    )
