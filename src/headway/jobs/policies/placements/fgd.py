"""FGD: places a job where it adds the least fragmentation, measured with typical jobs.

Fragmentation gradient descent, Weng et al., ATC 2023 ("Beware of Fragmentation"). Every node that can hold the job, and
for a share every GPU, is scored with F_n after minus F_n before, F_n as ``jobs/policies/placements/fragmentation.py``
defines it; the least increase wins, then the node with the fewest free GPUs, then the first. Jobs over several nodes
take those with the least increase each; one larger than a node fills the nodes with most room and puts the rest where
it increases F least.

Typical jobs are those that the rule has been asked to place so far, each once, or those given as
``typical=GPUS:WEIGHT[:CPUS[:MEMORY]]/...``, e.g. ``fgd(typical=1:70/8:20/0.5:10)``. Departures: the paper takes the
distribution from the whole trace, future included; here it is learnt, and taken over anew when a tenth more jobs have
been seen, so that scores can be remembered. At most ``shapes`` kinds of jobs are counted, the most frequent ones.
"""

from collections import Counter

from headway.errors import ExperimentError
from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.fragmentation import FreeNode, Shape, Typical, shape_of, weighted_milli
from headway.jobs.policies.placements.pick import (
    by_room,
    equal_nodes,
    first,
    gpus_of,
    holding,
    on_node,
    one_node,
    over_nodes,
    share_nodes,
)
from headway.jobs.state.pool import Demand, Pool, host_share, members
from headway.units import WHOLE_GPU_MILLI, parse_size

_MEMO_LIMIT = 1 << 18


class Fgd(PlacementRule):
    """The placement that adds the least fragmentation."""

    name = "fgd"

    def __init__(self, typical: tuple[str, ...] = (), shapes: int = 64) -> None:
        if shapes < 1:
            raise ExperimentError(f"fgd(shapes={shapes}): must be at least 1")
        self.typical = typical
        self.shapes = shapes
        self._given = [_parse(text) for text in typical]
        self._seen = bytearray()
        self._counts: Counter[Shape] = Counter()
        self._known = 0
        self._due = 1
        self._scores: _Scores | None = None

    def __copy__(self) -> "Fgd":
        """Return a copy that has counted the same jobs and counts on independently."""
        other = Fgd(self.typical, self.shapes)
        vars(other).update(vars(self), _seen=self._seen.copy(), _counts=self._counts.copy())
        return other

    def place(self, pool: Pool, js: Demand) -> Placement | None:
        """Return the placement that adds the least fragmentation; None where the job does not fit."""
        scores = self._learn(pool, js)
        if js.gpu_milli != WHOLE_GPU_MILLI:
            return _share(pool, js, scores)
        if js.gpus > pool.free_gpus:
            return None
        if js.nodes > 1:
            return _equal(pool, js, scores)
        if nodes := holding(pool, js):
            return on_node(pool, scores.best(pool, js, nodes, js.gpus), js.gpus)
        if one_node(pool, js) or js.gpus > pool.free_among(js.eligible):
            return None
        return _many(pool, js, scores)

    def _learn(self, pool: Pool, js: Demand) -> "_Scores":
        """Count a job the first time it is seen; return the scorer of the distribution in use."""
        scores = self._scores
        if self._given:
            if scores is None or scores.cluster is not pool.cluster:
                largest = pool.largest_among(pool.everywhere)
                cut = [
                    (Shape(min(s.gpus, largest), s.gpu_milli, s.cpu_milli, s.memory_bytes), w) for s, w in self._given
                ]
                scores = self._scores = _Scores(pool, cut)
            return scores
        seen = self._seen
        if js.id >= len(seen):
            seen.extend(bytes(js.id + 1024 - len(seen)))
        if not seen[js.id]:
            seen[js.id] = 1
            if js.gpus:
                self._counts[shape_of(js, pool.largest_among(js.eligible))] += 1
                self._known += 1
        if scores is None or self._known >= self._due or scores.cluster is not pool.cluster:
            self._due = self._known + 1 + self._known // 10
            scores = self._scores = _Scores(pool, self._counts.most_common(self.shapes))
        return scores


class _Scores:
    """Scores nodes: F of a node in a state, cached, since many nodes are alike."""

    def __init__(self, pool: Pool, typical: Typical) -> None:
        self.cluster = pool.cluster
        self._memo: dict[tuple[int, int, tuple[int, ...], int, int], int] = {}
        self._most_cpu = max((shape.cpu_milli for shape, _ in typical), default=0)
        self._most_memory = max((shape.memory_bytes for shape, _ in typical), default=0)
        total = sum(weight for _, weight in typical)
        kinds: dict[tuple[bool, ...], int] = {}
        for node in members(pool.everywhere):
            kind = tuple(bool(shape.eligible >> node & 1) for shape, _ in typical)
            kinds[kind] = kinds.get(kind, 0) | pool.bits[node]
        self._kinds = list(kinds.values())
        self._kind_of = [0] * len(pool.bits)
        self._allowed: list[tuple[list[tuple[Shape, int]], int]] = []
        for index, (kind, nodes) in enumerate(kinds.items()):
            allowed = [item for item, may in zip(typical, kind, strict=True) if may]
            self._allowed.append((allowed, total - sum(weight for _, weight in allowed)))
            for node in members(nodes):
                self._kind_of[node] = index

    def best(self, pool: Pool, js: Demand, nodes: int, count: int) -> int:
        """Return the node where so many of a job's GPUs add the least; ties: fewest free, then first."""
        best, least = -1, 0
        alike = 0 if self._most_cpu or self._most_memory else nodes & ~pool.sharing
        for free in range(count, len(pool.buckets)):
            if not (here := pool.buckets[free] & nodes):
                continue
            firsts = [first(same) for kind in self._kinds if (same := here & kind & alike)]
            for node in (*firsts, *members(here & ~alike)):
                added = self.added(pool, js, node, count)
                if best < 0 or added < least:
                    best, least = node, added
        return best

    def added(self, pool: Pool, js: Demand, node: int, count: int) -> int:
        """Return F after minus before, when so many whole GPUs (and what goes with them) are taken."""
        parts = _parts(pool, node)
        whole = pool.free_count[node]
        cpu_milli, memory_bytes = host_share(js, count)
        return self._after(pool, node, whole - count, parts, cpu_milli, memory_bytes) - self._after(
            pool, node, whole, parts
        )

    def added_by_share(self, pool: Pool, js: Demand, node: int, gpu: int) -> int:
        """Return F after minus before, when a share of this GPU is taken."""
        parts = _parts(pool, node)
        whole = pool.free_count[node]
        left, shares = list(parts), pool.shares[node]
        had = shares.get(gpu, WHOLE_GPU_MILLI)
        after = whole - (gpu not in shares)
        if gpu in shares:
            left.remove(had)
        if had > js.gpu_milli:
            left.append(had - js.gpu_milli)
        taken = tuple(sorted(left))
        return self._after(pool, node, after, taken, js.cpu_milli, js.memory_bytes) - self._after(
            pool, node, whole, parts
        )

    def _after(
        self, pool: Pool, node: int, whole: int, parts: tuple[int, ...], cpu_milli: int = 0, memory_bytes: int = 0
    ) -> int:
        """Return F of a node with this much free, less these CPUs and memory."""
        kind = self._kind_of[node]
        cpu_left = min(pool.cpu_free[node] - cpu_milli, self._most_cpu)
        memory_left = min(pool.memory_free[node] - memory_bytes, self._most_memory)
        key = (kind, whole, parts, cpu_left, memory_left)
        found = self._memo.get(key)
        if found is None:
            if len(self._memo) >= _MEMO_LIMIT:
                self._memo.clear()
            found = self._memo[key] = weighted_milli(
                FreeNode(whole, parts, cpu_left, memory_left), *self._allowed[kind]
            )
        return found


def _parts(pool: Pool, node: int) -> tuple[int, ...]:
    if not pool.sharing >> node & 1:
        return ()
    return tuple(sorted(free for free in pool.shares[node].values() if free))


def _share(pool: Pool, js: Demand, scores: _Scores) -> Placement | None:
    best: tuple[int, int, int, int] | None = None
    for node in members(share_nodes(pool, js)):
        tried: set[int] = set()
        partly = [(free, gpu) for gpu, free in pool.shares[node].items() if free >= js.gpu_milli]
        if pool.free_mask[node]:
            partly.append((WHOLE_GPU_MILLI, gpus_of(pool, node, 1).bit_length() - 1))
        for free, gpu in sorted(partly):
            if free not in tried:
                tried.add(free)
                found = (scores.added_by_share(pool, js, node, gpu), pool.free_count[node], node, gpu)
                best = found if best is None else min(best, found)
    return None if best is None else ((best[2], 1 << best[3]),)


def _equal(pool: Pool, js: Demand, scores: _Scores) -> Placement | None:
    able = equal_nodes(pool, js, pool.everywhere)
    if able.bit_count() < js.nodes:
        return None
    each = js.gpus // js.nodes

    def score(node: int) -> tuple[int, int, int]:
        return scores.added(pool, js, node, each), pool.free_count[node], node

    return tuple((node, gpus_of(pool, node, each)) for node in sorted(members(able), key=score)[: js.nodes])


def _many(pool: Pool, js: Demand, scores: _Scores) -> Placement | None:
    placement = over_nodes(pool, js, by_room(pool, js, js.eligible))
    if placement is None:
        return None
    *body, (_, mask) = placement
    rest = mask.bit_count()
    others = pool.with_free(rest, js.eligible) & ~sum(pool.bits[node] for node, _ in body)
    last = scores.best(pool, js, sum(pool.bits[n] for n in members(others) if pool.host_fits(js, n, rest)), rest)
    return (*body, (last, gpus_of(pool, last, rest)))


def _parse(text: str) -> tuple[Shape, int]:
    """Return the shape and weight of a text ``GPUS:WEIGHT[:CPUS[:MEMORY]]``."""
    fields = text.split(":")
    try:
        if not 2 <= len(fields) <= 4:
            raise ValueError
        gpus, weight = float(fields[0]), int(fields[1])
        cpu_milli = round(float(fields[2]) * 1000) if len(fields) > 2 else 0
        if gpus <= 0 or weight < 1 or cpu_milli < 0 or (gpus > 1 and gpus != int(gpus)):
            raise ValueError
    except ValueError as wrong:
        rule = "write GPUS:WEIGHT[:CPUS[:MEMORY]] with a part of one GPU or whole GPUs, and a whole weight from 1"
        raise ExperimentError(f"fgd(typical={text}): {rule}") from wrong
    memory_bytes = parse_size(fields[3], what="fgd(typical=...) memory") if len(fields) > 3 else 0
    milli = round(gpus * 1000) if gpus < 1 else WHOLE_GPU_MILLI
    return Shape(max(1, int(gpus)), max(1, milli), cpu_milli, memory_bytes), weight
