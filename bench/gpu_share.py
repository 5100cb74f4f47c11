"""Pairs of programs on one GPU: the one above alone, under MPS, MPS with priority, headway's gate, time slicing.

    scripts/gpu-share slicing pairs|fresh|known|new|limits|sliced|traces|coverage|dial|kills|commands|report
    scripts/gpu-share owed      what this build has not measured yet, most needed first (bench/gpu_share_owed.py)
    scripts/gpu-share next      the next of it, within the budget

A pair is a line of a JSONL file in the state folder; what is there is not measured again, so a run that was stopped
goes on. Seconds to expect on an H200 (reckoned, not measured), and for each part 30 to 60 s until its programs run:

    new              48 a pair at --pair-seconds 40, 14 pairs: 670, two calls of 560; 18 a pair at --pair-seconds 10
    known            the same, 5 pairs: 240
    new --slo 1.05,1.2,1.02    22 more a pair
    new --sms 30     with so much of the SMs for those below
    limits           25 a pair (MPS, with 30 and 50 % of the SMs, with client priority), new ones first, 19 pairs: 480
    sliced           10 a pair (time slicing), 19 pairs: 190
    open             30: what the gate costs a program below that is never held
    coverage 60, kills 150, commands 60, dial 90, slicing 200, pairs and fresh 14 and 12 a row

Rows carry a digest of the build. ``known``, ``new`` and ``next`` measure those of another build again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.gpu_share_dial import build_id
from bench.gpu_share_measure import line, measure
from bench.gpu_share_rows import rows
from bench.gpu_share_session import BELOW, PLAIN, Session
from bench.gpu_share_slicing import line as slicing_line, slicing
from headway.gpu.control.dial import Dial
from headway.gpu.control.slowdown import MILLION
from headway.gpu.share.shim.build import build

PAIRS = (
    ("resnet50", "resnet101-b64"),
    ("vgg16", "resnet101-b64"),
    ("googlenet", "bert-b32"),
    ("densenet201", "training"),
    ("bert", "matmul"),
    ("gpt2", "resnet101-b64"),
    ("alexnet", "bert-b32"),
    ("vit", "resnet101-b64"),
    ("compiled", "training"),
    ("graph", "resnet101-b64"),
    ("resnet50", "matmul"),
    ("vgg16", "matmul"),
    ("googlenet", "graph-b64"),
    ("bert", "bert-b32"),
    ("resnet50", "resnet101-b64,bert-b32,training"),
)
FRESH = (
    ("resnet50", "training"),
    ("alexnet", "resnet101-b64"),
    ("vgg16", "bert-b32"),
    ("googlenet", "training"),
    ("bert", "training"),
    ("compiled", "bert-b32"),
    ("densenet201", "matmul"),
    ("graph", "training"),
    ("alexnet", "training"),
    ("vgg16", "training"),
    ("bert", "resnet101-b64"),
    ("resnet50", "bert-b32"),
    ("googlenet", "resnet101-b64"),
    ("densenet201", "bert-b32"),
    ("vit", "training"),
    ("compiled", "resnet101-b64"),
)
"""Pairs that nothing was ever fitted to: what was predicted of them was written down before they were measured."""
GROUPS = {
    "a": ("resnet50", "vgg16", "googlenet", "alexnet", "bert"),
    "b": ("densenet201", "gpt2", "vit", "compiled", "graph"),
}
"""By the program above: fewer programs to load at a time."""
THINKS_MS = (0, 5)
OUT: list[Path] = []
"""Where the results are copied to, after each row."""
CORES = {"high": 2, **dict(zip(BELOW, (4, 6, 8), strict=True)), **dict(zip(PLAIN, (10, 12, 14), strict=True))}
MINE = {0, 1}


def library(folder: Path) -> Path:
    """The shim, built from the sources here."""
    return build(None, folder)


def sms() -> int:
    """Streaming multiprocessors of the GPU."""
    # In a process of its own: one that holds the GPU here would take slices from those that are measured.
    ask = "import torch; print(torch.cuda.get_device_properties(0).multi_processor_count)"
    found = subprocess.run([sys.executable, "-c", ask], check=False, capture_output=True, text=True)
    if found.returncode:
        why = (found.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise SystemExit(f"an NVIDIA GPU and PyTorch are needed: {why}")
    return int(found.stdout)


def bundle(state: Path, out: Path) -> None:
    """All results so far in one file: what a run that is cut off has measured by then is not lost."""
    out.mkdir(parents=True, exist_ok=True)
    draft = out / "results.draft"
    with tarfile.open(draft, "w:gz", compresslevel=1) as all_:
        for found in sorted(p for kind in ("*.jsonl", "*.bin", "*.tar.gz") for p in state.glob(kind)):
            all_.add(found, found.name)
    draft.rename(out / "results.tar.gz")


def pairs(state: Path, budget_s: float, todo: list[tuple[str, str, float]], given: argparse.Namespace) -> None:
    """Every pair that is not there yet, within the budget; of those that only a prediction waits for less is asked."""
    seconds = given.seconds
    end = time.monotonic() + budget_s
    todo = missing(state / "pairs.jsonl", todo, build_id())
    if not todo:
        print("all pairs are there")
        return
    with Session(state / "work", library(state), sms()) as session:
        session.extra["HEADWAY_LOOKS"] = str(state / "looks.bin")
        begin(session, todo, plain=True)
        for high, low, think in todo:
            if time.monotonic() + seconds + 9 > end:
                print("the budget is spent; again to go on")
                break
            least = (high, low) in FRESH
            more: dict[str, Any] = {"bare": (), "fine": ("alone", "gate")} if least else {}
            dial = Dial(
                slo_ppm=round(float(given.slo) * MILLION), begin_ppm=MILLION
            )  # a few seconds: not as if it never met them
            row = measure(session, high, low.split(","), think, seconds * (0.7 if least else 1), dial, **more)
            keep(state / "pairs.jsonl", stamped(row), line(row))
        for name in session.programs:
            if said := session.said(name)[-300:]:
                print(name, said)
        digests(state, "pairs", session)


def slices(state: Path, budget_s: float, todo: list[tuple[str, str, float]]) -> None:
    """The same pairs under time slicing, the driver's default."""
    end = time.monotonic() + budget_s
    todo = missing(state / "slicing.jsonl", todo)
    if not todo:
        return
    with Session(state / "sliced", Path("none"), 0, mps=False, shim=False) as session:
        begin(session, todo, plain=False)
        for high, low, think in todo:
            if time.monotonic() + 6 > end:
                print("the budget is spent; again to go on")
                break
            row = slicing(session, high, low.split(","), think)
            keep(state / "slicing.jsonl", row, slicing_line(row))
        digests(state, "slicing", session)


def keep(file: Path, row: dict[str, Any], said: str) -> None:
    """One more row."""
    with file.open("a") as out:
        out.write(json.dumps(row) + "\n")
    print(said, flush=True)
    if OUT:
        bundle(file.parent, OUT[0])


def stamped(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the build that it is of."""
    return {**row, "build": build_id()}


def digests(state: Path, name: str, session: Session) -> None:
    """What the programs' results were, fresh and after sharing: one more line."""
    for each in session.programs:  # their last results are written when they rest
        session.pause(each)
    found = {each: [session.digests(each), session.digests(each, "after")] for each in session.programs}
    with (state / f"digests-{name}.jsonl").open("a") as out:
        out.write(json.dumps(found) + "\n")


def wanted(only: str | None, group: str | None, every: Sequence[tuple[str, str]]) -> list[tuple[str, str, float]]:
    """The pairs and pauses that are asked for."""
    mine = [p for p in every if only is None or f"{p[0]}+{p[1]}" in only.split(";")]
    known = [f"{h}+{low}" for h, low in PAIRS + FRESH]
    if only is not None and not set(known) & set(only.split(";")):
        raise SystemExit(f"--only {only}: no such pair; there are {'; '.join(known)}")
    return [(h, low, think) for h, low in mine if not group or h in GROUPS[group] for think in THINKS_MS]


def missing(file: Path, todo: list[tuple[str, str, float]], build: str = "") -> list[tuple[str, str, float]]:
    """Of those the ones without a row; of this build, where one is named."""
    done = {(r["high"], r["low"], r["think_ms"]) for r in rows(file) if not build or r.get("build") == build}
    return [each for each in todo if each not in done]


def begin(session: Session, todo: Sequence[tuple[str, str, float]], *, plain: bool) -> None:
    """Start the processes that hold the programs of these pairs."""
    began = time.monotonic()
    session.start("high", CORES["high"], 0, sorted({h for h, _, _ in todo}))
    lows = [low.split(",") for _, low, _ in todo]
    for place in range(max(map(len, lows))):
        mine = sorted({low[place] for low in lows if len(low) > place})
        for name in (BELOW[place], PLAIN[place])[: 2 if plain else 1]:
            session.start(name, CORES[name], 5, mine)
    session.ready()
    print(f"ready after {time.monotonic() - began:.0f} s; {len(todo)} to do", flush=True)


def card() -> tuple[str, str]:
    """Name and driver of the GPU."""
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    about = subprocess.run(ask, check=True, capture_output=True, text=True)
    gpu, driver = (part.strip() for part in about.stdout.strip().splitlines()[0].split(","))
    return gpu, driver


def coverage(state: Path) -> None:
    """Every program alone with CUPTI beside the shim; the traces of all in one archive."""
    from bench.gpu_share_solo import solo

    found = solo(state, library(state), *card())
    (state / "coverage.jsonl").write_text("".join(json.dumps(stamped(row)) + "\n" for row in found))
    shutil.make_archive(str(state / "traces"), "gztar", state / "traces")


def traced(state: Path, budget_s: float) -> None:
    """The programs of known and new pairs alone, for predictions; all traces in one archive."""
    from bench.gpu_share_traces import traces

    try:
        traces(state, library(state), *card(), budget_s)
    finally:
        shutil.make_archive(str(state / "traces"), "gztar", state / "traces")


def dial(state: Path, budget_s: float) -> None:
    """What comes of aiming at 1.02, 1.05 and 1.2, where programs contend for the GPU."""
    end = time.monotonic() + budget_s
    chosen = [("vgg16", "resnet101-b64", 0), ("graph", "resnet101-b64", 0)]
    done = {(r["high"], r["low"], r["think_ms"], r["slo"]) for r in rows(state / "dial.jsonl")}
    todo = [(*pair, slo) for pair in chosen for slo in (1.02, 1.05, 1.2) if (*pair, slo) not in done]
    if not todo:
        return
    with Session(state / "dialled", library(state), sms()) as session:
        begin(session, [(h, low, t) for h, low, t, _ in todo], plain=False)
        for high, low, think, slo in todo:
            if time.monotonic() + 14 > end:
                print("the budget is spent; again to go on")
                break
            row = measure(session, high, [low], think, 5.0, Dial(slo_ppm=int(slo * 1e6), begin_ppm=MILLION), 3.0, ())
            keep(state / "dial.jsonl", {**row, "slo": slo}, f"{slo} {line(row)}")


def dialled(given: argparse.Namespace, budget_s: float, which: str) -> None:
    """Pairs that the dial meets for the first time, its own figure beside the one from outside."""
    from bench import gpu_share_aa_programs, gpu_share_dial

    gpu_share_dial.pairs(given.state, budget_s, getattr(gpu_share_aa_programs, which), given, keep)


def limited(given: argparse.Namespace, budget_s: float, part: str) -> None:
    """The same pairs under MPS with limits on SMs and client priority, or under time slicing."""
    from bench import gpu_share_aa_programs as programs, gpu_share_limits

    gpu_share_limits.pairs(part, programs.NEW_PAIRS + programs.PAIRS, given, budget_s, keep)


def by_itself(given: argparse.Namespace, budget_s: float) -> None:
    """The programs above of the same pairs alone, for long."""
    from bench import gpu_share_aa_programs as programs, gpu_share_dial

    gpu_share_dial.alone_for_long(given.state, budget_s, programs.NEW_PAIRS, given, keep)


def opened(state: Path) -> None:
    """What the gate costs a program that is never held."""
    from bench.gpu_share_open import measure as measure_open

    measure_open(state, keep)


def killed(state: Path, budget_s: float) -> None:
    """Thirty programs and brokers die beside a latency-critical program."""
    from bench.gpu_share_kills import kills

    row = kills(state, budget_s)
    print(row)
    (state / "kills.jsonl").write_text(json.dumps(stamped(row)) + "\n")


def commanded(state: Path, budget_s: float) -> None:
    """What a user types: doctor, profile kernels, run, status, stop."""
    from bench.gpu_share_commands import commands

    row = commands(state, budget_s)
    print(row)
    (state / "commands.jsonl").write_text(json.dumps(stamped(row)) + "\n")


def reported(state: Path, again: Path | None) -> None:
    """The tables of what was measured, in Markdown; of a second pass over the pairs the means of both."""
    from bench.gpu_share_keep import both, keep
    from bench.gpu_share_report import report

    keep(state / "kept", state, state / "traces")
    if again:
        keep(again / "kept", again, again / "traces")
        both(state / "kept", again / "kept")
    report(state / "kept")


def listed(given: argparse.Namespace, budget_s: float) -> None:
    """What is owed."""
    from bench.gpu_share_owed import owed

    owed(given, budget_s)


def continued(given: argparse.Namespace, budget_s: float) -> None:
    """The next of what is owed."""
    from bench.gpu_share_owed import go_on

    go_on(given, budget_s, PARTS)


def _todo(given: argparse.Namespace, every: Sequence[tuple[str, str]]) -> list[tuple[str, str, float]]:
    return wanted(given.only, given.group, every)


PARTS: dict[str, Callable[[argparse.Namespace, float], None]] = {
    "pairs": lambda given, left: pairs(given.state, left, _todo(given, PAIRS), given),
    "fresh": lambda given, left: pairs(given.state, left, _todo(given, FRESH), given),
    "both": lambda given, left: pairs(given.state, left, _todo(given, PAIRS + FRESH), given),
    "slicing": lambda given, left: slices(given.state, left, _todo(given, PAIRS)),
    "dial": lambda given, left: dial(given.state, left),
    "known": lambda given, left: dialled(given, left, "PAIRS"),
    "new": lambda given, left: dialled(given, left, "NEW_PAIRS"),
    "limits": lambda given, left: limited(given, left, "limits"),
    "sliced": lambda given, left: limited(given, left, "sliced"),
    "alone": lambda given, left: by_itself(given, left),
    "open": lambda given, left: opened(given.state),
    "kills": lambda given, left: killed(given.state, left),
    "commands": lambda given, left: commanded(given.state, left),
    "coverage": lambda given, left: coverage(given.state),
    "traces": lambda given, left: traced(given.state, left),
    "owed": listed,
    "next": continued,
    "report": lambda given, left: reported(given.state, given.again),
}


def main() -> None:
    """Do the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="+", choices=list(PARTS), help="done in this order; fresh: pairs predicted first"
    )
    parser.add_argument("--state", type=Path, default=Path("/tmp/headway-share"), help="results (/tmp/headway-share)")
    parser.add_argument("--again", type=Path, help="report: the folder of a second pass, for the means of both")
    parser.add_argument("--out", type=Path, help="the results there too, as results.tar.gz, after each row and part")
    parser.add_argument("--from", type=Path, dest="restored", help="owed, next: results.tar.gz of earlier calls")
    parser.add_argument("--budget", type=float, default=500.0, help="seconds")
    parser.add_argument("--only", help="HIGH+LOW;HIGH+LOW")
    parser.add_argument("--group", choices=list(GROUPS), help="half of the programs above")
    parser.add_argument("--seconds", type=float, default=4.8, help="a pair and pause, without MPS's blocks")
    parser.add_argument("--pair-seconds", type=float, default=40.0, help="known, new: a pair under the dial; alone")
    parser.add_argument("--slo", default="1.05", help="slow-down aimed at; known, new: several, 1.05,1.2,1.02")
    parser.add_argument("--modes", default="", help="limits: of each pair these alone, HIGH+LOW=mps50,client30;…")
    parser.add_argument("--sms", type=int, default=100, help="known, new: per cent of the SMs for those below")
    given = parser.parse_args()
    given.state.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, MINE)
    began = time.monotonic()
    OUT[:] = [given.out] if given.out else []
    for part in given.parts:
        try:
            PARTS[part](given, given.budget - (time.monotonic() - began))
        finally:
            if given.out:
                bundle(given.state, given.out)


if __name__ == "__main__":
    main()
