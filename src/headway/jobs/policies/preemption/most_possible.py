"""What a waiting job could have at most if all whom it may preempt were stopped: counted, before anything is tried."""

from collections.abc import Sequence

from headway.jobs.model.job import Job
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.rules.preemption.tiers import Precedence
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Pool, members
from headway.units import WHOLE_GPU_MILLI


class Spare:
    """GPUs that are free or held by jobs that may be preempted, node by node, at one instant."""

    def __init__(self, pool: Pool, rule: PlacementRule, precedence: Precedence, offered: Sequence[JobState]) -> None:
        """``offered``: the running jobs that somebody may preempt, those first that go first."""
        self._pool, self._rule, self._precedence, self._offered = pool, rule, precedence, offered
        self._victims: dict[frozenset[str], list[JobState]] = {}
        """By the QOSs or partitions that they are of."""
        self._gpus: dict[tuple[frozenset[str], int], list[int]] = {}
        """By these and the nodes that a job may use: GPUs of each node, the most first."""

    def victims(self, job: Job) -> list[JobState]:
        """Return whom a job may preempt, those first that go first."""
        below = self._precedence.below(job)
        found = self._victims.get(below)
        if found is None:
            group = self._precedence.group
            found = self._victims[below] = [js for js in self._offered if group(js.job) in below]
        return found

    def may_hold(self, js: JobState) -> bool:
        """Return False where there are too few GPUs for a job even with those of all whom it may preempt."""
        if js.gpu_milli != WHOLE_GPU_MILLI or not js.gpus:
            return True
        gpus = self._most_first(js)
        if not gpus or sum(gpus) < js.gpus:
            return False
        if js.nodes > 1:
            return len(gpus) >= js.nodes and gpus[js.nodes - 1] >= js.gpus // js.nodes
        return gpus[0] >= js.gpus or not self._rule.needs_one_node(self._pool, js)

    def _most_first(self, js: JobState) -> list[int]:
        """Return how many GPUs a job could have on each node that it may use, the most first."""
        key = self._precedence.below(js.job), js.eligible
        found = self._gpus.get(key)
        if found is None:
            free = self._pool.free_count
            counts = {node: free[node] for node in members(js.eligible)}
            for victim in self.victims(js.job):
                for node, mask in victim.placement:
                    if node in counts:
                        counts[node] += mask.bit_count()
            found = self._gpus[key] = sorted(counts.values(), reverse=True)
        return found
