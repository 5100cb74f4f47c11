"""Compare live serving with Ray Serve: the same models, machine, load and page cache, in one command.

    python -m bench.serve_ray                     all of it, about twenty minutes
    python -m bench.serve_ray --part pressure     one part: no-op, ray, pressure, fits
    python -m bench.serve_ray --seconds 5 --rounds 1   shorter runs, to try it
    python -m bench.serve_ray --out FOLDER        where rows go (ray.jsonl, no-op.jsonl); those there are not run again
    python -m bench.serve_ray --part tune         Ray Serve alone, over what can be set: two runs each, not in the above

Nine models of 40 MB in three pipelines, two workers, an open loop with Poisson arrivals from the Python client of each.
``pressure``: each worker has room for three models, so that the working set is 1.5 times the budget; ``fits``: for all.
Each round starts both systems anew, one after the other and in turns who is first, and loads them for ten seconds
before it measures. ``no-op``: the embedded engine with tasks that do nothing. ``ray``: such a task on Ray, beside a
bare call between two deployments. A JSON line a run, and at the end the ratios beside what is asked for.
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
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

import headway as hw
from bench import serve_ray_models as models
from bench.serve_load import percentile
from bench.serve_process import served
from bench.serve_rows import FOLDER, Row, Rows
from headway.errors import HeadwayError

HERE = Path(__file__).parent
PARTS = ("no-op", "ray", "pressure", "fits")
TUNE = "tune"
SETTINGS = ((1, 16), (1, 32), (2, 16), (2, 32), (3, 6))
"""Batches of a replica at a time, and requests that it may have: what is tried for Ray Serve."""
WORKERS = 2
ROOM = {"pressure": models.MODELS // 3, "fits": models.MODELS}
"""Models that a worker has room for."""
HEADWAY, RAY_SERVE = "headway", "ray serve"
SLO_S = 0.5
WARM_S = 10.0
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


def in_ms(took: list[float], percent: float) -> float | None:
    """Return a percentile in milliseconds, to two digits behind the point; None of nothing."""
    return round(percentile(took, percent) * 1e3, 2) if took else None


async def open_loop(call: Call, rate: float, seconds: float, seed: int) -> Row:
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
        "p50_ms": in_ms(took, 50),
        "p99_ms": in_ms(took, 99),
        "hit_rate": round(sum(each <= SLO_S for each in took) / max(1, len(calls)), 4),
        "answers_per_s": round(len(took) / span, 2),
    }


# --- against a plain application of Ray Serve -------------------------------------------------------------------


async def measured(call: Call, rate: float, seconds: float, seed: int) -> Row:
    """Pass each pipeline a few times, load all for a while, unmeasured; then measure."""
    for _ in range(3):
        for graph in models.PIPELINES:
            await call(graph, 0.5)
    await open_loop(call, rate, min(WARM_S, seconds), seed=0)
    return await open_loop(call, rate, seconds, seed)


async def drive_headway(place: Path, rate: float, seconds: float, seed: int) -> Row:
    """Load the embedded engine."""
    async with hw.AsyncClient(place) as client:

        def call(graph: str, value: float) -> Awaitable[Any]:
            return client.call(graph, value, deadline=30.0)  # hits are counted here: none is given up

        found = await measured(call, rate, seconds, seed)
        server = (await client.status())["server"]
        return {**found, "loads": server["loads"], "cache_hits": server["cache_hits"]}


async def drive_ray(handle: Any, rate: float, seconds: float, seed: int) -> Row:
    """Load the plain application."""

    async def call(graph: str, value: float) -> Any:
        return await handle.remote(graph, value)

    return await measured(call, rate, seconds, seed)


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


def compared(part: str, folder: Path, rows: Rows, options: argparse.Namespace) -> None:
    """Measure one part: both systems in each round, in turns who is first."""
    for number in range(1, options.rounds + 1):
        for system in (HEADWAY, RAY_SERVE) if number % 2 else (RAY_SERVE, HEADWAY):
            about = {"part": part, "system": system, "rate": options.rate, "seconds": options.seconds, "round": number}
            if not rows.found(**about):
                drive = _headway if system == HEADWAY else _ray_serve
                rows.add({**about, **drive(folder, ROOM[part], options, number)})


def _headway(folder: Path, room: int, options: argparse.Namespace, seed: int) -> Row:
    memory = f"{room * models.MEGABYTES}MB"
    with served(folder / "app.py", folder, "--no-http", "--workers", str(WORKERS), "--gpu-memory", memory) as place:
        return asyncio.run(drive_headway(place, options.rate, options.seconds, seed))


def _ray_serve(folder: Path, room: int, options: argparse.Namespace, seed: int) -> Row:
    from bench import serve_ray_plain

    with ray_running() as serve:
        plain = serve_ray_plain.application(WORKERS, room, options.batches, options.ongoing)
        handle = serve.run(plain, name="plain", route_prefix=None)
        return asyncio.run(drive_ray(handle, options.rate, options.seconds, seed))


def tuned(rows: Rows, options: argparse.Namespace) -> None:
    """Measure Ray Serve under pressure with each setting, in turn and then backwards, on other arrivals."""
    from bench import serve_ray_plain

    with ray_running() as serve:
        for batches, ongoing in (*SETTINGS, *reversed(SETTINGS)):
            plain = serve_ray_plain.application(WORKERS, ROOM["pressure"], batches, ongoing)
            handle = serve.run(plain, name="plain", route_prefix=None)
            found = asyncio.run(drive_ray(handle, options.rate, options.seconds, 3))
            about = {"part": TUNE, "system": RAY_SERVE, "rate": options.rate, "seconds": options.seconds}
            rows.add({**about, "batches": batches, "ongoing": ongoing, **found})
            serve.delete("plain")


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


def no_ops(folder: Path, rows: Rows, options: argparse.Namespace) -> None:
    """Measure the embedded engine with tasks that do nothing."""
    for number in range(1, options.rounds + 1):
        for policy in ("hash", "headway"):
            about = {"policy": policy, "in_flight": IN_FLIGHT, "calls": options.calls, "round": number}
            if rows.found(**about):
                continue
            with served(HERE / "serve_app.py", folder, "--no-http", "--policy", policy) as place:
                took = one_by_one(place, options.calls)
                rate = asyncio.run(many_at_once(place, min(5.0, options.seconds)))
            rows.add({**about, "p50_ms": in_ms(took, 50), "p99_ms": in_ms(took, 99), "tasks_per_s": round(rate)})


def on_ray(folder: Path, rows: Rows, options: argparse.Namespace) -> None:
    """Measure a task that does nothing on Ray, beside a bare call between two deployments.

    Both run on one cluster and are called in turns, so that whatever else the machine does meets both.
    """
    if rows.found(part="ray", calls=options.calls):
        return
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
    for system, times in (("bare call", bare), (HEADWAY, took)):
        about = {"part": "ray", "system": system, "calls": options.calls}
        rows.add({**about, "p50_ms": in_ms(times, 50), "p99_ms": in_ms(times, 99)})


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


def over(rows: Rows, key: str, one: dict[str, Any], other: dict[str, Any]) -> float | None:
    """Return the mean of a number over some rows by that over others; None where it was not measured."""
    means = [mean([row[key] for row in rows.found(**about)] or [0.0]) for about in (one, other)]
    return round(means[0] / means[1], 2) if all(means) else None


def ratios(rows: Rows, no_op: Rows) -> Iterator[Row]:
    """Yield what was measured beside what is asked for."""
    for policy, least in (("hash", 3000), ("headway", 1500)):
        if found := no_op.found(policy=policy):
            rate, p50 = mean(row["tasks_per_s"] for row in found), mean(row["p50_ms"] for row in found)
            yield {"what": f"no-op, {policy}: tasks a second", "ratio": round(rate), "asked": f"at least {least:,}"}
            yield {"what": f"no-op, {policy}: p50 in ms", "ratio": round(p50, 2), "asked": "under 1"}
    asked = {"pressure": "at least 2", "fits": "at least 0.91"}
    for part, least in asked.items():
        for key in ("p50_ms", "p99_ms"):
            pair = {"part": part, "system": RAY_SERVE}, {"part": part, "system": HEADWAY}
            if (ratio := over(rows, key, *pair)) is not None:
                what = f"{part}: {key[:3]} of Ray Serve over headway's"
                yield {"what": what, "ratio": ratio, "asked": least if key == "p99_ms" else ""}
    pair = {"part": "ray", "system": HEADWAY}, {"part": "ray", "system": "bare call"}
    if (ratio := over(rows, "p50_ms", *pair)) is not None:
        yield {"what": "on Ray: p50 of headway over a bare call", "ratio": ratio, "asked": "at most 1.5"}


def is_met(row: Row) -> bool | None:
    """Return whether a ratio is as asked for; None where nothing is."""
    words = row["asked"].replace(",", "").split()
    if not words:
        return None
    bound = float(words[-1])
    return bool(row["ratio"] >= bound if words[:2] == ["at", "least"] else row["ratio"] <= bound)


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=(*PARTS, TUNE), action="append")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="of each part")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second, three tasks each")
    parser.add_argument("--calls", type=int, default=500, help="calls that do nothing, one after the other")
    parser.add_argument("--batches", type=int, default=1, help="of Ray Serve: batches of a replica at a time")
    parser.add_argument("--ongoing", type=int, default=32, help="of Ray Serve: requests that a replica may have")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the rows")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    parts, rows, no_op = options.part or PARTS, Rows(options.out, "ray"), Rows(options.out, "no-op")
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as name:
        folder = Path(name)
        if {"pressure", "fits", TUNE} & set(parts):
            prepare(folder)
        if TUNE in parts:
            tuned(rows, options)
        if "no-op" in parts:
            no_ops(folder, no_op, options)
        if "ray" in parts:
            on_ray(folder, rows, options)
        for part in ("pressure", "fits"):
            if part in parts:
                compared(part, folder, rows, options)
    told = Rows(options.out, "ratios")
    told.clear()
    for row in ratios(rows, no_op):
        told.add(row | {"met": is_met(row)})


if __name__ == "__main__":
    main()
