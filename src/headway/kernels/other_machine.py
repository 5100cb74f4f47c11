"""Programs as they are on another machine: their CPU time scaled until a request takes alone what it takes there.

Traces are of one machine, and a launch takes the processor of another one 1.1 to 1.9 times as long; with a profiler
beside it it takes longer than without. What a program takes alone is known before it shares.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from headway.errors import InputError
from headway.kernels import alone
from headway.kernels.device import MILLION, Device
from headway.kernels.program import Client, Program
from headway.units import MILLISECOND, format_duration

PLAYED = 400 * MILLISECOND
"""So much of a program alone says what a request takes; of one whose requests are longer a few of them."""
REQUESTS = 3
LEAST_PPM, MOST_PPM = 200_000, 5_000_000
NEAR_PPM = 100
TELLING_PPM = 200_000
"""Where a request takes less than this part of what processors take longer, it says little of them."""


def on_other_machine(
    clients: Sequence[Client], device: Device, request: int, say: Callable[[str], None]
) -> tuple[tuple[Client, ...], int]:
    """The clients where a request of the first takes so long alone; and how many millionths processors take there.

    Processors are taken to be as much slower or faster for all of them; the GPU is the same.
    """
    high = clients[0]
    name, shown = high.program.name, format_duration(request)

    def takes(cpu_ppm: int) -> int:
        return request_alone(cpu_scaled(high.program, cpu_ppm), device, high.think)

    least, now, most = takes(LEAST_PPM), takes(MILLION), takes(MOST_PPM)
    if not now:
        raise InputError(
            f"a request of {shown} alone: {name} never waits for the GPU in its trace, and has no requests"
        )
    if not 0.98 * least <= request <= 1.02 * most:
        traced, *ends = map(format_duration, (now, least, most))
        if least <= request // 1000 <= most:
            raise InputError(
                f"a request of {shown} alone: one of {name} takes {traced} in its trace: did you mean "
                f"{format_duration(request // 1000)}?"
            )
        raise InputError(
            f"a request of {shown} alone: one of {name} takes {traced} in its trace, and {ends[0]} to {ends[1]} with "
            "processors five times as fast or as slow; is it of another program, GPU or pause between requests?"
        )
    if (takes(2 * MILLION) - now) * MILLION < TELLING_PPM * now:
        say(f"{name} keeps the GPU busy: what it takes alone says little of the processors, which are left as recorded")
        return tuple(clients), MILLION
    ppm = cpu_factor(takes, request)
    return tuple(replace(each, program=cpu_scaled(each.program, ppm)) for each in clients), ppm


def cpu_scaled(program: Program, cpu_ppm: int) -> Program:
    """Return the same on a processor that takes so many times as long."""
    launches = tuple(each._replace(gap=max(1, each.gap * cpu_ppm // MILLION)) for each in program.launches)
    return replace(program, launches=launches)


def request_alone(program: Program, device: Device, think: int) -> int:
    """Return what the median request takes alone; 0 where there is none, because it never waits."""
    if not any(launch.waits for launch in program.launches):
        return 0
    found = []
    for each in alone.requests(Client("it", program, think=think), device):
        found.append(each.ended - each.began)
        if len(found) >= REQUESTS and each.ended >= PLAYED:
            break
    return round(median(found))


def cpu_factor(takes: Callable[[int], float], wanted: float) -> int:
    """Return the factor, in millionths, at which a time that grows with it is the one wanted.

    The nearest if it cannot be.
    """
    low, high = LEAST_PPM, MOST_PPM
    while high - low > NEAR_PPM:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) < wanted else (low, middle)
    return (low + high) // 2
