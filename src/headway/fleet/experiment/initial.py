"""Choose the workers that a run with an autoscaler begins with, and check its bounds against the fleet."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from headway.errors import ExperimentError
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import Request
from headway.fleet.policies.scalers.kinds import Kinds
from headway.fleet.policies.scalers.registry import build
from headway.fleet.scenarios.build import Built
from headway.fleet.scenarios.limits import capacity_per_second, mix_of
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.scenarios.tokens import tokens_of, with_run_tokens
from headway.jobs.tables.settings import span
from headway.units import MINUTE, SECOND, counted

FIRST_UTILISATION = 0.5
"""Which part of its capacity a fleet that is sized for the first requests is to use."""


def scaled(experiment: ServingExperiment, built: Built, requests: Sequence[Request]) -> Built:
    """Return the scenario with its start-up time, and with the workers switched off that are off at the beginning."""
    table = experiment.serving
    if table.startup != "":
        built = replace(built, fleet=replace(built.fleet, startup=span(table.startup, "startup")))
    if (scaler := build(table.autoscale)) is None:
        return built
    fleet = built.fleet
    there = f"the fleet has {counted(len(fleet.workers), 'worker')}"
    for option in ("least", "most", "initial"):
        if (asked := getattr(scaler, option)) > len(fleet.workers):
            raise ExperimentError(f"autoscale {scaler.name}: {option}={asked}, but {there}; --workers gives it more")
    kinds = Kinds(built.catalogue, fleet, LatencyModel(built.catalogue, fleet), scaler.least, scaler.most)
    if kinds.most < kinds.least:
        rule = f"{kinds.least} are needed so that every function has a worker that can run it"
        raise ExperimentError(f"autoscale {scaler.name}: most={kinds.most}, and {rule}")
    on = kinds.first(scaler.initial or _needed(experiment, built, requests))
    return replace(built, fleet=replace(fleet, off=tuple(i for i in range(len(fleet.workers)) if i not in on)))


def _needed(experiment: ServingExperiment, built: Built, requests: Sequence[Request]) -> int:
    """Return how many workers the requests of the first minutes need, at a moderate utilisation."""
    if not requests:
        return 1
    within = max(2 * built.fleet.startup, 5 * MINUTE)
    first = requests[0].arrival
    last = min(within, max(requests[-1].arrival - first, SECOND))
    rate = sum(request.arrival - first <= within for request in requests) * SECOND / last
    asked = with_run_tokens(experiment, built, tokens_of(requests))
    each = capacity_per_second(asked, mix_of(experiment, built)) / len(built.fleet.workers)
    return ceil(rate / each / FIRST_UTILISATION) if each else 1
