"""Models of all nodes: the jobs on each, the grants they may choose from, and what is left when all have the minimum.

Models are kept from one decision to the next. Only those of nodes where jobs came or left are rebuilt. The grant of a
job that spans nodes is fixed while the other jobs of a node choose.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from headway.jobs.model.job import Job
from headway.jobs.model.proportional_share import scaled
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.headway.estimates import Estimates
from headway.jobs.policies.allocations.headway.knapsack import IMPOSSIBLE, Choices, Item, NodeKnapsack
from headway.jobs.policies.allocations.shared.free_resources import part_of_grant
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from headway.units import WHOLE_GPU_MILLI

Amounts: TypeAlias = tuple[int, int, int]


class NodeModel:
    """One node as a knapsack: its jobs as items, and the spare resources they divide."""

    __slots__ = ("code", "cpu_only", "gain_by_item", "jobs", "knapsack", "mask", "node", "spanning", "spare", "version")

    def __init__(self, node: int, knapsack: NodeKnapsack) -> None:
        self.node = node
        self.knapsack = knapsack
        self.version = (-1, -1)
        """Number of jobs and lease of the last one when the model was built; it changes with the jobs."""
        self.mask = -1
        """GPUs that were free when the model was built."""
        self.jobs: list[tuple[JobState, Item]] = []
        """Jobs with all their GPUs on this node."""
        self.spanning: list[tuple[JobState, int]] = []
        """Jobs that span nodes, and the number of their GPUs on this one."""
        self.cpu_only: Amounts = (0, 0, 0)
        """What jobs without GPUs hold on this node."""
        self.code = 0
        """The code of the multiset ``jobs`` in the tables of the knapsack."""
        self.spare: Amounts = (0, 0, 0)
        """What is left when each of ``jobs`` has its minimum, and all other jobs what they hold."""
        self.gain_by_item: dict[Item, int] = {}
        """The gain of the node with one more job, by its item: a cache."""

    @property
    def gain(self) -> int:
        """Return the largest gain of the jobs here from what is spare."""
        return self.knapsack.gain(self.code, self.spare)

    def gain_with(self, item: Item) -> int:
        """Return how much the total speed grows with one more job; negative where the job does not fit."""
        found = self.gain_by_item.get(item)
        if found is None:
            with_it = self.knapsack.gain(self.code + item.code, minus(self.spare, item.minimum))
            found = self.gain_by_item[item] = with_it - self.gain + item.base if with_it >= 0 else IMPOSSIBLE
        return found


class NodeModels:
    """The models of all nodes."""

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
        """The target grant of each job that spans nodes."""
        self.dirty: set[int] = set()
        """Nodes whose model changed and that were not divided since."""
        self.touched: set[int] = set()
        """Nodes whose model changed, or where the grant of a spanning job did, since ``Exchanges`` last looked."""
        anything = Job(0, 0, 1, 1)
        self._paces = [state.speed.pace(anything, ((index, 1),)) for index in range(len(nodes))]
        self._items: dict[tuple[object, ...], Item] = {}
        self._refreshed_at = -1
        self._coming: tuple[JobState, Placement] | None = None
        numbers: dict[tuple[object, ...], int] = {}
        traits = zip(self.knapsacks, estimates.demands.shares.of_node, self._paces, strict=True)
        self.kinds = [numbers.setdefault(kind, len(numbers)) for kind in traits]
        """A number for each node, the same for nodes on which a job has the same item."""

    # --- jobs -------------------------------------------------------------------------------------------------

    def pace(self, js: JobState, placement: Placement) -> int:
        """Return the speed that the GPUs of a placement allow a job, in parts per million."""
        if js.gpus == 1 or (len(placement) == 1 and not js.job.communication_ppm):
            return self._paces[placement[0][0]]
        return self.state.speed.pace(js.job, placement)

    def choices(self, js: JobState, placement: Placement) -> Choices:
        """Return the grants per GPU that a job may choose from on a placement."""
        proportional = self.estimates.demands.shares.per_gpu(placement)
        return self.estimates.choices(js, proportional, self.pace(js, placement), self.knapsacks[placement[0][0]])

    def item(self, js: JobState, placement: Placement) -> Item:
        """Return the knapsack item of a job on one node."""
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
        """Return a job's fallback grant: the one of its choices that is within its proportional share."""
        grant = self.choices(js, placement).fallback
        return grant if js.width <= WHOLE_GPU_MILLI else scaled(grant, js.width)

    def has_room_for(self, node_model: NodeModel, coming: Grant, *, gpus: bool = True) -> bool:
        """Return whether a grant fits on a node when all jobs there are lowered to their fallback grants.

        ``gpus``: the grant is within a proportional share, which always fits unless there are jobs without GPUs.
        """
        if gpus and not any(node_model.cpu_only):
            return True
        left = minus(minus(node_model.knapsack.capacity, node_model.cpu_only), coming)
        for _, item in node_model.jobs:
            left = minus(left, item.fallback)
        for js, count in node_model.spanning:
            left = minus(left, part_of_grant(self.fallback(js, js.placement), count, js.gpus))
        return min(left) >= 0

    def grants_for_job(self, js: JobState, placement: Placement) -> tuple[Grant, ...]:
        """Return the grants that a job may choose from, for all its GPUs together."""
        grants = self.choices(js, placement).grants
        return grants if js.width <= WHOLE_GPU_MILLI else tuple(scaled(grant, js.width) for grant in grants)

    # --- nodes ------------------------------------------------------------------------------------------------

    def expect(self, js: JobState, placement: Placement) -> None:
        """Note that a job is about to start on a placement, so that ``refresh`` need not look at all nodes."""
        self._coming = js, placement

    def refresh(self) -> None:
        """Rebuild the models of nodes where jobs came or left."""
        state = self.state
        if state.tenures == self._refreshed_at:
            return
        nodes: Iterable[int] = range(len(self.nodes))
        if self._coming is not None and state.tenures == self._refreshed_at + 1:
            js, placement = self._coming
            if js.id in state.running and js.placement is placement:  # nothing else happened
                nodes = [node for node, _ in placement]
        self._coming = None
        self._refreshed_at = state.tenures
        for node in nodes:
            node_model, here = self.nodes[node], state.on_node[node]
            version = (len(here), next(reversed(here.values())).lease) if here else (0, 0)
            if version != node_model.version:
                self._fill(node_model, here.values())
                node_model.version = version
                node_model.mask = state.pool.free_mask[node]
                self.dirty.add(node)
                self.touched.add(node)
        if len(self.granted) > 2 * len(state.running):
            self.granted = {job: grant for job, grant in self.granted.items() if job in state.running}

    def at(self, node: int) -> NodeModel:
        """Return the model of a node; in a draft that stopped jobs on it, a model without these."""
        node_model = self.nodes[node]
        free = self.state.pool.free_mask[node]
        if free == node_model.mask:
            return node_model
        here = self.state.on_node[node].values()
        return self.with_jobs(
            node, [js for js in here if not any(free & mask for at, mask in js.placement if at == node)]
        )

    def with_jobs(self, node: int, staying: Iterable[JobState]) -> NodeModel:
        """Return a new model of a node with only these jobs."""
        node_model = NodeModel(node, self.knapsacks[node])
        self._fill(node_model, staying)
        return node_model

    def _fill(self, node_model: NodeModel, here: Iterable[JobState]) -> None:
        node_model.jobs, node_model.spanning, node_model.code = [], [], 0
        node_model.cpu_only, node_model.gain_by_item = (0, 0, 0), {}
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

    def spanning_targets(self, node_model: NodeModel) -> dict[int, Grant]:
        """Return the target grants of the spanning jobs on a node; they may still hold something else."""
        return {js.id: self.granted.get(js.id, js.grant) for js, _ in node_model.spanning}

    def regrant(self, js: JobState, grant: Grant) -> None:
        """Set the target grant of a job that spans nodes."""
        before = self.granted.get(js.id, js.grant)
        self.granted[js.id] = grant
        if grant == before:
            return
        for node, mask in js.placement:
            node_model, count = self.nodes[node], mask.bit_count()
            node_model.spare = minus(
                plus(node_model.spare, part_of_grant(before, count, js.gpus)), part_of_grant(grant, count, js.gpus)
            )
            node_model.gain_by_item = {}
            self.dirty.add(node)
            self.touched.add(node)


def minus(spare: Amounts, grant: tuple[int, int, int]) -> Amounts:
    """Return the amounts less a grant."""
    return spare[0] - grant[0], spare[1] - grant[1], spare[2] - grant[2]


def plus(spare: Amounts, grant: tuple[int, int, int]) -> Amounts:
    """Return the amounts plus a grant."""
    return spare[0] + grant[0], spare[1] + grant[1], spare[2] + grant[2]


def grants_of_picks(jobs: Iterable[tuple[JobState, Item]], picks: Mapping[Item, list[int]]) -> dict[int, Grant]:
    """Return the grant of each job for the picks of a knapsack. Of jobs with the same item, those that hold one of the
    picked grants keep it."""
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
