"""``headway fleet plan``: how many workers of which kind a pipeline needs for a deadline and a rate, at what cost."""

from inspect import Parameter

import typer

from headway import api
from headway.cli import console
from headway.cli.options import Given, argument, command, option
from headway.cli.results import show_answer
from headway.cli.scales import JSON
from headway.experiment.fleet.planning import REQUESTS, NotEnoughError
from headway.formats.serving.settings import ServingExperiment


def add(group: typer.Typer) -> None:
    """Add the command to the group of fleets."""
    usual = ServingExperiment().policy.name
    parameters = [
        argument("graph", str, "A pipeline by name, or a scenario file of your own.", "GRAPH"),
        option("rate", float, "Requests a second.", default=Parameter.empty),
        option(
            "slo", str | None, "How long a request may take: 500ms, or 1.5L. The graphs' own deadlines if left out."
        ),
        option("in_time", float, "The share of requests to be answered in time.", default=0.99, min=0.01, max=1.0),
        option("policy", str | None, f"A serving policy: compass, esg(ranks=3). If left out {usual}."),
        option("arrivals", str | None, "poisson, gamma:CV, onoff, uniform:A,B, or a trace of requests."),
        option("scenario", str | None, "The scenario that the pipeline is of."),
        option("control", str | None, "central or decentralised; as the scenario or the policy wants it."),
        option("requests", int, "Of each trial run.", default=REQUESTS, min=100),
        option("seed", int, "Seed of everything that is drawn.", default=0),
        JSON,
    ]
    about = "Say how many workers of which kind answer so many requests in time, what they cost, and what comes next."
    examples = "headway fleet plan translation --slo 3s --rate 4"
    command(group, "plan", parameters, f"{about}\n\n{examples}")(plan)


def plan(given: Given) -> None:
    """Try fleets of each kind of worker."""
    settings = {name: value for name, value in given.items() if name != "as_json"}
    try:
        show_answer(api.plan(**settings), given["as_json"])
    except NotEnoughError as problem:
        if given["as_json"]:
            console.print_json(problem.rows)
        raise
