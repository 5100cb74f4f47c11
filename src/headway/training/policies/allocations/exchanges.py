"""Jobs that change places: one moves to free GPUs, or two of a width swap, where the cluster gains more than it costs.

For each node and each two kinds of jobs it is known what the node would deliver more if one of the first kind left and
one of the second came (``water.py`` has it in tables), a free place being a kind too. The best exchange in the cluster
is then the largest sum of two such numbers. What is gained, for as long as the one that ends first is believed to run,
has to exceed the work lost while both stand still, several times over.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np

from headway.training.actions import Action, Grant, MigrateJob, Placement, PreemptJob, ReallocateJob, StartJob
from headway.training.jobstate import JobState
from headway.training.policies.allocations.books import Book, Books, held, less, lower, more
from headway.training.policies.allocations.water import IMPOSSIBLE, Item
from headway.training.policies.placements.pick import gpus_of
from headway.training.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI

_NEVER = IMPOSSIBLE * 4
_TRIES = 12
"""Exchanges looked at for each that is made."""
_LEAST_GAIN = 20_000
"""Parts per million of a GPU: less is not worth the trouble of looking."""

Kind: TypeAlias = tuple[Grant, int, int]
"""What tells items apart as far as a node is concerned: corner, mark, base."""


class Floor:
    """Nodes of one kind, for jobs of one width: what each would deliver more if one left and another came."""

    def __init__(self, nodes: list[int], width: int) -> None:
        self.nodes = nodes
        self.rows = {node: row for row, node in enumerate(nodes)}
        self.width = width
        self.kinds: dict[Kind, int] = {(Grant(0, 0, 0), 0, 0): 0}
        """The first is a free place."""
        self.listed: list[Kind] = list(self.kinds)
        self.changes = np.full((len(nodes), 1, 1), _NEVER, dtype=np.int64)
        self.stale = set(nodes)
        self._least = _LEAST_GAIN * width // WHOLE_GPU_MILLI

    def kind(self, item: Item) -> int:
        """The position of a kind, met before or not."""
        key = (item.corner, item.mark, item.base)
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = len(self.listed)
            self.listed.append(key)
            size = len(self.listed)
            grown = np.full((len(self.nodes), size, size), _NEVER, dtype=np.int64)
            grown[:, :-1, :-1] = self.changes
            self.changes = grown
            self.stale.update(self.nodes)
        return found

    def update(self, book: Book, places: int, here: Iterable[Item]) -> None:
        """What a node would deliver more, for all who could leave and come."""
        row = self.changes[self.rows[book.node]]
        row[:] = _NEVER
        leaving = {self.kind(item) for item in here}
        if places:
            leaving.add(0)
        row = self.changes[self.rows[book.node]]
        now, gain = book.gain, book.basin.gain
        if now < 0:  # not even the least fits in whole units
            return
        for i in leaving:
            corner, mark, base = self.listed[i]
            spare, rest = more(book.spare, corner), book.mark - mark
            for j, (takes, adds, brings) in enumerate(self.listed):
                if i != j and (then := gain(rest + adds, less(spare, takes))) >= 0:
                    row[i, j] = then - now + brings - base

    def best(self) -> tuple[int, int, int, int, int] | None:
        """(gain, a node, the kind that leaves it, another node, the kind that leaves that); None: nothing to gain."""
        if len(self.nodes) < 2 or len(self.listed) < 2:
            return None
        changes, (row, column) = self.changes, np.indices(self.changes.shape[1:], sparse=True)
        first = changes.argmax(axis=0)
        best = changes[first, row, column]
        sums = best + best.T
        clash = first == first.T
        if sums[clash].max(initial=_NEVER) >= self._least:  # one node cannot swap with itself: the next best then
            others = changes.copy()
            others[first, row, column] = _NEVER
            second = others.argmax(axis=0)
            sums = np.where(clash, best + others[second, row, column].T, sums)
            found = np.where(clash, second, first)
        else:
            sums = np.where(clash, _NEVER, sums)
            found = first
        i, j = divmod(int(sums.argmax()), len(self.listed))
        if sums[i, j] < self._least:
            return None
        return int(sums[i, j]), self.nodes[int(first[i, j])], i, self.nodes[int(found[j, i])], j

    def forbid(self, node: int, leaves: int, comes: int) -> None:
        """Not this one, until the node is looked at again."""
        self.changes[self.rows[node], leaves, comes] = _NEVER
        self.stale.add(node)


class Exchanges:
    """Moves and swaps, a few at a time."""

    def __init__(self, books: Books, moves: int, margin: float, rest: int) -> None:
        self.books = books
        self.moves = moves
        self.margin = margin
        self.rest = rest
        kinds: dict[tuple[object, ...], list[int]] = {}
        for node in range(len(books.books)):
            if books.state.cluster.nodes[node].gpus:
                kinds.setdefault(books.kind(node), []).append(node)
        self._nodes = list(kinds.values())
        self._floors: dict[int, list[Floor]] = {}

    def _note(self) -> None:
        """Somebody came to some nodes, or left them, or holds something else on several."""
        for floors in self._floors.values():
            for floor in floors:
                floor.stale.update(node for node in self.books.touched if node in floor.rows)
        self.books.touched.clear()

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        """What pays, best first; those left behind come down to the least of their menus, to be divided anew."""
        left = self.moves
        self._note()
        for width in sorted({js.width for book in self.books.books for js, _ in book.jobs if js.gpu_milli == 1000}):
            if width not in self._floors:
                self._floors[width] = [Floor(nodes, width) for nodes in self._nodes]
            for floor in self._floors[width]:
                for _ in range(_TRIES):
                    if not left:
                        return
                    self._look(now, state, floor)
                    found = floor.best()
                    if found is None:
                        break
                    actions = self._carried_out(now, state, floor, *found)
                    if actions is None:
                        floor.forbid(found[1], found[2], found[4])
                        floor.stale.discard(found[1])
                        continue
                    yield from actions
                    left -= 1
                    self.books.refresh()
                    self._note()

    def _look(self, now: int, state: TrainingState, floor: Floor) -> None:
        gpus = floor.width // WHOLE_GPU_MILLI
        while floor.stale:
            node = min(floor.stale)
            floor.stale.discard(node)
            book = self.books.books[node]
            usable = state.pool.schedulable >> node & 1 and not any(book.hosts)
            places = state.pool.free_count[node] >= gpus if usable else 0
            here = [item for js, item in book.jobs if js.width == floor.width and usable and js.job.preemptible]
            floor.update(book, places, here)

    def _carried_out(
        self, now: int, state: TrainingState, floor: Floor, gain: int, a: int, i: int, b: int, j: int
    ) -> list[Action] | None:
        one = self._mover(now, state, floor, a, i, b) if i else None
        other = self._mover(now, state, floor, b, j, a) if j else None
        if (i and one is None) or (j and other is None):
            return None
        movers = [js for js in (one, other) if js is not None]
        if not self._pays(now, state, gain, movers):
            return None
        if one is None:
            one, other, a, b = other, None, b, a
        assert one is not None
        if other is None:
            there: Placement = ((b, gpus_of(state.pool, b, one.gpus)),)
            given, grant = self._coming(state, b, one, there, None)
            return [*given, MigrateJob(one.id, there, grant)]
        if state.quotas:
            return None
        there, here = other.placement, one.placement
        given, grant = self._coming(state, b, one, there, other)
        also, back = self._coming(state, a, other, here, one)
        changed: list[Action] = [PreemptJob(other.id), MigrateJob(one.id, there, grant), StartJob(other.id, here, back)]
        return [*given, *also, *changed]

    def _coming(
        self, state: TrainingState, node: int, js: JobState, placement: Placement, going: JobState | None
    ) -> tuple[list[Action], Grant]:
        """What others on a node give up when a job comes in place of another, and what it then holds."""
        book = self.books.books[node]
        jobs = [(other, item) for other, item in book.jobs if other is not going]
        jobs.append((js, self.books.item(js, placement)))
        mark, spare = book.mark, book.spare
        for other, item in book.jobs:
            if other is going:
                mark, spare = mark - item.mark, more(spare, item.corner)
        mark, spare = mark + jobs[-1][1].mark, less(spare, jobs[-1][1].corner)
        picks = book.basin.picks(mark, spare)
        assert picks is not None
        wanted = held(jobs, picks)
        grant = wanted.pop(js.id)
        given: list[Action] = []
        for job, target in wanted.items():
            if (lesser := lower(state.running[job].grant, target)) is not None:
                given.append(ReallocateJob(job, lesser))
        return given, grant

    def _mover(self, now: int, state: TrainingState, floor: Floor, node: int, kind: int, to: int) -> JobState | None:
        """The job of a kind on a node that runs longest from now on, if one may move there."""
        best: JobState | None = None
        for js, item in self.books.books[node].jobs:
            if (
                js.width == floor.width
                and floor.kind(item) == kind
                and js.job.preemptible
                and js.eligible >> to & 1
                and now - js.since >= self.rest
                and js.base <= now
                and (best is None or js.remaining(now) > best.remaining(now))
            ):
                best = js
        return best

    def _pays(self, now: int, state: TrainingState, gain: int, movers: list[JobState]) -> bool:
        ends = min(js.remaining(now) * REFERENCE_SPEED_PPM // js.speed for js in movers)
        costs = state.costs
        lost = sum(
            js.speed * js.width // WHOLE_GPU_MILLI * max(costs.of_migration(js.job), costs.of_preemption(js.job))
            for js in movers
        )
        return gain * ends > self.margin * lost
