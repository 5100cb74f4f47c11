"""Explains why a job waits: finds the causes that, removed together, would let it start.

The state is that at the end of an instant, after the policy has decided. Each cause is something that could be
different: more quota, no job ahead, no reservation, a few more GPUs, the free ones in one place. The tests remove the
causes and let the policy decide again, which proves that the causes named here are enough.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

from headway.jobs.explain.unavailable import away_until, reserved_cause
from headway.jobs.model.causes import Cause, CauseKind
from headway.jobs.policies.allocations.allotted import Allotted
from headway.jobs.policies.backfills.walk import guaranteed
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.rules.limits.text import told_with_holders
from headway.jobs.rules.preemption.text import why_delayed, why_grace
from headway.jobs.rules.reservations.engine import is_inside
from headway.jobs.state.feasible import quota_refusal
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Pool, members
from headway.jobs.state.queue import Entry, Key, Lane, tier_of
from headway.jobs.state.state import TrainingState
from headway.units import WHOLE_GPU_MILLI, counted, format_duration, format_size


def why_waiting(now: int, state: TrainingState, policy: ComposedPolicy, js: JobState) -> tuple[Cause, ...]:
    """Return the causes for which a job waits at the end of an instant; without them it would start.

    The policy's memory is not changed: a copy is asked.
    """
    if (requeued := why_delayed(state, js)) is not None:
        return (requeued,)
    policy = probe(policy)
    causes = [_round(now, policy)] if _between_rounds(now, policy) else []
    if (grace := why_grace(state, js)) is not None:
        causes.append(grace)
    refusal = quota_refusal(js) if state.quotas else None
    if refusal is not None:
        account = js.account
        facts = {"held_milli": account.held, "guaranteed_milli": account.guaranteed, "limit_milli": account.limit}
        causes.append(Cause(CauseKind.QUOTA, refusal, facts=facts))
    causes += _limits(state, js)
    with raised_quota(js):
        ahead = Ahead(state, policy, js, quota=refusal is not None)
        fits = _fits(now, state, policy, js, ahead)
        if (held_back := _held_back(ahead, _overdue(now, state, policy, js) if fits else (), fits)) is not None:
            causes.append(held_back)
        if not fits:
            causes.append(reserved_cause(now, state, policy.placement, js) or _shortage(now, state, policy, js))
        if not causes:
            causes.append(_own_reservation(now, policy, js) or _round(now, policy))
        if fits and refusal is not None and len(causes) == 1:
            ahead = Ahead(state, policy, js, quota=True, nodes=False)
        rivals = ahead.waits - (0 if held_back is None else len(ahead.holders) or ahead.holding)
        tried = policy.backfill.strict and not _between_rounds(now, policy)
        if rivals and not (fits and tried and refusal is None and held_back is not None):
            causes.append(_ordered(ahead, rivals))
    return tuple(causes)


def _fits(now: int, state: TrainingState, policy: ComposedPolicy, js: JobState, ahead: "Ahead") -> bool:
    """Return whether the job itself could start now. With reservations only a job with none ahead may preempt."""
    if policy.backfill.reserves and ahead.waits and not (state.quotas and guaranteed(js)):
        return policy.placement.place(state.pool, js) is not None
    return policy.admit(now, state, js) is not None


def probe(policy: ComposedPolicy) -> ComposedPolicy:
    """Return a copy of a policy that can be asked whether jobs fit without changing the policy's memory."""
    asked = copy(policy)
    asked.order = copy(policy.order)
    asked.placement = copy(policy.placement)
    asked.barred = {}
    return asked


# --- limits -------------------------------------------------------------------------------------------------------


def _limits(state: TrainingState, js: JobState) -> list[Cause]:
    """Return each limit that the job would exceed, with who holds what under it."""
    if js.limits is None or state.limits is None:
        return []
    lane = state.queue.aside.get(js.lane)
    ahead = 0 if lane is None else lane.before((js.key, js.id))
    causes = []
    for counter in state.limits.all_refusing(js):
        wanted, holders = js.limits.amount(counter), state.limits.holders(counter, state.running.values())
        names = tuple(each.job.name or str(each.id) for each in holders)
        text = told_with_holders(counter, state.limits.now, wanted, dict(zip(names, holders.values(), strict=True)))
        if ahead:
            text += f"; {counted(ahead, 'job')} ahead of it wait{'s' if ahead == 1 else ''} for the same"
        bound, held = counter.rule.bound, counter.held_now(state.limits.now)
        facts = {"held": held, "most": bound(counter.most), "wanted": bound(wanted), "ahead": ahead}
        jobs = tuple(each.id for each in holders)
        causes.append(Cause(CauseKind.LIMIT, text, counter.rule.name, jobs, facts, names))
    return causes


# --- quota --------------------------------------------------------------------------------------------------------


@contextmanager
def raised_quota(js: JobState) -> Iterator[None]:
    """Raise the quota of the job's tenant, for the ``with`` block, to what the job needs."""
    account = js.account
    before = account.guaranteed, account.limit
    raise_quota(js)
    try:
        yield
    finally:
        account.guaranteed, account.limit = before


def raise_quota(js: JobState) -> None:
    """Raise the quota of the job's tenant so that it may hold the job: the limit, else the guarantee too."""
    account, wanted = js.account, js.account.held + js.width
    if wanted > account.guaranteed:
        account.limit = max(account.limit, wanted)
        if not (account.borrow and js.job.preemptible):
            account.guaranteed = wanted


# --- who comes first ----------------------------------------------------------------------------------------------


class Ahead:
    """The waiting jobs ahead of a job that compete with it for nodes or for a quota."""

    def __init__(
        self, state: TrainingState, policy: ComposedPolicy, js: JobState, *, quota: bool, nodes: bool = True
    ) -> None:
        """``quota`` counts jobs of the same tenant, ``nodes`` those that may run where this one may."""
        self._state = state
        self._policy = policy
        self._js = js
        self._entry: Entry = (js.key, js.id)
        self._place = self._rank(js)
        self.over_quota = not nodes
        self.parts: list[tuple[Lane, int]] = []
        """Lanes, and how many jobs of each are ahead."""
        self.strict: list[tuple[Lane, int]] = []
        """Those of them that may not be overtaken under a strict backfill."""
        for lane in state.queue.lanes.values():
            head = state.jobs[lane.head[1]]
            matters = (quota and head.account is js.account) or (nodes and self._shares_nodes(head))
            if matters and (count := self._count(lane, head)):
                self.parts.append((lane, count))
                if policy.backfill.strict and self._blocks(head):
                    self.strict.append((lane, count))
        self.waits = sum(count for _, count in self.parts)
        self.holding = sum(count for _, count in self.strict)
        self.first = min((lane.head for lane, _ in self.parts), default=(0, -1))[1]
        reserved = policy.backfill.reservations
        self.holders = tuple(job for job in reserved if job in state.jobs and self._is_ahead(state.jobs[job]))
        """Jobs ahead that have reservations."""

    def names(self, *jobs: int) -> tuple[str, ...]:
        """Return the names of jobs in the trace; the number of a job without a name."""
        return tuple(self._state.jobs[job].job.name or str(job) for job in jobs)

    def _rank(self, js: JobState) -> tuple[bool, Key, Key]:
        """Return the rank by which lanes are compared before keys: guaranteed first, then tier, then the lane key."""
        policy, state = self._policy, self._state
        tier = tier_of(js.key) if policy.ranks_lanes else 0
        return state.quotas and not guaranteed(js), tier, policy.order.lane_key(state, js)

    def _shares_nodes(self, head: JobState) -> bool:
        partition = head.job.partition
        return partition == self._js.job.partition or bool(self._state.eligible(partition, ()) & self._js.eligible)

    def _blocks(self, head: JobState) -> bool:
        """Return whether the head of a lane may not be overtaken by the job in a strict queue, as in ``walk``."""
        js, quotas = self._js, self._state.quotas
        if head.lane == js.lane:
            return True
        if quotas and (guaranteed(js) or quota_refusal(head) is not None):
            return False
        if is_inside(self._state, js) or is_inside(self._state, head):
            return False
        return bool(self._state.eligible(head.job.partition, ()) & self._state.eligible(js.job.partition, ()))

    def _count(self, lane: Lane, head: JobState) -> int:
        if lane.name != self._js.lane and (rank := self._rank(head)) != self._place:
            return len(lane) if rank < self._place else 0
        count = lane.before(self._entry)
        if lane.name != self._js.lane and self._place[0] and count:
            jobs = self._state.jobs  # behind the head may be narrower jobs, within the guarantee, that it holds back
            inside = (place for place, (_, job) in enumerate(lane, 1) if place > count and guaranteed(jobs[job]))
            count = max(inside, default=count)
        return count

    def _is_ahead(self, js: JobState) -> bool:
        return any(lane.name == js.lane and lane.before((js.key, js.id)) < count for lane, count in self.parts)


def _overdue(now: int, state: TrainingState, policy: ComposedPolicy, js: JobState) -> tuple[int, ...]:
    """Return the jobs whose reservations on nodes where the job would start have begun: these are kept first.

    They may be behind it in the queue.
    """
    reserved = policy.backfill.reservations
    if js.id not in reserved or state.quotas or policy.preempts:  # with these the queue comes before reservations
        return ()
    if (placement := policy.placement.place(state.pool, js)) is None:
        return ()
    wanted = {node for node, _ in placement}
    begun = (job for job, promise in reserved.items() if promise.start <= now and not wanted.isdisjoint(promise.nodes))
    return tuple(job for job in begun if job != js.id and job in state.jobs and job not in state.running)


def _held_back(ahead: Ahead, overdue: tuple[int, ...], fits: bool) -> Cause | None:
    """Return the cause if the rules of the backfill hold the job back: jobs ahead, or reservations; else None."""
    if ahead.holding:
        first = min(lane.head for lane, _ in ahead.strict)[1]
        names = ahead.names(first)
        text = f"{_some(names, ahead.holding)} ahead of it, and none may be overtaken"
        return Cause(CauseKind.HEAD_OF_LINE, text, jobs=(first,), facts={"ahead": ahead.holding}, names=names)
    holders = (*ahead.holders, *(job for job in overdue if job not in ahead.holders))
    if fits and holders:
        count, names = len(holders), ahead.names(*holders)
        text = f"it would fit now, and delay what is reserved for {_some(names, count)}"
        return Cause(CauseKind.RESERVATION, text, jobs=holders, facts={"reserved": count}, names=names)
    return None


def _ordered(ahead: Ahead, rivals: int) -> Cause:
    resource, level = ("its tenant's quota", "quota") if ahead.over_quota else ("what becomes free", "")
    names = ahead.names(ahead.first)
    text = f"{_some(names, rivals)} ahead of it for {resource}"
    return Cause(CauseKind.ORDER, text, level, (ahead.first,), {"ahead": rivals}, names)


def _some(names: tuple[str, ...], count: int) -> str:
    return f"job {names[0]}" + (f" and {count - 1} more" if count > 1 else "")


def _between_rounds(now: int, policy: ComposedPolicy) -> bool:
    return bool(policy.round_length and now % policy.round_length)


def _own_reservation(now: int, policy: ComposedPolicy, js: JobState) -> Cause | None:
    """Return the cause if the job's own reservation is for later: plans are made anew only when something changes."""
    reservation = policy.backfill.reservations.get(js.id)
    if reservation is None or reservation.start <= now:
        return None
    start = format_duration(reservation.start)
    text = f"it would fit now, but is reserved to start at {start}, and nothing has changed since that was planned"
    return Cause(CauseKind.ROUND, text, level="reservation", facts={"next": reservation.start})


def _round(now: int, policy: ComposedPolicy) -> Cause:
    if not _between_rounds(now, policy):
        return Cause(CauseKind.ROUND, "it would start now; the policy decides again when something happens")
    following = (now // policy.round_length + 1) * policy.round_length
    return Cause(CauseKind.ROUND, f"the policy decides next at {format_duration(following)}", facts={"next": following})


# --- what is missing ----------------------------------------------------------------------------------------------


def _shortage(now: int, state: TrainingState, policy: ComposedPolicy, js: JobState) -> Cause:
    """Return the cause for which the placement rule finds no place."""
    pool = state.pool
    if (away := js.eligible & ~pool.schedulable) and _fits_on(pool, policy, js, away):
        names = [state.cluster.nodes[node].name for node in members(away)]
        text = f"it would fit with {', '.join(names[:3])}{' and others' if len(names) > 3 else ''} in service"
        text += away_until(now, state.cluster, away)
        return Cause(CauseKind.NODES_DOWN, text, facts={"nodes": len(names)})
    if (any(js.grant) or state.divides) and _fits_without_host(pool, policy, js):
        return _host(js)
    wanted, free = js.width, _free_milli(pool, js)
    facts = {"wanted_milli": wanted, "free_milli": free}
    numbers = f"{wanted / 1000:g} GPU{'' if wanted == 1000 else 's'} wanted, {free / 1000:g} free where it may run"
    if free < wanted:
        return Cause(CauseKind.CAPACITY, numbers, facts=facts)
    level, most, largest = _scattered(state, js)
    if level:
        facts["largest_milli"] = most
        return Cause(CauseKind.FRAGMENTATION, f"{numbers}, {largest}", level=level, facts=facts)
    return Cause(CauseKind.PLACEMENT, f"{numbers}, but not as {policy.rule.name} wants them", facts=facts)


def _fits_on(pool: Pool, policy: ComposedPolicy, js: JobState, away: int) -> bool:
    for node in members(away):
        pool.set_schedulable(node, True)
    try:
        return policy.placement.place(pool, js) is not None
    finally:
        for node in members(away):
            pool.set_schedulable(node, False)


def _fits_without_host(pool: Pool, policy: ComposedPolicy, js: JobState) -> bool:
    rule = policy.placement.rule if isinstance(policy.placement, Allotted) else policy.placement
    before = js.grant
    js.cpu_milli = js.memory_bytes = js.storage = 0
    try:
        return rule.place(pool, js) is not None
    finally:
        js.cpu_milli, js.memory_bytes, js.storage = before


def _host(js: JobState) -> Cause:
    if not any(js.grant):
        return Cause(CauseKind.HOST, "GPUs are free, but not the CPUs and the memory that go with them")
    demand = f"{js.cpu_milli / 1000:g} CPUs and {format_size(js.memory_bytes)}"
    text = f"GPUs are free, but not with the {demand} that it wants beside them"
    facts = {"cpu_milli": js.cpu_milli, "memory_bytes": js.memory_bytes}
    return Cause(CauseKind.HOST, text, facts=facts)


def _free_milli(pool: Pool, js: JobState) -> int:
    """Return the thousandths of GPUs that are free where a job may run; for whole GPUs only whole ones count."""
    free = pool.free_among(js.eligible) * WHOLE_GPU_MILLI
    if js.gpu_milli != WHOLE_GPU_MILLI:
        free += sum(sum(pool.shares[node].values()) for node in members(pool.sharing & js.eligible & pool.schedulable))
    return free


def _scattered(state: TrainingState, js: JobState) -> tuple[str, int, str]:
    """Return the outermost level of which no domain has enough free, the most that one has in milli, and a text."""
    pool = state.pool
    open_nodes = js.eligible & pool.schedulable
    if js.gpu_milli != WHOLE_GPU_MILLI:
        most = max(
            (free for node in members(pool.sharing & open_nodes) for free in pool.shares[node].values()), default=0
        )
        return "gpu", most, f"at most {most / 1000:g} on one GPU"
    if js.nodes > 1:
        per_node = js.gpus // js.nodes
        count = pool.with_free(per_node, open_nodes).bit_count()
        if count < js.nodes:
            return (
                "node",
                count * per_node * 1000,
                f"{count} of the {js.nodes} nodes that it needs {'has' if count == 1 else 'have'} {per_node} free",
            )
        return "", 0, ""
    free = [(state.cluster.nodes[node].path, pool.free_count[node]) for node in members(open_nodes)]
    for depth, level in enumerate(state.cluster.outer_levels):
        domains: dict[tuple[str, ...], int] = {}
        for path, count in free:
            domains[path[: depth + 1]] = domains.get(path[: depth + 1], 0) + count
        if (largest := max(domains.values(), default=0)) < js.gpus:
            return level.name, largest * 1000, f"at most {largest} in one {level.name}"
    largest = max((count for _, count in free), default=0)
    return ("node", largest * 1000, f"at most {largest} on one node") if largest < js.gpus else ("", 0, "")
