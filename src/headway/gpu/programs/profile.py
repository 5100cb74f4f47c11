"""Reconstruct a program from its stored profile: its kernels, and the steps from one kernel to the next.

The order of launches is not stored. It is reconstructed by walking from kernel to kernel along the recorded steps, each
as often as it was seen in a request. This works for programs that do the same in each request.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import ProfileError
from headway.gpu.model.kernel import Kernel
from headway.gpu.model.program import Launch, Program

REQUESTS = 8
MOST_LAUNCHES = 20_000
_MASK = (1 << 64) - 1
Row = Mapping[str, Any]


def mix(a: int, b: int) -> int:
    """Return the key of a step: kernel ``b`` after kernel ``a``. The same as in the shim."""
    x = (a * 0x9E3779B97F4A7C15 & _MASK) ^ (b + 0x2545F4914F6CDD1D & _MASK)
    x ^= x >> 29
    x = x * 0xBF58476D1CE4E5B9 & _MASK
    x ^= x >> 32
    return x or 1


def from_profile(name: str, kernels: Sequence[Row], steps: Sequence[Row]) -> Program:
    """Return the program that the tables of a profile describe."""
    try:
        known = {int(str(row["id"]), 16): row for row in kernels if int(row["work_ns"]) > 0}
        stored = {int(str(row["key"]), 16): row for row in steps if int(row["samples"]) > 0}
        return Program(name, _kernels(known), tuple(_walk(list(known), known, _edges(known, stored))))
    except (KeyError, TypeError, ValueError) as problem:
        raise ProfileError(f"profile of {name}: its tables are not understood ({problem!r})") from None


def _kernels(known: Mapping[int, Row]) -> tuple[Kernel, ...]:
    return tuple(
        Kernel(str(row.get("name", f"{number:x}")), int(row["blocks"]), int(row["per_sm"]), int(row["kind"]))
        for number, row in known.items()
    )


def _edges(known: Mapping[int, Row], stored: Mapping[int, Row]) -> dict[int, dict[int, Row]]:
    """Return by kernel the kernels that follow it, with the step of each."""
    edges: dict[int, dict[int, Row]] = defaultdict(dict)
    for before in (0, *known):
        for after in known:
            if (row := stored.get(mix(before, after))) is not None:
                edges[before][after] = row
    if not edges:
        raise ValueError("no step belongs to its kernels")
    return edges


def _walk(order: list[int], known: Mapping[int, Row], edges: Mapping[int, Mapping[int, Row]]) -> list[Launch]:
    waits = sum(int(row["samples"]) for rows in edges.values() for row in rows.values() if int(row["waits"]))
    portion = min(1.0, REQUESTS / waits) if waits else 1.0
    left = {
        (before, after): max(1.0, int(row["samples"]) * portion)
        for before, rows in edges.items()
        for after, row in rows.items()
    }
    launches: list[Launch] = []
    at, gap, ended = _first_kernel(edges), 1, 0
    while at in edges and len(launches) < MOST_LAUNCHES and ended < REQUESTS:
        after = max(edges[at], key=lambda kernel: left[at, kernel])
        if left[at, after] <= 0 and ended:
            break
        left[at, after] -= 1
        row = edges[at][after]
        waiting = bool(int(row["waits"]))
        launches.append(Launch(order.index(after), max(1, gap), max(1, int(known[after]["work_ns"])), waiting))
        ended += waiting
        gap = int(row["think_ns"]) if waiting else int(row["gap_ns"])
        at = after
    return _whole_requests(launches)


def _first_kernel(edges: Mapping[int, Mapping[int, Row]]) -> int:
    """Return the kernel to start from: the most frequent one that the program waits after, where a request starts."""
    ends = {after: int(row["samples"]) for rows in edges.values() for after, row in rows.items() if int(row["waits"])}
    inside = [kernel for kernel in ends if kernel in edges]
    return max(inside, key=lambda kernel: ends[kernel]) if inside else next(iter(edges))


def _whole_requests(launches: list[Launch]) -> list[Launch]:
    """Return the launches up to the last wait; the first request gets the gap that the others begin with."""
    last = max((at for at, launch in enumerate(launches) if launch.waits), default=len(launches) - 1)
    kept = launches[: last + 1]
    heads = [kept[at + 1].gap for at, launch in enumerate(kept[:-1]) if launch.waits]
    if heads:
        kept[0] = kept[0]._replace(gap=heads[0])
    return kept
