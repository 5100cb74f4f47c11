"""What placements share: which nodes can hold a job, and which GPUs of a node to take.

All placements agree on *whether* a job fits; they differ in *where*. A job that an empty node could hold goes on one
node or waits (``one_node``); a larger one is divided, as much on each node as its GPUs, CPUs and memory allow
(``room``). On a node GPUs are taken inside as few NVLink islands as possible, in the fullest that fits, lowest number
first.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from headway.jobs.model.resources import UNCOUNTED, Placement
from headway.jobs.state.pool import Demand, Pool, host_share, members


def gpus_of(pool: Pool, node: int, count: int) -> int:
    """A mask of ``count`` free GPUs of a node."""
    free = pool.free_mask[node]
    if count == pool.free_count[node]:
        return free
    islands = pool.islands[node]
    if count == 1 and not islands:
        return free & -free
    return choose(free, count, islands)


@lru_cache(maxsize=1 << 16)
def choose(free: int, count: int, islands: tuple[int, ...]) -> int:
    """So many of these GPUs, in as few islands as possible; ``islands``: sizes of nested ones, outermost first."""
    if not islands:
        return _lowest(free, count)
    size = islands[0]
    parts = [free & (((1 << size) - 1) << start) for start in range(0, free.bit_length(), size)]
    fitting = [part for part in parts if part.bit_count() >= count]
    if fitting:
        return choose(min(fitting, key=int.bit_count), count, islands[1:])
    chosen = 0
    for part in sorted(parts, key=int.bit_count, reverse=True):
        take = min(part.bit_count(), count - chosen.bit_count())
        chosen |= _lowest(part, take)
    return chosen


def _lowest(free: int, count: int) -> int:
    chosen = 0
    for _ in range(count):
        low = free & -free
        chosen |= low
        free ^= low
    return chosen


def shares(pool: Pool, js: Demand) -> Iterator[tuple[int, int, int]]:
    """(thousandths free, node, gpu) of each partly used GPU on which a share fits."""
    for node in members(pool.sharing & js.eligible & pool.schedulable):
        if pool.host_fits(js, node, 1):
            for gpu, free in pool.shares[node].items():
                if free >= js.gpu_milli:
                    yield free, node, gpu


def share_nodes(pool: Pool, js: Demand) -> int:
    """The nodes with a GPU, used in part or not at all, on which a share fits."""
    fitting = whole_nodes(pool, js, pool.with_free(1, js.eligible))
    for _, node, _ in shares(pool, js) if pool.sharing else ():
        fitting |= pool.bits[node]
    return fitting


def share_on(pool: Pool, js: Demand, node: int) -> list[int]:
    """The GPUs of a node on which a share fits, in order."""
    partly = [gpu for gpu, free in pool.shares[node].items() if free >= js.gpu_milli]
    return sorted([*partly, *members(pool.free_mask[node])])


def whole_nodes(pool: Pool, js: Demand, candidates: int) -> int:
    """Of these nodes, those with CPUs and memory for all of a job."""
    return with_host(pool, js, candidates, js.gpus)


def with_host(pool: Pool, js: Demand, candidates: int, gpus: int) -> int:
    """Of these nodes, those with the CPUs, memory and storage that go with so many of a job's GPUs.

    It says of all of them what ``Pool.host_fits`` says of one.
    """
    if not (js.cpu_milli or js.memory_bytes or js.storage):
        return candidates
    if js.storage:
        return sum(pool.bits[node] for node in members(candidates) if pool.host_fits(js, node, gpus))
    cpu_milli, memory_bytes = host_share(js, gpus)
    cpu_free, memory_free = pool.cpu_free, pool.memory_free
    found = 0
    while candidates:
        low = candidates & -candidates
        node = low.bit_length() - 1
        if cpu_free[node] >= cpu_milli and memory_free[node] >= memory_bytes:
            found |= low
        candidates ^= low
    return found


def holding(pool: Pool, js: Demand) -> int:
    """The nodes that can hold all of a job (of whole GPUs) now."""
    if js.gpus > pool.free_gpus:
        return 0
    return whole_nodes(pool, js, pool.with_free(js.gpus, js.eligible))


def one_node(pool: Pool, js: Demand) -> bool:
    """Return whether a job goes on one node or waits: it asks for one, or one of its nodes could hold it when empty."""
    if js.nodes == 1 or js.gpus == 0:
        return True
    if js.gpus > pool.largest_among(js.eligible):
        return False
    if not (js.cpu_milli or js.memory_bytes or js.storage):
        return True
    nodes = pool.cluster.nodes
    return any(
        nodes[n].gpus >= js.gpus
        and js.cpu_milli <= (UNCOUNTED if (cpus := nodes[n].cpu_milli) is None else cpus)
        and js.memory_bytes <= (UNCOUNTED if (memory := nodes[n].memory_bytes) is None else memory)
        and js.storage <= (UNCOUNTED if (rate := nodes[n].storage_bytes_per_second) is None else rate)
        for n in members(js.eligible)
    )


def room(pool: Pool, js: Demand, node: int) -> int:
    """Return how many of a job's GPUs a node can give now, with the CPUs and memory that go with them."""
    count = pool.free_count[node]
    if js.cpu_milli:
        count = min(count, pool.cpu_free[node] * js.gpus // js.cpu_milli)
    if js.memory_bytes:
        count = min(count, pool.memory_free[node] * js.gpus // js.memory_bytes)
    if js.storage:
        count = min(count, pool.storage_free[node] * js.gpus // js.storage)
    return count


def on_node(pool: Pool, node: int, count: int) -> Placement:
    """So many GPUs of one node."""
    return ((node, gpus_of(pool, node, count)),)


def first(nodes: int) -> int:
    """The first node of a set that is not empty."""
    return (nodes & -nodes).bit_length() - 1


def equal_nodes(pool: Pool, js: Demand, nodes: int) -> int:
    """For a job that wants the same number of GPUs on each of its nodes: those that can give as many."""
    each = js.gpus // js.nodes
    return with_host(pool, js, pool.with_free(each, js.eligible & nodes), each)


def on_equal_nodes(pool: Pool, js: Demand, order: Iterable[int]) -> Placement | None:
    """For a job that wants the same number of GPUs on each of so many nodes: the first that can, in this order."""
    able = equal_nodes(pool, js, pool.everywhere)
    if able.bit_count() < js.nodes:
        return None
    chosen = islice((node for node in order if able >> node & 1), js.nodes)
    return tuple((node, gpus_of(pool, node, js.gpus // js.nodes)) for node in chosen)


def over_nodes(pool: Pool, js: Demand, order: Iterable[int]) -> Placement | None:
    """All that is needed, from these nodes in this order, as much from each as it has."""
    left = js.gpus
    chosen: list[tuple[int, int]] = []
    for node in order:
        if count := min(left, room(pool, js, node)):
            chosen.append((node, gpus_of(pool, node, count)))
            left -= count
            if not left:
                return tuple(chosen)
    return None


def fewest_nodes(pool: Pool, js: Demand, nodes: int) -> Placement | None:
    """All that is needed on as few of these nodes as possible; the last, partial, one is where it fits best."""
    placement = over_nodes(pool, js, by_room(pool, js, nodes))
    if placement is None or len(placement) == 1:
        return placement
    *body, (last, mask) = placement
    rest = mask.bit_count()
    used = sum(pool.bits[node] for node, _ in body)
    for free in range(rest, pool.free_count[last]):
        for node in members(pool.buckets[free] & js.eligible & nodes & ~used):
            if pool.host_fits(js, node, rest):
                return (*body, (node, gpus_of(pool, node, rest)))
    return placement


def by_room(pool: Pool, js: Demand, nodes: int) -> Iterable[int]:
    """Those of these nodes that can give a job something, most first; ties in node order."""
    order = by_free(pool, js.eligible & nodes, most_first=True)
    if js.cpu_milli or js.memory_bytes or js.storage:
        return sorted(order, key=lambda node: -room(pool, js, node))
    return order


def by_free(pool: Pool, eligible: int, *, most_first: bool) -> Iterator[int]:
    """Yield schedulable nodes by how many GPUs they have free (none, too); ties in node order."""
    for nodes in reversed(pool.buckets) if most_first else pool.buckets:
        yield from members(nodes & eligible)
