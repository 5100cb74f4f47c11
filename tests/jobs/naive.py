"""A cluster kept the plain way, to hold the real state against: a dictionary of what each GPU has left, and sums.

Nothing here is shared with ``jobs/state/pool.py`` or ``jobs/state/feasible.py``; it is slow and obvious on purpose.
"""

from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Placement

Held = tuple[Job, Placement]


class NaiveCluster:
    """Who holds what."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.held: dict[int, Held] = {}
        self.closed: set[int] = set()

    def left(self, without: int = -1) -> dict[tuple[int, int], int]:
        """Thousandths free of each GPU, as if one job held nothing."""
        free = {(node, gpu): 1000 for node, made in enumerate(self.cluster.nodes) for gpu in range(made.gpus)}
        for job, (description, placement) in self.held.items():
            if job != without:
                for node, mask in placement:
                    for gpu in gpus(mask):
                        free[node, gpu] -= description.gpu_milli
        return free

    def host_left(self, node: int, without: int = -1) -> tuple[float, float]:
        """CPUs and memory free on a node, as if one job held nothing."""
        made = self.cluster.nodes[node]
        cpus = float("inf") if made.cpu_milli is None else made.cpu_milli
        memory = float("inf") if made.memory_bytes is None else made.memory_bytes
        for job, (description, placement) in self.held.items():
            for where, mask in placement:
                if where == node and job != without:
                    used = host(description, mask)
                    cpus, memory = cpus - used[0], memory - used[1]
        return cpus, memory

    def tenant_holds(self, tenant: str) -> int:
        """Thousandths of GPUs."""
        return sum(job.width_milli for job, _ in self.held.values() if job.tenant == tenant)

    def allows(self, job: Job, placement: Placement, *, moving: bool) -> bool:
        """Whether a job may hold this now."""
        without = job.id if moving else -1
        nodes = [node for node, _ in placement]
        if not nodes or len(set(nodes)) != len(nodes) or any(not self._may_use(job, node) for node in nodes):
            return False
        if sum(len(gpus(mask)) for _, mask in placement) != job.gpus:
            return False
        if job.gpus and any(not mask for _, mask in placement):
            return False
        if job.nodes and (len(nodes) != job.nodes or len({len(gpus(mask)) for _, mask in placement}) != 1):
            return False
        free = self.left(without)
        if any(free.get((node, gpu), 0) < job.gpu_milli for node, mask in placement for gpu in gpus(mask)):
            return False
        for node, mask in placement:
            wanted, there = host(job, mask), self.host_left(node, without)
            if wanted[0] > there[0] or wanted[1] > there[1]:
                return False
        return moving or self._quota(job)

    def _may_use(self, job: Job, node: int) -> bool:
        if not 0 <= node < len(self.cluster.nodes) or node in self.closed:
            return False
        if job.gpu_types and self.cluster.nodes[node].gpu_type not in job.gpu_types:
            return False
        return not job.partition or any(p.name == job.partition and node in p.nodes for p in self.cluster.partitions)

    def _quota(self, job: Job) -> bool:
        tenant = next((t for t in self.cluster.tenants if t.name == job.tenant), None)
        if tenant is None:
            return True
        wanted = (self.tenant_holds(job.tenant) + job.width_milli) / 1000
        if tenant.limit_gpus is not None and wanted > tenant.limit_gpus:
            return False
        if tenant.guaranteed_gpus is None or wanted <= tenant.guaranteed_gpus:
            return True
        return tenant.borrow and job.preemptible


def gpus(mask: int) -> list[int]:
    """The GPUs of a mask."""
    return [gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]


def host(job: Job, mask: int) -> tuple[int, int]:
    """CPUs and memory that go with some of a job's GPUs, rounded up."""
    part, whole = (len(gpus(mask)), job.gpus) if job.gpus else (1, 1)
    return -(-job.cpu_milli * part // whole), -(-job.memory_bytes * part // whole)
