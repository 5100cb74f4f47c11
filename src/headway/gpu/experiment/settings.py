"""Typed tables of an experiment with programs that share one GPU."""

from msgspec import Struct, field

from headway.jobs.tables.settings import Span
from headway.runs.settings.tables import MeasureTable, NamedPolicyTable, RunTable, Variant


class GpuTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """The programs that share the GPU, and for how long."""

    high: list[str] = field(default_factory=list)
    """Programs of the highest priority: names of recorded ones, kernel traces (.parquet) or recipes (.toml)."""
    low: list[str] = field(default_factory=list)
    """Programs of lower priority; ``matmul@3`` is one of priority 3."""
    think: Span = 0
    """Think time between the requests of the programs in ``high``."""
    seconds: float = 2.0
    """How long they are played."""
    settle: Span = 0
    """How long they are played before that, without being counted."""
    slo: str = ""
    """The slow-down aimed at, e.g. 1.05, for policies that have such an aim."""
    floor: str = ""
    """The share that the programs in ``low`` keep, e.g. 5%, for policies that have such a floor."""


class GpuExperiment(Struct, kw_only=True, forbid_unknown_fields=True):
    """One experiment: a run, or with ``variants`` a run for each."""

    scale: str = "gpu"
    gpu: GpuTable = field(default_factory=GpuTable)
    policy: NamedPolicyTable = field(default_factory=NamedPolicyTable)
    run: RunTable = field(default_factory=RunTable)
    measure: MeasureTable = field(default_factory=MeasureTable)
    variants: list[Variant] = field(default_factory=list)
