"""The same jobs on another cluster: a state in the middle of a run, moved to where nodes, quotas or speeds are other.

Nodes keep their numbers: those of the new cluster begin with those of the old one, and more may follow. What runs goes
on where it is. Everything that is derived from the cluster (free resources, who may run where, lanes and keys of the
queue, speeds) is made anew; what has happened to the jobs stays.
"""

from headway.jobs.model.cluster import Cluster
from headway.jobs.model.proportional_share import ProportionalShares
from headway.jobs.model.resources import UNCOUNTED
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.rules.limits.accrual import Ages
from headway.jobs.state.feasible import grant_refusal
from headway.jobs.state.jobstate import Account, JobState, Status
from headway.jobs.state.pool import members
from headway.jobs.state.speed_changes import Respeeded, reallocate, speed_of
from headway.jobs.state.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM


def renewed(policy: ComposedPolicy, fresh: ComposedPolicy) -> ComposedPolicy:
    """A policy as it was built, with what its order and its placement have learned.

    Backfills and migrations keep plans for the cluster that was; they plan anew.
    """
    made = ComposedPolicy(
        fresh.name,
        policy.named_order,
        fresh.backfill,
        policy.rule,
        fresh.migration,
        fresh.allocation,
        preempts=fresh.preempts,
        quantum=fresh.quantum,
        round_length=fresh.round_length,
    )
    made.took_over = policy.took_over
    return made


def transferred(
    now: int,
    old: TrainingState,
    cluster: Cluster,
    policy: ComposedPolicy,
    *,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
) -> tuple[TrainingState, Respeeded | None]:
    """Return the state on this cluster, and the running jobs that end at another time there.

    The jobs and accounts are the old ones: the old state is no longer to be used.

    Nodes that were not there before take no jobs yet. No job may run on GPUs that the new cluster does not have.
    """
    new = TrainingState(cluster, to_come=old.to_come, arrangement=policy, speed=speed, costs=costs)
    new.lease, new.refreshed, new.journal, new.grants = old.lease, old.refreshed, old.journal, old.grants
    new.changes, new.releases = old.changes + 1, old.releases + UNCOUNTED
    new.tenures, new.returns = old.tenures + 1, old.returns + 1
    _keep_accounts(old, new)
    policy.bind(new)
    for node in members(new.pool.everywhere & ~old.pool.schedulable):
        new.pool.set_schedulable(node, False)
    new.jobs = old.jobs
    for js in new.jobs.values():
        js.eligible = new.eligible(js.job.partition, js.job.gpu_types)
    _keep_limits(now, old, new)
    _keep_preempting(old, new)
    for js in old.running.values():
        new.pool.take(js, js.placement)
        new.running[js.id] = js
        for node, _ in js.placement:
            new.on_node[node][js.id] = js
    if new.reserved is not None:
        for js in new.running.values():
            js.eligible = new.reserved.allowed(now, js, js.eligible).nodes
    caused = [js for js in new.running.values() if _keep_running(now, new, js)]
    if new.divides and old.speed.sensitivity is None:
        caused += _give_dues(now, new)
    for js in new.jobs.values():
        if js.status is Status.WAITING:
            if new.divides and js.gpus:
                js.cpu_milli, js.memory_bytes, js.storage = policy.asks(js)
            if new.reserved is not None:
                new.reserved.look(now, js, js.eligible)
            new.put_in_order(now, js)
            new.enqueue(js)
    return new, caused or None


def _give_dues(now: int, new: TrainingState) -> Respeeded:
    """Give everybody who holds what it asked for, which is often nothing, its due, where speed now depends on that."""
    caused: Respeeded = []
    shares = ProportionalShares(new.cluster)
    for js in new.running.values():
        proportional = shares.of(js.placement, js.width)
        if js.gpus and grant_refusal(new, js.id, proportional) is None:
            caused += reallocate(new, now, js, proportional) or ()
    return caused


def _keep_limits(now: int, old: TrainingState, new: TrainingState) -> None:
    """Count all jobs under the limits of the new cluster, with what was used before."""
    for js in new.jobs.values():
        js.limits = None
    if new.limits is not None or any(js.job.terms is not None and js.job.terms.throttle for js in new.jobs.values()):
        new.limits_from(now).take_over(now, new.queue, new.jobs.values(), old.limits)
    else:
        Ages().take_over(now, new.jobs.values())


def _keep_preempting(old: TrainingState, new: TrainingState) -> None:
    """Keep notices and delays; where the new cluster declares no preemption, nobody has to go, and all may start."""
    if new.preempting is not None:
        return new.preempting.take_over(new, old.preempting)
    for js in new.jobs.values():
        js.leaves = js.awaits = 0
        if js.status is Status.DELAYED:
            js.status = Status.WAITING


def _keep_accounts(old: TrainingState, new: TrainingState) -> None:
    """The accounts that jobs refer to, with the quotas of the new cluster."""
    for name, account in old.accounts.items():
        quota = new.accounts.get(name) or Account(name)
        for field in ("guaranteed", "limit", "borrow", "promised", "weight"):
            setattr(account, field, getattr(quota, field))
        new.accounts[name] = account


def _keep_running(now: int, new: TrainingState, js: JobState) -> bool:
    """Enter a running job in the indexes of the new state; return whether it has another speed there."""
    speed = REFERENCE_SPEED_PPM if new.speed.constant else speed_of(new, js)
    if changed := speed != js.speed:
        js.settle(now)
        js.speed = speed
        new.journal((now, int(Kind.RESPEED), js.id, js.lease, -1, 0, speed))
    new.enter_ranks(now, js)
    return changed
