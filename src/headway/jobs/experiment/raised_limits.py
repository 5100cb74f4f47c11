"""Raise limits beyond which a recorded job ran: an administrator let it, or the limit was another one then.

Where several jobs together held more than a limit allows, nobody knows which of them had leave: that is said.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.rules.limits.counters import Counter
from headway.jobs.rules.limits.engine import Limits
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.rules.limits.table import rule_from_table
from headway.jobs.rules.limits.text import owner, quantity
from headway.jobs.tables.cluster import ClusterTable
from headway.units import counted

_TOGETHER = ("gpus", "cpus", "memory", "jobs")
"""What is held at once can be told from recorded starts and run times."""
_LEAST_SHARE, _LEAST_STARTS = 0.01, 3
"""Of the starts, and in all: fewer may have been let by an administrator."""
_TRANSACTIONS = "; sacctmgr show transactions by --cluster may tell"
_Span = tuple[int, int, int, bool]
"""From when to when a job held how much, and whether the limit binds it."""


def with_leave(
    cluster: Cluster,
    table: ClusterTable,
    jobs: Sequence[Job],
    ran: Mapping[str, int],
    notes: list[str],
    set_limits: Collection[LimitRule] = (),
    requeued: Collection[str] = (),
    *,
    knows_changes: bool = False,
) -> Cluster:
    """Return the cluster with limits under which each job that really ran may start; notes say which were raised.

    A limit that somebody set otherwise for this run (``set_limits``, or in the table) stays as it was set. ``ran``:
    how long each job really waited for its start, by name; of those ``requeued`` nobody knows when they ran.
    ``knows_changes``: a file told which limits were changed meanwhile.
    """
    if not cluster.limits or not ran:
        return cluster
    limits, declared = Limits(cluster), set(map(rule_from_table, table.limits)) - set(set_limits)
    beyond: dict[LimitRule, list[int]] = {}
    held: dict[Counter, list[_Span]] = {}
    for job in jobs:
        found = limits.class_of(job) if job.name in ran else None
        if found is not None and job.terms is None and job.name not in requeued:
            start = job.submit + ran[job.name]
            for counter, amount, binds in found.counted():
                if counter.rule in declared and counter.rule.kind in _TOGETHER and not counter.rule.is_alone:
                    held.setdefault(counter, []).append((start, start + job.work, amount, binds))
        for counter, amount in found.bounds if found is not None else ():
            if amount > counter.rule.bound(counter.rule.loosest) and counter.rule in declared:
                beyond.setdefault(counter.rule, []).append(amount)
    for rule, amounts in beyond.items():
        most = f"{quantity(rule, rule.loosest)} to {quantity(rule, rule.bound(max(amounts)))}"
        how = "lowered" if rule.least else "raised"
        notes.append(f"{counted(len(amounts), 'job')} ran beyond {rule}: {how} from {most}")
    notes.extend(f"{line}{'' if knows_changes else _TRANSACTIONS}" for line in _together(held))
    raised = (
        replace(rule, most=rule.bound(max(beyond[rule])), changes=()) if rule in beyond else rule
        for rule in cluster.limits
    )
    return replace(cluster, limits=tuple(raised)) if beyond else cluster


def _together(held: Mapping[Counter, Sequence[_Span]]) -> Iterator[str]:
    """Yield limits beyond which jobs started in the record for what others held, each with whose it is most often."""
    worst: dict[LimitRule, tuple[int, int, int, Counter]] = {}
    for counter, spans in held.items():
        beyond, bound, peak = _beyond(np.array(spans, dtype=np.int64), counter.rule.loosest)
        if beyond >= max(_LEAST_STARTS, _LEAST_SHARE * bound) and beyond > worst.get(counter.rule, (0,))[0]:
            worst[counter.rule] = beyond, bound, peak, counter
    for rule, (beyond, bound, peak, counter) in worst.items():
        yield (
            f"{rule} is below what was held at once: {beyond:,} of {counted(bound, 'start')} of {owner(counter)} in "
            f"the record went beyond {quantity(rule, rule.loosest)}, up to {quantity(rule, peak)}: it was another "
            "limit then, or not enforced"
        )


def _beyond(spans: "np.ndarray[tuple[int, int], np.dtype[np.int64]]", most: int) -> tuple[int, int, int]:
    """Return how many of the jobs that a limit binds started beyond it, how many there are, and the most held then.

    Of one moment ends come before starts.
    """
    start, end, amount, bound = spans.T
    times = np.concatenate((end, start))
    order = np.argsort(times, kind="stable")
    level = np.cumsum(np.concatenate((-amount, amount))[order])
    starting = np.concatenate((np.zeros(len(end), dtype=np.int64), bound))[order] > 0
    over = starting & (level > most)
    return int(over.sum()), int(bound.sum()), int(level[over].max(initial=0))
