"""Change the amounts of limits that a cluster declares, for a what-if."""

from collections.abc import Mapping
from dataclasses import replace

from headway.jobs.model.cluster import Cluster
from headway.jobs.rules.limits.table import named, with_values
from headway.jobs.rules.limits.text import quantity


def with_limits(
    cluster: Cluster, table: Mapping[str, float | str], limit: Mapping[str, int | str | None], described: list[str]
) -> Cluster:
    """Return the cluster with other amounts for the limits that it declares."""
    tenants = {tenant.name for tenant in cluster.tenants}
    limits = with_values(cluster.limits, table)
    for name, value in limit.items():
        if name in tenants or not cluster.limits:
            continue
        before = named(limits, name)
        limits = with_values(limits, {name: value})
        after = next((rule for rule in limits if rule.address == before.address), None)
        if after != before:
            now = "none" if after is None else quantity(after, after.most)
            described.append(f"{before}: {now} instead of {quantity(before, before.most)}")
    return replace(cluster, limits=limits)
