"""Dominant resource fairness (Ghodsi et al., NSDI 2011): the tenant with the smallest dominant share comes first.

A tenant's dominant share is the largest of its parts of the cluster's GPUs, CPUs and memory (of those that are
counted), divided by its weight. Jobs of one tenant go by submission. If the next job of the tenant with the smallest
share does not fit, the cluster counts as full, as in the paper, and nobody is preempted.

With ``preempt`` a job may take GPUs from a tenant with a larger share, but only as far as that one, after it has given
them up, is still no worse off than the taker with its new job. Every swap therefore brings the two closer together and
none can be reversed by the next, and a started job keeps its GPUs for a quantum. Where an allocation divides CPUs and
memory a tenant holds what its jobs were given, and a waiting job counts with its full demand.

Departures: jobs here are indivisible and may be most of the cluster; ties go to the job submitted first.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeAlias

from headway.jobs.model.resources import UNCOUNTED
from headway.jobs.policies.allocations.synergy.full_demand import FullDemands
from headway.jobs.policies.parts import Order
from headway.jobs.policies.preemption.failed_searches import FailedSearches
from headway.jobs.state.jobstate import Account, JobState
from headway.jobs.state.queue import Key
from headway.jobs.state.state import TrainingState
from headway.units import MINUTE, WHOLE_GPU_MILLI, Duration

QUANTUM = Duration(10 * MINUTE)
Holding: TypeAlias = tuple[int, int, int]
"""GPUs and CPUs in thousandths, and bytes of memory."""


class Drf(Order):
    """Orders jobs by the dominant share of their tenant."""

    name = "drf"
    moves = True

    def __init__(self, quantum: Duration = QUANTUM) -> None:
        self.quantum = quantum
        self._failed_searches = FailedSearches()
        self._hosts: dict[Account, Holding] = {}
        """What tenants hold, valid while the state has changed ``_hosts_of`` times; used where CPUs or memory count."""
        self._hosts_of = -1

    def bind(self, state: TrainingState) -> None:
        """Compute the totals of the cluster; what is not counted is unlimited."""
        nodes = state.cluster.nodes
        cpu_milli = sum(node.cpu_milli or 0 for node in nodes)
        memory_bytes = sum(node.memory_bytes or 0 for node in nodes)
        self._counts_hosts = bool(cpu_milli or memory_bytes)
        self._totals = (
            state.cluster.gpus * WHOLE_GPU_MILLI or UNCOUNTED,
            cpu_milli or UNCOUNTED,
            memory_bytes or UNCOUNTED,
        )
        self._demands = FullDemands(state) if state.divides else None

    def key(self, now: int, js: JobState) -> Key:
        """Return the id: jobs of a tenant go by submission."""
        return js.id

    def lane(self, js: JobState) -> Hashable:
        """Return the tenant: its jobs keep their order while tenants change theirs."""
        return js.account.name

    def lane_key(self, state: TrainingState, js: JobState) -> Key:
        """Return the current share of the job's tenant."""
        return self.share(state, js.account)

    def share(self, state: TrainingState, account: Account) -> float:
        """Return the weighted dominant share of a tenant."""
        if not self._counts_hosts:
            return account.held / self._totals[0] / account.weight
        return self._dominant(account.weight, self._holding(state, account))

    def next_turn(self, now: int, state: TrainingState) -> int:
        """Return when the quantum of jobs started now ends; 0 (never) where there is only one tenant."""
        return now + self.quantum if self.quantum and len(state.accounts) > 1 else 0

    def victims(self, now: int, state: TrainingState, js: JobState) -> Iterable[JobState]:
        """Yield jobs that tenants with larger shares can give up, the largest share and latest submission first."""
        if self._failed_searches.would_fail(now, state, js):
            return
        least = self._dominant(js.account.weight, self._with(state, js))
        richer = [a for a in state.accounts.values() if a is not js.account and self.share(state, a) > least]
        again = now + self.quantum
        if richer:
            jobs: dict[Account, list[JobState]] = {account: [] for account in richer}
            for victim in state.running.values():
                if victim.account in jobs and victim.job.preemptible and _within(victim, js.eligible):
                    if victim.since + self.quantum <= now:
                        jobs[victim.account].append(victim)
                    else:
                        again = min(again, victim.since + self.quantum)
            yield from self._to_spare(state, least, jobs)
        self._failed_searches.record(js, again)

    def _with(self, state: TrainingState, js: JobState) -> Holding:
        """Return what a waiting job's tenant would hold if the job started."""
        gpu_milli, cpu_milli, memory_bytes = self._holding(state, js.account)
        wanted = js.grant
        if self._demands is not None and not any(wanted):
            wanted = self._demands.of(js)
        return gpu_milli + js.width, cpu_milli + wanted.cpu_milli, memory_bytes + wanted.memory_bytes

    def _to_spare(self, state: TrainingState, least: float, jobs: dict[Account, list[JobState]]) -> Iterator[JobState]:
        """Yield jobs that tenants can give up and keep a share of ``least``, from the tenant with the largest share."""
        left = {account: self._holding(state, account) for account in jobs}
        for theirs in jobs.values():
            theirs.sort(key=lambda js: js.id)
        while jobs:
            account = max(jobs, key=lambda a: (self._dominant(a.weight, left[a]), a.name))
            theirs = jobs[account]
            while theirs:
                rest = _plus(left[account], victim := theirs.pop(), -1)
                if self._dominant(account.weight, rest) >= least:
                    left[account] = rest
                    yield victim
                    break
            else:
                del jobs[account]

    def _dominant(self, weight: int, holding: Holding) -> float:
        gpu_total, cpu_total, memory_total = self._totals
        gpu_milli, cpu_milli, memory_bytes = holding
        share = gpu_milli / gpu_total
        if self._counts_hosts:
            share = max(share, cpu_milli / cpu_total, memory_bytes / memory_total)
        return share / weight

    def _holding(self, state: TrainingState, account: Account) -> Holding:
        if not self._counts_hosts:
            return account.held, 0, 0
        if self._hosts_of != state.changes:
            self._hosts_of = state.changes
            self._hosts = {}
            for js in state.running.values():
                self._hosts[js.account] = _plus(self._hosts.get(js.account, (0, 0, 0)), js)
        _, cpu_milli, memory_bytes = self._hosts.get(account, (0, 0, 0))
        return account.held, cpu_milli, memory_bytes


def _plus(holding: Holding, js: JobState, sign: int = 1) -> Holding:
    gpu_milli, cpu_milli, memory_bytes = holding
    return gpu_milli + sign * js.width, cpu_milli + sign * js.cpu_milli, memory_bytes + sign * js.memory_bytes


def _within(js: JobState, eligible: int) -> bool:
    if len(js.placement) == 1:
        return bool(eligible >> js.placement[0][0] & 1)
    return any(eligible >> node & 1 for node, _ in js.placement)
