"""Profile a training program: run it at a few CPU counts, compute the effect of memory, write the profile.

Optimistic profiling of Synergy (Mohan et al., OSDI 2022): memory is pinned at the maximum, CPUs are the only axis that
is measured, by ``search``; the memory axis is computed, by ``memory``, where the data set is known. Nothing is written
unless all of it was measured, and no process of the program outlives a point; what a profiler
left that was killed itself is swept first.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from headway.device import limits
from headway.errors import ProfileError
from headway.jobs.profiling import bandwidth, cleanup, search
from headway.jobs.profiling.matrix import MOST_DOUBT, PLATEAU, Found, Point, document_of, rate_at, repaired
from headway.jobs.profiling.memory import Cache
from headway.jobs.profiling.options import Options, check_memory, cpus_of, dataset_of, memory_of, pattern_of
from headway.jobs.profiling.watch import Program, Reading, Tell, watch
from headway.profiling import store

BUSY = 0.1
"""Others that use more than this share of a CPU disturb a point that wants what they use."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Profiled:
    """A profile, where it lies, and whether it was there already."""

    document: store.Document
    path: Path
    found_again: bool


def profile(
    command: Sequence[str],
    *,
    cpus: str = "",
    memory: str = "",
    steps: int = 50,
    gpus: int = 1,
    pattern: str = "",
    model: str = "",
    dataset: str = "",
    bytes_per_sample: int = 0,
    check: Sequence[float] = (),
    timeout_s: float = 300.0,
    out: Path | None = None,
    again: bool = False,
    env: dict[str, str] | None = None,
    say: Say | None = None,
    tell: Tell | None = None,
) -> Profiled:
    """Profile a program, or find the profile that was made of it; as ``headway profile job`` does."""
    points, exactly = cpus_of(cpus) if cpus else (None, False)
    sizes, ranged = memory_of(memory) if memory else ((), False)
    path, size = dataset_of(dataset) if dataset else (None, 0)
    options = Options(
        tuple(command), points, exactly, sizes, ranged, steps, gpus, pattern_of(pattern) if pattern else None,
        model, path, size, bytes_per_sample, timeout_s, tuple(check), dict(env or {}),
    )  # fmt: skip
    return made(options, out=out, again=again, say=say or (lambda line: None), tell=tell)


def made(options: Options, *, out: Path | None, again: bool, say: Say, tell: Tell | None) -> Profiled:
    """Return the profile that is asked for, measured unless it is stored."""
    if out is not None:
        store.check_target(out)
    offers = limits.here()
    low, high = options.ends(offers)
    check_memory(options.memory, options.gpus, offers)
    parts = _parts(options, offers)
    key = store.key(parts)
    stored = None if again else store.find(key)
    if stored is not None and _covers(stored.document, options, low, high):
        if out is not None:
            store.write(stored.document, out)
        return Profiled(stored.document, stored.path, True)
    with stoppable():
        cleanup.remove_leftovers(offers.room)
        measured = Measuring(options, offers, say, tell).all(low, high)
    document = document_of(options, measured, {"key": key, **parts})
    path = store.keep(document)
    if out is not None:
        store.write(document, out)
    return Profiled(document, path, False)


def _parts(options: Options, offers: limits.Limits) -> dict[str, object]:
    """Return what a profile is found again by."""
    data: dict[str, object] = {"bytes": options.dataset_bytes, "bytes_per_sample": options.bytes_per_sample}
    if options.dataset is not None:
        data |= store.data_set(options.dataset)
    how = {"gpus": options.gpus, "model": options.name, "pattern": options.pattern.pattern if options.pattern else ""}
    program = {**store.program(options.command), **how, "env": dict(sorted(options.env.items()))}
    return {"program": program, "data": data, "hardware": store.hardware(offers.cpus, offers.memory_bytes)}


def _covers(document: store.Document, options: Options, low: float, high: float) -> bool:
    """Return whether a stored profile answers what is asked now.

    It must have the same list of CPUs, or a search over all of the range, with the same memory and no fewer steps.
    """
    before = document["measured"].get("asked", {})
    cpus = before.get("cpus", [])
    if bool(before.get("exactly")) != options.exactly or before.get("steps", 0) < options.steps:
        return False
    enough = cpus == list(options.cpus or ()) if options.exactly else cpus and cpus[0] <= low and cpus[-1] >= high
    sizes = before.get("memory_bytes") == list(options.memory)
    ranged = bool(before.get("memory_range")) == options.memory_range
    return bool(enough and sizes and ranged and set(options.check) <= set(before.get("check", [])))


@contextmanager
def stoppable() -> Iterator[None]:
    """Let signals that would end this process at once raise SystemExit, so that everything is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Measuring:
    """The runs that one profile takes."""

    def __init__(self, options: Options, offers: limits.Limits, say: Say, tell: Tell | None) -> None:
        self.options = options
        self.offers = offers
        self.say = say
        self.tell = tell
        self.readings: list[Reading] = []
        self.program = Program(
            options.command, options.pattern, options.env, options.steps, options.timeout_s, options.gpus
        )

    def all(self, low: float, high: float) -> Found:
        """Measure every point of the search, again where chance made it fall, the bandwidths, and no cache."""
        began = time.monotonic()
        self.say(f"{self.program.name}: {low:g} to {high:g} CPUs by {self.offers.means}")
        # Before any point: where nothing can be read, or written to be read, that is known at once.
        self.storage = bandwidth.storage(self.options.dataset, self.options.bytes_per_sample)
        points = self._searched(low, high)
        points = self._once_more(points)
        cache, uncached = self._cache(points)
        result = self._found(points, cache, uncached, low, high, time.monotonic() - began)
        self._warn()
        if self.options.check:
            self.say("  to compare with:")
        return replace(result, checks=[self._point(cpus) for cpus in self.options.check])

    def _found(
        self, points: list[Point], cache: Cache | None, uncached: Point | None, low: float, high: float, wall_s: float
    ) -> Found:
        working_bytes = max(reading.working_bytes for reading in self.readings)
        return Found(
            points=points,
            checks=(),
            cache=None if cache is None else replace(cache, working_bytes=working_bytes),
            uncached=uncached,
            working_bytes=working_bytes,
            means=self.offers.means,
            low=low,
            high=high,
            wall_s=wall_s,
            cpu_s=sum(reading.cpu_s for reading in self.readings),
            run_s=sum(reading.wall_s for reading in self.readings) / len(self.readings),
            runs=len(self.readings),
            storage=self.storage,
            memory_bytes_per_second=self.memory_rate,
        )

    def _searched(self, low: float, high: float) -> list[Point]:
        if self.options.exactly and self.options.cpus:
            return [self._point(cpus) for cpus in reversed(self.options.cpus)][::-1]
        measured: list[Point] = []
        asking = search.points(low, high, gpus=self.options.gpus, whole=not self.offers.fractions)
        cpus = next(asking)
        while True:
            measured.append(self._point(cpus))
            try:
                cpus = asking.send(measured[-1].per_second)
            except StopIteration:
                return sorted(measured, key=lambda point: point.cpus)

    def _once_more(self, points: list[Point]) -> list[Point]:
        """Measure again, once, what is unsure, or falls with more CPUs by more than the error bars explain."""
        suspect = {point.cpus for point in points if point.error > MOST_DOUBT}
        for lower, upper in pairwise(points):
            fall = 1 - upper.per_second / lower.per_second
            if fall > max(PLATEAU, lower.error + upper.error):
                suspect |= {lower.cpus, upper.cpus}
        return [point if point.cpus not in suspect else point.joined(self._point(point.cpus)) for point in points]

    def _point(self, cpus: float, cache_bytes: int | None = None) -> Point:
        """Measure the program at a CPU count, with a cache of this size or of all the memory there is."""
        cache_bytes = self._cache_budget() if cache_bytes is None else cache_bytes
        memory = self.options.memory[-1] * self.options.gpus if self.options.memory else 0
        reading = watch(self.program, self.offers, cpus, memory_bytes=memory, cache_bytes=cache_bytes, tell=self.tell)
        self.readings.append(reading)
        rate = reading.rate
        self.say(f"  {cpus:g} CPUs: {rate.per_second:.4g} samples/s ± {100 * rate.error:.1f} %")
        return Point(cpus, rate.per_second, rate.error, rate.steps, rate.seconds, reading.others_cpus)

    def _cache_budget(self) -> int:
        """Return the largest cache: as much memory as there is, less what the program itself may need."""
        whole = self.options.memory[-1] * self.options.gpus if self.options.memory else self.offers.memory_bytes
        working = max((reading.working_bytes for reading in self.readings), default=0)
        return max(0, min(whole * 3 // 4, whole - 2 * working))

    def _warn(self) -> None:
        """Say that the machine was not quiet, where that may have slowed a point."""
        busiest = max(self.readings, key=lambda reading: reading.cpus + reading.others_cpus)
        if busiest.others_cpus > BUSY and busiest.cpus + busiest.others_cpus > len(self.offers.cpu_numbers):
            busy = f"other programs used {busiest.others_cpus:.1f} CPUs during the point at {busiest.cpus:g}"
            self.say(f"  {busy}; where errors are large, measure again when they do not")

    def _cache(self, points: list[Point]) -> tuple[Cache | None, Point | None]:
        """Return the model of the program's data, and a point without a cache where the program has one."""
        told = next((reading.cache for reading in self.readings if reading.cache), None) or {}
        options = self.options
        size = options.dataset_bytes or (store.data_set(options.dataset)["bytes"] if options.dataset else 0)
        size = int(told.get("dataset_bytes", 0)) or size
        sample = float(told.get("item_bytes_mean", 0)) or float(options.bytes_per_sample)
        if round(sample) != options.bytes_per_sample:  # the program says what a sample takes: read pieces of that size
            with suppress(ProfileError):
                self.storage = bandwidth.storage(options.dataset, round(sample))
        self.memory_rate = bandwidth.memory()
        if not size or not sample:
            return None, None
        cache = Cache(sample, size, 0, self.memory_rate, self.storage.bytes_per_second)
        if not told.get("cached_bytes"):
            return cache, None
        self.say("  without its cache:")
        point = self._point(points[-1].cpus, cache_bytes=0)
        return cache.calibrated(1 / rate_at(repaired(points), point.cpus), 1 / point.per_second), point
