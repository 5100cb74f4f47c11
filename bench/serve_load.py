"""Load for the faults and the soak of live serving: requests at a constant rate, each with a key and a deadline."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import headway as hw
from headway.errors import HeadwayError

DEADLINE_S = 2.0
CLIENTS = 4
WARM_S = 2.0
"""What comes first is not normal: models are loaded, and connections are made."""
_STEP_S = 0.25


@dataclass
class Seen:
    """What became of the requests of one run."""

    ends: list[tuple[float, float]] = field(default_factory=list)
    """Of each request: when it was due, and seconds to its answer; infinite where it failed."""
    reasons: Counter[str] = field(default_factory=Counter)
    slowest_failure_s: float = 0.0
    sent: int = 0
    wrong: int = 0
    """Answers to another request."""


Fault = Callable[[list[hw.AsyncClient]], Awaitable[Sequence[str]]]
"""Does a fault; returns the mischief that the next requests carry, one each."""


async def one(client: hw.AsyncClient, order: dict[str, Any], due: float, seen: Seen) -> None:
    """Send a request and note how it ends."""
    seen.sent += 1
    try:
        answer = await client.call("small", order, deadline=DEADLINE_S, key=order["key"])
    except (HeadwayError, OSError) as problem:
        took = time.monotonic() - due
        seen.ends.append((due, math.inf))
        seen.reasons[f"{type(problem).__name__}: {str(problem).split(':')[0].split(' in /')[0]}"] += 1
        seen.slowest_failure_s = max(seen.slowest_failure_s, took)
    else:
        seen.ends.append((due, time.monotonic() - due))
        seen.wrong += answer["n"] != order["n"]


async def load(
    folder: Path, rate: float, seconds: float, seen: Seen, fault: Fault | None = None
) -> tuple[float, float]:
    """Send requests, and do the fault a third into the time; return when it all began and when that was."""
    began, count, fault_at = time.monotonic(), round(rate * seconds), math.inf
    clients = [hw.AsyncClient(folder) for _ in range(CLIENTS)]
    for client in clients:
        await client.open()
    running: set[asyncio.Task[None]] = set()
    mischiefs: list[str] = []
    for number in range(count):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        if fault is not None and due - began > seconds / 3:
            fault_at = time.monotonic()
            mischiefs, fault = list(await fault(clients)), None
        order: dict[str, Any] = {"n": number, "ms": 2, "key": f"{began}-{number}"}
        if mischiefs:
            order |= {"mischief": mischiefs.pop(0), "once": str(folder.parent / "once")}
        task = asyncio.ensure_future(one(clients[number % CLIENTS], order, due, seen))
        running.add(task)
        task.add_done_callback(running.discard)
    if running:
        await asyncio.wait(running, timeout=60)
    for client in clients:
        await client.close()
    return began, fault_at


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def back_s(seen: Seen, fault_at: float, usual: float, window_s: float) -> float | None:
    """Return how long after a fault the p99 of a window of requests was as before it; None: never.

    As before: at most twice as long, or 50 ms longer. A request that failed counts as one that took for ever.
    """
    last, limit = max((due for due, _ in seen.ends), default=0.0), max(2 * usual, usual + 0.05)
    steps = max(1, int((last - window_s - fault_at) / _STEP_S) + 1)
    for after_s in (step * _STEP_S for step in range(steps)):
        begin = fault_at + after_s
        found = [latency for due, latency in seen.ends if begin <= due < begin + window_s]
        if found and percentile(found, 99) <= limit:
            return after_s
    return None


def told(seen: Seen, began: float, fault_at: float, seconds: float) -> dict[str, Any]:
    """Return what callers saw: how requests ended, percentiles before the fault, and when those were back."""
    warm = began + min(WARM_S, seconds / 6)
    before = [latency for due, latency in seen.ends if warm <= due and due + latency < fault_at]
    usual = percentile(before, 99)
    return {
        "sent": seen.sent,
        "answered": sum(latency < math.inf for _, latency in seen.ends),
        "failed": dict(seen.reasons),
        "without_an_end": seen.sent - len(seen.ends),
        "wrong": seen.wrong,
        "slowest_failure_s": round(seen.slowest_failure_s, 3),
        "p50_ms": round(median(before) * 1e3, 2) if before else None,
        "p99_ms": round(usual * 1e3, 2),
        "back_s": back_s(seen, fault_at, usual, seconds / 6) if fault_at < math.inf else None,
    }
