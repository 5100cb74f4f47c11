"""One pair of programs, every mode in turn, several times: how long requests take, what those below get done.

Modes follow each other every tenth of a second, in another order each round, so that what the machine does from second
to second falls out of their ratios; those without a gate come in longer blocks, and what they leave behind runs out.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from bench.gpu_share_session import BELOW, MS, PLAIN, Modes, Session, Stretch, write
from headway.gpu.control.dial import Dial
from headway.gpu.control.gate_rules import Rules
from headway.gpu.model.reflex import Reason

FINE = {"bypass": 0.09, "shim": 0.09, "alone": 0.09, "gate": 0.16}
"""Seconds in each mode, in a round."""
BARE = ("client", "mps", "stream")
BLOCK_S = 0.26
SETTLE_S = 0.06
"""Of a block without a gate: what was launched ahead comes first."""
DRAIN_S = 0.1
BLOCKS = 3
BELOW_S = 0.2
"""As long those below are by themselves, after each block: what they do alone changes with the machine, too."""


def progress(spans: "np.ndarray[Any, Any]", begin: int, end: int) -> float:
    """How many requests of a batch program were done in a stretch, parts of them counted."""
    ends = spans[:, 1]
    if len(ends) < 2:
        return 0.0
    done = np.arange(1, len(ends) + 1, dtype=float)
    return float(np.interp(end, ends, done) - np.interp(begin, ends, done))


def took(spans: "np.ndarray[Any, Any]", stretches: Iterable[Stretch]) -> "np.ndarray[Any, Any]":
    """The requests that lie inside the stretches, in nanoseconds."""
    length = spans[:, 1] - spans[:, 0]
    return np.concatenate([length[(spans[:, 0] >= s.begin) & (spans[:, 1] <= s.end)] for s in stretches])


def quantiles(spans: "np.ndarray[Any, Any]", stretches: Sequence[Stretch]) -> dict[str, float]:
    """p50, p99 and mean of the requests inside the stretches, in milliseconds."""
    found = took(spans, stretches)
    if not len(found):
        return {"p50_ms": 0.0, "p99_ms": 0.0, "mean_ms": 0.0, "requests": 0}
    p50, p99 = np.percentile(found, [50, 99]) / 1e6
    return {"p50_ms": float(p50), "p99_ms": float(p99), "mean_ms": float(found.mean() / 1e6), "requests": len(found)}


def paired(
    spans: "np.ndarray[Any, Any]", mine: Sequence[Stretch], theirs: Sequence[Stretch], least: int = 2
) -> list[float]:
    """The ratios of medians, a mode's and another's of the same round, where both have a few requests."""
    ratios = []
    for one, other in zip(mine, theirs, strict=True):
        a, b = took(spans, [one]), took(spans, [other])
        if len(a) >= least and len(b) >= least:
            ratios.append(float(np.median(a) / np.median(b)))
    return ratios


def tail(spans: "np.ndarray[Any, Any]", mine: Sequence[Stretch], theirs: Sequence[Stretch]) -> list[float]:
    """By how much a mode's p99 is above another's, in milliseconds: nine times in ten between these two.

    From rounds drawn again and again from those that were: a p99 hangs on a few requests.
    """
    drawn = np.random.default_rng(7)
    one, other = ([took(spans, [s]) for s in each] for each in (mine, theirs))
    found = []
    for _ in range(400):
        picked = drawn.integers(0, len(one), len(one))
        a, b = np.concatenate([one[i] for i in picked]), np.concatenate([other[i] for i in picked])
        if len(a) and len(b):
            found.append((np.percentile(a, 99) - np.percentile(b, 99)) / 1e6)
    return [float(each) for each in np.percentile(found, [5, 95])] if found else []


@dataclass(slots=True)
class Round:
    """The stretches of a row, by mode, and for each of them the stretch alone that is nearest."""

    modes: dict[str, list[Stretch]] = field(default_factory=dict)
    beside: dict[str, list[Stretch]] = field(default_factory=dict)
    below: list[Stretch] = field(default_factory=list)
    """Those below by themselves, the program above at rest."""

    def add(self, mode: str, stretch: Stretch) -> None:
        """One more."""
        self.modes.setdefault(mode, []).append(stretch)

    def against(self, mode: str) -> list[Stretch]:
        """The stretches alone that belong to a mode's."""
        return self.beside.get(mode, self.modes["alone"])


def measure(
    session: Session,
    high: str,
    lows: list[str],
    think_ms: float,
    seconds: float,
    dial: Dial,
    settle: float = 1.0,
    bare: Sequence[str] = BARE,
    fine: Sequence[str] = tuple(FINE),
) -> dict[str, Any]:
    """One pair at one pause between requests."""
    below = choose(session, lows)
    earlier = _low_alone(session, below)
    session.choose("high", high, int(think_ms * MS))
    modes = Modes(session, "high", below, _plain(session, lows), dial)
    first = modes.stay("alone", 0.5)
    request_s = quantiles(session.programs["high"].spans(0), [first])["p50_ms"] / 1e3
    before = {name: ledger(session, name) for name in modes.lows}
    modes.stay("gate", settle)  # the dial finds its place
    plan = [mode for mode in fine if not (think_ms and mode == "shim")]
    found = _rounds(modes, seconds, 1.3 if think_ms else 1.0, 4.2 * request_s + 0.015, plan, bare)
    after = {name: ledger(session, name) for name in modes.lows}
    hook = session.slot("high").ledger
    session.pause("high")
    for name in modes.lows:
        session.slot(name).rules.hold = 0
        session.slot(name).rules.gate = 0
    alone_low, a_request = _alone_low(earlier, _low_alone(session, modes.lows), found.below)
    row: dict[str, Any] = {"high": high, "low": ",".join(lows), "think_ms": think_ms}
    row |= _modes(session, modes, found, a_request)
    row["low_alone_per_s"] = alone_low
    row["ledger"] = {name: {k: after[name][k] - before[name][k] for k in after[name]} for name in modes.lows}
    said = dial.slowdown(0)
    row["dial"] = {"slowdown": said.value_ppm / 1e6 if said else None, "boldness": dial.boldness_ppm(0) / 1e6}
    row["low_longest_ms"] = [_longest(session, name) / 1e6 for name in modes.lows]
    row["ns_a_launch"] = hook.hook_ns / hook.hooked if hook.hooked else None
    asked = sum(each["asked"] for each in row["ledger"].values())
    row["ask_ns"] = sum(each["asked_ns"] for each in row["ledger"].values()) / asked if asked else None
    return row


def choose(session: Session, lows: list[str]) -> list[str]:
    """Let those below do these programs, ungated, and all others rest."""
    names = list(BELOW[: len(lows)])
    for name in ("high", *BELOW, *PLAIN):
        if name in session.programs and name not in names:
            session.pause(name)
    for name, program in zip(names, lows, strict=True):
        write(session.slot(name), Rules(gate=0))
        session.choose(name, program)
    return names


def _plain(session: Session, lows: list[str]) -> list[str]:
    """The second set of processes below, which rest, with the same programs before them."""
    plain = [name for name in PLAIN[: len(lows)] if name in session.programs]
    for name, program in zip(plain, lows[: len(plain)], strict=True):
        session.select(name, program)
    return plain


def _rounds(
    modes: Modes, seconds: float, longer: float, least_s: float, plan: Sequence[str], bare: Sequence[str]
) -> Round:
    """The fine modes for so many seconds; among them, evenly, the blocks without a gate."""
    found = Round()
    longer = max(longer, least_s / FINE["alone"])
    turns = max(8, round(seconds / sum(FINE[mode] for mode in plan) / longer))
    blocks = {round((n + 1) * turns / BLOCKS) - 1 for n in range(BLOCKS)}
    for turn in range(turns):
        for mode in (*plan[turn % len(plan) :], *plan[: turn % len(plan)]):
            found.add(mode, modes.stay(mode, FINE[mode] * longer))
        if turn not in blocks:
            continue
        for mode in bare:
            if mode in ("mps", "stream") and not modes.plain:
                continue
            found.beside.setdefault(mode, []).append(modes.stay("alone", FINE["alone"] * longer))
            block = max(BLOCK_S, SETTLE_S + 1.5 * least_s)
            found.add(mode, modes.stay(mode, block, int(SETTLE_S * 1e9)))
            modes.rest(mode, DRAIN_S)
        found.below.append(modes.below(SETTLE_S, BELOW_S))
    return found


def _modes(session: Session, modes: Modes, found: Round, a_request: Sequence[float]) -> dict[str, Any]:
    """What the table needs of each mode."""
    names = ("high", *modes.lows, *modes.plain)
    spans = {name: session.programs[name].spans(0) for name in names}
    row: dict[str, Any] = {}
    for mode, stretches in found.modes.items():
        row[mode] = quantiles(spans["high"], stretches)
        ratios = paired(spans["high"], stretches, found.against(mode))
        row[mode]["slowdown"] = float(median(ratios)) if ratios else None
        if len(ratios) > 1:
            q1, q3 = np.percentile(ratios, [25, 75])
            row[mode]["iqr"], row[mode]["rounds"] = float(q3 - q1), len(ratios)
        if mode in ("gate", "bypass"):
            row[mode]["p99_over_ms"] = tail(spans["high"], stretches, found.modes["alone"])
        over = sum(s.end - s.begin for s in stretches) / 1e9
        if mode in ("gate", "bypass", "shim", "alone"):
            done = [sum(s.launches[i] for s in stretches) / a_request[i] for i in range(len(modes.lows))]
        else:
            who = modes.lows if mode == "client" else modes.plain
            done = [sum(progress(spans[name], s.begin, s.end) for s in stretches) for name in who]
        row[mode]["low_per_s"] = [each / over for each in done]
        if "bypass" in found.modes and mode in ("shim", "alone", "gate"):
            over_bypass = paired(spans["high"], stretches, found.modes["bypass"])
            row[mode]["over_bypass"] = float(median(over_bypass)) if over_bypass else None
    return row


def _low_alone(session: Session, names: list[str]) -> tuple[list[float], list[float]]:
    """Of the batch programs with the high-priority one at rest (several: side by side): rates, launches a request."""
    time.sleep(0.1)
    begin = time.monotonic_ns()
    before = [_launched(session, name) for name in names]
    time.sleep(0.4)
    end = time.monotonic_ns()
    launched = [_launched(session, name) - was for name, was in zip(names, before, strict=True)]
    time.sleep(0.1)
    done = [progress(session.programs[name].spans(0), begin, end) for name in names]
    rates = [each / ((end - begin) / 1e9) for each in done]
    return rates, [max(1.0, n / each) if each else 1.0 for n, each in zip(launched, done, strict=True)]


def _alone_low(
    before: tuple[list[float], list[float]], after: tuple[list[float], list[float]], below: Sequence[Stretch]
) -> tuple[list[float], list[float]]:
    """Rates alone and launches a request: the means of before, after and the stretches between."""
    a_request = [(a + b) / 2 for a, b in zip(before[1], after[1], strict=True)]
    every = [before[0], after[0]]
    for stretch in below:
        seconds = (stretch.end - stretch.begin) / 1e9
        every.append([n / each / seconds for n, each in zip(stretch.launches, a_request, strict=True)])
    return [sum(rates) / len(rates) for rates in zip(*every, strict=True)], a_request


def _launched(session: Session, name: str) -> int:
    counts = session.slot(name).ledger
    return int(counts.kernels + counts.graphs)


def ledger(session: Session, name: str) -> dict[str, int]:
    """The counters of a program that the table or the reader of a row may want."""
    counts = session.slot(name).ledger
    row = {k: int(getattr(counts, k)) for k in ("kernels", "waits", "waited_ns", "harvested_ns", "delay_ns", "samples")}
    row |= {k: int(getattr(counts, k)) for k in ("asked", "asked_ns", "syncs")}
    return row | {f"reason{index}": int(counts.reasons[index]) for index in range(len(Reason))}


def _longest(session: Session, name: str) -> int:
    return max((int(k.longest_ns) for k in session.slot(name).kernels if k.id and k.launches), default=0)


def line(row: dict[str, Any]) -> str:
    """A pair in one line."""
    alone = row["alone"]
    parts = [f"{row['high']}+{row['low']} {row['think_ms']}ms alone {alone['p50_ms']:.2f}/{alone['p99_ms']:.2f}"]
    for mode in ("shim", "alone", "gate"):
        if row.get(mode, {}).get("over_bypass"):
            parts.append(f"{mode}/bypass {row[mode]['over_bypass']:.3f}")
    for mode in (mode for mode in ("gate", *BARE) if mode in row):
        got = row[mode]
        parts.append(
            f"{mode} {got['slowdown'] or 0:.3f}±{got.get('iqr', 0) / max(1, got.get('rounds', 1)) ** 0.5:.3f}"
            f"/{got['p99_ms'] / max(1e-9, alone['p99_ms']):.2f} low {'+'.join(f'{r:.1f}' for r in got['low_per_s'])}"
        )
    if over := row["gate"].get("p99_over_ms"):
        parts.append(f"p99 over alone {over[0]:.2f} to {over[1]:.2f} ms")
    low = "+".join(f"{rate:.1f}" for rate in row["low_alone_per_s"])
    parts.append(f"low alone {low} dial {row['dial']['slowdown'] or 0:.3f} b{row['dial']['boldness']:.2f}")
    parts.append(f"hook {row['ns_a_launch'] or 0:.0f} ask {row['ask_ns'] or 0:.0f} longest {row['low_longest_ms']}")
    counts = row["ledger"]["low"]
    parts.append(
        "reasons " + " ".join(f"{i}:{counts[f'reason{i}']}" for i in range(len(Reason)) if counts[f"reason{i}"])
    )
    return " | ".join(parts)
