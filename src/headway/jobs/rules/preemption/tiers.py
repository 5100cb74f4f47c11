"""Which jobs come before others whatever their priority: tiers of partitions, and who may preempt whom.

As in Slurm: of two waiting jobs the one whose partition has the higher tier is considered first. A job preempts
another one if its QOS lists the other's (preempt/qos), or if its partition's tier is higher (preempt/partition_prio).
Grace and mode are those of the victim's QOS or partition; the exempt time is that of its QOS, else the cluster's.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from headway.jobs.model.cluster import Cluster, Partition, Qos
from headway.jobs.model.job import Job
from headway.jobs.rules.preemption.preemption import Mode, Preemption
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key, Tiered

_LOWEST_TIER = 1


def tiers_of(cluster: Cluster) -> dict[str, int]:
    """Return the tier of each partition; empty where all have the same."""
    tiers = {each.name: each.tier for each in cluster.partitions}
    return tiers if len(set(tiers.values())) > 1 else {}


def tiered(key: Callable[[int, JobState], Key], tiers: dict[str, int]) -> Callable[[int, JobState], Key]:
    """Return a function that puts the tier of a job's partition before its key; without tiers the key as it is."""
    if not tiers:
        return key
    return partial(_tiered, key, tiers)  # of a copied state that of the copied policy: a closure would keep the first


def _tiered(key: Callable[[int, JobState], Key], tiers: dict[str, int], now: int, js: JobState) -> Key:
    return Tiered(-tiers.get(js.job.partition, _LOWEST_TIER), key(now, js))


def tiered_keys(keys: Sequence[Key], waiting: Sequence[JobState], tiers: dict[str, int]) -> Sequence[Key]:
    """Return the keys of these jobs, each with the tier of its partition before it."""
    if not tiers:
        return keys
    own = zip(keys, waiting, strict=True)
    return [Tiered(-tiers.get(js.job.partition, _LOWEST_TIER), key) for key, js in own]


class Terms(NamedTuple):
    """What holds for jobs of one QOS and partition as victims."""

    mode: Mode
    grace: int
    exempt: int
    level: int
    """Of QOS or tier: victims of the lowest one go first."""


class Precedence:
    """Who may preempt whom on a cluster, and on which terms."""

    def __init__(self, cluster: Cluster, rules: Preemption) -> None:
        self.rules = rules
        self._by_qos = rules.by == "qos"
        self._qos = {each.name: each for each in cluster.qos}
        self._partitions = {each.name: each for each in cluster.partitions}
        self._terms: dict[tuple[str, str], Terms] = {}
        self._listed: dict[str, frozenset[str]] = {}
        """By QOS or partition: those whose jobs its jobs may preempt."""
        self._names: dict[str, str] = {}

    def group(self, job: Job) -> str:
        """Return the QOS or the partition by which a job preempts and is preempted."""
        return job.qos if self._by_qos else job.partition

    def told(self, job: Job) -> str:
        """Return it as text: ``QOS high``."""
        return f"{'QOS' if self._by_qos else 'partition'} {self.group(job) or '(none)'}"

    def below(self, job: Job) -> frozenset[str]:
        """Return the QOSs or partitions whose jobs a job may preempt; none where their mode is off."""
        name = self.group(job)
        found = self._listed.get(name)
        if found is None:
            found = self._listed[name] = frozenset(self._found_below(name))
        return found

    def _found_below(self, name: str) -> set[str]:
        if self._by_qos:
            own = self._qos.get(name)
            listed = set(own.preempts if own is not None else ()) - {name}
            return {each for each in listed if each in self._qos and self._mode(self._qos[each]) is not Mode.OFF}
        tier = self._tier(name)
        lower = {"": _LOWEST_TIER, **{each.name: each.tier for each in self._partitions.values()}}
        of = self._partitions
        return {
            each
            for each, its in lower.items()
            if its < tier and (self._mode(of[each]) if each in of else self.rules.mode) is not Mode.OFF
        }

    def terms(self, job: Job) -> Terms:
        """Return the terms on which a job is preempted."""
        key = job.qos, job.partition
        found = self._terms.get(key)
        if found is None:
            qos = self._qos.get(job.qos)
            of = qos if self._by_qos else self._partitions.get(job.partition)
            level = (qos.priority if qos is not None else 0) if self._by_qos else self._tier(job.partition)
            exempt = self.rules.exempt if qos is None or qos.exempt is None else qos.exempt
            mode = self.rules.mode if of is None else self._mode(of)
            found = self._terms[key] = Terms(mode, 0 if of is None else of.grace, exempt, level)
        return found

    def _mode(self, of: Qos | Partition) -> Mode:
        return of.preempt_mode or self.rules.mode

    def _tier(self, partition: str) -> int:
        found = self._partitions.get(partition)
        return _LOWEST_TIER if found is None else found.tier

    def may(self, job: Job, victim: Job) -> bool:
        """Return whether a job may preempt another one at all."""
        return self.group(victim) in self.below(job)

    def order(self, js: JobState) -> tuple[int, ...]:
        """Return by what victims are sorted: the lowest QOS or tier first, then the fewest nodes; or the youngest."""
        if self.rules.youngest_first:
            return -js.since, js.id
        return self.terms(js.job).level, len(js.placement), js.id
