"""A program alone on the GPU: the times of each launch, start and end. Slow-downs are measured against it."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from headway.gpu.model.device import Device
from headway.gpu.model.program import Client

NEVER = 1 << 62


class Moment(NamedTuple):
    """One launch of a client alone: when it was made, started and ended, and when the thread went on."""

    number: int
    launched: int
    started: int
    ended: int
    free: int
    """When the thread goes on: at once, or at the end of its wait."""


class AloneRequest(NamedTuple):
    """One request of a client alone."""

    request: int
    began: int
    ended: int


def moments(client: Client, device: Device, horizon: int = NEVER) -> Iterator[Moment]:
    """Yield every launch before the horizon, or until the client has done its requests."""
    latency, follow, wait, queue = device.latency, device.follow, device.wait, device.queue
    thread, last_end, requests, number = client.start, -NEVER, client.requests, 0
    inside: deque[int] = deque()
    while True:
        for (_, gap, duration, waits, think), ends in zip(client.rotated, client.ends, strict=True):
            at = thread + gap
            while inside and inside[0] <= at:
                inside.popleft()
            if len(inside) >= queue:
                at = inside.popleft()
            if at >= horizon:
                return
            started, following = at + latency, last_end + follow
            if following > started:
                started = following
            last_end = started + duration
            inside.append(last_end)
            free = last_end + wait if waits else at
            yield Moment(number, at, started, last_end, free)
            thread = free + think + client.think if waits else at
            if ends:
                requests -= 1
                if not requests:
                    return
            number += 1


def requests(client: Client, device: Device, horizon: int = NEVER) -> Iterator[AloneRequest]:
    """Yield every request that ended, with a wait for the GPU, before the horizon."""
    began, launches = client.start, client.rotated
    for number, _, _, _, free in moments(client, device, horizon):
        launch = launches[number % len(launches)]
        if launch.waits:
            if free < horizon:
                yield AloneRequest(client.request(number), began, free)
            began = free + launch.think + client.think
