"""``headway backtest``: what a simulation of a site is worth, by the starts that the site recorded."""

import sys
from typing import Annotated

import typer

from headway.cli import STOPPED, console
from headway.cli.app import app
from headway.cli.flags import (
    BadRowsFlag,
    ClusterFlag,
    FormatFlag,
    GpusFlag,
    JsonFlag,
    MapFlag,
    NodesFlag,
    SetFlag,
    SkipFlag,
    StrictFlag,
    TraceFlag,
    document_of,
    split_policies,
)
from headway.cli.progress import progress_bar
from headway.experiment import backtest as backtests
from headway.formats import slurm_site, toml
from headway.formats.settings import Experiment
from headway.metrics.training.backtest import Backtest
from headway.report.backtest import tables, verdict

SITE = "site"
WITHOUT_CONFIG = "multifactor+conservative"
ConfigFlag = Annotated[
    str | None,
    typer.Option("--config", help="slurm.conf, or what scontrol show config prints: the site's own parameters."),
]
PoliciesOption = Annotated[
    str, typer.Option("--policies", help="Policies to replay; site means the one that --config describes.")
]


@app.command()
def backtest(
    trace: TraceFlag = None,
    format: FormatFlag = None,
    columns: MapFlag = None,
    cluster: ClusterFlag = None,
    nodes: NodesFlag = None,
    gpus_per_node: GpusFlag = None,
    config: ConfigFlag = None,
    policies: PoliciesOption = SITE,
    skip_infeasible: SkipFlag = None,
    strict: StrictFlag = None,
    skip_bad_rows: BadRowsFlag = None,
    as_json: JsonFlag = False,
    overrides: SetFlag = None,
) -> None:
    """Replay a site's history and say how far simulated starts are from the recorded ones.

    headway backtest --trace sacct.txt --cluster nodes.txt --cluster partitions.txt --config slurm.conf

    headway backtest --trace sacct.txt --cluster nodes.txt --policies site,fifo,fifo+easy
    """
    document = document_of(locals(), overrides)
    site = slurm_site.read(config) if config is not None else slurm_site.Site(WITHOUT_CONFIG)
    notes = list(site.notes)
    if config is None and SITE in split_policies(policies):
        notes.append(f"without --config the site is taken for {WITHOUT_CONFIG} with default parameters")
    waits = backtests.recorded(toml.typed(document, Experiment, "flags"))
    found: list[Backtest] = []
    for spec in split_policies(policies):
        toml.put(document, "policy.name", site.policy if spec == SITE else spec)
        with progress_bar(spec) as told:
            compared, result = backtests.replayed(toml.typed(document, Experiment, "flags"), waits, told)
        if result.stopped:
            console.note(f"{result.policy} was stopped; nothing of it is shown")
            break
        found.append(compared)
        notes.extend(note for note in result.notes if note not in notes)
    if as_json:
        console.print_json([each.record() for each in found])
    elif found:
        _show(found, split_policies(policies))
    for note in notes:
        console.note(f"note: {note}")
    if result.stopped:
        sys.exit(STOPPED)


def _show(found: list[Backtest], names: list[str]) -> None:
    for position, table in enumerate(tables(found, names[: len(found)])):
        console.out().print(*([""] if position else []), table)
    first = found[0]
    missed = [
        *([f"{first.only_recorded:,} started only in the record"] if first.only_recorded else []),
        *([f"{first.only_simulated:,} only in the simulation"] if first.only_simulated else []),
    ]
    console.say("", verdict(first))
    if missed:
        console.say(f"({' and '.join(missed)}; {first.jobs:,} jobs in all)")
    if names[0] == SITE:
        console.say(f"site: {first.policy}")
