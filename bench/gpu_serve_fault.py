"""An illegal address in one of five workers that share a GPU by MPS: ``scripts/gpu-serve fault``.

Requests come at a constant rate with a deadline of 2 s; a third into the time one of them writes to an address that is
nobody's. MPS ends the contexts of all its clients then. A line of JSON says how requests ended, when p99 was back, how
often workers were started, and what GPU memory was left at the end. ``--dry``: on the CPU, where address 0 is read.
Needs torch and msgspec, neither polars nor plotly.
"""

import argparse
import asyncio
import math
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.gpu_serve_fleet import CALM, Fleet, Lines, flags, mps
from bench.serve_load import DEADLINE_S, Seen, told
from headway.errors import HeadwayError
from headway.fleet.live.server import Server
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.formats import toml
from headway.units import SECOND

RATE = 100.0
QUIET_S = 15.0
"""Until all workers are back, before the end is looked at."""


class Faulty(Fleet):
    """Five workers with a small network."""

    name, app = "fault", Path(__file__).with_name("gpu_serve_fault_app.py")

    def experiment(self, policy: str) -> ServingExperiment:
        """Return the tables of a run, without a profile."""
        serving = {"scenario": str(self.app), "workers": self.workers, "gpu_memory": "1GB", "engine": "local"}
        return toml.typed(
            {"serving": {**serving, "devices": 1}, "policy": {"name": policy}}, ServingExperiment, "fault"
        )

    def _store(self, experiment: ServingExperiment, run: Path) -> None:
        """Keep no run folder."""

    async def fault(self, seconds: float) -> None:
        """Send requests, one of which goes astray; keep what was seen."""
        async with self.server("headway", self.folder / "fault") as (server, _):
            seen = Seen()
            began, fault_at = await _load(server, seconds, seen)
            for _ in range(round(10 * QUIET_S)):
                if all(worker.up for worker in server.state.workers):
                    break
                await asyncio.sleep(0.1)
            workers = server.status()["workers"]
            row = {"fault": "illegal-address", "rate": RATE, "seconds": seconds, **told(seen, began, fault_at, seconds)}
            row |= {"starts": [worker["starts"] for worker in workers], "up": [worker["up"] for worker in workers]}
            self.lines.keep(**row)


async def _load(server: Server, seconds: float, seen: Seen) -> tuple[float, float]:
    """Send requests at a constant rate; return when it began and when the one that goes astray was sent."""
    began, fault_at, tasks = time.monotonic(), math.inf, []

    async def one(order: dict[str, Any], due: float) -> None:
        seen.sent += 1
        try:
            answer = await server.submit("small", order, deadline_ns=round(DEADLINE_S * SECOND))
        except HeadwayError as problem:
            seen.ends.append((due, math.inf))
            seen.reasons[
                re.sub(r"[\d.]+s", "so long", f"{type(problem).__name__}: {problem}".partition(" Search")[0])
            ] += 1
            seen.slowest_failure_s = max(seen.slowest_failure_s, time.monotonic() - due)
        else:
            seen.ends.append((due, time.monotonic() - due))
            seen.wrong += answer["n"] != order["n"]

    for number in range(round(RATE * seconds)):
        due = began + number / RATE
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        astray = math.isinf(fault_at) and due - began > seconds / 3
        fault_at = due if astray else fault_at
        tasks.append(asyncio.ensure_future(one({"n": number, "astray": astray}, due)))
    await asyncio.wait(tasks, timeout=60)
    return began, fault_at


def device_bytes() -> int:
    """Return the GPU memory that is in use, of all processes."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]) << 20


def main() -> None:
    """Measure it once."""
    given: argparse.Namespace = flags(__doc__).parse_args()
    for place in (given.out, given.work):
        place.mkdir(parents=True, exist_ok=True)
    lines = Lines(given.out / "fault.jsonl")
    before = 0 if given.dry else device_bytes()

    async def measure(environment: dict[str, str]) -> None:
        fleet = Faulty(given, lines, {**environment, **CALM})
        try:
            await fleet.fault(given.seconds)
        finally:
            await fleet.stop()

    try:
        with mps(not given.dry) as environment:
            asyncio.run(measure(environment))
        lines.keep(part="left", device_bytes=0 if given.dry else device_bytes() - before)
    finally:
        shutil.rmtree(given.work, ignore_errors=True)


if __name__ == "__main__":
    main()
