"""Define ``headway call`` and ``headway load``: one request to a server, or a measured stream of them."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headway.cli import console
from headway.cli.app import app
from headway.cli.flags import JsonFlag
from headway.cli.fleet.serve import ServerFlag, TokenFlag
from headway.errors import ServeError, UnknownGraphError, unknown_name
from headway.files import write_whole
from headway.fleet.live.client.client import AsyncClient, Client, deadline_of
from headway.fleet.live.doors.tokens import token_of
from headway.fleet.live.doors.values import from_json, to_json
from headway.fleet.live.load.sender import Measured, Plan, event_loop, read_inputs, run_load
from headway.show.progress import share_bar
from headway.show.terminal import framed
from headway.units import SECOND, counted, format_duration, parse_duration

DeadlineFlag = Annotated[
    str, typer.Option(help="How long a request may take: 600ms; else the graph's.", metavar="TIME")
]
_MOST_REASONS = 5
_STOPPED = 130
_LEAST_LAG_S = 0.002
"""A generator this late, for one request in a hundred, is not worth a line."""


@app.command()
def call(
    graph: Annotated[str, typer.Argument(help="The graph.", metavar="GRAPH")],
    value: Annotated[
        str | None,
        typer.Argument(help="The input: JSON, or @FILE (.json, else bytes); else the example.", metavar="JSON|@FILE"),
    ] = None,
    deadline: DeadlineFlag = "",
    key: Annotated[str, typer.Option(help="Calls under one key have one answer, for ten minutes.")] = "",
    tenant: Annotated[str, typer.Option(help="Whose request it is.")] = "",
    priority: Annotated[int, typer.Option(help="0 to 100; higher goes first where the policy respects it.")] = 0,
    server: ServerFlag = "",
    token_file: TokenFlag = "",
) -> None:
    """Call a graph of a server and print its output as JSON.

    headway call reading '"some text"' --deadline 600ms

    headway call caption @photo.jpg
    """
    given = None if value is None else _value(value)
    with Client(server, token=token_of(token_file)) as client:
        if value is None:
            given = _example(client, graph)
        output = client.call(graph, given, deadline=deadline, key=key, tenant=tenant, priority=priority)
    sys.stdout.write(f"{to_json(output).decode()}\n")


def _value(text: str) -> Any:
    if text.startswith("@"):
        found = read_inputs(text[1:])
        if len(found) > 1:
            raise ServeError(f"{text}: holds {len(found):,} inputs; headway load --input sends them all")
        return found[0]
    try:
        return from_json(text.encode())
    except ServeError as problem:
        raise ServeError(f"""input {text[:40]!r}: {problem}; text stands in quotes: '"{text[:20]}"'""") from None


def _example(client: Client, graph: str) -> Any:
    found = client.status()
    examples, known = found.get("examples", {}), found.get("graphs", ())
    if graph not in known:
        raise UnknownGraphError(unknown_name("graph", graph, sorted(known)))
    if graph not in examples:
        raise ServeError(f"graph {graph}: the application has no example of its input: give one as JSON or @FILE")
    return examples[graph]


@app.command()
def load(
    graphs: Annotated[
        list[str] | None, typer.Argument(help="Graphs, drawn evenly; all if left out.", metavar="GRAPH…")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second.")] = None,
    arrivals: Annotated[
        str,
        typer.Option(help="poisson, uniform, gamma:CV, onoff, … or a trace of requests.", metavar="HOW|FILE"),
    ] = "poisson",
    duration: Annotated[str, typer.Option(help="How long to send.")] = "60s",
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", help="Of all graphs or one: .json, .jsonl (in turn), else bytes.", metavar="[GRAPH=]FILE"
        ),
    ] = None,
    deadline: DeadlineFlag = "",
    seed: Annotated[int, typer.Option(help="Seed of arrivals and graphs.")] = 0,
    out: Annotated[str, typer.Option("--out", "-o", help="Write the numbers.", metavar="FILE.json")] = "",
    server: ServerFlag = "",
    token_file: TokenFlag = "",
    as_json: JsonFlag = False,
) -> None:
    """Send requests at a rate, whatever comes back, and measure: latency from the due time, hits, errors.

    headway load reading --rate 40 --duration 60s

    headway load --rate 20 --arrivals trace.csv --input inputs.jsonl --out load.json
    """
    from headway.fleet.live.load.plan import plan_of  # reads traces, which takes a second to import

    token, notes = token_of(token_file), list[str]()
    with Client(server, token=token) as client:
        plan = plan_of(
            client.status(),
            graphs or (),
            arrivals=arrivals,
            rate=rate,
            duration=parse_duration(duration, what="--duration"),
            seed=seed,
            inputs=inputs or (),
            deadline=deadline_of(deadline),
            notes=notes,
        )
    for line in notes:
        console.note(f"note: {line}")
    measured = _measured(server, token, plan)
    summary = measured.summary()
    if out:
        write_whole(Path(out), json.dumps(summary, indent=2, allow_nan=False) + "\n", ServeError, f"--out {out}")
    console.print_json(summary) if as_json else _show(summary)
    if measured.stopped:
        console.note("note: these are the requests that were sent until Ctrl-C")
        raise typer.Exit(_STOPPED)
    if not summary["ok"]:
        console.note(f"headway: none of {counted(summary['requests'], 'request')} was answered")
        raise typer.Exit(1)


def _measured(server: str, token: str, plan: Plan) -> Measured:
    """Send what is planned, beside a bar."""

    async def run() -> Measured:
        with share_bar("load") as tell:
            client = AsyncClient(server, token=token)
            try:
                return await run_load(client, plan, tell)
            finally:
                await client.close()

    exact = not server.startswith("http")  # over HTTP there may be more connections than select takes
    with asyncio.Runner(loop_factory=event_loop if exact else None) as runner:
        return runner.run(run())


def _show(summary: Mapping[str, Any]) -> None:
    """Print what was measured."""
    console.out().print(load_table(summary))
    for reason, number in list(summary["errors"].items())[:_MOST_REASONS]:
        console.say(f"{number:,}× {reason}")
    if (left := len(summary["errors"]) - _MOST_REASONS) > 0:
        console.say(f"and {counted(left, 'other reason')}")
    lag, usual = summary["lag_p99_s"], summary["latency_p50_s"]
    if lag is not None and lag > max(_LEAST_LAG_S, 0.1 * (usual or 0)):
        console.note(
            f"note: the generator fell behind: 1 % of the requests left {_time(lag)} late or more, which counts in "
            "their latency; a lower --rate, or a machine of its own, helps"
        )


def load_table(summary: Mapping[str, Any]) -> Table:
    """Return what was measured as a table: all requests, and by graph where there are several."""
    outcomes = ("ok", "late", "refused", "failed", "unavailable", "invalid", "lost", "unanswered")
    shown = [name for name in outcomes if name == "ok" or summary[name]]
    table = framed(("",), ("requests", *shown, "mean", "p50", "p90", "p99", "in time", "answers/s"))
    rows = summary["graphs"].items() if summary["graphs"] else ()
    for name, row in (*rows, ("all", summary)):
        hits = row["slo_hit_rate"]
        table.add_row(
            name,
            f"{row['requests']:,}",
            *(f"{row[outcome]:,}" for outcome in shown),
            *(_time(row[f"latency_{each}_s"]) for each in ("mean", "p50", "p90", "p99")),
            "–" if hits is None else f"{100 * hits:.1f} %",
            f"{row['answers_per_s']:,.1f}",
        )
    return table


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(round(seconds * SECOND))
