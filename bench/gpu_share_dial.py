"""Pairs under the dial, with the slow-down from outside beside the dial's own: resumable, one line of JSON a pair.

    scripts/gpu-share known new [--state FOLDER] [--out FOLDER] [--budget SECONDS] [--slo 1.05,1.2,1.02] [--sms 30]

A pair is played for some tens of seconds. Four fifths of the time are under headway's gate and dial, which has never
met the pair; for a fifth the programs below are held, and the program above is alone, in turns of two seconds, or of
0.6 where the processor is the bound. What it takes then is compared with what like steps take under the gate just
before and after, by the program's own clock: steps whose processor took about as long, because it is slow and fast by
turns on a shared machine. Energy is the driver's counter. Further aims are told to the same dial, in the same
processes; each is a row. ``--sms``: the programs below have so much of the SMs. What MPS and time slicing make of the
same pairs: bench/gpu_share_limits.py.
"""

import ast
import hashlib
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.gpu_share_aa import Power, alone as by_itself, begin, keep as by_itself_kept, steps
from bench.gpu_share_aa_ratio import Doubles, Longs, Steps, cycle_windows, paced_values, split
from bench.gpu_share_client import DONE
from bench.gpu_share_measure import progress
from bench.gpu_share_rows import rows
from bench.gpu_share_session import BELOW, MS, Modes, Session, write
from headway.gpu.control.dial import MILLION, Dial
from headway.gpu.control.gate_rules import Rules
from headway.gpu.control.slowdown import Value, estimate
from headway.gpu.share.block import slot_contention
from headway.gpu.share.block.slot_contention import SlotContention


class Cycle(NamedTuple):
    """How long a pair is under the gate at a time, and alone; what comes first of that is left out."""

    gate_s: float
    alone_s: float
    drain_ns: int


BY_GPU = Cycle(1.6, 0.4, 160 * MS)
"""The GPU's clock takes a tenth of a second and more to follow what the GPU has to do."""
BY_PROCESSOR = Cycle(0.48, 0.12, 20 * MS)
"""The processor is fast and slow by turns, of a second or so."""
LAUNCHING = 0.6
"""Who launches for more of its time than this is bound by the processor, or nearly."""
LOOK_S = 0.4
FIRST_S = 10.0
LAST_S = 20.0
LOW_ALONE_S = 2.0
AGAIN_S = 10.0
"""So long each further aim is measured."""
AROUND_S = 8.0
"""A pair takes so many seconds besides the time under the dial: its programs are made and timed by themselves."""
CALLED = {"d50e1ce7c9": "27ce12071a"}
"""Builds whose rows have another name: that of this one was made from whole files, before they were moved."""
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


def cycle_of(session: Session) -> Cycle:
    """How the program above is measured, by what bounds it."""
    first = int(session.programs["high"].control[DONE])
    time.sleep(LOOK_S)
    found = steps(session, "high", first)
    launching = (found["launched"] - found["begin"]) / np.maximum(1, found["end"] - found["begin"])
    return BY_PROCESSOR if len(launching) and np.median(launching) > LAUNCHING else BY_GPU


def outside(found: Row, alone: Longs, drain_ns: int, first_ns: int, last_ns: int) -> Row:
    """The slow-down by the program's own clock between two times: like steps, alone against around.

    At one pace of the processor, times what those beside do to that pace. ``plain``: whatever the pace was.
    """
    mine = alone[(alone[:, 0] >= first_ns) & (alone[:, 1] <= last_ns)]
    every = Steps(found["begin"], found["end"], found["kind"]).cut(first_ns, last_ns)
    if len(mine) < 3 or not len(every.begin):
        return {}
    cpu = (found["launched"] - found["begin"])[np.searchsorted(found["begin"], every.begin)]
    values, plain, count = paced_values(every, cpu, cycle_windows(mine), split(every, mine, drain_ns))
    at_pace, processor, at_any = (_of_stretches(each, count) for each in (values, plain - values, plain))
    if at_pace is None or processor is None or at_any is None:
        return {}
    return {
        "value": at_pace[0] * processor[0],
        "half": float(np.hypot(at_pace[1], processor[1])),
        "stretches": len(values),
        "plain": at_any[0],
        "plain_half": at_any[1],
        "processor": processor[0],
    }


def _of_stretches(values: Doubles, count: int) -> tuple[float, float] | None:
    """The median of what stretches tell, and the half-width of its interval."""
    told = estimate([Value(float(value), count // max(1, len(values)), 0.0) for value in values])
    return (told.value_ppm / MILLION, (told.high_ppm - told.value_ppm) / MILLION) if told else None


def quantiles(found: Row, spans: Longs, skip_ns: int, of: str = "begin") -> Row:
    """p50, p95 and p99 of the steps that lie in the spans, in milliseconds."""
    took = [
        (found["end"] - found[of])[(found["begin"] >= a + skip_ns) & (found["end"] <= b)] for a, b in spans if b > a
    ]
    every = np.concatenate(took) if took else np.array([])
    if not len(every):
        return {}
    p50, p95, p99 = np.percentile(every, [50, 95, 99]) / 1e6
    return {"p50_ms": float(p50), "p95_ms": float(p95), "p99_ms": float(p99), "requests": len(every)}


def rate(session: Session, names: Sequence[str], first: Sequence[int], spans: Longs) -> list[float]:
    """Requests a second of each program below in the spans."""
    found = []
    for name, since in zip(names, first, strict=True):
        log = session.programs[name].spans(since)
        done = sum(progress(log, a, b) for a, b in spans)
        found.append(done / max(1e-9, float((spans[:, 1] - spans[:, 0]).sum()) / 1e9))
    return found


class Energy:
    """The driver's counter of energy, in joules; nan where there is none."""

    def __init__(self) -> None:
        try:
            import pynvml as nvml

            nvml.nvmlInit()
            card = nvml.nvmlDeviceGetHandleByIndex(0)
            self._read: Callable[[], float] = lambda: float(nvml.nvmlDeviceGetTotalEnergyConsumption(card)) / 1e3
            self._read()
        except Exception as problem:  # noqa: BLE001 - without energy the rest is measured all the same
            print(f"no energy: {problem!r}", flush=True)
            self._read = lambda: float("nan")

    def now(self) -> float:
        """The counter."""
        return self._read()


def begin_all(session: Session, wanted: Sequence[tuple[str, str]]) -> bool:
    """Let processes make their programs, all at once; whether each works on its own now."""
    for name, program in wanted:
        session.choose(name, program)
    made = [begin(session, name, program) for name, program in wanted]
    return all(made)


Aims = Sequence[tuple[float, float]]
"""Slow-downs aimed at, and for how many seconds, one after the other."""


def measure(session: Session, high: str, lows: list[str], aims: Aims, dial: Dial) -> list[Row]:
    """One pair: a row an aim; none where a program cannot be made."""
    below, energy = list(BELOW[: len(lows)]), Energy()
    for name in (name for name in session.programs if name not in below):
        session.pause(name)
    if not begin_all(session, list(zip(below, lows, strict=True))):
        return []
    time.sleep(0.3)
    low_first = [int(session.programs[name].control[DONE]) for name in below]
    joules = energy.now()
    low_alone = _span(LOW_ALONE_S)
    low_joules = energy.now() - joules
    if not begin(session, "high", high):
        return []
    made: list[Row] = []
    by_itself = rate(session, below, low_first, low_alone)
    cycle = cycle_of(session)
    modes = Told(session, "high", below, [], dial, contention=SlotContention(dial, {}))
    for slo, seconds in aims:
        dial.slo_ppm = round(slo * MILLION)
        first, held_ns = int(session.programs["high"].control[DONE]), dial.holds.held_ns
        gate, alone, used = _play(modes, seconds, energy, cycle)
        found = steps(session, "high", first)
        row: Row = {"high": high, "low": ",".join(lows), "slo": slo, "seconds": seconds, "dial": said(dial)}
        row |= {"build": build_id(), "told": modes.told, **_figures(found, gate, alone, cycle, begun=not made)}
        row["low_alone_per_s"], row["low_gate_per_s"] = by_itself, rate(session, below, low_first, late_part(gate))
        row["energy"] = energy_ratio(
            used, low_joules, (_count(found, gate), _count(found, alone)),
            [(of_all * float((gate[:, 1] - gate[:, 0]).sum()) / 1e9, each * LOW_ALONE_S)
             for of_all, each in zip(rate(session, below, low_first, gate), by_itself, strict=True)],
        )  # fmt: skip
        row["held"] = (dial.holds.held_ns - held_ns) / float((gate[:, 1] - gate[:, 0]).sum())
        row["reasons"] = [[int(each) for each in session.slot(name).ledger.reasons] for name in below]
        row["contention"] = [slot_contention.charged(session.slot(name))[:8] for name in below]
        modes.told = []
        made.append(row)
    for name in ("high", *below):
        write(session.slot(name), Rules(gate=0))
        session.pause(name)
        for kernel in session.slot(name).kernels:  # the next program above may not suffer from it
            kernel.contention_ppm = 0
    return made


def late_part(spans: Longs) -> Longs:
    """The last 20 s, or of a shorter time the last two thirds: when the dial has come near its aim."""
    begin_ns, end_ns = int(spans[0, 0]), int(spans[-1, 1])
    return spans[spans[:, 0] >= end_ns - min(int(LAST_S * 1e9), (end_ns - begin_ns) * 2 // 3)]


def build_id() -> str:
    """A digest of what is measured: rows of one table are of one build."""
    files = (path for room in ("control", "model") for path in Path("src/headway/gpu", room).glob("*.py"))
    deciding = {statement for path in files for statement in statements(path.read_text(encoding="utf-8"))}
    native = b"".join(path.read_bytes() for path in sorted(Path("native").glob("*.[ch]*")))
    found = hashlib.sha256("\n".join(sorted(deciding)).encode() + native).hexdigest()[:10]
    return CALLED.get(found, found)


def statements(source: str) -> set[str]:
    """What a module says, in whichever file that stands: all but its docstring and what it imports."""
    lines, found = source.splitlines(), set()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Import | ast.ImportFrom) and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
            found.add("\n".join(lines[first - 1 : node.end_lineno]))
    return found


def energy_ratio(
    used: tuple[float, float], low_joules: float, highs: tuple[int, int], lows: list[tuple[float, float]]
) -> Row:
    """Joules shared over those that the same work takes with each program by itself, one after the other.

    ``used``: under the gate, and alone above. ``highs`` and ``lows``: requests shared, and in the time by itself; where
    several are below, they were timed together.
    """
    shared, above = used
    if not highs[1] or not all(by_itself for _, by_itself in lows) or isnan(shared):
        return {}
    together = sum(done / by_itself for done, by_itself in lows) / len(lows)
    apart = highs[0] * above / highs[1] + together * low_joules
    return {"shared_j": shared, "apart_j": apart, "ratio": shared / apart}


def _count(found: Row, spans: Longs) -> int:
    return sum(int(((found["end"] > a) & (found["end"] <= b)).sum()) for a, b in spans)


def _span(seconds: float) -> Longs:
    start = time.monotonic_ns()
    time.sleep(seconds)
    return np.array([[start, time.monotonic_ns()]])


def _play(modes: Told, seconds: float, energy: Energy, cycle: Cycle) -> tuple[Longs, Longs, tuple[float, float]]:
    """Play the pair; return the stretches under the gate, and alone, and the joules of both."""
    gate, alone, joules = [], [], {"gate": 0.0, "alone": 0.0}
    end = time.monotonic() + seconds
    modes.stay("alone", 0.5, 0)
    before = energy.now()
    while time.monotonic() < end:
        for mode, length, spans in (("gate", cycle.gate_s, gate), ("alone", cycle.alone_s, alone)):
            start = time.monotonic_ns()
            modes.stay(mode, length, 0)
            spans.append((start, time.monotonic_ns()))
            now = energy.now()
            joules[mode], before = joules[mode] + now - before, now
    return np.array(gate), np.array(alone), (joules["gate"], joules["alone"])


def _figures(found: Row, gate: Longs, alone: Longs, cycle: Cycle, *, begun: bool) -> Row:
    """What the program's own clock says: at first meeting (``begun``), at the end, and over all."""
    begin_ns, end_ns = int(gate[0, 0]), int(alone[-1, 1])
    row: Row = {"alone": quantiles(found, alone, cycle.drain_ns), "gate": quantiles(found, gate, 0)}
    if (found["due"] < found["begin"]).any():
        row["alone_from_arrival"] = quantiles(found, alone, cycle.drain_ns, "due")
        row["gate_from_arrival"] = quantiles(found, gate, 0, "due")
    late = late_part(gate)
    row["late"] = quantiles(found, late, 0)
    first_ns = begin_ns + int(FIRST_S * 1e9 * (1 + cycle.alone_s / cycle.gate_s))
    row["first"] = outside(found, alone, cycle.drain_ns, begin_ns, first_ns) if begun else {}
    row["last"] = outside(found, alone, cycle.drain_ns, int(late[0, 0]), end_ns)
    row["all"] = outside(found, alone, cycle.drain_ns, begin_ns, end_ns)
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
    if row["energy"]:
        parts.append(f"energy {row['energy']['ratio']:.3f}")
    return " | ".join(parts)


def pairs(state: Path, budget_s: float, every: Sequence[tuple[str, str]], given: Any, keep: Any) -> None:
    """Every pair that this build has not measured yet, within the budget."""
    from bench.gpu_share import CORES, library, sms

    file = state / "dialled.jsonl"
    aims = [(float(slo), given.pair_seconds if not at else AGAIN_S) for at, slo in enumerate(given.slo.split(","))]
    here = build_id()
    done = {(row["high"], row["low"], row["slo"], row.get("sms")) for row in rows(file) if row.get("build") == here}
    todo = [
        pair
        for pair in every
        if any((*pair, slo, given.sms) not in done for slo, _ in aims)
        and (not given.only or "+".join(pair) in given.only)
    ]
    if not todo:
        print("all pairs are there")
        return
    end = time.monotonic() + budget_s
    with Session(state / "pairs", library(state), sms(), client="bench.gpu_share_aa_client") as session:
        start_all(session, todo, CORES, dict.fromkeys(BELOW, given.sms))
        Power(state / "power.jsonl").start()
        print(f"build {here}: ready, {end - time.monotonic():.0f} s left, {len(todo)} to do", flush=True)
        for high, low in todo:
            if time.monotonic() + sum(seconds for _, seconds in aims) + AROUND_S > end:
                print("the budget is spent; again to go on", flush=True)
                break
            for row in measure(session, high, low.split(","), aims, Dial()):
                keep(file, {**row, "sms": given.sms}, line(row))
            print(f"{end - time.monotonic():.0f} s left", flush=True)


def alone_for_long(state: Path, budget_s: float, every: Sequence[tuple[str, str]], given: Any, keep: Any) -> None:
    """Every program above that is not there yet, alone with the hooks for ``--pair-seconds``, within the budget."""
    from bench.gpu_share import CORES, library, sms

    file, end = state / "alone.jsonl", time.monotonic() + budget_s
    done = {row["program"] for row in rows(file)}
    todo = [name for name in dict.fromkeys(high for high, _ in every) if name not in done]
    todo = [name for name in todo if not given.only or name in given.only.split(";")]
    if not todo:
        print("all programs are there")
        return
    with Session(state / "alone", library(state), sms(), client="bench.gpu_share_aa_client") as session:
        session.start("high", CORES["high"], 0, todo)
        session.ready()
        Power(state / "power.jsonl").start()
        for program in todo:
            if time.monotonic() + given.pair_seconds + 5 > end:
                print("the budget is spent; again to go on", flush=True)
                return
            if (found := by_itself(session, program, given.pair_seconds)) is None:
                continue
            spans = np.array([[found["begin"][0], found["end"][-1]]])
            row: Row = {"program": program, "seconds": given.pair_seconds, "build": build_id()}
            row |= quantiles(found, spans, 0)
            row["launching"] = float(np.median((found["launched"] - found["begin"]) / (found["end"] - found["begin"])))
            if (found["due"] < found["begin"]).any():
                row["from_arrival"] = quantiles(found, spans, 0, "due")
            by_itself_kept(state, program, found, None)
            with tarfile.open(state / "alone.tar.gz", "w:gz", compresslevel=1) as all_:
                for each in sorted(state.glob("*.npz")):
                    all_.add(each, each.name)
            keep(file, row, f"{program}: {row['p50_ms']:.3f} ms, p99 {row['p99_ms']:.3f}, {row['requests']} requests")


def start_all(
    session: Session, todo: Sequence[tuple[str, str]], cores: Mapping[str, int], names: Mapping[str, int]
) -> None:
    """Start the program above and processes for those below, all at once; ``names``: each with its share of the SMs.

    The last figure of a name says which of the programs below it is for: ``low``, ``low2``, ``plain30-2``.
    """
    session.start("high", cores.get("high", 2), 0, sorted({high for high, _ in todo}))
    lows = [low.split(",") for _, low in todo]
    for name, percent in names.items():
        place = int(name[-1]) - 1 if name[-1] in "23" else 0
        if mine := sorted({low[place] for low in lows if len(low) > place}):
            session.start(name, cores.get(name, 10 + 2 * place), 5, mine, percent)
    session.ready()
