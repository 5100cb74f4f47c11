"""The pairs of the dial under MPS by itself, with limits on SMs and client priority, and under time slicing.

    scripts/gpu-share limits sliced [--state FOLDER] [--out FOLDER] [--budget SECONDS]

Beside and alone in turn, in short blocks within the same processes. A limit on SMs is fixed when a process starts, so
that each has processes of its own; time slicing has processes without MPS.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_aa import begin, steps
from bench.gpu_share_aa_ratio import Longs
from bench.gpu_share_client import DONE
from bench.gpu_share_dial import DRAIN_NS, Row, begin_all, build_id, quantiles, rate, start_all
from bench.gpu_share_rows import rows
from bench.gpu_share_session import BELOW, MS, Session, write
from headway.kernels.dial import Rules

BLOCKS, BLOCK_S, REST_S = 3, 0.9, 0.3
SETTLE_NS = 60 * MS
LOW_ALONE_S = 0.8
PERCENTS = (100, 30, 50)
PAIR_S = {"limits": 32.0, "sliced": 12.0}
"""About what a pair takes."""


def plain_names(percent: int) -> list[str]:
    """Processes at MPS's normal priority, with so much of the SMs."""
    return [f"plain{percent}-{place}" for place in (1, 2, 3)]


def blocks(session: Session, names: Sequence[str], rest: Callable[[], None]) -> tuple[Longs, Longs]:
    """Let those below run in blocks; return these, and the stretches alone between them. ``rest`` lets them stop."""
    beside, alone = [], []
    for _ in range(BLOCKS):
        for name in names:
            session.go(name)
        beside.append(_stay(BLOCK_S))
        rest()
        alone.append(_stay(REST_S))
    return np.array(beside), np.array(alone)


def _stay(seconds: float) -> tuple[int, int]:
    start = time.monotonic_ns()
    time.sleep(seconds)
    return start, time.monotonic_ns()


def setting(session: Session, high: str, lows: Sequence[str], names: Sequence[str]) -> Row | None:
    """One pair with these processes below, ungated: p50 and p99 beside and alone, the rates of those below."""

    def rest() -> None:
        for name in names:
            session.pause(name)

    for name in session.programs:
        session.pause(name)
    if not begin_all(session, list(zip(names, lows, strict=True))):
        return None
    if session.block:  # hooks that do nothing, and no gate
        for name in names:
            write(session.slot(name), Rules(gate=0), 1)
    first = [int(session.programs[name].control[DONE]) for name in names]
    by_itself = np.array([_stay(LOW_ALONE_S)])
    rest()
    if not begin(session, "high", high):
        return None
    if session.block:
        write(session.slot("high"), Rules(gate=0), 1)
    since = int(session.programs["high"].control[DONE])
    time.sleep(REST_S)
    beside, alone = blocks(session, names, rest)
    found = steps(session, "high", since)
    session.pause("high")
    row = {"beside": quantiles(found, beside, SETTLE_NS), "alone": quantiles(found, alone, DRAIN_NS)}
    return {
        **row,
        "low_per_s": rate(session, names, first, beside),
        "low_alone_per_s": rate(session, names, first, by_itself),
    }


def limits(session: Session, high: str, lows: list[str]) -> Row:
    """One pair under MPS: as it comes, with limits on SMs, and with client priority."""
    every = {f"mps{percent}": plain_names(percent) for percent in PERCENTS} | {"client": list(BELOW)}
    return {mode: setting(session, high, lows, names[: len(lows)]) for mode, names in every.items()}


def sliced(session: Session, high: str, lows: list[str]) -> Row:
    """One pair under time slicing."""
    return {"slicing": setting(session, high, lows, BELOW[: len(lows)])}


def line(row: Row) -> str:
    """A pair in one line."""
    parts = [f"{row['high']}+{row['low']}"]
    for mode, found in row["modes"].items():
        if found and found["beside"] and found["alone"]:
            p50, p99 = (found["beside"][f"{p}_ms"] / max(1e-9, found["alone"][f"{p}_ms"]) for p in ("p50", "p99"))
            pairs = zip(found["low_per_s"], found["low_alone_per_s"], strict=True)
            below = "+".join(f"{got / max(1e-9, alone):.3f}" for got, alone in pairs)
            parts.append(f"{mode} {p50:.3f} p99 {p99:.2f} below {below}")
        else:
            parts.append(f"{mode} –")
    return " | ".join(parts)


def pairs(part: str, every: Sequence[tuple[str, str]], given: Any, budget_s: float, keep: Any) -> None:
    """Every pair that is not there yet, within the budget; ``part``: limits or sliced."""
    from bench.gpu_share import CORES, library, sms

    state: Path = given.state
    file, end = state / f"{part}.jsonl", time.monotonic() + budget_s
    done = {(row["high"], row["low"]) for row in rows(file)}
    todo = [pair for pair in every if pair not in done and (not given.only or "+".join(pair) in given.only)]
    if not todo:
        print("all pairs are there")
        return
    mps = part == "limits"
    names = dict.fromkeys(BELOW, 100)
    if mps:
        names |= {name: percent for percent in PERCENTS for name in plain_names(percent)}
    shim, count = (library(state), sms()) if mps else (Path("none"), 0)
    client = "bench.gpu_share_aa_client"
    with Session(state / part, shim, count, mps=mps, shim=mps, client=client) as session:
        start_all(session, todo, CORES, names)
        print(f"ready, {end - time.monotonic():.0f} s left, {len(todo)} to do", flush=True)
        for high, low in todo:
            if time.monotonic() + PAIR_S[part] > end:
                print("the budget is spent; again to go on", flush=True)
                break
            modes = (limits if mps else sliced)(session, high, low.split(","))
            row = {"high": high, "low": low, "build": build_id(), "modes": modes}
            keep(file, row, line(row))
            print(f"{end - time.monotonic():.0f} s left", flush=True)
