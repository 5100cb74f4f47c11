"""How many workers of which kind answer so many requests a second in time, and what they cost.

Each kind of worker in the scenario is tried alone: the number that its throughput asks for at least, then more, until
runs of the policy answer the wanted share of requests within their deadline; bisection finds the least such number.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from headway.errors import ExperimentError, unknown_name
from headway.experiment import serving
from headway.experiment.serving_measured import numbers
from headway.formats import scenario_file
from headway.formats.scenario_file import SHIPPED, Built
from headway.formats.serving_limits import capacity_per_second, mix_of
from headway.formats.serving_settings import ServingExperiment
from headway.serving.fleet import Fleet, Worker
from headway.traces.serving_arrivals import draw

MOST_WORKERS = 1024
Tell = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """So many workers of one kind, and what they do."""

    kind: Worker
    workers: int
    """0: no number of them is enough."""
    hit_rate: float
    latency_p99_s: float | None
    gpu_utilisation: float
    hour_usd: float
    """Rent of all of them."""
    request_usd: float
    """Rent divided by what is answered."""
    fewer_hit_rate: float | None
    """What one worker fewer would answer in time; None where there was only one."""
    why_not: str = ""

    def record(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "gpu": self.kind.gpu.type,
            "worker": kind_name(self.kind),
            "workers": self.workers or None,
            "slo_hit_rate": self.hit_rate,
            "latency_p99_s": self.latency_p99_s,
            "gpu_utilisation": self.gpu_utilisation,
            "cost_hour_usd": self.hour_usd,
            "cost_per_request_usd": self.request_usd,
            "slo_hit_rate_one_fewer": self.fewer_hit_rate,
            "why_not": self.why_not or None,
        }


def kind_name(worker: Worker) -> str:
    """A kind of worker in words."""
    gpu = worker.gpu
    slices = "" if gpu.slices == 1 else f", {gpu.slices} {'MIG ' if gpu.geometry == 'mig' else ''}slices"
    return f"{gpu.type or 'GPU'} ({gpu.memory_bytes / 1e9:.0f} GB{slices}, {worker.cpus} CPUs)"


def scenario_with(graph: str, scenario: str = "") -> str:
    """The scenario that has a graph of this name: the one given, or the first of those that ship."""
    known: list[str] = []
    for name in (scenario,) if scenario else SHIPPED:
        table = msgspec.structs.replace(ServingExperiment().serving, scenario=name)
        built = scenario_file.load(ServingExperiment(serving=table))
        names = [each.name for each in built.catalogue.graphs]
        if graph in names:
            return name
        known += names
    raise ExperimentError(unknown_name("graph", graph, dict.fromkeys(known)))


def plans(experiment: ServingExperiment, target: float, tell: Tell) -> list[Plan]:
    """The cheapest plan first, then the runners-up; kinds that cannot do it come last."""
    built = scenario_file.load(experiment)
    kinds = list({(w.gpu, w.cpus, w.host_bytes): w for w in built.fleet.workers}.values())
    found = []
    for index, kind in enumerate(kinds):
        told = index / len(kinds)
        found.append(_least(experiment, built, kind, target, lambda text, told=told: tell(text, told)))  # type: ignore[misc]
    return sorted(found, key=lambda plan: (not plan.workers, plan.hour_usd))


def _fleet(built: Built, kind: Worker, count: int) -> Built:
    workers = tuple(replace(kind, name=f"w{number}", host=number) for number in range(count))
    fleet: Fleet = replace(built.fleet, workers=workers)
    return replace(built, fleet=fleet)


def _least(
    experiment: ServingExperiment, built: Built, kind: Worker, target: float, tell: Callable[[str], None]
) -> Plan:
    name = kind_name(kind)
    rate = experiment.workload.rate or 1.0
    one = capacity_per_second(_fleet(built, kind, 1), mix_of(experiment, built))
    if one <= 0:
        return Plan(kind, 0, 0.0, None, 0.0, math.inf, math.inf, None, "it cannot run the graph")
    low = max(1, math.ceil(rate / one))
    tried: dict[int, Plan] = {}

    def good(count: int) -> bool:
        if count not in tried:
            tell(f"{name}: {count} workers")
            tried[count] = _tried(experiment, _fleet(built, kind, count), kind)
        return tried[count].hit_rate >= target

    count = low
    while not good(count):
        if count >= MOST_WORKERS or count >= 64 * low:
            return replace(tried[count], workers=0, why_not=f"{100 * tried[count].hit_rate:.1f} % in time with {count}")
        count = min(MOST_WORKERS, max(count + 1, math.ceil(count * 1.5)))
    bad = max((other for other, plan in tried.items() if other < count and plan.hit_rate < target), default=low - 1)
    while count - bad > 1:
        middle = (count + bad) // 2
        if good(middle):
            count = middle
        else:
            bad = middle
    fewer = tried[count - 1].hit_rate if count - 1 in tried else None
    return replace(tried[count], fewer_hit_rate=fewer)


def _tried(experiment: ServingExperiment, built: Built, kind: Worker) -> Plan:
    """What so many workers do, in a run."""
    scene = serving.ServingScene(experiment, built, draw(experiment, built))
    row = numbers(serving.play(scene))
    workers = len(built.fleet.workers)
    prices = built.fleet.prices
    hour = workers * (kind.gpu.slices * prices.slice_hour + kind.cpus * prices.cpu_hour)
    answered = row["goodput_per_s"] or 0.0
    request = hour / 3600 / answered if answered else math.inf
    said = (row["slo_hit_rate"] or 0.0, row["latency_p99_s"], row["gpu_utilisation"])
    return Plan(kind, workers, *said, hour, request, None)
