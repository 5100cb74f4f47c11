"""Join of the shim's launches with CUPTI's activities: when each kernel started and ended on the GPU.

CUPTI numbers the calls of the driver (the correlation): all kernels of a CUDA graph have one number, and numbers grow
in the order of the calls. So the nth launch is the nth number. Where the counts differ, because a kernel had not ended
or a launch was not seen, names and grids are aligned.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.gpu.profiling.recording import Recorded, Rows

KERNEL, GRAPH, COPY = 1, 2, 3
CUPTI_COPY, CUPTI_KERNEL = 1, 10
_AHEAD = 64
"""How far ahead a match is searched for, where the next entries differ."""
_NAME_LENGTH = 60
"""Length of a kernel's name in the shim's tables; its grid follows."""
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Joined:
    """Start and end of each launch on the GPU; -1 where they are not known."""

    start_ns: Ints
    end_ns: Ints
    counted: int
    """Launches of kernels and graphs that CUPTI counted."""
    matched: int
    """Of those, the ones that were matched with a launch."""


def join(recorded: Recorded) -> Joined:
    """Join the launches and activities of one process."""
    launches = recorded.launches
    start = np.full(len(launches), -1, np.int64)
    end = np.full(len(launches), -1, np.int64)
    positions = np.flatnonzero(launches["kind"] != COPY)
    calls = _until(_calls(recorded), recorded.number("ended_ns"), len(positions))
    at_launch, at_call = _pairs(_texts_of_launches(recorded, positions), calls.texts)
    start[positions[at_launch]], end[positions[at_launch]] = calls.start_ns[at_call], calls.end_ns[at_call]
    _join_copies(recorded, calls, start, end)
    return Joined(start, end, len(calls.texts), len(at_launch))


@dataclass(frozen=True)
class _Calls:
    """Calls of the driver that ran kernels, in order: from the first kernel's start to the last one's end."""

    correlation: Ints
    start_ns: Ints
    end_ns: Ints
    texts: list[str]


def _calls(recorded: Recorded) -> _Calls:
    rows = recorded.activities
    kernels = rows[rows["kind"] == CUPTI_KERNEL]
    numbers, first, place = np.unique(kernels["correlation"], return_index=True, return_inverse=True)
    start = np.full(len(numbers), np.iinfo(np.int64).max, np.int64)
    end = np.full(len(numbers), np.iinfo(np.int64).min, np.int64)
    np.minimum.at(start, place, kernels["start_ns"])
    np.maximum.at(end, place, kernels["end_ns"])
    return _Calls(numbers.astype(np.int64), start, end, _texts(kernels[first], recorded.names))


def _until(calls: _Calls, ended_ns: int, seen: int) -> _Calls:
    """Return the calls up to the end of the recording: the program may launch while CUPTI is being closed."""
    before = np.flatnonzero(calls.start_ns < ended_ns) if ended_ns else np.arange(len(calls.texts))
    kept = max(seen, int(before[-1]) + 1 if len(before) else 0)
    return _Calls(calls.correlation[:kept], calls.start_ns[:kept], calls.end_ns[:kept], calls.texts[:kept])


def _texts(kernels: Rows, names: list[str]) -> list[str]:
    """Return the name and grid of each; computed once for each distinct kernel."""
    columns = [kernels["name"], *kernels["grid"].T, *kernels["block"].T, kernels["bytes"]]
    shapes = np.stack([column.astype(np.int64) for column in columns], axis=1)
    _, first, place = np.unique(shapes, axis=0, return_index=True, return_inverse=True)
    texts = [_text(row, names) for row in kernels[first]]
    return [texts[index] for index in place.ravel().tolist()]


def _text(row: Rows, names: list[str]) -> str:
    """Return a kernel's name and grid as in the shim's tables."""
    number = int(row["name"])
    name = names[number] if number < len(names) else "unnamed"
    grid, block = (",".join(str(int(value)) for value in row[which]) for which in ("grid", "block"))
    return f"{name[:_NAME_LENGTH]} ({grid})x({block})+{int(row['bytes'])}"


def _texts_of_launches(recorded: Recorded, positions: Ints) -> list[str | None]:
    """Return the name and grid of each launch; None for a graph or an unknown kernel: they match any call."""
    named = {
        int(row["id"]): row["name"].decode(errors="replace") or None
        for row in recorded.kernels
        if int(row["kind"]) == KERNEL
    }
    return [named.get(int(number)) for number in recorded.launches["kernel"][positions]]


def _pairs(launches: list[str | None], calls: list[str]) -> tuple[Ints, Ints]:
    """Return the positions of matching launches and calls, both ascending."""
    least = min(len(launches), len(calls))
    in_order = np.arange(least, dtype=np.int64)
    if len(launches) == len(calls) and all(_same(*pair) for pair in zip(launches, calls, strict=True)):
        return in_order, in_order
    pairs = _aligned(launches, calls)
    if len(pairs) < least // 2:  # the names cannot be compared: the order is all there is
        return in_order, in_order
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _same(launch: str | None, call: str) -> bool:
    return launch is None or launch == call


def _aligned(launches: list[str | None], calls: list[str]) -> list[tuple[int, int]]:
    """Return matching positions of two sequences; where they differ, skip as few entries as possible."""
    pairs = []
    i = j = 0
    while i < len(launches) and j < len(calls):
        if _same(launches[i], calls[j]):
            pairs.append((i, j))
            i, j = i + 1, j + 1
            continue
        for skip in range(1, _AHEAD):
            if j + skip < len(calls) and _same(launches[i], calls[j + skip]):
                j += skip
                break
            if i + skip < len(launches) and _same(launches[i + skip], calls[j]):
                i += skip
                break
        else:
            i, j = i + 1, j + 1
    return pairs


def _join_copies(recorded: Recorded, calls: _Calls, start: Ints, end: Ints) -> None:
    """Match each large copy that the shim saw with the first copy of its magnitude that started after its launch."""
    rows = recorded.activities
    copies = rows[(rows["kind"] == CUPTI_COPY) & ~np.isin(rows["correlation"], calls.correlation)]
    copies = np.sort(copies, order="correlation", kind="stable")
    named = {int(row["id"]): row["name"].decode(errors="replace") for row in recorded.kernels}
    at = 0
    for place in np.flatnonzero(recorded.launches["kind"] == COPY):
        launch = recorded.launches[place]
        wanted = named.get(int(launch["kernel"]), "")
        while at < len(copies) and copies[at]["start_ns"] < launch["launch_ns"]:
            at += 1
        for index in range(at, min(at + _AHEAD, len(copies))):
            magnitude = max(0, int(copies[index]["bytes"]).bit_length() - 1)
            if wanted.startswith("copy ") and wanted.endswith(f"of 2^{magnitude} bytes"):
                start[place], end[place] = copies[index]["start_ns"], copies[index]["end_ns"]
                at = index + 1
                break
