"""Tables of the A/A experiment: how far alone is from alone, and how far holds are from the program's own clock."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_aa_ratio import MS, WAYS, Doubles, Estimate, Flags, Longs, Steps, drawn_holds, split, student
from headway.gpu.control.slowdown import FAR_REACH_NS, Hold, Step, value_of

LENGTHS_MS: tuple[float, ...] = (0, 20, 50, 100, 200)
"""Of a hold; 0: the drain and as long as four steps take."""
SHARE = 0.05
STRETCHES_MS: tuple[float, ...] = (200, 1500)
"""Of a stretch alone where half of the time is alone, as a measurement from outside may do it."""
SECONDS = (3, 10, 20)
DRAWS = 200
DRAIN_NS = 5 * MS
SETTLE_NS = 15 * MS
"""Of a long stretch alone: what comes first is left out."""
DRAINS_MS = (2, 5, 10, 40)
EDGE_NS = 500 * MS
INTO_MS = (0, 2, 5, 10, 20, 40, 80, 160, 400, 1500)
"""Since a hold began, or since it ended."""
REFERENCE_NS = 3_000 * MS
LONG, GATE, HOLD = range(3)
PACED_NS = 40 * MS


def loaded(path: Path) -> dict[str, Any]:
    """Return a recording, a column each."""
    with np.load(path) as kept:
        return {name: kept[name] for name in kept.files}


def steps_of(found: dict[str, Any], begin: str = "begin", key: str = "kind") -> Steps:
    """Return its steps; alike are those of one kind, or of as many launches."""
    return Steps(found[begin], found["end"], found[key])


def noise(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row a program, length and share of holds, time of looking, and way of comparing."""
    for path in sorted(folder.glob("*.npz")):
        if "+" not in path.stem:
            found = loaded(path)
            for key in ("kind", "launches") if len(set(found["kind"])) > 1 else ("kind",):
                yield from noise_of(path.stem, steps_of(found, key=key), key)


def noise_of(program: str, steps: Steps, key: str = "kind", draws: int = DRAWS) -> Iterator[dict[str, Any]]:
    """Yield the rows of one program: nobody was below, so every ratio should be 1."""
    draw = np.random.default_rng(5)
    whole = int(steps.end[-1] - steps.begin[0])
    apart = int(np.median(np.diff(steps.begin)))
    for length, share in (*((each, SHARE) for each in LENGTHS_MS), *((each, 0.5) for each in STRETCHES_MS)):
        hold_ns = round(length * MS) or DRAIN_NS + 4 * apart
        for seconds in SECONDS:
            over_ns = seconds * 1_000 * MS
            if over_ns > whole * 1.01 or over_ns * share < 2 * hold_ns:
                continue
            row = {"program": program, "step_ms": round(float(np.median(steps.took)) / MS, 3), "alike_by": key}
            row |= {"hold_ms": round(hold_ns / MS, 1), "four_steps": int(not length)}
            for way, values in _drawn(steps, over_ns, hold_ns, share, draw, draws).items():
                if width := _width(values):
                    yield row | {"held_share": share, "over_s": seconds, "way": way} | width


def _drawn(
    steps: Steps, over_ns: int, hold_ns: int, share: float, draw: np.random.Generator, draws: int
) -> dict[str, list[Estimate]]:
    """Return what each way says of holds drawn into a time drawn from the recording, again and again."""
    found: dict[str, list[Estimate]] = {way: [] for way in WAYS}
    spare = max(1, int(steps.end[-1] - steps.begin[0]) - over_ns)
    for _ in range(draws):
        first = int(steps.begin[0]) + int(draw.integers(0, spare))
        window = steps.cut(first, first + over_ns)
        holds = drawn_holds(first, first + over_ns, hold_ns, share, draw)
        where = split(window, holds, DRAIN_NS)
        for way, estimate in WAYS.items():
            found[way].append(estimate(window, holds, where))
    return found


def _width(values: list[Estimate]) -> dict[str, Any]:
    ratios = np.array([each.ratio for each in values])
    fine = np.isfinite(ratios)
    if fine.mean() < 0.9:
        return {}
    off = np.abs(ratios[fine] - 1)
    halves = np.array([each.half for each in values])[fine]
    known = np.isfinite(halves)
    return {
        "half_width_95": round(float(np.quantile(off, 0.95)), 4),
        "middle": round(float(np.median(ratios[fine])), 4),
        "covered": round(float((off[known] <= halves[known]).mean()), 3) if known.any() else "",
        "steps": round(float(np.median([each.steps for each in values]))),
    }


# --- pairs --------------------------------------------------------------------------------------------------------


def pairs(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row a pair, drain and way of comparing, beside what the program's own clock says."""
    for path in sorted(folder.glob("*+*.npz")):
        yield from pair_of(path.stem, loaded(path))


def pair_of(name: str, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of one pair."""
    steps, spans = steps_of(found), found["spans"]
    holds = spans[spans[:, 2] == HOLD][:, :2]
    others = _sorted(spans[spans[:, 2] == LONG][:, :2], dial_holds(found["said"], spans))
    above, below = name.split("+")
    outside = own_clock(steps, spans)
    row = {"above": above, "below": below, "own_clock": round(outside[0], 4), "own_noise": round(outside[1], 4)}
    row["own_clock_p99"] = round(own_clock(steps, spans, 99)[0], 3)
    row["own_clock_from_due"] = round(own_clock(steps_of(found, "due"), spans)[0], 4)
    edges = own_edges(steps, spans, split(steps, _sorted(holds, others), 0).beside)
    row |= {"own_edges": round(edges[0], 4), "own_edges_noise": round(edges[1], 4)}
    row["dial_mean"], row["dial_last"] = dial_said(found["said"], spans)
    for drain in DRAINS_MS:
        where = split(steps, holds, drain * MS, others)
        for way, estimate in WAYS.items():
            got = estimate(steps, holds, where)
            values = {"ratio": round(got.ratio, 4), "half": round(got.half, 4) if np.isfinite(got.half) else ""}
            yield row | {"drain_ms": drain, "way": way} | values | {"holds": got.holds, "steps": got.steps}


def _sorted(*spans: Longs) -> Longs:
    all_ = np.concatenate(spans)
    return all_[np.argsort(all_[:, 0])]


def dial_holds(said: Longs, spans: Longs) -> Longs:
    """Return when the dial held those below by itself; a change of mode ends it."""
    edges = [int(end) for _, end, _ in spans]
    held = []
    for at, line in enumerate(said):
        if line[1]:
            following = int(said[at + 1][0]) if at + 1 < len(said) else edges[-1]
            mode_ends = next((edge for edge in edges if edge > line[0]), following)
            held.append((int(line[0]), min(following, mode_ends)))
    return np.array(held, dtype=np.int64).reshape(-1, 2)


def dial_said(said: Longs, spans: Longs) -> tuple[float, float]:
    """Return the dial's slow-down, its mean over the time under the gate, and its last."""
    if not len(said):
        return float("nan"), float("nan")
    gates = spans[spans[:, 2] == GATE]
    looks = np.concatenate([np.arange(a, b, 10 * MS) for a, b, _ in gates])
    at = np.searchsorted(said[:, 0], looks, "right") - 1
    return round(float(said[at[at >= 0], 2].mean()) / 1e6, 4), round(float(said[-1, 2]) / 1e6, 4)


def own_clock(steps: Steps, spans: Longs, percentile: float = 50) -> tuple[float, float]:
    """Return the slow-down under the gate by the program's own clock, and the half-width of that.

    Each time under the gate against the mean of the long stretches alone before and after; the median of these ratios.
    """
    alone: list[float] = []
    beside: list[Longs] = []
    gathered: list[Longs] = []
    for start, end, code in spans:
        if code == LONG:
            alone.append(_percentile(_inside(steps, start + SETTLE_NS, end), percentile))
            if len(alone) > 1:
                beside.append(np.concatenate(gathered) if gathered else np.array([], np.int64))
            gathered = []
        elif code == GATE and alone:
            gathered.append(_inside(steps, start, end))
    return _middle([2 * _percentile(b, percentile) / (alone[i] + alone[i + 1]) for i, b in enumerate(beside)])


def own_edges(steps: Steps, spans: Longs, beside: Flags) -> tuple[float, float]:
    """Return the same by what lies within half a second of where a long stretch alone begins or ends."""
    found = []
    for start, end, _ in spans[spans[:, 2] == LONG]:
        inside = (steps.begin >= start + SETTLE_NS) & (steps.end <= end)
        ends_before = (steps.begin >= start - EDGE_NS) & (steps.end <= start)
        for there, alone in (
            (ends_before, inside & (steps.end <= start + EDGE_NS)),
            ((steps.begin >= end) & (steps.end <= end + EDGE_NS), inside & (steps.begin >= end - EDGE_NS)),
        ):
            found.append(_percentile(steps.took[beside & there], 50) / _percentile(steps.took[alone], 50))
    return _middle(found)


def _middle(ratios: list[float]) -> tuple[float, float]:
    fine = np.array([each for each in ratios if np.isfinite(each)])
    if len(fine) < 2:
        return float("nan"), float("nan")
    return float(np.median(fine)), float(student(len(fine)) * fine.std(ddof=1) / len(fine) ** 0.5)


def _inside(steps: Steps, start: int, end: int) -> Longs:
    mine = (steps.begin >= start) & (steps.end <= end)
    return (steps.end - steps.begin)[mine]


def _percentile(took: Longs | Doubles, percentile: float) -> float:
    return float(np.percentile(took, percentile)) if len(took) else float("nan")


# --- how quickly a step changes, and what the GPU drew ----------------------------------------------------------------


def pace(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row a program alone and way to compare, as the dial does: what drawn holds tell, which should be 1."""
    for path in sorted(path for path in folder.glob("*.npz") if "+" not in path.stem):
        found, draw = loaded(path), np.random.default_rng(1)
        names = ("begin", "end", "launches", "kind", "launched")
        steps = [
            Step(begin, end, launches, kind, cpu_ns=launched - begin)
            for begin, end, launches, kind, launched in zip(*(found[name].tolist() for name in names), strict=True)
        ]
        reach_ns = FAR_REACH_NS + 2 * PACED_NS
        begins = draw.integers(steps[0].begin_ns + reach_ns, steps[-1].end_ns - reach_ns, DRAWS).tolist()
        for paced in (False, True):
            mine = steps if paced else [step._replace(cpu_ns=0) for step in steps]
            holds = [Hold(begin, begin, begin + PACED_NS, far=paced) for begin in begins]
            values = [found.excess for hold in holds if (found := value_of(hold, mine)) is not None]
            row = {"program": path.stem, "at_one_pace": int(paced), "holds": len(values)}
            row["median"] = round(float(np.exp(np.median(values))), 4)
            low, high = np.exp(np.percentile(values, [5, 95]))
            yield row | {"deviation": round(float(np.std(values)), 4), "p5": round(low, 4), "p95": round(high, 4)}


def ramp(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row a pair and time since a hold began or ended: steps against those of holds near, which is alone."""
    for path in sorted(folder.glob("*+*.npz")):
        found = loaded(path)
        steps, spans = steps_of(found), found["spans"]
        above, below = path.stem.split("+")
        holds = _sorted(spans[spans[:, 2] != GATE][:, :2], dial_holds(found["said"], spans))
        logs, where = np.log(steps.took), split(steps, holds, SETTLE_NS)
        alone = _rolling(logs, steps.begin, where.hold >= 0)
        for since, edge in (("begin", holds[:, 0]), ("end", holds[:, 1])):
            last = np.searchsorted(edge, steps.begin, "right") - 1
            into = np.where(last >= 0, steps.begin - edge[np.maximum(last, 0)], -1)
            inside = (last >= 0) & (steps.end <= holds[np.maximum(last, 0), 1]) if since == "begin" else where.beside
            for first, after in pairwise(INTO_MS):
                mine = inside & (into >= first * MS) & (into < after * MS)
                if mine.sum() > 4:
                    ratio = round(float(np.exp(np.median((logs - alone)[mine]))), 4)
                    row = {"above": above, "below": below, "since_hold": since, "from_ms": first, "to_ms": after}
                    yield row | {"against_alone": ratio, "steps": int(mine.sum())}


def _rolling(values: Doubles, at: Longs, mine: Flags) -> Doubles:
    """Return at each time the median of the chosen values near it."""
    chosen, times = values[mine], at[mine]
    first = np.searchsorted(times, at - REFERENCE_NS)
    last = np.searchsorted(times, at + REFERENCE_NS)
    known = {(a, b): float(np.median(chosen[a:b])) for a, b in set(zip(first, last, strict=True)) if b > a}
    return np.array([known.get(each, np.nan) for each in zip(first, last, strict=True)])


def clocks(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row a recording: clocks, power and temperature while it was made, and how a step alone changed."""
    lines = [json.loads(line) for line in (folder / "power.jsonl").read_text().splitlines()]
    at = np.array([line["ns"] for line in lines])
    for path in sorted(folder.glob("*.npz")):
        found = loaded(path)
        mine = (at >= found["begin"][0]) & (at <= found["end"][-1])
        row: dict[str, Any] = {"recording": path.stem, "looks": int(mine.sum())}
        for name, unit in (("sm_mhz", 1), ("power_mw", 1000), ("celsius", 1)):
            values = np.array([line[name] for line in lines])[mine] / unit
            middles = (("least", values.min()), ("middle", np.median(values)), ("most", values.max()))
            row |= {f"{name.replace('_mw', '_w')}_{which}": round(float(value)) for which, value in middles}
        yield row | dict(zip(("step_ms_least", "step_ms_most"), by_second(found), strict=True))


def by_second(found: dict[str, Any]) -> tuple[float | str, float | str]:
    """Return the least and the greatest median of a second's steps of the commonest kind; of a pair, nothing."""
    if "spans" in found:
        return "", ""
    kinds, counts = np.unique(found["kind"], return_counts=True)
    mine = found["kind"] == kinds[counts.argmax()]
    begin, took = found["begin"][mine], (found["end"] - found["begin"])[mine] / MS
    seconds = (begin - begin[0]) // (1_000 * MS)
    medians = [float(np.median(took[seconds == each])) for each in np.unique(seconds)[:-1]]
    return round(min(medians), 3), round(max(medians), 3)
