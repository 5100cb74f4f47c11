"""The fleet: workers of one GPU each, the links between their memories, and prices.

A worker is one GPU with its share of a host. GPUs of one host are workers with the same ``host``: they share its
network card and sit nearer to each other than workers of other hosts (docs/background/decisions/0011).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.units import SECOND

GIB = 1 << 30
FREE, MIG, FIXED = "free", "mig", "fixed"
WHOLE = 7
"""Slices of a whole GPU where workers have fixed shares of it, as MIG divides one."""

MIG_PLACES: Mapping[int, tuple[int, ...]] = {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)}
"""Where an instance of so many compute slices may begin on an A100 or H200; 5 and 6 do not exist."""
MIG_SPAN: Mapping[int, int] = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""How many of the eight memory slices it takes: an instance of 3 blocks as many places as one of 4."""
MEMORY_SLICES = 8


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU of a worker."""

    type: str
    memory_bytes: int
    slices: int = 1
    geometry: str = FREE
    """``free``: any number of slices anywhere; ``mig``: the profiles and places that the hardware has; ``fixed``: the
    slices are a share of the SMs that its process was started with, so a batch takes all of them, or none."""

    @property
    def whole(self) -> int:
        """Return the slices of the device."""
        return WHOLE if self.geometry == FIXED else self.slices


@dataclass(frozen=True, slots=True)
class Worker:
    """A GPU with its share of a host."""

    name: str
    gpu: Gpu
    cpus: int = 1
    host_bytes: int = 1 << 62
    """Host memory that may hold weights."""
    host: int = 0
    rack: int = 0
    hour_usd: float | None = None
    """What an hour of it costs; None: what its CPUs and slices cost."""
    device: int = -1
    """Workers with the same number share a GPU, or the CPUs that they compute on; -1: it has one of its own."""


@dataclass(frozen=True, slots=True)
class Links:
    """Bytes a second between memories, and the latency of a message before its first byte."""

    host_to_gpu: int = int(9.7 * GIB)
    disk_to_host: int = 2 * GIB
    within_host: int = 12 * GIB
    within_rack: int = 12 * GIB
    between_racks: int = 12 * GIB
    latency: int = 2_000
    write_back: bool = False
    """Evicting costs as much as fetching; read-only weights with a copy in the host do not need it."""
    shared: bool = False
    """Whether workers of one device share the link to its memory: what they fetch comes one after the other."""


@dataclass(frozen=True, slots=True)
class Store:
    """Where results lie between stages: what a worker makes it writes there, and others read it from there."""

    rate: int
    """Bytes a second, of each worker; they do not share it."""
    latency: int = 0
    """Before the first byte, of each write and each read."""

    def time(self, size_bytes: int) -> int:
        """Return how long a write or a read takes."""
        return self.latency + size_bytes * SECOND // self.rate


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars."""

    cpu_hour: float = 0.034
    slice_hour: float = 0.67
    memory_gib_hour: float = 0.0044
    """Host memory of idle processes."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All workers, the links between them, and prices."""

    workers: tuple[Worker, ...]
    links: Links = Links()
    prices: Prices = Prices()
    keep_alive: int = 600 * SECOND
    """How long an idle process is kept."""
    warm: bool = False
    """Whether it begins with processes and weights in place, as ``fleet.state.warm.placed`` says."""
    startup: int = 60 * SECOND
    """How long a worker takes to start."""
    off: tuple[int, ...] = ()
    """Workers that are off when the run begins."""

    shared_cpus: int = 0
    """CPUs that all workers of a device share; 0: each worker has its own."""
    store: Store | None = None
    """None: workers send results to each other."""

    def hour_usd(self, worker: Worker) -> float:
        """Return the rent of a worker for an hour."""
        if worker.hour_usd is not None:
            return worker.hour_usd
        return worker.cpus * self.prices.cpu_hour + worker.gpu.slices * self.prices.slice_hour

    def price_ratio(self, worker: Worker) -> float:
        """Return a worker's rent over the list price of its CPUs and slices."""
        listed = worker.cpus * self.prices.cpu_hour + worker.gpu.slices * self.prices.slice_hour
        return self.hour_usd(worker) / listed if listed else 1.0

    def copy_time(self, source: int, target: int, size_bytes: int) -> int:
        """Return how long bytes take between the hosts of two workers; 0 within a worker. Source -1: the client.

        With a store: a write, unless it is the client's, and a read.
        """
        if source == target:
            return 0
        if self.store is not None:
            return self.store.time(size_bytes) * (2 if source >= 0 else 1)
        links = self.links
        rate = links.within_rack
        if source >= 0:
            a, b = self.workers[source], self.workers[target]
            rate = links.within_host if a.host == b.host else rate if a.rack == b.rack else links.between_racks
        return links.latency + size_bytes * SECOND // rate

    def fetch_time(self, size_bytes: int, *, from_disk: bool = False) -> int:
        """Return how long weights take to the GPU."""
        time = size_bytes * SECOND // self.links.host_to_gpu
        return time + size_bytes * SECOND // self.links.disk_to_host if from_disk else time


def reachable_bytes(gpu: Gpu, slices: int) -> int:
    """Return the memory that a batch on so many slices can reach: that of its MIG instance, else of the GPU."""
    whole = gpu.geometry != MIG or not slices
    return gpu.memory_bytes * (MEMORY_SLICES if whole else MIG_SPAN.get(slices, 0)) // MEMORY_SLICES


def find_slices(gpu: Gpu, slices: int, taken: int) -> tuple[int, int] | None:
    """Return the first place and the mask for so many slices on a GPU whose places ``taken`` (bits) are held.

    None: they do not fit. Free slices are interchangeable. A MIG instance goes where the hardware allows: to the place
    that leaves the largest further instance possible, then to the highest, so that large ones fit at the bottom.
    """
    if not slices:
        return 0, 0
    if gpu.geometry == FREE:
        if slices > gpu.slices - taken.bit_count():
            return None
        if not taken:
            return 0, (1 << slices) - 1
        mask, low = 0, 0
        for _ in range(slices):
            while (taken | mask) >> low & 1:
                low += 1
            mask |= 1 << low
        return (mask & -mask).bit_length() - 1, mask
    if gpu.geometry == FIXED:
        return (0, (1 << slices) - 1) if slices == gpu.slices and not taken else None
    span = (1 << MIG_SPAN.get(slices, 0)) - 1
    free = [first for first in MIG_PLACES.get(slices, ()) if not taken & span << first]
    best = max(free, key=lambda first: (_largest(taken | span << first), first), default=None)
    return None if best is None else (best, span << best)


def percent_of(share: int) -> int:
    """Return a share of a GPU as a percentage of its SMs."""
    return round(100 * share / WHOLE)


def cpus_of(share: int, cpus: Sequence[int], first: int = 0) -> tuple[int, ...]:
    """Return the CPUs that are a share of some, at least one, from position ``first`` on."""
    count = max(1, round(share * len(cpus) / WHOLE))
    return tuple(sorted(cpus[(first + step) % len(cpus)] for step in range(count)))


def _largest(taken: int) -> int:
    for slices in (7, 4, 3, 2, 1):
        span = (1 << MIG_SPAN[slices]) - 1
        if any(not taken & span << first for first in MIG_PLACES[slices]):
            return slices
    return 0
