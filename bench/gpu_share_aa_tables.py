"""Tables of the A/A experiment: how far alone is from alone, and how far holds are from the program's own clock."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_aa_ratio import MS, WAYS, Estimate, Longs, Steps, drawn_holds, split

LENGTHS_MS: tuple[float, ...] = (0, 20, 50, 200, 1000)
"""Of a hold; 0: the drain and as long as four steps take."""
SHARES = (0.05, 0.2, 0.5)
SECONDS = (3, 10, 20)
DRAWS = 200
DRAIN_NS = 5 * MS
SETTLE_NS = 15 * MS
"""Of a long stretch alone: what comes first is left out."""
LONG, GATE, HOLD = range(3)


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
            yield from noise_of(path.stem, steps_of(loaded(path)))


def noise_of(program: str, steps: Steps, draws: int = DRAWS) -> Iterator[dict[str, Any]]:
    """Yield the rows of one program: nobody was below, so every ratio should be 1."""
    draw = np.random.default_rng(5)
    whole = int(steps.end[-1] - steps.begin[0])
    apart = int(np.median(np.diff(steps.begin)))
    for length in LENGTHS_MS:
        hold_ns = round(length * MS) or DRAIN_NS + 4 * apart
        for share in SHARES:
            for seconds in SECONDS:
                if seconds * 1_000 * MS > whole * 1.01 or seconds * 1_000 * MS * share < 2 * hold_ns:
                    continue
                found: dict[str, list[Estimate]] = {way: [] for way in WAYS}
                for _ in range(draws):
                    spare = max(1, whole - seconds * 1_000 * MS)
                    first = int(steps.begin[0]) + int(draw.integers(0, spare))
                    window = steps.cut(first, first + seconds * 1_000 * MS)
                    holds = drawn_holds(first, first + seconds * 1_000 * MS, hold_ns, share, draw)
                    where = split(window, holds, DRAIN_NS)
                    for way, estimate in WAYS.items():
                        found[way].append(estimate(window, holds, where))
                for way, values in found.items():
                    if row := _width(values):
                        settings = {"program": program, "step_ms": round(float(np.median(steps.took)) / MS, 3)}
                        settings |= {"hold_ms": round(hold_ns / MS, 1), "four_steps": int(not length)}
                        yield settings | {"held_share": share, "over_s": seconds, "way": way} | row


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
    others = np.concatenate((spans[spans[:, 2] == LONG][:, :2], dial_holds(found["said"], spans)))
    others = others[np.argsort(others[:, 0])]
    above, below = name.split("+")
    outside = own_clock(steps, spans)
    row = {"above": above, "below": below, "own_clock": round(outside[0], 4), "own_noise": round(outside[1], 4)}
    row["own_clock_p99"] = round(own_clock(steps, spans, 99)[0], 3)
    row["own_clock_from_due"] = round(own_clock(steps_of(found, "due"), spans)[0], 4)
    row["dial_mean"], row["dial_last"] = dial_said(found["said"], spans)
    for drain in (2, 5, 10):
        where = split(steps, holds, drain * MS, others)
        for way, estimate in WAYS.items():
            got = estimate(steps, holds, where)
            values = {"ratio": round(got.ratio, 4), "half": round(got.half, 4) if np.isfinite(got.half) else ""}
            yield row | {"drain_ms": drain, "way": way} | values | {"holds": got.holds, "steps": got.steps}


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
    ratios = [2 * _percentile(b, percentile) / (alone[i] + alone[i + 1]) for i, b in enumerate(beside)]
    fine = np.array([each for each in ratios if np.isfinite(each)])
    if len(fine) < 2:
        return float("nan"), float("nan")
    return float(np.median(fine)), float(1.96 * fine.std(ddof=1) / len(fine) ** 0.5)


def _inside(steps: Steps, start: int, end: int) -> Longs:
    mine = (steps.begin >= start) & (steps.end <= end)
    return (steps.end - steps.begin)[mine]


def _percentile(took: Longs, percentile: float) -> float:
    return float(np.percentile(took, percentile)) if len(took) else float("nan")
