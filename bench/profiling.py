"""Two real training programs, profiled and checked: ``python bench/profiling.py``, about five minutes for the profiles.

Profiles examples/profiling/images.py and language.py as ``headway profile job`` does. Then, per program, runs at three
CPU quotas that were not measured are compared with what its profile says; and for the images, runs of CachedDataset at
hit rates of 0.3 and 0.7 with the computed memory axis. Files are read with O_DIRECT, so the page cache has no part in
it, and through a disk that is held to a stated bandwidth by a control group: this machine's own is faster than a few
CPUs can decode. Needs root.

The machine may not be ours alone, and what a CPU does in a second then changes from minute to minute. So checks are
repeated, in turn, and medians taken; and the images are run once more, in one process whose quota goes round all the
profile's points and the three checks: by how much all points together are faster or slower than when they were profiled
is taken out of the checks, and nothing else.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.device import limits
from headway.jobs.profiling import job, watch
from headway.jobs.profiling.memory import Cache
from headway.jobs.profiling.watch import RECORD
from headway.units import format_size, parse_size

ROOT = Path(__file__).parent.parent
HIT_RATES = (0.3, 0.7)
WITHIN = 0.10


@dataclass(frozen=True)
class Checked:
    """What a profile says of a run that it does not hold, and what the run said."""

    program: str
    what: str
    predicted: float
    runs: tuple[float, ...]

    @property
    def measured(self) -> float:
        """The median of the runs."""
        return statistics.median(self.runs)

    @property
    def off(self) -> float:
        """How far the prediction is above the measurement, as a share."""
        return self.predicted / self.measured - 1


@contextmanager
def slower_disk(folder: Path, bytes_per_second: int) -> Iterator[None]:
    """Hold the reads of this process, and of what it starts, from the folder's device to a bandwidth."""
    room = Path("/sys/fs/cgroup/blkio")
    if not os.access(room, os.W_OK):
        sys.exit("no blkio control group (version 1) can be written here: run as root, on a machine that has one")
    device = os.stat(folder).st_dev
    group = room / f"headway-bench-{os.getpid()}"
    group.mkdir()
    line = f"{os.major(device)}:{os.minor(device)} {bytes_per_second}"
    try:
        (group / "blkio.throttle.read_bps_device").write_text(line)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (room / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


class Bench:
    """The two programs, their profiles, and the runs that check them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: Path = options.folder
        self.images = self.folder / "images"
        examples = ROOT / "examples" / "profiling"
        common = ["--steps", "0", "--direct"]
        self.commands = {
            "images": [
                *(sys.executable, str(examples / "images.py"), *common, "--folder", str(self.images)),
                *("--images", "120", "--batch", "8", "--device", "cpu", "--workers", "4"),
            ],
            "language": [
                *(sys.executable, str(examples / "language.py"), *common, "--folder", str(self.folder / "tokens")),
                *("--blocks", "500", "--device", "stand-in", "--step-ms", "60"),
            ],
        }
        self.data = {"images": self.images, "language": self.folder / "tokens"}
        self.steps = {"images": 250, "language": 50}
        self.offers = limits.here()
        self.profiles: dict[str, dict[str, Any]] = {}
        self.took_s: dict[str, float] = {}

    def prepare(self) -> None:
        """Make the data: what a user has already is no cost of profiling."""
        subprocess.run([*self.commands["images"], "--make-only"], check=True)
        subprocess.run([*self.commands["language"][:2], *self.commands["language"][4:], "--steps", "1"], check=True)

    def profile(self, program: str) -> None:
        """Profile one of them, as a user would."""
        began = time.monotonic()
        made = job.profile(
            self.commands[program],
            cpus=self.options.cpus,
            steps=self.steps[program],
            dataset=str(self.data[program]),
            again=True,
            say=say,
        )
        self.took_s[program] = time.monotonic() - began
        self.profiles[program] = made.document

    # --- what a profile says ----------------------------------------------------------------------------------

    def at(self, program: str, cpus: float) -> float:
        """Samples a second at a CPU quota, all data in memory."""
        document = self.profiles[program]
        points = [(0.0, 0.0), *zip(document["cpus"], (row[-1] for row in document["throughput"]), strict=True)]
        above = next(index for index, (at, _) in enumerate(points) if at >= cpus)
        (low, slow), (high, fast) = points[above - 1], points[above]
        share = slow + (fast - slow) * (cpus - low) / (high - low)
        return float(share * document["measured"]["samples_per_second"])

    def at_hit_rate(self, share: float) -> float:
        """Images a second at all CPUs when this share of them is in memory, as the memory axis is computed."""
        said = self.profiles["images"]["measured"]["bandwidth"]
        cache = Cache(
            said["bytes_per_sample"],
            self.profiles["images"]["dataset"],
            0,
            said["memory_bytes_per_second"],
            said["disk_effective_bytes_per_second"],
            said["overlap"],
        )
        return 1 / cache.seconds(1 / self.at("images", self.profiles["images"]["cpus"][-1]), share)

    # --- runs that check it -----------------------------------------------------------------------------------

    def run(self, program: str, cpus: float, cache_bytes: int) -> float:
        """Samples a second of one run."""
        run = watch.Program(self.commands[program], steps=self.steps[program])
        reading = watch.watch(run, self.offers, cpus, cache_bytes=cache_bytes)
        say(f"  {program} {cpus:g} CPUs, cache {format_size(cache_bytes)}: {reading.rate.per_second:.4g} samples/s")
        return reading.rate.per_second

    def check(self) -> list[Checked]:
        """Every check, as often as asked for, in turn."""
        wanted = [(program, f"{cpus:g} CPUs", self.at(program, cpus), cpus, 10**9)
                  for program in self.commands for cpus in self.options.checks]  # fmt: skip
        most = self.profiles["images"]["cpus"][-1]
        for rate in HIT_RATES:
            budget = round(rate * self.profiles["images"]["dataset"])
            wanted.append(("images", f"hit rate {rate:g}", self.at_hit_rate(rate), most, budget))
        runs: list[list[float]] = [[] for _ in wanted]
        for _ in range(self.options.repeat):
            for found, (program, _, _, cpus, budget) in zip(runs, wanted, strict=True):
                found.append(self.run(program, cpus, budget))
        return [Checked(*each[:3], tuple(found)) for each, found in zip(wanted, runs, strict=True)]

    def round(self) -> list[Checked]:
        """The images again, all quotas in turn, in one process: the same checks with the machine's level known."""
        document = self.profiles["images"]
        points, checks = list(document["cpus"]), list(self.options.checks)
        seen: dict[float, list[float]] = {cpus: [] for cpus in sorted({*points, *checks})}
        with tempfile.TemporaryDirectory() as folder:
            steps = Path(folder, "steps")
            env = {"HEADWAY_STEPS": str(steps), "HEADWAY_CACHE_BYTES": str(10**9)}
            with self.offers.start(self.commands["images"], max(points), threads=1, env=env) as held:
                for _ in range(self.options.rounds):
                    for cpus, rates in seen.items():
                        held.cpus = cpus
                        held.limit()
                        rates.append(rate_of(held.process, steps))
        level = [sum(seen[at][turn] for at in points) for turn in range(self.options.rounds)]
        profiled = sum(self.at("images", at) for at in points)
        level = [each / profiled for each in level]
        say(f"  the machine's level: {', '.join(f'{each:.2f}' for each in level)}")
        return [
            Checked(
                "images", f"{cpus:g} CPUs, level taken out", self.at("images", cpus),
                tuple(rate / each for rate, each in zip(seen[cpus], level, strict=True)),
            )
            for cpus in checks
        ]  # fmt: skip


def rate_of(process: "subprocess.Popen[Any]", steps: Path, settle_s: float = 1.5, window_s: float = 5.0) -> float:
    """Samples a second of a program that is at work, once what it had ready is used up."""
    while not steps.exists() or steps.stat().st_size < 5 * RECORD.size:
        if process.poll() is not None:
            sys.exit(f"the program ended with status {process.returncode}")
        time.sleep(0.1)
    time.sleep(settle_s)
    begin = steps.stat().st_size // RECORD.size
    time.sleep(window_s)
    records = list(RECORD.iter_unpack(steps.read_bytes()[begin * RECORD.size :]))
    return sum(samples for _, samples in records[1:]) / (records[-1][0] - records[0][0]) * 1e9


def say(line: str) -> None:
    """Progress, beside the table."""
    print(line, file=sys.stderr, flush=True)


def table(bench: Bench, checks: Sequence[Checked]) -> str:
    """All of it as Markdown."""
    lines = ["| program | CPUs: samples/s | error | profiling took |", "|---|---|---|---|"]
    for program, document in bench.profiles.items():
        points = document["measured"]["points"]
        told = ", ".join(f"{point['cpus']:g}: {point['fitted_per_second']:.4g}" for point in points)
        took = f"{bench.took_s[program]:.0f} s, {document['measured']['cost']['runs']} runs"
        lines.append(f"| {program} | {told} | ± {100 * document['error']:.1f} % | {took} |")
    lines += [
        "",
        "| program | not measured before | predicted /s | measured /s (runs) | off |",
        "|---|---|---|---|---|",
    ]
    for check in checks:
        runs = ", ".join(f"{run:.4g}" for run in check.runs)
        lines.append(
            f"| {check.program} | {check.what} | {check.predicted:.4g} | {check.measured:.4g} ({runs}) "
            f"| {100 * check.off:+.1f} % |"
        )
    said = bench.profiles["images"]["measured"]["bandwidth"]
    lines += ["", f"Profiling took {sum(bench.took_s.values()):.0f} s in all."]
    for program, document in bench.profiles.items():
        few = bench.options.checks[0]
        share = bench.at(program, few) / document["measured"]["samples_per_second"]
        lines.append(f"At {few:g} CPUs {program} has {100 * share:.0f} % of its best speed.")
    lines.append(
        f"Disk {said['disk_bytes_per_second'] / 1e6:.2f} MB/s as measured, {said['bytes_per_sample'] / 1e3:.1f} KB an "
        f"image, overlap {said['overlap']:.2f}."
    )
    return "\n".join(lines)


def main() -> None:
    """Prepare, profile, check, print; status 1 if a check is off by more than a tenth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/headway-profiling"), help="on a disk, no tmpfs")
    parser.add_argument("--cpus", default="0.3-1.6", help="the range to profile")
    parser.add_argument(
        "--checks", type=float, nargs=3, default=[0.37, 0.83, 1.42], help="quotas; the search never asks for them"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of each check")
    parser.add_argument("--rounds", type=int, default=6, help="of all quotas in one process")
    parser.add_argument("--bandwidth", default="3MB", help="of the disk, a second")
    parser.add_argument("--json", type=Path, help="also write profiles and checks here")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    bench.prepare()
    with slower_disk(options.folder, parse_size(options.bandwidth)):
        for program in bench.commands:
            bench.profile(program)
        checks = [*bench.check(), *bench.round()]
    print(table(bench, checks))
    if options.json:
        found = [{**vars(check), "off": check.off} for check in checks]
        options.json.write_text(json.dumps({"profiles": bench.profiles, "checks": found}, indent=1, default=str))
    sys.exit(any(abs(check.off) > WITHIN for check in checks))


if __name__ == "__main__":
    main()
