"""What if: a copy of a state without the causes that keep a job waiting, and the policy asked again.

Each cause is taken away as its words say: a quota is raised by what is missing, jobs ahead are not there, GPUs that are
missing lie on empty nodes of the kind that the job may use, scattered ones are gathered. Nothing else changes.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from headway.jobs.explain.explain import Ahead, raise_quota
from headway.jobs.model.causes import Cause, CauseKind
from headway.jobs.model.cluster import Node
from headway.jobs.model.proportional_share import proportional_per_gpu, scaled
from headway.jobs.model.resources import UNCOUNTED
from headway.jobs.model.speed import SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.rules.limits.classes import LimitClass
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Pool, host_share, members, storage_share
from headway.jobs.state.queue import Lane
from headway.jobs.state.state import TrainingState
from headway.units import WHOLE_GPU_MILLI

_ADDED = (CauseKind.CAPACITY, CauseKind.FRAGMENTATION, CauseKind.HOST, CauseKind.PLACEMENT)


def admits(now: int, state: TrainingState, policy: ComposedPolicy, job: int, causes: Iterable[Cause]) -> bool:
    """Whether the policy, asked now, starts a waiting job once these causes are taken away."""
    world, asked = without(state, policy, job, causes)
    for action in asked.decide(now, world):
        if (refusal := world.check(action)) is not None:
            raise AssertionError(f"the policy asks for what cannot be: {refusal}")
        world.commit(now, action)
    return job in world.running


def without(
    state: TrainingState, policy: ComposedPolicy, job: int, causes: Iterable[Cause]
) -> tuple[TrainingState, ComposedPolicy]:
    """A copy of the state, and of the policy with all it remembers, in which the causes are taken away."""
    world, asked = deepcopy((state, policy), {id(state.cluster): state.cluster})
    world.journal = _unrecorded
    js = world.jobs[job]
    named = tuple(causes)
    kinds = {cause.kind for cause in named}
    if CauseKind.QUOTA in kinds:
        raise_quota(js)
    if CauseKind.LIMIT in kinds:
        _lift(world, asked, js, {cause.level for cause in named if cause.kind is CauseKind.LIMIT})
    if CauseKind.RESERVED in kinds:
        _unreserve(world, asked, js)
    if kinds & {CauseKind.HEAD_OF_LINE, CauseKind.ORDER, CauseKind.RESERVATION}:
        nodes = not any(cause.identity == (CauseKind.ORDER, "quota") for cause in named)
        ahead = Ahead(world, asked, js, quota=CauseKind.QUOTA in kinds, nodes=nodes)
        gone = _jobs(ahead.parts) if CauseKind.ORDER in kinds else list(ahead.holders) or _jobs(ahead.strict)
        promised = (holder for cause in named if cause.kind is CauseKind.RESERVATION for holder in cause.jobs)
        _withdraw(world, asked, [*gone, *promised])
    if CauseKind.ROUND in kinds:
        asked.round_length = 0
        if any(cause.identity == (CauseKind.ROUND, "reservation") for cause in named):
            world.refreshed += 1  # reservations are made anew
    if CauseKind.NODES_DOWN in kinds:
        for node in members(js.eligible & ~world.pool.schedulable):
            world.pool.set_schedulable(node, True)
    if kinds & set(_ADDED):
        _add_nodes(world, js, gathered=CauseKind.FRAGMENTATION in kinds)
        asked.divide_on(world)
    world.changes += 1
    world.releases += UNCOUNTED
    return world, asked


def _unreserve(world: TrainingState, policy: ComposedPolicy, js: JobState) -> None:
    """As if nothing were reserved for this job or against it."""
    assert world.reserved is not None
    world.dequeue(js)
    world.reserved.begins.pop(js.id, None)
    js.eligible = world.eligible(js.job.partition, js.job.gpu_types)
    js.lane = policy.lane(js)
    world.enqueue(js)


def _lift(world: TrainingState, policy: ComposedPolicy, js: JobState, lifted: set[str]) -> None:
    """As if limits of these names were no matter for this job: it still waits apart from jobs without limits."""
    assert world.limits is not None
    assert js.limits is not None
    world.limits.dequeue(world.queue, js)
    kept = [(bound, held) for bound, held in zip(js.limits.bounds, js.limits.weights, strict=True)]
    kept = [(bound, held) for bound, held in kept if bound[0].rule.name not in lifted]
    if world.limits.outside.get(js.id) is js and any(each.rule.name in lifted for each in js.limits.submitted):
        del world.limits.outside[js.id]
    js.limits = LimitClass(world.limits, -2, tuple(bound for bound, _ in kept), tuple(held for _, held in kept))
    js.lane = policy.lane(js)
    world.enqueue(js)


def _jobs(parts: Iterable[tuple[Lane, int]]) -> list[int]:
    """Return the jobs at the head of some lanes, so many of each."""
    return [job for lane, count in parts for _, job in list(lane)[:count]]


def _withdraw(world: TrainingState, policy: ComposedPolicy, jobs: Iterable[int]) -> None:
    """As if these jobs did not wait."""
    gone = set(jobs)
    for job in gone:
        js = world.jobs.pop(job)
        world.dequeue(js)
    kept = {job: promise for job, promise in policy.backfill.reservations.items() if job not in gone}
    policy.backfill.reservations = kept


def _add_nodes(world: TrainingState, js: JobState, *, gathered: bool) -> None:
    """Empty nodes that hold exactly this job, of the kind, in the partition and in the place of one that it may use.

    ``gathered`` says that their GPUs are free ones that lay scattered.
    """
    pool, cluster = world.pool, world.cluster
    template = cluster.nodes[max(members(js.eligible), key=lambda node: (pool.capacity[node], -node))]
    added = []
    for index, gpus in enumerate(_shape(js, pool.largest_among(js.eligible))):
        added.append(replace(template, name=f"added {index}", gpus=gpus, **_host(world, js, template, gpus)))
    first = len(cluster.nodes)
    world.cluster = replace(cluster, nodes=(*cluster.nodes, *added))
    speed = world.speed
    world.speed = SpeedModel(
        world.cluster,
        sharing_penalty_ppm=speed.sharing_penalty_ppm,
        sensitivity=speed.sensitivity,
        profiles=speed.profiles,
    )
    world.on_node.extend({} for _ in added)
    _rebuild(world)
    if gathered and js.gpu_milli == WHOLE_GPU_MILLI:
        _use_up(pool, js)
    new = sum(pool.bits[first:])
    for other in world.jobs.values():
        if (other.job.partition, other.job.gpu_types) == (js.job.partition, js.job.gpu_types):
            other.eligible |= new


def _host(world: TrainingState, js: JobState, template: Node, gpus: int) -> dict[str, Any]:
    """What such a node has besides GPUs: what the job wants there; where that is divided, at least what is due there,
    as far as nodes of the kind count it."""
    cpu_milli, memory_bytes = host_share(js, gpus)
    if not world.divides:
        return {"cpu_milli": cpu_milli, "memory_bytes": memory_bytes}
    due = scaled(proportional_per_gpu(template), gpus * WHOLE_GPU_MILLI)
    wanted = (cpu_milli, memory_bytes, storage_share(js, gpus))
    names = ("cpu_milli", "memory_bytes", "storage_bytes_per_second")
    return {
        name: None if getattr(template, name) is None else max(fair, share)
        for name, fair, share in zip(names, due, wanted, strict=True)
    }


def _rebuild(world: TrainingState) -> None:
    """The same pool for a larger cluster: whoever holds on to it sees the new nodes."""
    larger = Pool(world.cluster)
    for js in world.running.values():
        larger.take(js, js.placement)
    for node in members(world.pool.everywhere & ~world.pool.schedulable):
        larger.set_schedulable(node, False)
    vars(world.pool).update(vars(larger))


def _use_up(pool: Pool, js: JobState) -> None:
    """Take as many scattered GPUs as the job wants."""
    left = js.gpus
    for node in members(js.eligible & pool.schedulable):
        for gpu in range(pool.capacity[node]):
            if left and pool.free_mask[node] >> gpu & 1:
                pool.recount(node, 1 << gpu, -1)
                left -= 1


def _shape(js: JobState, largest: int) -> list[int]:
    """GPUs of each node to add: none larger than what there is."""
    if js.nodes > 1:
        return [js.gpus // js.nodes] * js.nodes
    if js.gpus <= largest or js.nodes == 1:
        return [js.gpus]
    whole, rest = divmod(js.gpus, largest)
    return [largest] * whole + [rest] * bool(rest)


def _unrecorded(_: object) -> None:
    """Nobody records what might have been."""
