"""Two training programs on one GPU, half of its SMs each: 16 CPUs divided 8 and 8, and as Synergy's tune divides them.

Run by scripts/gpu-synergy. Parts: ``prepare`` makes JPEGs of a size at which 10 CPUs just decode as fast as half the
GPU trains (a loader takes some more); ``alone`` measures each program by itself on half the GPU; ``profile`` over
numbers of CPUs; ``together`` both at once, the divisions in turn; ``report`` prints the table. Every measurement is a
line of JSON, and what is there is not measured again. ``--dry`` runs all of it without a GPU, with small models and
windows, to try the script itself.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from running import ROOT, Program, ProgramError, measured, python

IMAGE, LANGUAGE = "image", "language"
SIZES = ((320, 240), (400, 300), (500, 375), (640, 480), (800, 600), (1024, 768), (1280, 960))
SATURATED = 0.05
"""Cells this close to the best are taken for the best: windows differ by as much."""
SM_PERCENT = 50


class Setting:
    """What is run, on what, for how long."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.dry: bool = options.dry
        self.cpus: int = options.cpus or min(16, os.cpu_count() or 1)
        self.state: Path = options.state
        self.out: Path | None = options.out or (Path(os.environ["OUT"]) if os.environ.get("OUT") else None)
        self.warm_s, self.short_s, self.long_s = (1.0, 3.0, 3.0) if self.dry else (4.0, 12.0, 25.0)
        self.rounds: int = 1 if self.dry else options.rounds
        self.deadline = time.monotonic() + options.budget
        self.images = 60 if self.dry else 1536
        self.model: str = "small" if self.dry else options.model
        self.batch = 8 if self.dry else 128
        self.results = self.state / "results.jsonl"
        self.state.mkdir(parents=True, exist_ok=True)
        if options.results:
            shutil.copyfile(options.results, self.results)

    # --- results ----------------------------------------------------------------------------------------------

    def found(self, part: str) -> list[dict[str, Any]]:
        """The lines of one part."""
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        return [line for line in map(json.loads, lines) if line["part"] == part]

    def keep(self, part: str, **line: Any) -> None:
        """Append a line, and show it."""
        with self.results.open("a") as file:
            file.write(json.dumps({"part": part, **line}) + "\n")
        print(json.dumps({"part": part, **line}))
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.results, self.out / "gpu-synergy.jsonl")

    def in_time(self, needed_s: float) -> None:
        """Stop here if the time that is left is too short for the next measurement."""
        if time.monotonic() + needed_s > self.deadline:
            raise TimeoutError

    # --- the programs -----------------------------------------------------------------------------------------

    def command(self, program: str, size: tuple[int, int]) -> list[str]:
        """The command line of one of the two."""
        common = ["--steps", "0", "--device", "stand-in" if self.dry else "cuda", "--cache", "16GB", "--fill"]
        if program == IMAGE:
            width, height = size
            own = ["--model", self.model, "--batch", str(self.batch), "--images", str(self.images)]
            own += ["--width", str(width), "--height", str(height), "--side", "96" if self.dry else "224"]
            own += ["--folder", str(self.jpegs(size)), *([] if self.dry else ["--prefetch", "3"])]
            return [python(), "examples/profiling/images.py", *own, *common]
        own = ["--folder", str(self.state / "tokens")]
        if not self.dry:
            own += ["--model", "gpt2", "--length", "512", "--batch", "16", "--vocabulary", "50000"]
        return [python(), "examples/profiling/language.py", *own, *common]

    def jpegs(self, size: tuple[int, int]) -> Path:
        """Where the images of a size are."""
        return self.state / f"jpegs-{size[0]}x{size[1]}"

    def start(self, program: str, cpus: list[int]) -> Program:
        """Start one on these CPUs, on its half of the GPU."""
        prepared = self.found("prepare")
        if not prepared:
            sys.exit("nothing is prepared: run scripts/gpu-synergy prepare first")
        command = self.command(program, tuple(prepared[-1]["size"]))
        return Program(program, command, cpus=len(cpus), only=cpus, environment=self.share())

    def share(self, percent: int = SM_PERCENT) -> dict[str, str]:
        """What makes a program use so much of the SMs."""
        return {} if self.dry else {**mps_environment(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}

    def first(self, count: int) -> list[int]:
        """The first so many CPUs: the image program's side."""
        return sorted(os.sched_getaffinity(0))[:count]

    def last(self, count: int) -> list[int]:
        """The last so many CPUs: the language program's side."""
        return sorted(os.sched_getaffinity(0))[-count:]

    def alone(self, program: str, count: int) -> float:
        """Samples a second of one program by itself."""
        self.in_time(20 + self.warm_s + self.short_s)
        cpus = self.first(count) if program == IMAGE else self.last(count)
        with self.start(program, cpus) as one:
            return measured([one], warm_steps=5, warm_s=self.warm_s, window_s=self.short_s)[0]


# --- MPS ------------------------------------------------------------------------------------------------------


def mps_environment() -> dict[str, str]:
    """Where the daemon and its clients meet."""
    return {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/headway-mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/headway-mps-log"}


def control(order: str) -> subprocess.CompletedProcess[str]:
    """Tell the daemon something."""
    command = ["nvidia-cuda-mps-control"]
    return subprocess.run(
        command, input=order, env={**os.environ, **mps_environment()}, capture_output=True, text=True, check=False
    )


def start_mps() -> None:
    """Start the daemon, if it does not answer."""
    for folder in mps_environment().values():
        Path(folder).mkdir(parents=True, exist_ok=True)
    answer = control("get_server_list\n")
    if answer.returncode or "annot find" in answer.stdout + answer.stderr:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **mps_environment()}, check=True)


# --- parts ----------------------------------------------------------------------------------------------------


def make_some(folder: str, first: int, count: int, width: int, height: int) -> None:
    """Images ``first`` up to ``count`` of a folder, in a process of its own."""
    sys.path.insert(0, str(ROOT / "examples" / "profiling"))
    import images

    images.make_images(Path(folder), count, width, height, 90, first)


def decode_for(folder: str, cpu: int, seconds: float, side: int) -> int:
    """Images that one CPU decodes and augments in a time."""
    sys.path.insert(0, str(ROOT / "examples" / "profiling"))
    import images
    import torch

    torch.set_num_threads(1)
    os.sched_setaffinity(0, {cpu})
    paths = sorted(Path(folder).glob("*.jpg"))
    decoded = images.Decoded([path.read_bytes() for path in paths], side)
    until, done = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        decoded[done % len(decoded)]
        done += 1
    return done


def prepare(setting: Setting) -> None:
    """Find the image size at which 10 of 16 CPUs decode as fast as half the GPU trains, and make the images."""
    if setting.found("prepare"):
        return
    room = shutil.disk_usage("/dev/shm").total
    print(f"{setting.cpus} CPUs, /dev/shm {room / 1e9:.1f} GB")
    counted = max(1, setting.cpus * 5 // 8)
    wanted, whole = gpu_rate(setting, SM_PERCENT), gpu_rate(setting, 100)
    rates: dict[str, float] = {}
    chosen = SIZES[0]
    with ProcessPoolExecutor(counted) as pool:
        for size in SIZES if not setting.dry else SIZES[:1]:
            folder = str(setting.jpegs(size))
            spread_out(pool, folder, 4 * counted, size, counted)
            seconds = 0.5 if setting.dry else 3.0
            side = 96 if setting.dry else 224
            done = [pool.submit(decode_for, folder, cpu, seconds, side) for cpu in setting.first(counted)]
            rates["x".join(map(str, size))] = sum(each.result() for each in done) / seconds
            if rates["x".join(map(str, size))] < wanted:
                break
            chosen = size
        spread_out(pool, str(setting.jpegs(chosen)), setting.images, chosen, counted)
    setting.keep(
        "prepare",
        size=chosen,
        model=setting.model,
        half_gpu_samples_per_second=round(wanted, 1),
        whole_gpu_samples_per_second=round(whole, 1),
        decode_cpus=counted,
        decoded_per_second=rates,
        shm_bytes=room,
        device=device_name(setting),
    )


def spread_out(pool: ProcessPoolExecutor, folder: str, count: int, size: tuple[int, int], parts: int) -> None:
    """Make images in several processes."""
    bounds = [count * part // parts for part in range(parts + 1)]
    made = [pool.submit(make_some, folder, a, b, *size) for a, b in pairwise(bounds)]
    for each in made:
        each.result()


def gpu_rate(setting: Setting, percent: int) -> float:
    """Samples a second of the image model on so much of the GPU when no loader holds it up."""
    command = [*setting.command(IMAGE, SIZES[0]), "--one-batch"]
    with Program("image, one batch", command, cpus=setting.cpus, environment=setting.share(percent)) as one:
        return measured([one], warm_steps=20, warm_s=2.0, window_s=5.0)[0]


def device_name(setting: Setting) -> str:
    """What the GPU is called; asked of the driver, so that this process never touches it."""
    if setting.dry:
        return "stand-in"
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")[0].strip()
    return f"{said or 'GPU'}, PyTorch {version('torch')}"


def alone(setting: Setting) -> None:
    """Each by itself on half the GPU, with all the CPUs and with half of them."""
    for count in (setting.cpus, max(1, setting.cpus // 2)):
        for program in (IMAGE, LANGUAGE):
            point(setting, program, count, "alone")


def point(setting: Setting, program: str, count: int, part: str) -> float:
    """One program at one number of CPUs, measured once and then known."""
    for line in [*setting.found("alone"), *setting.found("profile")]:
        if (line["program"], line["cpus"]) == (program, count):
            return float(line["samples_per_second"])
    rate = setting.alone(program, count)
    setting.keep(part, program=program, cpus=count, samples_per_second=round(rate, 2))
    return rate


def profile(setting: Setting) -> None:
    """Over CPUs: by halves, and finer between the fewest that are enough and the next."""
    for program in (IMAGE, LANGUAGE):
        counts = [setting.cpus >> power for power in range(setting.cpus.bit_length())]
        rates = [point(setting, program, count, "profile") for count in counts]
        enough = max(index for index, rate in enumerate(rates) if rate >= max(rates) * (1 - SATURATED))
        below = counts[enough + 1] if enough + 1 < len(counts) else 0
        finer = 2 if counts[enough] - below > 4 else 1
        for between in range(counts[enough] - finer, below, -finer):
            point(setting, program, between, "profile")


def points_of(setting: Setting, program: str) -> dict[int, float]:
    """Samples a second by CPUs."""
    lines = [*setting.found("alone"), *setting.found("profile")]
    return {line["cpus"]: line["samples_per_second"] for line in lines if line["program"] == program}


def profile_of(points: dict[int, float], model: str, reference: int) -> Any:
    """headway's profile of measured points: never falling, and the best where it is as good as reached."""
    from headway.training.sensitivity import Profile

    rows: list[float] = []
    best = max(points.values())
    for cpus in sorted(points):
        rate = best if points[cpus] >= best * (1 - SATURATED) else points[cpus]
        rows.append(max(rate, rows[-1] if rows else 0.0))
    scale = rows[sorted(points).index(reference)]
    return Profile(
        model=model,
        cpu_milli=tuple(1000 * cpus for cpus in sorted(points)),
        memory_bytes=(16 * 10**9,),
        ppm=tuple((max(1, round(rate / scale * 1_000_000)),) for rate in rows),
    )


def divided(profiles: dict[str, Any], cpus: int, allocation: str) -> dict[str, float]:
    """The CPUs that headway's own policy gives the two jobs on a node of two GPUs: the halves."""
    from headway.training.cluster import Cluster, Node
    from headway.training.events import JobArrived
    from headway.training.job import Job
    from headway.training.policies.registry import build
    from headway.training.sensitivity import Matrix
    from headway.training.speed import SpeedModel
    from headway.training.state import TrainingState
    from headway.units import HOUR

    cluster = Cluster((Node("node", 2, cpu_milli=1000 * cpus, memory_bytes=128 * 10**9),))
    policy = build(f"fifo+fit+{allocation}")
    speed = SpeedModel(cluster, sensitivity=Matrix(profiles), profiles=profiles)
    state = TrainingState(cluster, to_come=len(profiles), arrangement=policy, speed=speed)
    policy.bind(state)
    for number, model in enumerate(sorted(profiles)):
        state.apply(0, JobArrived(Job(number, 0, HOUR, model=model)))
    for action in policy.decide(0, state):
        state.commit(0, action)
    return {state.jobs[job].job.model: js.grant.cpu_milli / 1000 for job, js in state.running.items()}


def divisions(setting: Setting) -> dict[str, dict[str, int]]:
    """CPUs of each program, proportional and by tune, from what was measured."""
    half = max(1, setting.cpus // 2)
    profiles = {name: profile_of(points_of(setting, name), name, half) for name in (IMAGE, LANGUAGE)}
    found = {name: divided(profiles, setting.cpus, name) for name in ("proportional", "tune")}
    return {name: {model: max(1, int(cpus)) for model, cpus in cut.items()} for name, cut in found.items()}


def together(setting: Setting) -> None:
    """Both at once, proportional and tune in turn."""
    cuts = divisions(setting)
    done = len(setting.found("together"))
    turns = [name for _ in range(setting.rounds) for name in ("proportional", "tune")]
    for turn, name in enumerate(turns[done:], start=done):
        setting.in_time(40 + setting.warm_s + setting.long_s)
        cut = cuts[name]
        first, second = setting.first(cut[IMAGE]), setting.last(cut[LANGUAGE])
        with setting.start(IMAGE, first) as image, setting.start(LANGUAGE, second) as language:
            rates = measured([image, language], warm_steps=5, warm_s=setting.warm_s, window_s=setting.long_s)
        setting.keep(
            "together",
            turn=turn,
            division=name,
            cpus=cut,
            samples_per_second={IMAGE: round(rates[0], 2), LANGUAGE: round(rates[1], 2)},
        )


# --- the table ------------------------------------------------------------------------------------------------


def report(setting: Setting) -> None:
    """All of it as Markdown."""
    half, points = max(1, setting.cpus // 2), {name: points_of(setting, name) for name in (IMAGE, LANGUAGE)}
    lines = setting.found("together")
    if not lines or any(not {half, setting.cpus} <= set(each) for each in points.values()):
        sys.exit("not everything is measured yet: run scripts/gpu-synergy all")
    prepared = setting.found("prepare")[-1]
    width, height = prepared["size"]
    text = [f"{prepared['device']}; {setting.cpus} CPUs; {prepared['model']} on JPEGs of {width} × {height}.", ""]
    device = [prepared[f"{part}_gpu_samples_per_second"] for part in ("half", "whole")]
    text += [
        f"The image model without a loader: {device[0]:.0f} /s on half the GPU, {device[1]:.0f} /s on all of it.",
        "",
    ]
    text += ["Alone on half the GPU, samples/s by CPUs:", "", "| CPUs | image | language |", "|---|---|---|"]
    for cpus in sorted({*points[IMAGE], *points[LANGUAGE]}):
        cells = [f"{points[name][cpus]:.1f}" if cpus in points[name] else "" for name in (IMAGE, LANGUAGE)]
        text.append(f"| {cpus} | {cells[0]} | {cells[1]} |")
    text += ["", "Both at once, medians over windows taken in turn:", ""]
    text += ["| division | CPUs image + language | image /s | language /s | image | language | both |"]
    text += ["|---|---|---|---|---|---|---|"]
    medians = {name: medians_of(lines, name) for name in ("proportional", "tune")}
    for name, cut in ((line["division"], line["cpus"]) for line in lines[:2]):
        now, base = medians[name], medians["proportional"]
        ratios = [now[model] / base[model] for model in (IMAGE, LANGUAGE)]
        text.append(
            f"| {name} | {cut[IMAGE]} + {cut[LANGUAGE]} | {now[IMAGE]:.1f} | {now[LANGUAGE]:.1f} "
            f"| {ratios[0]:.3f} | {ratios[1]:.3f} | {sum(ratios) / 2:.3f} |"
        )
    share = {name: [medians[name][m] / points[m][setting.cpus] for m in (IMAGE, LANGUAGE)] for name in medians}
    text += ["", "Against each alone on half the GPU with all CPUs (image, language, sum):", ""]
    text += [f"- {name}: {a:.3f}, {b:.3f}, {a + b:.3f}" for name, (a, b) in share.items()]
    text += [f"- total gain: {sum(share['tune']) / sum(share['proportional']):.3f}"]
    text += ["", "Windows: " + "; ".join(window(line) for line in lines)]
    print("\n".join(text))
    if setting.out is not None:
        (setting.out / "gpu-synergy.md").write_text("\n".join(text) + "\n")


def window(line: dict[str, Any]) -> str:
    """One window, short."""
    return f"{line['division']} " + " / ".join(f"{rate:.0f}" for rate in line["samples_per_second"].values())


def medians_of(lines: list[dict[str, Any]], division: str) -> dict[str, float]:
    """Over all windows of a division."""
    mine = [line["samples_per_second"] for line in lines if line["division"] == division]
    return {model: statistics.median(each[model] for each in mine) for model in (IMAGE, LANGUAGE)}


PARTS = {"prepare": prepare, "alone": alone, "profile": profile, "together": together, "report": report}


def main() -> None:
    """Parts by their names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--state", type=Path, default=Path("/tmp/headway-gpu-synergy"), help="kept between calls")
    parser.add_argument("--out", type=Path, help="folder for the results; else $OUT")
    parser.add_argument("--results", type=Path, help="lines of earlier calls, to go on from")
    parser.add_argument("--budget", type=float, default=560, help="seconds")
    parser.add_argument("--cpus", type=int, help="of the machine; else up to 16")
    parser.add_argument("--rounds", type=int, default=3, help="windows of each division")
    parser.add_argument("--model", default="resnet50", help="of torchvision")
    parser.add_argument("--dry", action="store_true", help="without a GPU, small and short")
    options = parser.parse_args()
    setting = Setting(options)
    if not setting.dry:
        start_mps()
    try:
        for part in PARTS if options.part == "all" else [options.part]:
            print(f"== {part}")
            PARTS[part](setting)
    except TimeoutError:
        print("the time is used up: run it again to go on")
        sys.exit(75)
    except ProgramError as problem:
        sys.exit(str(problem))
    finally:
        if not setting.dry:
            control("quit\n")
    print("done")


if __name__ == "__main__":
    main()
