"""Alone against alone, and beside against alone, by whole steps of programs that share a GPU.

    python -m bench.gpu_share_aa record --state FOLDER --out FOLDER [--seconds 20] [--pair-seconds 30] [--budget 480]
    python -m bench.gpu_share_aa noise FOLDER      anywhere: how far alone is from alone, by way of comparing, as CSV
    python -m bench.gpu_share_aa pace FOLDER       anywhere: the same as the dial compares, at any pace and at one
    python -m bench.gpu_share_aa pairs FOLDER      anywhere: what holds tell of a slow-down, and the program's own clock
    python -m bench.gpu_share_aa ramp FOLDER       anywhere: steps by the time since a hold began, and since it ended
    python -m bench.gpu_share_aa clocks FOLDER     anywhere: clocks and power of each recording

``record`` plays every program above alone under MPS with the shim loaded, then pairs: those below are held (the gate
holds their launches) for a second or two, and for moments among stretches under headway's gate and dial.
"""

import argparse
import csv
import json
import os
import shutil
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_aa_client import FAILED
from bench.gpu_share_client import DONE, RING, STATE
from bench.gpu_share_session import Modes, Session, write
from headway.gpu.control.dial import MILLION, Dial
from headway.gpu.control.gate_rules import Rules
from headway.gpu.share.shim.build import build

COLUMNS = ("due", "begin", "launched", "end", "launches", "waits", "kind")
LONG_S = 1.5
"""Alone at a time, for the program's own clock."""
CYCLE_S = 4.5
"""Under the gate at a time, with the moments of holding in it."""
HELD = 0.05
"""The part of that in which those below are held."""
LEAST_HOLD_S = 0.04
"""Or five steps, whichever is longer; times one of these."""
HOLDS = (0.5, 1.0, 2.0)
MADE_S = 60.0


@dataclass(slots=True)
class Watched(Modes):
    """Modes that keep what the dial said, and when it held those below by itself."""

    said: list[tuple[int, int, int, int]] = field(default_factory=list)

    def turn(self, now_ns: int, shift_ns: int = 0, since_ns: int = 0) -> None:
        """One beat of the dial; a line where something changed."""
        Modes.turn(self, now_ns, shift_ns, since_ns)
        held = int(self.session.slot(self.lows[0]).rules.hold)
        found = self.dial.slowdown(0)
        what = held, found.value_ppm if found else MILLION, self.dial.boldness_ppm(0)
        if not self.said or self.said[-1][1:] != what:
            self.said.append((time.monotonic_ns(), *what))


def steps(session: Session, name: str, first: int) -> dict[str, Any]:
    """The steps of a process since the given count, a column each."""
    program = session.programs[name]
    more = np.memmap(session.folder / f"{name}.more", dtype=np.int64, mode="r", shape=(RING, 5))
    last = int(program.control[DONE])
    at = np.arange(max(first, last - RING), last) % RING
    spans, others = np.asarray(program.log)[at], np.asarray(more)[at]
    found = (others[:, 0], spans[:, 0], others[:, 1], spans[:, 1], others[:, 2], others[:, 3], others[:, 4])
    return dict(zip(COLUMNS, found, strict=True))


def begin(session: Session, name: str, program: str) -> bool:
    """Let a process work on a program; wait until it has been made and steps come. Whether they do."""
    mine = session.programs[name]
    done, end = int(mine.control[DONE]), time.monotonic() + MADE_S
    session.choose(name, program)
    while mine.control[DONE] < done + 3:
        ended = mine.process.poll() is not None
        if ended or time.monotonic() > end or mine.control[FAILED] == mine.programs.index(program) + 1:
            print(f"{name} {program}: cannot be done\n{session.said(name)[-1500:]}", flush=True)
            if ended:
                raise SystemExit(f"{name} has ended")
            mine.control[STATE] = 0
            return False
        time.sleep(0.005)
    return True


def alone(session: Session, program: str, seconds: float) -> dict[str, Any] | None:
    """A program by itself for a while."""
    if not begin(session, "high", program):
        return None
    write(session.slot("high"), Rules(gate=0, watched=1))
    time.sleep(0.5)
    first = int(session.programs["high"].control[DONE])
    time.sleep(seconds)
    found = steps(session, "high", first)
    session.pause("high")
    return found


def pair(session: Session, high: str, low: str, seconds: float, slo: float) -> dict[str, Any] | None:
    """A pair: first meeting, then alone for long, and under the gate with moments of holding, in turn."""
    if not (begin(session, "low", low) and begin(session, "high", high)):
        return None
    modes = Watched(session, "high", ["low"], [], Dial(slo_ppm=int(slo * 1e6)))
    first, draw = int(session.programs["high"].control[DONE]), np.random.default_rng(3)
    low_first = int(session.programs["low"].control[DONE])
    spans: list[tuple[int, int, int]] = []

    def stay(mode: str, code: int, length: float) -> None:
        start = time.monotonic_ns()
        modes.stay(mode, length, 0)
        spans.append((start, time.monotonic_ns(), code))

    stay("alone", 0, LONG_S)
    took = steps(session, "high", first)
    step_s = float(np.median(took["end"] - took["begin"])) / 1e9
    usual = max(LEAST_HOLD_S, 5 * step_s)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        cycle = time.monotonic() + CYCLE_S
        while time.monotonic() < cycle:
            hold = usual * float(draw.choice(HOLDS))
            stay("gate", 1, hold / HELD * float(draw.uniform(0.6, 1.4)))
            stay("alone", 2, hold)
        stay("gate", 1, usual)
        stay("alone", 0, LONG_S)
    found = steps(session, "high", first)
    low_log = session.programs["low"].spans(low_first)
    for name in ("high", "low"):
        write(session.slot(name), Rules(gate=0))
        session.pause(name)
    return found | {"spans": np.array(spans), "said": np.array(modes.said), "low": low_log}


def keep(folder: Path, name: str, found: dict[str, Any], out: Path | None) -> None:
    """Write one recording, and all so far in one archive."""
    np.savez_compressed(folder / f"{name}.npz", **found)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        with tarfile.open(out / "draft", "w") as all_:
            for each in sorted((*folder.glob("*.npz"), *folder.glob("*.jsonl"))):
                all_.add(each, each.name)
        (out / "draft").rename(out / "steps.tar")


def summary(found: dict[str, Any]) -> str:
    """A recording in one line."""
    took = (found["end"] - found["begin"]) / 1e6
    cpu = (found["launched"] - found["begin"]) / 1e6
    p50, p99 = np.percentile(took, [50, 99])
    counts = {int(k): sorted({int(n) for n in found["launches"][found["kind"] == k]})[:4] for k in set(found["kind"])}
    text = f"{len(took)} steps p50 {p50:.3f} p99 {p99:.3f} ms, launching {np.median(cpu):.3f}; launches {counts}"
    if "spans" not in found:
        return text
    parts = {}
    for code, mode in enumerate(("alone", "gate", "hold")):
        mine = [s for s in found["spans"] if s[2] == code]
        picked = [took[(found["begin"] >= s[0] + 15e6) & (found["end"] <= s[1])] for s in mine]
        parts[mode] = float(np.median(np.concatenate(picked))) if picked else float("nan")
    ratio = {mode: round(parts["gate"] / parts[mode], 4) for mode in ("alone", "hold")}
    dial = found["said"][-1][2] / 1e6 if len(found["said"]) else None
    return f"{text}; gate against alone {ratio}; dial {dial}; below {len(found['low'])}"


class Power(threading.Thread):
    """Clocks, power and temperature, twice a second."""

    def __init__(self, file: Path) -> None:
        super().__init__(daemon=True)
        self.file = file

    def run(self) -> None:
        """Write a line twice a second; without NVIDIA's library nothing."""
        try:
            import pynvml as nvml

            nvml.nvmlInit()
            card = nvml.nvmlDeviceGetHandleByIndex(0)
        except Exception as problem:  # noqa: BLE001 - without clocks the rest is measured all the same
            print(f"no clocks: {problem!r}", flush=True)
            return
        with self.file.open("a") as out:
            while True:
                row = {
                    "ns": time.monotonic_ns(),
                    "sm_mhz": nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM),
                    "power_mw": nvml.nvmlDeviceGetPowerUsage(card),
                    "celsius": nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
                }
                out.write(json.dumps(row) + "\n")
                out.flush()
                time.sleep(0.5)


def record(given: argparse.Namespace) -> None:
    """All programs alone, then the pairs, as far as the seconds reach."""
    from bench.gpu_share import CORES, MINE, sms
    from bench.gpu_share_aa_programs import ABOVE, BELOW, NEW_PAIRS, PAIRS

    only = given.only.split(";") if given.only else [*ABOVE, *map("+".join, PAIRS)]
    programs = [name for name in ABOVE if name in only]
    pairs = [each for each in (*PAIRS, *NEW_PAIRS) if "+".join(each) in only]
    end = time.monotonic() + given.budget
    os.sched_setaffinity(0, MINE)
    shutil.rmtree(given.state, ignore_errors=True)
    given.state.mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:  # each takes a while
        library, count = pool.submit(build, None, given.state), pool.submit(sms)
    with Session(given.state / "work", library.result(), count.result(), client="bench.gpu_share_aa_client") as session:
        session.start("high", CORES["high"], 0, [name for name in ABOVE if name in programs + [a for a, _ in pairs]])
        session.start("low", CORES["low"], 5, [name for name in BELOW if name in [b for _, b in pairs]] or ["mixed"])
        session.ready()
        Power(given.state / "power.jsonl").start()
        print(f"ready, {end - time.monotonic():.0f} s left", flush=True)
        measure(session, programs, pairs, given, end)


def measure(session: Session, above: list[str], pairs: Any, given: argparse.Namespace, end: float) -> None:
    """Record each program alone, then each pair."""
    for name in above:
        if time.monotonic() + given.seconds + 12 > end:
            print("the budget is spent", flush=True)
            return
        if found := alone(session, name, given.seconds):
            keep(given.state, name, found, given.out)
            print(f"{name}: {summary(found)}; {end - time.monotonic():.0f} s left", flush=True)
    for high, low in pairs:
        if time.monotonic() + given.pair_seconds + 16 > end:
            print("the budget is spent", flush=True)
            return
        if found := pair(session, high, low, given.pair_seconds, given.slo):
            keep(given.state, f"{high}+{low}", found, given.out)
            print(f"{high}+{low}: {summary(found)}; {end - time.monotonic():.0f} s left", flush=True)


def main() -> None:
    """Read the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "noise", "pace", "pairs", "ramp", "clocks"))
    parser.add_argument("folder", type=Path, nargs="?", help="the recordings, of all but record")
    parser.add_argument("--state", type=Path, default=Path("/tmp/headway-aa"))
    parser.add_argument("--out", type=Path, help="record: all recordings there too, as steps.tar, after each")
    parser.add_argument("--seconds", type=float, default=20.0, help="a program alone")
    parser.add_argument("--pair-seconds", type=float, default=30.0)
    parser.add_argument("--budget", type=float, default=480.0)
    parser.add_argument("--slo", type=float, default=1.05)
    parser.add_argument("--only", default="", help="record: these programs and pairs, PROGRAM;HIGH+LOW")
    given = parser.parse_args()
    if given.what == "record":
        record(given)
        return
    from bench import gpu_share_aa_tables as tables

    rows: Iterator[dict[str, Any]] = getattr(tables, given.what)(given.folder)
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(sys.stdout, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
