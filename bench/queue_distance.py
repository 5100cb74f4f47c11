"""How far a simulation is from what a queue of real programs did: on this machine, and on a real Slurm.

``python -m bench.queue_distance --engine slurm --policy srtf+easy``. What an engine adds (starting a program, noticing
its end, stopping and starting it again) is measured first, with a few jobs of known length on an empty queue, and is
all that the simulation is told besides the jobs: their lengths, sizes and the times at which they came. Nothing of the
run that is predicted goes into the prediction.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import queue_distance_program as program
from bench.queue_faults import Daemon, await_end
from bench.serve_rows import Row, Rows
from bench.slurm_lab import SlurmLab
from headway.jobs.live import client
from headway.jobs.live.ground import kept, scene_of
from headway.jobs.live.messages import Submit
from headway.jobs.live.place import Place, place_of
from headway.jobs.live.store import read
from headway.jobs.model.job import workload
from headway.jobs.model.rows import Kind
from headway.runs.distance import compared, simulated
from headway.runs.domain import StoredRun, with_table
from headway.runs.folder.folder import open_run
from headway.runs.play import play
from headway.runs.registry import domain_of
from headway.units import SECOND

GPUS, NODES = 8, 2
SHORTEST_S, LONGEST_S = 5.0, 60.0
TORCH_STEPS = 300
LOAD = 0.9
"""Share of the GPUs that jobs want while they come."""
PROBES, LONG_S = 5, 8.0
COLUMNS = (
    *("engine", "policy", "jobs", "torch", "lengths s", "seed", "preempted", "launch s", "restart s", "live s"),
    *("hindsight", "blind"),
)


@dataclass(frozen=True)
class Planned:
    """A job to come."""

    at_s: float
    gpus: int
    length_s: float
    torch: bool


@dataclass(frozen=True)
class Delays:
    """What an engine adds to a job, in seconds."""

    launch_s: float
    restart_s: float
    """Of a preemption: until the program is gone, and until it goes on."""
    torch_s: float
    """What a torch program takes, without the launch."""
    torch_start_s: float
    """And until its first step, which comes again with each start."""


def plan(jobs: int, seed: int, torch_jobs: int) -> list[Planned]:
    """Draw the workload."""
    draw = random.Random(seed)
    lengths = [draw.uniform(SHORTEST_S, LONGEST_S) for _ in range(jobs)]
    gpus = [draw.choice((1, 1, 1, 2, 2, 4)) for _ in range(jobs)]
    apart = sum(length * wide for length, wide in zip(lengths, gpus, strict=True)) / (LOAD * GPUS * jobs)
    times = [0.0]
    while len(times) < jobs:
        times.append(times[-1] + draw.expovariate(1 / apart))
    torch = set(draw.sample(range(jobs), torch_jobs))
    return [
        Planned(at, wide, length, number in torch)
        for number, (at, wide, length) in enumerate(zip(times, gpus, lengths, strict=True))
    ]


@contextmanager
def queue(folder: Path, engine: str, policy: str) -> Iterator[Place]:
    """Run a queue in a process of its own."""
    place = place_of(str(folder / "queue"))
    folder.mkdir(parents=True)
    daemon = Daemon(place, str(GPUS) if engine == "local" else "", engine, policy)
    daemon.start()
    try:
        yield place
    finally:
        daemon.stop()


def submit(place: Place, name: str, gpus: int, length_s: float, estimate_s: float, torch: int = 0) -> int:
    """Submit a program of a known length; ``torch``: so many steps of torch instead."""
    words = (str(length_s), "torch", str(torch)) if torch else (str(length_s),)
    lean = () if torch else ("-S", "-I")
    asked = Submit(
        (sys.executable, *lean, program.__file__, *words),
        "/",
        {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "OMP_NUM_THREADS": "1"},
        gpus,
        cpus=0,
        estimate=round(estimate_s * SECOND),
        grace_s=30.0,
        name=name,
    )
    number = client.ask(place, asked)
    assert isinstance(number, int)
    return number


def taken_s(place: Place) -> list[float]:
    """Return how long each job took, from its submission to its end, by number."""
    stored = open_run(place.folder)
    by_name = paired(stored, stored)[0]
    past = read(place.store)
    assert past is not None
    return [by_name[job.name] for job in past.jobs if job.name in by_name]


def paired(first: StoredRun, second: StoredRun) -> tuple[dict[str, float], dict[str, float]]:
    """Return how long the jobs of two runs took, by name."""
    return domain_of(first.scene.experiment).view.paired(first, second)


def measured(folder: Path, engine: str, torch: bool) -> Delays:
    """Measure what an engine adds, with jobs alone on an empty queue."""
    with queue(folder, engine, "srtf+easy") as place:
        for number in range(PROBES):
            submit(place, f"probe-{number}", 1, 1.0, 10.0)
            await_end(place, number + 1)
        for number in range(NODES):
            submit(place, f"long-{number}", GPUS // NODES, LONG_S, 1000.0)
        time.sleep(LONG_S / 2)
        for number in range(NODES):
            submit(place, f"short-{number}", GPUS // NODES, 1.0, 1.0)
        await_end(place, PROBES + 2 * NODES)
        took = taken_s(place)
        launch = statistics.median(took[:PROBES]) - 1.0
        longs = took[PROBES : PROBES + NODES]
        undisturbed = LONG_S + launch + 1.0 + launch  # and who went first
        restart = max(0.0, statistics.mean(longs) - undisturbed)
        torch_s = torch_start_s = 0.0
        if torch:
            for steps in (TORCH_STEPS, 1):
                submit(place, f"torch-{steps}", 1, 0.0, 10.0, torch=steps)
                await_end(place, PROBES + 2 * NODES + 1 + (steps == 1))
            torch_s, torch_start_s = (each - launch for each in taken_s(place)[-2:])
    return Delays(launch, restart, torch_s, torch_start_s)


def predicted(place: Place, planned: list[Planned], delays: Delays) -> StoredRun:
    """Simulate the jobs that were submitted, with what is known of them and of the engine."""
    past = read(place.store)
    assert past is not None
    settings = kept(past)
    scene = scene_of(settings, past.jobs)
    jobs = [
        replace(
            job,
            work=round((delays.launch_s + (delays.torch_s if each.torch else each.length_s)) * SECOND),
            restore=round((delays.restart_s + (delays.torch_start_s if each.torch else 0.0)) * SECOND),
            checkpoint_every=0,
            open_end=False,
        )
        for job, each in zip(past.jobs, planned, strict=True)
    ]
    scene = replace(scene, experiment=with_table(scene.experiment, "run", engine=""), jobs=workload(jobs))
    return StoredRun(place.folder / "(predicted)", scene, play(scene).tape, True, {})


def run(folder: Path, engine: str, policy: str, jobs: int, seed: int, torch_jobs: int) -> Row:
    """Measure an engine, run the workload, and compare it with its simulation."""
    delays = measured(folder / "probes", engine, torch_jobs > 0)
    planned = plan(jobs, seed, torch_jobs)
    with queue(folder / "run", engine, policy) as place:
        began = time.monotonic()
        for number, each in enumerate(planned):
            time.sleep(max(0.0, began + each.at_s - time.monotonic()))
            expected = delays.torch_s if each.torch else each.length_s
            submit(place, f"job-{number}", each.gpus, each.length_s, expected, TORCH_STEPS * each.torch)
        await_end(place, jobs)
    live = open_run(place.folder)
    before, after = paired(live, predicted(place, planned, delays))
    result = _compared(before, after)
    hindsight = _compared(*paired(live, simulated(live)))
    print(subprocess.run([sys.executable, "-m", "headway", "distance", str(place.folder)], check=True).returncode)
    return {
        "engine": engine,
        "policy": policy,
        "jobs": jobs,
        "torch": torch_jobs,
        "preempted": len(live.tape.of(int(Kind.PREEMPT))),
        "launch s": round(delays.launch_s, 2),
        "restart s": round(delays.restart_s, 2),
        "live s": round(result["mean"]["first_s"], 2),
        "blind": f"{result['mean']['off']:+.1%}",
        "hindsight": f"{hindsight['mean']['off']:+.1%}",
        "each off (median)": f"{result['each_off_p50']:.1%}",
        "torch s": round(delays.torch_s, 2),
        "torch start s": round(delays.torch_start_s, 2),
        "seed": seed,
        "lengths s": f"{SHORTEST_S:g}–{LONGEST_S:g}",
    }


def _compared(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    common = [name for name in first if name in second]
    return compared(np.array([first[name] for name in common]), np.array([second[name] for name in common]))


def main() -> int:
    """Run and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("local", "slurm"), default="local")
    parser.add_argument("--policy", default="srtf+easy")
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--torch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of the rows of the page, which this one is added to")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as root:
        arguments = (given.engine, given.policy, given.jobs, given.seed, given.torch)
        if given.engine == "slurm":
            with SlurmLab(Path(root), nodes=NODES, gpus=GPUS // NODES, accounted=False) as lab:
                os.environ.update(lab.environment)
                row = run(Path(folder), *arguments)
        else:
            row = run(Path(folder), *arguments)
    if given.out:
        Rows(given.out, "distance").add(row)
    print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
