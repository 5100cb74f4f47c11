"""Benchmarks: how many jobs a second one core plays out, tape written to disk, reading the trace not counted.

Each case runs in a process of its own, so that its peak memory is its own, and asserts what it produced (every job
finished, the digest the same in each repetition) before it reports a time. The best of the repetitions counts; ratios
inside one run are what to compare between machines. ``scripts/bench --traces FOLDER`` reads the public traces from
FOLDER (``philly/philly.csv.gz``, ``helios/helios_venus_gpu_jobs.csv.gz``); without them only the synthetic cases run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Case:
    """One benchmark: what to run, and the floor that it must not fall below."""

    name: str
    trace: dict[str, Any]
    policy: dict[str, Any]
    nodes: int = 80
    floor_jobs_per_s: int = 0
    repeat: int = 3


PHILLY = {"path": "philly/philly.csv.gz", "format": "philly-csv"}
HELIOS = {"path": "helios/helios_venus_gpu_jobs.csv.gz", "format": "helios-csv"}

MOST_BYTES = 2_500_000_000
"""Peak memory of any case."""
LEAST_RATIO = 0.7
"""Of the rate at a million jobs to that at a hundred thousand."""
HEADINGS = (
    *(("case", 30), ("jobs", 10), ("jobs/s", 10), ("floor", 8)),
    *(("wall s", 9), ("peak MB", 9), ("preempt", 9), ("moves", 7)),
)

CASES = [
    Case("philly fifo", PHILLY, {"name": "fifo"}, floor_jobs_per_s=40_000),
    Case("philly sjf", PHILLY, {"name": "sjf"}, floor_jobs_per_s=40_000),
    Case("philly fifo+fit", PHILLY, {"name": "fifo+fit"}),
    Case("helios srtf+none", HELIOS, {"name": "srtf+none"}, floor_jobs_per_s=12_000),
    Case("helios las+none", HELIOS, {"name": "las+none"}, floor_jobs_per_s=12_000),
    Case("philly fifo+migrate", PHILLY, {"name": "fifo+migrate"}, floor_jobs_per_s=3_000, repeat=2),
    Case("helios fifo+migrate", HELIOS, {"name": "fifo+migrate"}, floor_jobs_per_s=3_000, repeat=2),
    Case("helios srtf+none+migrate", HELIOS, {"name": "srtf+none+migrate"}, floor_jobs_per_s=3_000, repeat=2),
    Case("helios fifo+easy", HELIOS, {"name": "fifo+easy"}, repeat=1),
    Case("synthetic 100k, 10,000 GPUs", {"synthetic": {"jobs": 100_000}}, {"name": "fifo"}, nodes=1250, repeat=2),
    Case("synthetic 1M, 10,000 GPUs", {"synthetic": {"jobs": 1_000_000}}, {"name": "fifo"}, nodes=1250, repeat=1),
]


def play(case: Case, traces: Path) -> dict[str, Any]:
    """One case in this process: prepared once, played ``repeat`` times."""
    import msgspec

    from headway import experiment as wiring
    from headway.formats.settings import Experiment
    from headway.training.rows import Kind

    trace = dict(case.trace)
    if "path" in trace:
        trace["path"] = str(traces / trace["path"])
    tables = {"trace": trace, "cluster": {"nodes": case.nodes, "gpus_per_node": 8}, "policy": case.policy}
    scene = wiring.prepare(msgspec.convert(tables, Experiment))
    seconds, digests = [], set()
    for _ in range(case.repeat):
        with tempfile.TemporaryDirectory() as folder:
            result = wiring.play(scene, Path(folder) / "run")
        kinds = result.tape.column("kind")
        ended = sum(int((kinds == kind).sum()) for kind in (Kind.FINISHED, Kind.CANCELLED)) + _failed(scene.jobs)
        assert ended == len(scene.jobs), f"{case.name}: {ended} of {len(scene.jobs)} jobs ended"
        digests.add(result.tape.digest)
        seconds.append(result.wall_s)
    assert len(digests) == 1, f"{case.name}: repetitions differ"
    return {
        "case": case.name,
        "jobs": len(scene.jobs),
        "jobs_per_s": round(len(scene.jobs) / min(seconds)),
        "floor": case.floor_jobs_per_s,
        "wall_s": round(min(seconds), 3),
        "peak_rss_bytes": result.peak_rss_bytes,
        "preemptions": int((kinds == Kind.PREEMPT).sum()),
        "migrations": int((kinds == Kind.MIGRATE).sum()),
        "digest": digests.pop()[:16],
    }


def _failed(jobs: Any) -> int:
    """Jobs whose last attempt fails: each ends once, however often it was retried."""
    from headway.training.job import Outcome

    return sum(1 for job in jobs if job.outcome is Outcome.FAILS)


def main() -> int:
    """Run the cases that match, print a table, and fail when a floor is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("match", nargs="*", help="run only cases whose name contains one of these")
    parser.add_argument("--traces", type=Path, default=os.environ.get("HEADWAY_TRACES", ROOT.parent / "shared/traces"))
    parser.add_argument("--json", action="store_true", help="print one JSON object a case instead of a table")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    traces = Path(given.traces).resolve()
    if given.case:
        print(json.dumps(play(next(case for case in CASES if case.name == given.case), traces)))
        return 0
    if not given.json:
        print("".join(f"{heading:>{width}}" for heading, width in HEADINGS))
    missed = 0
    rates: dict[str, int] = {}
    for case in CASES:
        if given.match and not any(text in case.name for text in given.match):
            continue
        if "path" in case.trace and not (traces / case.trace["path"]).exists():
            print(f"{case.name:30} left out: {case.trace['path']} is not in {given.traces}", file=sys.stderr)
            continue
        command = [sys.executable, __file__, "--case", case.name, "--traces", str(traces)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{case.name}: failed\n{done.stderr}", file=sys.stderr)
            return 1
        row = json.loads(done.stdout)
        rates[row["case"]] = row["jobs_per_s"]
        missed += row["jobs_per_s"] < row["floor"] or row["peak_rss_bytes"] > MOST_BYTES
        if given.json:
            print(json.dumps(row), flush=True)
        else:
            print(
                f"{row['case']:>30} {row['jobs']:9,} {row['jobs_per_s']:9,} {row['floor']:7,} {row['wall_s']:8.2f} "
                f"{row['peak_rss_bytes'] / 1e6:8.0f} {row['preemptions']:8,} {row['migrations']:6,}",
                flush=True,
            )
    small, large = (rates.get(f"synthetic {size}, 10,000 GPUs") for size in ("100k", "1M"))
    if small and large:
        print(f"1M jobs at {large / small:.2f} of the rate of 100k (floor {LEAST_RATIO})", file=sys.stderr)
        missed += large < LEAST_RATIO * small
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
