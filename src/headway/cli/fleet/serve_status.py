"""Define ``headway serve status``, ``drain`` and ``stop``: ask a server, and end it."""

import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table

from headway.cli import console
from headway.cli.flags import JsonFlag
from headway.cli.fleet.serve import ServerFlag, TokenFlag, serve
from headway.errors import ServeError
from headway.fleet.live.client.client import Client
from headway.fleet.live.doors.place import find
from headway.fleet.live.doors.tokens import token_of
from headway.fleet.live.doors.values import wrapped
from headway.show.terminal import framed
from headway.units import SECOND, format_duration, format_size, parse_duration

Row = Mapping[str, Any]


@serve.command()
def status(
    server: ServerFlag = "",
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option(help="How often, with --watch.")] = "1s",
    token_file: TokenFlag = "",
    as_json: JsonFlag = False,
) -> None:
    """Show what a server does: requests by graph, workers and their memory.

    headway serve status --watch
    """
    pause = parse_duration(every, what="--every") / SECOND
    if pause <= 0:
        raise ServeError(f"--every {every}: longer than nothing")
    if as_json and watch:
        raise ServeError("--json and --watch do not go together: ask for --json again and again")
    with Client(server, token=token_of(token_file)) as client:
        if as_json:
            console.print_json(wrapped(client.status()))
        elif watch:
            _watch(client, pause)
        else:
            _print(client.status())


@serve.command()
def drain(server: ServerFlag = "") -> None:
    """Have a server refuse new requests, and wait until all others are answered; it stays.

    headway serve drain
    """
    with Client(server) as client:
        client.drain()
    console.note("drained: headway serve stop ends it")


@serve.command()
def stop(
    server: ServerFlag = "",
    now: Annotated[bool, typer.Option("--now", help="Give up the requests that it has.")] = False,
    wait: Annotated[str, typer.Option(help="How long to wait for its end.")] = "60s",
) -> None:
    """End a server, after the requests that it has accepted.

    headway serve stop
    """
    seconds = parse_duration(wait, what="--wait") / SECOND
    place = find(server) if not server.startswith("http") else None
    with Client(server) as client:
        client.stop(drain=not now)
    until = time.monotonic() + seconds
    while place is not None and place.runs:
        if time.monotonic() > until:
            raise ServeError(f"it still answers its requests after {wait}: headway serve stop --now gives them up")
        time.sleep(0.02)
    console.note("stopped")


# --- what a status looks like ---------------------------------------------------------------------------------------


def _watch(client: Client, pause: float) -> None:
    try:
        if not sys.stdout.isatty():
            while True:
                _print(client.status())
                time.sleep(pause)
        with Live(console=console.out(), auto_refresh=False) as live:
            while True:
                now = client.status()
                live.update(Group(*head(now), graph_table(now), worker_table(now)), refresh=True)
                time.sleep(pause)
    except KeyboardInterrupt:
        return


def _print(now: Row) -> None:
    console.say(*head(now))
    console.out().print(graph_table(now))
    if now["server"].get("workers"):
        console.out().print(worker_table(now))


def head(now: Row) -> list[str]:
    """Return the server and what it does at the moment, in sentences."""
    where = now.get("url") or now.get("folder", "")
    up = format_duration(round(max(0.0, time.time() - now.get("started_s", time.time())) * SECOND))
    state = "drains" if now["draining"] else "ready" if now["ready"] else "starting"
    server, app = now["server"], now.get("app", "server")
    policy = f", policy {server['policy']}" if server.get("policy") else ""
    lines = [f"{app} at {where}: process {now.get('pid', '?')}, up {up}{policy}; {state}"]
    if server.get("failure"):
        lines.append(server["failure"])
    words = {"open": "requests open", "tasks": "tasks done", "cache_hits": "models found in memory"}
    parts = [f"{server[key]:,} {text}" for key, text in words.items() if key in server]
    parts += [f"{format_size(server['moved_bytes'])} of models moved"] if "moved_bytes" in server else []
    lines += [", ".join(parts)] if parts else []
    if drift := server.get("drift"):
        shown = ", ".join(f"{task} {drift[task]:.2f}" for task in sorted(drift))
        lines.append(f"time of tasks over their profile: {shown}")
    return lines


def graph_table(now: Row) -> Table:
    """Return one row a graph: how its requests ended, and how long they took lately."""
    names = ("ok", "late", "failed", "refused", "invalid", "repeated")
    table = framed(("graph",), (*names, "p50", "p99"))
    rows = now["requests"]
    for graph in sorted({*now["graphs"], *rows}):
        row = rows.get(graph, {})
        times = [row.get(f"p{percent}_ms") for percent in (50, 99)]
        table.add_row(
            graph or "(no such graph)",
            *(f"{row.get(name, 0):,}" for name in names),
            *("–" if each is None else f"{each:,.2f} ms" for each in times),
        )
    return table


def worker_table(now: Row) -> Table:
    """Return one row a worker: whether it is up, its memory, and what it holds."""
    table = framed(("worker", "state", "models"), ("runs", "waits", "memory", "of", "starts"))
    for worker in now["server"].get("workers", ()):
        table.add_row(
            worker["name"],
            f"up, process {worker['pid']}" if worker["up"] else "down",
            ", ".join(worker["resident"]) or "–",
            *(f"{worker[key]:,}" for key in ("running", "queued")),
            *(format_size(worker[key]) for key in ("booked_bytes", "memory_bytes")),
            f"{worker['starts']:,}",
        )
    return table
