"""What each node is asked for: the jobs on it, what they may choose from, and what is left when all have the least.

Books are kept from one decision to the next; only nodes where somebody came or went are read again. What a job over
several nodes holds is fixed while the others on a node are looked at.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from headway.training.actions import Grant, Placement
from headway.training.job import Job
from headway.training.jobstate import JobState
from headway.training.policies.allocations.headway.beliefs import Beliefs
from headway.training.policies.allocations.headway.knapsack import IMPOSSIBLE, Basin, Item, Menu
from headway.training.policies.allocations.shared.room import part
from headway.training.shares import times
from headway.training.state import TrainingState
from headway.units import WHOLE_GPU_MILLI

Spare: TypeAlias = tuple[int, int, int]


class Book:
    """One node."""

    __slots__ = ("adds", "basin", "hosts", "jobs", "mark", "mask", "node", "sign", "spare", "wide")

    def __init__(self, node: int, basin: Basin) -> None:
        self.node = node
        self.basin = basin
        self.sign = (-1, -1)
        """Of who was here when it was read."""
        self.mask = -1
        """GPUs that were free."""
        self.jobs: list[tuple[JobState, Item]] = []
        """Those that are here with all their GPUs."""
        self.wide: list[tuple[JobState, int]] = []
        """Those that are here with some, and how many."""
        self.hosts: Spare = (0, 0, 0)
        """What jobs without GPUs hold here."""
        self.mark = 0
        """The set of the former, as tables know it."""
        self.spare: Spare = (0, 0, 0)
        """What is left when each of them has the corner of its menu, and the others what they hold."""
        self.adds: dict[Item, int] = {}
        """What the node would deliver more with a job of a kind, as far as it was asked."""

    @property
    def gain(self) -> int:
        """The most that the jobs here gain from what is left."""
        return self.basin.gain(self.mark, self.spare)

    def add(self, item: Item) -> int:
        """Return what the node would deliver more with one more job; below 0 where it has too little for it."""
        found = self.adds.get(item)
        if found is None:
            with_it = self.basin.gain(self.mark + item.mark, less(self.spare, item.corner))
            found = self.adds[item] = with_it - self.gain + item.base if with_it >= 0 else IMPOSSIBLE
        return found


class Books:
    """All nodes."""

    def __init__(self, state: TrainingState, beliefs: Beliefs, granted: dict[int, Grant]) -> None:
        self.state = state
        self.beliefs = beliefs
        nodes = state.cluster.nodes
        kinds: dict[tuple[int | None, ...], Basin] = {}
        self.basins = [
            kinds.setdefault((n.cpu_milli, n.memory_bytes, n.storage_bytes_per_second), Basin(n)) for n in nodes
        ]
        self.books = [Book(index, basin) for index, basin in enumerate(self.basins)]
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
        traits = zip(self.basins, beliefs.wants.dues.of_node, self._paces, strict=True)
        self.kinds = [numbers.setdefault(kind, len(numbers)) for kind in traits]
        """Which nodes are alike: what is an item on one is the same on the other."""

    # --- jobs -------------------------------------------------------------------------------------------------

    def pace(self, js: JobState, placement: Placement) -> int:
        """Return how fast the GPUs of a placement are for a job."""
        if js.gpus == 1 or (len(placement) == 1 and not js.job.communication_ppm):
            return self._paces[placement[0][0]]
        return self.state.speed.pace(js.job, placement)

    def menu(self, js: JobState, placement: Placement) -> Menu:
        """Return what a job may be granted a GPU on a placement."""
        due = self.beliefs.wants.dues.a_gpu(placement)
        return self.beliefs.menu(js, due, self.pace(js, placement), self.basins[placement[0][0]])

    def item(self, js: JobState, placement: Placement) -> Item:
        """A job on one node."""
        node = placement[0][0]
        job = js.job
        pace = self.pace(js, placement)
        due = self.beliefs.wants.dues.of_node[node]
        asked = (job.model, job.cpu_milli, job.memory_bytes)
        key = (asked, js.width, js.account.weight, pace, due, self.basins[node])
        found = self._items.get(key)
        if found is None:
            found = self.basins[node].item(self.menu(js, placement), js.width, js.account.weight)
            self._items[key] = found
        return found

    def modest(self, js: JobState, placement: Placement) -> Grant:
        """A grant of a job's menu that its due covers."""
        grant = self.menu(js, placement).modest
        return grant if js.width <= WHOLE_GPU_MILLI else times(grant, js.width)

    def holds(self, book: Book, coming: Grant, *, gpus: bool = True) -> bool:
        """Whether something fits on a node when all there come down to what is modest; without jobs that have no GPUs
        it always does, for what is no more than is due."""
        if gpus and not any(book.hosts):
            return True
        left = less(less(book.basin.capacity, book.hosts), coming)
        for _, item in book.jobs:
            left = less(left, item.modest)
        for js, count in book.wide:
            left = less(left, part(self.modest(js, js.placement), count, js.gpus))
        return min(left) >= 0

    def whole(self, js: JobState, placement: Placement) -> tuple[Grant, ...]:
        """The grants of a job's menu, for all of it."""
        grants = self.menu(js, placement).grants
        return grants if js.width <= WHOLE_GPU_MILLI else tuple(times(grant, js.width) for grant in grants)

    # --- nodes ------------------------------------------------------------------------------------------------

    def expect(self, js: JobState, placement: Placement) -> None:
        """A job is about to start here."""
        self._coming = js, placement

    def refresh(self) -> None:
        """Read again the nodes where somebody came or went."""
        state = self.state
        if state.tenures == self._at:
            return
        nodes: Iterable[int] = range(len(self.books))
        if self._coming is not None and state.tenures == self._at + 1:
            js, placement = self._coming
            if js.id in state.running and js.placement is placement:  # nothing else happened
                nodes = [node for node, _ in placement]
        self._coming = None
        self._at = state.tenures
        for node in nodes:
            book, here = self.books[node], state.on_node[node]
            sign = (len(here), next(reversed(here.values())).lease) if here else (0, 0)
            if sign != book.sign:
                self._read(book, here.values())
                book.sign = sign
                book.mask = state.pool.free_mask[node]
                self.dirty.add(node)
                self.touched.add(node)
        if len(self.granted) > 2 * len(state.running):
            self.granted = {job: grant for job, grant in self.granted.items() if job in state.running}

    def current(self, node: int) -> Book:
        """A node's book; in a draft where jobs were stopped on it, one without them."""
        book = self.books[node]
        free = self.state.pool.free_mask[node]
        if free == book.mask:
            return book
        here = self.state.on_node[node].values()
        return self.reading(
            node, [js for js in here if not any(free & mask for at, mask in js.placement if at == node)]
        )

    def reading(self, node: int, staying: Iterable[JobState]) -> Book:
        """A book of some of a node's jobs, to try something out with."""
        book = Book(node, self.basins[node])
        self._read(book, staying)
        return book

    def _read(self, book: Book, here: Iterable[JobState]) -> None:
        book.jobs, book.wide, book.mark = [], [], 0
        book.hosts, book.adds = (0, 0, 0), {}
        spare: Spare = book.basin.capacity
        for js in here:
            if not js.gpus:
                book.hosts = more(book.hosts, js.grant)
                spare = less(spare, js.grant)
            elif len(js.placement) == 1:
                item = self.item(js, js.placement)
                book.jobs.append((js, item))
                book.mark += item.mark
                spare = less(spare, item.corner)
            else:
                count = next(mask.bit_count() for node, mask in js.placement if node == book.node)
                book.wide.append((js, count))
                spare = less(spare, part(self.granted.get(js.id, js.grant), count, js.gpus))
        book.spare = spare

    def promised(self, book: Book) -> dict[int, Grant]:
        """Return what jobs over several nodes that are on one are to hold; they may still hold something else."""
        return {js.id: self.granted.get(js.id, js.grant) for js, _ in book.wide}

    def regrant(self, js: JobState, grant: Grant) -> None:
        """Let a job over several nodes hold something else from now on."""
        before = self.granted.get(js.id, js.grant)
        self.granted[js.id] = grant
        if grant == before:
            return
        for node, mask in js.placement:
            book, count = self.books[node], mask.bit_count()
            book.spare = less(more(book.spare, part(before, count, js.gpus)), part(grant, count, js.gpus))
            book.adds = {}
            self.dirty.add(node)
            self.touched.add(node)


def less(spare: Spare, grant: tuple[int, int, int]) -> Spare:
    """Return what is left of something."""
    return spare[0] - grant[0], spare[1] - grant[1], spare[2] - grant[2]


def more(spare: Spare, grant: tuple[int, int, int]) -> Spare:
    """Return what there is with something given back."""
    return spare[0] + grant[0], spare[1] + grant[1], spare[2] + grant[2]


def held(jobs: Iterable[tuple[JobState, Item]], picks: Mapping[Item, list[int]]) -> dict[int, Grant]:
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
