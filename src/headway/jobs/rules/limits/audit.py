"""Plain accounting of limits for the audit: who holds what under each rule, summed up anew whenever a job starts.

It shares no code with ``engine.py`` and ``counters.py``, which only look at what changes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import log

from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.rules.limits.limit import NOBODY, LimitRule, throttle_rule


class _Account:
    """Jobs under one rule that are counted together."""

    def __init__(self, rule: LimitRule) -> None:
        self.rule = rule
        self.alive: set[int] = set()
        self.begun: set[int] = set()
        """Those of them that have ever started."""
        self.running: dict[int, tuple[int, int, int]] = {}
        """What each running job holds, since when, and when its time limit ends it."""
        self.nodes: dict[int, set[int]] = {}
        """Where each of them runs."""
        self.past: float = rule.used
        """What was used in runs that are over, as of ``at``; a whole number unless it decays."""
        self.at = 0

    def used(self, now: int) -> float:
        half_life = self.rule.half_life
        if not half_life:
            return self.past + sum(held * (now - since) for held, since, _ in self.running.values())
        runs = sum(self._grown(held, now - since) for held, since, _ in self.running.values())
        return self.past * self._left(now - self.at) + runs

    def _grown(self, held: int, span: int) -> float:
        return held * self.rule.half_life / log(2) * (1 - self._left(span))

    def _left(self, span: int) -> float:
        return float(0.5 ** (span / self.rule.half_life))

    def promised(self, now: int) -> int:
        return sum(held * max(0, end - now) for held, _, end in self.running.values())

    def stop(self, now: int, job: int) -> None:
        self.nodes.pop(job, None)
        held, since, _ = self.running.pop(job)
        if self.rule.half_life:
            self.past, self.at = self.past * self._left(now - self.at) + self._grown(held, now - since), now
        else:
            self.past += held * (now - since)


def _most(rule: LimitRule, now: int) -> int:
    """Return the amount of a rule at a time: that of its last change by then."""
    most = rule.most
    for time, amount in rule.changes:
        if time <= now:
            most = amount
    return most


class LimitBooks:
    """All rules of a cluster, and what is held under each."""

    def __init__(self, cluster: Cluster) -> None:
        self._rules = cluster.limits
        self._above = {tenant.name: tenant.parent for tenant in cluster.tenants}
        self._most_gpus = max(node.gpus for node in cluster.nodes)
        self._accounts: dict[tuple[int, str], _Account] = {}
        self._ends: dict[int, int] = {}

    def arrive(self, job: Job) -> None:
        """Enter a job that has come."""
        for account, _ in self._of(job):
            account.alive.add(job.id)

    def leave(self, job: Job) -> None:
        """Enter a job that is gone."""
        for account, _ in self._of(job):
            account.alive.discard(job.id)
            account.begun.discard(job.id)

    def start(self, now: int, job: Job, nodes: Iterable[int], *, moved: bool) -> Iterator[str]:
        """Enter a start, or that a running job moved; yield each limit that is exceeded by a start."""
        where = set(nodes)
        if not moved:
            self._ends[job.id] = now + (job.estimate or job.work)
        for account, binds in self._of(job):
            rule, held = account.rule, self._holds(account.rule, job)
            wants = held or rule.least
            if binds and wants and not moved and (over := self._over(account, now, job)) is not None:
                yield over
            account.begun.add(job.id)
            account.nodes[job.id] = where
            account.running[job.id] = held, now, self._ends[job.id]
            most = max([rule.most, *(most for _, most in rule.changes)])  # who is in the system stays there
            if binds and rule.kind == "submitted" and len(account.begun) > most:
                yield f"{rule}: {len(account.begun)} jobs in the system have started, at most {most} may be there"

    def stop(self, now: int, job: Job) -> None:
        """Enter that a job does not run any more."""
        for account, _ in self._of(job):
            if job.id in account.running:
                account.stop(now, job.id)

    def waits_for_ever(self, now: int, job: Job) -> bool:
        """Return whether a limit keeps a waiting job from ever starting if nothing else happens."""
        for account, binds in self._of(job):
            rule, most = account.rule, _most(account.rule, now)
            if not binds:
                continue
            if rule.kind == "submitted":
                if len(account.alive) > most:
                    return True
            elif (self._holds(rule, job) or rule.least) and self._over(account, now, job) is not None:
                decays = rule.half_life and most > self._needs(rule, job)
                if not decays and not (rule.is_promised and most >= self._needs(rule, job)):
                    return True
        return False

    # --- one rule ---------------------------------------------------------------------------------------------

    def _over(self, account: _Account, now: int, job: Job) -> str | None:
        """Return by how much a rule is exceeded if the job, which is not counted yet, starts."""
        rule, wanted = account.rule, self._needs(account.rule, job)
        if rule.least:
            least = _most(rule, now)
            return None if wanted >= least else f"{rule}: {wanted} is less than {least}"
        held: float = 0
        if "job" not in rule.per and rule.kind not in ("wall", "submitted", "ageing"):
            if rule.kind in ("gpu_time", "cpu_time", "wall_time"):
                held = account.used(now) + (account.promised(now) if rule.ahead else 0)
            elif rule.kind.startswith("running_"):
                held = account.promised(now)
            elif rule.kind == "nodes":
                held = len(set().union(*account.nodes.values()))
            else:
                held = sum(each for each, _, _ in account.running.values())
        elif rule.kind in ("submitted", "ageing"):
            return None
        most = _most(rule, now)
        slack = 1 + most * 1e-9 if rule.half_life else 0
        return None if held + wanted <= most + slack else f"{rule}: {held:g} + {wanted} exceeds {most}"

    def _needs(self, rule: LimitRule, job: Job) -> int:
        held = self._holds(rule, job)
        if rule.kind in ("gpu_time", "cpu_time", "wall_time") and not rule.ahead:
            return 1
        return held * (job.estimate or job.work) if rule.kind.endswith("_time") else held

    def _holds(self, rule: LimitRule, job: Job) -> int:
        resource, _, gpu_type = rule.resource.removeprefix("running_").partition(":")
        if resource == "licences":
            return sum(count for name, count in (job.terms.licences if job.terms else ()) if name == gpu_type)
        if gpu_type and list(job.gpu_types) != [gpu_type]:
            return 0
        nodes = job.nodes or max(1, (job.gpus + self._most_gpus - 1) // max(1, self._most_gpus))
        times = 1 if job.gpus else nodes  # what a job without GPUs asks for is on each of its nodes
        cpu_milli, memory_bytes = job.cpu_milli * times, job.memory_bytes * times
        if resource.endswith("_per_node"):
            each = {"gpus": job.gpus, "cpus": cpu_milli // 1000, "memory": memory_bytes}[resource[:-9]] // nodes
            return each * {"gpus": job.gpu_milli, "cpus": 1000, "memory": 1}[resource[:-9]]
        return {
            "gpus": job.width_milli,
            "gpu_time": job.width_milli,
            "cpus": cpu_milli,
            "cpu_time": cpu_milli,
            "wall_time": 1000,
            "memory": memory_bytes,
            "nodes": nodes,
            "wall": job.estimate,
        }.get(resource, 1)

    # --- which apply ------------------------------------------------------------------------------------------

    def _of(self, job: Job) -> list[tuple[_Account, bool]]:
        """Return where a job counts, and whether that limit binds it or another of its slot comes before."""
        chosen = [(place, rule) for place, rule in enumerate(self._rules) if self._applies(rule, job)]
        accounts = []
        for place, rule in chosen:
            level = self._level(rule, job)
            before = [other for _, other in chosen if other.slot == rule.slot and self._level(other, job) < level]
            whose = "/".join(f"{key}={self._names(job)[key]}" for key in rule.per)
            account = self._accounts.setdefault((place, whose), _Account(rule))
            accounts.append((account, level < NOBODY and (not rule.slot or not before)))
        if job.terms is not None and job.terms.throttle:
            array, most = job.terms.array, job.terms.throttle
            account = self._accounts.setdefault((-1, f"{array}%{most}"), _Account(throttle_rule(array, most)))
            accounts.append((account, True))
        return accounts

    def _level(self, rule: LimitRule, job: Job) -> int:
        own = [level for key, value, level in rule.levels if self._names(job)[key] == value]
        return min(own) if own else rule.level

    def _applies(self, rule: LimitRule, job: Job) -> bool:
        for key in {key for key, _ in rule.where}:
            valid = [value for other, value in rule.where if other == key]
            if key == "any":
                pairs = [(one.split(":", 1)[0], one.split(":", 1)[1]) for one in valid]
                if not any(self._applies(replace(rule, where=(pair,)), job) for pair in pairs):
                    return False
            elif key == "account":
                account = job.tenant
                while account and account not in valid:
                    account = self._above.get(account, "")
                if not account:
                    return False
            elif self._names(job)[key] not in valid:
                return False
        return True

    @staticmethod
    def _names(job: Job) -> dict[str, str]:
        return {
            "account": job.tenant,
            "tenant": job.tenant,
            "user": job.user,
            "qos": job.qos,
            "partition": job.partition,
            "array": job.terms.array if job.terms else "",
            "job": str(job.id),
        }
