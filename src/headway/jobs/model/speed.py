"""The speed of a job on a placement, and the cost of preempting or moving it. No policy imports this.

The *pace* of a job's GPUs is their speed alone, in parts per million. It is the product of the GPU type (the slowest
counts), the topology level that the placement spans (communication takes longer over slower links), and, for shares of
a GPU, the slowdown by neighbours. ``sensitivity`` then gives the job's speed at that pace with its grant of CPUs,
memory and storage bandwidth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.proportional_share import counted, effective
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.model.sensitivity import Matrix, Profile
from headway.units import REFERENCE_SPEED_PPM


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of preempting and moving a job: its own checkpoint and restore times unless a flat cost is given."""

    preemption: int | None = None
    migration: int | None = None
    reallocation: int = 0
    """Cost of changing a grant in place; above 0 for programs that must be restarted for it."""

    def of_preemption(self, job: Job) -> int:
        """Return the nanoseconds that a preempted job stands still when it starts again."""
        return job.checkpoint + job.restore if self.preemption is None else self.preemption

    def of_migration(self, job: Job) -> int:
        """Return the nanoseconds that a moved job stands still."""
        return job.checkpoint + job.restore if self.migration is None else self.migration


class Interference(Protocol):
    """The slowdown of programs that share one GPU, from a measured table."""

    def slowdown_ppm(self, program: str, co_runners: Sequence[str], share_ppm: int) -> int:
        """Return how much longer a program takes beside others than alone, with the same share of the GPU."""
        ...


class SpeedModel:
    """Computes the speed of jobs on a cluster, in parts per million of the reference."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        sharing_penalty_ppm: int = 0,
        sensitivity: Matrix | None = None,
        profiles: Mapping[str, Profile] | None = None,
        interference: Interference | None = None,
    ) -> None:
        """``profiles``: what policies know of jobs, by model. ``sensitivity``: the true effect of grants on speed."""
        self.interference = interference
        """Slowdown by the models of jobs on one GPU; None: neighbours cost only the sharing penalty."""
        self.sharing_costs = bool(sharing_penalty_ppm) or interference is not None
        """Whether the speed of a job changes when a neighbour on its GPU comes or leaves."""
        self.sharing_penalty_ppm = sharing_penalty_ppm
        self.sensitivity = sensitivity
        self.profiles: Mapping[str, Profile] = profiles or {}
        self._counted = counted(cluster)
        self._gpu_ppm = [cluster.gpu_speed_ppm.get(node.gpu_type, REFERENCE_SPEED_PPM) for node in cluster.nodes]
        self._same_gpus = all(ppm == REFERENCE_SPEED_PPM for ppm in self._gpu_ppm)
        self._paths = [node.path for node in cluster.nodes]
        self._islands = [node.island_gpus for node in cluster.nodes]
        self._node_level = cluster.node_level
        self._slowdown = _slowdowns(cluster)
        self.constant = self._same_gpus and not any(self._slowdown) and sensitivity is None and not self.sharing_costs

    def of(
        self, job: Job, placement: Placement, grant: Grant, neighbours_milli: int = 0, beside: Sequence[str] = ()
    ) -> int:
        """Return the speed of a job on a placement with a grant.

        ``neighbours_milli``: thousandths of its shared GPU that others hold. ``beside``: the model of each of them.
        """
        pace = self.pace(job, placement, neighbours_milli, beside)
        return pace if self.sensitivity is None else max(self.sensitivity.of(job, self.effective(grant), pace), 1)

    def effective(self, grant: Grant) -> Grant:
        """Return a grant with unlimited amounts of the resources that no node counts."""
        return effective(grant, self._counted)

    def pace(self, job: Job, placement: Placement, neighbours_milli: int = 0, beside: Sequence[str] = ()) -> int:
        """Return the speed of a job's GPUs alone: that of a program with enough CPUs, memory and storage."""
        speed = REFERENCE_SPEED_PPM
        if not self._same_gpus:
            speed = min(self._gpu_ppm[node] for node, _ in placement)
        if job.communication_ppm and job.gpus > 1 and (extra := self._slowdown[self.level_spanned(placement)]):
            speed = (
                speed
                * REFERENCE_SPEED_PPM
                // (REFERENCE_SPEED_PPM + job.communication_ppm * extra // REFERENCE_SPEED_PPM)
            )
        if neighbours_milli and self.sharing_penalty_ppm:
            speed = (
                speed
                * (REFERENCE_SPEED_PPM - self.sharing_penalty_ppm * neighbours_milli // 1000)
                // REFERENCE_SPEED_PPM
            )
        if beside and self.interference is not None:
            slower = self.interference.slowdown_ppm(job.model, beside, job.gpu_milli * 1000)
            speed = speed * REFERENCE_SPEED_PPM // slower
        return max(speed, 1)

    def level_spanned(self, placement: Placement) -> int:
        """Return the level of the smallest domain around all GPUs of a placement, as a position in ``Cluster.levels``.

        The last position is a single GPU or innermost domain, -1 is beyond the outermost level.
        """
        if len(placement) == 1:
            return self._level_inside(*placement[0])
        first = self._paths[placement[0][0]]
        level = len(first) - 1
        while level >= 0 and any(self._paths[node][: level + 1] != first[: level + 1] for node, _ in placement):
            level -= 1
        return level

    def _level_inside(self, node: int, mask: int) -> int:
        level = self._node_level
        for size in self._islands[node]:
            low = (mask & -mask).bit_length() - 1
            if (mask.bit_length() - 1) // size != low // size:
                return level
            level += 1
        return level


def _slowdowns(cluster: Cluster) -> list[int]:
    """Return how much longer communication takes than innermost, in ppm, by level; last beyond the outermost."""
    inner = [level.bandwidth_bytes_per_second for level in cluster.levels if level.bandwidth_bytes_per_second]
    fastest = inner[-1] if inner else 0
    extra = []
    worst = 0
    for level in reversed(cluster.levels):
        if level.bandwidth_bytes_per_second:
            worst = max(0, fastest * REFERENCE_SPEED_PPM // level.bandwidth_bytes_per_second - REFERENCE_SPEED_PPM)
        extra.append(worst)
    extra.reverse()
    return [*extra, worst]
