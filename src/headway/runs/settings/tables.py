"""Define the typed tables that experiments of every scale have: the run, statistics, and variants."""

from typing import Any, TypeVar

from msgspec import Struct, field

from headway.errors import ExperimentError
from headway.jobs.tables.cluster import within

MOST_SEEDS = 1000


class RunTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """The seed of everything that is drawn, and the folder of the run."""

    seed: int = 0
    out: str = ""


class MeasureTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """Over how many seeds, against which run, and the confidence level of intervals."""

    seeds: int = 1
    """So many runs, from run.seed on, where something is drawn."""
    baseline: str = ""
    """The policy or variant that the others are compared with; the first unless given."""
    confidence: float = 0.95
    """Of intervals; 0 for none."""


class NamedPolicyTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """Who decides, where a policy is whole and not made of parts."""

    name: str = "headway"


class Variant(Struct, kw_only=True):
    """One line of a comparison: a name, and the keys that it sets."""

    name: str
    set: dict[str, Any] = field(default_factory=dict)


Measure = TypeVar("Measure", bound=MeasureTable)


def check_measure(table: Measure) -> Measure:
    """Return the table, its numbers checked."""
    within("seeds", table.seeds, 1, MOST_SEEDS)
    if table.confidence and not 0.5 <= table.confidence <= 0.999:
        raise ExperimentError(
            f"confidence {table.confidence:g} must be 0 (no intervals), or lie in 0.5 to 0.999: 95 % is 0.95"
        )
    return table
