"""Predicted profile of a program: mean durations of its kernels, and what follows each launch.

These are the tables of the shared block (kernels and steps), filled from one run of the program alone, as profiling
would fill them. Policies see these, never the real duration of a launch. As in the shim a step is known by its place
since the last wait, the kernel and the one before it; where that place is new, by the two kernels alone. The shim's
means follow a processor within some eight requests: of each phase of it there is a table of its own.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import NamedTuple

from headway.gpu.model.alone import Moment, moments
from headway.gpu.model.device import MILLION, Device
from headway.gpu.model.kernel import GRAPH
from headway.gpu.model.program import Client

FIRST = -1
"""The kernel before the first one."""


class Step(NamedTuple):
    """What follows a kernel that was launched after another one, on average."""

    gap: int
    """To the next launch, where the program does not wait before it."""
    think: int
    """From the end of the wait to the next launch."""
    slack: int
    """Idle time of the GPU from here to the next wait: a delay up to this goes unnoticed."""
    idle: int
    """Idle time of the GPU between the end of this kernel and the start of the next one."""
    waits: bool


UNKNOWN = Step(0, 0, 0, 0, False)
PLACES = 4096
"""Launches since a wait that are known by their place; further on all places are one, as in the shim."""
ANY = -1
"""The place of steps that are known by their kernels alone."""
GRAPH_PARTS = 8
"""The kernels of a CUDA graph are not visible: it counts as filling the GPU in this many parts with gaps between."""


@dataclass(frozen=True)
class Expected:
    """The tables of one client."""

    lasts: tuple[int, ...]
    """Mean duration of each kernel."""
    widths_ppm: tuple[int, ...]
    waves: tuple[int, ...]
    steps: tuple[dict[tuple[int, int, int], Step], ...]
    """Of each phase of the processor."""
    here: dict[tuple[int, int, int], int]
    """Mean duration at a place, of kernels whose time depends on it."""
    took: tuple[int, ...]
    """The time of each request alone: from its first launch to the end of the wait that closes it."""
    kinds: tuple[tuple[int, int], ...] = ()
    """How many launches each request has, and a number for which kernels these are."""

    def step(self, place: int, before: int, kernel: int, pace: int = 0) -> Step:
        """Return what follows ``kernel`` after ``before``, as the launch of this number since the last wait."""
        steps = self.steps[pace]
        found = steps.get((place, before, kernel))
        return found if found is not None else steps.get((ANY, before, kernel), UNKNOWN)

    def lasts_at(self, place: int, before: int, kernel: int) -> int:
        """Return how long ``kernel`` is expected to take there."""
        return self.here.get((place, before, kernel), self.lasts[kernel])


def learn(client: Client, device: Device) -> Expected:
    """Return the tables of a client, from its program played once alone."""
    program = client.program
    once = replace(client, start=0, first=0, requests=len(program.request_starts))
    played = list(moments(once, device))
    slack = _slack(once, device, played)
    durations: dict[int, list[int]] = defaultdict(list)
    there: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    steps: list[dict[tuple[int, int, int], list[Step]]] = [
        defaultdict(list) for _ in range(max(program.paces, default=0) + 1)
    ]
    took, kinds, began, kind = [], [], 0, 0
    before, place = FIRST, 0
    for moment, following in zip(played, [*played[1:], None], strict=True):
        launch = once.launch(moment.number)
        durations[launch.kernel].append(launch.duration)
        step = _step(once, device, moment, following, slack[moment.number])
        began = began if place else moment.launched
        pace = program.pace(program.request_of[moment.number])
        for where in (place, ANY) if place < PLACES else (ANY,):
            steps[pace][where, before, launch.kernel].append(step)
            there[where, before, launch.kernel].append(launch.duration)
        kind = (kind * 31 + launch.kernel + 1) % 2**32 if place else launch.kernel + 1
        if launch.waits:
            took.append(moment.free - began)
            kinds.append((place + 1, kind))
        before, place = launch.kernel, 0 if launch.waits else place + 1
    first = once.launch(0).kernel
    for where in (0, ANY):  # it starts over
        steps[program.pace(0)][where, before, first] += steps[program.pace(0)][where, FIRST, first]
        there[where, before, first] += there[where, FIRST, first]
    varied = {kernel for kernel, each in durations.items() if _varies(each)}
    return Expected(
        tuple(_last(durations[kernel], kernel in varied) for kernel in range(len(program.kernels))),
        tuple(MILLION if kernel.kind == GRAPH else device.width_ppm(kernel) for kernel in program.kernels),
        tuple(GRAPH_PARTS if kernel.kind == GRAPH else device.waves(kernel) for kernel in program.kernels),
        tuple({key: _mean(samples) for key, samples in each.items()} for each in steps),
        {key: sum(each) // len(each) for key, each in there.items() if key[2] in varied and key[0] != ANY},
        tuple(took),
        tuple(kinds),
    )


def _varies(durations: list[int]) -> bool:
    """Return whether a kernel's time depends on its place: a persistent one has one shape for very different work."""
    mean = sum(durations) / len(durations)
    return max(durations) > 2 * mean or 2 * min(durations) < mean


def _last(durations: list[int], varied: bool) -> int:
    """Return what a kernel counts as where nothing is known of its place: its mean, or its longest where it varies."""
    return max(durations) if varied else sum(durations) // max(1, len(durations))


def _slack(client: Client, device: Device, played: list[Moment]) -> list[int]:
    """Return the idle time of the GPU after each launch until the program waits or starts over."""
    slack, total = [0] * len(played), 0
    for at in range(len(played) - 1, -1, -1):
        if client.launch(at).waits:
            total = 0
        elif at + 1 < len(played):
            total += played[at + 1].started - played[at].ended - device.follow
        slack[at] = total
    return slack


def _step(client: Client, device: Device, moment: Moment, following: Moment | None, slack: int) -> Step:
    if client.launch(moment.number).waits:
        # What comes after the last launch of a program is its first one again.
        gap = client.launch(moment.number + 1).gap
        think = client.think + client.launch(moment.number).think + gap
        idle = device.wait + think + device.latency
        return Step(0, think, slack, idle, True)
    gap = following.launched - moment.launched if following else client.launch(moment.number + 1).gap
    idle = following.started - moment.ended if following else 0
    return Step(gap, 0, slack, idle, False)


def _mean(steps: list[Step]) -> Step:
    """Return the mean step; whether it waits is decided by the majority."""
    waiting = [step for step in steps if step.waits]
    kept = waiting if 2 * len(waiting) >= len(steps) else [step for step in steps if not step.waits]
    gap, think, slack, idle = (sum(step[field] for step in kept) // len(kept) for field in range(4))
    return Step(gap, think, slack, idle, kept is waiting)
