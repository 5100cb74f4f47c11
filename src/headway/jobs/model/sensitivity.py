"""Sensitivity of jobs to CPUs, memory and storage bandwidth: throughput as a function of the amounts per GPU.

A profile is a matrix measured (or published) at some numbers of CPUs and sizes of memory a GPU; between its cells it is
interpolated linearly in both directions, below its smallest cell it falls towards nothing, above its largest it stays.
A matrix that never falls along a row or a column is never less for more, and neither is what lies between. Where a
job's data does not all fit into memory the rest is read again every epoch, so storage bandwidth bounds it too.
The optimistic profile of Synergy (Mohan et al., OSDI 2022), and storage as a dimension of its own.

Throughput is in parts per million of the job's reference speed: what it has at the CPUs and memory at which its work
was stated (in the paper 3 CPUs and 62.5 GB for each GPU).
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from headway.errors import ProfileError
from headway.jobs.model.job import Job
from headway.jobs.model.resources import UNCOUNTED, Grant
from headway.units import REFERENCE_SPEED_PPM

_MOST_REMEMBERED = 1 << 16


@dataclass(frozen=True)
class Profile:
    """How fast a program runs with so many CPUs, so much memory and storage bandwidth for each GPU."""

    model: str
    cpu_milli: tuple[int, ...]
    """The rows of the matrix: thousandths of a CPU a GPU, ascending."""
    memory_bytes: tuple[int, ...]
    """Its columns: bytes a GPU, ascending."""
    ppm: tuple[tuple[int, ...], ...]
    """Throughput against the reference, a row for each number of CPUs."""
    kind: str = ""
    """image, language, speech, …"""
    read_bytes_per_second: int = 0
    """What a GPU's share of the job reads at reference speed, from memory and storage together; 0: not known."""
    dataset_bytes: int = 0
    """All of its data; what of it does not fit into memory is read from storage."""
    working_bytes: int = 0
    """Memory a GPU that the program itself takes, before any data is kept in the rest."""
    error_ppm: int = 0
    """How far off the measured cells may be."""
    _memo: dict[tuple[int, int, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (rule := broken_rule(self)) is not None:
            raise ProfileError(f"profile {self.model}: {rule}")

    @cached_property
    def most_ppm(self) -> int:
        """Return the speed when only the GPU limits it."""
        return self.ppm[-1][-1]

    @cached_property
    def demand(self) -> Grant:
        """Return the smallest cell of the matrix, CPUs first, that reaches the largest speed; for one GPU."""
        for row, cpu_milli in enumerate(self.cpu_milli):
            for column, memory_bytes in enumerate(self.memory_bytes):
                if self.ppm[row][column] == self.most_ppm:
                    return Grant(cpu_milli, memory_bytes, self.storage_need(self.most_ppm, memory_bytes))
        raise AssertionError("the last cell has the largest value")

    def speed(self, cpu_milli: int, memory_bytes: int, storage: int = UNCOUNTED) -> int:
        """Return the throughput with this much for each GPU; ``storage`` in bytes per second."""
        found = self._memo.get((cpu_milli, memory_bytes, storage))
        if found is None:
            found = self._between(cpu_milli, memory_bytes)
            if storage < UNCOUNTED and (bound := self.storage_bound(memory_bytes, storage)) < found:
                found = bound
            if len(self._memo) >= _MOST_REMEMBERED:
                self._memo.clear()
            self._memo[(cpu_milli, memory_bytes, storage)] = found
        return found

    def misses_ppm(self, memory_bytes: int) -> int:
        """Return the share of reads that go to storage, with this much memory per GPU, in ppm.

        Each GPU's part of a job is assumed to read all the data, with its own cache of a fixed part of it, as in the
        matrix.
        """
        if not self.dataset_bytes:
            return 0
        cached = max(0, memory_bytes - self.working_bytes)
        return max(0, REFERENCE_SPEED_PPM - cached * REFERENCE_SPEED_PPM // self.dataset_bytes)

    def storage_need(self, ppm: int, memory_bytes: int) -> int:
        """Return the bytes per second from storage, per GPU, that a speed needs with this much memory; rounded up."""
        wanted = self.read_bytes_per_second * ppm * self.misses_ppm(memory_bytes)
        return -(-wanted // REFERENCE_SPEED_PPM**2)

    def storage_bound(self, memory_bytes: int, storage: int) -> int:
        """Return the speed that this storage bandwidth per GPU allows; ``UNCOUNTED`` where storage is not read."""
        slowed = self.read_bytes_per_second * self.misses_ppm(memory_bytes)
        return storage * REFERENCE_SPEED_PPM**2 // slowed if slowed else UNCOUNTED

    def host_speed(self, cpu_milli: int, memory_bytes: int, storage: int = UNCOUNTED) -> int:
        """Return the speed at which the host could feed a faster GPU: beyond saturation in proportion to the CPUs."""
        found = self.speed(cpu_milli, memory_bytes, storage)
        enough = self.demand.cpu_milli
        if found < self.most_ppm or cpu_milli <= enough:
            return found
        bound = self.storage_bound(memory_bytes, storage) if storage < UNCOUNTED else UNCOUNTED
        return min(self.most_ppm * cpu_milli // enough, bound)

    def speed_at(self, per_gpu: Grant, pace_ppm: int) -> int:
        """Return the throughput with this much per GPU: the pace of the GPUs, or what the host can feed if less."""
        if pace_ppm == REFERENCE_SPEED_PPM:
            return self.speed(*per_gpu)
        return min(self.host_speed(*per_gpu), self.most_ppm * pace_ppm // REFERENCE_SPEED_PPM)

    def _between(self, cpu_milli: int, memory_bytes: int) -> int:
        row, up, across = _bracket(self.cpu_milli, cpu_milli)
        column, right, along = _bracket(self.memory_bytes, memory_bytes)
        low = self._cell(row - 1, column - 1) * (along - right) + self._cell(row - 1, column) * right
        high = self._cell(row, column - 1) * (along - right) + self._cell(row, column) * right
        return (low * (across - up) + high * up) // (across * along)

    def _cell(self, row: int, column: int) -> int:
        """Return a cell; 0 for row or column -1, which stand for no CPUs or no memory."""
        return 0 if row < 0 or column < 0 else self.ppm[row][column]


def _bracket(points: tuple[int, ...], value: int) -> tuple[int, int, int]:
    """Return (index of the point above, distance from the point below, distance of the two); below the first is 0."""
    if value >= points[-1]:
        return len(points) - 1, 1, 1
    above = bisect_right(points, value)
    below = points[above - 1] if above else 0
    return above, max(0, value) - below, points[above] - below


def broken_rule(profile: Profile) -> str | None:
    """Return the rule that a profile breaks, and the remedy; None when it is sound."""
    rows, columns = profile.cpu_milli, profile.memory_bytes
    if not profile.model:
        return "has no model: say what the program is, as jobs name it"
    for what, points in (("CPUs", rows), ("memory sizes", columns)):
        if not points:
            return f"has no {what}: measure at least one"
        if points[0] <= 0 or any(a >= b for a, b in pairwise(points)):
            return f"its {what} must be above 0 and ascending"
    if len(profile.ppm) != len(rows) or any(len(row) != len(columns) for row in profile.ppm):
        return f"the matrix has holes: measure them, for {len(rows)} rows (CPUs) of {len(columns)} cells (memory) each"
    for index, row in enumerate(profile.ppm):
        at = f"at {rows[index] / 1000:g} CPU{'' if rows[index] == 1000 else 's'}"
        if min(row) <= 0:
            return f"a cell {at} is 0 or less: measure it again, or leave these CPUs out"
        if any(a > b for a, b in pairwise(row)):
            return f"throughput falls with more memory {at}: measure these cells again"
        if index and any(a > b for a, b in zip(profile.ppm[index - 1], row, strict=True)):
            return f"throughput falls with more CPUs {at}: measure these cells again"
    if min(profile.read_bytes_per_second, profile.dataset_bytes, profile.working_bytes, profile.error_ppm) < 0:
        return "sizes, rates and errors must not be negative"
    return None


class Matrix:
    """The speed of a job from its profile: the GPU's pace, or what the host can feed, whichever is less."""

    name = "matrix"

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self.profiles = profiles

    def of(self, job: Job, grant: Grant, pace_ppm: int) -> int:
        """Return the speed of a job with a grant, on GPUs of this pace."""
        profile = self.profiles.get(job.model)
        if profile is None or not job.gpus:
            return pace_ppm
        return self._speed(profile, grant_per_gpu(grant, job.gpus * job.gpu_milli), pace_ppm)

    def _speed(self, profile: Profile, per_gpu: Grant, pace_ppm: int) -> int:
        """Return the speed of a program with this much per GPU."""
        return profile.speed_at(per_gpu, pace_ppm)


class Scalar(Matrix):
    """All or nothing, as the paper's simulator has it: the whole speed-up at the full demand, else none of it."""

    name = "synergy-scalar"

    def _speed(self, profile: Profile, per_gpu: Grant, pace_ppm: int) -> int:
        """Return the speed at the smallest saturating cell where CPUs and memory reach it, else the reference speed."""
        whole = per_gpu.cpu_milli >= profile.demand.cpu_milli and per_gpu.memory_bytes >= profile.demand.memory_bytes
        return pace_ppm * profile.most_ppm // REFERENCE_SPEED_PPM if whole else pace_ppm


def all_or_nothing(profile: Profile) -> Profile:
    """Return the profile that policies are shown where ``Scalar`` is true: no gain below the full demand."""
    enough = profile.demand
    rows = sorted({*profile.cpu_milli, max(1, enough.cpu_milli - 1)})
    columns = sorted({*profile.memory_bytes, max(1, enough.memory_bytes - 1)})

    def cell(cpu_milli: int, memory_bytes: int) -> int:
        if cpu_milli >= enough.cpu_milli and memory_bytes >= enough.memory_bytes:
            return profile.most_ppm
        return max(1, min(profile.speed(cpu_milli, memory_bytes), REFERENCE_SPEED_PPM, profile.most_ppm))

    matrix = tuple(tuple(cell(cpu_milli, memory_bytes) for memory_bytes in columns) for cpu_milli in rows)
    return replace(profile, cpu_milli=tuple(rows), memory_bytes=tuple(columns), ppm=matrix)


def grant_per_gpu(grant: Grant, width_milli: int) -> Grant:
    """Return a grant divided by a job's width: what it is for each whole GPU."""
    if width_milli == 1000:
        return grant
    cpu_milli, memory_bytes, storage = grant
    return Grant(
        cpu_milli if cpu_milli >= UNCOUNTED else cpu_milli * 1000 // width_milli,
        memory_bytes if memory_bytes >= UNCOUNTED else memory_bytes * 1000 // width_milli,
        storage if storage >= UNCOUNTED else storage * 1000 // width_milli,
    )
