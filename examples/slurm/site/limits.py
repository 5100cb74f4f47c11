"""Limits in Slurm's order: for each the first level that defines it holds, the partition's QOS before the job's.

Group limits of associations hold at every account above, unless a QOS has one on the same resource. A job counts
under all QOSs and accounts that it has, whether or not they hold it back.
"""

from collections import Counter
from typing import NamedTuple

from examples.slurm.site.jobs import Job
from examples.slurm.site.rules import CPU, GPU, Qos, Site

WORDS = {GPU: ("GRES", ""), CPU: ("Cpu", "Limit")}
Key = tuple[str, ...]


class Check(NamedTuple):
    """What a counter may reach with a job, and the reason of one that has to wait."""

    counter: Key
    amount: int
    most: int
    reason: str


class Limits:
    """What is held now, and who has to wait."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.held: Counter[Key] = Counter()
        self._checks: dict[tuple[str, ...], tuple[Check, ...]] = {}

    def reason(self, job: Job) -> str:
        """Return which limit a job has to wait for; nothing if none."""
        held = self.held
        for counter, amount, most, reason in self._of(job):
            if held[counter] + amount > most:
                return reason
        return ""

    def start(self, job: Job, sign: int = 1) -> None:
        """Count a job that starts; with -1 one that ends."""
        for counter, amount in self._counters(job):
            self.held[counter] += sign * amount

    def submit(self, job: Job, sign: int = 1) -> None:
        """Count a job that is submitted; with -1 one that leaves."""
        self.held["submit", job.qos, job.user] += sign

    def admits(self, jobs: list[Job]) -> bool:
        """Return whether these jobs of one user may be submitted together."""
        qos, count = self._site.qos[jobs[0].qos], self.held["submit", jobs[0].qos, jobs[0].user]
        return not qos.submit_per_user or count + len(jobs) <= qos.submit_per_user

    def _wants(self, job: Job) -> dict[str, int]:
        return {tres: amount for tres, amount in ((CPU, job.cpus), (GPU, job.gpus)) if amount}

    def _levels(self, job: Job) -> list[Qos]:
        names = (self._site.partitions[job.partition].qos, job.qos)
        return [self._site.qos[name] for name in dict.fromkeys(names) if name]

    def _counters(self, job: Job) -> list[tuple[Key, int]]:
        found: list[tuple[Key, int]] = []
        for qos in self._levels(job):
            found.append(((qos.name, "jobs", job.user), 1))
            for tres, amount in self._wants(job).items():
                found += [((qos.name, tres, job.user), amount), ((qos.name, tres), amount)]
        for account in self._site.above(job.account):
            found += [(("account", account, tres), amount) for tres, amount in self._wants(job).items()]
        return found

    def _of(self, job: Job) -> tuple[Check, ...]:
        like = (job.user, job.account, job.qos, job.partition, str(job.gpus), str(job.cpus))
        found = self._checks.get(like)
        if found is None:
            found = self._checks[like] = tuple(self._made(job))
        return found

    def _made(self, job: Job) -> list[Check]:
        levels, wants = self._levels(job), self._wants(job)
        found = []
        counted = next((qos for qos in levels if qos.jobs_per_user), None)
        if counted is not None:
            key = (counted.name, "jobs", job.user)
            found.append(Check(key, 1, counted.jobs_per_user, "QOSMaxJobsPerUserLimit"))
        for tres, amount in wants.items():
            word, end = WORDS[tres]
            grouped = next((qos for qos in levels if tres in qos.group), None)
            if grouped is not None:
                found.append(Check((grouped.name, tres), amount, grouped.group[tres], f"QOSGrp{word}{end}"))
            own = next((qos for qos in levels if tres in qos.per_user), None)
            if own is not None:
                key = (own.name, tres, job.user)
                found.append(Check(key, amount, own.per_user[tres], f"QOSMax{word}PerUser{end}"))
            for account in self._site.above(job.account) if grouped is None else ():
                most = self._site.accounts[account].group.get(tres)
                if most is not None:
                    found.append(Check(("account", account, tres), amount, most, f"AssocGrp{word}{end}"))
        return found
