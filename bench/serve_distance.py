"""How far is the simulation of an application from serving it? ``python -m bench.serve_distance [--out FOLDER]``.

Profiles each application with its overhead, serves it with Poisson arrivals at each rate for a while, plays the
requests that came in virtual time, and keeps a row with both means and percentiles. ``example`` has tasks of a quarter
of a millisecond, ``models`` those of the comparison with Ray Serve, of two milliseconds and more. Wants a machine that
does nothing else: on CPUs that others use, times of an idle moment say little about those under load. ``others_cpus``
says how many CPUs others used meanwhile: of the profile and the serving, the most. Workers are warmed up, and the first
requests do not count: what the first run of a function in a process takes is in no profile, nor what it takes to build
a model that is no module.
"""

import argparse
import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench import serve_ray_models
from bench.serve_rows import FOLDER, Row, Rows
from headway import api
from headway.fleet.live.application import examples_of
from headway.fleet.live.options import Options
from headway.fleet.live.scene import live_scene, served
from headway.fleet.live.server import Server
from headway.fleet.scenarios.app import profile_beside, read_app
from headway.runs.distance import compared, simulated
from headway.runs.folder.folder import open_run
from headway.runs.registry import domain_of
from headway.runs.settings.files import copied, typed

ROOT = Path(__file__).resolve().parent.parent
APPS = {"example": ROOT / "examples" / "pipeline" / "app.py", "models": Path(serve_ray_models.__file__)}
RATES = {"example": (5, 40), "models": (5, 20, 60)}
ASKED = 0.15
"""The mean is to be within this part."""
WARM = 10


def others_seconds() -> float:
    """Return the CPU time of this machine that neither this process nor its ended children used."""
    busy = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    used = sum(map(int, busy)) - int(busy[3]) - int(busy[4])  # without idle and waiting for disks
    return used / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


@contextmanager
def watched(seen: list[float]) -> Iterator[None]:
    """Note how many CPUs others used while the body ran."""
    began, before = time.monotonic(), others_seconds()
    yield
    seen.append((others_seconds() - before) / (time.monotonic() - began))


async def load(server: Server, examples: dict[str, Any], rate: float, seconds: float, seed: int) -> int:
    """Send requests at given times, whatever comes back; return how many failed. ``WARM`` a graph go first, in turn."""
    await server.start()
    draw, loop = random.Random(seed), asyncio.get_running_loop()
    try:
        for graph, value in examples.items():
            for _ in range(WARM):
                await server.submit(graph, value)
        due, end, sent = loop.time(), loop.time() + seconds, []
        while (due := due + draw.expovariate(rate)) < end:
            await asyncio.sleep(max(0.0, due - loop.time()))
            sent.append(server.submit(*draw.choice(list(examples.items()))))
        ended = await asyncio.gather(*sent, return_exceptions=True)
    finally:
        await server.stop()
    return sum(isinstance(each, Exception) for each in ended)


def measured(app: Path, folder: Path, rate: float, seed: int, given: argparse.Namespace) -> Row:
    """Serve an application at a rate; return how far its simulation is from it."""
    examples = examples_of(read_app(app))
    work = api.work("fleet", scenario=str(app), policy=given.policy, workers=given.workers)
    scene = live_scene(typed(copied(work.document), "settings"), devices=("cpu",))
    options, out = Options(app=app, folder=folder / "server", warm=True), folder / f"run-{rate:g}"
    others: list[float] = []
    with watched(others), served(scene, options, out) as server:
        failed = asyncio.run(load(server, examples, rate, given.seconds, seed))
    live = open_run(out, trust=True)
    seen, played = (domain_of(live.scene.experiment).view.stays(run) for run in (live, simulated(live)))
    names = [name for name in seen if name in played and int(name.split()[-1]) >= WARM * len(examples)]
    found = compared(np.array([seen[name] for name in names]), np.array([played[name] for name in names]))
    row: Row = {"rate": rate, "requests": found["compared"], "failed": failed}
    for key in ("mean", "p99"):
        row[f"{key}_ms"], row[f"simulated_{key}_ms"] = (
            round(1e3 * found[key][at], 2) for at in ("first_s", "second_s")
        )
        row[f"{key}_off"] = f"{found[key]['off']:+.0%}"
    return {**row, "others_cpus": round(others[0], 2), "met": abs(found["mean"]["off"]) <= ASKED}


def main() -> None:
    """Measure what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apps", default=",".join(APPS))
    parser.add_argument("--rates", default="", help="requests a second, by default those of each application")
    parser.add_argument("--rounds", type=int, default=2, help="each with a profile and arrivals of its own")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--policy", default="headway")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    rows = Rows(given.out, "distance")
    for round_, name in product(range(1, given.rounds + 1), given.apps.split(",")):
        if rows.found(app=name, round=round_):
            continue
        with tempfile.TemporaryDirectory(prefix="headway-distance-") as text:
            folder = Path(text)
            os.environ[serve_ray_models.FOLDER] = text
            serve_ray_models.write(folder)
            app = Path(shutil.copy(APPS[name], folder))
            measure = ["profile", "model", str(app), "--device", "cpu", "--overhead", "--out", str(profile_beside(app))]
            fresh = {**os.environ, "XDG_CACHE_HOME": text}  # else cells of an earlier round are taken
            others: list[float] = []
            command = [sys.executable, "-m", "headway", *measure]
            with watched(others):
                subprocess.run(command, check=True, env=fresh, stdout=subprocess.DEVNULL)
            for rate in [float(each) for each in given.rates.split(",")] if given.rates else RATES[name]:
                row = measured(app, folder, rate, round_, given)
                row["others_cpus"] = max(row["others_cpus"], round(others[0], 2))
                rows.add({"app": name, "round": round_, **row})


if __name__ == "__main__":
    main()
