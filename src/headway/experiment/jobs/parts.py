"""From the tables of an experiment to its policy and what stopping and moving cost."""

import re

from headway.errors import ExperimentError, unknown_name
from headway.formats.plugins import resolve
from headway.formats.settings import Experiment, optional_span, span
from headway.training.policies.compose import ComposedPolicy
from headway.training.policies.registry import ALLOCATIONS, build
from headway.training.speed import Costs

MIGRATIONS = {"off": "off", "costed": "migrate", "free": "migrate-free", "always": "migrate-always"}
SWITCH = {"": None, "on": True, "off": False}
ROUND = "300s"
"""With an allocation, unless something else is asked for."""


def policy_of(experiment: Experiment) -> ComposedPolicy:
    """The policy that the table names, new."""
    table = experiment.policy
    if table.preemption not in SWITCH:
        raise ExperimentError(unknown_name("preemption", table.preemption, ("on", "off")))
    if table.migration and table.migration not in MIGRATIONS:
        raise ExperimentError(unknown_name("migration", table.migration, MIGRATIONS))
    return build(
        _seeded(resolve(table.name), experiment.run.seed),
        backfill=resolve(table.backfill) or None,
        placement=_seeded(resolve(table.placement), experiment.run.seed) or None,
        migration=MIGRATIONS[table.migration] if table.migration else None,
        preempts=SWITCH[table.preemption],
        allocation=allocation_of(experiment),
        quantum=optional_span(table.quantum, "quantum"),
        round_length=round_of(experiment),
    )


def _seeded(spec: str, seed: int) -> str:
    """Placement at random draws from the run's seed, unless it names one of its own."""
    return re.sub(r"(?<![\w-])random(?![\w(-])", f"random(seed={seed})", spec) if seed else spec


def costs_of(experiment: Experiment, policy: ComposedPolicy) -> Costs:
    """What stopping and moving cost in this run."""
    migration = optional_span(experiment.costs.migration, "migration cost")
    if policy.migration is not None and not policy.migration.charged:
        migration = 0
    return Costs(
        preemption=optional_span(experiment.costs.preemption, "preemption cost"),
        migration=migration,
        reallocation=span(experiment.costs.reallocation, "reallocation cost"),
    )


def allocation_of(experiment: Experiment) -> str | None:
    """The allocation that is asked for; where the speed of jobs is and none is named, the one that clusters have."""
    if experiment.policy.allocation:
        return resolve(experiment.policy.allocation)
    table = experiment.speed
    matters = bool(table.model or table.profiles or table.error)
    return "proportional" if matters and not _names_one(experiment) else None


def _names_one(experiment: Experiment) -> bool:
    """Whether the policy's own string names an allocation."""
    terms = resolve(experiment.policy.name).split("+")[1:]
    return any(term.partition("(")[0].strip() in ALLOCATIONS for term in terms)


def divides(experiment: Experiment) -> bool:
    """Whether what jobs hold besides GPUs is divided by the policy."""
    return allocation_of(experiment) is not None or _names_one(experiment)


def round_of(experiment: Experiment) -> int:
    """How long rounds are, beside what the policy's string may say; 0: there are none."""
    given = experiment.policy.round
    if given != "":
        return span(given, "round")
    return span(ROUND, "round") if divides(experiment) and "round(" not in experiment.policy.name else 0
