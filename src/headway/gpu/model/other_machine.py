"""Programs on another machine than that of their traces: scale times until a request alone takes the measured time.

A launch takes the CPU of another machine 1.1 to 1.9 times as long, and longer with a profiler than without; a GPU that
is at work all the time runs at other clocks than one that rests. The time of a request alone is known before the
program shares. Where it is about what the GPU alone needs, the GPU is the bound; else the CPU takes the rest.

A processor has fast and slow phases (``program.Processor``). The median request is of the phase that it is in for most
of the time: where that takes what the GPU needs, processors keep up with the GPU in their fast phases.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from headway.errors import InputError
from headway.gpu.model import alone
from headway.gpu.model.device import MILLION, Device
from headway.gpu.model.program import Client, Program
from headway.units import MILLISECOND, format_duration

PLAYED = 400 * MILLISECOND
"""How much of a program is played alone to time a request; at least ``REQUESTS`` requests."""
REQUESTS = 3
LEAST_PPM, MOST_PPM = 200_000, 5_000_000
NEAR_PPM = 100
CLOCKS_PPM = 100_000
"""GPU time differs by this with the load: prefill takes 5.16 ms with pauses of 10 ms and 5.66 ms without."""
AHEAD_PPM = 920_000
"""Where the GPU is the bound, a fast phase takes at most this part of the CPU time that would just do: two programs
alone launched in 0.98 and 0.89 of what a request takes then by a fit of two states, in 0.93 and 0.88 by one of four."""
BUSY_SLOW_PPM = 333_333
"""And slow phases are a third of the time: 0.33 in the one recording of such a program."""
UNLIKE_PPM = 250_000
"""A GPU-bound request that takes this much more or less than the traced one is not of the same program or GPU."""


class Factors(NamedTuple):
    """By how much the times of the traces were multiplied, in parts per million."""

    cpu_ppm: int = MILLION
    """CPU times of all programs, the mean of fast and slow phases (of their logarithms)."""
    gpu_ppm: int = MILLION
    """Durations of the program above."""
    slow_ppm: int = MILLION // 2
    """Of the time, processors are in a slow phase."""


def on_other_machine(
    clients: Sequence[Client],
    device: Device,
    request: int,
    say: Callable[[str], None],
    slower: float = 1.0,
    even: bool = False,
) -> tuple[tuple[Client, ...], Factors]:
    """Return the clients with times scaled so that a request of the first takes ``request`` alone, and the factors.

    ``slower``: by how much processors are slower in a slow phase. ``even``: they have none, by what is known.
    """
    high = clients[0]

    def takes(cpu_ppm: int) -> int:
        return request_alone(cpu_scaled(high.program, cpu_ppm), device, high.think)

    least, now, most = takes(LEAST_PPM), takes(MILLION), takes(MOST_PPM)
    at_clocks = request_alone(gpu_scaled(high.program, MILLION + CLOCKS_PPM), device, high.think)
    busy = at_clocks >= takes(MILLION + CLOCKS_PPM)  # the GPU is the bound in its trace: its time counts for more
    if busy:
        # It still is where a request takes what it needs, and where even half as fast processors are ahead of it.
        bound = request <= at_clocks or takes(2 * MILLION) <= at_clocks
    else:
        # It is where processors are faster than in the trace, and a request takes what the GPU needs.
        bound = request < now and request * MILLION <= least * (MILLION + CLOCKS_PPM)
    _check(high.program.name, request, (least, now, most), bound)
    cpu_ppm, gpu_ppm, slow_ppm = cpu_factor(takes, request), MILLION, 0 if even else MILLION // 2
    if bound:
        slow_ppm = 0 if even else BUSY_SLOW_PPM
        usual = slower ** (slow_ppm / MILLION)  # by how much a fast phase is faster than the mean of both
        # The most with which a request takes what the GPU needs, to a hundredth.
        just = cpu_factor(takes, least * 1.01)
        cpu_ppm = MILLION if busy else min(MILLION, max(LEAST_PPM, round(just * usual) * AHEAD_PPM // MILLION))
        program = cpu_scaled(high.program, round(cpu_ppm / usual))
        gpu_ppm = cpu_factor(lambda ppm: request_alone(gpu_scaled(program, ppm), device, high.think), request)
        left = "left as recorded" if cpu_ppm == MILLION else f"taken to need {cpu_ppm / MILLION:.2f} of their time"
        say(
            f"{high.program.name} keeps the GPU busy: its kernels are taken to last {gpu_ppm / MILLION:.2f} times as "
            f"long; that says little of the processors, which are {left}"
        )
    made = [replace(client, program=cpu_scaled(client.program, cpu_ppm)) for client in clients]
    made[0] = replace(made[0], program=gpu_scaled(made[0].program, gpu_ppm))
    return tuple(made), Factors(cpu_ppm, gpu_ppm, slow_ppm)


def _check(name: str, request: int, takes: tuple[int, int, int], bound: bool) -> None:
    """Raise where a request cannot take this time alone, whatever the machine."""
    least, now, most = takes
    shown = format_duration(request)
    if not now:
        raise InputError(
            f"a request of {shown} alone: {name} never waits for the GPU in its trace, and has no requests"
        )
    low, high = (MILLION - UNLIKE_PPM, MILLION + UNLIKE_PPM) if bound else (980_000, 1_020_000)
    if not least * low <= request * MILLION <= (max(now, least) if bound else most) * high:
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


def cpu_scaled(program: Program, cpu_ppm: int) -> Program:
    """Return a program with its CPU times multiplied by a factor in parts per million."""
    launches = tuple(launch._replace(gap=max(1, launch.gap * cpu_ppm // MILLION)) for launch in program.launches)
    return replace(program, launches=launches)


def gpu_scaled(program: Program, gpu_ppm: int) -> Program:
    """Return a program with the durations of its kernels multiplied by a factor in parts per million."""
    if gpu_ppm == MILLION:
        return program
    scaled = (launch._replace(duration=max(1, launch.duration * gpu_ppm // MILLION)) for launch in program.launches)
    return replace(program, launches=tuple(scaled))


def request_alone(program: Program, device: Device, think: int) -> int:
    """Return the time of the median request alone; 0 where the program never waits, and has no requests."""
    if not any(launch.waits for launch in program.launches):
        return 0
    times = []
    for request in alone.requests(Client("it", program, think=think), device):
        times.append(request.ended - request.began)
        if len(times) >= REQUESTS and request.ended >= PLAYED:
            break
    return round(median(times))


def cpu_factor(takes: Callable[[int], float], wanted: float) -> int:
    """Return the factor, in parts per million, at which ``takes(factor)`` is ``wanted``, or the nearest limit.

    ``takes`` grows with the factor.
    """
    low, high = LEAST_PPM, MOST_PPM
    while high - low > NEAR_PPM:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) < wanted else (low, middle)
    return (low + high) // 2
