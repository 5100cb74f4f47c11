"""Compare live serving with Ray Serve, the same models, machine, load and page cache: one command, about five minutes.

    python -m bench.serve_ray                     all of it
    python -m bench.serve_ray --part pressure     one part: pressure, fits, no-op, ray
    python -m bench.serve_ray --seconds 5         shorter runs, to try it
    python -m bench.serve_ray --part tune         Ray Serve alone, over what can be set: two runs each, not in the above

Nine models of 40 MB in three pipelines, two workers, an open loop with Poisson arrivals from the Python client of each.
``pressure``: each worker has room for three models, so that the working set is 1.5 times the budget; ``fits``: for all.
The order is headway, Ray Serve, Ray Serve, headway; Ray runs while it is measured only. ``no-op``: the embedded engine
with tasks that do nothing. ``ray``: such a task on Ray, beside a bare call between two deployments. A JSON line a run,
and a last one with the ratios.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headway as hw
from bench import serve_ray_models as models
from headway.errors import HeadwayError

HERE = Path(__file__).parent
PARTS = ("pressure", "fits", "no-op", "ray")
TUNE = "tune"
SETTINGS = ((1, 16), (1, 32), (2, 16), (2, 32), (3, 6))
"""Batches of a replica at a time, and requests that it may have: what is tried for Ray Serve."""
WORKERS = 2
ROOM = {"pressure": models.MODELS // 3, "fits": models.MODELS}
"""Models that a worker has room for."""
SLO_S = 0.5
GRACE_S = 20.0
IN_FLIGHT = 32
TURNS = 10
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
Call = Callable[[str, float], Awaitable[Any]]


def percentile(found: list[float], percent: float) -> float | None:
    """Return a percentile; None of nothing."""
    ordered = sorted(found)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else None


def in_ms(seconds: float | None) -> float | None:
    """Return milliseconds, to two digits behind the point."""
    return None if seconds is None else round(seconds * 1e3, 2)


async def open_loop(call: Call, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    """Send requests at random times whatever comes back; return latencies from when each was due."""
    draw, took, errors = random.Random(seed), [], []
    began, due = time.perf_counter(), 0.0

    async def one(graph: str, value: float, at: float) -> None:
        try:
            await call(graph, value)
        except HeadwayError as problem:
            errors.append(type(problem).__name__)
        else:
            took.append(time.perf_counter() - began - at)

    calls = []
    while (due := due + draw.expovariate(rate)) < seconds:
        graph, value = draw.choice(tuple(models.PIPELINES)), draw.random()
        await asyncio.sleep(max(0.0, began + due - time.perf_counter()))
        calls.append(asyncio.ensure_future(one(graph, value, due)))
    _, late = await asyncio.wait(calls, timeout=GRACE_S)
    for each in late:
        each.cancel()
    span = time.perf_counter() - began
    return {
        "requests": len(calls),
        "answered": len(took),
        "errors": len(errors),
        "p50_ms": in_ms(percentile(took, 50)),
        "p99_ms": in_ms(percentile(took, 99)),
        "hit_rate": round(sum(each <= SLO_S for each in took) / max(1, len(calls)), 4),
        "answers_per_s": round(len(took) / span, 2),
    }


@contextmanager
def served(app: Path, folder: Path, *more: str) -> Iterator[Path]:
    """Run a server of headway by its command; yield the folder that clients find it by."""
    place = Path(tempfile.mkdtemp(dir=folder)) / "place"
    log = place.parent / "log"
    command = [sys.executable, "-m", "headway", "serve", "start", str(app), "--folder", str(place), *more]
    with log.open("w") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written)
    try:
        until = time.monotonic() + 120
        while "headway call" not in log.read_text():
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the server did not start: {log.read_text()}")
            time.sleep(0.05)
        yield place
    finally:
        process.terminate()
        process.wait(60)


# --- against a plain application of Ray Serve -------------------------------------------------------------------


async def warmed(call: Call) -> None:
    """Pass each pipeline a few times, unmeasured."""
    for _ in range(3):
        for graph in models.PIPELINES:
            await call(graph, 0.5)


async def drive_headway(place: Path, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    """Load the embedded engine."""
    async with hw.AsyncClient(place) as client:

        def call(graph: str, value: float) -> Awaitable[Any]:
            return client.call(graph, value, deadline=30.0)  # hits are counted here: none is given up

        await warmed(call)
        found = await open_loop(call, rate, seconds, seed)
        server = (await client.status())["server"]
        return {**found, "loads": server["loads"], "cache_hits": server["cache_hits"]}


async def drive_ray(handle: Any, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    """Load the plain application."""

    async def call(graph: str, value: float) -> Any:
        return await handle.remote(graph, value)

    await warmed(call)
    return await open_loop(call, rate, seconds, seed)


@contextmanager
def ray_running() -> Iterator[Any]:
    """Run Ray and Serve on this machine; yield Serve."""
    import ray
    from ray import serve

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    ray.init(address="local", _node_ip_address="127.0.0.1", num_cpus=6, object_store_memory=200_000_000, **quiet)
    serve.start(http_options={"location": "NoServer"}, logging_config={"log_level": "ERROR"})
    try:
        yield serve
    finally:
        serve.shutdown()
        ray.shutdown()


def compared(part: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of one part: headway, Ray Serve, Ray Serve, headway."""
    from bench import serve_ray_plain

    app, room, rate = folder / "app.py", ROOM[part], options.rate
    memory = f"{room * models.MEGABYTES}MB"
    rows = []

    def headway(seed: int) -> None:
        with served(app, folder, "--no-http", "--workers", str(WORKERS), "--gpu-memory", memory) as place:
            found = asyncio.run(drive_headway(place, rate, options.seconds, seed))
        rows.append(row(part, "headway", found, rate=rate))

    headway(1)
    with ray_running() as serve:
        handle = serve.run(
            serve_ray_plain.application(WORKERS, room, options.batches, options.ongoing),
            name="plain",
            route_prefix=None,
        )
        for seed in (1, 2):
            found = asyncio.run(drive_ray(handle, rate, options.seconds, seed))
            rows.append(row(part, "ray serve", found, rate=rate))
    headway(2)
    return rows


def tuned(options: argparse.Namespace) -> None:
    """Measure Ray Serve under pressure with each setting, in turn and then backwards, on other arrivals."""
    from bench import serve_ray_plain

    with ray_running() as serve:
        for batches, ongoing in (*SETTINGS, *reversed(SETTINGS)):
            plain = serve_ray_plain.application(WORKERS, ROOM["pressure"], batches, ongoing)
            handle = serve.run(plain, name="plain", route_prefix=None)
            found = asyncio.run(drive_ray(handle, options.rate, options.seconds, 3))
            row(TUNE, "ray serve", found, rate=options.rate, batches=batches, ongoing=ongoing)
            serve.delete("plain")


def row(part: str, system: str, found: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Print and return the numbers of a run."""
    made = {"part": part, "system": system, **more, **found}
    print(json.dumps(made), flush=True)
    return made


# --- calls that do nothing ---------------------------------------------------------------------------------------


def one_by_one(place: Path, count: int) -> list[float]:
    """Return what calls took, one after the other, in seconds."""
    took = []
    with hw.client(place) as client:
        for number in range(count + 20):
            began = time.perf_counter()
            client.call("empty", 0)
            if number >= 20:
                took.append(time.perf_counter() - began)
    return took


async def many_at_once(place: Path, seconds: float) -> float:
    """Return answers a second with so many calls in flight."""
    async with hw.AsyncClient(place) as client:
        began = time.perf_counter()

        async def caller() -> int:
            done = 0
            while time.perf_counter() - began < seconds:
                await client.call("empty", 0)
                done += 1
            return done

        done = await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
        return sum(done) / (time.perf_counter() - began)


def no_ops(folder: Path, options: argparse.Namespace) -> None:
    """Measure the embedded engine with tasks that do nothing."""
    for policy in ("hash", "headway"):
        with served(HERE / "serve_app.py", folder, "--no-http", "--policy", policy) as place:
            took = one_by_one(place, options.calls)
            rate = asyncio.run(many_at_once(place, min(5.0, options.seconds)))
        latency = {"p50_ms": in_ms(percentile(took, 50)), "p99_ms": in_ms(percentile(took, 99))}
        row("no-op", "headway", {**latency, "tasks_per_s": round(rate)}, policy=policy, in_flight=IN_FLIGHT)


def on_ray(folder: Path, options: argparse.Namespace) -> float:
    """Measure a task that does nothing on Ray, beside a bare call between two deployments; return the ratio.

    Both run on one cluster and are called in turns, so that whatever else the machine does meets both.
    """
    import ray

    from bench import serve_ray_plain

    bare: list[float] = []
    took: list[float] = []
    with ray_running() as serve:
        handle = serve.run(serve_ray_plain.bare_call(), name="bare", route_prefix=None)
        handle.remote(20).result()
        address = ray.get_runtime_context().gcs_address
        more = ("--no-http", "--policy", "hash", "--engine", "ray", "--address", address)
        with served(HERE / "serve_app.py", folder, *more) as place:
            for _ in range(TURNS):
                bare += handle.remote(options.calls // TURNS).result()
                took += one_by_one(place, options.calls // TURNS)
    row("ray", "bare call", {"p50_ms": in_ms(percentile(bare, 50)), "p99_ms": in_ms(percentile(bare, 99))})
    row("ray", "headway", {"p50_ms": in_ms(percentile(took, 50)), "p99_ms": in_ms(percentile(took, 99))}, policy="hash")
    return (percentile(took, 50) or 0.0) / (percentile(bare, 50) or 1.0)


# --- all of it ------------------------------------------------------------------------------------------------------


def prepare(folder: Path) -> None:
    """Write weights, the app and its profile."""
    weights = folder / "weights"
    weights.mkdir()
    models.write(weights)
    os.environ[models.FOLDER] = str(weights)
    shutil.copy(HERE / "serve_ray_models.py", folder / "app.py")
    profile = ["profile", "model", "app.py", "--device", "cpu", "--batches", "1,2,4", "--cpus", "1", "--runs", "5"]
    command = [sys.executable, "-m", "headway", *profile, "--out", "app.profile.toml"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def mean(rows: list[dict[str, Any]], system: str, key: str) -> float:
    """Return the mean of a number over the runs of a system."""
    found = [each[key] for each in rows if each["system"] == system and each[key] is not None]
    return sum(found) / max(1, len(found))


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=(*PARTS, TUNE), action="append")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second, three tasks each")
    parser.add_argument("--calls", type=int, default=500, help="calls that do nothing, one after the other")
    parser.add_argument("--batches", type=int, default=1, help="of Ray Serve: batches of a replica at a time")
    parser.add_argument("--ongoing", type=int, default=32, help="of Ray Serve: requests that a replica may have")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    parts, ratios = options.part or PARTS, {}
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as name:
        folder = Path(name)
        if {"pressure", "fits", TUNE} & set(parts):
            prepare(folder)
        if TUNE in parts:
            tuned(options)
        for part in ("pressure", "fits"):
            if part in parts:
                rows = compared(part, folder, options)
                for key in ("p50_ms", "p99_ms"):
                    ahead = mean(rows, "ray serve", key) / max(1e-9, mean(rows, "headway", key))
                    ratios[f"{part}: {key} of Ray Serve over headway's"] = round(ahead, 2)
        if "no-op" in parts:
            no_ops(folder, options)
        if "ray" in parts:
            ratios["ray: p50 of headway over a bare call"] = round(on_ray(folder, options), 2)
    print(json.dumps({"ratios": ratios}), flush=True)


if __name__ == "__main__":
    main()
