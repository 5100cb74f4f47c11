"""How far is the simulation of an application from serving it? ``python -m bench.serve_distance [--rates 5,40]``.

Profiles the application with its overhead, serves it with Poisson arrivals at each rate for a while, plays the requests
that came in virtual time, and prints both means and percentiles. Wants a machine that does nothing else: on CPUs that
others use, times of an idle moment say little about those under load.
"""

import argparse
import asyncio
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from headway import api
from headway.experiment.files import copied, typed
from headway.experiment.fleet.live import live_scene, served
from headway.experiment.fleet.serving import examples_of
from headway.live.serving.options import Options
from headway.live.serving.server import Server
from headway.scenarios.app import profile_beside, read_app

ROOT = Path(__file__).resolve().parent.parent
APP = ROOT / "examples" / "pipeline" / "app.py"
WARM = 10


async def load(server: Server, examples: dict[str, Any], rate: float, seconds: float) -> int:
    """Send requests at given times, whatever comes back; return how many failed. A few go first, one by one."""
    await server.start()
    draw, loop = random.Random(1), asyncio.get_running_loop()
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


def measured(app: Path, folder: Path, rate: float, given: argparse.Namespace) -> dict[str, Any]:
    """Serve an application at a rate; return how far its simulation is from it."""
    work = api.work("fleet", scenario=str(app), policy=given.policy, workers=given.workers)
    scene = live_scene(typed(copied(work.document), "settings"), devices=("cpu",))
    options, out = Options(app=app, folder=folder / "server"), folder / f"run-{rate:g}"
    with served(scene, options, out) as server:
        failed = asyncio.run(load(server, examples_of(read_app(app)), rate, given.seconds))
    found = api.open(str(out)).distance().record()
    return {"rate": rate, "failed": failed, **{key: found[key] for key in ("compared", "mean", "p99")}}


def main() -> None:
    """Measure, and print a line of JSON a rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--app", type=Path, default=APP)
    parser.add_argument("--rates", default="5,40")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--policy", default="headway")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headway-distance-") as name:
        app = Path(shutil.copy(given.app, name))
        profile = str(profile_beside(app))
        measure = ["profile", "model", str(app), "--device", "cpu", "--overhead", "--out", profile]
        subprocess.run([sys.executable, "-m", "headway", *measure], check=True)
        for rate in given.rates.split(","):
            print(json.dumps(measured(app, Path(name), float(rate), given)), flush=True)


if __name__ == "__main__":
    main()
