"""What a training tape says: a table a job, step functions over time, fragmentation, tables a tenant, one summary.

Everything is a pure function of a tape, its workload and its cluster. ``Ledger(tape, jobs, cluster)`` takes the tape
apart once; every other function takes a ledger, or, like ``summarise``, the three things themselves.
"""

from headway.metrics.training.fragmentation import Fragmentation, fragmentation
from headway.metrics.training.jobs import job_table
from headway.metrics.training.ledger import Ledger
from headway.metrics.training.little import little
from headway.metrics.training.overload import overloaded
from headway.metrics.training.summary import Spread, Summary, as_json, of_ledger, summarise
from headway.metrics.training.tenants import by_partition, by_tenant, jain
from headway.metrics.training.timeline import Timeline, timeline

__all__ = [
    "Fragmentation",
    "Ledger",
    "Spread",
    "Summary",
    "Timeline",
    "as_json",
    "by_partition",
    "by_tenant",
    "fragmentation",
    "jain",
    "job_table",
    "little",
    "of_ledger",
    "overloaded",
    "summarise",
    "timeline",
]
