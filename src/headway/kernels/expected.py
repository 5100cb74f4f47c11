"""Predicted profile of a program: mean durations of its kernels, and what follows each pair of launches.

These are the tables of the shared block (kernels and steps), filled from one run of the program alone, as profiling
would fill them. Policies see these, never the real duration of a launch.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import NamedTuple

from headway.kernels.alone import Moment, moments
from headway.kernels.device import MILLION, Device
from headway.kernels.kernel import GRAPH
from headway.kernels.program import Client

FIRST = -1
"""The kernel before the first one."""


class Step(NamedTuple):
    """What follows a kernel that was launched after another one, on average."""

    gap: int
    """To the next launch, where the program does not wait before it."""
    think: int
    """From the end of the wait to the next launch."""
    alone: int
    """The time at work after this launch, alone: to the next launch, or to the end of the wait."""
    slack: int
    """Idle time of the GPU from here to the next wait: a delay up to this goes unnoticed."""
    idle: int
    """Idle time of the GPU between the end of this kernel and the start of the next one."""
    waits: bool


UNKNOWN = Step(0, 0, 0, 0, 0, False)
GRAPH_PARTS = 8
"""The kernels of a CUDA graph are not visible: it counts as filling the GPU in this many parts with gaps between."""


@dataclass(frozen=True)
class Expected:
    """The tables of one client."""

    lasts: tuple[int, ...]
    """Mean duration of each kernel."""
    widths_ppm: tuple[int, ...]
    waves: tuple[int, ...]
    steps: dict[tuple[int, int], Step]

    def step(self, before: int, kernel: int) -> Step:
        """Return what follows ``kernel`` after ``before``."""
        return self.steps.get((before, kernel), UNKNOWN)


def learn(client: Client, device: Device) -> Expected:
    """Return the tables of a client, from its program played once alone."""
    program = client.program
    once = replace(client, start=0, first=0, requests=len(program.request_starts))
    played = list(moments(once, device))
    slack = _slack(once, device, played)
    durations: dict[int, list[int]] = defaultdict(list)
    steps: dict[tuple[int, int], list[Step]] = defaultdict(list)
    before = FIRST
    for moment, following in zip(played, [*played[1:], None], strict=True):
        launch = once.launch(moment.number)
        durations[launch.kernel].append(launch.duration)
        steps[before, launch.kernel].append(_step(once, device, moment, following, slack[moment.number]))
        before = launch.kernel
    first = once.launch(0).kernel
    steps.setdefault((before, first), steps[FIRST, first])  # it starts over
    return Expected(
        tuple(sum(durations[kernel]) // max(1, len(durations[kernel])) for kernel in range(len(program.kernels))),
        tuple(MILLION if kernel.kind == GRAPH else device.width_ppm(kernel) for kernel in program.kernels),
        tuple(GRAPH_PARTS if kernel.kind == GRAPH else device.waves(kernel) for kernel in program.kernels),
        {key: _mean(samples) for key, samples in steps.items()},
    )


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
        return Step(0, think, moment.free - moment.launched, slack, idle, True)
    gap = following.launched - moment.launched if following else client.launch(moment.number + 1).gap
    idle = following.started - moment.ended if following else 0
    return Step(gap, 0, gap, slack, idle, False)


def _mean(steps: list[Step]) -> Step:
    """Return the mean step; whether it waits is decided by the majority."""
    waiting = [step for step in steps if step.waits]
    kept = waiting if 2 * len(waiting) >= len(steps) else [step for step in steps if not step.waits]
    gap, think, alone, slack, idle = (sum(step[field] for step in kept) // len(kept) for field in range(5))
    return Step(gap, think, alone, slack, idle, kept is waiting)
