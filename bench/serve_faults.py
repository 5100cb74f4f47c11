"""Faults of live serving under load: what callers see, how soon it is as before, and what is left behind.

    python -m bench.serve_faults                          every fault, 30 s each at 100 requests a second
    python -m bench.serve_faults --fault worker-killed --seconds 10
    python -m bench.serve_faults --app FILE               another application with a graph like small of serve_app.py
    python -m bench.serve_faults --out FOLDER             rows go to FOLDER/faults.jsonl; those there are not run again

A server is started by its command, requests come at a constant rate through the Python client, each under a key and
with a deadline of 2 s, and a third into the time the fault is done. Met is: every request has one answer or one reason
within its deadline and a second; p99 is back to normal within 5 s, on Ray 15 s; nothing is left, no process and no
shared memory; the audit of the run is sound. A JSON line a fault; exit status 1 where one is not met.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headway as hw
from bench.serve_load import DEADLINE_S, Fault, Seen, load, told
from bench.serve_process import Served, parents
from bench.serve_rows import FOLDER, Row, Rows
from headway.errors import TapeError

APP = Path(__file__).with_name("serve_app.py")
MISCHIEF = {"worker-killed": ("kill",), "worker-hung": ("hang",), "memory": ("memory", "memory-always")}
NODE = "ray-node-killed"
FAULTS = ("none", *MISCHIEF, "connections-cut", "front-restarted", "disk-full", NODE)
BACK_WITHIN_S, BACK_WITHIN_ON_RAY_S = 5.0, 15.0
FAILS = {"memory": 1}
"""Requests that a fault may fail: one that runs out of memory each time. Others may fail for being late."""


def fault_of(name: str, server: Served, ray_nodes: Any) -> Fault:
    """Return what does a fault."""

    async def do(clients: list[hw.AsyncClient]) -> Sequence[str]:
        if name == "front-restarted":
            server.restart()
        if name == "connections-cut":
            for client in clients[:2]:
                await client.close()
        if name == NODE:
            _kill_node(ray_nodes, await server.status())
        return MISCHIEF.get(name, ())

    return do


def tiny_disk(folder: Path) -> bool:
    """Mount a disk of four megabytes, on which no weights find room; return whether that is allowed here."""
    folder.mkdir(mode=0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "none", str(folder)], check=False)
    return mounted.returncode == 0


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """Run a cluster of three nodes on this machine."""
    from bench.serve_ray import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 2, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(**size)
        yield cluster
    finally:
        cluster.shutdown()


def _kill_node(cluster: Any, status: dict[str, Any]) -> None:
    """Kill a node that has a worker; not the head, nor the node of the server itself."""
    above = parents()
    hosts = [above.get(worker["pid"]) for worker in status["server"]["workers"]]
    for node in cluster.list_all_nodes():
        raylet = node.all_processes["raylet"][0].process.pid
        if not node.head and raylet in hosts and raylet != above.get(status["pid"]):
            cluster.remove_node(node, allow_graceful=False)
            return
    raise SystemExit("no node has a worker alone: start again")


async def _driven(server: Served, name: str, rate: float, seconds: float, ray_nodes: Any) -> Row:
    """Return what was seen of one fault."""
    await server.ready()
    seen = Seen()
    began, fault_at = await load(server.folder, rate, seconds, seen, fault_of(name, server, ray_nodes))
    await server.ready()
    row = {"fault": name, "rate": rate, "seconds": seconds, **told(seen, began, fault_at, seconds)}
    workers = (await server.status())["server"]["workers"]
    return row | {"starts": [worker["starts"] for worker in workers]}


def fault_run(name: str, rate: float, seconds: float, app: Path = APP) -> Row:
    """Run one fault; return what was seen."""
    with tempfile.TemporaryDirectory(prefix="headway-faults-") as temporary:
        folder = Path(temporary) / "server"
        if name == "disk-full" and not tiny_disk(folder):
            return {"fault": name, "skipped": "a small disk cannot be mounted here"}
        try:
            if name != NODE:
                return _served(app, name, folder, rate, seconds, "--workers", "2")
            with ray_cluster() as nodes:
                more = ("--workers", "3", "--engine", "ray", "--address", nodes.address)
                return _served(app, name, folder, rate, seconds, *more, nodes=nodes)
        finally:
            if name == "disk-full":
                subprocess.run(["umount", str(folder)], check=False)


def _served(app: Path, name: str, folder: Path, rate: float, seconds: float, *more: str, nodes: Any = None) -> Row:
    server = Served(app, folder, "--no-http", "--policy", "headway", *more, keep=True)
    processes: list[int] = []
    try:
        row = asyncio.run(_driven(server, name, rate, seconds, nodes))
        processes = server.processes()
    finally:
        server.stop()
    row["left"] = server.left(processes)
    row["sound"] = all(map(is_sound, server.runs))
    return row | {"met": not unmet(row), "unmet": unmet(row)}


def is_sound(run: Path) -> bool:
    """Return whether the audit of a run finds nothing; so it is of one without any step."""
    try:
        return not hw.open(run, trust=True).audit()
    except TapeError as problem:
        return "holds no step" in str(problem)


def unmet(row: Row) -> list[str]:
    """Return which promises were not kept."""
    within_s = BACK_WITHIN_ON_RAY_S if row["fault"] == NODE else BACK_WITHIN_S
    back = row["back_s"]
    errors = sum(count for reason, count in row["failed"].items() if reason.startswith("TaskFailedError"))
    checks = {
        "every request ends": not row["without_an_end"],
        "answers are their own": not row["wrong"],
        "reasons come in time": row["slowest_failure_s"] <= DEADLINE_S + 1,
        "only the guilty fail": errors <= FAILS.get(row["fault"], 0),
        f"p99 is back within {within_s:g} s": back is not None and back <= within_s,
        "nothing is left": not row["left"],
        "the run is sound": row["sound"],
    }
    return [promise for promise, kept in checks.items() if not kept]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--app", type=Path, default=APP)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the rows")
    given = parser.parse_args()
    rows, wrong = Rows(given.out, "faults"), 0
    for fault in given.fault or FAULTS:
        key: dict[str, Any] = {"fault": fault, "rate": given.rate, "seconds": given.seconds}
        row = (rows.found(**key) or [None])[-1] or rows.add(fault_run(fault, given.rate, given.seconds, given.app))
        wrong += "skipped" not in row and not row["met"]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
