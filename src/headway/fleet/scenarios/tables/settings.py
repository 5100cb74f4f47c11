"""Typed tables of a serving experiment, with their defaults.

Durations are text like ``10ms`` or a number of seconds. Empty text, or a number that is left out, means the scenario's
value. The scenario itself (graphs, models, profiles, fleet) is read by ``fleet/scenarios/file.py``.
"""

import re
from math import isfinite
from typing import Any

from msgspec import Struct, field

from headway.errors import ExperimentError, unknown_name
from headway.fleet.model.fleet import WHOLE
from headway.fleet.scenarios.tables.controller import parse_controller
from headway.fleet.scenarios.tables.profile import size
from headway.fleet.scenarios.tables.tokens import Tokens, parse_tokens
from headway.jobs.tables.cluster import within
from headway.jobs.tables.settings import LEAST_MTBF, LONGEST, Span, span
from headway.runs.settings.tables import MeasureTable, NamedPolicyTable, RunTable, Variant, check_measure
from headway.units import parse_duration

FIDELITIES = ("true", "authors")
CONTROLS = ("central", "decentralised")
COLD = "cold"
STARTS = (COLD, "warm")
MOST_WORKERS = 10_000
MEMORY_FACTORS = (0.001, 1000.0)
MOST_REQUESTS = 10_000_000
MOST_TENANTS = 100_000
MOST_A_SECOND = 1_000_000.0
MOST_LOAD = 1_000.0
NO_DEADLINE = "none"
MOST_FACTOR = 1e6
"""The largest deadline as a multiple of the critical path."""
BY_RATE = ("poisson", "gamma", "onoff", "diurnal")
"""Arrival processes that need a rate; others have their own."""
PROCESSES = (*BY_RATE, "uniform", "rates")
"""All arrival processes; any other text is a trace of requests."""
WARMUP = "10%"

_FACTOR = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*[Lx×]\s*")
_SHARE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*%\s*")
_ARRIVALS = re.compile(r"(\w+)\s*(?::(.*)|\((.*)\))?", re.DOTALL)


class ServingTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """The scenario, its fleet, and how workers exchange their rows."""

    scenario: str = ""
    """The name of a scenario that ships with the package, or a file: TOML or Python."""
    setting: str = ""
    """One of the scenario's settings, e.g. strict-light; empty: none."""
    fidelity: str = "true"
    """true, or authors: with the simplifications of the papers' simulators."""
    workers: int | None = None
    """How many; the scenario's number unless given."""
    slices: str | int = ""
    """Of an application: the share of a GPU that each worker has, in sevenths and in turn, as 1,2,4; empty: a whole
    one."""
    devices: int = 0
    """Of an application: GPUs, or sets of CPUs, that its workers share in turn; 0: each has its own."""
    shared_cpus: int = 0
    """Of an application: CPUs that all workers of a device share; 0: each worker has its own."""
    gpu_memory: str | int = ""
    """GPU memory of every worker: 14GB; empty: the scenario's."""
    memory: float = 1.0
    """GPU memory of every worker, as a factor of ``gpu_memory``."""
    push_interval: Span = "10ms"
    """How often workers push their rows to each other; 0: rows are always fresh."""
    start: str = COLD
    """cold: no process runs and no weights are on a GPU when the run begins; warm: as ``fleet.state.warm`` says."""
    autoscale: str = ""
    """How many workers are rented at a time: none, utilisation, queue or headway, with options in brackets; see
    ``fleet.policies.scalers``."""
    startup: Span = ""
    """How long a worker takes to start; empty: the scenario's value."""
    control: str = ""
    """central or decentralised; empty: the scenario's value, else the policy's default."""
    controller: Span = "none"
    """How long a decision takes: none, a duration, calibrated, or fixed=1.2ms,state=3us; see
    ``fleet.policies.central.controller``."""
    profile: str = ""
    """law, measured, paper (the measured shape at the scenario's times), or a profile file; empty: as the scenario
    says."""
    interference: str = ""
    """Table of slow-downs of functions on one GPU: a shipped one by its name (h200), ``store`` for your own profile
    store, or a pairs.json; empty: the scenario's."""
    programs: dict[str, str] = field(default_factory=dict)
    """Patterns of function names, to their names in the table; the first match counts."""
    engine: str = ""
    """What carried the actions out: local, workers on one machine, or ray, replicas of Ray Serve. ``headway serve
    start`` writes it; empty: a run in virtual time."""


class WorkloadTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """The workload."""

    arrivals: str = ""
    """poisson, gamma:CV, onoff, onoff:ON,OFF, uniform:A,B, diurnal(peak=2,period=24h), rates:FILE.csv, or a trace of
    requests; empty: as the scenario says."""
    format: str = ""
    """Format of a trace; empty: detected from the beginning of the file."""
    skip_bad_rows: bool = False
    """Go on although one rule drops more than a tenth of the rows of a trace."""
    rate: float | None = None
    """Requests a second in total."""
    load: float | None = None
    """Instead of the rate: as a part of what the fleet serves with every function at its cheapest configuration."""
    requests: int | None = None
    slo: str = ""
    """How long a request may take: 500ms, 1.2L (L: the graph's critical path at least configurations; 3x is 3L, a
    slow-down of 3), or none. Of graphs that generate also ttft=500ms, tpot=50ms: until the first token, and for each
    further one; several are separated by commas."""
    mix: dict[str, float] | None = None
    """Weights of the graphs by name; those left out get no requests. None: the scenario's."""
    tenants: int | None = None
    """Number of tenants; all send requests equally often."""
    classes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Classes of requests by name, as ``ClassTable`` says; empty: the scenario's."""
    prompt_tokens: Tokens = ""
    """Prompt tokens of requests that generate: 512, uniform:100,900, lognormal:MEDIAN,SIGMA or exponential:MEAN; empty:
    the trace's, else the scenario's, else what their function expects."""
    output_tokens: Tokens = ""
    """The same of the tokens that are generated."""
    overload: bool = False
    """Whether a rate above the capacity of the fleet is allowed."""


class ServingPolicyTable(NamedPolicyTable, kw_only=True):
    """Who decides, and what it has searched beforehand."""

    plans: str = ""
    """Its option of that name, where its search runs before the load. Headway writes it when a run is prepared."""


class WorkerFailuresTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """Worker failures; without ``mtbf`` and ``every`` workers do not fail."""

    mtbf: Span = ""
    """Mean time between failures of one worker; exponential."""
    every: Span = ""
    """Instead: so often one worker, drawn at random, fails."""
    repair: Span = "10s"
    """Until a worker is back: the mean (exponential) with ``mtbf``, exactly this with ``every``."""


class ServingMeasureTable(MeasureTable, kw_only=True):
    """Which requests are measured, over how many seeds, against which run, and the confidence level of intervals."""

    warmup: Span = WARMUP
    """The share of requests, the first to arrive, that is not measured."""


class ServingExperiment(Struct, kw_only=True, forbid_unknown_fields=True):
    """One experiment: a run, or with ``variants`` a run for each."""

    scale: str = "fleet"
    serving: ServingTable = field(default_factory=ServingTable)
    workload: WorkloadTable = field(default_factory=WorkloadTable)
    policy: ServingPolicyTable = field(default_factory=ServingPolicyTable)
    failures: WorkerFailuresTable = field(default_factory=WorkerFailuresTable)
    run: RunTable = field(default_factory=RunTable)
    measure: ServingMeasureTable = field(default_factory=ServingMeasureTable)
    variants: list[Variant] = field(default_factory=list)


def check(experiment: ServingExperiment) -> ServingExperiment:
    """Check every value of an experiment that can be checked without its scenario, and return it."""
    table = experiment.serving
    if not table.scenario:
        raise ExperimentError("serving.scenario is missing: name a scenario (e.g. compass) or give its file")
    if table.fidelity not in FIDELITIES:
        raise ExperimentError(unknown_name("fidelity", table.fidelity, FIDELITIES))
    if table.control and table.control not in CONTROLS:
        raise ExperimentError(unknown_name("control", table.control, CONTROLS))
    if table.start not in STARTS:
        raise ExperimentError(unknown_name("start", table.start, STARTS))
    if table.workers is not None:
        within("workers", table.workers, 1, MOST_WORKERS)
    parse_slices(table.slices)
    within("devices", table.devices, 0, MOST_WORKERS)
    within("shared_cpus", table.shared_cpus, 0, MOST_WORKERS)
    size(table.gpu_memory, "gpu_memory", least=1)
    within("memory", table.memory, *MEMORY_FACTORS)
    span(table.push_interval, "push interval")
    if table.startup != "":
        span(table.startup, "startup")
    parse_controller(table.controller)
    check_workload(experiment.workload)
    check_failures(experiment.failures)
    warmup_share(experiment)
    check_measure(experiment.measure)
    return experiment


def parse_slices(text: str | int) -> tuple[int, ...]:
    """Return the shares in ``1,2,4``, each a number of sevenths of a GPU; none of an empty text."""
    if "mig" in str(text).lower():
        raise ExperimentError(f"slices {text}: MIG is not served: turn it off, and give shares of the SMs as 1,2,4")
    try:
        shares = tuple(int(part) for part in str(text).split(",")) if str(text).strip() else ()
    except ValueError:
        shares = (0,)
    if not all(1 <= share <= WHOLE for share in shares):
        raise ExperimentError(f"slices {text}: write sevenths of a GPU, from 1 to {WHOLE}, as 1,2,4")
    return shares


def check_workload(table: WorkloadTable) -> None:
    """Check the numbers of a workload; what its arrivals mean is checked where they are drawn."""
    if table.rate is not None and not 0 < table.rate <= MOST_A_SECOND:
        raise ExperimentError(
            f"rate {table.rate:g}: must be above 0 and at most {MOST_A_SECOND:,.0f} requests a second"
        )
    if table.load is not None:
        if table.rate is not None:
            raise ExperimentError(f"load {table.load:g} and rate {table.rate:g}: give one of them")
        if not 0 < table.load <= MOST_LOAD:
            rule = f"must be above 0 and at most {MOST_LOAD:,.0f}; 0.6 is 60 % of what the fleet serves"
            raise ExperimentError(f"load {table.load:g}: {rule}")
    for key, most in (("requests", MOST_REQUESTS), ("tenants", MOST_TENANTS)):
        if (count := getattr(table, key)) is not None:
            within(key, count, 1, most)
    for graph, weight in (table.mix or {}).items():
        if not (isfinite(weight) and weight >= 0):
            raise ExperimentError(f"mix: the weight {weight!r} of {graph} must be a number, at least 0")
    if table.mix is not None and not any(table.mix.values()):
        raise ExperimentError("mix is empty: no graph has a weight above 0")
    split_slo(table.slo)
    parse_tokens(table.prompt_tokens, "prompt_tokens")
    parse_tokens(table.output_tokens, "output_tokens")


def split_arrivals(text: str) -> tuple[str, str]:
    """Return the kind of arrivals and its options: ``gamma`` and ``2`` for gamma:2 and gamma(2)."""
    matched = _ARRIVALS.fullmatch(text.strip())
    return (matched[1], (matched[2] or matched[3] or "").strip()) if matched else (text.strip(), "")


def split_slo(text: str, what: str = "slo") -> tuple[str, int, int]:
    """Return the deadlines of a text: of whole answers as it was written, of the first token and of each further one.

    The latter are nanoseconds, 0 where the text does not name them.
    """
    latency, tokens = "", {"ttft": 0, "tpot": 0}
    for part in text.split(",") if text.strip() else ():
        key, _, value = (word.strip() for word in part.rpartition("="))
        if not key and value and not latency:
            latency = value
            parse_slo(latency, what)
        elif key in tokens and not tokens[key]:
            tokens[key] = span(value, f"{what} {key}", least=1)
        else:
            rule = "write one deadline of the whole answer, of ttft and of tpot: 10s,ttft=500ms,tpot=50ms"
            raise ExperimentError(f"{what} {text!r} is not understood: {rule}")
    return latency, tokens["ttft"], tokens["tpot"]


def parse_slo(text: str, what: str = "slo") -> tuple[int, float] | None:
    """Parse a deadline into (nanoseconds, 0.0) or (0, factor of L); None where there is none."""
    if text.strip() in ("", NO_DEADLINE):
        return None
    if (factor := _FACTOR.fullmatch(text)) is not None:
        deadline = (0, float(factor[1]))
    elif text.strip().startswith("-"):
        raise ExperimentError(f"{what} {text!r} must not be negative")
    else:
        deadline = (parse_duration(text, what=what), 0.0)
    if not any(deadline):
        raise ExperimentError(f"{what} {text!r} must be above 0")
    if deadline[0] > LONGEST or deadline[1] > MOST_FACTOR:
        rule = f"{MOST_FACTOR:,.0f} times the critical path" if deadline[1] else "100 years"
        raise ExperimentError(f"{what} {text!r} must not be over {rule}")
    return deadline


def check_failures(table: WorkerFailuresTable) -> None:
    """Check that workers fail in at most one way, and that its times are above 0."""
    if table.mtbf != "" and table.every != "":
        raise ExperimentError("failures have both mtbf and every: give one")
    for key in ("mtbf", "every", "repair"):
        if (value := getattr(table, key)) != "":
            span(value, f"failures {key}", least=1 if key == "repair" else LEAST_MTBF)
    if table.repair == "" and (table.mtbf != "" or table.every != ""):
        raise ExperimentError("failures repair is empty: say how long a worker is down")


def warmup_share(experiment: ServingExperiment) -> float:
    """Return the share of requests that is not measured."""
    text = str(experiment.measure.warmup)
    matched = _SHARE.fullmatch(text)
    share = float(matched[1]) / 100 if matched else -1.0 if text.strip() not in ("", "0") else 0.0
    if not 0 <= share < 1:
        raise ExperimentError(f"warmup {text!r} is not understood: write a share of the requests below 100%, like 10%")
    return share
