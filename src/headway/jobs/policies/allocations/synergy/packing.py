"""Demands as fractions of the cluster, and their alignment with what is free (Tetris, SIGCOMM 2014)."""

from typing import TypeAlias

from headway.jobs.model.resources import UNCOUNTED
from headway.jobs.policies.allocations.synergy.full_demand import FullDemands
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import members
from headway.jobs.state.state import TrainingState
from headway.units import WHOLE_GPU_MILLI

Fractions: TypeAlias = tuple[int, ...]
"""Billionths of the cluster's GPUs, CPUs, memory and storage bandwidth."""
_WHOLE = 10**9


class Packing:
    """Demands relative to one cluster."""

    def __init__(self, state: TrainingState) -> None:
        nodes = state.cluster.nodes
        self._demands = FullDemands(state)
        self._totals = (
            state.cluster.gpus * WHOLE_GPU_MILLI or UNCOUNTED,
            sum(node.cpu_milli or 0 for node in nodes) or UNCOUNTED,
            sum(node.memory_bytes or 0 for node in nodes) or UNCOUNTED,
            sum(node.storage_bytes_per_second or 0 for node in nodes) or UNCOUNTED,
        )
        self._free: Fractions = ()
        self._free_at = (-1, 0)
        """The state's count of changes, and the nodes in service, when ``_free`` was computed."""

    def fractions(self, js: JobState) -> Fractions:
        """Return a job's full demand as fractions of what the cluster has."""
        wanted = (js.width, *self._demands.of(js))
        return tuple([amount * _WHOLE // total for amount, total in zip(wanted, self._totals, strict=True)])

    def size(self, js: JobState) -> int:
        """Return the packed demand: the sum of the fractions, at least 1."""
        return sum(self.fractions(js)) or 1

    def alignment(self, state: TrainingState, js: JobState) -> float:
        """Return the free fraction of the cluster's resources, averaged with the job's demands as weights: 0 to 1."""
        at = (state.changes, state.pool.schedulable)
        if self._free_at != at:
            self._free_at, self._free = at, self._sum(state)
        wanted = self.fractions(js)
        return sum(w * f for w, f in zip(wanted, self._free, strict=True)) / ((sum(wanted) or 1) * _WHOLE)

    def _sum(self, state: TrainingState) -> Fractions:
        pool = state.pool
        nodes = list(members(pool.schedulable))
        columns = (pool.cpu_free, pool.memory_free, pool.storage_free)
        free = [pool.free_gpus * WHOLE_GPU_MILLI + sum(sum(pool.shares[node].values()) for node in nodes)]
        for column, total in zip(columns, self._totals[1:], strict=True):
            free.append(sum(column[node] for node in nodes) if total < UNCOUNTED else 0)
        return tuple([amount * _WHOLE // total for amount, total in zip(free, self._totals, strict=True)])
