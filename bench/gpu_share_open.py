"""What the gate costs a program below that the processor bounds, while the program above is silent: it is never held.

    scripts/gpu-share open [--state FOLDER] [--out FOLDER]

The hooks do nothing, and the gate asks, in turn, half a second each, in the same process.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_aa import begin
from bench.gpu_share_client import DONE
from bench.gpu_share_dial import Row, build_id, rate, start_all
from bench.gpu_share_session import MS, Modes, Session, write
from headway.gpu.control.dial import Dial
from headway.gpu.control.gate_rules import Rules

TURNS, TURN_S, QUIET_S = 10, 0.5, 0.3
SETTLE_NS = 60 * MS


def opened(session: Session, high: str, low: str) -> Row | None:
    """One program below a silent one: its rate with the gate over that with hooks that do nothing, turn by turn."""
    if not (begin(session, "high", high) and begin(session, "low", low)):
        return None
    session.pause("high")
    time.sleep(QUIET_S)
    first = int(session.programs["low"].control[DONE])
    modes, slot = Modes(session, "high", ["low"], [], Dial()), session.slot("low")
    spans: dict[str, list[Any]] = {"bypass": [], "gate": []}
    passed, launched = int(slot.ledger.passed), int(slot.ledger.kernels)
    for _ in range(TURNS):
        for mode, found in spans.items():
            write(slot, Rules(gate=0), 1) if mode == "bypass" else write(slot, Rules())
            start = time.monotonic_ns()
            while time.monotonic_ns() - start < TURN_S * 1e9:
                if mode == "gate":
                    modes.turn(time.monotonic_ns())
                time.sleep(0.008)
            found.append(np.array([[start + SETTLE_NS, time.monotonic_ns()]]))
    rates = {mode: [rate(session, ["low"], [first], each)[0] for each in found] for mode, found in spans.items()}
    ratios = [gate / bare for gate, bare in zip(rates["gate"], rates["bypass"], strict=True) if bare]
    asked = int(slot.ledger.kernels) - launched
    write(slot, Rules(gate=0))
    session.pause("low")
    return {
        "high": high,
        "low": low,
        "build": build_id(),
        "rates": rates,
        "ratio": float(np.median(ratios)),
        "ratios": ratios,
        "passed": (int(slot.ledger.passed) - passed) / max(1, asked),
    }


def line(row: Row) -> str:
    """A row in one line."""
    return (
        f"{row['low']} below a silent {row['high']}: {row['ratio']:.3f} of its rate "
        f"({min(row['ratios']):.3f} to {max(row['ratios']):.3f}); {row['passed']:.2f} of the launches did not ask"
    )


def measure(state: Path, keep: Any) -> None:
    """The ConvNet and the embedding, whose kernels are short, below a prefill that is silent."""
    from bench.gpu_share import CORES, library, sms

    with Session(state / "open", library(state), sms(), client="bench.gpu_share_aa_client") as session:
        pairs = [("prefill-512", "convnet"), ("prefill-512", "embedding-poisson")]
        start_all(session, pairs, CORES, {"low": 100})
        for high, low in pairs:
            if row := opened(session, high, low):
                keep(state / "open.jsonl", row, line(row))
