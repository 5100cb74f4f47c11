"""Build the policy of an experiment, and the costs of preemption and migration, from its tables."""

import re

import msgspec

from headway.errors import ExperimentError, unknown_name
from headway.jobs.model.speed import Costs
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import ALLOCATIONS, build
from headway.jobs.tables.settings import Experiment, optional_span, span
from headway.plugins import resolve
from headway.units import SECOND, exact_duration

MIGRATIONS = {"off": "off", "costed": "migrate", "free": "migrate-free", "always": "migrate-always"}
SWITCH = {"": None, "on": True, "off": False}
ROUND = "300s"
"""With an allocation, unless something else is asked for."""
LEAST_ROUND = SECOND
"""The shortest round, and the shortest time after which an order computes its keys anew."""


PARTS = ("name", "backfill", "placement", "allocation")
"""The keys of a policy's table that may name a file."""


def policy_of(experiment: Experiment) -> ComposedPolicy:
    """Return a new policy as the table names it."""
    table = experiment.policy
    if table.preemption not in SWITCH:
        raise ExperimentError(unknown_name("preemption", table.preemption, ("on", "off")))
    if table.migration and table.migration not in MIGRATIONS:
        raise ExperimentError(unknown_name("migration", table.migration, MIGRATIONS))
    policy = build(
        _seeded(resolve(table.name, "jobs"), experiment.run.seed),
        backfill=resolve(table.backfill) or None,
        placement=_seeded(resolve(table.placement), experiment.run.seed) or None,
        migration=MIGRATIONS[table.migration] if table.migration else None,
        preempts=SWITCH[table.preemption],
        allocation=allocation_of(experiment),
        quantum=optional_span(table.quantum, "quantum"),
        round_length=round_of(experiment),
    )
    _often(policy, "its round is", policy.round_length, ", or 0s: decide at every event")
    _often(policy, "its order computes keys anew every", policy.refresh, "")
    return policy


def _often(policy: ComposedPolicy, what: str, every: int, otherwise: str) -> None:
    """Refuse a policy that would be asked so often that a run would never end."""
    if 0 < every < LEAST_ROUND:
        least = exact_duration(LEAST_ROUND)
        raise ExperimentError(
            f"policy {policy.name}: {what} {exact_duration(every)}: must be at least {least}{otherwise}"
        )


def _seeded(spec: str, seed: int) -> str:
    """Return the policy's name with the run's seed for random placement, unless it names a seed itself."""
    return re.sub(r"(?<![\w-])random(?![\w(-]|[^()]*\))", f"random(seed={seed})", spec) if seed else spec


class PolicyFacts(msgspec.Struct, frozen=True):
    """What books need to know of a policy, kept with the run so that nobody has to import its file to check them."""

    name: str
    charged: bool
    """Whether moves cost what the experiment says."""
    round_length: int
    divides: bool
    """Whether it divides what jobs hold besides GPUs."""


def facts_of(experiment: Experiment) -> PolicyFacts:
    """Return the properties of the policy, asked of the policy itself."""
    policy = policy_of(experiment)
    charged = policy.migration is None or policy.migration.charged
    return PolicyFacts(policy.name, charged, policy.round_length, divides(experiment))


def costs_of(experiment: Experiment, facts: PolicyFacts) -> Costs:
    """Return what stopping and moving cost in this run."""
    migration = optional_span(experiment.costs.migration, "migration cost") if facts.charged else 0
    return Costs(
        preemption=optional_span(experiment.costs.preemption, "preemption cost"),
        migration=migration,
        reallocation=span(experiment.costs.reallocation, "reallocation cost"),
    )


def allocation_of(experiment: Experiment) -> str | None:
    """Return the allocation that is asked for; with a speed model and no name, the default of clusters."""
    if experiment.policy.allocation:
        return resolve(experiment.policy.allocation)
    table = experiment.speed
    matters = bool(table.model or table.profiles or table.error)
    return "proportional" if matters and not _names_one(experiment) else None


def _names_one(experiment: Experiment) -> bool:
    """Return whether the policy's own string names an allocation."""
    terms = resolve(experiment.policy.name).split("+")[1:]
    return any(term.partition("(")[0].strip() in ALLOCATIONS for term in terms)


def divides(experiment: Experiment) -> bool:
    """Return whether what jobs hold besides GPUs is divided by the policy."""
    return allocation_of(experiment) is not None or _names_one(experiment)


def round_of(experiment: Experiment) -> int:
    """Return how long rounds are, beside what the policy's string may say; 0: there are none."""
    given = experiment.policy.round
    if given != "":
        return span(given, "round")
    return span(ROUND, "round") if divides(experiment) and "round(" not in experiment.policy.name else 0
