"""``headway jobs backtest``: what a simulation of a site is worth, by the starts that the site recorded."""

import typer

from headway import api
from headway.cli.options import Given, argument, command, option, setting
from headway.cli.results import show_answer
from headway.cli.scales import JSON, SET
from headway.experiment.jobs.backtest import SITE
from headway.experiment.jobs.flags import FLAGS, WORK

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
    work = api.work("jobs", trace=given["trace"], set=given["set"], **settings)
    show_answer(api.backtest_all(work, given["policies"], given["config"]), given["as_json"])
