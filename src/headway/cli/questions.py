"""Define the commands that only one scale has: ``jobs backtest`` and ``fleet plan``; ``prediction`` has that of gpu."""

from typing import Any

from headway import api
from headway.cli import console
from headway.cli.answers import show_answer
from headway.cli.gpu.prediction import add_predict
from headway.cli.options import JSON, Given, argument, command, option, setting
from headway.cli.scales import SET, group_of
from headway.fleet.ask.capacity_planning import REQUESTS
from headway.fleet.ask.planning import NotEnoughError
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.jobs.ask.backtest import SITE
from headway.jobs.experiment.flags import FLAGS, WORK
from headway.runs.registry import DOMAINS, domain

GROUPS = {name: group_of(domain(name)) for name in DOMAINS}
"""The commands of each scale, by its name."""
_NAMES = (
    *("cluster", "nodes", "gpus_per_node", "start", "end", "format", "map", "skip_infeasible", "strict"),
    *("skip_bad_rows", "measure_jobs", "warmup"),
)
_SETTINGS = [flag for flag in FLAGS if flag.name in _NAMES]


@command(
    GROUPS["jobs"],
    "backtest",
    [
        argument("trace", str | None, WORK[0].help, "TRACE", None),
        option("config", str | None, "slurm.conf, or what scontrol show config prints: the site's own parameters."),
        option("policies", str, "Policies to replay; site is the one that --config describes.", default=SITE),
        *(setting(flag) for flag in _SETTINGS),
        option("squeue", str | None, "Samples of the queue: DATE|JOB|REASON a line.", metavar="FILE"),
        option("csv", str | None, "Write a table of all jobs: recorded and simulated waits.", metavar="FILE.csv"),
        *(JSON, SET),
    ],
    "Replay a site's history and say how far simulated starts are from the recorded ones.\n\n"
    "headway jobs backtest sacct.txt --cluster nodes.txt --config slurm.conf --policies site,fifo+easy",
)
def backtest(given: Given) -> None:
    """Replay a history under each policy."""
    settings = {flag.name: given[flag.name] for flag in _SETTINGS}
    work = api.work("jobs", trace=given["trace"], set=given["set"], **settings)
    show_answer(
        api.backtest_all(work, given["policies"], given["config"], given["csv"] or "", given["squeue"] or ""),
        given["as_json"],
    )


@command(
    GROUPS["fleet"],
    "plan",
    [
        argument("graph", str, "A pipeline or a scenario by name, or a scenario file of your own.", "GRAPH"),
        option("rate", float | None, "Requests a second."),
        option("load", float | None, "Instead: a part of what the scenario's own fleet serves, e.g. 0.6."),
        option(
            "slo",
            str | None,
            "Deadline: 500ms, 3x the least, or of tokens ttft=500ms,tpot=50ms. Else the graphs'.",
        ),
        option("in_time", float, "The share of requests to be answered in time.", default=0.99, min=0.01, max=1.0),
        option(
            "policy",
            str | None,
            f"A serving policy: compass, esg(ranks=3). If left out {ServingExperiment().policy.name}.",
        ),
        option("policies", str | None, "Several: hash,jit,compass,headway. How many workers does each need?"),
        option(
            "arrivals",
            str | None,
            "poisson, gamma:CV, onoff, uniform:A,B, diurnal(peak=3,period=24h), rates:FILE.csv, or a trace.",
        ),
        option("prompt_tokens", str | None, "Of requests that generate: 512, lognormal:400,0.9."),
        option("output_tokens", str | None, "The tokens that they generate, as above."),
        option("start", str | None, "cold, or warm: fleets begin with processes and weights."),
        option("scenario", str | None, "The scenario that the pipeline is of."),
        option("control", str | None, "central or decentralised; as the scenario or the policy wants it."),
        option("fidelity", str | None, "true, or authors: as the papers simulate."),
        option("requests", int, "Of each trial run.", default=REQUESTS, min=100),
        option("seed", int, "Seed of everything that is drawn.", default=0),
        option("report", str | None, "A page: slow-down over the number of workers.", metavar="FILE.html"),
        JSON,
    ],
    "Say how many workers of which kind answer so many requests in time, what they cost, and what comes next.\n\n"
    "headway fleet plan translation --slo 3s --rate 4\n\n"
    "headway fleet plan chat --slo ttft=500ms,tpot=50ms --rate 20 --start warm\n\n"
    "headway fleet plan compass --policies hash,jit,compass,headway --rate 40 --slo 3x --report plan.html",
)
def plan(given: Given) -> None:
    """Try fleets of each kind of worker."""
    try:
        show_answer(api.plan(**_without_json(given)), given["as_json"])
    except NotEnoughError as problem:
        if given["as_json"]:
            console.print_json(problem.rows)
        raise


def _without_json(given: Given) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "as_json"}


add_predict(GROUPS["gpu"])
