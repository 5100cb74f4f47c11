"""Priorities as priority/multifactor computes them: age, fair share by the Fair Tree, size, partition and QOS.

Usage is what the site bills (TRESBillingWeights), halved every PriorityDecayHalfLife, brought up to date every
PriorityCalcPeriod. The Fair Tree ranks siblings by shares over usage: all users below the first account come before
those below the second, and a user's factor is its rank over the number of users.
"""

from collections.abc import Iterable

from examples.slurm.site.jobs import Job
from examples.slurm.site.rules import Site

CPU_WEIGHT, GPU_WEIGHT = 0.25, 8.0
"""TRESBillingWeights of all partitions."""


def billing(job: Job) -> float:
    """Return what a job costs a second."""
    return CPU_WEIGHT * job.cpus + GPU_WEIGHT * job.gpus


class Priority:
    """Usage by user, and the priorities that follow from it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._usage = {(each.name, user): 0.0 for each in site.accounts.values() for user in each.users}
        self._to_count = dict.fromkeys(self._usage, 0.0)
        self._factors = dict.fromkeys(self._usage, 1.0)
        self._last = 0
        self._cpus = sum(node.cpus for node in site.nodes)
        self._most_qos = max(qos.priority for qos in site.qos.values()) or 1
        self._most_factor = max(each.factor for each in site.partitions.values()) or 1

    def ended(self, job: Job, now: int) -> None:
        """Count what a job used since the last calculation; it no longer runs."""
        self._to_count[job.account, job.user] += billing(job) * (now - max(job.start, self._last))

    def calculate(self, now: int, running: Iterable[Job]) -> None:
        """Decay the usage, add what is new, and rank everybody."""
        decay = 0.5 ** ((now - self._last) / self._site.half_life)
        for job in running:
            self.ended(job, now)
        for who, fresh in self._to_count.items():
            self._usage[who] = self._usage[who] * decay + fresh
            self._to_count[who] = 0.0
        self._last = now
        self._factors = self._ranked()

    def of(self, job: Job, now: int) -> float:
        """Return the priority of a job."""
        site, partition = self._site, self._site.partitions[job.partition]
        age = min(1.0, max(0, now - job.eligible) / site.most_age)
        size = (job.nodes / len(site.nodes) + job.cpus / self._cpus) / 2
        return (
            site.age_weight * age
            + site.fairshare_weight * self._factors[job.account, job.user]
            + site.size_weight * size
            + site.partition_weight * partition.factor / self._most_factor
            + site.qos_weight * site.qos[job.qos].priority / self._most_qos
        )

    def _ranked(self) -> dict[tuple[str, str], float]:
        """Return the Fair Tree factor of every user."""
        used: dict[str, float] = dict.fromkeys(self._site.accounts, 0.0)
        for (account, _), amount in self._usage.items():
            for name in self._site.above(account):
                used[name] += amount
        order: list[tuple[float, list[tuple[str, str]]]] = []
        self._walk(["root"], used, order)
        left, factors = len(self._usage), {}
        for _, same in order:
            factors.update(dict.fromkeys(same, left / len(self._usage)))
            left -= len(same)
        return factors

    def _walk(self, tops: list[str], used: dict[str, float], order: list[tuple[float, list[tuple[str, str]]]]) -> None:
        """Append users in order, equals together; accounts that are equal are looked at as one."""
        levels: dict[float, tuple[list[tuple[str, str]], list[str]]] = {}
        for top in tops:
            account = self._site.accounts[top]
            below = [each for each in self._site.accounts.values() if each.parent == top]
            shares = sum(each.shares for each in below) + sum(account.users.values())
            for each in below:
                level = self._level(used[each.name], used[top], each.shares, shares)
                levels.setdefault(level, ([], []))[1].append(each.name)
            for user, own in account.users.items():
                level = self._level(self._usage[top, user], used[top], own, shares)
                levels.setdefault(level, ([], []))[0].append((top, user))
        for level in sorted(levels):
            users, accounts = levels[level]
            if users:
                order.append((level, users))
            if accounts:
                self._walk(accounts, used, order)

    @staticmethod
    def _level(used: float, whole: float, own: int, shares: int) -> float:
        """Return usage over shares, each as a part of its siblings': the least comes first."""
        return used / whole / (own / shares) if whole and used else 0.0
