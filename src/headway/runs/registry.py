"""List the scales: jobs, fleet, gpu. To add one, write its folder and add one line here."""

from importlib import import_module
from typing import Any

from headway.errors import ExperimentError, unknown_name
from headway.runs.domain import Domain

DOMAINS = {
    "jobs": "headway.jobs.domain",
    "fleet": "headway.fleet.domain",
    "gpu": "headway.gpu.domain",
}
"""Each scale by the name that users say, and the module that has its ``DOMAIN``; imported when it is asked for."""
RECORDED = {"share": "headway.gpu.share.recorded.domain"}
"""Scales of runs that are only recorded, on real machines; they have no commands of their own."""


def domain(name: str) -> Domain:
    """Return the scale of this name."""
    known = {**DOMAINS, **RECORDED}
    if name not in known:
        raise ExperimentError(unknown_name("scale", name, DOMAINS))
    scale: Domain = import_module(known[name]).DOMAIN
    return scale


def domain_of(experiment: Any) -> Domain:
    """Return the scale that an experiment is of."""
    return domain(experiment.scale)
