"""Tetris' order: the job with the least remaining work first, counted in time times its fraction of the cluster.

Grandl et al., "Multi-resource packing for cluster schedulers", SIGCOMM 2014, as Synergy's code (Mohan et al., OSDI
2022) has it: remaining work times packed demand, smallest first. The packed demand is the sum of the parts of the
cluster's GPUs, CPUs, memory and storage bandwidth (of those that are counted) that a job's full demand is. Where CPUs
and memory are divided that is the demand of its profile; else what it asks for.

Departures: what remains is the estimate's; a running job gives way to one that has less left, as under ``srtf``, for
which the paper's code sorts all jobs anew every round. How well a demand fits what is free is not in this order,
whose keys may not move while jobs wait: that is the allocation of the same name.
"""

from headway.jobs.policies.allocations.synergy.packing import Packing
from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key
from headway.jobs.state.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM


class Tetris(Order):
    """Orders jobs by remaining work times packed demand, with preemption."""

    name = "tetris"
    preempts = True
    backfill = "fit"
    starves = True

    def bind(self, state: TrainingState) -> None:
        """Compute the totals of the cluster, of which demands are fractions."""
        self.packing = Packing(state)

    def key(self, now: int, js: JobState) -> Key:
        """Return the estimated remaining work, in millionths of a nanosecond, times the packed demand."""
        return js.remaining(now) * REFERENCE_SPEED_PPM * self.packing.size(js)

    def rank(self, now: int, js: JobState) -> tuple[int, Key]:
        """Return rate and offset of the key while the job runs: remaining work shrinks, the demand is constant."""
        size = self.packing.size(js)
        return -js.speed * size, (js.remaining(now) * REFERENCE_SPEED_PPM + now * js.speed) * size
