"""Shipped programs as they are on another machine: their CPU time scaled to what each took there alone.

Traces are of one machine, and a launch takes a processor of another one 1.1 to 1.9 times as long. What a program takes
alone is known before it shares; nothing of what came out when it shared is used here.
"""

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from headway.experiment.kernels import SETTLE, KernelsExperiment, clients_of, compare
from headway.kernels import alone
from headway.kernels.device import Device
from headway.kernels.program import Client, Program

MS = 1_000_000
PLAYED = 400 * MS
REQUESTS = {"matmul": 8, "graph-b64": 8}
"""Of a batch program, in one round of its trace; three of the others."""
_LEAST, _MOST, _HALVINGS = 0.2, 5.0, 14


def scaled(program: Program, factor: float) -> Program:
    """The same on a processor that takes so many times as long."""
    return replace(
        program, launches=tuple(each._replace(gap=max(1, round(each.gap * factor))) for each in program.launches)
    )


def request_ms(program: Program, device: Device, think: int) -> float:
    """The median request alone."""
    found = [each.ended - each.began for each in alone.requests(Client("it", program, think=think), device, PLAYED)]
    return median(found) / MS if found else 0.0


def rate(program: Program, device: Device) -> float:
    """Rounds of a batch program a second, alone."""
    client, done, last = Client("it", program), 0, 1
    for moment in alone.moments(client, device, PLAYED):
        if client.ends_request(moment.number):
            done, last = done + 1, moment.ended
    return done * 1e9 / last


def factor(takes: Callable[[float], float], wanted: float) -> float:
    """The factor at which a time that grows with it is the one wanted; where it cannot be, the nearest."""
    low, high = _LEAST, _MOST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if takes(middle) < wanted else (low, middle)
    return (low + high) / 2


def alike(row: dict[str, Any], clients: tuple[Client, ...], device: Device) -> tuple[Client, ...]:
    """The two programs of a row with the CPU time that they had there, as far as what they took alone tells it.

    One that keeps the GPU busy alone does not tell: it keeps the CPU time of its trace.
    """
    high, low = clients
    above = factor(lambda f: request_ms(scaled(high.program, f), device, high.think), row["alone"]["p50_ms"])
    rounds = row["low_alone_per_s"][0] / REQUESTS.get(row["low"], 3)
    below = 1.0
    if rounds < rate(low.program, device):
        below = factor(lambda f: 1 / rate(scaled(low.program, f), device), 1 / rounds)
    return tuple(replace(client, program=scaled(client.program, by)) for client, by in ((high, above), (low, below)))


def gate_ns(row: dict[str, Any], usual: int) -> int:
    """What it cost to ask there, on top of the hooks; where that was not measured, as usual."""
    if not row.get("ask_ns") or not row.get("ns_a_launch"):
        return usual
    return max(0, round(row["ask_ns"] - row["ns_a_launch"]))


def said(row: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The gate's row of a pair, for the machine on which it was measured."""
    device = Device(gate=gate_ns(row, Device().gate))
    think = round(row["think_ms"] * MS)
    options = {"slo": 1.05, "floor": 0.01}
    each = KernelsExperiment((row["high"],), (row["low"],), "headway", think, seconds, 0, options, device)
    clients = alike(row, clients_of(each), device)
    found = compare(each, ["headway"], clients, None, {"headway": SETTLE})[0]
    return {
        **{name: row[name] for name in ("high", "low", "think_ms")},
        "slowdown": found["slowdown_p50"],
        "low_share": found["low_share"],
        "gate_ns": device.gate,
    }
