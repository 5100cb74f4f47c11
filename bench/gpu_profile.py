"""Networks of ESG's six functions on one GPU: times over batch × CPUs × share of the SMs, loads, cold starts, pairs.

Run by scripts/gpu-profile. Parts: ``environment`` says what the machine has; ``measure`` times everything that is
missing (``headway.fleet.profiling.model``); ``beside`` runs pairs side by side; ``write`` makes the profile file of it;
``report`` prints the tables of docs/background/results/h200-profiles.md. Every measurement is a line of JSON, and what
is there is not measured again. ``--dry`` runs all of it without a GPU, with small networks, to try the script itself.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headway.errors import ProfileError
from headway.fleet.profiling import colocation as model_colocation, model
from headway.fleet.profiling.model import ModelProfile
from headway.fleet.profiling.session import Effort, Grid, Log, Session

BENCH = Path(__file__).parent
FUNCTIONS = {  # ESG's times at (1, 1, 1) in milliseconds, for the stand-in law
    "super-resolution": 86,
    "segmentation": 293,
    "deblur": 319,
    "classification": 147,
    "background-removal": 1047,
    "depth": 828,
}
LAW = {"batch_fixed": 0.25, "batch_power": 0.85, "cpu_share": 0.25, "cpu_power": 0.6, "slice_power": 0.7}
LOG = "gpu-profile.jsonl"
Where = tuple[int, int, int]


def law(batch: int, cpus: int, share: int) -> float:
    """The stand-in's time over its time at (1, 1, 1)."""
    grown = LAW["batch_fixed"] + (1 - LAW["batch_fixed"]) * batch ** LAW["batch_power"]
    return grown * (LAW["cpu_share"] / cpus ** LAW["cpu_power"] + (1 - LAW["cpu_share"]) / share ** LAW["slice_power"])


class Setting:
    """What is measured, and where it is kept."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.dry: bool = options.dry
        self.state: Path = options.state
        self.out: Path | None = options.out or (Path(os.environ["OUT"]) if os.environ.get("OUT") else None)
        self.deadline = time.monotonic() + options.budget
        self.state.mkdir(parents=True, exist_ok=True)
        if options.results:
            shutil.copyfile(options.results, self.state / LOG)
        if self.dry:
            os.environ["HEADWAY_SMALL"] = "1"
        os.environ.setdefault("HEADWAY_WEIGHTS", str(self.state / "weights"))
        self.log = Log(self.state / LOG)
        self.names = options.only or list(FUNCTIONS)
        whole = Effort(options.runs, cold_starts=options.cold, passes=options.passes)
        self.effort = Effort(3, 0.0, 1, 1) if self.dry else whole
        here = len(os.sched_getaffinity(0))
        batches, shares = ((1, 2), (7,)) if self.dry else (options.batches, options.shares)
        self.grid = Grid(batches, tuple(cpus for cpus in options.cpus if cpus <= here), shares)

    def session(self) -> Session:
        """Where processes are started from."""
        factories = {name: f"{BENCH / 'gpu_functions.py'}:{name.replace('-', '_')}" for name in self.names}
        return Session(
            factories,
            self.grid,
            self.log,
            self.effort,
            "cpu" if self.dry else "cuda",
            self.deadline,
            say=lambda text: print(f"! {text}"),
            tell=lambda done, of, text: print(f"{time.monotonic() - BEGAN:6.1f} s  {done + 1}/{of}  {text}"),
        )

    def keep_copies(self) -> None:
        """What was measured, for the machine that asked."""
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            for path in self.state.glob("*.*"):
                if path.is_file():
                    shutil.copyfile(path, self.out / path.name)

    def profiles(self) -> list[ModelProfile]:
        """All that is complete."""
        return [model.profile_of(name, self.log) for name in self.names]


BEGAN = time.monotonic()


# --- parts ------------------------------------------------------------------------------------------------------


def environment(setting: Setting) -> None:
    """What the machine has."""
    found: dict[str, Any] = {"python": platform.python_version(), "cpus": len(os.sched_getaffinity(0))}
    for package in ("torch", "torchvision", "transformers", "timm", "numpy", "pillow", "msgspec"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = ""
    found["gpu"] = said(
        "nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm", "--format=csv,noheader"
    )
    lines = said("lscpu").splitlines()
    kept = ("Model name", "Thread(s) per core", "Core(s) per socket", "Socket(s)", "L3 cache")
    found["lscpu"] = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() in kept
    }
    setting.log.keep("environment", **found)
    print(json.dumps(found, indent=1))


def said(*command: str) -> str:
    """What a command prints; nothing where it is not there."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout.strip()
    except OSError:
        return ""


def measure(setting: Setting) -> None:
    """All networks, all cells that are missing; weights and pictures are made before anything is timed."""
    made = "; ".join(f"gpu_functions.{name.replace('-', '_')}()" for name in setting.names)
    subprocess.run([sys.executable, "-c", f"import gpu_functions; {made}"], cwd=BENCH, check=True)
    with setting.session() as session:
        session.measure()


def beside(setting: Setting) -> None:
    """All pairs at 3/7 and 3/7."""
    with setting.session() as session:
        if model_colocation.SHARE in session.shares:
            model_colocation.measure(session)
        else:
            print("! MPS does not divide this device: no pairs")


def write(setting: Setting) -> None:
    """The profile file."""
    about = setting.log.one("environment")
    slower = model_colocation.slowdowns(setting.log)
    shares = {str(row["share"]): row["sms"] for row in setting.log.all("share")}
    extra: dict[str, Any] = {
        "gpu": about["gpu"],
        "torch": about["torch"],
        "cpu": about["lscpu"].get("Model name", ""),
        "sms_by_share": shares,
        "beside_batch": 4,
        "beside_share": model_colocation.SHARE,
    }
    extra["beside"] = {name: {} for name in setting.names}
    for (name, other), ratio in sorted(slower.items()):
        extra["beside"][name][other] = round(ratio, 3)
    path = setting.state / "esg-h200.toml"
    source = (
        "Networks of the six functions' kinds with random weights, measured by scripts/gpu-profile "
        "(docs/background/results/h200-profiles.md); a cell is the CPUs' part and the network's part, "
        "measured apart and added"
    )
    model.write(setting.profiles(), path, name="esg-h200", source=source, measured=extra)
    print(f"wrote {path}")


# --- tables -----------------------------------------------------------------------------------------------------


def report(setting: Setting) -> None:
    """The tables as Markdown."""
    profiles = setting.profiles()
    lines = [*times(profiles), *planes(profiles), *axes(profiles), *checks(profiles), *weights(profiles)]
    lines += [*colds(profiles), *pairs(setting)]
    text = "\n".join(lines) + "\n"
    (setting.state / "gpu-profile.md").write_text(text)
    print(text)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of Markdown."""
    return ["", *(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)), ""]


def corners(profile: ModelProfile) -> tuple[Where, Where]:
    """The least and the most that it can be given."""
    places = [cell[:3] for cell in profile.cells]
    return min(places), max(places)


def times(profiles: list[ModelProfile]) -> list[str]:
    """Least and most, and what the law makes of the same first time."""
    rows = []
    for each in profiles:
        least, most = corners(each)
        first, last = each.ms(*least), each.ms(*most)
        expected = first * law(*most) / law(*least)
        told = [f"{FUNCTIONS[each.name]}", f"{first:.1f}", f"{last:.1f}", f"{expected:.1f}"]
        rows.append([each.name, *told, f"{100 * (expected / last - 1):+.0f} %", f"{100 * law_error(each):.0f} %"])
    head = [
        "function",
        "paper (1,1,1) ms",
        "(1,1,1) ms",
        "(8,8,7) ms",
        "law from (1,1,1)",
        "off",
        "median off, all cells",
    ]
    return table(head, rows)


def law_error(profile: ModelProfile) -> float:
    """The median over all cells of how far the law is off that starts from the first."""
    least, _ = corners(profile)
    first = profile.ms(*least) / law(*least)
    return statistics.median(abs(first * law(*cell[:3]) / cell.ms - 1) for cell in profile.cells)


def planes(profiles: list[ModelProfile]) -> list[str]:
    """The two planes that were measured."""
    lines = []
    for title, key, axis in (("network", "network_ms", "/7"), ("CPUs", "host_ms", " CPUs")):
        rows = []
        for each in profiles:
            found = {(row[0], row[1]): row[2] for row in each.seen[key]}
            seconds = sorted({second for _, second in found})
            for batch in sorted({first for first, _ in found}):
                rows.append([each.name, f"{batch}", *(f"{found[batch, second]:.1f}" for second in seconds)])
        lines += table([f"{title}, ms", "batch", *(f"{second}{axis}" for second in seconds)], rows)
    return lines


def axes(profiles: list[ModelProfile]) -> list[str]:
    """Speed-ups along each axis, at both ends of the other two."""
    (b, c, g), (most_b, most_c, most_g) = corners(profiles[0])

    def row(name: str, ms: Callable[[int, int, int], float]) -> list[str]:
        ratios = (
            most_b * ms(b, c, g) / ms(most_b, c, g),
            most_b * ms(b, most_c, most_g) / ms(most_b, most_c, most_g),
            ms(b, c, g) / ms(b, most_c, g),
            ms(most_b, c, most_g) / ms(most_b, most_c, most_g),
            ms(b, c, g) / ms(b, c, most_g),
            ms(most_b, most_c, g) / ms(most_b, most_c, most_g),
        )
        return [name, *(f"{ratio:.2f}" for ratio in ratios)]

    rows = [row(each.name, each.ms) for each in profiles]
    head = ["", "batch 8: (·,1,1)", "(·,8,7)", "8 CPUs: (1,·,1)", "(8,·,7)", "7/7: (1,1,·)", "(8,8,·)"]
    return table(head, [*rows, row("the law", law)])


def checks(profiles: list[ModelProfile]) -> list[str]:
    """Cells that were measured whole."""
    rows = [
        [each.name, f"{check[:3]}", f"{check.whole_ms:.2f}", f"{check.sum_ms:.2f}", f"{100 * check.off:+.1f} %"]
        for each in profiles
        for check in each.checks
    ]
    offs = [abs(check.off) for each in profiles for check in each.checks]
    lines = table(["function", "(batch, CPUs, share)", "whole ms", "sum ms", "off"], rows)
    return [
        *lines,
        f"{len(offs)} cells: median {100 * statistics.median(offs):.1f} %, most {100 * max(offs):.1f} %",
        "",
    ]


def weights(profiles: list[ModelProfile]) -> list[str]:
    """Memory and loads."""
    rows = []
    for each in profiles:
        activations = " / ".join(f"{peak / 1e6:.0f}" for peak in each.seen["activation_bytes"].values())
        loads = [f"{each.load_ms[kind]:.1f}" if kind in each.load_ms else "" for kind in ("pageable", "pinned")]
        rate = f"{each.weights_bytes / min(each.load_ms.values()) / 1e6:.1f}"
        rows.append([each.name, f"{each.weights_bytes / 1e6:.0f}", activations, *loads, rate])
    head = ["function", "weights MB", "activations MB at batch 1/2/4/8", "load ms, pageable", "pinned", "GB/s"]
    return table(head, rows)


def colds(profiles: list[ModelProfile]) -> list[str]:
    """Cold starts, in their steps."""
    steps = list(profiles[0].seen["cold_start_s"])
    rows = []
    for each in profiles:
        told = each.seen["cold_start_s"]
        cells = [f"{told[step]:.2f}" for step in steps]
        rows.append([each.name, *cells, f"{each.cold_start_s:.2f}", f"{each.instance_bytes / 1e6:.0f}"])
    return table(["function", *(f"{step} s" for step in steps), "without weights s", "host memory MB"], rows)


def pairs(setting: Setting) -> list[str]:
    """How much longer a network takes beside another."""
    slower = model_colocation.slowdowns(setting.log)
    if not slower:
        return []
    rows = [
        [name, *(f"{slower[name, other]:.2f}" if (name, other) in slower else "" for other in setting.names)]
        for name in setting.names
    ]
    return table(["beside →", *setting.names], rows)


PARTS = {"environment": environment, "measure": measure, "beside": beside, "write": write, "report": report}


def numbers(text: str) -> tuple[int, ...]:
    """1,2,4 as numbers."""
    return tuple(map(int, text.split(",")))


def main() -> None:
    """Parts by their names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--state", type=Path, default=Path("/tmp/headway-gpu-profile"), help="kept between calls")
    parser.add_argument("--out", type=Path, help="folder for the results; else $OUT")
    parser.add_argument("--results", type=Path, help="lines of earlier calls, to go on from")
    parser.add_argument("--budget", type=float, default=560, help="seconds")
    parser.add_argument("--only", nargs="*", choices=[*FUNCTIONS], help="these functions")
    parser.add_argument("--runs", type=int, default=10, help="timed runs of a cell, at least")
    parser.add_argument("--batches", type=numbers, default=(1, 2, 4, 8))
    parser.add_argument("--cpus", type=numbers, default=(1, 2, 4, 8))
    parser.add_argument("--shares", type=numbers, default=(1, 2, 3, 4, 5, 6, 7))
    parser.add_argument("--cold", type=int, default=2, help="cold starts of each")
    parser.add_argument("--passes", type=int, default=2, help="over what the CPUs do")
    parser.add_argument("--dry", action="store_true", help="without a GPU, small and short")
    setting = Setting(parser.parse_args())
    part = parser.parse_args().part
    try:
        for name in PARTS if part == "all" else [part]:
            print(f"== {name}  {time.monotonic() - BEGAN:.1f} s")
            PARTS[name](setting)
    except TimeoutError:
        print("the time is used up: run it again to go on")
        sys.exit(75)
    except ProfileError as problem:
        sys.exit(str(problem))
    finally:
        setting.keep_copies()
    print("done")


if __name__ == "__main__":
    main()
