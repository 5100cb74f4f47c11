"""Headway: the division that delivers most, with nobody below their due, and no more disturbance than it is worth.

Departures from Synergy's tune and opt (Mohan et al., OSDI 2022): grants are cells of the whole matrix and what lies
between, each node is divided exactly (``water.py``), a job starts where the cluster gains most by it, jobs over several
nodes weigh what they take on each, and running jobs change places where that pays for the standstill (``exchanges.py``).
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar

import numpy as np

from headway.training.actions import Action, Grant, Placement, ReallocateJob
from headway.training.jobstate import JobState
from headway.training.policies.allocations.books import Book, Books, held, less, lower, more
from headway.training.policies.allocations.exchanges import Exchanges
from headway.training.policies.allocations.room import Room, part
from headway.training.policies.allocations.wants import carried_out, due_place
from headway.training.policies.allocations.water import IMPOSSIBLE
from headway.training.policies.parts import Allocation, PlacementRule
from headway.training.policies.placements.best_fit import BestFit
from headway.training.policies.placements.pick import gpus_of, on_node
from headway.training.pool import Demand, members
from headway.training.shares import times
from headway.training.state import TrainingState
from headway.units import MINUTE, WHOLE_GPU_MILLI, Duration


SPLIT = 1
HUNGER = 1.8
_REST = Duration(30 * MINUTE)


class Headway(Allocation):
    """What the cluster gains most by."""

    name: ClassVar[str] = "headway"

    def __init__(self, moves: int = 4, margin: float = 3.0, rest: Duration = _REST) -> None:
        self.moves = moves
        self.margin = margin
        self.rest = rest
        self._books: Books | None = None
        self._exchanges: Exchanges | None = None

    def bind(self, state: TrainingState) -> None:
        """Whose nodes are divided."""
        self._books = Books(state)
        self._exchanges = Exchanges(self._books, self.moves, self.margin, self.rest) if self.moves else None

    @property
    def books(self) -> Books:
        """What the nodes are asked for."""
        assert self._books is not None, "bind comes first"
        return self._books

    # --- where a job goes -------------------------------------------------------------------------------------

    def place(self, state: TrainingState, js: Demand, rule: PlacementRule) -> Placement | None:
        """The node where the cluster gains most by it; with a placement other than best fit, where that puts it."""
        job = state.jobs[js.id]
        if not job.gpus:
            return rule.place(state.pool, js)
        if type(rule) is not BestFit or job.gpu_milli != WHOLE_GPU_MILLI or job.nodes > 1:
            return due_place(state, self.books.beliefs.wants, job, rule)
        if job.gpus > state.pool.free_gpus:
            return None
        self.books.refresh()
        one = self._one_node(state, job)
        several = self._several(state, job) if job.gpus > 1 and job.nodes != 1 else None
        if several is not None and (one is None or several[0] > one[0]):
            return several[1]
        if one is None:  # what jobs over several nodes hold beyond their due may be in the way
            return due_place(state, self.books.beliefs.wants, job, rule)
        return one[1]

    def _one_node(self, state: TrainingState, js: JobState) -> tuple[int, Placement] | None:
        pool, books = state.pool, self.books
        best: tuple[int, int, int] | None = None
        for node in members(pool.with_free(js.gpus, js.eligible)):
            book = books.current(node)
            placement = on_node(pool, node, js.gpus) if js.job.communication_ppm else ((node, 1),)
            value = book.add(books.item(js, placement))
            if value > 0:
                key = (-value, pool.free_count[node], node)
                if best is None or key < best:
                    best = key
        return None if best is None else (-best[0], on_node(pool, best[2], js.gpus))

    def _several(self, state: TrainingState, js: JobState) -> tuple[int, Placement] | None:
        """GPUs of several nodes, where they cost the others there least."""
        pool, books = state.pool, self.books
        if pool.free_among(js.eligible) < js.gpus:
            return None
        there = [books.current(node) for node in members(pool.with_free(1, js.eligible))]
        best: tuple[int, Placement] | None = None
        for basin in dict.fromkeys(book.basin for book in there):
            alike = [book for book in there if book.basin is basin]
            if sum(pool.free_count[book.node] for book in alike) >= js.gpus:
                found = self._spread(state, js, alike)
                if found is not None and (best is None or found[0] > best[0]):
                    best = found
        return best

    def _spread(self, state: TrainingState, js: JobState, there: list[Book]) -> tuple[int, Placement] | None:
        """GPUs of several nodes of one kind: for each grant of its menu those that cost the others least."""
        pool = state.pool
        menu = self.books.menu(js, tuple((book.node, 1) for book in there[:2]))
        leave = SPLIT == 2 or (SPLIT == 3 and not any(state.jobs[lane.head[1]].gpus < js.gpus for lane in state.queue.lanes.values()))
        useful = menu.rates >= menu.speeds[0] * (0 if leave else HUNGER)
        if SPLIT == 0 or not useful.any():
            return None
        amounts, rates = menu.amounts[useful], menu.rates[useful]
        counts = np.array([min(js.gpus, pool.free_count[book.node]) for book in there])
        prices = np.empty((len(there), len(rates)), dtype=np.int64)
        for row, book in enumerate(there):
            prices[row] = book.gain - book.basin.gains(book.mark, book.spare, amounts * counts[row])
        taken = np.where(prices < -IMPOSSIBLE // 2, counts[:, None], 0)
        order = np.lexsort((-taken, prices // np.maximum(taken, 1) + (taken == 0) * -IMPOSSIBLE), axis=0)
        have = np.take_along_axis(taken, order, axis=0).cumsum(axis=0)
        lost = np.take_along_axis(prices, order, axis=0).cumsum(axis=0)
        last = (have >= js.gpus).argmax(axis=0)
        values = rates * (js.width * js.account.weight) // WHOLE_GPU_MILLI
        values -= np.take_along_axis(lost, last[None, :], axis=0)[0]
        values[have[-1] < js.gpus] = IMPOSSIBLE
        pick = int(values.argmax())
        if values[pick] <= 0:
            return None
        left, chosen = js.gpus, []
        for row in order[: last[pick] + 1, pick].tolist():
            count = min(left, int(taken[row, pick]))
            chosen.append((there[row].node, gpus_of(pool, there[row].node, count)))
            left -= count
        return int(values[pick]), tuple(chosen)

    # --- what it gets there -----------------------------------------------------------------------------------

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[list[ReallocateJob], Grant]:
        """Its part of the best division of its nodes; others give up what they would have to anyway."""
        if not js.gpus:
            return [], Grant(js.job.cpu_milli, js.job.memory_bytes)
        self.books.refresh()
        books = [self._but(state, node, js) for node, _ in placement]
        wanted = self._planned(state, js, placement, books)
        grant = wanted.pop(js.id)
        if Room(state.pool).fits(placement, js.gpus, grant):
            return [], grant
        given = []
        for job, target in wanted.items():
            if (lesser := lower(state.running[job].grant, target)) is not None:
                given.append(ReallocateJob(job, lesser))
        return given, grant

    def _but(self, state: TrainingState, node: int, js: JobState) -> Book:
        if js.id not in state.on_node[node]:
            return self.books.books[node]
        return self.books.without(node, [other for other in state.on_node[node].values() if other is not js])

    def _planned(self, state: TrainingState, js: JobState, placement: Placement, books: list[Book]) -> dict[int, Grant]:
        """What all jobs of some nodes are to hold when one more comes."""
        wanted: dict[int, Grant] = {}
        item = self.books.item(js, placement) if len(placement) == 1 else None
        while True:
            if item is not None:
                (book,) = books
                spare = less(book.spare, item.corner)
                picks = book.basin.picks(book.mark + item.mark, spare)
                if picks is not None:
                    return wanted | held([*book.jobs, (js, item)], picks)
            else:
                grant = self._choice(js, placement, books)
                if grant is not None:
                    wanted[js.id] = self.books.granted[js.id] = grant
                    for book, (_, mask) in zip(books, placement, strict=True):
                        spare = less(book.spare, part(grant, mask.bit_count(), js.gpus))
                        picks = book.basin.picks(book.mark, spare)
                        assert picks is not None
                        wanted |= held(book.jobs, picks)
                    return wanted
            if not self._squeeze(books, wanted):
                return self._dues(state, js, placement)

    def _squeeze(self, books: list[Book], wanted: dict[int, Grant]) -> bool:
        """Bring a job over several nodes that is here down to its due; False when all are."""
        for book in books:
            for js, count in book.wide:
                if js.id not in wanted:
                    before = self.books.granted.get(js.id, js.grant)
                    grant = wanted[js.id] = self.books.modest(js, js.placement)
                    self.books.regrant(js, grant)
                    for other in books:  # of nodes that the coming job itself is still on
                        if other is not self.books.books[other.node] and any(js is each for each, _ in other.wide):
                            freed = part(before, count, js.gpus)
                            other.spare = less(more(other.spare, freed), part(grant, count, js.gpus))
                    return True
        return False

    def _dues(self, state: TrainingState, js: JobState, placement: Placement) -> dict[int, Grant]:
        """Everybody on these nodes has their due."""
        due = self.books.beliefs.wants.due
        here = {id_: other for node, _ in placement for id_, other in state.on_node[node].items() if other.gpus}
        wanted = {id_: due(other, other.placement) for id_, other in here.items()}
        wanted[js.id] = due(js, placement)
        return wanted

    def _choice(
        self, js: JobState, placement: Placement, there: list[Book], holding: JobState | None = None
    ) -> Grant | None:
        """What a job over several nodes should hold, for the best of all there; ``holding``: it holds some already."""
        menu = self.books.menu(js, placement)
        before = self.books.granted.get(js.id, js.grant) if holding is not None else Grant(0, 0)
        totals = menu.rates * (js.width * js.account.weight) // WHOLE_GPU_MILLI
        for book, (_, mask) in zip(there, placement, strict=True):
            count = mask.bit_count()
            spare = more(book.spare, part(before, count, js.gpus))
            totals += book.basin.gains(book.mark, spare, menu.amounts * count)
        best = int(totals.argmax())
        return times(menu.grants[best], js.width) if totals[best] >= 0 else None

    # --- those that run ---------------------------------------------------------------------------------------

    def divide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """Nodes where somebody came or went, divided anew."""
        books = self.books
        books.refresh()
        if not books.dirty:
            return ()
        return self._divide(now, state)

    def _divide(self, now: int, state: TrainingState) -> Iterator[Action]:
        if self._exchanges is not None:
            yield from self._exchanges.decide(now, state)
            self.books.refresh()
        yield from carried_out(state, self._settled(state))

    def _settled(self, state: TrainingState) -> dict[int, Grant]:
        """What the jobs of all nodes that changed are to hold."""
        books = self.books
        wide = {js.id: js for node in sorted(books.dirty) for js, _ in books.books[node].wide}
        wanted: dict[int, Grant] = {}
        for js in wide.values():
            grant = self._choice(js, js.placement, [books.books[node] for node, _ in js.placement], js)
            assert grant is not None
            books.regrant(js, grant)
            wanted[js.id] = grant
        for node in sorted(books.dirty):
            book = books.books[node]
            picks = book.basin.picks(book.mark, book.spare)
            if picks is None:
                due = books.beliefs.wants.due
                wanted |= {js.id: due(js, js.placement) for js, _ in book.jobs}
            else:
                wanted |= held(book.jobs, picks)
        books.dirty.clear()
        return wanted
