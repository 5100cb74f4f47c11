"""Join launches that the shim recorded with CUPTI's records: when each kernel began and ended on the GPU.

CUPTI numbers the calls of the driver (the correlation): all kernels of a CUDA graph have one number, and numbers grow
in the order of the calls. So the nth launch is the nth number. Where the two disagree in count, because a kernel had
not ended when the trace was taken or a launch was not seen, names and shapes say which belong together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.profiling.kernels_file import Recorded, Rows

KERNEL, GRAPH, COPY = 1, 2, 3
CUPTI_COPY, CUPTI_KERNEL = 1, 10
_AHEAD = 64
"""How far ahead a partner is looked for, where the next one is none."""
_NAME_LENGTH = 60
"""Of a kernel's name in the shim's tables; its shape follows."""
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Joined:
    """Start and end on the GPU of each launch, -1 where nothing is known of it."""

    start_ns: Ints
    end_ns: Ints
    counted: int
    """Launches of kernels and graphs that CUPTI counted."""
    matched: int
    """Of those the ones that a launch was found for."""


def join(recorded: Recorded) -> Joined:
    """Join the launches and activities of one process."""
    launches = recorded.launches
    start = np.full(len(launches), -1, np.int64)
    end = np.full(len(launches), -1, np.int64)
    own = np.flatnonzero(launches["kind"] != COPY)
    calls = _until(_calls(recorded), recorded.number("ended_ns"), len(own))
    mine, theirs = _pairs(_texts_of_launches(recorded, own), calls.texts)
    start[own[mine]], end[own[mine]] = calls.start_ns[theirs], calls.end_ns[theirs]
    _join_copies(recorded, calls, start, end)
    return Joined(start, end, len(calls.texts), len(mine))


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
    """Drop calls that came after the recording had ended: the program launches on while CUPTI is closed."""
    before = np.flatnonzero(calls.start_ns < ended_ns) if ended_ns else np.arange(len(calls.texts))
    kept = max(seen, int(before[-1]) + 1 if len(before) else 0)
    return _Calls(calls.correlation[:kept], calls.start_ns[:kept], calls.end_ns[:kept], calls.texts[:kept])


def _texts(kernels: Rows, names: list[str]) -> list[str]:
    """Return what each is called; there are few kernels and many launches of each."""
    columns = [kernels["name"], *kernels["grid"].T, *kernels["block"].T, kernels["bytes"]]
    shapes = np.stack([column.astype(np.int64) for column in columns], axis=1)
    _, first, place = np.unique(shapes, axis=0, return_index=True, return_inverse=True)
    texts = [_text(row, names) for row in kernels[first]]
    return [texts[index] for index in place.ravel().tolist()]


def _text(row: Rows, names: list[str]) -> str:
    """Return a kernel as the shim's tables have it."""
    number = int(row["name"])
    name = names[number] if number < len(names) else "unnamed"
    grid, block = (",".join(str(int(value)) for value in row[which]) for which in ("grid", "block"))
    return f"{name[:_NAME_LENGTH]} ({grid})x({block})+{int(row['bytes'])}"


def _texts_of_launches(recorded: Recorded, positions: Ints) -> list[str | None]:
    """Return what each launch is called; nothing for a graph and for a kernel without a row: they go with any call."""
    named = {
        int(row["id"]): row["name"].decode(errors="replace") or None
        for row in recorded.kernels
        if int(row["kind"]) == KERNEL
    }
    return [named.get(int(number)) for number in recorded.launches["kernel"][positions]]


def _pairs(mine: list[str | None], theirs: list[str]) -> tuple[Ints, Ints]:
    """Return the places of launches and calls that belong together, both ascending."""
    least = min(len(mine), len(theirs))
    in_order = np.arange(least, dtype=np.int64)
    if len(mine) == len(theirs) and all(_same(*pair) for pair in zip(mine, theirs, strict=True)):
        return in_order, in_order
    pairs = _aligned(mine, theirs)
    if len(pairs) < least // 2:  # the names cannot be compared: the order is all there is
        return in_order, in_order
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _same(mine: str | None, theirs: str) -> bool:
    return mine is None or mine == theirs


def _aligned(mine: list[str | None], theirs: list[str]) -> list[tuple[int, int]]:
    """Return pairs of indices that agree; where the two differ, leave out as few entries as possible."""
    pairs = []
    i = j = 0
    while i < len(mine) and j < len(theirs):
        if _same(mine[i], theirs[j]):
            pairs.append((i, j))
            i, j = i + 1, j + 1
            continue
        for skip in range(1, _AHEAD):
            if j + skip < len(theirs) and _same(mine[i], theirs[j + skip]):
                j += skip
                break
            if i + skip < len(mine) and _same(mine[i + skip], theirs[j]):
                i += skip
                break
        else:
            i, j = i + 1, j + 1
    return pairs


def _join_copies(recorded: Recorded, calls: _Calls, start: Ints, end: Ints) -> None:
    """Give each large copy that the shim saw the first copy of its magnitude that began after it was asked for."""
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
            if wanted == f"copy of 2^{magnitude} bytes":
                start[place], end[place] = copies[index]["start_ns"], copies[index]["end_ns"]
                at = index + 1
                break
