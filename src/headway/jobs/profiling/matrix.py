"""Make a profile from measured points: smooth noise, compute the memory axis, assemble the document.

A matrix must not fall with more CPUs. Where points do, they were measured again; what still falls is pooled, with error
bars as much wider as points were moved. Points within 3 % of the most, or within error bars of up to 10 %, are one
plateau: otherwise chance would decide which CPU count is the first to give all the speed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from headway.jobs.model.sensitivity import Profile
from headway.jobs.profiling.bandwidth import Storage
from headway.jobs.profiling.memory import Cache, columns
from headway.jobs.profiling.options import Options
from headway.jobs.profiling.search import unit
from headway.jobs.profiling.steady import monotone
from headway.units import REFERENCE_SPEED_PPM, parse_size

PLATEAU = 0.03
MOST_DOUBT = 0.10
_LEAST_ERROR = 0.002
_RANGE_COLUMNS = 5


@dataclass(frozen=True)
class Point:
    """Throughput at a CPU count; the error is half the width of its 95 % interval, as a share."""

    cpus: float
    per_second: float
    error: float
    steps: int
    seconds: float
    others_cpus: float = 0.0
    runs: int = 1

    def joined(self, other: "Point") -> "Point":
        """Join two measurements of the same, weighted by their errors; their distance is part of the error."""
        mine, theirs = _weight(self), _weight(other)
        mean = (self.per_second * mine + other.per_second * theirs) / (mine + theirs)
        apart = abs(self.per_second - other.per_second) / 2 / mean
        error = math.hypot(math.sqrt(1 / (mine + theirs)) / mean, apart)
        return replace(
            self,
            per_second=mean,
            error=error,
            steps=self.steps + other.steps,
            seconds=self.seconds + other.seconds,
            others_cpus=max(self.others_cpus, other.others_cpus),
            runs=self.runs + other.runs,
        )


@dataclass(frozen=True)
class Found:
    """All that was measured for one profile."""

    points: Sequence[Point]
    """Ascending, as they were measured."""
    checks: Sequence[Point]
    cache: Cache | None
    uncached: Point | None
    working_bytes: int
    means: str
    low: float
    high: float
    wall_s: float
    cpu_s: float
    run_s: float
    """What a run took on average."""
    runs: int
    storage: Storage
    memory_bytes_per_second: float


def _weight(point: Point) -> float:
    return (point.per_second * max(point.error, _LEAST_ERROR)) ** -2


def repaired(points: Sequence[Point]) -> list[Point]:
    """Return the points so that none falls with more CPUs, the fastest as one plateau, errors as much wider."""
    weights = [_weight(point) for point in points]
    fitted = monotone([point.per_second for point in points], weights)
    doubts = [min(MOST_DOUBT, max(PLATEAU, math.hypot(point.error, points[-1].error))) for point in points]
    first = next(index for index, value in enumerate(fitted) if value >= (1 - doubts[index]) * fitted[-1])
    most = float(np.average(fitted[first:], weights=weights[first:]))
    fitted[first:] = [most] * (len(fitted) - first)
    return [
        replace(point, per_second=value, error=math.hypot(point.error, point.per_second / value - 1))
        for point, value in zip(points, fitted, strict=True)
    ]


def rate_at(points: Sequence[Point], cpus: float) -> float:
    """Return the throughput between points, as a profile has it: straight lines, from nothing at no CPU."""
    return float(np.interp(cpus, [0.0, *(point.cpus for point in points)], [0.0, *(p.per_second for p in points)]))


def wanted_cpus(document: dict[str, Any]) -> float:
    """Return the fewest CPUs a GPU with all the speed."""
    column = [row[-1] for row in document["throughput"]]
    return float(document["cpus"][column.index(column[-1])])


# --- the document ---------------------------------------------------------------------------------------------------


def document_of(options: Options, measured: Found, parts: dict[str, Any]) -> dict[str, Any]:
    """Return the profile as it is written, checked by the rules that a profile must keep."""
    points = repaired(measured.points)
    sizes = _sizes(options, measured, points)
    table = _throughput(options, measured, points, [parse_size(size) for size in sizes])
    most = table[-1][-1]
    cache = measured.cache
    document: dict[str, Any] = {
        "model": options.name,
        "source": f"measured {datetime.now(UTC):%Y-%m-%d}: {' '.join(options.command)}",
        "reference": {"cpus": _short(points[-1].cpus / options.gpus), "memory": sizes[-1]},
        "cpus": [_short(point.cpus / options.gpus) for point in points],
        "memory": sizes,
        "throughput": [[max(1e-6, round(cell / most, 6)) for cell in row] for row in table],
        "reads_per_second": round(most * cache.bytes_per_sample / options.gpus) if cache else 0,
        "dataset": -(-cache.dataset_bytes // options.gpus) if cache else 0,
        "working_memory": -(-measured.working_bytes // options.gpus),
        "error": round(max(point.error for point in points), 4),
        "measured": {
            "samples_per_second": _short(most),
            "limits": measured.means,
            "asked": _asked(options, measured),
            "points": [_point(point, fitted) for point, fitted in zip(measured.points, points, strict=True)],
            "checks": [_check(point, points) for point in measured.checks],
            "cost": _cost(options, measured, len(sizes)),
            "bandwidth": _bandwidth(measured),
            **_dataset(options, measured),
            **parts,
        },
    }
    # Raises where a rule of profiles is broken: nothing of that kind is ever written.
    Profile(
        model=options.name,
        cpu_milli=tuple(round(cpus * 1000) for cpus in document["cpus"]),
        memory_bytes=tuple(parse_size(size) for size in sizes),
        ppm=tuple(tuple(round(cell * REFERENCE_SPEED_PPM) for cell in row) for row in document["throughput"]),
    )
    return document


def _sizes(options: Options, measured: Found, points: Sequence[Point]) -> list[str]:
    """Return the memory axis.

    It is as options for, or from none of the data to all of it; what the program takes where that is all that is known.
    """
    least = -(-max(1, measured.working_bytes) // options.gpus)
    if measured.cache is None:
        return [_size(least)]
    wanted: Sequence[int] = options.memory
    own = columns(measured.cache, [1 / point.per_second for point in points], options.gpus)
    if not options.memory:
        wanted = own
    elif options.memory_range:
        low, high = options.memory
        even = [low + (high - low) * part // (_RANGE_COLUMNS - 1) for part in range(_RANGE_COLUMNS)]
        wanted = sorted({*even, *(size for size in own if low < size < high)})
    return list(dict.fromkeys(_size(size) for size in wanted if size >= least)) or [_size(least)]


def _throughput(options: Options, measured: Found, points: Sequence[Point], sizes: Sequence[int]) -> list[list[float]]:
    if measured.cache is None:
        return [[point.per_second] for point in points]
    shares = [measured.cache.share(size * options.gpus) for size in sizes]
    return [[1 / measured.cache.seconds(1 / point.per_second, share) for share in shares] for point in points]


def _asked(options: Options, measured: Found) -> dict[str, Any]:
    return {
        "cpus": list(options.cpus or ()) if options.exactly else [measured.low, measured.high],
        "exactly": options.exactly,
        "check": list(options.check),
        "memory_bytes": list(options.memory),
        "memory_range": options.memory_range,
        "steps": options.steps,
    }


def _point(point: Point, fitted: Point) -> dict[str, Any]:
    return {
        "cpus": _short(point.cpus),
        "per_second": _short(point.per_second),
        "fitted_per_second": _short(fitted.per_second),
        "error": round(fitted.error, 4),
        "steps": point.steps,
        "seconds": round(point.seconds, 3),
        "runs": point.runs,
        "others_cpus": round(point.others_cpus, 2),
    }


def _check(point: Point, points: Sequence[Point]) -> dict[str, Any]:
    predicted = rate_at(points, point.cpus)
    return {
        "cpus": _short(point.cpus),
        "per_second": _short(point.per_second),
        "error": round(point.error, 4),
        "predicted_per_second": _short(predicted),
        "off": round(predicted / point.per_second - 1, 4),
    }


def _cost(options: Options, measured: Found, sizes: int) -> dict[str, Any]:
    """Return what this took, and what measuring every cell would have."""
    step = unit(measured.low, measured.high, options.gpus, False)
    cells = (1 + math.ceil((measured.high - measured.low) / step)) * sizes
    return {
        "wall_s": round(measured.wall_s, 2),
        "cpu_s": round(measured.cpu_s, 2),
        "runs": measured.runs,
        "exhaustive_runs": cells,
        "exhaustive_wall_s": round(cells * measured.run_s, 2),
    }


def _bandwidth(measured: Found) -> dict[str, Any]:
    said: dict[str, Any] = {
        "memory_bytes_per_second": round(measured.memory_bytes_per_second),
        "disk_bytes_per_second": round(measured.storage.bytes_per_second),
        "disk_piece_bytes": measured.storage.piece_bytes,
        "disk_direct": measured.storage.direct,
    }
    if measured.cache is not None:
        said["bytes_per_sample"] = _short(measured.cache.bytes_per_sample)
        said["disk_effective_bytes_per_second"] = round(measured.cache.disk_bytes_per_second)
        said["overlap"] = round(measured.cache.overlap, 4)
    if measured.uncached is not None:
        said["uncached_per_second"] = _short(measured.uncached.per_second)
        said["uncached_error"] = round(measured.uncached.error, 4)
    return said


def _dataset(options: Options, measured: Found) -> dict[str, Any]:
    """Return the size of all data, and of the part that ``dataset`` says.

    The GPUs' memory keeps one copy among them, while a profile has each GPU go through its data with memory of its own.
    The share that is kept is the same.
    """
    if measured.cache is None:
        return {}
    whole = measured.cache.dataset_bytes
    return {"dataset": {"bytes": whole, "gpus": options.gpus, "bytes_a_gpu": -(-whole // options.gpus)}}


def _short(value: float) -> float:
    """Round to six digits, whole numbers as such."""
    short = float(f"{value:.6g}")
    return int(short) if short == int(short) else short


def _size(size_bytes: int) -> str:
    """Format a size for a person, rounded up by less than a thousandth."""
    for text, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size_bytes >= factor:
            thousandths = -(-size_bytes * 1000 // factor)
            return f"{thousandths / 1000:.10g}{text}"
    return f"{size_bytes}B"
