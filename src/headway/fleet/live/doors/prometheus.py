"""Write what a server counts as Prometheus reads it: the text format, version 0.0.4."""

from collections.abc import Iterable, Mapping
from typing import Any

from headway.fleet.live.doors.front import Front
from headway.fleet.live.request_counts import BOUNDS, EVERY_OUTCOME
from headway.units import SECOND

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
Sample = tuple[Labels, float]
GAUGES = {"open": "Requests accepted and not yet answered."}
COUNTERS = {
    "tasks": "Tasks that ended.",
    "batches": "Batches that ended.",
    "loads": "Models loaded into workers' memory.",
    "moved_bytes": "Bytes of models loaded into workers' memory.",
    "cache_hits": "Models of batches and fetches that were in a worker's memory already.",
    "evictions": "Models removed from workers' memory.",
    "rejected_actions": "Decisions on a stale view, which were refused and made again.",
}
"""Keys of the server's status, as numbers; one that the server does not have is left out."""
_OF_WORKERS = (
    ("queued", "gauge", "Tasks that wait at a worker."),
    ("running", "gauge", "Tasks that run on a worker."),
    ("starts", "counter", "How often a worker was started."),
    ("memory_bytes", "gauge", "Memory that a worker may use."),
    ("booked_bytes", "gauge", "Memory of it that is taken, by the books of the server."),
    ("used_bytes", "gauge", "Memory of it that is taken, by the worker's own."),
    ("device_bytes", "gauge", "Memory that the device reports for a worker."),
)


def text_of(front: Front) -> str:
    """Return all metrics of a server."""
    status = front.server.status()
    lines = [*_requests(front), *_latency(front)]
    for kind, names in (("gauge", GAUGES), ("counter", COUNTERS)):
        for name, about in names.items():
            if isinstance(value := status.get(name), int | float):
                ending = "_total" if kind == "counter" else ""
                lines += _family(f"headway_{name}{ending}", kind, about, [({}, value)])
    if drift := status.get("drift"):
        about = "What batches of a task took over what its profile says, the median of the last 256."
        lines += _family("headway_drift_ratio", "gauge", about, [({"task": key}, drift[key]) for key in sorted(drift)])
    lines += _workers(status.get("workers"))
    ready = int(front.takes_requests)
    lines += _family("headway_ready", "gauge", "Whether requests are taken.", [({}, ready)])
    return "\n".join(lines) + "\n"


def _requests(front: Front) -> list[str]:
    rows = [
        ({"graph": graph, "outcome": outcome}, float(row.outcomes.get(outcome, 0)))
        for graph, row in sorted(front.counts.graphs.items())
        for outcome in EVERY_OUTCOME
    ]
    about = "Requests answered, by graph and outcome; an empty graph is one that does not exist."
    return _family("headway_requests_total", "counter", about, rows)


def _latency(front: Front) -> list[str]:
    name = "headway_request_seconds"
    lines = [
        f"# HELP {name} Time from a request to its answer, of those that were answered.",
        f"# TYPE {name} histogram",
    ]
    for graph, row in sorted(front.counts.graphs.items()):
        if graph:
            below = 0
            for bound, number in zip(BOUNDS, row.buckets, strict=False):
                below += number
                lines.append(_line(f"{name}_bucket", {"graph": graph, "le": f"{bound / SECOND:g}"}, below))
            below += row.buckets[-1]
            lines.append(_line(f"{name}_bucket", {"graph": graph, "le": "+Inf"}, below))
            lines.append(_line(f"{name}_sum", {"graph": graph}, row.total / SECOND))
            lines.append(_line(f"{name}_count", {"graph": graph}, below))
    return lines


def _workers(workers: Any) -> list[str]:
    if not isinstance(workers, list):
        return []
    up = sum(bool(each.get("up")) for each in workers)
    lines = _family("headway_workers_up", "gauge", "Workers that answer.", [({}, up)])
    for key, kind, about in _OF_WORKERS:
        rows = [
            ({"worker": str(each.get("name", index))}, float(each[key]))
            for index, each in enumerate(workers)
            if isinstance(each.get(key), int | float)
        ]
        lines += _family(f"headway_worker_{key}", kind, about, rows) if rows else []
    return lines


def _family(name: str, kind: str, about: str, rows: Iterable[Sample]) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *(_line(name, *row) for row in rows)]


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = str(int(value)) if float(value).is_integer() else repr(float(value))
    return f"{name}{{{shown}}} {number}" if shown else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
