"""Why a job waits: the causes that, taken away together, let it start.

Asked of a state at the end of an instant, after the policy has done what it would. Each cause is something that could
be otherwise: more quota, nobody ahead, no reservation, a few more GPUs, the free ones in one place.
The tests take causes away and ask the policy again: so they prove that what is named here is enough.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum

from headway.training.feasible import quota_refusal
from headway.training.jobstate import JobState
from headway.training.policies.allotted import Allotted
from headway.training.policies.backfills.walk import guaranteed
from headway.training.policies.compose import ComposedPolicy
from headway.training.pool import Pool, members
from headway.training.queue import Entry, Key, Lane
from headway.training.state import TrainingState
from headway.units import WHOLE_GPU_MILLI, format_duration, format_size


class CauseKind(StrEnum):
    """What can keep a job waiting."""

    ROUND = "round"
    """The policy decides later."""
    QUOTA = "quota"
    """Its tenant may not hold this much more."""
    HEAD_OF_LINE = "head-of-line"
    """Jobs ahead of it hold it back, whether or not it would fit."""
    RESERVATION = "reservation"
    """It would fit now but delay a job that was promised its GPUs."""
    ORDER = "order"
    """Jobs ahead of it would take what it needs before it."""
    NODES_DOWN = "nodes-down"
    """It would fit on nodes that are down or drained."""
    CAPACITY = "capacity"
    """Fewer GPUs are free than it wants."""
    FRAGMENTATION = "fragmentation"
    """Enough GPUs are free, but not together."""
    HOST = "host"
    """The GPUs are there, the CPUs or the memory are not."""
    PLACEMENT = "placement"
    """The placement rule wants something else than GPUs on one node."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that keeps a job waiting. Causes of one kind and level are the same cause with other numbers."""

    kind: CauseKind
    text: str
    level: str = ""
    """Of the topology, for fragmentation; ``quota`` where the order of a tenant's jobs for its quota is meant;
    ``reservation`` where the policy keeps to what it planned for the job itself."""
    jobs: tuple[int, ...] = ()
    """Jobs that it is about: the first one ahead, the holders of reservations."""
    facts: dict[str, int] = field(default_factory=dict)
    """The numbers in the text, by name."""
    names: tuple[str, ...] = ()
    """What the trace calls those jobs; the number of one without a name."""

    @property
    def identity(self) -> tuple[CauseKind, str]:
        """Return what it is, apart from the numbers of the moment."""
        return self.kind, self.level

    @property
    def title(self) -> str:
        """Return what it is, in words: ``fragmentation at node``."""
        if self.kind is CauseKind.FRAGMENTATION:
            return f"{self.kind} at {self.level}"
        return str(self.kind)

    def __str__(self) -> str:
        return f"{self.title}: {self.text}"


def why_waiting(now: int, state: TrainingState, policy: ComposedPolicy, js: JobState) -> tuple[Cause, ...]:
    """The causes that keep a waiting job out at the end of an instant: together they are enough.

    The policy's memory is left as it is: a probe is asked in its stead.
    """
    policy = probe(policy)
    causes = [_round(now, policy)] if _between_rounds(now, policy) else []
    refusal = quota_refusal(js) if state.quotas else None
    if refusal is not None:
        account = js.account
        facts = {"held_milli": account.held, "guaranteed_milli": account.guaranteed, "limit_milli": account.limit}
        causes.append(Cause(CauseKind.QUOTA, refusal, facts=facts))
    with raised_quota(js):
        ahead = Ahead(state, policy, js, quota=refusal is not None)
        fits = _fits(now, state, policy, js, ahead)
        if (held_back := _held_back(ahead, _overdue(now, state, policy, js) if fits else (), fits)) is not None:
            causes.append(held_back)
        if not fits:
            causes.append(_shortage(state, policy, js))
        if not causes:
            causes.append(_kept_to(now, policy, js) or _round(now, policy))
        if fits and refusal is not None and len(causes) == 1:
            ahead = Ahead(state, policy, js, quota=True, nodes=False)
        rivals = ahead.waits - (0 if held_back is None else len(ahead.holders) or ahead.holding)
        tried = policy.backfill.strict and not _between_rounds(now, policy)
        if rivals and not (fits and tried and refusal is None and held_back is not None):
            causes.append(_ordered(ahead, rivals))
    return tuple(causes)


def _fits(now: int, state: TrainingState, policy: ComposedPolicy, js: JobState, ahead: "Ahead") -> bool:
    """Whether the job itself could start now. With reservations only a job that nobody holds back may preempt."""
    if policy.backfill.reserves and ahead.waits and not (state.quotas and guaranteed(js)):
        return policy.placement.place(state.pool, js) is not None
    return policy.admit(now, state, js) is not None


def probe(policy: ComposedPolicy) -> ComposedPolicy:
    """A policy that answers as this one would, for questions of whether a job fits, and may be asked at will."""
    asked = copy(policy)
    asked.order = copy(policy.order)
    asked.placement = copy(policy.placement)
    asked.stopped = {}
    return asked


# --- quota --------------------------------------------------------------------------------------------------------


@contextmanager
def raised_quota(js: JobState) -> Iterator[None]:
    """The job's tenant with as much more quota as the job needs: limit where it may borrow, else guaranteed."""
    account = js.account
    before = account.guaranteed, account.limit
    raise_quota(js)
    try:
        yield
    finally:
        account.guaranteed, account.limit = before


def raise_quota(js: JobState) -> None:
    """Let the job's tenant hold it, and no more than that."""
    account, wanted = js.account, js.account.held + js.width
    if wanted > account.guaranteed:
        account.limit = max(account.limit, wanted)
        if not (account.borrow and js.job.preemptible):
            account.guaranteed = wanted


# --- who comes first ----------------------------------------------------------------------------------------------


class Ahead:
    """The waiting jobs that come before one and could matter to it: they share nodes with it, or a quota."""

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
        """Lanes, and how many of the jobs at the head of each come first."""
        self.strict: list[tuple[Lane, int]] = []
        """Those of them that a strict backfill lets hold back what comes after."""
        for lane in state.queue.lanes.values():
            head = state.jobs[lane.head[1]]
            matters = (quota and head.account is js.account) or (nodes and self._meets(head))
            if matters and (count := self._count(lane, head)):
                self.parts.append((lane, count))
                if policy.backfill.strict and self._blocks(head):
                    self.strict.append((lane, count))
        self.waits = sum(count for _, count in self.parts)
        self.holding = sum(count for _, count in self.strict)
        self.first = min((lane.head for lane, _ in self.parts), default=(0, -1))[1]
        reserved = policy.backfill.reservations
        self.holders = tuple(job for job in reserved if job in state.jobs and self._holds(state.jobs[job]))
        """Those ahead that were promised GPUs."""

    def names(self, *jobs: int) -> tuple[str, ...]:
        """Return what the trace calls jobs; the number of one without a name."""
        return tuple(self._state.jobs[job].job.name or str(job) for job in jobs)

    def _rank(self, js: JobState) -> tuple[bool, Key]:
        """Return what lanes are compared by ahead of keys: guaranteed jobs first, then what the order says of lanes."""
        policy, state = self._policy, self._state
        return state.quotas and not guaranteed(js), policy.order.lane_key(state, js)

    def _meets(self, head: JobState) -> bool:
        partition = head.job.partition
        return partition == self._js.job.partition or bool(self._state.eligible(partition, ()) & self._js.eligible)

    def _blocks(self, head: JobState) -> bool:
        """Return whether the head of a lane holds the job back in a strict queue, as ``walk`` has it."""
        js, quotas = self._js, self._state.quotas
        if head.lane == js.lane:
            return True
        if quotas and (guaranteed(js) or quota_refusal(head) is not None):
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

    def _holds(self, js: JobState) -> bool:
        return any(lane.name == js.lane and lane.before((js.key, js.id)) < count for lane, count in self.parts)


def _overdue(now: int, state: TrainingState, policy: ComposedPolicy, js: JobState) -> tuple[int, ...]:
    """Jobs, behind it too, that were promised nodes where it would start, and by now: what is due is kept first."""
    reserved = policy.backfill.reservations
    if js.id not in reserved or state.quotas or policy.preempts:  # with these the queue comes before what is due
        return ()
    if (placement := policy.placement.place(state.pool, js)) is None:
        return ()
    wanted = {node for node, _ in placement}
    due = (job for job, promise in reserved.items() if promise.start <= now and not wanted.isdisjoint(promise.nodes))
    return tuple(job for job in due if job != js.id and job in state.jobs and job not in state.running)


def _held_back(ahead: Ahead, overdue: tuple[int, ...], fits: bool) -> Cause | None:
    """Jobs ahead, or promises that are due, keep it out by the rules of the backfill, not by what they hold."""
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
    what, level = ("its tenant's quota", "quota") if ahead.over_quota else ("what becomes free", "")
    names = ahead.names(ahead.first)
    text = f"{_some(names, rivals)} ahead of it for {what}"
    return Cause(CauseKind.ORDER, text, level, (ahead.first,), {"ahead": rivals}, names)


def _some(names: tuple[str, ...], count: int) -> str:
    return f"job {names[0]}" + (f" and {count - 1} more" if count > 1 else "")


def _between_rounds(now: int, policy: ComposedPolicy) -> bool:
    return bool(policy.round_length and now % policy.round_length)


def _kept_to(now: int, policy: ComposedPolicy, js: JobState) -> Cause | None:
    """Its own reservation is for later, and stands: while all goes as expected nobody looks whether it fits sooner."""
    own = policy.backfill.reservations.get(js.id)
    if own is None or own.start <= now:
        return None
    text = (
        f"it would fit now, but is to start at {format_duration(own.start)}, and the policy has no cause to plan anew"
    )
    return Cause(CauseKind.ROUND, text, level="reservation", facts={"next": own.start})


def _round(now: int, policy: ComposedPolicy) -> Cause:
    if not _between_rounds(now, policy):
        return Cause(CauseKind.ROUND, "it would start now; the policy decides again when something happens")
    following = (now // policy.round_length + 1) * policy.round_length
    return Cause(CauseKind.ROUND, f"the policy decides next at {format_duration(following)}", facts={"next": following})


# --- what is missing ----------------------------------------------------------------------------------------------


def _shortage(state: TrainingState, policy: ComposedPolicy, js: JobState) -> Cause:
    """Return what the placement rule lacks."""
    pool = state.pool
    if (away := js.eligible & ~pool.schedulable) and _fits_on(pool, policy, js, away):
        names = [state.cluster.nodes[node].name for node in members(away)]
        text = f"it would fit with {', '.join(names[:3])}{' and others' if len(names) > 3 else ''} in service"
        return Cause(CauseKind.NODES_DOWN, text, facts={"nodes": len(names)})
    if (any(js.grant) or state.divides) and _fits_without_host(pool, policy, js):
        return _host(js)
    wanted, free = js.width, _free_milli(pool, js)
    facts = {"wanted_milli": wanted, "free_milli": free}
    numbers = f"{wanted / 1000:g} GPU{'' if wanted == 1000 else 's'} wanted, {free / 1000:g} free where it may run"
    if free < wanted:
        return Cause(CauseKind.CAPACITY, numbers, facts=facts)
    level, most, how = _scattered(state, js)
    if level:
        facts["largest_milli"] = most
        return Cause(CauseKind.FRAGMENTATION, f"{numbers}, {how}", level=level, facts=facts)
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
    wants = f"{js.cpu_milli / 1000:g} CPUs and {format_size(js.memory_bytes)}"
    text = f"GPUs are free, but not with the {wants} that it wants beside them"
    facts = {"cpu_milli": js.cpu_milli, "memory_bytes": js.memory_bytes}
    return Cause(CauseKind.HOST, text, facts=facts)


def _free_milli(pool: Pool, js: JobState) -> int:
    """Return what is free where a job may run, in thousandths; for whole GPUs only whole ones count."""
    free = pool.free_among(js.eligible) * WHOLE_GPU_MILLI
    if js.gpu_milli != WHOLE_GPU_MILLI:
        free += sum(sum(pool.shares[node].values()) for node in members(pool.sharing & js.eligible & pool.schedulable))
    return free


def _scattered(state: TrainingState, js: JobState) -> tuple[str, int, str]:
    """The outermost level of which no domain has enough free, the most that one has (in thousandths), and a text."""
    pool = state.pool
    open_nodes = js.eligible & pool.schedulable
    if js.gpu_milli != WHOLE_GPU_MILLI:
        most = max(
            (free for node in members(pool.sharing & open_nodes) for free in pool.shares[node].values()), default=0
        )
        return "gpu", most, f"at most {most / 1000:g} on one GPU"
    if js.nodes > 1:
        each = js.gpus // js.nodes
        count = pool.with_free(each, open_nodes).bit_count()
        if count < js.nodes:
            return "node", count * each * 1000, f"{count} of {js.nodes} nodes have {each} free"
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
