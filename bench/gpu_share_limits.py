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
from bench.gpu_share_dial import BY_PROCESSOR, Row, begin_all, build_id, cycle_of, outside, quantiles, rate, start_all
from bench.gpu_share_rows import rows
from bench.gpu_share_session import BELOW, MS, Session, write
from headway.gpu.control.gate_rules import Rules

BLOCKS: dict[bool, tuple[int, float, float]] = {False: (3, 0.6, 0.35), True: (6, 0.3, 0.12)}
"""How often and how long those below run, and rest, by whether the processor is the bound above."""
SETTLE_NS = 60 * MS
LOW_ALONE_S = 0.8
PERCENTS = (100, 50, 30, 10)
WIDE = (70, 90)
"""Limits that are tried only where half of the SMs comes near."""
NEAR = 1.3
SEVERAL = (100, 30, 10)
"""And those where several programs are below: each has a process for each limit."""
KINDS = ("mps", "client")
"""Processes below at MPS's normal priority, and at its lower one."""
TOGETHER = (("training", "mixed"), ("stream", "unet-b16", "matmul"))
"""Programs that every process below holds at the same time: with all five the GPU's memory does not do."""
PAIR_S = {"limits": 45.0, "sliced": 8.0}
"""About what a pair takes at most."""


def names_of(kind: str, percent: int) -> list[str]:
    """Processes at one of MPS's priorities, with so much of the SMs."""
    return [f"{kind}{percent}-{place}" for place in (1, 2, 3)]


def processes() -> dict[str, int]:
    """Every process below, with its share of the SMs."""
    first = {names_of(kind, percent)[0]: percent for kind in KINDS for percent in (*PERCENTS, *WIDE)}
    return first | {name: percent for kind in KINDS for percent in SEVERAL for name in names_of(kind, percent)[1:]}


def blocks(session: Session, names: Sequence[str], rest: Callable[[], None], bound: bool) -> tuple[Longs, Longs]:
    """Let those below run in blocks; return these, and the stretches alone between them. ``rest`` lets them stop."""
    beside, alone = [], []
    count, block_s, rest_s = BLOCKS[bound]
    for _ in range(count):
        for name in names:
            session.go(name)
        beside.append(_stay(block_s))
        rest()
        alone.append(_stay(rest_s))
    return np.array(beside), np.array(alone)


def _stay(seconds: float) -> tuple[int, int]:
    start = time.monotonic_ns()
    time.sleep(seconds)
    return start, time.monotonic_ns()


def setting(
    session: Session, high: str, lows: Sequence[str], names: Sequence[str], *, by_itself: bool = True
) -> Row | None:
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
    row: Row = {}
    if by_itself:
        row["low_alone_per_s"] = rate(session, names, first, np.array([_stay(LOW_ALONE_S)]))
    rest()
    if not begin(session, "high", high):
        return None
    if session.block:
        write(session.slot("high"), Rules(gate=0), 1)
    since, cycle = int(session.programs["high"].control[DONE]), cycle_of(session)
    beside, alone = blocks(session, names, rest, cycle is BY_PROCESSOR)
    found = steps(session, "high", since)
    session.pause("high")
    row |= {"beside": quantiles(found, beside, SETTLE_NS), "alone": quantiles(found, alone, cycle.drain_ns)}
    row["own"] = outside(found, alone, cycle.drain_ns, int(beside[0, 0]), int(alone[-1, 1]))
    return {**row, "low_per_s": rate(session, names, first, beside)}


def limits(session: Session, high: str, lows: list[str], only: Sequence[str] = ()) -> Row:
    """One pair under MPS: with limits on SMs, each with client priority and without; or with these alone."""
    made: Row = {}
    for kind in KINDS:
        for percent in SEVERAL if len(lows) > 1 else (*PERCENTS, *WIDE):
            mode = f"{kind}{percent}"
            if mode not in only if only else percent in WIDE and not _near(made.get(f"{kind}50")):
                continue
            made[mode] = setting(session, high, lows, names_of(kind, percent)[: len(lows)], by_itself=not made)
    return made


def _near(found: Row | None) -> bool:
    return bool(found and found["beside"]) and slowdown(found, "p50") <= NEAR


def slowdown(found: Row, which: str) -> float:
    """A percentile beside over that alone, in the same processes; p50 by like steps at one pace, where it is known."""
    if which == "p50" and found.get("own"):
        return float(found["own"]["value"])
    return float(found["beside"][f"{which}_ms"]) / max(1e-9, float(found["alone"][f"{which}_ms"]))


def sliced(session: Session, high: str, lows: list[str], _: Sequence[str] = ()) -> Row:
    """One pair under time slicing."""
    return {"slicing": setting(session, high, lows, BELOW[: len(lows)])}


def line(row: Row) -> str:
    """A pair in one line; rates below are parts of that without a limit, alone."""
    parts = [f"{row['high']}+{row['low']}"]
    full = next(
        (found["low_alone_per_s"] for found in row["modes"].values() if found and "low_alone_per_s" in found), ()
    )
    for mode, found in row["modes"].items():
        if found and found["beside"] and found["alone"]:
            below = "+".join(
                f"{got / max(1e-9, alone):.3f}" for got, alone in zip(found["low_per_s"], full, strict=True)
            )
            parts.append(f"{mode} {slowdown(found, 'p50'):.3f} p99 {slowdown(found, 'p99'):.2f} below {below}")
        else:
            parts.append(f"{mode} –")
    return " | ".join(parts)


def pairs(part: str, every: Sequence[tuple[str, str]], given: Any, budget_s: float, keep: Any) -> None:
    """Every pair that is not there yet, within the budget; ``part``: limits or sliced."""
    file, end = given.state / f"{part}.jsonl", time.monotonic() + budget_s
    done = {(row["high"], row["low"]) for row in rows(file)}
    todo = [pair for pair in every if pair not in done and (not given.only or "+".join(pair) in given.only)]
    if not todo:
        print("all pairs are there")
    for lows in TOGETHER if part == "limits" else (sum(TOGETHER, ()),):
        if mine := [pair for pair in todo if pair[1].split(",")[0] in lows]:
            _measure(part, mine, given, end, lambda row: keep(file, row, line(row)))


def chosen(text: str) -> dict[str, list[str]]:
    """The settings of each pair in ``HIGH+LOW=mps50,client30;…``; rates by itself are of the first, without a limit."""
    parts = [each.split("=") for each in text.split(";") if each]
    return {pair: ["mps100", *modes.split(",")] for pair, modes in parts}


def _measure(part: str, todo: Sequence[tuple[str, str]], given: Any, end: float, keep: Callable[[Row], None]) -> None:
    """Measure pairs in one set of processes."""
    from bench.gpu_share import CORES, library, sms

    mps, state = part == "limits", given.state
    names, only = processes() if mps else dict.fromkeys(BELOW, 100), chosen(given.modes)
    if mps and only:
        wanted = {mode for modes in only.values() for mode in modes}
        names = {name: percent for name, percent in names.items() if name.partition("-")[0] in wanted}
    cores = {"high": CORES["high"]} | {name: 4 + 2 * (at % 6) for at, name in enumerate(names)} if mps else CORES
    shim, count = (library(state), sms()) if mps else (Path("none"), 0)
    client = "bench.gpu_share_aa_client"
    with Session(state / part, shim, count, mps=mps, shim=mps, client=client) as session:
        start_all(session, todo, cores, names)
        print(f"ready, {end - time.monotonic():.0f} s left, {len(todo)} to do", flush=True)
        for low in dict.fromkeys(low for _, low in todo):
            make(session, low.split(","))
            for high, _ in (pair for pair in todo if pair[1] == low):
                if time.monotonic() + PAIR_S[part] > end:
                    print("the budget is spent; again to go on", flush=True)
                    return
                modes = (limits if mps else sliced)(session, high, low.split(","), only.get(f"{high}+{low}", ()))
                keep({"high": high, "low": low, "build": build_id(), "modes": modes})
                print(f"{end - time.monotonic():.0f} s left", flush=True)


def make(session: Session, lows: Sequence[str]) -> None:
    """Let all processes below make their program of a pair, at the same time."""
    below = [name for name in session.programs if name != "high"]
    chosen = [(name, lows[int(name[-1]) - 1 if name[-1] in "23" else 0]) for name in below if _has(name, len(lows))]
    begin_all(session, chosen)
    for name, _ in chosen:
        session.pause(name)


def _has(name: str, count: int) -> bool:
    return name[-1] not in "23" or int(name[-1]) <= count
