"""Pairs of programs on one GPU: the one above alone, under MPS, MPS with priority, headway's gate, time slicing.

    scripts/gpu-share pairs|plain|slicing|… [--state FOLDER] [--budget SECONDS] [--only HIGH+LOW]

A pair is a line of ``pairs.jsonl``; what is there is not measured again, so a run that was stopped goes on.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_session import MS, Modes, Session
from headway.kernels.dial import Dial
from headway.live.kernels.build import build

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
THINKS_MS = (0, 5)
LENGTHS = {"bypass": 0.12, "shim": 0.12, "alone": 0.15, "gate": 0.3, "mps": 0.2}
"""Seconds in each mode, in a round."""
DRAIN_S = 0.1
"""After MPS without a gate: what a batch program has launched ahead runs out."""
CORES = (2, 4, 6, 8)
MINE = {0, 1}


def progress(spans: "np.ndarray[Any, Any]", begin: int, end: int) -> float:
    """How many requests of a batch program were done in a stretch, parts of them counted."""
    ends = spans[:, 1]
    if len(ends) < 2:
        return 0.0
    done = np.arange(1, len(ends) + 1, dtype=float)
    return float(np.interp(end, ends, done) - np.interp(begin, ends, done))


def quantiles(spans: "np.ndarray[Any, Any]", stretches: Sequence[tuple[int, int]]) -> dict[str, float]:
    """p50, p99 and mean of the requests that began inside the stretches, in milliseconds."""
    took = np.concatenate(
        [(spans[:, 1] - spans[:, 0])[(spans[:, 0] >= begin) & (spans[:, 1] <= end)] for begin, end in stretches]
    )
    if not len(took):
        return {"p50_ms": 0.0, "p99_ms": 0.0, "mean_ms": 0.0, "requests": 0}
    p50, p99 = np.percentile(took, [50, 99]) / 1e6
    return {"p50_ms": float(p50), "p99_ms": float(p99), "mean_ms": float(took.mean() / 1e6), "requests": len(took)}


def paired(
    spans: "np.ndarray[Any, Any]", stretches: Sequence[tuple[int, int]], alone: Sequence[tuple[int, int]]
) -> float | None:
    """The median over the rounds of the ratio of medians, a mode's and alone's of the same round.

    What the machine does to both from second to second falls out.
    """
    ratios = []
    for mine, theirs in zip(stretches, alone, strict=True):
        a, b = quantiles(spans, [mine]), quantiles(spans, [theirs])
        if a["requests"] >= 3 and b["requests"] >= 3:
            ratios.append(a["p50_ms"] / b["p50_ms"])
    return float(np.median(ratios)) if ratios else None


def measure(
    session: Session, high: str, lows: list[str], think_ms: float, seconds: float, dial: Dial, settle: float = 1.2
) -> dict[str, Any]:
    """One pair at one pause between requests: every mode, in turn, several times."""
    names = ["low", "low2", "low3"][: len(lows)]
    for name in ("low", "low2", "low3"):
        if name in session.programs and name not in names:
            session.pause(name)
    for name, program in zip(names, lows, strict=True):
        session.choose(name, program)
    session.choose("high", high, int(think_ms * MS))
    modes = Modes(session, "high", names, dial)
    firsts = dict.fromkeys(("high", *names), 0)
    first = modes.stay("alone", 0.6)
    before = {name: _ledger(session, name) for name in names}
    modes.stay("gate", settle)  # the dial finds its place
    stretches: dict[str, list[tuple[int, int]]] = {mode: [] for mode in LENGTHS}
    # Slow programs get longer stretches: several requests in each.
    slow = quantiles(session.programs["high"].spans(0), [first])["p50_ms"] * 5 / 120
    longer = min(4.0, max(1.0, slow)) * (1.5 if think_ms else 1)
    plan = [mode for mode in LENGTHS if mode != "mps" and not (think_ms and mode in ("bypass", "shim"))]
    for turn in range(max(3, round(seconds / sum(LENGTHS[mode] for mode in (*plan, "mps")) / longer))):
        # Another one first in each round, MPS last: what it leaves in flight has to run out.
        for mode in (*plan[turn % len(plan) :], *plan[: turn % len(plan)], "mps"):
            stretches[mode].append(modes.stay(mode, LENGTHS[mode] * longer))
        modes.stay("alone", DRAIN_S)
    after = {name: _ledger(session, name) for name in names}
    session.pause("high")
    for name in names:
        session.slot(name).rules.hold = 0
        session.slot(name).rules.gate = 0
    alone_low = _low_alone(session, names)
    spans = {name: session.programs[name].spans(firsts[name]) for name in ("high", *names)}
    row: dict[str, Any] = {"high": high, "low": ",".join(lows), "think_ms": think_ms}
    for mode, found in stretches.items():
        if not found:
            continue
        row[mode] = quantiles(spans["high"], found)
        row[mode]["slowdown"] = paired(spans["high"], found, stretches["alone"])
        row[mode]["low_per_s"] = [
            sum(progress(spans[name], b, e) for b, e in found) / (sum(e - b for b, e in found) / 1e9) for name in names
        ]
    row["low_alone_per_s"] = alone_low
    row["ledger"] = {name: {k: after[name][k] - before[name][k] for k in after[name]} for name in names}
    row["dial"] = {"slowdown": dial.slowdown_ppm(0) / 1e6, "boldness": dial.boldness_ppm(0) / 1e6}
    row["high_kernel"] = _busy(session, "high", high)
    row["low_longest_ms"] = [_longest(session, name) / 1e6 for name in names]
    hook = session.slot("high").ledger
    row["ns_a_launch"] = hook.hook_ns / hook.hooked if hook.hooked else None
    return row


def _low_alone(session: Session, names: list[str]) -> list[float]:
    """The rates of the batch programs with the high-priority one at rest (several: side by side)."""
    time.sleep(0.15)
    begin = time.monotonic_ns()
    time.sleep(0.7)
    end = time.monotonic_ns()
    time.sleep(0.1)
    return [progress(session.programs[name].spans(0), begin, end) / 0.7 for name in names]


def _ledger(session: Session, name: str) -> dict[str, int]:
    ledger = session.slot(name).ledger
    row = {k: int(getattr(ledger, k)) for k in ("kernels", "waits", "waited_ns", "harvested_ns", "delay_ns", "samples")}
    for index in range(12):
        row[f"reason{index}"] = int(ledger.reasons[index])
    return row


def _longest(session: Session, name: str) -> int:
    return max((int(k.longest_ns) for k in session.slot(name).kernels if k.id and k.launches), default=0)


def _busy(session: Session, name: str, program: str) -> dict[str, float]:
    slot = session.slot(name)
    return {
        "work_ns": float(slot.ledger.work_ns),
        "launches": float(slot.pulse.launches),
        "syncs": float(slot.ledger.syncs),
    }


def library(folder: Path) -> Path:
    """The shim, built from the sources here."""
    return build(None, folder)


def sms() -> int:
    """Streaming multiprocessors of the GPU."""
    # In a process of its own: one that holds the GPU here would take slices from those that are measured.
    ask = "import torch; print(torch.cuda.get_device_properties(0).multi_processor_count)"
    found = subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True)
    return int(found.stdout)


def pairs(state: Path, budget_s: float, only: str | None, seconds: float, slo: float) -> None:
    """Every pair that is not there yet, within the budget."""
    end = time.monotonic() + budget_s
    done = {(r["high"], r["low"], r["think_ms"]) for r in rows(state / "pairs.jsonl")}
    todo = [(h, low, t) for h, low in wanted(only) for t in THINKS_MS if (h, low, t) not in done]
    if not todo:
        print("all pairs are there")
        return
    with Session(state / "work", library(state), sms()) as session:
        session.extra["HEADWAY_LOOKS"] = str(state / "looks.bin")
        begin(session, todo)
        for high, low, think in todo:
            if time.monotonic() + seconds + 5 > end:
                print("the budget is spent; again to go on")
                break
            row = measure(session, high, low.split(","), think, seconds, Dial(slo_ppm=int(slo * 1e6)))
            with (state / "pairs.jsonl").open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(line(row), flush=True)
        for name in session.programs:
            print(name, session.said(name)[-300:])
        (state / "digests-pairs.json").write_text(
            json.dumps({name: [session.digests(name), session.digests(name, "after")] for name in session.programs})
        )


def others(state: Path, budget_s: float, only: str | None, mps: bool) -> None:
    """Without headway: time slicing (the driver's default), or MPS, plain and with a stream of high priority."""
    end = time.monotonic() + budget_s
    file = state / ("plain.jsonl" if mps else "slicing.jsonl")
    done = {(r["high"], r["low"], r["think_ms"]) for r in rows(file)}
    todo = [(h, low, t) for h, low in wanted(only) for t in THINKS_MS if (h, low, t) not in done]
    if not todo:
        return
    with Session(state / file.stem, Path("none"), 0, mps=mps, shim=False) as session:
        begin(session, todo)
        for high, low, think in todo:
            if time.monotonic() + 6 > end:
                print("the budget is spent; again to go on")
                break
            row = _without(session, high, low.split(","), think, ["mps", "stream"] if mps else ["slicing"])
            with file.open("a") as out:
                out.write(json.dumps(row) + "\n")
            alone = row["alone"]["p50_ms"]
            print(
                row["high"],
                row["low"],
                think,
                f"alone {alone:.2f}/{row['alone']['p99_ms']:.2f}",
                *(
                    f"{m} {row[m]['p50_ms'] / alone:.3f} p99 {row[m]['p99_ms']:.2f} low {row[m]['low_per_s']}"
                    for m in ("mps", "stream", "slicing")
                    if m in row
                ),
                flush=True,
            )
        (state / f"digests-{file.stem}.json").write_text(
            json.dumps({name: [session.digests(name), session.digests(name, "after")] for name in session.programs})
        )


def _without(session: Session, high: str, lows: list[str], think_ms: float, modes: list[str]) -> dict[str, Any]:
    names = ["low", "low2", "low3"][: len(lows)]
    for name in [n for n in session.programs if n != "high"]:
        session.pause(name)
    session.choose("high", high, int(think_ms * MS))
    found: dict[str, list[tuple[int, int]]] = {"alone": [], **{mode: [] for mode in modes}}
    for _ in range(1):
        session.stream("high", False)
        found["alone"].append(_stay(0.1, 0.5))
        for name, program in zip(names, lows, strict=True):
            session.choose(name, program)
        for mode in modes:
            session.stream("high", mode == "stream")
            found[mode].append(_stay(0.15, 0.7))
        for name in names:
            session.pause(name)
    session.stream("high", False)
    spans = {name: session.programs[name].spans(0) for name in ("high", *names)}
    row: dict[str, Any] = {"high": high, "low": ",".join(lows), "think_ms": think_ms}
    for mode, stretches in found.items():
        row[mode] = quantiles(spans["high"], stretches)
        row[mode]["low_per_s"] = [
            sum(progress(spans[name], b, e) for b, e in stretches) / (sum(e - b for b, e in stretches) / 1e9)
            for name in names
        ]
    return row


def _stay(settle_s: float, seconds: float) -> tuple[int, int]:
    time.sleep(settle_s)
    begin = time.monotonic_ns()
    time.sleep(seconds)
    return begin, time.monotonic_ns()


def wanted(only: str | None) -> list[tuple[str, str]]:
    """The pairs that are asked for."""
    return [p for p in PAIRS if only is None or f"{p[0]}+{p[1]}" in only.split(";")]


def begin(session: Session, todo: Sequence[tuple[str, str, float]]) -> None:
    """Start the processes that hold the programs of these pairs."""
    session.start("high", CORES[0], 0, sorted({h for h, _, _ in todo}))
    lows = [low.split(",") for _, low, _ in todo]
    session.start("low", CORES[1], 5, sorted({low[0] for low in lows}))
    for extra in range(1, max(len(low) for low in lows)):
        session.start(f"low{extra + 1}", CORES[1 + extra], 5, sorted({low[extra] for low in lows if len(low) > extra}))
    session.ready()
    print(f"ready; {len(todo)} to do", flush=True)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file of results, none if it is not there."""
    if path.exists():
        yield from (json.loads(text) for text in path.read_text().splitlines() if text.strip())


def line(row: dict[str, Any]) -> str:
    """A pair in one line."""
    alone = row["alone"]
    parts = [f"{row['high']}+{row['low']} {row['think_ms']}ms alone {alone['p50_ms']:.2f}/{alone['p99_ms']:.2f}"]
    for mode in ("bypass", "shim", "mps", "gate"):
        if mode not in row:
            continue
        got = row[mode]
        parts.append(
            f"{mode} {got['slowdown'] or 0:.3f}/{got['p99_ms'] / max(1e-9, alone['p99_ms']):.2f}"
            f" low {'+'.join(f'{r:.1f}' for r in got['low_per_s'])}"
        )
    parts.append(f"low alone {row['low_alone_per_s']} dial {row['dial']} hook {row['ns_a_launch']}")
    ledger = row["ledger"]["low"]
    parts.append("reasons " + " ".join(f"{i}:{ledger[f'reason{i}']}" for i in range(12) if ledger[f"reason{i}"]))
    return " | ".join(parts)


def coverage(state: Path) -> None:
    """Every program alone with CUPTI beside the shim; the traces of all in one archive."""
    from bench.gpu_share_solo import solo

    about = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        check=True,
        capture_output=True,
        text=True,
    )
    gpu, driver = (part.strip() for part in about.stdout.strip().splitlines()[0].split(","))
    found = solo(state, library(state), gpu, driver)
    (state / "coverage.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
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
        begin(session, [(h, low, t) for h, low, t, _ in todo])
        for high, low, think, slo in todo:
            if time.monotonic() + 14 > end:
                print("the budget is spent; again to go on")
                break
            row = measure(session, high, [low], think, 4.0, Dial(slo_ppm=int(slo * 1e6)), settle=3.0)
            with (state / "dial.jsonl").open("a") as out:
                out.write(json.dumps({**row, "slo": slo}) + "\n")
            print(slo, line(row), flush=True)


def killed(state: Path, budget_s: float) -> None:
    """Thirty clients die beside a latency-critical one."""
    from bench.gpu_share_kills import kills

    row = kills(state, library(state), sms(), budget_s)
    print(row)
    (state / "kills.jsonl").write_text(json.dumps(row) + "\n")


def reported(state: Path) -> None:
    """The tables of what was measured, in Markdown."""
    from bench.gpu_share_keep import keep
    from bench.gpu_share_report import report

    keep(state / "kept", state, state, state, state / "traces")
    report(state / "kept")


PARTS: dict[str, Callable[[argparse.Namespace, float], None]] = {
    "pairs": lambda given, left: pairs(given.state, left, given.only, given.seconds, given.slo),
    "dial": lambda given, left: dial(given.state, left),
    "kills": lambda given, left: killed(given.state, left),
    "coverage": lambda given, left: coverage(given.state),
    "plain": lambda given, left: others(given.state, left, given.only, True),
    "slicing": lambda given, left: others(given.state, left, given.only, False),
    "report": lambda given, left: reported(given.state),
}


def main() -> None:
    """Do the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--state", type=Path, default=Path("/tmp/headway-share"))
    parser.add_argument("--out", type=Path, help="copy the results there at the end")
    parser.add_argument("--budget", type=float, default=500.0, help="seconds")
    parser.add_argument("--only", help="HIGH+LOW;HIGH+LOW")
    parser.add_argument("--seconds", type=float, default=10.0, help="a pair and pause")
    parser.add_argument("--slo", type=float, default=1.05)
    given = parser.parse_args()
    given.state.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, MINE)
    began = time.monotonic()
    try:
        for part in given.parts:
            left = given.budget - (time.monotonic() - began)
            PARTS[part](given, left)
    finally:
        if given.out:
            given.out.mkdir(parents=True, exist_ok=True)
            for found in (
                p for kind in ("*.jsonl", "*.bin", "*.tar.gz", "digests*.json") for p in given.state.glob(kind)
            ):
                shutil.copy(found, given.out / found.name)


if __name__ == "__main__":
    main()
