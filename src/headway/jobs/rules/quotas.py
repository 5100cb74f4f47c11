"""Tenants of a trace on one cluster: a common pool, nodes of their own (``walls``), quotas, or quotas with borrowing.

What each one gets is in proportion to the GPU time of its jobs (or equal), by largest remainder and at least one.
Under ``walls`` each tenant has a partition of whole nodes, adjacent in node order; quotas are numbers of GPUs anywhere.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from headway.errors import ExperimentError
from headway.jobs.model.cluster import Cluster, Partition, Tenant
from headway.jobs.model.job import Job


def gpu_time(jobs: Sequence[Job]) -> dict[str, int]:
    """GPU time of each tenant's jobs, in thousandths of a GPU times nanoseconds, by name in order."""
    total: dict[str, int] = {}
    for job in jobs:
        total[job.tenant] = total.get(job.tenant, 0) + job.width_milli * job.ends_after
    return dict(sorted(total.items()))


def apportion(count: int, weights: dict[str, int]) -> dict[str, int]:
    """``count`` things in proportion to weights: at least one each, the rest by largest remainder, ties by name."""
    if count < len(weights):
        raise ExperimentError(f"{count} cannot be divided among {len(weights)} tenants with at least one each")
    shares = dict.fromkeys(weights, 0)
    open_names, left = list(weights), count
    # A tenant whose part is below one gets one, and the others share what is left in proportion.
    while True:
        whole = sum(weights[name] for name in open_names) or 1
        poor = [name for name in open_names if weights[name] * left < whole]
        if not poor:
            break
        shares.update(dict.fromkeys(poor, 1))
        left -= len(poor)
        open_names = [name for name in open_names if name not in set(poor)]
    if not open_names:
        poorest = sorted(weights, key=lambda name: (-weights[name], name))
        for index in range(left):
            shares[poorest[index % len(poorest)]] += 1
        return shares
    exact = {name: Fraction(weights[name] * left, whole) for name in open_names}
    shares.update({name: int(part) for name, part in exact.items()})
    rest = count - sum(shares.values())
    for name in sorted(open_names, key=lambda name: (int(exact[name]) - exact[name], name))[:rest]:
        shares[name] += 1
    return shares


def divide(
    cluster: Cluster, jobs: Sequence[Job], tenancy: str, sizing: str = "gpu-time"
) -> tuple[Cluster, tuple[Job, ...]]:
    """The cluster with its tenants, and the jobs, which under walls name their tenant's partition.

    ``tenancy`` is pool, walls, quotas or borrow. What the cluster describes already is kept: then nothing is derived.
    """
    if tenancy == "pool":
        return cluster, tuple(jobs)
    weights = gpu_time(jobs)
    if sizing == "equal":
        weights = dict.fromkeys(weights, 1)
    if tenancy == "walls":
        walls = cluster.partitions or _walls(apportion(len(cluster.nodes), weights))
        known = {wall.name for wall in walls}
        if missing := [name for name in weights if name not in known]:
            raise ExperimentError(f"tenancy walls: tenant {missing[0]!r} has no partition of its name")
        moved = tuple(job if job.partition == job.tenant else replace(job, partition=job.tenant) for job in jobs)
        return replace(cluster, partitions=walls), moved
    if cluster.tenants:
        return cluster, tuple(jobs)
    borrow = tenancy == "borrow"
    quotas = apportion(cluster.gpus, weights)
    tenants = tuple(Tenant(name, guaranteed_gpus=gpus, borrow=borrow) for name, gpus in quotas.items())
    return replace(cluster, tenants=tenants), tuple(jobs)


def _walls(sizes: dict[str, int]) -> tuple[Partition, ...]:
    first = 0
    walls = []
    for name, size in sizes.items():
        walls.append(Partition(name, tuple(range(first, first + size))))
        first += size
    return tuple(walls)
