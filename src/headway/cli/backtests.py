"""``headway jobs backtest``: what a simulation of a site is worth, by the starts that the site recorded."""

import sys

import typer

from headway import api
from headway.cli import STOPPED, console
from headway.cli.options import Given, argument, command, option, setting
from headway.cli.scales import JSON, SET
from headway.experiment.files import copied, typed
from headway.experiment.flags import split_policies
from headway.experiment.jobs import backtest as backtests
from headway.experiment.jobs.flags import FLAGS, WORK
from headway.formats import slurm_site, toml
from headway.metrics.training.backtest import Backtest
from headway.report.backtest import tables, verdict
from headway.report.progress import progress_bar

SITE = "site"
WITHOUT_CONFIG = "multifactor+conservative"
_NAMES = ("cluster", "nodes", "gpus_per_node", "format", "map", "skip_infeasible", "strict", "skip_bad_rows")
_SETTINGS = [flag for flag in FLAGS if flag.name in _NAMES]


def add(group: typer.Typer) -> None:
    """Add the command to the group of jobs."""
    parameters = [
        argument("trace", str | None, WORK[0].help, "TRACE", None),
        option("config", str | None, "slurm.conf, or what scontrol show config prints: the site's own parameters."),
        option("policies", str, "Policies to replay; site is the one that --config describes.", default=SITE),
        *(setting(flag) for flag in _SETTINGS),
        *(JSON, SET),
    ]
    about = "Replay a site's history and say how far simulated starts are from the recorded ones."
    example = "headway jobs backtest sacct.txt --cluster nodes.txt --config slurm.conf --policies site,fifo+easy"
    command(group, "backtest", parameters, f"{about}\n\n{example}")(backtest)


def backtest(given: Given) -> None:
    """Replay a history under each policy."""
    settings = {flag.name: given[flag.name] for flag in _SETTINGS}
    document = copied(api.work("jobs", trace=given["trace"], set=given["set"], **settings).document)
    config, names = given["config"], split_policies(given["policies"])
    site = slurm_site.read(config) if config is not None else slurm_site.Site(WITHOUT_CONFIG)
    notes = list(site.notes)
    if config is None and SITE in names:
        notes.append(f"without --config the site is taken for {WITHOUT_CONFIG} with default parameters")
    waits = backtests.recorded(typed(document, "flags"))
    found: list[Backtest] = []
    stopped = False
    for spec in names:
        toml.put(document, "policy.name", site.policy if spec == SITE else spec)
        with progress_bar(spec) as told:
            compared, result = backtests.replayed(typed(document, "flags"), waits, told)
        if stopped := result.stopped:
            console.note(f"{result.policy} was stopped; nothing of it is shown")
            break
        found.append(compared)
        notes.extend(note for note in result.scene.notes if note not in notes)
    if given["as_json"]:
        console.print_json([each.record() for each in found])
    elif found:
        _show(found, names)
    for note in notes:
        console.note(f"note: {note}")
    if stopped:
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
