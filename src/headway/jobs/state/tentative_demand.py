"""The demand of a job with a tentative grant of CPUs, memory and storage, for placements and checks."""

from headway.jobs.model.resources import Grant
from headway.jobs.state.jobstate import JobState


class TentativeDemand:
    """The demand of a job with a grant in place of what it holds or asked for."""

    __slots__ = (
        *("attempt", "cpu_milli", "eligible", "gpu_milli", "gpus", "id", "job", "memory_bytes", "nodes"),
        *("preemptions", "storage", "width"),
    )

    def __init__(self, demand: JobState, grant: Grant, eligible: int | None = None) -> None:
        self.job = demand.job
        self.id = demand.id
        self.gpus = demand.gpus
        self.gpu_milli = demand.gpu_milli
        self.width = demand.width
        self.nodes = demand.nodes
        self.eligible = demand.eligible if eligible is None else eligible
        self.attempt = demand.attempt
        self.preemptions = demand.preemptions
        self.cpu_milli, self.memory_bytes, self.storage = grant
