"""Synergy live: four torch programs under CPU quotas of a queue, divided evenly, by ``tune`` and by ``headway``.

    python -m bench.queue_synergy --out docs/background/results/live-training

Two programs decode pictures and are hungry for CPUs, two train on tokens and are not (``examples/profiling``, with a
stand-in for the accelerator). Both are profiled by ``headway profile job``; then queues of four slots run all four at
once, the divisions in turn, and steps are counted by what the programs print. Needs control groups for CPUs, and a
machine that does nothing else. Rows that are there are not measured again.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

from bench.serve_rows import Row, Rows
from headway.jobs.live.local import cgroups
from headway.jobs.live.local.engine import logs_of
from headway.jobs.live.place import Place
from headway.jobs.tables import profiles as profile_file

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "examples" / "profiling"
JOBS = {"images": ("--step-ms", "30"), "language": ("--step-ms", "60")}
CPUS = {"images": "0.25,0.5,0.8,1.2", "language": "0.1,0.2,0.35,0.5"}
COPIES = 2
DIVISIONS = ("proportional", "tune", "headway")
ROUND = "5s"
COLUMNS = ("program", "division", "cpus", "steps_per_s", "gain", "predicted_gain")
BEGUN_WITHIN_S = 120.0
STEP = re.compile(r"^step (\d+) ")


def headway(*words: str) -> str:
    """Run a command; return what it prints."""
    command = [sys.executable, "-m", "headway", *words]
    return subprocess.run(command, check=True, text=True, capture_output=True, cwd=ROOT).stdout


def program(name: str, folder: Path) -> list[str]:
    """Return the command of a program that trains until it is stopped."""
    more = ["--folder", str(folder / name)] if name == "images" else []
    return [sys.executable, str(PROGRAMS / f"{name}.py"), "--steps", "0", *JOBS[name], *more]


def steps(log: Path) -> int:
    """Return how many steps a program says it has done."""
    lines = log.read_text().splitlines() if log.exists() else []
    return max((int(found[1]) for line in lines if (found := STEP.match(line))), default=0)


def rates(logs: list[Path], seconds: float) -> list[float]:
    """Return the steps a second of programs over a window, from one line that they print to another."""
    until = time.monotonic() + BEGUN_WITHIN_S
    while not all(map(steps, logs)):
        assert time.monotonic() < until, f"not all programs have begun: {[steps(log) for log in logs]}"
        time.sleep(0.1)
    end = time.monotonic() + seconds
    seen: list[list[tuple[float, int]]] = [[] for _ in logs]
    while time.monotonic() < end:
        for points, log in zip(seen, logs, strict=True):
            if (done := steps(log)) and (not points or points[-1][1] != done):
                points.append((time.monotonic(), done))
        time.sleep(0.02)
    return [(points[-1][1] - points[1][1]) / (points[-1][0] - points[1][0]) for points in seen]


def quotas(place: Path, leases: int) -> list[float]:
    """Return the CPUs that the control groups of leases allow."""
    groups, why = cgroups.found(name := cgroups.name_of(place, 1))
    if groups is None:
        raise SystemExit(why)
    found = []
    for lease in range(1, leases + 1):
        group = next(parent / f"{name}-{lease}" for parent in groups._parents)
        v1, v2 = group / "cpu.cfs_quota_us", group / "cpu.max"
        found.append(int((v2 if v2.exists() else v1).read_text().split()[0]) / 100_000)
    return found


def divided(division: str, folder: Path, profiles: dict[str, Path], seconds: float) -> list[Row]:
    """Run all four programs under one division; return a row a program."""
    place = folder / f"queue-{division}-{time.monotonic_ns()}"
    names = [name for _ in range(COPIES) for name in JOBS]
    given = [word for path in profiles.values() for word in ("--profiles", str(path))]
    policy = f"fifo+{division}+round({ROUND})"
    headway("queue", "start", "--folder", str(place), "--gpus", str(len(names)), "--policy", policy, *given)
    try:
        for name in names:
            words = ("--folder", str(place), "--profile", name, "--name", name, "--", *program(name, folder))
            headway("queue", "submit", *words)
        measured = rates([logs_of(Place(place).run(1), job)[0] for job in range(len(names))], seconds)
        granted = quotas(place, len(names))
    finally:
        headway("queue", "stop", "--kill", "--now", "--folder", str(place))
    return [
        {"program": name, "cpus": cpus, "steps_per_s": round(rate, 2)}
        for name, cpus, rate in zip(names, granted, measured, strict=True)
    ]


def main() -> None:
    """Measure what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=Path("live-training"))
    given = parser.parse_args()
    rows, summary = Rows(given.out, "synergy-programs"), Rows(given.out, "synergy")
    with tempfile.TemporaryDirectory(prefix="headway-synergy-") as text:
        folder, profiles = Path(text), {}
        os.environ["HEADWAY_PROFILES"] = str(folder / "store")
        for name in JOBS:
            profiles[name] = folder / f"{name}.toml"
            where = ("--cpus", CPUS[name], "--steps", "40", "--model", name, "--out", str(profiles[name]))
            headway("profile", "job", *where, "--", *program(name, folder))
        for round_ in range(1, given.rounds + 1):
            for division in DIVISIONS if round_ % 2 else DIVISIONS[::-1]:
                if not rows.found(round=round_, division=division):
                    for row in divided(division, folder, profiles, given.seconds):
                        known = profile_file.read(profiles[row["program"]])
                        speed = known.speed(round(1000 * row["cpus"]), known.memory_bytes[-1]) / 1e6
                        rows.add({"round": round_, "division": division, **row, "predicted": round(speed, 3)})
    summary.clear()
    for division, name in product(DIVISIONS, JOBS):
        summary.add(gain(name, division, rows))


def gain(name: str, division: str, rows: Rows) -> Row:
    """Return what a program has of a division, measured and as its profile has it, against the even one."""
    row: Row = {"program": name, "division": division}
    means = {}
    for each, key in product((DIVISIONS[0], division), ("cpus", "steps_per_s", "predicted")):
        found = rows.found(program=name, division=each)
        means[each, key] = sum(row[key] for row in found) / len(found)
    row |= {key: round(means[division, key], 2) for key in ("cpus", "steps_per_s")}
    measured, predicted = (means[division, key] / means[DIVISIONS[0], key] for key in ("steps_per_s", "predicted"))
    return row | {"gain": round(measured, 2), "predicted_gain": round(predicted, 2)}


if __name__ == "__main__":
    main()
