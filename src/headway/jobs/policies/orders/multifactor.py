"""Slurm's multifactor priority (the priority/multifactor plugin, SchedMD): a weighted sum of factors between 0 and 1.

Age grows to 1 over ``max_age``. Fair-share is 2^(-usage/share): a tenant's part of all GPU time used, decayed with
``half_life``, against its part of all weights. Size is the job's part of the cluster's GPUs (``favor_small`` turns it
round). QOS and partition are their priorities against the largest one; those of QOSs stand in ``qos`` or, without it,
in the cluster. ``tres`` weighs what a job asks for against what its partition has: ``gpu:5000/cpu:100/mem:50``. Of
equal priorities the job that was submitted, or requeued by the rules of the cluster, first comes first. Everything is
computed anew every ``period``, as Slurm does; what jobs will use is never looked at, only what they have held. Limits
of the cluster may let the age of only so many waiting jobs grow.

With ``fair_tree`` the fair-share factor is that of Slurm's Fair Tree over tenants and their users (its default), else
the classic formula over tenants alone.

Departures: the size factor counts GPUs, where Slurm's counts nodes and CPUs; usage counts GPU time only; weights
default to those of the example in Slurm's manual, because Slurm's own default of 0 for all is fifo.
"""

from collections.abc import Mapping, Sequence, Set
from math import floor

import numpy as np

from headway.errors import ExperimentError, unknown_name
from headway.jobs.model.cluster import Cluster, Tenant
from headway.jobs.policies.orders.fair_tree import FairTree, Who
from headway.jobs.policies.orders.rounds import RoundOrder
from headway.jobs.rules.limits.limit import AGEING
from headway.jobs.state.jobstate import JobState, Status
from headway.jobs.state.queue import Key
from headway.jobs.state.state import TrainingState
from headway.units import DAY, MINUTE, WHOLE_GPU_MILLI, Duration

WEEK = Duration(7 * DAY)
CALC_PERIOD = Duration(5 * MINUTE)
SCALE = 1000
"""Priorities are kept in thousandths of Slurm's, so that ties are rarer."""
_FEW = 16
"""So many keys are computed one by one."""
TRES = ("gpu", "cpu", "mem")


class Multifactor(RoundOrder):
    """Orders jobs by Slurm's weighted sum of factors."""

    name = "multifactor"
    starves = True
    watches_ends = True

    def __init__(
        self,
        age_weight: int = 1000,
        fairshare_weight: int = 10_000,
        size_weight: int = 1000,
        qos_weight: int = 1000,
        partition_weight: int = 1000,
        max_age: Duration = WEEK,
        half_life: Duration = WEEK,
        period: Duration = CALC_PERIOD,
        favor_small: bool = False,
        qos: tuple[str, ...] = (),
        fair_tree: bool = False,
        tres: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        if min(max_age, half_life, period) <= 0:
            raise ExperimentError("multifactor: max_age, half_life and period must be above 0")
        self.age_weight = age_weight
        self.fairshare_weight = fairshare_weight
        self.size_weight = size_weight
        self.qos_weight = qos_weight
        self.partition_weight = partition_weight
        self.max_age = max_age
        self.half_life = half_life
        self.period = period
        self.favor_small = favor_small
        self.qos = qos
        self.fair_tree = fair_tree
        self.refresh = period
        self.tres = tres
        self._qos = _parts_of_largest(_parsed("qos", qos))
        self._tres = _parsed("tres", tres)
        for name in self._tres.keys() - set(TRES):
            raise ExperimentError(unknown_name("resource of multifactor(tres=...)", name, list(TRES)))
        self._calculated = -1
        self._ended: dict[Who, int] = {}
        self._counted: dict[Who, int] = {}
        self._usage: dict[Who, float] = {}
        self._factors: dict[Who, float] = {}
        self._fair: dict[Who, float] = {}
        self._between: set[int] = set()
        """Jobs whose keys were asked for since all were last computed: their age counts from there on."""
        self._keyed = False
        """Whether all keys were computed once."""
        self._fair_most = SCALE * fairshare_weight
        self._age_most = SCALE * age_weight
        self._age_rate = self._age_most / max_age
        weights = (age_weight, fairshare_weight, size_weight, qos_weight, partition_weight, *self._tres.values())
        self._own_keys = type(self).key is not Multifactor.key
        self._at_once = not self._own_keys and SCALE * sum(map(abs, weights)) < 1 << 62

    def bind(self, state: TrainingState) -> None:
        """Read the totals and priorities of the cluster, to which the factors are relative."""
        self._state = state
        self._total = max(1, state.cluster.gpus * WHOLE_GPU_MILLI)
        if not self.qos:
            self._qos = _parts_of_largest({each.name: each.priority for each in state.cluster.qos})
        self._tenants = {each.name: each for each in state.cluster.tenants}
        self._counts = {each.name: each.usage_factor for each in state.cluster.qos if each.usage_factor != 1.0}
        """Of QOSs whose jobs count more or less than once."""
        for tenant in state.cluster.tenants if self._calculated < 0 else ():  # once, also where the cluster changes
            for user, time in tenant.used:
                who = tenant.name, user if self.fair_tree else ""
                self._usage[who] = self._usage.get(who, 0.0) + time
                self._ended[who] = 0
        self._shares = _shares(state.cluster.tenants)
        self._partitions = _parts_of_largest({p.name: p.priority for p in state.cluster.partitions})
        self._holds = _holdings(state.cluster) if self._tres else {}
        self._accrual = any(rule.kind == AGEING for rule in state.cluster.limits)
        """Whether the age of only some waiting jobs counts."""
        rules = state.cluster.preemption
        self._again_after = None if rules is None else rules.again_after
        self._known: dict[int, tuple[Who, float]] = {}
        """Of each job: whose usage it adds to, and the part of its priority that does not change with time."""
        self._lease = 0
        """The last one that it knows of."""
        self._running: dict[int, tuple[Who, int, int]] = {}
        """Of each job that runs: whose it is, and (offset, rate): at any time t it has held offset + rate * t."""
        self._rates: dict[Who, tuple[int, int]] = {}
        """The same, added up."""
        self._live: dict[Who, int] = {}
        """How many live jobs there are of each."""
        self._planted: tuple[Set[Who], dict[str, int]] | None = None
        """The users in the Fair Tree, and weights of accounts."""
        self._whose: dict[Who, int] = {}
        self._columns = np.zeros(1024, dtype=[("whose", np.int64), ("fixed", np.float64)])
        """The same by the number of a job, for all keys at once; ``whose`` is a place in ``_whose``."""

    def key(self, now: int, js: JobState) -> Key:
        """Return minus the priority, in thousandths; where jobs are requeued, and when it was submitted last.

        Priorities are less what every job's age has grown by since the run began: that changes no order but
        that of jobs within a thousandth, and a key stands as long as only the age grows.
        """
        state = self._state
        if state.refreshed != self._calculated:
            self._calculate(state.refreshed, state)
        who, fixed = self._known.get(js.id) or self._know(js)
        age = min(now - js.aged_from, self.max_age)
        if self._accrual:
            age = max(0, min(age, now - js.accrues))
        if now != state.refreshed:
            self._between.add(js.id)
        key = -floor(self._age_rate * (age - state.refreshed) + self._fair.get(who, self._fair_most) + fixed)
        return key if self._again_after is None else (key, self._submitted(js))

    def keys(self, now: int, waiting: Sequence[JobState]) -> Sequence[Key]:
        """Return the same of all these jobs, to the last digit."""
        if not self._at_once or len(waiting) < _FEW:
            return super().keys(now, waiting)
        self.key(now, waiting[0])
        rows = self._columns[[js.id for js in waiting]]
        age = np.minimum(now - np.array([js.aged_from for js in waiting]), self.max_age)
        if self._accrual:
            age = np.maximum(0, np.minimum(age, now - np.array([js.accrues for js in waiting])))
        grown = self._age_rate * (age - self._state.refreshed)
        fair = np.array([self._fair.get(who, self._fair_most) for who in self._whose])
        keys: list[int] = (-np.floor(grown + fair[rows["whose"]] + rows["fixed"]).astype(np.int64)).tolist()
        return keys if self._again_after is None else [*zip(keys, map(self._submitted, waiting), strict=True)]

    def moved(self, now: int, waiting: Sequence[JobState]) -> Sequence[JobState]:
        """Return all where shares are others; else those that came in between, and whose age grows no longer."""
        if not waiting:  # shares are computed when the next one comes
            return waiting
        before, between, self._between = self._fair, self._between, set()
        self._calculate(now, self._state)
        if self._own_keys or self._accrual or before != self._fair or not self._keyed:
            self._keyed = True
            return waiting
        grown = now - self.max_age
        return [js for js in waiting if js.aged_from <= grown or js.id in between]

    def _submitted(self, js: JobState) -> int:
        """Return when a job was submitted, or requeued by the rules of the cluster."""
        return js.job.submit if js.aged_from == js.arrived else js.aged_from - (self._again_after or 0)

    def _know(self, js: JobState) -> tuple[Who, float]:
        """Return whose usage a job adds to (its tenant's, with the Fair Tree its user's), and the fixed part."""
        who = js.job.tenant, js.job.user if self.fair_tree else ""
        known = self._known[js.id] = who, self._fixed_part(js)
        self._live[who] = self._live.get(who, 0) + 1
        if js.id >= len(self._columns):
            self._columns = np.resize(self._columns, max(js.id + 1, 2 * len(self._columns)))
        self._columns[js.id] = self._whose.setdefault(who, len(self._whose)), known[1]
        return known

    def _fixed_part(self, js: JobState) -> float:
        """Return what size, QOS, partition and TRES add, less its nice: the part that does not change with time."""
        size = min(1.0, js.width / self._total)
        return SCALE * (
            self.size_weight * (1.0 - size if self.favor_small else size)
            + self.qos_weight * self._qos.get(js.job.qos, 0.0)
            + self.partition_weight * self._partitions.get(js.job.partition, 0.0)
            + (self._asked(js) if self._tres else 0.0)
        ) - (0 if js.job.terms is None else SCALE * js.job.terms.nice)

    def _asked(self, js: JobState) -> float:
        """Return the weighted parts of its partition's resources that a job asks for."""
        asked = dict(zip(TRES, (js.width, *js.job.host), strict=True))
        holds = self._holds.get(js.job.partition, self._holds[""])
        return sum(weight * min(1.0, asked[name] / max(1, holds[name])) for name, weight in self._tres.items())

    def ended(self, now: int, js: JobState) -> None:
        """Count what a job that has ended held, from the next period on."""
        who, _ = self._known.get(js.id) or self._know(js)
        del self._known[js.id]
        self._live[who] -= 1
        if not self._live[who]:
            del self._live[who]
        self._ended[who] = self._ended.get(who, 0) + self._counted_as(js, js.attained)

    def factor(self, tenant: str, user: str = "") -> float:
        """Return the fair-share factor in this period: 1 if nothing was used; classically 0.5 at the share."""
        return self._factors.get((tenant, user), 1.0)

    def _calculate(self, now: int, state: TrainingState) -> None:
        """Decay what was used before, add what was held since, and derive each tenant's factor."""
        known = self._known
        if len(known) != len(state.jobs):  # it began with jobs that were there already
            for js in state.jobs.values():
                known.get(js.id) or self._know(js)
        held = self._held(now, state)
        decay = 0.5 ** ((now - max(0, self._calculated)) / self.half_life)
        for who, attained in held.items():
            fresh = attained - self._counted.get(who, 0)
            self._usage[who] = self._usage.get(who, 0.0) * decay + fresh
        self._counted = held
        self._calculated = now
        factors = self._tree(state) if self.fair_tree else self._classic(state)
        if factors is not self._factors:
            self._factors = factors
            self._fair = {who: factor * self._fair_most for who, factor in factors.items()}

    def _held(self, now: int, state: TrainingState) -> dict[Who, int]:
        """Return what all have held by now."""
        known, held, running = self._known, dict(self._ended), Status.RUNNING
        if self._counts:
            for js in state.running.values():
                who, attained = known[js.id][0], js.attained + (now - js.since) * js.width
                held[who] = held.get(who, 0) + self._counted_as(js, attained)
        else:
            self._follow(state)
            for who, (offset, rate) in self._rates.items():
                held[who] = held.get(who, 0) + offset + rate * now
        for js in [js for js in state.jobs.values() if js.attained and js.status is not running]:
            who = known[js.id][0]
            held[who] = held.get(who, 0) + self._counted_as(js, js.attained)
        return held

    def _follow(self, state: TrainingState) -> None:
        """Take note of who has started and stopped since the last time."""
        for job in self._running.keys() - state.running.keys():
            self._count(*self._running.pop(job), -1)
        for js in reversed(state.running.values()):  # the last to start come last
            if js.lease <= self._lease:
                break
            if js.id in self._running:
                self._count(*self._running[js.id], -1)
            entry = self._running[js.id] = self._known[js.id][0], js.attained - js.since * js.width, js.width
            self._count(*entry, +1)
        self._lease = state.lease

    def _count(self, who: Who, offset: int, rate: int, sign: int) -> None:
        before = self._rates.get(who, (0, 0))
        self._rates[who] = before[0] + sign * offset, before[1] + sign * rate

    def _counted_as(self, js: JobState, attained: int) -> int:
        """Return what a job has used, as its QOS counts it."""
        factor = self._counts.get(js.job.qos) if self._counts else None
        return attained if factor is None else round(attained * factor)

    def _classic(self, state: TrainingState) -> dict[Who, float]:
        """Return 2 to the minus usage over share, for each tenant."""
        whole = sum(self._usage.values())
        weights = sum(account.weight for account in state.accounts.values())
        return {
            who: 2.0 ** -(usage / whole / self._shares.get(who[0], state.accounts[who[0]].weight / weights))
            if self._shares
            else 2.0 ** -(usage / whole * weights / state.accounts[who[0]].weight)
            if whole
            else 1.0
            for who, usage in self._usage.items()
        }

    def _tree(self, state: TrainingState) -> dict[Who, float]:
        """Return the Fair Tree factor of each user that has submitted something."""
        usage = dict.fromkeys(self._live, 0.0) | self._usage
        weights = {name: account.weight for name, account in state.accounts.items()}
        if (usage.keys(), weights) != self._planted:
            self._planted = frozenset(usage), weights
            self._users = FairTree(usage, weights, self._tenants)
        return self._users.factors(usage)


def _holdings(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Return what the nodes of each partition have of each resource; under no name those of the cluster."""
    places = {"": tuple(range(len(cluster.nodes))), **{each.name: each.nodes for each in cluster.partitions}}
    return {
        name: {
            "gpu": sum(cluster.nodes[node].gpus for node in nodes) * WHOLE_GPU_MILLI,
            "cpu": sum(cluster.nodes[node].cpu_milli or 0 for node in nodes),
            "mem": sum(cluster.nodes[node].memory_bytes or 0 for node in nodes),
        }
        for name, nodes in places.items()
    }


def _parsed(option: str, levels: tuple[str, ...]) -> dict[str, int]:
    priorities = {}
    for level in levels:
        name, colon, value = level.partition(":")
        if not colon or not value.strip().isdecimal():
            example = "high:1000" if option == "qos" else "gpu:1000"
            raise ExperimentError(f"multifactor({option}=...): {level!r} must be like {example}")
        priorities[name.strip()] = int(value)
    return priorities


def _shares(tenants: Sequence[Tenant]) -> dict[str, float]:
    """Return each account's part of its siblings' weights times the part of its parent; none where there is no tree."""
    if not any(tenant.parent for tenant in tenants):
        return {}
    siblings: dict[str, int] = {}
    for tenant in tenants:
        siblings[tenant.parent] = siblings.get(tenant.parent, 0) + tenant.weight
    known = {tenant.name: tenant for tenant in tenants}

    def part(name: str) -> float:
        own = known[name]
        return own.weight / siblings[own.parent] * (part(own.parent) if own.parent else 1.0)

    return {name: part(name) for name in known}


def _parts_of_largest(priorities: Mapping[str, int]) -> dict[str, float]:
    largest = max(priorities.values(), default=0)
    return {name: priority / largest for name, priority in priorities.items()} if largest > 0 else {}
