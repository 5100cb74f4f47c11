"""How fast a job runs where it is, and what stopping or moving it costs. Timing is not scheduling: no policy imports
this.

The pace of a job's GPUs is the product of the GPU type (the slowest of them sets it), the topology level that the
placement spans (communication takes longer over slower links), and, for shares of a GPU, what the neighbours cost.
``sensitivity`` then says how fast a job is at that pace with the CPUs, memory and storage bandwidth that it holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.training.actions import Grant, Placement
from headway.training.cluster import Cluster
from headway.training.job import Job
from headway.training.proportional_share import counted, effective
from headway.training.sensitivity import Matrix, Profile
from headway.units import REFERENCE_SPEED_PPM


@dataclass(frozen=True, slots=True)
class Costs:
    """What preempting and moving cost: the job's own checkpoint and restore times unless a flat cost is given."""

    preemption: int | None = None
    migration: int | None = None
    reallocation: int = 0
    """For other CPUs, memory or storage where it is; above 0 for programs that must be started again for it."""

    def of_preemption(self, job: Job) -> int:
        """Nanoseconds that a preempted job stands still when it starts again."""
        return job.checkpoint + job.restore if self.preemption is None else self.preemption

    def of_migration(self, job: Job) -> int:
        """Nanoseconds that a moved job stands still."""
        return job.checkpoint + job.restore if self.migration is None else self.migration


class Interference(Protocol):
    """What programs on parts of one GPU cost each other, from a table that was measured."""

    def slowdown_ppm(self, program: str, co_runners: Sequence[str], share_ppm: int) -> int:
        """Return how much longer a program takes beside others than alone, with the same share of the GPU."""
        ...


class SpeedModel:
    """Speed in parts per million of the reference, from what is known about the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        sharing_penalty_ppm: int = 0,
        sensitivity: Matrix | None = None,
        profiles: Mapping[str, Profile] | None = None,
        interference: Interference | None = None,
    ) -> None:
        """``profiles`` are what is believed of jobs, by what they train; ``sensitivity`` is what is true of them."""
        self.interference = interference
        """By what jobs on one GPU train; None: the penalty alone says what neighbours cost."""
        self.sharing_costs = bool(sharing_penalty_ppm) or interference is not None
        """Whether a job goes on at another speed when a neighbour comes or goes."""
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
        """Speed of a job on a placement.

        ``neighbours_milli`` is what others hold of its shared GPU, ``beside`` what each of them trains.
        """
        pace = self.pace(job, placement, neighbours_milli, beside)
        return pace if self.sensitivity is None else max(self.sensitivity.of(job, self.effective(grant), pace), 1)

    def effective(self, grant: Grant) -> Grant:
        """A grant as a job feels it."""
        return effective(grant, self._counted)

    def pace(self, job: Job, placement: Placement, neighbours_milli: int = 0, beside: Sequence[str] = ()) -> int:
        """Return how fast a job's GPUs would run a program that nothing else hinders."""
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
        """The level of the smallest domain around all its GPUs, as a position in ``Cluster.levels``.

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
    """For each level, and last for beyond the outermost: how much longer communication takes than innermost, in ppm."""
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
