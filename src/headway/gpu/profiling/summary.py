"""Summary of a kernel trace: how busy the GPU was, a histogram of its gaps, and the kernels by total time.

Busy means that at least one kernel or graph ran; copies do not count, they leave the multiprocessors free. A gap is
idle time between two kernels. Harvestable is the idle time in gaps that are longer than the cost of a switch.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.gpu.control.dial import Dial
from headway.gpu.programs.trace import KernelTrace
from headway.units import MICROSECOND, MILLISECOND, SECOND

COPY = 3
THRESHOLD_NS = Dial().switch_ns
"""Cost of a switch to another program's kernel, as in the dial: a shorter gap cannot be filled."""
COARSE_THRESHOLD_NS = 500_000
"""The same without MPS, where a fill costs two context switches."""
EDGES_NS = (
    *(0, 1 * MICROSECOND, 3 * MICROSECOND, 10 * MICROSECOND, 30 * MICROSECOND, 100 * MICROSECOND, 300 * MICROSECOND),
    *(1 * MILLISECOND, 3 * MILLISECOND, 10 * MILLISECOND, 30 * MILLISECOND, 100 * MILLISECOND),
)
_IDENTIFIER = re.compile(r"\d+")
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GapBin:
    """Gaps of ``from_ns`` to below ``to_ns``; 0: no upper limit. ``share`` is of all idle time."""

    from_ns: int
    to_ns: int
    gaps: int
    idle_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class KernelUse:
    """All launches of one kernel. ``share`` is of the GPU time of all kernels."""

    name: str
    kind: int
    count: int
    total_ns: int
    share: float
    mean_ns: int
    longest_ns: int
    blocks: int
    per_sm: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Shares are of the time from the first kernel's start to the last one's end."""

    span_ns: int
    launches: int
    launches_per_s: float
    waits: int
    waits_per_s: float
    busy_share: float
    idle_share: float
    harvestable_share: float
    threshold_ns: int
    without_mps_share: float
    """The harvestable share without MPS."""
    gaps: list[GapBin]
    kernels: list[KernelUse]

    def shares(self) -> dict[str, float]:
        """Return the shares that the store keeps."""
        keys = ("busy_share", "idle_share", "launches_per_s", "harvestable_share")
        return {key: getattr(self, key) for key in keys}


def summarise(trace: KernelTrace, threshold_ns: int = THRESHOLD_NS) -> Summary:
    """Return the summary of a trace; kernels with the most total time come first."""
    runs = trace.kind != COPY
    start, end = trace.start_ns[runs].astype(np.int64), trace.end_ns[runs].astype(np.int64)
    idle = gaps_of(start, end)
    span = int(end.max() - start.min()) if len(start) else 0
    whole = max(1, span)
    waits = int(np.count_nonzero(trace.wait_ns))
    idle_ns = int(idle.sum())
    return Summary(
        span_ns=span,
        launches=len(trace.launch_ns),
        launches_per_s=round(len(trace.launch_ns) * SECOND / whole, 3) if span else 0.0,
        waits=waits,
        waits_per_s=round(waits * SECOND / whole, 3) if span else 0.0,
        busy_share=round((span - idle_ns) / whole, 6),
        idle_share=round(idle_ns / whole, 6),
        harvestable_share=round(int(idle[idle >= threshold_ns].sum()) / whole, 6),
        threshold_ns=threshold_ns,
        without_mps_share=round(int(idle[idle >= COARSE_THRESHOLD_NS].sum()) / whole, 6),
        gaps=histogram(idle),
        kernels=_uses(trace),
    )


def gaps_of(start: Ints, end: Ints) -> Ints:
    """Return the idle time before each kernel that started on an idle GPU."""
    order = np.argsort(start, kind="stable")
    until = np.maximum.accumulate(end[order])
    between: Ints = start[order][1:] - until[:-1]
    return between[between > 0]


def histogram(gaps: Ints, edges: Sequence[int] = EDGES_NS) -> list[GapBin]:
    """Count gaps by length; every gap is in one bin."""
    place = np.searchsorted(np.asarray(edges), gaps, side="right") - 1
    whole = max(1, int(gaps.sum()))
    bins = []
    for index, edge in enumerate(edges):
        held = gaps[place == index]
        upper = edges[index + 1] if index + 1 < len(edges) else 0
        bins.append(GapBin(edge, upper, len(held), int(held.sum()), round(int(held.sum()) / whole, 6)))
    return bins


def _uses(trace: KernelTrace) -> list[KernelUse]:
    names, first, place = np.unique(trace.kernel, return_index=True, return_inverse=True)
    took = (trace.end_ns - trace.start_ns).astype(np.int64)
    count = np.bincount(place, minlength=len(names))
    total = np.zeros(len(names), np.int64)
    longest = np.zeros(len(names), np.int64)
    np.add.at(total, place, took)
    np.maximum.at(longest, place, took)
    whole = max(1, int(total[trace.kind[first] != COPY].sum()))
    uses = [
        KernelUse(
            name=str(names[index]),
            kind=int(trace.kind[at]),
            count=int(count[index]),
            total_ns=int(total[index]),
            share=round(int(total[index]) / whole, 6) if int(trace.kind[at]) != COPY else 0.0,
            mean_ns=int(total[index]) // max(1, int(count[index])),
            longest_ns=int(longest[index]),
            blocks=int(trace.blocks[at]),
            per_sm=int(trace.per_sm[at]),
        )
        for index, at in enumerate(first)
    ]
    return sorted(uses, key=lambda use: (-use.total_ns, use.name))


def readable(name: str) -> str:
    """Return a kernel's name for people: of a mangled one the scopes and the function, without the parameters."""
    if not name.startswith("_Z"):
        return name
    mangled, _, shape = name.partition(" ")
    at = 3 if mangled.startswith("_ZN") else 2
    parts = []
    while digits := _IDENTIFIER.match(mangled, at):
        length = int(digits[0])
        parts.append(mangled[digits.end() : digits.end() + length])
        at = digits.end() + length
    scopes = [part for part in parts if part and not part.startswith("_GLOBAL__N_")]
    return " ".join(filter(None, ("::".join(scopes) or mangled, shape)))
