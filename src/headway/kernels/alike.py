"""A program as it is on another machine: its CPU time scaled until a request takes alone what it takes there.

Traces are of one machine, and a launch takes the processor of another one 1.1 to 1.9 times as long; with a profiler
beside it it takes longer than without. What a program takes alone is known before it shares.
"""

from collections.abc import Callable
from dataclasses import replace
from statistics import median

from headway.kernels import alone
from headway.kernels.device import Device
from headway.kernels.program import Client, Program

MILLION = 1_000_000
PLAYED = 400_000_000
"""So much of a program alone says what a request takes; of one whose requests are longer a few of them."""
REQUESTS = 3
LEAST_PPM, MOST_PPM = 200_000, 5_000_000
NEAR_PPM = 100


def scaled(program: Program, cpu_ppm: int) -> Program:
    """The same on a processor that takes so many times as long."""
    launches = tuple(each._replace(gap=max(1, each.gap * cpu_ppm // MILLION)) for each in program.launches)
    return replace(program, launches=launches)


def request(program: Program, device: Device, think: int) -> int:
    """What the median request takes alone; 0 where there is none, because it never waits."""
    if not any(launch.waits for launch in program.launches):
        return 0
    found = []
    for each in alone.requests(Client("it", program, think=think), device):
        found.append(each.ended - each.began)
        if len(found) >= REQUESTS and each.ended >= PLAYED:
            break
    return round(median(found))


def factor(takes: Callable[[int], float], wanted: float) -> int:
    """The factor at which a time that grows with it is the one wanted; where it cannot be, the nearest."""
    low, high = LEAST_PPM, MOST_PPM
    while high - low > NEAR_PPM:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) < wanted else (low, middle)
    return (low + high) // 2
