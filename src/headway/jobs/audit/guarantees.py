"""Audit of a policy's guarantees on a tape: guaranteed quota is met within one decision; and no job is slower than
with its proportional share, where the policy's allocation guarantees that (``proportional_share.py``).

A finding about quota is a job that still waits at the end of an instant although it is the first of its lane (one
sorted part of the queue, see ``jobs/state/queue.py``), is within its tenant's guarantee, and would have fitted on free
GPUs or on GPUs taken back from borrowers. A decision does not undo itself: what one that stops jobs frees, and what it
turns into borrowed GPUs, is left to the next one, for which the policy wakes up.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from headway.core.audit import Finding
from headway.core.tape import Tape
from headway.jobs.audit.proportional_share import slower_than_proportional
from headway.jobs.audit.replay import Walk
from headway.jobs.model.actions import Stop
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.events import JobArrived, Woke
from headway.jobs.model.job import Job
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.backfills.walk import guaranteed
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.preemption.victims import borrowed, make_room
from headway.jobs.state.jobstate import Account, JobState
from headway.jobs.state.state import TrainingState


def unkept_promises(
    cluster: Cluster,
    jobs: Sequence[Job],
    tape: Tape,
    policy: ComposedPolicy,
    *,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
) -> Iterator[Finding]:
    """Yield a finding for each job and instant at which a promise could have been kept and was not.

    ``policy``, fresh and not bound yet, only orders the queue. Only instants at which it decides are checked: where it
    has rounds, the beginning of each.
    """
    if policy.allocation is not None and policy.allocation.guarantees and speed is not None:
        yield from slower_than_proportional(cluster, jobs, tape, speed)
    promised = [tenant.name for tenant in cluster.tenants if tenant.guaranteed_gpus is not None]
    if not any(tenant.borrow for tenant in cluster.tenants) or not promised:
        return
    walk = Walk(cluster, jobs, tape, policy, speed=speed, costs=costs)
    state = walk.state
    accounts = [state.accounts[name] for name in promised]
    checked = -1
    times = tape.column("time")
    for step in walk:
        walk.act()
        if policy.round_length and step.time % policy.round_length:
            continue
        if any(isinstance(action, Stop) for action in step.actions):
            continue
        if state.queue.size and any(account.held > account.guaranteed for account in accounts):
            same = checked == state.changes and all(isinstance(event, JobArrived | Woke) for event in step.events)
            only = {event.job.id for event in step.events if isinstance(event, JobArrived)} if same else None
            for js in _left_waiting(state, policy, accounts, only):
                row = int(np.searchsorted(times, step.time, side="right")) - 1
                text = f"job {js.id} waits within the guarantee of tenant {js.account.name} while others borrow"
                yield Finding(row, step.time, "guarantee", text)
            checked = state.changes


def _left_waiting(
    state: TrainingState, policy: ComposedPolicy, accounts: list[Account], only: set[int] | None
) -> Iterator[JobState]:
    """Yield the heads of lanes within their guarantee that could be admitted; of jobs ``only``, if given."""
    below_guarantee = {account.name for account in accounts if account.held < account.guaranteed}
    if not below_guarantee:
        return
    for lane in list(state.queue.lanes.values()):
        js = state.jobs[lane.head[1]]
        if js.account.name not in below_guarantee or not guaranteed(js) or (only is not None and js.id not in only):
            continue
        rule = policy.placement
        if rule.place(state.pool, js) is not None or make_room(state, js, rule, borrowed(state, js)).placement:
            yield js
