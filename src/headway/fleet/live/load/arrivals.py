"""Say when requests are sent to a server: the arrivals of ``headway fleet --arrivals``, for a stretch of real time."""

from pathlib import Path

import numpy as np

from headway.errors import ExperimentError, TraceError
from headway.fleet.scenarios.tables.settings import BY_RATE, MOST_REQUESTS, split_arrivals
from headway.fleet.traces.draw import CYCLES, GAPS, KINDS, Times, bounds
from headway.fleet.traces.registry import load_requests
from headway.fleet.traces.trace import RequestTrace
from headway.jobs.traces.trace import dropped_note
from headway.units import SECOND, counted, format_duration

EVEN = "uniform"
"""Without bounds: all gaps are the same."""


def arrivals_within(
    arrivals: str, rate: float | None, duration: int, seed: int, notes: list[str]
) -> tuple[Times, RequestTrace | None]:
    """Return when requests arrive before ``duration``, and the trace that they are from.

    ``rate``: requests a second; None: as a trace, or ``uniform:A,B``, has it.
    """
    kind, options = split_arrivals(arrivals)
    if rate is not None and not 0 < rate <= MOST_REQUESTS:
        raise ExperimentError(f"--rate {rate:g}: requests a second, above 0")
    if rate is None and (kind in BY_RATE or arrivals.strip() == EVEN):
        raise ExperimentError(f"arrivals {arrivals}: at which rate? Give requests a second (--rate)")
    if kind not in GAPS and kind not in CYCLES:
        return _from_trace(arrivals, rate, duration, notes)
    count = 1000
    while True:
        times = _drawn(kind, options, rate, count, seed)
        if times[-1] >= duration:
            return times[: int(np.searchsorted(times, duration))], None
        if count >= MOST_REQUESTS:
            raise ExperimentError(f"over {counted(MOST_REQUESTS, 'request')} in {format_duration(duration)}: too many")
        count = min(4 * count, MOST_REQUESTS)


def _drawn(kind: str, options: str, rate: float | None, count: int, seed: int) -> Times:
    """Return the first arrivals of a process; more of them begin with the same ones."""
    if kind in CYCLES:
        cycle = CYCLES[kind](options)
        mean = rate or cycle.rate
        assert mean is not None
        return cycle.moved(GAPS["poisson"](seed, count, SECOND / mean, ""))
    if kind == EVEN and not options:
        assert rate is not None
        return np.arange(count, dtype=np.float64) * (SECOND / rate)
    times = GAPS[kind](seed, count, SECOND / rate if rate else 1.0, options)
    return times if rate else _own_pace(times, options)


def _own_pace(times: Times, options: str) -> Times:
    """Return arrivals of mean gap 1 at the pace that their bounds say."""
    return times * (sum(bounds(options, f"{EVEN}:{options}")) / 2)


def _from_trace(arrivals: str, rate: float | None, duration: int, notes: list[str]) -> tuple[Times, RequestTrace]:
    path = Path(arrivals).expanduser()
    if not path.is_file():
        known = ", ".join((*KINDS[:-1], EVEN))
        raise ExperimentError(f"arrivals {arrivals!r}: neither {known} nor a file of requests")
    trace = load_requests(path)
    if trace.dropped:
        notes.append(dropped_note(trace.dropped, trace.rows, path))
    times = trace.arrival.astype(np.float64)
    if rate is not None and len(times) > 1:
        if not times[-1]:
            raise TraceError(f"trace {path}: its requests come at once, so they have no rate")
        times = times * ((len(times) - 1) * SECOND / float(times[-1]) / rate)
    within = times[: int(np.searchsorted(times, duration))]
    if len(within) == len(times) and times[-1] < duration:
        whole = format_duration(round(float(times[-1])))
        notes.append(f"trace {path}: its {counted(len(times), 'request')} are over after {whole}")
    return within, trace
