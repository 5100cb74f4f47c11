"""Slurm's own scheduler against headway's policies on the same Slurm: the 200 jobs of ``slurm_mix.py``, run for real.

    python -m bench.slurm_headway --out docs/background/results/live-training --systems slurm sjf+fit

Slurm has multifactor priorities (age, fair share, QOS, size), backfill each second, and QOS preemption with requeue.
Under headway the same jobs are submitted held with its tag. Both know of a run time what the user said: the limit.
Jobs save when they are asked to end, and go on from there; saving and loading take a second each. Times are those that
the programs write down. Rows that are there are not measured again; runs of several systems may go on side by side.
Needs what bench/slurm_lab.py needs.
"""

import argparse
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import slurm_mix_program as program
from bench.queue_faults import Daemon
from bench.serve_rows import Row, Rows
from bench.slurm_lab import SlurmLab, missing
from bench.slurm_mix import ACCOUNTS, GPUS_A_NODE, LOAD_S, NODES, QOS, SAVE_S, Planned, workload
from headway.jobs.live import client
from headway.jobs.live.messages import Status
from headway.jobs.live.place import place_of

OWN, PATIENT = "slurm", "slurm-no-preemption"
SYSTEMS = (OWN, PATIENT, "sjf+fit", "srtf+quantum(30s)", "las(quantum=30s)")
"""Slurm's own, the same without preemption as a control, and policies that did well in simulation.

The three were chosen before the first run: by limits without and with preemption, and told no limits.
"""
NAMES = {OWN: "Slurm's own", PATIENT: "Slurm's own, no preemption"}
ENDS_WITHIN_S = 900.0
SETTINGS = {
    "AccountingStorageEnforce": "qos",
    "PreemptType": "preempt/qos",
    "PreemptMode": "REQUEUE",
    "KillWait": "30",
    "PriorityWeightAge": "1000",
    "PriorityMaxAge": "00:10:00",
    "PriorityWeightFairshare": "1000",
    "PriorityWeightQOS": "2000",
    "PriorityWeightJobSize": "200",
    "PriorityDecayHalfLife": "00:05:00",
    "PriorityCalcPeriod": "1",
    "SchedulerParameters": (
        "bf_interval=1,bf_resolution=1,bf_continue,bf_max_job_test=1000,default_queue_depth=1000,sched_interval=1,"
        "sched_min_interval=100000,batch_sched_delay=0"
    ),
}
REQUEUE_S = 3
"""What Slurm lets a requeued job wait: two minutes usually, scaled down as the jobs are."""
COLUMNS = (
    *("system", "runs", "JCT s", "± s", "wait s", "± s of wait", "high s", "normal s", "low s"),
    *("preempted", "makespan s", "times as fast", "from", "to"),
)
_T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}
"""Quantiles of Student's t for intervals of 95 %, by degrees of freedom."""


@contextmanager
def site(preempts: bool) -> Iterator[SlurmLab]:
    """Run the Slurm that both drive."""
    settings = SETTINGS if preempts else {**SETTINGS, "PreemptType": "preempt/none", "PreemptMode": "OFF"}
    levels = {"high": 1000, "normal": 100}
    qos = [f"modify qos {name} set Priority={level} Preempt=low" for name, level in levels.items()]
    accounts = [f"add account {name} fairshare={round(100 * part)}" for name, part in ACCOUNTS.items()]
    users = [f"add user root account={name}" for name in ACCOUNTS]
    commands = ["add qos high", "add qos low", *qos, "modify qos low set Priority=0 PreemptMode=requeue"]
    commands += [f"modify cluster lab set qos={','.join(QOS)} defaultqos=normal", *accounts, *users]
    with (
        tempfile.TemporaryDirectory(prefix="lab") as root,
        SlurmLab(
            Path(root),
            nodes=NODES,
            gpus=GPUS_A_NODE,
            settings=settings,
            accounting=commands,
            requeue_s=REQUEUE_S,
        ) as lab,
    ):
        yield lab


def run(system: str, folder: Path, jobs: Sequence[Planned]) -> Row:
    """Run the jobs under a system; return what was seen."""
    files = {job.number: folder / f"job-{job.number}" for job in jobs}
    with site(system != PATIENT) as lab:
        os.environ.update(lab.environment)
        place = place_of(str(folder / "queue"))
        daemon = None if system in NAMES else Daemon(place, "", "slurm", system)
        if daemon is not None:
            daemon.start()
        began, submitted = time.monotonic(), {}
        for job in jobs:
            time.sleep(max(0.0, began + job.at_s - time.monotonic()))
            submitted[job.number] = time.time()
            submit(lab, job, files[job.number], tagged=daemon is not None)
        until = time.monotonic() + ENDS_WITHIN_S
        while lab.waiting() > (daemon is not None):  # the lock of a queue is a job that waits
            if time.monotonic() > until:
                raise SystemExit(f"not all jobs have ended: {lab.run('squeue')}")
            time.sleep(1.0)
        told = {} if daemon is None else told_by(client.ask(place, Status()))
        if daemon is not None:
            daemon.stop()
    return {"system": system, **seen(jobs, submitted, files), **told}


def submit(lab: SlurmLab, job: Planned, file: Path, *, tagged: bool) -> None:
    """Submit a job to Slurm, as a user does; ``tagged``: for headway."""
    words = map(str, (sys.executable, "-S", "-I", program.__file__, file, job.length_s, SAVE_S, LOAD_S))
    options = [f"--job-name=j{job.number}", f"--nodes={job.nodes}", f"--ntasks={job.nodes}"]
    options += [f"--cpus-per-task={job.gpus // job.nodes}", f"--gres=gpu:{job.gpus // job.nodes}"]
    options += [f"--time={job.limit_min}", f"--account={job.account}", f"--qos={job.qos}", "--requeue"]
    options += ["--hold", "--comment=headway"] if tagged else []
    fixed = ("sbatch", "--parsable", "-o", "/dev/null", "--chdir=/tmp")
    lab.run(*fixed, *options, "--wrap", f"exec {' '.join(words)}")


def told_by(status: object) -> Row:
    """Return what the queue itself has counted."""
    assert isinstance(status, dict)
    return {"held_again": status["slurm"]["held_again"]}


def seen(jobs: Sequence[Planned], submitted: dict[int, float], files: dict[int, Path]) -> Row:
    """Return the numbers of a run, by what its programs wrote down; every job has to have ended.

    A job that was requeued in the moment of its end, and ran again, has taken until its first end.
    """
    took, waits, saved, again, last = {}, {}, 0, 0, 0.0
    for job in jobs:
        lines = [line.split() for line in files[job.number].read_text().splitlines()]
        ends = [float(line[0]) for line in lines if line[1] == "ended"]
        assert ends, f"job {job.number} did not end: {lines}"
        again += len(ends) - 1
        took[job.number] = ends[0] - submitted[job.number]
        waits[job.number] = float(lines[0][0]) - submitted[job.number]
        saved += sum(line[1] == "saved" for line in lines)
        last = max(last, ends[0])
    by_qos = {name: [took[job.number] for job in jobs if job.qos == name] for name in QOS}
    ordered = sorted(took.values())
    return {
        "jobs": len(jobs),
        "jct_s": round(statistics.mean(ordered), 3),
        "wait_s": round(statistics.mean(waits.values()), 3),
        "jct_p50_s": round(statistics.median(ordered), 3),
        "jct_p99_s": round(ordered[math.ceil(0.99 * len(ordered)) - 1], 3),
        **{f"jct_{name}_s": round(statistics.mean(values), 3) for name, values in by_qos.items() if values},
        "saved": saved,
        "ended_again": again,
        "makespan_s": round(last - min(submitted.values()), 1),
    }


def summary(rows: Rows) -> list[Row]:
    """Return a row a system: means of its runs, intervals, and how many times as fast as Slurm's own it was."""
    own = [row["jct_s"] for row in rows.found(system=OWN)]
    made = []
    for system in dict.fromkeys((*SYSTEMS, *(row["system"] for row in rows.rows))):
        if not (found := rows.found(system=system)):
            continue
        mean = {
            key: statistics.mean(row[key] for row in found)
            for key in found[0]
            if isinstance(found[0][key], float | int)
        }
        jct, wait = ([row[key] for row in found] for key in ("jct_s", "wait_s"))
        row = {"system": NAMES.get(system, system), "runs": len(found)}
        row |= {"JCT s": round(mean["jct_s"], 2), "± s": half_width(jct)}
        row |= {"wait s": round(mean["wait_s"], 2), "± s of wait": half_width(wait)}
        row |= {f"{name} s": round(mean[f"jct_{name}_s"], 1) for name in QOS if f"jct_{name}_s" in mean}
        row |= {"preempted": round(mean["saved"], 1), "makespan s": round(mean["makespan_s"], 1)}
        made.append(row | (faster(own, jct) if system != OWN and own else {}))
    return made


def half_width(values: Sequence[float]) -> float | None:
    """Return half the interval of 95 % of a mean; None for a single value."""
    if len(values) < 2:
        return None
    return round(_T95[min(10, len(values) - 1)] * statistics.stdev(values) / math.sqrt(len(values)), 2)


def faster(own: Sequence[float], other: Sequence[float]) -> Row:
    """Return how many times as short the second mean is, with an interval of 95 % (Welch, of logarithms)."""
    first, second = ([math.log(value) for value in values] for values in (own, other))
    ratio = statistics.mean(first) - statistics.mean(second)
    row = {"times as fast": round(math.exp(ratio), 3)}
    if len(first) < 2 or len(second) < 2:
        return row
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    spread = sum(parts)
    bottom = sum(part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True))
    wide = _T95[max(1, min(10, int(spread**2 / bottom)))] * math.sqrt(spread) if bottom else 0.0
    return row | {"from": round(math.exp(ratio - wide), 3), "to": round(math.exp(ratio + wide), 3)}


def main() -> int:
    """Measure what is not there yet, and write the summary of what is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="number of the first run")
    parser.add_argument("--jobs", type=int, default=0, help="only the first so many, to try it out")
    parser.add_argument("--out", type=Path, default=Path("live-training"))
    given = parser.parse_args()
    if lacking := missing():
        sys.exit(f"not installed: {', '.join(lacking)}")
    rows, planned = Rows(given.out, "slurm-headway-runs"), workload()
    for number in range(given.first, given.runs + 1):
        for system in given.systems:
            if not rows.found(system=system, run=number):
                folder = Path(tempfile.mkdtemp(prefix="headway-mix-"))  # stays where a run fails: its log tells why
                rows.add({"run": number, **run(system, folder, planned[: given.jobs or None])})
                shutil.rmtree(folder, ignore_errors=True)
    rows, shown = Rows(given.out, "slurm-headway-runs"), Rows(given.out, "slurm-headway")
    shown.clear()
    for row in summary(rows):
        shown.add(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
