"""``headway fleet plan``: how many workers of which kind a pipeline needs for a deadline and a rate, at what cost."""

from inspect import Parameter
from pathlib import Path

import typer
from rich.table import Table

from headway import api
from headway.cli import console
from headway.cli.options import Given, argument, command, option
from headway.cli.scales import JSON
from headway.errors import ExperimentError
from headway.experiment.files import copied, typed
from headway.experiment.fleet.planning import Plan, kind_name, plans, scenario_with
from headway.formats.cluster_table import within
from headway.formats.serving_settings import check
from headway.formats.settings import PolicyNameTable
from headway.report.progress import share_bar
from headway.report.terminal import width_of
from headway.units import counted

REQUESTS = 2000
"""Requests of each trial run; the deadline's share of misses cannot be told from far fewer."""


def add(group: typer.Typer) -> None:
    """Add the command to the group of fleets."""
    parameters = [
        argument("graph", str, "A pipeline by name, or a scenario file of your own.", "GRAPH"),
        option("rate", float, "Requests a second.", default=Parameter.empty),
        option(
            "slo", str | None, "How long a request may take: 500ms, or 1.5L. The graphs' own deadlines if left out."
        ),
        option("in_time", float, "The share of requests to be answered in time.", default=0.99, min=0.01, max=1.0),
        option("policy", str | None, f"A serving policy: compass, esg(k=3), …. If left out {PolicyNameTable().name}."),
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
    for flag in ("policy", "slo", "arrivals", "scenario", "control"):
        if given[flag] is not None and not given[flag].strip():
            raise ExperimentError(f"--{flag} is empty: give it a value, or leave it out")
    within("in-time", given["in_time"], 0.01, 1)
    graph, scenario = given["graph"], given["scenario"]
    own = Path(graph).suffix in (".toml", ".py")
    if own and scenario:
        raise ExperimentError(f"{graph} is a scenario already: leave --scenario {scenario} out")
    chosen = graph if own else scenario_with(graph, scenario or "")
    settings = {name: given[name] for name in ("policy", "slo", "rate", "requests", "control", "seed")}
    more = {"workload.overload": True, **({} if own else {"workload.mix": {graph: 1.0}})}
    work = api.fleet(chosen, arrivals=given["arrivals"] or "poisson", set=more, **settings)
    with share_bar("plan") as tell:
        found = plans(check(typed(copied(work.document), "flags")), given["in_time"], tell)
    _show(found, given["in_time"], given["as_json"])


def _show(found: list[Plan], in_time: float, as_json: bool) -> None:
    if as_json:
        console.print_json([each.record() for each in found])
    elif found[0].workers:
        table = _table([each for each in found if each.workers])
        console.out(width_of(table)).print(table)
    if not found[0].workers:
        why = f"{kind_name(found[0].kind)}: {found[0].why_not}"
        raise ExperimentError(f"no kind of worker answers {100 * in_time:g} % in time; {why}")
    for each in found if not as_json else ():
        if each.why_not:
            console.note(f"note: {kind_name(each.kind)} cannot do it: {each.why_not}")
    if not as_json:
        if found[0].dropped_at_start:
            early = f"{found[0].dropped_at_start:,} of the {found[0].dropped:,} dropped arrived before their functions"
            console.note(f"note: {early} could have started; they do not count, all others that were dropped do")
        console.say(_best(found))


def _best(found: list[Plan]) -> str:
    """The plan in a sentence, and by how much the next one is dearer."""
    best = found[0]
    workers = f"{counted(best.workers, 'worker')} with {kind_name(best.kind)}"
    in_time = f"{100 * best.hit_rate:.1f} % in time, {_dropped(best)} dropped"
    told = f"{workers}: {in_time}, at ${best.hour_usd:,.2f} an hour"
    if len(found) > 1 and found[1].workers and best.hour_usd:
        more = found[1].hour_usd / best.hour_usd - 1
        told += f"; {found[1].kind.gpu.type} instead costs {100 * more:.0f} % more"
    return told


def _dropped(plan: Plan) -> str:
    return f"{plan.dropped:,} of {plan.requests:,}"


def _table(found: list[Plan]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    headings = ("workers", "in time", "dropped", "latency p99", "GPU use", "$/hour", "$/1000 requests", "one fewer")
    table.add_column("worker", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found:
        table.add_row(
            kind_name(each.kind),
            f"{each.workers:,}",
            f"{100 * each.hit_rate:.1f} %",
            _dropped(each),
            "" if each.latency_p99_s is None else f"{1000 * each.latency_p99_s:,.0f} ms",
            f"{100 * each.gpu_utilisation:.0f} %",
            f"{each.hour_usd:,.2f}",
            "" if each.request_usd is None else f"{1000 * each.request_usd:.3f}",
            "" if each.fewer_hit_rate is None else f"{100 * each.fewer_hit_rate:.1f} % in time",
        )
    return table
