"""Tell what happened to one program on a shared GPU: how long its requests took, and what they waited for.

``resnet50`` is the program and its slowest requests, ``resnet50:12`` its request 12 alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.core.tape import Tape
from headway.errors import TapeError, unknown_name
from headway.gpu.model import alone
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.profiling.summary import readable
from headway.gpu.show.history import ProgramHistory, program_histories
from headway.gpu.show.perfetto import reason_name
from headway.units import MICROSECOND, MILLISECOND, SECOND, format_duration

SLOWEST = 5
MOST_CAUSES = 3


@dataclass(frozen=True, slots=True)
class RequestStory:
    """Where the time of one request went."""

    number: int
    began: int
    took: int
    alone: int
    """What the median request takes alone; 0: not known."""
    launches: int
    gated: int
    """Time at the gate."""
    held: tuple[tuple[str, str, int], ...]
    """Who was in the way, with which kernel, for how long; the longest first."""

    def line(self) -> str:
        """Return it as a person reads it."""
        slow = f", {self.took / self.alone:.2f}× alone" if self.alone else ""
        parts = [f"request {self.number} at {format_duration(self.began)}: {_short(self.took)}{slow}"]
        parts.append(f"{self.launches:,} launches")
        if self.gated:
            parts.append(f"{_short(self.gated)} at the gate")
        if self.held:
            held = ", ".join(f"{readable(kernel)} of {by} {_short(delay)}" for by, kernel, delay in self.held)
            parts.append(f"behind {held}")
        return "; ".join(parts)

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "request": self.number,
            "began_s": self.began / SECOND,
            "latency_s": self.took / SECOND,
            "alone_s": self.alone / SECOND if self.alone else None,
            "launches": self.launches,
            "gated_s": self.gated / SECOND,
            "held_up_by": [
                {"client": by, "kernel": kernel, "delay_s": delay / SECOND} for by, kernel, delay in self.held
            ],
        }


@dataclass(frozen=True, slots=True)
class Story:
    """What happened to one program."""

    client: str
    priority: int
    requests: int
    p50: int
    p99: int
    alone: int
    gated: int
    reasons: dict[str, int]
    told: tuple[RequestStory, ...]

    def lines(self) -> list[str]:
        """Return it as a person reads it."""
        first = f"{self.client}, priority {self.priority}: {self.requests:,} requests"
        if self.requests:
            slow = f", {self.p50 / self.alone:.2f}× alone" if self.alone else ""
            first += f", p50 {_short(self.p50)}{slow}, p99 {_short(self.p99)}"
        lines = [first]
        if self.gated:
            why = ", ".join(f"{count:,} {name}" for name, count in self.reasons.items())
            lines.append(f"  {_short(self.gated)} at the gate in all; let go: {why}")
        return [*lines, *(f"  {request.line()}" for request in self.told)]

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        known = self.requests > 0
        return {
            "client": self.client,
            "priority": self.priority,
            "requests": self.requests,
            "latency_p50_s": self.p50 / SECOND if known else None,
            "latency_p99_s": self.p99 / SECOND if known else None,
            "latency_alone_p50_s": self.alone / SECOND if self.alone else None,
            "gated_s": self.gated / SECOND,
            "reasons": self.reasons,
            "told": [request.record() for request in self.told],
        }


def story(clients: Sequence[Client], device: Device, tape: Tape, subject: str) -> Story:
    """Tell of one program, or of one of its requests."""
    names = [client.name for client in clients]
    whole = subject in names or ":" not in subject
    name, colon, number = (subject, "", "") if whole else subject.rpartition(":")
    if name not in names:
        raise TapeError(unknown_name("program", name, names))
    history = program_histories(clients, tape)[names.index(name)]
    count = len(history.request_ended)
    if colon and not (number.isdecimal() and int(number) < count):
        which = f"its {count:,} requests go from 0 to {count - 1}" if count else "it ended none"
        raise TapeError(f"request {number!r} of {name} is not in this run: {which}")
    horizon = int(tape.column("time")[-1]) if len(tape) else 0
    times = [request.ended - request.began for request in alone.requests(history.client, device, horizon)]
    median = int(np.median(times)) if times else 0
    chosen = [int(number)] if colon else np.argsort(-history.latency, kind="stable")[:SLOWEST].tolist()
    reasons = Counter(
        reason_name(reason)
        for reason, gated in zip(history.reason.tolist(), history.gated.tolist(), strict=True)
        if gated
    )
    return Story(
        name,
        history.client.priority,
        count,
        int(np.percentile(history.latency, 50)) if count else 0,
        int(np.percentile(history.latency, 99)) if count else 0,
        median,
        int(history.gated.sum()),
        dict(reasons.most_common()),
        tuple(_request(clients, history, at, median) for at in chosen),
    )


def _request(clients: Sequence[Client], history: ProgramHistory, at: int, median: int) -> RequestStory:
    first, last = history.within(at)
    inside = history.held[(history.held[:, 0] >= first) & (history.held[:, 0] < last)]
    delays: Counter[tuple[int, int]] = Counter()
    for _, by, kernel, delay in inside.tolist():
        delays[by, kernel] += delay
    held = tuple(
        (clients[by].name, clients[by].program.kernels[kernel].name, delay)
        for (by, kernel), delay in delays.most_common(MOST_CAUSES)
        if delay
    )
    gated = int(history.gated[first:last].sum())
    return RequestStory(at, int(history.request_began[at]), int(history.latency[at]), median, last - first, gated, held)


def _short(time: int) -> str:
    if time >= SECOND:
        return f"{time / SECOND:.2f} s"
    return f"{time / MILLISECOND:.2f} ms" if time >= MILLISECOND else f"{time / MICROSECOND:.0f} µs"
