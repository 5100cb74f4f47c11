"""Two training programs on one GPU, half of its SMs each: 16 CPUs divided 8 and 8, and as Synergy's tune divides them.

Run by scripts/gpu-synergy. Parts: ``prepare`` makes JPEGs, of the smallest size at which half the CPUs feed the image
program at no more than 65 % of what it can take (or of ``--size``): the question is what dividing CPUs is worth where
they bind. ``alone`` measures each program by itself on half the GPU; ``profile`` over numbers of CPUs; ``divide`` asks
headway's policies for both divisions; ``together`` runs both programs at once, the divisions in turn; ``report`` prints
the table. Every measurement is a line of JSON, and what is there is not measured again. ``--dry`` runs all of it
without a GPU, with small models and windows, to try the script itself.
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

from mps import Mps
from running import ROOT, Program, ProgramError, measured, python

IMAGE, LANGUAGE = "image", "language"
SIZES = ((320, 240), (500, 375), (640, 480), (720, 540), (800, 600), (960, 720))
FED = 0.65
"""Half the CPUs are to feed no more than this of what the image program can take."""
SATURATED = 0.05
"""Cells this close to the best are taken for the best: windows differ by as much."""
SM_PERCENT = 50
PARTS_OF_GPU = {"half": SM_PERCENT, "whole": 100}


class Setting:
    """What is run, on what, for how long."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.dry: bool = options.dry
        self.cpus: int = options.cpus or min(16, os.cpu_count() or 1)
        self.state: Path = options.state
        self.out: Path | None = options.out or (Path(os.environ["OUT"]) if os.environ.get("OUT") else None)
        self.warm_s, self.short_s, self.long_s = (1.0, 3.0, 3.0) if self.dry else (4.0, 8.0, 20.0)
        self.rounds: int = 1 if self.dry else options.rounds
        self.deadline = time.monotonic() + options.budget
        self.images = 60 if self.dry else 1536
        self.model: str = "small" if self.dry else options.model
        self.batch = 8 if self.dry else 128
        self.size: tuple[int, int] | None = options.size
        self.mps = Mps() if not self.dry else None
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

    def start(self, program: str, cpus: list[int], size: tuple[int, int] | None = None) -> Program:
        """Start one on these CPUs, on its half of the GPU."""
        return self.on_share(SM_PERCENT, self.command(program, size or self.prepared()), program, cpus)

    def on_share(self, percent: int, command: list[str], name: str, cpus: list[int]) -> Program:
        """Start a program on so much of the GPU."""
        share = (
            {} if self.mps is None else {**self.mps.environment(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{percent}"}
        )
        return Program(name, command, cpus=len(cpus), only=cpus, environment=share)

    def prepared(self) -> tuple[int, int]:
        """The size of the images."""
        found = self.found("prepare")
        if not found:
            sys.exit("nothing is prepared: run scripts/gpu-synergy prepare first")
        width, height = found[-1]["size"]
        return width, height

    def fresh(self) -> None:
        """A new MPS daemon: none that remembers how earlier programs went."""
        if self.mps is not None:
            self.mps.restart()

    def first(self, count: int) -> list[int]:
        """The first so many CPUs: the image program's side."""
        return sorted(os.sched_getaffinity(0))[:count]

    def last(self, count: int) -> list[int]:
        """The last so many CPUs: the language program's side."""
        return sorted(os.sched_getaffinity(0))[-count:]

    def rate(self, program: str, count: int, size: tuple[int, int] | None = None) -> float:
        """Samples a second of one program by itself."""
        self.in_time(20 + self.warm_s + self.short_s)
        self.fresh()
        cpus = self.first(count) if program == IMAGE else self.last(count)
        with self.start(program, cpus, size=size) as one:
            return measured([one], warm_steps=5, warm_s=self.warm_s, window_s=self.short_s)[0]


# --- parts ----------------------------------------------------------------------------------------------------


def make_some(folder: str, first: int, count: int, width: int, height: int) -> None:
    """Images ``first`` up to ``count`` of a folder, in a process of its own."""
    sys.path.insert(0, str(ROOT / "examples" / "profiling"))
    import images

    images.make_images(Path(folder), count, width, height, 90, first)


def prepare(setting: Setting) -> None:
    """Choose the size of the images, unless that is done, and make those that are not there."""
    if not setting.found("prepare") or (setting.size is not None and setting.size != setting.prepared()):
        setting.keep("prepare", device=device_name(setting), model=setting.model, **chosen(setting))
    make_images(setting, setting.prepared())


def chosen(setting: Setting) -> dict[str, Any]:
    """The size at which half the CPUs bind, and what was measured on the way."""
    earlier = setting.found("prepare")
    names = {f"{part}_gpu_samples_per_second": percent for part, percent in PARTS_OF_GPU.items()}
    whole = {name: earlier[-1][name] if earlier else gpu_rate(setting, percent) for name, percent in names.items()}
    if setting.size is not None:
        return {**whole, "size": setting.size}
    make_images(setting, SIZES[0])
    most = setting.rate(IMAGE, setting.cpus, SIZES[0])
    half: dict[str, float] = {}
    for size in SIZES[1:2] if setting.dry else SIZES[1:]:
        make_images(setting, size)
        half["x".join(map(str, size))] = rate = round(setting.rate(IMAGE, max(1, setting.cpus // 2), size), 1)
        if rate <= FED * most:
            break
    return {**whole, "size": size, "most_samples_per_second": round(most, 1), "at_half_the_cpus": half}


def make_images(setting: Setting, size: tuple[int, int]) -> None:
    """All images of a size, by all CPUs."""
    with ProcessPoolExecutor(setting.cpus) as pool:
        spread_out(pool, str(setting.jpegs(size)), setting.images, size, 4 * setting.cpus)


def spread_out(pool: ProcessPoolExecutor, folder: str, count: int, size: tuple[int, int], parts: int) -> None:
    """Make images in several processes."""
    bounds = [count * part // parts for part in range(parts + 1)]
    made = [pool.submit(make_some, folder, a, b, *size) for a, b in pairwise(bounds)]
    for each in made:
        each.result()


def gpu_rate(setting: Setting, percent: int) -> float:
    """Samples a second of the image model on so much of the GPU when no loader holds it up."""
    setting.fresh()
    command = [*setting.command(IMAGE, SIZES[0]), "--one-batch"]
    with setting.on_share(percent, command, "image, one batch", setting.first(setting.cpus)) as one:
        return round(measured([one], warm_steps=20, warm_s=1.0, window_s=3.0)[0], 1)


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
    if (known := points_of(setting, program).get(count)) is not None:
        return known
    rate = round(setting.rate(program, count), 2)
    size = {"size": setting.prepared()} if program == IMAGE else {}
    setting.keep(part, program=program, cpus=count, samples_per_second=rate, **size)
    return rate


def profile(setting: Setting) -> None:
    """Over CPUs: by halves, finer between the fewest that are enough and the next; all but one where all are needed."""
    for program in (IMAGE, LANGUAGE):
        counts = [setting.cpus >> power for power in range(setting.cpus.bit_length())]
        rates = [point(setting, program, count, "profile") for count in counts]
        enough = max(index for index, rate in enumerate(rates) if rate >= max(rates) * (1 - SATURATED))
        below = counts[enough + 1] if enough + 1 < len(counts) else 0
        finer = 2 if counts[enough] - below > 4 else 1
        nearly = [setting.cpus - 1] if not enough and setting.cpus > 2 else []
        for between in [*nearly, *range(counts[enough] - finer, below, -finer)]:
            point(setting, program, between, "profile")


def points_of(setting: Setting, program: str) -> dict[int, float]:
    """Samples a second by CPUs, with the images as they are now."""
    lines = [line for part in ("alone", "profile") for line in setting.found(part) if line["program"] == program]
    if program == IMAGE:
        lines = [line for line in lines if tuple(line.get("size", ())) == setting.prepared()]
    return {line["cpus"]: line["samples_per_second"] for line in lines}


def profile_of(points: dict[int, float], model: str, reference: int) -> Any:
    """headway's profile of measured points: never falling, and the best where it is as good as reached."""
    from headway.jobs.model.sensitivity import Profile

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
    from headway.jobs.model.cluster import Cluster, Node
    from headway.jobs.model.events import JobArrived
    from headway.jobs.model.job import Job
    from headway.jobs.model.sensitivity import Matrix
    from headway.jobs.model.speed import SpeedModel
    from headway.jobs.policies.registry import build
    from headway.jobs.state.state import TrainingState
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
    """CPUs of each program, proportional and by tune, from what was measured; one CPU is the other's in any case."""
    half, most = max(1, setting.cpus // 2), max(1, setting.cpus - 1)
    points = {name: points_of(setting, name) for name in (IMAGE, LANGUAGE)}
    within = {name: {cpus: rate for cpus, rate in found.items() if cpus <= most} for name, found in points.items()}
    profiles = {name: profile_of(found, name, half) for name, found in within.items()}
    found = {name: divided(profiles, setting.cpus, name) for name in ("proportional", "tune")}
    return {name: {model: max(1, int(cpus)) for model, cpus in cut.items()} for name, cut in found.items()}


def divide(setting: Setting) -> None:
    """Ask headway's policies for the division; needs no GPU, so that it can be done elsewhere too."""
    if not now(setting, "divide"):
        setting.keep("divide", size=setting.prepared(), cpus=divisions(setting))


def together(setting: Setting) -> None:
    """Both at once, proportional and tune in turn."""
    divide(setting)
    cuts = now(setting, "divide")[-1]["cpus"]
    done = len(now(setting, "together"))
    turns = [name for _ in range(setting.rounds) for name in ("proportional", "tune")]
    for turn, name in enumerate(turns[done:], start=done):
        cut = cuts[name]
        try:
            rates = both(setting, cut)
        except ProgramError as problem:
            print(f"{problem}\n{setting.mps.said() if setting.mps else ''}\nonce more:")
            rates = both(setting, cut)
        setting.keep(
            "together",
            turn=turn,
            division=name,
            size=setting.prepared(),
            cpus=cut,
            samples_per_second={IMAGE: round(rates[0], 2), LANGUAGE: round(rates[1], 2)},
        )


def both(setting: Setting, cut: dict[str, int]) -> list[float]:
    """One window of both; the second starts when the first is at work."""
    setting.in_time(30 + setting.warm_s + setting.long_s)
    setting.fresh()
    with setting.start(LANGUAGE, setting.last(cut[LANGUAGE])) as language:
        language.wait_for_steps(2, 60)
        with setting.start(IMAGE, setting.first(cut[IMAGE])) as image:
            return measured([image, language], warm_steps=5, warm_s=setting.warm_s, window_s=setting.long_s)


def now(setting: Setting, part: str) -> list[dict[str, Any]]:
    """The lines of a part, with the images as they are now."""
    return [line for line in setting.found(part) if tuple(line["size"]) == setting.prepared()]


# --- the table ------------------------------------------------------------------------------------------------


def report(setting: Setting) -> None:
    """All of it as Markdown."""
    half, points = max(1, setting.cpus // 2), {name: points_of(setting, name) for name in (IMAGE, LANGUAGE)}
    lines = now(setting, "together")
    if len(lines) < 2 or any(not {half, setting.cpus} <= set(each) for each in points.values()):
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
        rates, base = medians[name], medians["proportional"]
        ratios = [rates[model] / base[model] for model in (IMAGE, LANGUAGE)]
        text.append(
            f"| {name} | {cut[IMAGE]} + {cut[LANGUAGE]} | {rates[IMAGE]:.1f} | {rates[LANGUAGE]:.1f} "
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


PARTS = {
    "prepare": prepare,
    "alone": alone,
    "profile": profile,
    "divide": divide,
    "together": together,
    "report": report,
}


def size_of(text: str) -> tuple[int, int]:
    """Width and height of an image."""
    width, height = map(int, text.split("x"))
    return width, height


def options_of(parts: list[str]) -> argparse.Namespace:
    """What was asked for; ``parts`` are the names that may be given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    parser.add_argument("--state", type=Path, default=Path("/tmp/headway-gpu-synergy"), help="kept between calls")
    parser.add_argument("--out", type=Path, help="folder for the results; else $OUT")
    parser.add_argument("--results", type=Path, help="lines of earlier calls, to go on from")
    parser.add_argument("--budget", type=float, default=560, help="seconds")
    parser.add_argument("--cpus", type=int, help="of the machine; else up to 16")
    parser.add_argument("--rounds", type=int, default=3, help="windows of each division")
    parser.add_argument("--model", default="resnet50", help="of torchvision")
    parser.add_argument("--size", type=size_of, help="of the images, like 720x540; else chosen")
    parser.add_argument("--dry", action="store_true", help="without a GPU, small and short")
    return parser.parse_args()


def main() -> None:
    """Parts by their names."""
    options = options_of([*PARTS, "all"])
    setting = Setting(options)
    needs_images = options.part in ("alone", "profile", "together")
    parts = list(PARTS) if options.part == "all" else [*(["prepare"] if needs_images else []), options.part]
    try:
        for part in parts:
            print(f"== {part}")
            PARTS[part](setting)
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
