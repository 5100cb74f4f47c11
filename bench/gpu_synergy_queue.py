"""Synergy live by the queue itself: two training programs on one GPU, their CPUs divided by ``headway queue``.

Run by ``scripts/gpu-synergy queue``; the programs, their images and their profiles are those of ``gpu_synergy.py``, and
what that has measured is used (``--results``). Queues with two slots, a half of the GPU each (MPS), run both programs;
``proportional`` and ``tune`` take turns. Every window is a line of JSON, and what is there is not measured again.
``--dry`` runs all of it without a GPU. Needs msgspec besides what gpu_synergy.py needs.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpu_synergy import (
    IMAGE,
    LANGUAGE,
    SM_PERCENT,
    Setting,
    alone,
    now,
    options_of,
    points_of,
    prepare,
    profile,
    profile_of as profile_of_points,
)
from running import ROOT, ProgramError, Steps, measured, python

DIVISIONS = ("proportional", "tune")
ROUND = "5s"
PART = "queue"


class Queued(Steps):
    """A program that a queue runs."""

    def __init__(self, name: str, steps: Path, queue: "Queue", job: int) -> None:
        super().__init__(name, steps)
        self._queue, self._job = queue, job

    def output(self, lines: int = 15) -> str:
        """The end of what it printed, and of the queue's log."""
        said = [self._queue.ask("logs", *more, str(self._job)) for more in ((), ("--stderr",))]
        return "\n".join(line for text in said for line in text.splitlines()[-lines:])


class Queue:
    """A queue with a slot for each program; the GPU is hidden from it, because a slot is half of one."""

    def __init__(self, folder: Path, policy: str, profiles: list[Path], cpus: list[int]) -> None:
        self._folder, self._cpus = folder, cpus
        blind = folder / "blind"
        blind.mkdir(parents=True)
        (blind / "pynvml.py").write_text('raise ImportError("hidden")\n')
        self._environment = {**os.environ, "PYTHONPATH": f"{blind}:{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
        files = [f"--profiles={path}" for path in profiles]
        self._run({**self._environment, "PATH": "/nowhere"}, "start", "--gpus=2", f"--policy={policy}", *files)

    def ask(self, verb: str, *words: str) -> str:
        """Run a command of the queue; return what it prints."""
        return self._run(self._environment, verb, *words)

    def _run(self, environment: dict[str, str], verb: str, *words: str) -> str:
        command = [python(), "-m", "headway", "queue", verb, f"--folder={self._folder / 'queue'}", *words]
        begin = lambda: os.sched_setaffinity(0, self._cpus)  # noqa: E731 - the queue divides the CPUs that it has
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, preexec_fn=begin)
        if done.returncode:
            raise ProgramError(f"headway queue {verb}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def submit(self, setting: Setting, name: str) -> Queued:
        """Submit one of the two programs, on its half of the GPU."""
        steps = self._folder / f"steps-{name}"
        told = {"HEADWAY_STEPS": str(steps), "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
        if setting.mps is not None:
            told |= {**setting.mps.environment(SM_PERCENT), "CUDA_VISIBLE_DEVICES": "0"}
        words = ["env", *(f"{key}={value}" for key, value in told.items()), *setting.command(name, setting.prepared())]
        said = self.ask("submit", f"--profile={name}", f"--name={name}", "--", *words)
        return Queued(name, steps, self, int(said.split()[0]))

    def cpus_of(self, name: str) -> int:
        """Return how many CPUs the processes of a program are held to."""
        told = f"HEADWAY_STEPS={self._folder / f'steps-{name}'}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if told in (process / "environ").read_bytes().split(b"\0"):
                    return len(os.sched_getaffinity(int(process.name)))
        raise ProgramError(f"no process of {name} runs")


def files_of(setting: Setting, folder: Path) -> list[Path]:
    """Write the measured points of both programs as profiles; one CPU is the other's in any case."""
    half, made = max(1, setting.cpus // 2), []
    for name in (IMAGE, LANGUAGE):
        points = {cpus: rate for cpus, rate in points_of(setting, name).items() if cpus < max(2, setting.cpus)}
        found = profile_of_points(points, name, half)
        cells = ", ".join(f"[{row[0] / 1e6:.6f}]" for row in found.ppm)
        cpus = ", ".join(f"{milli / 1000:g}" for milli in found.cpu_milli)
        path = folder / f"{name}.toml"
        path.write_text(f'model = "{name}"\ncpus = [{cpus}]\nmemory = ["16GB"]\nthroughput = [{cells}]\n')
        made.append(path)
    return made


def window(setting: Setting, division: str) -> dict[str, Any]:
    """Run both programs under one division; return the samples a second, and the CPUs that they had."""
    setting.in_time(45 + setting.warm_s + setting.long_s)
    setting.fresh()
    with tempfile.TemporaryDirectory(prefix="headway-synergy-") as text:
        folder = Path(text)
        policy = f"las+{division}+round({ROUND})"
        queue = Queue(folder, policy, files_of(setting, folder), setting.first(setting.cpus))
        try:
            programs = [queue.submit(setting, name) for name in (IMAGE, LANGUAGE)]
            rates = measured(programs, warm_steps=5, warm_s=setting.warm_s, window_s=setting.long_s)
            cpus = [queue.cpus_of(name) for name in (IMAGE, LANGUAGE)]
        finally:
            queue.ask("stop", "--kill", "--now")
    names = (IMAGE, LANGUAGE)
    return {
        "cpus": dict(zip(names, cpus, strict=True)),
        "samples_per_second": {name: round(rate, 2) for name, rate in zip(names, rates, strict=True)},
    }


def live(setting: Setting) -> None:
    """Measure windows that are not there yet."""
    prepare(setting)
    alone(setting)
    profile(setting)
    done = now(setting, PART)
    for turn, division in enumerate([name for _ in range(setting.rounds) for name in DIVISIONS]):
        if turn >= len(done):
            setting.keep(PART, turn=turn, division=division, size=setting.prepared(), **window(setting, division))


def report(setting: Setting) -> None:
    """Print the gains as Markdown: measured, and as the profiles have them."""
    lines = now(setting, PART)
    half = max(1, setting.cpus // 2)
    print("| program | division | CPUs | samples/s | gain | predicted gain |\n|---|---|---|---|---|---|")
    for name in (IMAGE, LANGUAGE):
        points = {cpus: rate for cpus, rate in points_of(setting, name).items() if cpus < max(2, setting.cpus)}
        known = profile_of_points(points, name, half)
        speeds, rates = {}, {}
        for division in DIVISIONS:
            mine = [line for line in lines if line["division"] == division]
            rates[division] = statistics.median(line["samples_per_second"][name] for line in mine)
            cpus = statistics.median(line["cpus"][name] for line in mine)
            speeds[division] = known.speed(round(1000 * cpus), known.memory_bytes[-1])
            gain, predicted = (each[division] / each[DIVISIONS[0]] for each in (rates, speeds))
            print(f"| {name} | {division} | {cpus:g} | {rates[division]:.1f} | {gain:.3f} | {predicted:.3f} |")


def main() -> None:
    """Measure what is missing, and print the table."""
    setting = Setting(options_of([PART]))
    try:
        live(setting)
        report(setting)
    except TimeoutError:
        print("the time is used up: run it again to go on")
        sys.exit(75)
    except ProgramError as problem:
        sys.exit(str(problem))
    finally:
        if setting.mps is not None:
            setting.mps.end()
    print("done")


if __name__ == "__main__":
    main()
