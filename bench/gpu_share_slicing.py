"""Pairs under the driver's default, time slicing: processes of their own, without MPS and without headway.

Alone and side by side alternate within them, and these processes with those of the other modes: a group of pairs here,
the same group there.
"""

import time
from typing import Any

import numpy as np

from bench.gpu_share_measure import paired, progress, quantiles
from bench.gpu_share_session import BELOW, MS, Session, Stretch

ROUNDS = 3
ALONE_S, BESIDE_S, SETTLE_S = 0.2, 0.4, 0.06


def slicing(session: Session, high: str, lows: list[str], think_ms: float) -> dict[str, Any]:
    """One pair at one pause between requests."""
    names = list(BELOW[: len(lows)])
    for name in (name for name in session.programs if name != "high"):
        session.pause(name)
    for name, program in zip(names, lows, strict=True):
        session.select(name, program)
    session.choose("high", high, int(think_ms * MS))
    found: dict[str, list[Stretch]] = {"alone": [], "slicing": []}
    time.sleep(0.1)
    request_s = quantiles(session.programs["high"].spans(0), [_stay(0.02, 0.1)])["p50_ms"] / 1e3
    longer = max(1.0, 5 * request_s / ALONE_S)
    for _ in range(ROUNDS):
        found["alone"].append(_stay(0.02, ALONE_S * longer))
        for name in names:
            session.go(name)
        found["slicing"].append(_stay(SETTLE_S, BESIDE_S * longer))
        for name in names:
            session.pause(name)
    session.pause("high")
    for name in names:
        session.go(name)
    by_themselves = _stay(SETTLE_S, BESIDE_S)
    for name in names:
        session.pause(name)
    spans = {name: session.programs[name].spans(0) for name in ("high", *names)}
    row: dict[str, Any] = {"high": high, "low": ",".join(lows), "think_ms": think_ms}
    for mode, stretches in found.items():
        row[mode] = quantiles(spans["high"], stretches)
    ratios = paired(spans["high"], found["slicing"], found["alone"], 1)
    row["slicing"]["slowdown"] = float(np.median(ratios)) if ratios else None
    row["slicing"]["low_per_s"] = [_rate(spans[name], found["slicing"]) for name in names]
    row["low_alone_per_s"] = [_rate(spans[name], [by_themselves]) for name in names]
    return row


def _rate(spans: "np.ndarray[Any, Any]", stretches: list[Stretch]) -> float:
    return sum(progress(spans, s.begin, s.end) for s in stretches) / (sum(s.end - s.begin for s in stretches) / 1e9)


def _stay(settle_s: float, seconds: float) -> Stretch:
    time.sleep(settle_s)
    begin = time.monotonic_ns()
    time.sleep(seconds)
    return Stretch(begin, time.monotonic_ns())


def line(row: dict[str, Any]) -> str:
    """A pair in one line."""
    alone, got = row["alone"], row["slicing"]
    return (
        f"{row['high']}+{row['low']} {row['think_ms']}ms alone {alone['p50_ms']:.2f}/{alone['p99_ms']:.2f} | slicing "
        f"{got['slowdown'] or 0:.3f} p99 {got['p99_ms']:.2f} low {'+'.join(f'{r:.1f}' for r in got['low_per_s'])} | "
        f"low alone {'+'.join(f'{r:.1f}' for r in row['low_alone_per_s'])}"
    )
