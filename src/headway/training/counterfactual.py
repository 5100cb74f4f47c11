"""What if: a copy of a state without the causes that keep a job waiting, and the policy asked again.

Each cause is taken away as its words say: a quota is raised by what is missing, jobs ahead are not there, GPUs that are
missing lie on empty nodes of the kind that the job may use, scattered ones are gathered. Nothing else changes.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace

from headway.training.cluster import Node
from headway.training.explain import Ahead, Cause, CauseKind, raise_quota
from headway.training.policies.compose import ComposedPolicy
from headway.training.pool import UNCOUNTED, Pool, host_share, members
from headway.training.speed import SpeedModel
from headway.training.state import JobState, TrainingState

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
    if kinds & {CauseKind.HEAD_OF_LINE, CauseKind.ORDER, CauseKind.RESERVATION}:
        nodes = not any(cause.identity == (CauseKind.ORDER, "quota") for cause in named)
        ahead = Ahead(world, asked, js, quota=CauseKind.QUOTA in kinds, nodes=nodes)
        everybody = kinds & {CauseKind.HEAD_OF_LINE, CauseKind.ORDER}
        _withdraw(world, asked, ahead.jobs() if everybody else ahead.holders)
    if CauseKind.ROUND in kinds:
        asked.round_length = 0
    if CauseKind.NODES_DOWN in kinds:
        for node in members(js.eligible & ~world.pool.schedulable):
            world.down &= ~world.pool.bits[node]
            world.pool.set_schedulable(node, True)
    if CauseKind.FRAGMENTATION in kinds:
        _use_up(world.pool, js)
    if kinds & set(_ADDED):
        _add_nodes(world, js)
    world.changes += 1
    world.releases += 1
    return world, asked


def _withdraw(world: TrainingState, policy: ComposedPolicy, jobs: Iterable[int]) -> None:
    """As if these jobs did not wait."""
    reservations = getattr(policy.backfill, "reservations", {})
    for job in jobs:
        js = world.jobs.pop(job)
        world.queue.remove(js.lane, (js.key, js.id))
        reservations.pop(job, None)


def _use_up(pool: Pool, js: JobState) -> None:
    """Take as many scattered GPUs as the job wants: gathered, they will lie on the nodes that are added."""
    left = js.gpus
    for node in members(js.eligible & pool.schedulable):
        for gpu in range(pool.capacity[node]):
            if left and js.gpu_milli == 1000 and pool.free_mask[node] >> gpu & 1:
                pool._recount(node, 1 << gpu, -1)
                left -= 1


def _add_nodes(world: TrainingState, js: JobState) -> None:
    """Empty nodes that hold exactly this job, of the kind, in the partition and in the place of one that it may use."""
    pool = world.pool
    template = world.cluster.nodes[max(members(js.eligible), key=lambda node: (pool.capacity[node], -node))]
    counts = _shape(js, pool.largest_among(js.eligible))
    first = len(pool.capacity)
    for index, gpus in enumerate(counts):
        cpu_milli, memory_bytes = host_share(js, gpus, counted=True)
        node = replace(template, name=f"added {index}", gpus=gpus, cpu_milli=cpu_milli, memory_bytes=memory_bytes)
        _extend(pool, node)
        world.on_node.append({})
    new = sum(1 << node for node in range(first, first + len(counts)))
    added = tuple(replace(template, name=f"added {index}", gpus=gpus) for index, gpus in enumerate(counts))
    world.cluster = replace(world.cluster, nodes=(*world.cluster.nodes, *added))
    pool.cluster = world.cluster
    speed = world.speed
    world.speed = SpeedModel(
        world.cluster, sharing_penalty_ppm=speed.sharing_penalty_ppm, sensitivity=speed.sensitivity
    )
    for other in world.jobs.values():
        if (other.job.partition, other.job.gpu_types) == (js.job.partition, js.job.gpu_types):
            other.eligible |= new
    world._eligible = {key: nodes | new if nodes & js.eligible else nodes for key, nodes in world._eligible.items()}


def _shape(js: JobState, largest: int) -> list[int]:
    """GPUs of each node to add: none larger than what there is."""
    if js.nodes > 1:
        return [js.gpus // js.nodes] * js.nodes
    if js.gpus <= largest or js.nodes == 1:
        return [js.gpus]
    whole, rest = divmod(js.gpus, largest)
    return [largest] * whole + [rest] * bool(rest)


def _extend(pool: Pool, node: Node) -> None:
    index = len(pool.capacity)
    bit = 1 << index
    pool.bits.append(bit)
    pool.capacity.append(node.gpus)
    pool.free_mask.append((1 << node.gpus) - 1)
    pool.free_count.append(node.gpus)
    pool.cpu_free.append(UNCOUNTED if node.cpu_milli is None else node.cpu_milli)
    pool.memory_free.append(UNCOUNTED if node.memory_bytes is None else node.memory_bytes)
    pool.shares.append({})
    pool.buckets[node.gpus] |= bit
    pool.everywhere |= bit
    pool.schedulable |= bit
    pool.free_gpus += node.gpus
    pool._largest = {}


def _unrecorded(_: object) -> None:
    """Nobody records what might have been."""
