"""Jobs that no empty cluster of this kind could ever run: found before a run, so that none waits for ever.

A start needs a place, a quota and room under every limit. All are tried here on the empty cluster, places and quotas
once for each distinct shape of demand: what fails even there can never start.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.jobs.model.cluster import Cluster, Eligible, Node, Tenant
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Placement
from headway.jobs.rules.limits.engine import Limits
from headway.jobs.rules.limits.text import told
from headway.jobs.state.jobstate import Account, JobState
from headway.jobs.state.pool import Pool, host_share, members
from headway.units import WHOLE_GPU_MILLI, counted, format_memory

Place = Callable[[Pool, JobState], Placement | None]


@dataclass(frozen=True, slots=True)
class Infeasible:
    """A job that can never start, and why, with the largest of its kind that could."""

    job: Job
    reason: str
    denied: bool = False
    """Whether a limit rejects it when it is submitted; else it would wait for ever."""

    def __str__(self) -> str:
        return f"job {self.job.name or self.job.id} can never run: {self.reason}"


def infeasible(cluster: Cluster, jobs: Sequence[Job], place: Place | None = None) -> list[Infeasible]:
    """All such jobs, in order of submission; ``place`` is the rule that has to find GPUs for them."""
    judged: dict[tuple[object, ...], str | None] = {}
    tenants = {tenant.name: tenant for tenant in cluster.tenants}
    eligible, empty = Eligible(cluster), Pool(cluster)
    limits = Limits(cluster) if cluster.limits else None
    found = []
    for job in jobs:
        host = (job.cpu_milli, job.memory_bytes, job.preemptible)
        shape = (job.gpus, job.gpu_milli, job.nodes, job.partition, job.gpu_types, job.tenant, *host)
        if shape not in judged:
            judged[shape] = _unplaced(eligible, empty, job, place) or _over_quota(tenants.get(job.tenant), job)
        if (reason := judged[shape]) is not None:
            found.append(Infeasible(job, reason))
        elif limits is not None and (over := _over_limit(limits, job)) is not None:
            found.append(over)
    return found


def _over_limit(limits: Limits, job: Job) -> Infeasible | None:
    """Return that a limit never lets the job start, even when nobody holds anything; None where none does.

    A job that leaves the queue by itself does not wait for ever there: it may come unless a limit rejects it.
    """
    group = limits.class_of(job)
    for counter, amount in group.bounds if group is not None else ():
        rule = counter.rule
        most = rule.bound(rule.most_at(job.submit) if rule.denies else rule.loosest)
        helps = rule.half_life and amount < most
        leaves = job.patience > 0 and not rule.denies
        if counter.level(0) + amount > most and not helps and not leaves:
            return Infeasible(job, f"limit {told(counter, 0, amount)}", rule.denies)
    return None


def _why_none(eligible: Eligible, job: Job) -> str:
    """Return why a job may run on no node at all."""
    if job.partition and job.partition not in eligible.partitions:
        return f"partition {job.partition!r} does not exist (valid: {', '.join(sorted(eligible.partitions)) or 'none'})"
    return f"no node {_where(job)}has a GPU of type {' or '.join(job.gpu_types)}"


def _where(job: Job) -> str:
    return f"of partition {job.partition} " if job.partition else ""


def _misplaced(eligible: Eligible, empty: Pool, job: Job) -> str | None:
    """Return why the nodes cannot hold the job even when empty; a job that asks for no number may be divided."""
    nodes = [empty.cluster.nodes[index] for index in members(eligible[job.partition, job.gpu_types])]
    if not nodes:
        return _why_none(eligible, job)
    gpus, largest = sum(node.gpus for node in nodes), max(node.gpus for node in nodes)
    if job.nodes > 1:
        each = job.gpus // job.nodes
        fitting = sum(node.gpus >= each and _hosts(job, node, each) for node in nodes)
        if fitting >= job.nodes:
            return None
        wants = f"it wants {counted(each, 'GPU')} on each of {job.nodes} nodes"
        return f"{wants}; the largest that fits has {fitting} such nodes"
    if job.gpus > gpus:
        return f"it wants {counted(job.gpus, 'GPU')}; the largest job that fits {_where(job)}has {gpus}"
    if job.nodes == 1 and job.gpus > largest:
        return f"it wants {counted(job.gpus, 'GPU')} on one node; the largest job that fits has {largest}"
    if any(node.gpus >= job.gpus and _hosts(job, node, job.gpus) for node in nodes):
        return None
    if job.nodes == 1 or job.gpus <= 1:
        return _no_host(job, [node for node in nodes if node.gpus >= job.gpus])
    held = sum(_most_hosted(job, node) for node in nodes)
    if held < job.gpus:
        return f"with its CPUs and memory the nodes hold {held} of its {job.gpus} GPUs: {held} is the largest that fits"
    return None


def _hosts(job: Job, node: Node, gpus: int) -> bool:
    cpu_milli, memory_bytes = host_share(job, gpus)
    return (node.cpu_milli is None or cpu_milli <= node.cpu_milli) and (
        node.memory_bytes is None or memory_bytes <= node.memory_bytes
    )


def _most_hosted(job: Job, node: Node) -> int:
    """The most of the job's GPUs that a node can take with their part of CPUs and memory."""
    count = min(node.gpus, job.gpus)
    while count and not _hosts(job, node, count):
        count -= 1
    return count


def _no_host(job: Job, nodes: list[Node]) -> str:
    wants, most = [], []
    if job.cpu_milli and all(node.cpu_milli is not None for node in nodes):
        wants.append(f"{job.cpu_milli / 1000:g} CPUs")
        most.append(f"{max(node.cpu_milli or 0 for node in nodes) / 1000:g} CPUs")
    if job.memory_bytes and all(node.memory_bytes is not None for node in nodes):
        wants.append(f"{format_memory(job.memory_bytes)} of memory")
        most.append(f"{format_memory(max(node.memory_bytes or 0 for node in nodes))} of memory")
    return f"it wants {' and '.join(wants)} on one node; the largest that fits has {' and '.join(most)}"


def _over_quota(tenant: Tenant | None, job: Job) -> str | None:
    """Return why the tenant could never start the job even when it holds nothing."""
    if tenant is None:
        return None
    limits = [(tenant.limit_gpus, "limit")] if tenant.limit_gpus is not None else []
    if tenant.guaranteed_gpus is not None and not (tenant.borrow and job.preemptible):
        limits.append((tenant.guaranteed_gpus, "quota"))
    most, what = min(limits, default=(None, ""))
    if most is None or job.width_milli <= most * WHOLE_GPU_MILLI:
        return None
    wanted = job.width_milli / WHOLE_GPU_MILLI
    gpus = "GPU" if wanted == 1 else "GPUs"
    return f"it wants {wanted:g} {gpus}; the largest job that fits the {what} of tenant {tenant.name} has {most}"


def _unplaced(eligible: Eligible, empty: Pool, job: Job, place: Place | None) -> str | None:
    """Return why the job finds no place on the empty cluster, or None: by its placement rule, if there is one."""
    if place is None:
        return _misplaced(eligible, empty, job)
    nodes = eligible[job.partition, job.gpu_types]
    if nodes and place(empty, JobState(job, Account(job.tenant), nodes, 0)) is not None:
        return None
    return (
        _misplaced(eligible, empty, job)
        or f"the placement finds no room for its {job.gpus} GPUs even on the empty cluster"
    )
