"""A program that can be replayed: its launches in order, the CPU time before each, and where it waits.

A request is a sequence of launches up to and including the one after which the program waits for the GPU. The time
between the end of that wait and the beginning of the next request is its think time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import exp, log
from typing import NamedTuple

from headway.errors import ExperimentError
from headway.gpu.model.kernel import Kernel

PRIORITIES = 10
Normal = Callable[[float], float]
"""Draws from a normal distribution around 0 with this standard deviation."""
MILLION = 1_000_000
_LEVELS = 25
"""Steps in which CPU times are drawn, in a logarithm of 1."""
_LENGTHS = 0.3
"""Spread of the lengths of phases, as a logarithm."""


class Launch(NamedTuple):
    """One launch: which kernel, after how much CPU time, how long it runs alone, and what the thread does then."""

    kernel: int
    gap: int
    """CPU time since the launch before it, or since the beginning of the request."""
    duration: int
    waits: bool = False
    """Whether the thread waits for the GPU after it: a request ends."""
    think: int = 0
    """After that wait, before the next request begins."""


@dataclass(frozen=True)
class Program:
    """A sequence of launches that a client repeats."""

    name: str
    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]
    paces: tuple[int, ...] = ()
    """The phase of its processor in each request, counted from 0; empty: there are no phases."""

    def __post_init__(self) -> None:
        if not self.launches:
            raise ExperimentError(f"program {self.name}: it launches nothing")
        if self.paces and len(self.paces) != len(self.request_starts):
            requests = f"{len(self.request_starts)} requests"
            raise ExperimentError(f"program {self.name}: {len(self.paces)} phases of {requests}: each has one")
        for number, launch in enumerate(self.launches):
            if not 0 <= launch.kernel < len(self.kernels):
                raise ExperimentError(f"program {self.name}: launch {number} is of kernel {launch.kernel}, not known")
            if launch.gap < 1 or launch.duration < 1 or launch.think < 0:
                raise ExperimentError(f"program {self.name}: launch {number} takes no time: {launch}")

    @cached_property
    def request_starts(self) -> tuple[int, ...]:
        """Return the index of the first launch of each request."""
        return (0, *(at + 1 for at, launch in enumerate(self.launches[:-1]) if launch.waits))

    @cached_property
    def request_of(self) -> tuple[int, ...]:
        """Return the request that each launch belongs to."""
        numbers, number = [], 0
        for launch in self.launches:
            numbers.append(number)
            number += launch.waits
        return tuple(numbers)

    @cached_property
    def request_cpu(self) -> tuple[int, ...]:
        """Return the CPU time of each request from its first launch on."""
        edges = [*self.request_starts, len(self.launches)]
        return tuple(sum(each.gap for each in self.launches[first + 1 : last]) for first, last in pairwise(edges))

    def pace(self, request: int) -> int:
        """Return the phase of its processor in this request; the one after the last is the first again."""
        return self.paces[request % len(self.paces)] if self.paces else 0

    @property
    def duration(self) -> int:
        """Return the GPU time of all launches, alone."""
        return sum(launch.duration for launch in self.launches)


def on_idle_cpu(program: Program, slower_ppm: int, until: int) -> Program:
    """Return the program on a CPU that wakes from idle for each request: the first ``until`` of CPU time is slower."""
    launches, spent = [], 0
    for launch in program.launches:
        slow = max(0, min(launch.gap, until - spent))
        launches.append(launch._replace(gap=launch.gap + slow * slower_ppm // MILLION))
        spent = 0 if launch.waits else spent + launch.gap
    return replace(program, launches=tuple(launches))


class Processor(NamedTuple):
    """How the CPU times of a real processor vary. Spreads are standard deviations of logarithms."""

    request: float
    """From request to request, within a phase."""
    launch: float
    """From launch to launch."""
    slower: float = 1.0
    """A slow phase takes so many times as long as a fast one: a neighbour has the other half of the core."""
    slow_share: float = 0.5
    """Of the time, in slow phases."""
    phase: int = 1
    """Mean length of a phase. Fast and slow ones come in turn."""


def on_real_cpu(program: Program, draw: Normal, cpu: Processor, launches: int) -> Program:
    """Return the program with its requests again and again, each with other CPU times, until it has so many launches.

    A request is slower or faster as a whole, by the phase that it is in and for itself, and so is each of its launches.
    The logarithms of the factors are 0 in the mean. A recording holds a few requests; repeated as they are, a kernel
    that just does not fit into them would never fit.
    """
    varied: list[Launch] = []
    drawn: dict[tuple[int, int], Launch] = {}  # a long program is of few objects, and these stay in the caches
    paces: list[int] = []
    edges = [*program.request_starts, len(program.launches)]
    took = [_about(program.launches[first:last]) for first, last in pairwise(edges)]
    slower = log(cpu.slower)
    means = 2 * cpu.phase * (1 - cpu.slow_share), 2 * cpu.phase * cpu.slow_share
    pace, left = 1, 0.0
    for _ in range(max(1, round(launches / len(program.launches)))):
        for (first, last), each_took in zip(pairwise(edges), took, strict=True):
            if slower and left <= 0:
                pace = 1 - pace
                left += means[pace] * exp(draw(_LENGTHS))
            left -= each_took
            slow = draw(cpu.request) + slower * (pace - cpu.slow_share)
            if not varied or varied[-1].waits:
                paces.append(pace)
            for at in range(first, last):
                level = round((slow + draw(cpu.launch)) * _LEVELS)
                if (made := drawn.get((at, level))) is None:
                    each = program.launches[at]
                    made = drawn[at, level] = each._replace(gap=max(1, round(each.gap * exp(level / _LEVELS))))
                varied.append(made)
    return replace(program, launches=tuple(varied), paces=tuple(paces) if slower else ())


def _about(launches: Sequence[Launch]) -> int:
    """Return about how long a request takes: what takes longer, its CPU or its GPU time, and what follows it."""
    return max(sum(each.gap for each in launches), sum(each.duration for each in launches)) + launches[-1].think


@dataclass(frozen=True)
class Client:
    """One process that plays a program: 0 is the highest priority, 9 the lowest."""

    name: str
    program: Program
    priority: int = 0
    think: int = 0
    """Added to the think time of the program after each wait."""
    start: int = 0
    first: int = 0
    """The request that it begins with."""
    requests: int = 0
    """It ends after this many; 0: it repeats the program until the run ends."""

    def __post_init__(self) -> None:
        if not 0 <= self.priority < PRIORITIES:
            raise ExperimentError(f"client {self.name}: priority {self.priority} is not between 0 and {PRIORITIES - 1}")
        if self.think < 0 or self.start < 0 or self.requests < 0:
            raise ExperimentError(f"client {self.name}: think, start and requests must not be negative")
        if not 0 <= self.first < len(self.program.request_starts):
            raise ExperimentError(f"client {self.name}: program {self.program.name} has no request {self.first}")

    def launch(self, number: int) -> Launch:
        """Return its ``number``-th launch, counted from 0 when it joins."""
        rotated = self.rotated
        return rotated[number % len(rotated)]

    @cached_property
    def rotated(self) -> tuple[Launch, ...]:
        """Return the program's launches from the one that it begins with."""
        at, launches = self.program.request_starts[self.first], self.program.launches
        return launches[at:] + launches[:at]

    @cached_property
    def ends(self) -> tuple[bool, ...]:
        """Return of each of these whether a request ends with it: it waits, or the program starts over."""
        at, launches = self.program.request_starts[self.first], self.program.launches
        ends = (*(launch.waits for launch in launches[:-1]), True)
        return ends[at:] + ends[:at]

    def request(self, number: int) -> int:
        """Return the request of the program that its ``number``-th launch belongs to."""
        program = self.program
        return program.request_of[(program.request_starts[self.first] + number) % len(program.launches)]

    def ends_request(self, number: int) -> bool:
        """Return whether a request ends with its ``number``-th launch: it waits, or the program starts over."""
        ends = self.ends
        return ends[number % len(ends)]
