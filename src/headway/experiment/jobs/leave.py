"""Raise limits beyond which recorded jobs ran: an administrator let them, or the limit was another one then."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from headway.formats.training.cluster_table import ClusterTable
from headway.formats.training.limit_table import rule_from_table
from headway.training.cluster import Cluster
from headway.training.holding import Limits
from headway.training.job import Job
from headway.training.limit_text import quantity
from headway.training.limits import LimitRule
from headway.units import counted


def with_leave(
    cluster: Cluster,
    table: ClusterTable,
    jobs: Sequence[Job],
    ran: Collection[str],
    notes: list[str],
    set_limits: Collection[LimitRule] = (),
) -> Cluster:
    """Return the cluster with limits under which each job that really ran may start; notes say which were raised.

    A limit that somebody set otherwise for this run (``set_limits``, or in the table) stays as it was set.
    """
    if not cluster.limits or not ran:
        return cluster
    limits, declared = Limits(cluster), set(map(rule_from_table, table.limits)) - set(set_limits)
    beyond: dict[LimitRule, list[int]] = {}
    for job in jobs:
        found = limits.class_of(job) if job.name in ran else None
        for counter, amount in found.bounds if found is not None else ():
            if amount > counter.rule.bound(counter.rule.loosest) and counter.rule in declared:
                beyond.setdefault(counter.rule, []).append(amount)
    for rule, amounts in beyond.items():
        most = f"{quantity(rule, rule.loosest)} to {quantity(rule, rule.bound(max(amounts)))}"
        how = "lowered" if rule.least else "raised"
        notes.append(f"{counted(len(amounts), 'job')} ran beyond {rule}: {how} from {most}")
    raised = (
        replace(rule, most=rule.bound(max(beyond[rule])), changes=()) if rule in beyond else rule
        for rule in cluster.limits
    )
    return replace(cluster, limits=tuple(raised)) if beyond else cluster
