"""Capacity planning: the fewest workers of each kind that meet the deadlines under a given load, and their cost.

Each kind of worker in the scenario is tried alone: the number that its throughput needs at least, then more, until runs
of the policy answer the wanted share of requests within their deadline. Bisection finds the least such number. A short
run is enough for a number that is far too small, and the search ends where more workers no longer help. Then mixes of
two kinds are tried that would be cheaper; see ``mixed_plans``.

What counts: every request after the warm-up, and every request that was dropped in the warm-up once the functions of a
graph could have started one after the other. Requests dropped before that are left out: no number of workers could have
answered them in time.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.errors import ExperimentError, unknown_name
from headway.fleet.experiment.scene import FleetScene, with_plans
from headway.fleet.model.catalogue import Function
from headway.fleet.model.fleet import Worker
from headway.fleet.model.rows import Kind
from headway.fleet.scenarios import file as scenario_file
from headway.fleet.scenarios.file import SHIPPED, Built
from headway.fleet.scenarios.generating import check_expected_contexts
from headway.fleet.scenarios.limits import capacity_per_second, deadlines, mix_of
from headway.fleet.scenarios.tables.settings import BY_RATE, ServingExperiment, split_arrivals
from headway.fleet.scenarios.tokens import with_run_tokens
from headway.fleet.traces.draw import draw
from headway.runs.domain import RunResult, with_table
from headway.runs.measured import numbers
from headway.runs.play import play
from headway.units import SECOND, counted

REQUESTS = 2000
"""Requests of each trial run; far fewer do not give the share of misses."""
MOST_WORKERS = 1024
SHORT_RUN_DIVISOR = 8
"""A trial begins with a short run of the first requests: one in so many."""
IDLE_UTILISATION = 0.5
"""Below this GPU utilisation requests are not late for lack of workers."""
SHORTFALL_RATIO = 0.9
"""More workers help if the hit rate's distance from the target shrinks to this fraction of what it was or less,"""
HIT_RATE_GAIN = 0.02
"""or if the hit rate rises by this much;"""
HIT_RATE_LOSS = 0.01
"""they harm if it falls by this much."""
WARM_UP_STARTS = 3
"""The warm-up, as a multiple of the time that a function takes to run for the first time."""
_GROWTH = 1.5
_PROGRESS_LEFT = 0.75
"""Share of the progress bar that is left after a trial: the number of trials is not known beforehand."""
Progress = Callable[[str, float], None]
"""Shows what is being done, and which share of it is done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A number of workers of one kind, and how they perform."""

    kind: Worker
    workers: int
    """0: no number of them is enough."""
    hit_rate: float
    """In time, of what counts: measured requests, and those dropped in the warm-up after the start."""
    latency_p99_s: float | None
    gpu_utilisation: float
    hour_usd: float
    """Rent of all of them."""
    request_usd: float | None
    """Rent divided by what is answered in time; None when nothing is."""
    requests: int = 0
    """Of the trial, the warm-up included."""
    dropped: int = 0
    """Of all these."""
    dropped_at_start: int = 0
    """Of those: before any function could have started; these do not count against the plan."""
    fewer_hit_rate: float | None = None
    """Hit rate with one worker fewer; None where there would be none."""
    why_not: str = ""
    beside: tuple[Worker, int] | None = None
    """In a mix: another kind, and how many of it are there besides."""
    slowdown_mean: float | None = None
    slowdown_p95: float | None = None
    curve: tuple[Mapping[str, Any], ...] = ()
    """Hit rate and slow-down by number of workers, of all whole trials; the fewest workers first."""

    def record(self) -> dict[str, Any]:
        """Return the plan as a row of the JSON output."""
        gpu, name, count = self.kind.gpu.type, kind_name(self.kind), self.workers
        if self.beside is not None:
            other, more = self.beside
            gpu, name = f"{gpu} + {other.gpu.type}", f"{count} × {name} + {more} × {kind_name(other)}"
            count += more
        return {
            "gpu": gpu,
            "worker": name,
            "workers": count or None,
            "slo_hit_rate": self.hit_rate if self.requests else None,  # nothing was tried
            "requests": self.requests,
            "dropped": self.dropped,
            "dropped_at_start": self.dropped_at_start,
            "latency_p99_s": self.latency_p99_s,
            "gpu_utilisation": self.gpu_utilisation,
            "cost_hour_usd": self.hour_usd if self.workers else None,
            "cost_per_request_usd": self.request_usd if self.workers else None,
            "slo_hit_rate_one_fewer": self.fewer_hit_rate,
            "why_not": self.why_not or None,
            "slowdown_mean": self.slowdown_mean,
            "slowdown_p95": self.slowdown_p95,
            "curve": list(self.curve),
        }


def kind_name(worker: Worker) -> str:
    """Return the name of a kind of worker for people."""
    gpu = worker.gpu
    slices = "" if gpu.slices == 1 else f", {gpu.slices} {'MIG ' if gpu.geometry == 'mig' else ''}slices"
    cpus = "1 CPU" if worker.cpus == 1 else f"{worker.cpus} CPUs"
    return f"{gpu.type or 'GPU'} ({gpu.memory_bytes / 1e9:.0f} GB{slices}, {cpus})"


def settings_for(graph: str, scenario: str | None = None) -> dict[str, Any]:
    """Return the settings of trials of a graph by name, or of all graphs of a scenario: by its name, or a file."""
    if scenario is not None and not scenario.strip():
        raise ExperimentError("--scenario is empty: give it a value, or leave it out")
    usual = {"requests": REQUESTS, "arrivals": "poisson", "set": {"workload.overload": True}}
    if graph not in SHIPPED and Path(graph).suffix not in (".toml", ".py"):
        only = {"workload.overload": True, "workload.mix": {graph: 1.0}}
        return usual | {"scenario": scenario_with(graph, scenario or ""), "set": only}
    if scenario:
        raise ExperimentError(f"{graph} is a scenario already: leave --scenario {scenario} out")
    return usual | {"scenario": graph}


def scenario_with(graph: str, scenario: str = "") -> str:
    """Return the scenario that has a graph of this name: the one given, or the first shipped one."""
    known: list[str] = []
    for name in (scenario,) if scenario else SHIPPED:
        names = _graphs_of(name)
        if graph in names:
            return name
        known += names
    raise ExperimentError(unknown_name("graph or scenario", graph, dict.fromkeys([*SHIPPED, *known])))


def _graphs_of(scenario: str) -> list[str]:
    built = scenario_file.load(with_table(ServingExperiment(), "serving", scenario=scenario))
    return [graph.name for graph in built.catalogue.graphs]


def plans(experiment: ServingExperiment, target: float, progress: Progress) -> list[Plan]:
    """Return a plan for each kind, cheapest first; kinds that are not enough come last, the nearest first."""
    return [plan for plan, _ in searched(*prepared(experiment), target, progress)]


def searched(
    experiment: ServingExperiment, built: Built, target: float, progress: Progress
) -> "list[tuple[Plan, Search]]":
    """Return the plans of a prepared experiment in the same order, each with its search, for more trials."""
    kinds = list({(w.gpu, w.cpus, w.host_bytes, w.hour_usd): w for w in built.fleet.workers}.values())
    searches = [
        Search(experiment, built, kind, target, part_of(progress, index, len(kinds)))
        for index, kind in enumerate(kinds)
    ]
    results = [(search.least(), search) for search in searches]

    def order(each: tuple[Plan, Search]) -> tuple[bool, float]:
        plan = each[0]
        return not plan.workers, plan.hour_usd if plan.workers else -plan.hit_rate

    return sorted(results, key=order)


def prepared(experiment: ServingExperiment) -> tuple[ServingExperiment, Built]:
    """Return the experiment and its scenario with deadlines as times; raise where a graph has none."""
    built = scenario_file.load(experiment)
    limits = deadlines(experiment, built)
    _check_limits(experiment, built, limits)
    # as times: factors of the critical path differ between kinds of workers
    return experiment, replace(built, workload=replace(built.workload, limits=limits))


def part_of(progress: Progress, index: int, count: int) -> Progress:
    """Return the progress of one of several things that are done one after the other."""
    return lambda text, share: progress(text, (index + share) / count)


def _check_limits(experiment: ServingExperiment, built: Built, limits: tuple[tuple[int, ...], ...]) -> None:
    """Raise for a graph that is asked for and has no deadline; one class with a deadline for it is enough.

    A deadline of tokens is one too.
    """
    for graph, share, *given in zip(built.catalogue.graphs, mix_of(experiment, built), *limits, strict=True):
        if share and not any(given) and not graph.ttft and not graph.tpot:
            reason = "leaves it open" if experiment.workload.slo else "is not given, and its scenario has no slo for it"
            named = f"--slo {experiment.workload.slo}".strip()
            raise ExperimentError(f"a plan needs a deadline for graph {graph.name}: {named} {reason}; e.g. --slo 500ms")


@dataclass(slots=True)
class Search:
    """Search for the least number of workers of one kind."""

    experiment: ServingExperiment
    built: Built
    kind: Worker
    target: float
    progress: Progress
    beside: tuple[Worker, int] | None = None
    """Another kind, and how many of it every fleet has besides."""
    tried: dict[int, Plan] = field(default_factory=dict)
    rows: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """Results of runs, by the number of workers and the part of the requests."""

    def least(self) -> Plan:
        """Return the plan with the fewest workers that are enough; with 0 workers and the reason, where none are."""
        nothing = Plan(self.kind, 0, 0.0, None, 0.0, 0.0, None)
        rate = self.experiment.workload.rate or 1.0
        try:
            deadlines(self.experiment, self._fleet(1))
            asked = with_run_tokens(self.experiment, self._fleet(1))
            check_expected_contexts(asked.catalogue)
        except ExperimentError as problem:
            return replace(nothing, why_not=str(problem))
        one = capacity_per_second(asked, mix_of(self.experiment, self.built))
        count = max(1, math.ceil(self.target * rate / one - 1e-9))
        if count > MOST_WORKERS:
            why = f"{count:,} of them would be needed for the throughput alone, {MOST_WORKERS:,} are the most tried"
            return replace(nothing, why_not=why)
        too_few = count - 1
        while not self.is_enough(count):
            if (stalled := self._has_stalled()) or count >= MOST_WORKERS:
                best = max(self.tried.values(), key=lambda plan: (plan.hit_rate, plan.workers))
                reached = f"{100 * best.hit_rate:.1f} % in time with {counted(best.workers, 'worker')}"
                rest = "and more do not help" if stalled else f"and {MOST_WORKERS:,} are the most tried"
                return replace(best, workers=0, why_not=f"{reached}, {rest}", curve=self.curve())
            too_few, count = count, min(MOST_WORKERS, math.ceil(count * _GROWTH))
        while count - too_few > 1:
            middle = (count + too_few) // 2
            if self.is_enough(middle):
                count = middle
            else:
                too_few = middle
        fewer = None if count == 1 else self._run(count - 1, 1)["slo_hit_rate"]
        return replace(self.tried[count], fewer_hit_rate=fewer, curve=self.curve())

    def curve(self, counts: Sequence[int] = ()) -> tuple[Mapping[str, Any], ...]:
        """Return hit rate and slow-down by number of workers, of the whole trials so far and of some more."""
        for count in counts:
            self._run(count, 1)
        keys = ("slo_hit_rate", "slowdown_mean", "slowdown_p95")
        whole = sorted(count for count, part in self.rows if part == 1)
        return tuple({"workers": count, **{key: self.rows[count, 1].get(key) for key in keys}} for count in whole)

    def is_enough(self, count: int) -> bool:
        """Return whether so many workers are enough; keep their plan."""
        if count not in self.tried:
            for part in (SHORT_RUN_DIVISOR, 1):
                row = self._run(count, part)
                self.tried[count] = self._plan(count, row)
                if self._is_settled(row):
                    break
        return self.tried[count].hit_rate >= self.target

    def _is_settled(self, row: Mapping[str, Any]) -> bool:
        """Return whether a short run already has more misses than the whole run, which begins with it, may have."""
        missed = (1 - (row["slo_hit_rate"] or 0.0)) * row["measured"]
        return bool(missed > (1 - self.target) * (self.experiment.workload.requests or row["measured"]) + 0.5)

    def _has_stalled(self) -> bool:
        """Return whether the last two increases hardly helped while GPUs are idle, or made it worse."""
        last = [self.tried[count] for count in sorted(self.tried)][-3:]
        shortfalls = [self.target - plan.hit_rate for plan in last]
        steps = list(zip(shortfalls[1:], shortfalls[:-1], strict=True))
        idle = all(plan.gpu_utilisation < IDLE_UTILISATION for plan in last)
        stuck = all(now > SHORTFALL_RATIO * old and now > old - HIT_RATE_GAIN for now, old in steps)
        return len(last) == 3 and ((idle and stuck) or all(now > old + HIT_RATE_LOSS for now, old in steps))

    def _plan(self, count: int, row: Mapping[str, Any]) -> Plan:
        hour = count * self.built.fleet.hour_usd(self.kind)
        hour += self.beside[1] * self.built.fleet.hour_usd(self.beside[0]) if self.beside else 0.0
        answered = row.get("deadlines_goodput_per_s", row["goodput_per_s"])
        measured = (row["slo_hit_rate"] or 0.0, row["latency_p99_s"], row["gpu_utilisation"])
        cost = hour / 3600 / answered if answered else None
        counted = (row["requests"], row["dropped"], row["dropped_at_start"])
        plan = Plan(self.kind, count, *measured, hour, cost, *counted, beside=self.beside)
        return replace(plan, slowdown_mean=row.get("slowdown_mean"), slowdown_p95=row.get("slowdown_p95"))

    # --- trials ---

    def _run(self, count: int, part: int) -> dict[str, Any]:
        """Return the numbers of a run of so many workers on a part of the requests."""
        if (count, part) in self.rows:
            return self.rows[count, part]
        built, experiment = self._fleet(count), self._shortened(part)
        what = f"{kind_name(self.kind)}: {counted(count, 'worker')}"
        what += f", {self.beside[1]} {kind_name(self.beside[0])}" if self.beside else ""

        def report(share: float) -> None:
            self.progress(what, 1 - _PROGRESS_LEFT ** (len(self.rows) + share))

        report(0.0)
        scene = with_plans(FleetScene(experiment, built, draw(experiment, built)))
        scene.policy().check_requests(scene.requests, built.catalogue.graphs)
        result = play(scene, progress=lambda far: report(far.share))
        if result.stopped:
            raise KeyboardInterrupt
        row = self.rows[count, part] = self._counted(result)
        return row

    def _counted(self, result: RunResult) -> dict[str, Any]:
        """Return the numbers of a trial; requests dropped in the warm-up after the start count as missed."""
        row, requests = numbers(result).row, result.scene.requests
        dropped = result.tape.column("subject")[result.tape.column("kind") == Kind.DROP]
        start, first = requests[0].arrival + self._start(), len(requests) - row["measured"]
        early = sum(1 for number in dropped.tolist() if number < first and requests[number].arrival < start)
        measured = row["measured"] + row["dropped_warmup"] - early
        hits = (row.get("deadlines_hit_rate", row["slo_hit_rate"]) or 0.0) * row["measured"]
        share = hits / measured if measured else None
        return {**row, "measured": measured, "slo_hit_rate": share, "dropped_at_start": early}

    def _start(self) -> int:
        """Return how long it takes to start the functions of a graph, one after the other; of the slowest graph."""
        catalogue = self.built.catalogue
        return max(
            graph.critical_path([self._start_of(catalogue.functions[function]) for function in graph.functions])
            for graph in catalogue.graphs
        )

    def _shortened(self, part: int) -> ServingExperiment:
        """Return the experiment with a part of its requests, after a warm-up to start processes and fetch weights."""
        workload = self.experiment.workload
        wanted = workload.requests or 1000
        if split_arrivals(workload.arrivals)[0] not in BY_RATE:
            return self.experiment if part == 1 else self._with(max(1, wanted // part), 0.1)
        slowest = max(self._start_of(function) for function in self.built.catalogue.functions)
        first = max(wanted // 10, math.ceil(WARM_UP_STARTS * slowest / SECOND * (workload.rate or 1.0)))
        count = max(1, wanted // part) + first
        return self._with(count, first / count)

    def _start_of(self, function: Function) -> int:
        """Return how long a function takes to run for the first time: process start and fetch of its weights."""
        catalogue, fleet = self.built.catalogue, self.built.fleet
        if fleet.warm:
            return 0
        whole = sum(model.weights_bytes for model in catalogue.models)
        from_disk = not self.built.preloaded or self.kind.host_bytes < whole
        weights = sum(catalogue.models[model].weights_bytes for model in function.models)
        return function.cold_start + fleet.fetch_time(weights, from_disk=from_disk)

    def _with(self, requests: int, warmup: float) -> ServingExperiment:
        changed = with_table(self.experiment, "workload", requests=requests)
        return with_table(changed, "measure", warmup=f"{100 * warmup:.6f}%")

    def _fleet(self, count: int) -> Built:
        """Return the scenario with so many workers of the kind, and with those beside them."""
        workers = _workers(self.built, self.kind, count, 0)
        if self.beside is not None:
            workers += _workers(self.built, *self.beside, len(workers))
        return replace(self.built, fleet=replace(self.built.fleet, workers=workers))


def _workers(built: Built, kind: Worker, count: int, before: int) -> tuple[Worker, ...]:
    """Return so many workers of a kind, as many on a host and in a rack as the scenario has; ``before``: others."""
    same = [worker for worker in built.fleet.workers if worker.gpu == kind.gpu and worker.cpus == kind.cpus]
    hosts = {worker.host for worker in same}
    racks = {worker.rack for worker in same}
    per_host = -(-len(same) // len(hosts))
    per_rack = -(-len(hosts) // len(racks)) if len(racks) > 1 else MOST_WORKERS
    return tuple(
        replace(kind, name=f"w{before + n}", host=before + n // per_host, rack=n // per_host // per_rack)
        for n in range(count)
    )
