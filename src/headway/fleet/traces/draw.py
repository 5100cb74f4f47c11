"""Make the requests of a serving run: arrival, graph, first worker and deadline of each.

Times, graphs, workers and tenants come from streams of their own, so that changing one leaves the others as they were;
the same seed at another rate gives the same arrivals, closer together or further apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headway.errors import ExperimentError, TraceError
from headway.fleet.model.request import Groups, Request
from headway.fleet.scenarios.classes import rate_of
from headway.fleet.scenarios.file import Built
from headway.fleet.scenarios.generating import check_contexts
from headway.fleet.scenarios.limits import cheapest_per_second, check_rate, mix_of
from headway.fleet.scenarios.tables.settings import (
    BY_RATE,
    MOST_REQUESTS,
    ServingExperiment,
    check_workload,
    split_arrivals,
)
from headway.fleet.scenarios.tokens import TokenPairs, generates, is_recorded, with_run_tokens
from headway.fleet.traces import tokens
from headway.fleet.traces.changing_rate import Cycle, diurnal, rates
from headway.fleet.traces.groups import draw_groups, uniform
from headway.fleet.traces.registry import load_requests
from headway.fleet.traces.trace import RequestTrace
from headway.jobs.tables.settings import span
from headway.jobs.traces.trace import dropped_note
from headway.streams import stream
from headway.units import SECOND, counted, format_duration

Times = npt.NDArray[np.float64]
"""Nanoseconds since the run began."""

KINDS = (
    *("poisson", "gamma:CV", "onoff", "onoff:ON,OFF", "uniform:A,B", "diurnal(peak=P,period=T)", "rates:FILE.csv"),
    "a trace of requests",
)
ON, OFF = "10s", "30s"
MOST_CV = 100.0
MOST_PERIODS = 1_000_000
_LATEST = float(2**62)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What arrives in a run, everything resolved."""

    arrivals: str
    rate: float | None
    """Requests a second; None: as a trace has them."""
    requests: int
    tenants: int


def chosen(experiment: ServingExperiment, built: Built, drawn: Sequence[Request] = ()) -> Chosen:
    """Return what an experiment says, and where it says nothing its scenario.

    ``drawn``: the requests of the run, where they are known: a trace at a load need not be read again for its rate.
    """
    table, plain = experiment.workload, built.workload
    check_workload(table)
    arrivals = (table.arrivals or plain.arrivals).strip()
    paced = split_arrivals(arrivals)[0] in BY_RATE
    rate = table.rate if table.load is None else _at_load(experiment, built, arrivals, drawn)
    by_class = rate_of(experiment, built)
    rate = by_class if rate is None else rate
    if rate is None:
        usual = plain.rate or _own_rate(plain.arrivals)
        rate = usual if paced or not table.arrivals else _own_rate(arrivals)
    if rate is None and paced:
        raise ExperimentError(f"arrivals {arrivals}: at which rate? Give requests a second (workload.rate)")
    requests = table.requests if table.requests is not None else plain.requests
    tenants = table.tenants if table.tenants is not None else plain.tenants
    return Chosen(arrivals, rate, requests, tenants)


def _at_load(experiment: ServingExperiment, built: Built, arrivals: str, drawn: Sequence[Request]) -> float:
    """Return the rate that a load means for requests with the tokens of the run."""
    load = experiment.workload.load
    recorded: TokenPairs = ()
    assert load is not None
    if is_recorded(experiment, built) and generates(built):
        if drawn and drawn[-1].arrival:
            return (len(drawn) - 1) * SECOND / drawn[-1].arrival
        trace = _trace(arrivals, experiment)
        recorded = _tokens(trace, experiment.workload.requests or built.workload.requests)
    return load * cheapest_per_second(with_run_tokens(experiment, built, recorded), mix_of(experiment, built))


def _own_rate(arrivals: str) -> float | None:
    """Return the rate that arrivals say themselves."""
    kind, options = split_arrivals(arrivals)
    return SECOND / (sum(bounds(options, arrivals)) / 2) if kind == "uniform" else None


def draw(experiment: ServingExperiment, built: Built, notes: list[str] | None = None) -> tuple[Request, ...]:
    """Return the requests of a run, in order of arrival; the same for the same experiment.

    ``notes`` gets a line about rows of a trace that were dropped, and one about each class without requests.
    """
    return draw_named(experiment, built, notes)[0]


def draw_named(
    experiment: ServingExperiment, built: Built, notes: list[str] | None = None
) -> tuple[tuple[Request, ...], Groups]:
    """Return the requests of a run, and the names of their classes and tenants."""
    what, seed = chosen(experiment, built), experiment.run.seed
    notes = [] if notes is None else notes
    times, trace = _times(what, experiment, built, notes)
    count = len(times)
    if count and times[-1] > _LATEST:
        raise ExperimentError(f"{counted(count, 'request')} at this rate span over 100 years: raise the rate")
    arrival = np.rint(times).astype(np.int64)
    drawn = draw_groups(experiment, built, count, what.tenants, trace, notes)
    ingress = uniform(seed, "serving.ingress", count, len(built.fleet.workers))
    deadline = np.where(drawn.limits > 0, arrival + drawn.limits, 0)
    columns = [drawn.graphs, arrival, ingress, deadline, drawn.tenants, drawn.class_ids, drawn.priorities]
    if generates(built):
        columns += tokens.drawn(experiment, built, drawn.graphs, trace)
    requests = tuple(map(Request, range(count), *(column.tolist() for column in columns)))
    if trace is not None and (blocks := tokens.blocks_of(experiment, built, trace)):
        requests = tuple(request._replace(blocks=ids) for request, ids in zip(requests, blocks, strict=False))
    check_contexts(built.catalogue, requests)
    return requests, drawn.groups


def _times(
    workload: Chosen, experiment: ServingExperiment, built: Built, notes: list[str]
) -> tuple[Times, RequestTrace | None]:
    """Return when requests arrive, and the trace that they are from."""
    kind, options = split_arrivals(workload.arrivals)
    seed, count = experiment.run.seed, workload.requests
    if kind in CYCLES:
        cycle = CYCLES[kind](options)
        rate = workload.rate or cycle.rate
        assert rate is not None
        check_rate(experiment, built, rate)
        times = cycle.moved(_poisson(seed, count, SECOND / rate, ""))
        notes += _incomplete(workload.arrivals, cycle, times, rate)
        return times, None
    if kind in GAPS:
        assert workload.rate is not None
        check_rate(experiment, built, workload.rate)
        return GAPS[kind](seed, count, SECOND / workload.rate, options), None
    return _from_trace(workload, experiment, built, notes)


# --- drawn ------------------------------------------------------------------------------------------------------


def _poisson(seed: int, count: int, mean: float, options: str) -> Times:
    if options:
        raise ExperimentError(f"arrivals 'poisson:{options}': poisson takes no options")
    return np.cumsum(stream(seed, "serving.times").standard_exponential(count)) * mean


def _gamma(seed: int, count: int, mean: float, options: str) -> Times:
    try:
        variation = float(options)
    except ValueError:
        variation = 0.0
    if not (isfinite(variation) and 0 < variation <= MOST_CV):
        raise ExperimentError(
            f"arrivals 'gamma:{options}': write a coefficient of variation above 0, at most {MOST_CV:g}, like gamma:2"
        )
    shape = variation**-2
    return np.cumsum(stream(seed, "serving.times").standard_gamma(shape, count)) * (mean / shape)


def _on_off(seed: int, count: int, mean: float, options: str) -> Times:
    """Draw Poisson arrivals while on, none while off; both last exponential times, and the rate holds over all."""
    on, off = _pair(options or f"{ON},{OFF}", f"onoff:{options}", "onoff:10s,30s")
    if mean * count > MOST_PERIODS * (on + off):
        raise ExperimentError(f"arrivals 'onoff:{options}': over {MOST_PERIODS:,} bursts; make them longer")
    busy = np.cumsum(stream(seed, "serving.times").standard_exponential(count)) * (mean * on / (on + off))
    lengths = stream(seed, "serving.periods")
    waits = off * lengths.standard_exponential() if lengths.random() * (on + off) < off else 0.0
    ends, pauses = [on * lengths.standard_exponential()], [waits]
    while ends[-1] < busy[-1]:
        pauses.append(pauses[-1] + off * lengths.standard_exponential())
        ends.append(ends[-1] + on * lengths.standard_exponential())
    paused: Times = np.array(pauses)[np.searchsorted(ends, busy)]
    return busy + paused


def _even(seed: int, count: int, mean: float, options: str) -> Times:
    """Draw gaps between two bounds, stretched to the mean that is wanted."""
    low, high = bounds(options, f"uniform:{options}")
    gaps = stream(seed, "serving.times").uniform(low, high, count)
    return np.cumsum(gaps) * (mean / ((low + high) / 2))


def bounds(options: str, arrivals: str) -> tuple[float, float]:
    """Return the bounds of gaps that options of ``uniform`` say, in nanoseconds."""
    low, high = _pair(options, arrivals, "uniform:40ms,67.2ms", least=0)
    if not 0 <= low <= high or high <= 0:
        raise ExperimentError(f"arrivals {arrivals!r}: the first bound must not be above the second")
    return low, high


def _pair(options: str, arrivals: str, example: str, *, least: int = 1) -> tuple[float, float]:
    parts = options.split(",")
    if len(parts) != 2:
        raise ExperimentError(f"arrivals {arrivals!r} is not understood: write two times, like {example}")
    first, second = (float(span(part, f"arrivals {arrivals!r}:", least=least)) for part in parts)
    return first, second


GAPS: dict[str, Callable[[int, int, float, str], Times]] = {
    "poisson": _poisson,
    "gamma": _gamma,
    "onoff": _on_off,
    "uniform": _even,
}
"""Arrival processes with a constant rate: seed, count, mean gap and options give the times."""
CYCLES: dict[str, Callable[[str], Cycle]] = {"diurnal": diurnal, "rates": rates}


def _incomplete(arrivals: str, cycle: Cycle, times: Times, rate: float) -> list[str]:
    """Return a note where the requests are over before the rate has gone through its cycle once."""
    if times[-1] >= cycle.length:
        return []
    whole, own = format_duration(round(cycle.length)), len(times) * SECOND / times[-1]
    covers = f"{counted(len(times), 'request')} {'covers' if len(times) == 1 else 'cover'}"
    covered = f"its {covers} {100 * times[-1] / cycle.length:.3g} % of {whole}"
    return [f"arrivals {arrivals}: {covered}: {own:.3g} a second, where the mean of all of it is {rate:.3g}"]


# --- recorded ---------------------------------------------------------------------------------------------------


def _from_trace(
    workload: Chosen, experiment: ServingExperiment, built: Built, notes: list[str]
) -> tuple[Times, RequestTrace]:
    """Return the first arrivals of a trace, at their own pace or stretched to a rate, and the trace."""
    path, trace = Path(workload.arrivals).expanduser(), _trace(workload.arrivals, experiment)
    if trace.dropped:
        notes.append(dropped_note(trace.dropped, trace.rows, path))
    wanted = experiment.workload.requests
    if wanted is not None and wanted > len(trace):
        raise TraceError(f"trace {path}: holds {counted(len(trace), 'request')}, {wanted:,} were asked for")
    count = min(len(trace), workload.requests, MOST_REQUESTS)
    times = trace.arrival[:count].astype(np.float64)
    if count < 2:
        return times, trace
    if not times[-1]:
        raise TraceError(f"trace {path}: its first {count:,} requests come at once, so they have no rate")
    pace = (count - 1) * SECOND / float(times[-1])
    check_rate(experiment, built, workload.rate or pace, _tokens(trace, count))
    return times * (pace / workload.rate) if workload.rate else times, trace


def _trace(arrivals: str, experiment: ServingExperiment) -> RequestTrace:
    """Read the trace that arrivals name; raise where there is none."""
    path, table = Path(arrivals).expanduser(), experiment.workload
    if not path.exists():
        raise ExperimentError(f"arrivals {arrivals!r}: neither {', '.join(KINDS[:-1])} nor a file of requests")
    return load_requests(path, table.format, skip_bad_rows=table.skip_bad_rows)


def _tokens(trace: RequestTrace, count: int) -> TokenPairs:
    """Return prompt and output of the first requests of a trace; 0 where it has no tokens."""
    return list(zip(trace.input_tokens[:count].tolist(), trace.output_tokens[:count].tolist(), strict=True))
