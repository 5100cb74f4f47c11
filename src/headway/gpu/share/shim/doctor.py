"""Checks of a machine for GPU sharing: what was found, and what to do where something is missing."""

import ctypes.util
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headway.device import locks as places, mps as mps_, nvidia as gpus
from headway.device.nvidia import Gpu
from headway.errors import HeadwayError
from headway.gpu.share.block.block import SharedBlock
from headway.units import format_size

_FILES_BYTES = 1 << 20
"""Most that a broker writes into its folder: its state, its locks, and the logs of MPS."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    needed: bool = True
    """False: sharing works without it, only less well."""

    def row(self) -> dict[str, Any]:
        """Return the check as a row of the JSON output."""
        return asdict(self)


def checks(index: int | None, library: Callable[[], Path]) -> Iterator[Check]:
    """Yield all checks that need no program on the GPU."""
    gpu: Gpu | None = None
    try:
        gpu = gpus.chosen(index)
        size = f", {format_size(gpu.memory_bytes)}" if gpu.memory_bytes else ""
        yield Check("GPU", True, f"{gpu.index}: {gpu.name}{size}")
    except HeadwayError as problem:
        yield Check("GPU", False, "none", str(problem))
    yield _driver(gpu)
    yield _compute_mode(gpu)
    place = None
    try:
        place = places.place_of(gpu.index if gpu else index or 0)
        yield _memory(place)
    except HeadwayError as problem:
        yield Check("shared memory", False, "none", str(problem))
    yield _mps(place)
    compiler = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), "")
    yield Check(
        "compiler", bool(compiler), compiler or "none", "" if compiler else "install g++ or clang++", needed=False
    )
    try:
        yield Check("library", True, str(library()))
    except HeadwayError as problem:
        yield Check("library", False, "none", str(problem))
    if place is not None:
        yield _broker(place)


def _driver(gpu: Gpu | None) -> Check:
    library = ctypes.util.find_library("cuda") or ""
    if gpus.any_gpu():
        return Check("driver", True, f"not looked for ({gpus.ANY_GPU})")
    version = gpu.driver if gpu else ""
    if not library and not version:
        return Check("driver", False, "no libcuda.so.1", "install the NVIDIA driver, or pass it into the container")
    return Check("driver", bool(version), version or library, "" if version else "nvidia-smi does not answer")


def _compute_mode(gpu: Gpu | None) -> Check:
    if gpu is None:
        return Check("compute mode", False, "unknown: there is no GPU", "the first line says why")
    mode = gpu.compute_mode
    fine = mode in ("Default", "Exclusive_Process")
    advice = "" if fine else "nvidia-smi -c DEFAULT lets several programs use the GPU"
    if mode == "Exclusive_Process":
        advice = "only under MPS can several programs use it: --mps on, or nvidia-smi -c DEFAULT"
    return Check("compute mode", fine, mode, advice)


def _memory(place: places.Place) -> Check:
    folder = place.folder
    free = shutil.disk_usage(folder).free
    fine = free > _FILES_BYTES
    advice = (
        "" if fine else f"a broker's files take {format_size(_FILES_BYTES)}: give it more (docker run --shm-size 256m)"
    )
    return Check("shared memory", fine, f"{folder}, {format_size(free)} free", advice)


def _mps(place: places.Place | None) -> Check:
    if (program := shutil.which(mps_.CONTROL)) is None:
        advice = (
            "without it only long gaps are filled; it comes with the driver (in a container: mount it, or its pipe)"
        )
        return Check("MPS", False, f"{mps_.CONTROL} is not installed", advice, needed=False)
    running = mps_.running(place) if place is not None else None
    if running is None:
        return Check("MPS", True, f"{program}; none runs, headway share run starts one", needed=False)
    return Check("MPS", True, f"runs at {running.pipe}{' (headway started it)' if running.owned else ''}", needed=False)


def _broker(place: places.Place) -> Check:
    try:
        if not places.held(place.lock):
            stale = [path for path in places.checked(place).leftovers() if path not in (place.lock, place.users)]
            if not stale:
                return Check("broker", True, "none runs")
            names = ", ".join(path.name for path in stale)
            return Check("broker", False, f"ended without cleaning up: {names}", "headway share stop clears them")
        block = SharedBlock.open(place.block)
    except HeadwayError as problem:
        return Check("broker", False, str(place.block), str(problem))
    try:
        version, broker = block.header.version, block.header.broker
    finally:
        block.close()
    own = "" if os.access(place.block, os.W_OK) else "it belongs to another user"
    return Check("broker", not own, f"process {broker}, block {place.block} of version {version}", own)
