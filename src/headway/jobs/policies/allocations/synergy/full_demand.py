"""The full demand of a job, known before it is placed, for schedulers with static demands.

With a profile it is the smallest cell at which the job reaches full speed. Without one it is what the job asked for,
or, where it asked for nothing, the least proportional share of the nodes that it may use.

A job whose demand does not fit on an empty cluster would wait for ever. ``within`` therefore limits the demand to what
the job could have if it were alone: what goes with its GPUs on the nodes where the placement rule puts it then. That is
never less than its proportional share.
"""

from copy import copy

from headway.jobs.model.job import Job
from headway.jobs.model.resources import UNCOUNTED, Grant, Placement
from headway.jobs.policies.allocations.shared.caching import cached
from headway.jobs.policies.allocations.shared.demands import Demands
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Pool
from headway.jobs.state.state import TrainingState
from headway.jobs.state.tentative_demand import TentativeDemand

_NOTHING = Grant(0, 0)


class FullDemands:
    """The full demands of jobs on one cluster."""

    def __init__(self, state: TrainingState) -> None:
        self._demands = Demands(state)
        self._divides = state.divides
        self._empty = Pool(state.cluster)
        self._known: dict[tuple[object, ...], Grant] = {}
        self._cut: dict[tuple[object, ...], Grant] = {}

    def of(self, js: JobState) -> Grant:
        """Return the full demand of a job; what it asked for where nothing is divided."""
        job = js.job
        if not self._divides or not js.gpus:
            return Grant(job.cpu_milli, job.memory_bytes)
        shape = _shape(job, js.eligible)
        return cached(self._known, shape, lambda: self._demands.demand(job, self._least_proportional(js.eligible)))

    def within(self, js: JobState, rule: PlacementRule) -> Grant:
        """Return the full demand of a job, limited to what an empty cluster could give."""
        return cached(self._cut, _shape(js.job, js.eligible), lambda: self._within(js, rule))

    def _least_proportional(self, eligible: int) -> Grant:
        shares = [proportional for proportional, nodes in self._demands.shares.kinds if nodes & eligible]
        return Grant(*(min(column) for column in zip(*shares, strict=True))) if shares else _NOTHING

    def _within(self, js: JobState, rule: PlacementRule) -> Grant:
        full = self.of(js)
        if self._alone(js, rule, full, js.eligible) is not None:
            return full
        sets = (js.eligible, *(js.eligible & nodes for _, nodes in self._demands.shares.kinds))
        places = [self._alone(js, rule, _NOTHING, nodes) for nodes in sets if nodes]
        return max((self._at_most(js, full, place) for place in places if place is not None), default=full)

    def _alone(self, js: JobState, rule: PlacementRule, grant: Grant, nodes: int) -> Placement | None:
        """Return where the rule puts a job on these nodes if it is alone; the rule itself is not changed."""
        return copy(rule).place(self._empty, TentativeDemand(js, grant, nodes))

    def _at_most(self, js: JobState, full: Grant, placement: Placement) -> Grant:
        """Return a demand limited to what the nodes of a placement have, with the same for per_gpu GPU."""
        empty = self._empty
        columns = (empty.cpu_free, empty.memory_free, empty.storage_free)
        per_gpu = (
            min((free[node] // mask.bit_count() for node, mask in placement), default=UNCOUNTED) for free in columns
        )
        return Grant(*(min(wanted, most * js.gpus) for wanted, most in zip(full, per_gpu, strict=True)))


def _shape(job: Job, eligible: int) -> tuple[object, ...]:
    return job.model, job.gpus, job.gpu_milli, job.nodes, job.cpu_milli, job.memory_bytes, eligible
