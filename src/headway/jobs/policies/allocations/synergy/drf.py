"""DRF as a complete scheduler: static full demands, and the tenant with the smallest dominant share comes next.

The comparison of Synergy (Mohan et al., OSDI 2022) with big-data schedulers: dominant resource fairness (Ghodsi et al.,
NSDI 2011) takes demands as given, so a job gets all it could use or waits, as under ``greedy``. Which job comes next is
the order ``drf``'s, over what tenants were given of GPUs, CPUs and memory, whatever order the policy names; that one
decides among jobs of one tenant, and between tenants whose shares are equal.

Departures: shares are tenants', where the paper's code has one for each job. Jobs are preempted, as under ``drf`` with
``preempt``: that code sorts all jobs anew every round.
"""

from headway.jobs.policies.allocations.synergy.greedy import Greedy
from headway.jobs.policies.allocations.synergy.ties import Tied
from headway.jobs.policies.orders.drf import Drf
from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key


class DrfDemands(Greedy):
    """Full demands, the tenant with the smallest dominant share first."""

    name = "drf"

    def order(self, order: Order) -> Order:
        """Return the order by dominant share; the policy's order breaks ties."""
        return Poorest(order)


class Poorest(Tied, Drf):
    """Orders by the dominant share of the job's tenant, then by another order; preempts, as in Synergy's comparison."""

    preempts = True

    @property
    def starves(self) -> bool:  # type: ignore[override]
        """Return whether the order that breaks ties starves jobs: it orders the jobs of one tenant."""
        return self.ties.starves

    def key(self, now: int, js: JobState) -> Key:
        """Return the key of the order that breaks ties, which counts within a tenant."""
        return self.ties.key(now, js)
