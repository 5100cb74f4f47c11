"""Programs on another machine than that of their traces: scale CPU time until a request alone takes the measured time.

A launch takes the CPU of another machine 1.1 to 1.9 times as long, and longer with a profiler than without. The time of
a request alone is known before the program shares.
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
"""How much of a program is played alone to time a request; at least ``REQUESTS`` requests."""
REQUESTS = 3
LEAST_PPM, MOST_PPM = 200_000, 5_000_000
NEAR_PPM = 100
TELLING_PPM = 200_000
"""If twice the CPU time makes a request longer by less than this share, the request says little about the CPU."""


def on_other_machine(
    clients: Sequence[Client], device: Device, request: int, say: Callable[[str], None]
) -> tuple[tuple[Client, ...], int]:
    """Return the clients with CPU times scaled so that a request of the first takes ``request`` alone, and the factor.

    The factor is in parts per million and the same for all clients; the GPU is the same.
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
    return tuple(replace(client, program=cpu_scaled(client.program, ppm)) for client in clients), ppm


def cpu_scaled(program: Program, cpu_ppm: int) -> Program:
    """Return a program with its CPU times multiplied by a factor in parts per million."""
    launches = tuple(launch._replace(gap=max(1, launch.gap * cpu_ppm // MILLION)) for launch in program.launches)
    return replace(program, launches=launches)


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
