"""Reader of the shim's recordings: the binary file of ``native/trace.h``, as arrays.

Launches, waits and gated intervals are in the machine's monotonic clock. CUPTI's activities have their own clock and
are converted here, by the pairs of clock readings that the shim took at the start and at the end.
"""

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import ProfileError

Rows = NDArray[Any]

MAGIC = b"HDWTRACE"
VERSION = 1
ABOUT, LAUNCHES, WAITS, GATES, KERNELS, ACTIVITIES, NAMES, CLOCKS, STEPS = range(1, 10)

_HEAD = struct.Struct("<8sII")
_SECTION = struct.Struct("<IIQ")
_SPAN = np.dtype([("begin_ns", "<i8"), ("end_ns", "<i8"), ("reason", "<u4"), ("thread", "<u4")])
_DTYPES = {
    LAUNCHES: np.dtype([("kernel", "<u8"), ("launch_ns", "<i8"), ("kind", "<u4"), ("thread", "<u4")]),
    WAITS: _SPAN,
    GATES: _SPAN,
    KERNELS: np.dtype(
        [
            *(("id", "<u8"), ("kind", "<u4"), ("blocks", "<u4"), ("per_sm", "<u4"), ("spare", "<u4")),
            *(("work_ns", "<i8"), ("longest_ns", "<i8"), ("samples", "<u8"), ("name", "S112")),
        ]
    ),
    ACTIVITIES: np.dtype(
        [
            *(("start_ns", "<u8"), ("end_ns", "<u8"), ("correlation", "<u4"), ("stream", "<u4")),
            *(("name", "<u4"), ("kind", "<u4"), ("grid", "<i4", 3), ("block", "<i4", 3), ("bytes", "<u8")),
        ]
    ),
    CLOCKS: np.dtype([("monotonic_ns", "<i8"), ("cupti_ns", "<u8")]),
    STEPS: np.dtype(
        [
            *(("key", "<u8"), ("gap_ns", "<i8"), ("think_ns", "<i8"), ("slack_ns", "<i8")),
            *(("samples", "<u4"), ("waits", "<u4")),
        ]
    ),
}


@dataclass(frozen=True)
class Recorded:
    """The recording of one process. ``activities`` is empty where there was no CUPTI."""

    process: int
    about: dict[str, str]
    launches: Rows
    waits: Rows
    gates: Rows
    kernels: Rows
    activities: Rows
    steps: Rows
    names: list[str] = field(default_factory=list)

    def number(self, key: str) -> int:
        """Return a number of its header; 0 where there is none."""
        text = self.about.get(key, "")
        return int(text) if text.isdigit() else 0


def read(path: Path) -> Recorded:
    """Return the recording in a file; raise ProfileError where it is truncated or of another version."""
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise ProfileError(f"{path}: cannot be read ({problem.strerror or problem})") from None
    if len(content) < _HEAD.size or content[:8] != MAGIC:
        raise ProfileError(f"{path}: is not a trace of headway's shim")
    _, version, process = _HEAD.unpack_from(content)
    if version != VERSION:
        raise ProfileError(f"{path}: is of version {version}, this headway reads {VERSION}; build the shim again")
    parts = _sections(path, content)
    text = bytes(parts[ABOUT]).decode(errors="replace")
    about = {key: value for key, _, value in (line.partition(" ") for line in text.splitlines())}
    names = bytes(parts[NAMES]).decode(errors="replace").split("\0")[:-1]
    return Recorded(
        process,
        about,
        np.sort(parts[LAUNCHES], order="launch_ns", kind="stable"),
        np.sort(parts[WAITS], order="begin_ns", kind="stable"),
        np.sort(parts[GATES], order="begin_ns", kind="stable"),
        parts[KERNELS],
        _aligned(parts[ACTIVITIES], parts[CLOCKS]),
        parts[STEPS],
        names,
    )


def _sections(path: Path, content: bytes) -> dict[int, Rows]:
    parts: dict[int, Rows] = {what: np.empty(0, dtype) for what, dtype in _DTYPES.items()}
    parts |= {what: np.empty(0, np.uint8) for what in (ABOUT, NAMES)}
    at = _HEAD.size
    while at < len(content):
        if at + _SECTION.size > len(content):
            raise ProfileError(f"{path}: is cut off at byte {at}")
        what, row_bytes, rows = _SECTION.unpack_from(content, at)
        at += _SECTION.size
        dtype = _DTYPES.get(what, np.dtype(np.uint8))
        if at + row_bytes * rows > len(content):
            raise ProfileError(f"{path}: is cut off in section {what}")
        if what in parts:
            if row_bytes != dtype.itemsize:
                raise ProfileError(f"{path}: section {what} has rows of {row_bytes} bytes, {dtype.itemsize} are known")
            parts[what] = np.frombuffer(content, dtype, rows, at)
        at += row_bytes * rows
    return parts


def _aligned(activities: Rows, clocks: Rows) -> Rows:
    """Return activities in the machine's clock, by a linear map through the first and the last pair of readings.

    Only start times are mapped. Durations stay as CUPTI has them: in a short recording, a reading that is late by a
    microsecond would stretch every one of them.
    """
    moved = activities.astype(
        [
            (name, "<i8") if name.endswith("_ns") else (name, activities.dtype[name])
            for name in activities.dtype.names or ()
        ]
    )
    if not len(clocks) or not len(activities):
        return moved
    ours, theirs = clocks["monotonic_ns"].astype(np.int64), clocks["cupti_ns"].astype(np.int64)
    span = int(theirs[-1] - theirs[0])
    drift = (int(ours[-1] - ours[0]) - span) / span if span > 0 else 0.0
    since = moved["start_ns"] - theirs[0]
    took = moved["end_ns"] - moved["start_ns"]
    moved["start_ns"] = ours[0] + since + np.rint(since * drift).astype(np.int64)
    moved["end_ns"] = moved["start_ns"] + took
    return moved
