"""Which GPUs of a node to take: inside as few NVLink islands as possible, in the fullest that fits, lowest number first."""

from collections.abc import Iterator

from headway.training.actions import Placement
from headway.training.pool import Pool, members
from headway.training.state import JobState

_MEMO: dict[tuple[int, int, tuple[int, ...]], int] = {}
_MEMO_LIMIT = 1 << 16


def gpus_of(pool: Pool, node: int, count: int) -> int:
    """A mask of ``count`` free GPUs of a node."""
    free = pool.free_mask[node]
    if count == pool.free_count[node]:
        return free
    islands = pool.cluster.nodes[node].island_gpus
    found = _MEMO.get((free, count, islands))
    if found is None:
        if len(_MEMO) >= _MEMO_LIMIT:
            _MEMO.clear()
        found = _MEMO[(free, count, islands)] = _choose(free, count, islands)
    return found


def _choose(free: int, count: int, islands: tuple[int, ...]) -> int:
    if not islands:
        return _lowest(free, count)
    size = islands[0]
    parts = [free & (((1 << size) - 1) << start) for start in range(0, free.bit_length(), size)]
    fitting = [part for part in parts if part.bit_count() >= count]
    if fitting:
        return _choose(min(fitting, key=int.bit_count), count, islands[1:])
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


def shares(pool: Pool, js: JobState) -> Iterator[tuple[int, int, int]]:
    """(thousandths free, node, gpu) of each partly used GPU on which a share fits."""
    for node in members(pool.sharing & js.eligible & pool.schedulable):
        if pool.host_fits(js, node, 1):
            for gpu, free in pool.shares[node].items():
                if free >= js.gpu_milli:
                    yield free, node, gpu


def whole_nodes(pool: Pool, js: JobState, candidates: int) -> int:
    """Of these nodes, those with CPUs and memory for all of a job."""
    if not (js.cpu_milli or js.memory_bytes):
        return candidates
    return sum(pool.bits[node] for node in members(candidates) if pool.host_fits(js, node, js.gpus))


def on_equal_nodes(pool: Pool, js: JobState, order: list[int]) -> Placement | None:
    """For a job that wants the same number of GPUs on each of so many nodes: the first that fit, in this order."""
    each = js.gpus // js.nodes
    chosen = [n for n in order if pool.free_count[n] >= each and pool.host_fits(js, n, each)][: js.nodes]
    if len(chosen) < js.nodes:
        return None
    return tuple((node, gpus_of(pool, node, each)) for node in chosen)


def over_nodes(pool: Pool, js: JobState, order: list[int]) -> Placement | None:
    """All that is needed, from these nodes in this order, as much from each as it has."""
    left = js.gpus
    chosen: list[tuple[int, int]] = []
    for node in order:
        count = min(left, pool.free_count[node])
        while count and not pool.host_fits(js, node, count):
            count -= 1
        if count:
            chosen.append((node, gpus_of(pool, node, count)))
            left -= count
            if not left:
                return tuple(chosen)
    return None


def by_free(pool: Pool, eligible: int, *, most_first: bool) -> list[int]:
    """Schedulable nodes with a free GPU, by how many they have; ties in node order."""
    buckets = range(len(pool.buckets) - 1, 0, -1) if most_first else range(1, len(pool.buckets))
    return [node for free in buckets for node in members(pool.buckets[free] & eligible)]
