"""What each node is asked for: the jobs on it, what they may choose from, and what is left when all have the least.

Books are kept from one decision to the next; only nodes where somebody came or went are read again. What a job over
several nodes holds is fixed while the others on a node are looked at.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from headway.training.actions import Grant, Placement
from headway.training.job import Job
from headway.training.jobstate import JobState
from headway.training.policies.allocations.headway.estimates import Estimates
from headway.training.policies.allocations.headway.knapsack import IMPOSSIBLE, Choices, Item, NodeKnapsack
from headway.training.policies.allocations.shared.free_resources import part_of_grant
from headway.training.proportional_share import scaled
from headway.training.state import TrainingState
from headway.units import WHOLE_GPU_MILLI

Amounts: TypeAlias = tuple[int, int, int]


class NodeModel:
    """One node."""

    __slots__ = ("code", "cpu_only", "gains_with", "jobs", "knapsack", "mask", "node", "spanning", "spare", "version")

    def __init__(self, node: int, knapsack: NodeKnapsack) -> None:
        self.node = node
        self.knapsack = knapsack
        self.version = (-1, -1)
        """Of who was here when it was read."""
        self.mask = -1
        """GPUs that were free."""
        self.jobs: list[tuple[JobState, Item]] = []
        """Those that are here with all their GPUs."""
        self.spanning: list[tuple[JobState, int]] = []
        """Those that are here with some, and how many."""
        self.cpu_only: Amounts = (0, 0, 0)
        """What jobs without GPUs hold here."""
        self.code = 0
        """The set of the former, as tables know it."""
        self.spare: Amounts = (0, 0, 0)
        """What is left when each of them has the corner of its menu, and the others what they hold."""
        self.gains_with: dict[Item, int] = {}
        """What the node would deliver more with a job of a kind, as far as it was asked."""

    @property
    def gain(self) -> int:
        """The most that the jobs here gain from what is left."""
        return self.knapsack.gain(self.code, self.spare)

    def add(self, item: Item) -> int:
        """Return what the node would deliver more with one more job; below 0 where it has too little for it."""
        found = self.gains_with.get(item)
        if found is None:
            with_it = self.knapsack.gain(self.code + item.code, minus(self.spare, item.minimum))
            found = self.gains_with[item] = with_it - self.gain + item.base if with_it >= 0 else IMPOSSIBLE
        return found


class NodeModels:
    """All nodes."""

    def __init__(self, state: TrainingState, estimates: Estimates, granted: dict[int, Grant]) -> None:
        self.state = state
        self.estimates = estimates
        nodes = state.cluster.nodes
        kinds: dict[tuple[int | None, ...], NodeKnapsack] = {}
        self.knapsacks = [
            kinds.setdefault((n.cpu_milli, n.memory_bytes, n.storage_bytes_per_second), NodeKnapsack(n)) for n in nodes
        ]
        self.nodes = [NodeModel(index, knapsack) for index, knapsack in enumerate(self.knapsacks)]
        self.granted = granted
        """What each job over several nodes is to hold."""
        self.dirty: set[int] = set()
        """Nodes read again and not divided since."""
        self.touched: set[int] = set()
        """Nodes read again, or where a job over several nodes holds something else, and not looked at since."""
        anything = Job(0, 0, 1, 1)
        self._paces = [state.speed.pace(anything, ((index, 1),)) for index in range(len(nodes))]
        self._items: dict[tuple[object, ...], Item] = {}
        self._at = -1
        self._coming: tuple[JobState, Placement] | None = None
        numbers: dict[tuple[object, ...], int] = {}
        traits = zip(self.knapsacks, estimates.demands.shares.of_node, self._paces, strict=True)
        self.kinds = [numbers.setdefault(kind, len(numbers)) for kind in traits]
        """Which nodes are alike: what is an item on one is the same on the other."""

    # --- jobs -------------------------------------------------------------------------------------------------

    def pace(self, js: JobState, placement: Placement) -> int:
        """Return how fast the GPUs of a placement are for a job."""
        if js.gpus == 1 or (len(placement) == 1 and not js.job.communication_ppm):
            return self._paces[placement[0][0]]
        return self.state.speed.pace(js.job, placement)

    def choices(self, js: JobState, placement: Placement) -> Choices:
        """Return what a job may be granted a GPU on a placement."""
        proportional = self.estimates.demands.shares.per_gpu(placement)
        return self.estimates.choices(js, proportional, self.pace(js, placement), self.knapsacks[placement[0][0]])

    def item(self, js: JobState, placement: Placement) -> Item:
        """A job on one node."""
        node = placement[0][0]
        job = js.job
        pace = self.pace(js, placement)
        proportional = self.estimates.demands.shares.of_node[node]
        asked = (job.model, job.cpu_milli, job.memory_bytes)
        key = (asked, js.width, js.account.weight, pace, proportional, self.knapsacks[node])
        found = self._items.get(key)
        if found is None:
            found = self.knapsacks[node].item(self.choices(js, placement), js.width, js.account.weight)
            self._items[key] = found
        return found

    def fallback(self, js: JobState, placement: Placement) -> Grant:
        """A grant of a job's menu that its due covers."""
        grant = self.choices(js, placement).fallback
        return grant if js.width <= WHOLE_GPU_MILLI else scaled(grant, js.width)

    def holds(self, node_model: NodeModel, coming: Grant, *, gpus: bool = True) -> bool:
        """Whether something fits on a node when all there come down to what is modest; without jobs that have no GPUs
        it always does, for what is no more than is due."""
        if gpus and not any(node_model.cpu_only):
            return True
        left = minus(minus(node_model.knapsack.capacity, node_model.cpu_only), coming)
        for _, item in node_model.jobs:
            left = minus(left, item.fallback)
        for js, count in node_model.spanning:
            left = minus(left, part_of_grant(self.fallback(js, js.placement), count, js.gpus))
        return min(left) >= 0

    def whole(self, js: JobState, placement: Placement) -> tuple[Grant, ...]:
        """The grants of a job's menu, for all of it."""
        grants = self.choices(js, placement).grants
        return grants if js.width <= WHOLE_GPU_MILLI else tuple(scaled(grant, js.width) for grant in grants)

    # --- nodes ------------------------------------------------------------------------------------------------

    def expect(self, js: JobState, placement: Placement) -> None:
        """A job is about to start here."""
        self._coming = js, placement

    def refresh(self) -> None:
        """Read again the nodes where somebody came or went."""
        state = self.state
        if state.tenures == self._at:
            return
        nodes: Iterable[int] = range(len(self.nodes))
        if self._coming is not None and state.tenures == self._at + 1:
            js, placement = self._coming
            if js.id in state.running and js.placement is placement:  # nothing else happened
                nodes = [node for node, _ in placement]
        self._coming = None
        self._at = state.tenures
        for node in nodes:
            node_model, here = self.nodes[node], state.on_node[node]
            version = (len(here), next(reversed(here.values())).lease) if here else (0, 0)
            if version != node_model.version:
                self._read(node_model, here.values())
                node_model.version = version
                node_model.mask = state.pool.free_mask[node]
                self.dirty.add(node)
                self.touched.add(node)
        if len(self.granted) > 2 * len(state.running):
            self.granted = {job: grant for job, grant in self.granted.items() if job in state.running}

    def current(self, node: int) -> NodeModel:
        """A node's book; in a draft where jobs were stopped on it, one without them."""
        node_model = self.nodes[node]
        free = self.state.pool.free_mask[node]
        if free == node_model.mask:
            return node_model
        here = self.state.on_node[node].values()
        return self.reading(
            node, [js for js in here if not any(free & mask for at, mask in js.placement if at == node)]
        )

    def reading(self, node: int, staying: Iterable[JobState]) -> NodeModel:
        """A book of some of a node's jobs, to try something out with."""
        node_model = NodeModel(node, self.knapsacks[node])
        self._read(node_model, staying)
        return node_model

    def _read(self, node_model: NodeModel, here: Iterable[JobState]) -> None:
        node_model.jobs, node_model.spanning, node_model.code = [], [], 0
        node_model.cpu_only, node_model.gains_with = (0, 0, 0), {}
        spare: Amounts = node_model.knapsack.capacity
        for js in here:
            if not js.gpus:
                node_model.cpu_only = plus(node_model.cpu_only, js.grant)
                spare = minus(spare, js.grant)
            elif len(js.placement) == 1:
                item = self.item(js, js.placement)
                node_model.jobs.append((js, item))
                node_model.code += item.code
                spare = minus(spare, item.minimum)
            else:
                count = next(mask.bit_count() for node, mask in js.placement if node == node_model.node)
                node_model.spanning.append((js, count))
                spare = minus(spare, part_of_grant(self.granted.get(js.id, js.grant), count, js.gpus))
        node_model.spare = spare

    def promised(self, node_model: NodeModel) -> dict[int, Grant]:
        """Return what jobs over several nodes that are on one are to hold; they may still hold something else."""
        return {js.id: self.granted.get(js.id, js.grant) for js, _ in node_model.spanning}

    def regrant(self, js: JobState, grant: Grant) -> None:
        """Let a job over several nodes hold something else from now on."""
        before = self.granted.get(js.id, js.grant)
        self.granted[js.id] = grant
        if grant == before:
            return
        for node, mask in js.placement:
            node_model, count = self.nodes[node], mask.bit_count()
            node_model.spare = minus(
                plus(node_model.spare, part_of_grant(before, count, js.gpus)), part_of_grant(grant, count, js.gpus)
            )
            node_model.gains_with = {}
            self.dirty.add(node)
            self.touched.add(node)


def minus(spare: Amounts, grant: tuple[int, int, int]) -> Amounts:
    """Return what is left of something."""
    return spare[0] - grant[0], spare[1] - grant[1], spare[2] - grant[2]


def plus(spare: Amounts, grant: tuple[int, int, int]) -> Amounts:
    """Return what there is with something given back."""
    return spare[0] + grant[0], spare[1] + grant[1], spare[2] + grant[2]


def grants_of_picks(jobs: Iterable[tuple[JobState, Item]], picks: Mapping[Item, list[int]]) -> dict[int, Grant]:
    """Return what each job holds; of several of one kind those that hold something already keep it."""
    found: dict[int, Grant] = {}
    open_: dict[Item, tuple[list[JobState], list[Grant]]] = {}
    for js, item in jobs:
        chosen = picks.get(item)
        if chosen is None:
            found[js.id] = item.grants[0]
        elif len(chosen) == 1:
            found[js.id] = item.grants[chosen[0]]
        else:
            if item not in open_:
                open_[item] = [], [item.grants[index] for index in chosen]
            waiting, left = open_[item]
            if js.grant in left:
                left.remove(js.grant)
                found[js.id] = js.grant
            else:
                waiting.append(js)
    for waiting, left in open_.values():
        for js, grant in zip(waiting, sorted(left, reverse=True), strict=True):
            found[js.id] = grant
    return found
