"""Recordings of the shim for tests, made up: as the file has them, and as the reader gives them."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from headway.gpu.profiling import recording as kernels_file
from headway.gpu.profiling.recording import Recorded

KERNEL, GRAPH, COPY = 1, 2, 3
BLOCK = (128, 1, 1)
Launch = tuple[int, int, int]
"""(kernel, launch_ns, kind)."""
Activity = tuple[int, int, int, str]
"""(start_ns, end_ns, correlation, name)."""


def text_of(name: str, grid: int = 10) -> str:
    return f"{name} ({grid},1,1)x(128,1,1)+0"


def recorded(
    launches: list[Launch],
    activities: list[Activity],
    kernels: dict[int, tuple[int, str]],
    waits: list[tuple[int, int]] | None = None,
    **about: Any,
) -> Recorded:
    """Kernels are (kind, name) by their number; an activity named ``copy`` is a copy of 2 MiB."""
    dtypes = kernels_file._DTYPES
    names = sorted({name for *_, name in activities})
    rows = np.zeros(len(activities), dtypes[kernels_file.ACTIVITIES])
    for row, (start, end, correlation, name) in zip(rows, activities, strict=True):
        row["start_ns"], row["end_ns"], row["correlation"], row["name"] = start, end, correlation, names.index(name)
        row["kind"], row["grid"], row["block"] = (1 if name == "copy" else 10), (10, 1, 1), BLOCK
        row["bytes"] = 2 << 20 if name == "copy" else 0
    table = np.zeros(len(kernels), dtypes[kernels_file.KERNELS])
    for row, (number, (kind, name)) in zip(table, kernels.items(), strict=True):
        row["id"], row["kind"], row["name"], row["blocks"], row["per_sm"] = number, kind, name.encode(), 10, 2
    made = np.zeros(len(launches), dtypes[kernels_file.LAUNCHES])
    for row, (kernel, launch, kind) in zip(made, launches, strict=True):
        row["kernel"], row["launch_ns"], row["kind"] = kernel, launch, kind
    spans = np.zeros(len(waits or ()), dtypes[kernels_file.WAITS])
    for row, (begin, end) in zip(spans, waits or (), strict=True):
        row["begin_ns"], row["end_ns"] = begin, end
    told = {"sms": "132", "cupti": "stub" if activities else "", "why": "", **{k: str(v) for k, v in about.items()}}
    aligned = kernels_file._aligned(rows, np.zeros(0, dtypes[kernels_file.CLOCKS]))
    nothing = {what: np.zeros(0, dtypes[what]) for what in (kernels_file.GATES, kernels_file.STEPS)}
    gates, steps = nothing[kernels_file.GATES], nothing[kernels_file.STEPS]
    return Recorded(7, told, made, spans, gates, table, aligned, steps, names)


def section(what: int, row_bytes: int, rows: int, content: bytes) -> bytes:
    return struct.pack("<IIQ", what, row_bytes, rows) + content


def file_of(*sections: bytes, version: int = 1, magic: bytes = b"HDWTRACE", process: int = 7) -> bytes:
    return struct.pack("<8sII", magic, version, process) + b"".join(sections)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "trace.7"
    path.write_bytes(content)
    return path
