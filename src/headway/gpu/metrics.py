"""Metrics of a kernel tape: slow-down and throughput of each client against alone, busy shares, causes of delay.

Pure functions of a tape, its clients and its device. They need only numpy, and so run on GPU machines too.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.core.tape import Tape
from headway.gpu.model import alone
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.model.reflex import Reason
from headway.gpu.model.rows import Kind
from headway.units import SECOND

Longs = npt.NDArray[np.int64]
MOST_CAUSES = 5
_SUBJECT, _LEASE, _PLACE, _DETAIL, _VALUE = 2, 3, 4, 5, 6


def summarise(
    clients: Sequence[Client], device: Device, tape: Tape, horizon: int = 0, since: int = 0
) -> dict[str, Any]:
    """Return one row for a run: clients of the highest priority, then the others together, then each client alone.

    ``horizon``: the end of the run; 0: its last step. ``since``: what happened before does not count.
    """
    until = horizon or (int(tape.column("time")[-1]) if len(tape) else 0)
    since = min(since, until)  # a run that was cut short may have ended before
    client_rows = [client_row(clients, index, device, tape, until, since) for index in range(len(clients))]
    highest = min(client.priority for client in clients)
    above = [row for row in client_rows if row["priority"] == highest]
    below = [row for row in client_rows if row["priority"] > highest]
    shares = [row["throughput_share"] for row in below if row["throughput_share"] is not None]
    return {
        **{f"slowdown_{name}": _worst(above, f"slowdown_{name}") for name in ("p50", "p99")},
        **{f"latency_{name}_s": _worst(above, f"latency_{name}_s") for name in ("p50", "p99")},
        "low_share": sum(shares) if shares else None,
        "busy_share_alone": max(row["busy_share_alone"] for row in above),
        "busy_share": busy_share(tape, until, since),
        "gated_s": sum(row["gated_s"] for row in below),
        "held_up_s": sum(row["held_up_s"] for row in above),
        "seconds": (until - since) / SECOND,
        "clients": client_rows,
    }


def _worst(rows: Sequence[dict[str, Any]], key: str) -> float | None:
    return max((row[key] for row in rows if row[key] is not None), default=None)


def client_row(
    clients: Sequence[Client], index: int, device: Device, tape: Tape, until: int, since: int = 0
) -> dict[str, Any]:
    """Return the metrics of one client between two times."""
    client, span = clients[index], until - since
    rows = tape.rows[(tape.rows[:, _SUBJECT] == index) & (tape.rows[:, 0] >= since)]
    kind = rows[:, 1]
    ended = rows[kind == Kind.REQUEST_ENDED]
    latency = ended[:, 0] - ended[:, _VALUE]
    wanted, base = _alone(client, device, until, since)
    finished = rows[(kind == Kind.FINISHED) & (rows[:, 0] <= until)]
    got = int(finished[:, _DETAIL].sum())
    return {
        "client": client.name,
        "program": client.program.name,
        "priority": client.priority,
        "requests": len(ended),
        "requests_alone": len(base),
        **{f"slowdown_{name}": _ratio(latency, base, share) for name, share in (("p50", 50), ("p99", 99))},
        **{f"latency_{name}_s": _at(latency, share) for name, share in (("p50", 50), ("p99", 99))},
        **{f"latency_alone_{name}_s": _at(base, share) for name, share in (("p50", 50), ("p99", 99))},
        "throughput_share": got / wanted if wanted else None,
        "busy_share_alone": wanted / span if span else 0.0,
        "kernels": len(finished),
        "gpu_s": got / SECOND,
        "gated_s": _gated(rows) / SECOND,
        "held_up_s": int(rows[kind == Kind.HELD_UP, _VALUE].sum()) / SECOND,
        "held_up_by": causes(clients, rows[kind == Kind.HELD_UP]),
        "reasons": _reasons(rows[kind == Kind.LET_GO]),
    }


def _alone(client: Client, device: Device, until: int, since: int) -> tuple[int, Longs]:
    """Return the GPU time of a client alone between two times, and how long its requests take then."""
    work, times, began, rotated = 0, list[int](), client.start, client.rotated
    for number, _, started, ended, free in alone.moments(client, device, until):
        if since <= ended <= until:
            work += ended - started
        if (launch := rotated[number % len(rotated)]).waits:
            if since <= free < until:
                times.append(free - began)
            began = free + launch.think + client.think
    return work, np.array(times, dtype=np.int64)


def request_latencies(clients: Sequence[Client], tape: Tape) -> dict[str, float]:
    """Return how long each request of each program took, in seconds, as ``name:position``."""
    latencies: dict[str, float] = {}
    for index, client in enumerate(clients):
        ended = tape.of(Kind.REQUEST_ENDED)
        ended = ended[ended[:, _SUBJECT] == index]
        for position, latency in enumerate((ended[:, 0] - ended[:, _VALUE]).tolist()):
            latencies[f"{client.name}:{position}"] = latency / SECOND
    return latencies


def _at(values: Longs, share: float) -> float | None:
    return float(np.percentile(values, share)) / SECOND if len(values) else None


def _ratio(values: Longs, base: Longs, share: float) -> float | None:
    """Return a percentile over the same percentile alone, as it is measured on a GPU."""
    if not len(values) or not len(base):
        return None
    return float(np.percentile(values, share) / np.percentile(base, share))


def _gated(rows: Longs) -> int:
    """Return the time that a client's thread spent at the gate; at the end of the run, until it left."""
    total, since = 0, -1
    for time, kind in rows[:, :2].tolist():
        if kind == Kind.REACHED:
            since = time
        elif since >= 0 and kind in (Kind.LET_GO, Kind.LEFT):
            total, since = total + time - since, -1
    return total


def causes(clients: Sequence[Client], held: Longs) -> list[dict[str, Any]]:
    """Return the kernels that held a client up the longest, in all."""
    delays: Counter[tuple[int, int]] = Counter()
    for row in held.tolist():
        delays[row[_DETAIL], row[_PLACE]] += row[_VALUE]
    worst = sorted(delays.items(), key=lambda item: (-item[1], item[0]))[:MOST_CAUSES]
    return [
        {"client": clients[by].name, "kernel": clients[by].program.kernels[kernel].name, "delay_s": delay / SECOND}
        for (by, kernel), delay in worst
    ]


def _reasons(let_go: Longs) -> dict[str, int]:
    numbers, counts = np.unique(let_go[:, _DETAIL], return_counts=True)
    return {Reason(number).name.lower(): count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}


def busy_share(tape: Tape, until: int, since: int = 0) -> float:
    """Return the share of the time in which at least one kernel was on the GPU."""
    finished, span = tape.of(Kind.FINISHED), until - since
    if not len(finished) or not span:
        return 0.0
    start, end = np.maximum(finished[:, _VALUE], since), np.minimum(finished[:, 0], until)
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    before = np.concatenate(([0], np.maximum.accumulate(end)[:-1]))
    covered = np.maximum(0, end - np.maximum(start, before))
    return float(covered.sum()) / span
