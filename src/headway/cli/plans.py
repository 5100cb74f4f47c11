"""``headway plan``: how many workers of which kind a pipeline needs for a deadline and a rate, and what that costs."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from headway.cli import console
from headway.cli.app import app
from headway.cli.flags import ArrivalsFlag, ControlFlag, FleetPolicyFlag, JsonFlag, ScenarioFlag, SeedFlag
from headway.cli.progress import share_bar
from headway.errors import ExperimentError
from headway.experiment.planning import Plan, kind_name, plans, scenario_with
from headway.formats.cluster_table import within
from headway.formats.serving_settings import ServingExperiment, check
from headway.report.terminal import width_of
from headway.units import counted

REQUESTS = 2000
"""Requests of each trial run; the deadline's share of misses cannot be told from far fewer."""


@app.command()
def plan(
    graph: Annotated[str, typer.Argument(help="A pipeline by name, or a scenario file of your own.", metavar="GRAPH")],
    *,
    slo: Annotated[
        str | None,
        typer.Option(
            "--slo", help="How long a request may take: 500ms, or 1.5L. The graphs' own deadlines if left out."
        ),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", help="Requests a second.")],
    in_time: Annotated[
        float, typer.Option("--in-time", help="The share of requests to be answered in time.", min=0.01, max=1.0)
    ] = 0.99,
    policy: FleetPolicyFlag = None,
    arrivals: ArrivalsFlag = None,
    scenario: ScenarioFlag = None,
    control: ControlFlag = None,
    requests: Annotated[int, typer.Option("--requests", help="Of each trial run.", min=100)] = REQUESTS,
    seed: SeedFlag = 0,
    as_json: JsonFlag = False,
) -> None:
    """Say how many workers of which kind answer so many requests in time, what they cost, and what comes next.

    headway plan translation --slo 3s --rate 4

    headway plan pipelines.toml --rate 40 --in-time 0.999 --json
    """
    given = {"policy": policy, "slo": slo, "arrivals": arrivals, "scenario": scenario, "control": control}
    for flag, text in given.items():
        if text is not None and not text.strip():
            raise ExperimentError(f"--{flag} is empty: give it a value, or leave it out")
    within("in-time", in_time, 0.01, 1)
    own = Path(graph).suffix in (".toml", ".py")
    if own and scenario:
        raise ExperimentError(f"{graph} is a scenario already: leave --scenario {scenario} out")
    experiment = ServingExperiment()
    serving = msgspec.structs.replace(
        experiment.serving, scenario=graph if own else scenario_with(graph, scenario or ""), control=control or ""
    )
    workload = msgspec.structs.replace(
        experiment.workload,
        slo=slo or "",
        rate=rate,
        requests=requests,
        arrivals=arrivals or "poisson",
        mix=None if own else {graph: 1.0},
        overload=True,
    )
    named = msgspec.structs.replace(experiment.policy, name=policy or experiment.policy.name)
    run = msgspec.structs.replace(experiment.run, seed=seed or 0)
    whole = msgspec.structs.replace(experiment, serving=serving, workload=workload, policy=named, run=run)
    with share_bar("plan") as tell:
        found = plans(check(whole), in_time, tell)
    _show(found, in_time, as_json)


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
