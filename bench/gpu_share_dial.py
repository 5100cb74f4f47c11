"""Pairs under the dial, with the slow-down from outside beside the dial's own: resumable, one line of JSON a pair.

    scripts/gpu-share known new [--state FOLDER] [--out FOLDER] [--budget SECONDS] [--slo 1.05]

A pair is played for some tens of seconds. Four fifths of each second are under headway's gate and dial, which has never
met the pair; for a fifth the programs below are held, and the program above is alone. What it takes then is compared
with what like steps take under the gate just before and after, by the program's own clock. Then those below run under
plain MPS, in a few blocks.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_aa import Power, begin, steps
from bench.gpu_share_aa_ratio import Longs, Steps, cycle_windows, hold_values, split
from bench.gpu_share_client import DONE
from bench.gpu_share_measure import progress
from bench.gpu_share_rows import rows
from bench.gpu_share_session import BELOW, MS, PLAIN, Modes, Session, write
from headway.kernels.dial import MILLION, Dial, Rules
from headway.kernels.slowdown import Value, estimate

GATE_S, ALONE_S = 0.8, 0.2
DRAIN_NS = 40 * MS
"""At the beginning of a stretch alone: what was in flight ends, and the GPU's clock follows."""
FIRST_S = 10.0
LAST_S = 20.0
BLOCKS, BLOCK_S, REST_S = 4, 0.9, 0.3
LOW_ALONE_S = 1.2
Row = dict[str, Any]


@dataclass(slots=True)
class Told(Modes):
    """Modes that keep what the dial says, twice a second of its own time."""

    told: list[Row] = field(default_factory=list)

    def turn(self, now_ns: int, shift_ns: int = 0, since_ns: int = 0) -> None:
        """One beat of the dial."""
        Modes.turn(self, now_ns, shift_ns, since_ns)
        if not self.told or now_ns - self.told[-1]["ns"] >= 500 * MS:
            self.told.append({"ns": now_ns, **said(self.dial)})


def said(dial: Dial) -> Row:
    """What the dial says of the program above."""
    found = dial.slowdown(0)
    row: Row = {"boldness": dial.boldness_ppm(0) / MILLION, "held": dial.holds.held_ns / 1e9}
    if found is not None:
        row |= {"value": found.value_ppm / MILLION, "low": found.low_ppm / MILLION, "high": found.high_ppm / MILLION}
        row |= {"holds": found.holds, "steps": found.steps}
    return row


def outside(found: Row, alone: Longs, first_ns: int, last_ns: int) -> Row:
    """The slow-down by the program's own clock between two times: like steps, alone against around."""
    mine = alone[(alone[:, 0] >= first_ns) & (alone[:, 1] <= last_ns)]
    every = Steps(found["begin"], found["end"], found["kind"]).cut(first_ns, last_ns)
    if len(mine) < 3 or not len(every.begin):
        return {}
    values, count = hold_values(every, cycle_windows(mine), split(every, mine, DRAIN_NS))
    told = estimate([Value(float(value), count // max(1, len(values)), 0.0) for value in values])
    if told is None:
        return {}
    return {
        "value": told.value_ppm / MILLION,
        "half": (told.high_ppm - told.value_ppm) / MILLION,
        "stretches": told.holds,
    }


def quantiles(found: Row, spans: Longs, skip_ns: int, of: str = "begin") -> Row:
    """p50 and p99 of the steps that lie in the spans, in milliseconds."""
    took = [
        (found["end"] - found[of])[(found["begin"] >= a + skip_ns) & (found["end"] <= b)] for a, b in spans if b > a
    ]
    every = np.concatenate(took) if took else np.array([])
    if not len(every):
        return {}
    p50, p99 = np.percentile(every, [50, 99]) / 1e6
    return {"p50_ms": float(p50), "p99_ms": float(p99), "requests": len(every)}


def rate(session: Session, names: Sequence[str], first: Sequence[int], spans: Longs) -> list[float]:
    """Requests a second of each program below in the spans."""
    found = []
    for name, since in zip(names, first, strict=True):
        log = session.programs[name].spans(since)
        done = sum(progress(log, a, b) for a, b in spans)
        found.append(done / max(1e-9, float((spans[:, 1] - spans[:, 0]).sum()) / 1e9))
    return found


def measure(session: Session, high: str, lows: list[str], seconds: float, dial: Dial, mps: bool) -> Row | None:
    """One pair."""
    below, plain = list(BELOW[: len(lows)]), list(PLAIN[: len(lows)]) if mps else []
    for name, low in (*zip(below, lows, strict=True), *zip(plain, lows, strict=False)):
        if not begin(session, name, low):
            return None
        session.pause(name)
    for name in below:
        session.go(name)
    time.sleep(0.3)
    low_first = [int(session.programs[name].control[DONE]) for name in below]
    low_alone = _span(LOW_ALONE_S)
    if not begin(session, "high", high):
        return None
    first = int(session.programs["high"].control[DONE])
    modes = Told(session, "high", below, plain, dial)
    gate, alone = _play(modes, seconds)
    own = said(dial)
    bare, rest = _plain(modes) if mps else (np.zeros((0, 2), np.int64), alone)
    found = steps(session, "high", first)
    row: Row = {"high": high, "low": ",".join(lows), "slo": dial.slo_ppm / MILLION, "seconds": seconds, "dial": own}
    row["told"] = modes.told
    row |= _figures(found, gate, alone)
    row["low_alone_per_s"] = rate(session, below, low_first, low_alone)
    late = gate[gate[:, 0] >= gate[-1, 1] - int(LAST_S * 1e9)]
    row["low_gate_per_s"] = rate(session, below, low_first, late)
    row["reasons"] = [[int(each) for each in session.slot(name).ledger.reasons] for name in below]
    if mps:
        row["mps"] = {**quantiles(found, bare, 60 * MS), "low_per_s": rate(session, plain, [0] * len(plain), bare)}
        row["mps"]["alone"] = quantiles(found, rest, DRAIN_NS)
    for name in ("high", *below, *plain):
        write(session.slot(name), Rules(gate=0))
        session.pause(name)
    return row


def _span(seconds: float) -> Longs:
    start = time.monotonic_ns()
    time.sleep(seconds)
    return np.array([[start, time.monotonic_ns()]])


def _play(modes: Told, seconds: float) -> tuple[Longs, Longs]:
    """Play the pair; return the stretches under the gate, and alone."""
    gate, alone = [], []
    end = time.monotonic() + seconds
    modes.stay("alone", 0.5, 0)
    while time.monotonic() < end:
        for mode, length, spans in (("gate", GATE_S, gate), ("alone", ALONE_S, alone)):
            start = time.monotonic_ns()
            modes.stay(mode, length, 0)
            spans.append((start, time.monotonic_ns()))
    return np.array(gate), np.array(alone)


def _plain(modes: Told) -> tuple[Longs, Longs]:
    """The same programs below under MPS as it comes, in blocks; return these, and the stretches alone between them."""
    bare, rest = [], []
    for _ in range(BLOCKS):
        start = time.monotonic_ns()
        modes.stay("mps", BLOCK_S, 0)
        bare.append((start, time.monotonic_ns()))
        for name in modes.plain:
            modes.session.pause(name)
        start = time.monotonic_ns()
        modes.stay("alone", REST_S, 0)
        rest.append((start, time.monotonic_ns()))
    return np.array(bare), np.array(rest)


def _figures(found: Row, gate: Longs, alone: Longs) -> Row:
    """What the program's own clock says: at first meeting, at the end, and over all."""
    begin_ns, end_ns = int(gate[0, 0]), int(alone[-1, 1])
    row: Row = {"alone": quantiles(found, alone, DRAIN_NS), "gate": quantiles(found, gate, 0)}
    if (found["due"] < found["begin"]).any():
        row["alone_from_arrival"] = quantiles(found, alone, DRAIN_NS, "due")
        row["gate_from_arrival"] = quantiles(found, gate, 0, "due")
    late = gate[gate[:, 0] >= end_ns - int(LAST_S * 1e9)]
    row["late"] = quantiles(found, late, 0)
    row["first"] = outside(found, alone, begin_ns, begin_ns + int(FIRST_S * 1e9 / GATE_S))
    row["last"] = outside(found, alone, end_ns - int(LAST_S * 1e9), end_ns)
    row["all"] = outside(found, alone, begin_ns, end_ns)
    return row


def line(row: Row) -> str:
    """A pair in one line."""
    parts = [f"{row['high']}+{row['low']} aim {row['slo']:g}: alone {row['alone'].get('p50_ms', 0):.2f} ms"]
    for part in ("first", "last", "all"):
        each = row[part]
        parts.append(f"{part} {each['value']:.3f}±{each['half']:.3f}" if each else f"{part} –")
    own = row["dial"]
    parts.append(
        f"dial {own['value']:.3f} ({own['low']:.3f}–{own['high']:.3f}, {own['holds']})" if "value" in own else "dial –"
    )
    late, alone = row["late"].get("p99_ms", 0), row["alone"].get("p99_ms", 1)
    parts.append(f"boldness {own['boldness']:.2f} p99 {late / alone:.2f}")
    share = [a / max(1e-9, b) for a, b in zip(row["low_gate_per_s"], row["low_alone_per_s"], strict=True)]
    parts.append("below " + "+".join(f"{each:.3f}" for each in share))
    if mps := row.get("mps"):
        ratio = mps.get("p50_ms", 0) / max(1e-9, mps["alone"].get("p50_ms", 0))
        shares = [a / max(1e-9, b) for a, b in zip(mps["low_per_s"], row["low_alone_per_s"], strict=True)]
        parts.append(f"mps {ratio:.3f} below {'+'.join(f'{each:.3f}' for each in shares)}")
    return " | ".join(parts)


def pairs(state: Path, budget_s: float, every: Sequence[tuple[str, str]], given: Any, keep: Any) -> None:
    """Every pair that is not there yet, within the budget."""
    from bench.gpu_share import CORES, library, sms

    file = state / "dialled.jsonl"
    done = {(row["high"], row["low"], row["slo"]) for row in rows(file)}
    todo = [
        pair for pair in every if (*pair, given.slo) not in done and (not given.only or "+".join(pair) in given.only)
    ]
    if not todo:
        print("all pairs are there")
        return
    end = time.monotonic() + budget_s
    lows = [low.split(",") for _, low in todo]
    with Session(state / "pairs", library(state), sms(), client="bench.gpu_share_aa_client") as session:
        session.start("high", CORES["high"], 0, sorted({high for high, _ in todo}))
        for place in range(max(map(len, lows))):
            mine = sorted({low[place] for low in lows if len(low) > place})
            for name in (BELOW[place], PLAIN[place])[: 2 if given.mps else 1]:
                session.start(name, CORES[name], 5, mine)
        session.ready()
        Power(state / "power.jsonl").start()
        print(f"ready, {end - time.monotonic():.0f} s left, {len(todo)} to do", flush=True)
        for high, low in todo:
            if time.monotonic() + given.pair_seconds + 16 > end:
                print("the budget is spent; again to go on", flush=True)
                break
            dial = Dial(slo_ppm=round(given.slo * MILLION))
            if row := measure(session, high, low.split(","), given.pair_seconds, dial, given.mps):
                keep(file, row, line(row))
            print(f"{end - time.monotonic():.0f} s left", flush=True)
