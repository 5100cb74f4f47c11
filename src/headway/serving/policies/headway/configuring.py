"""One place decides for the whole fleet: batch, CPUs, slices and worker of each task, against the deadline at true cost.

Tasks stay in the pool until they run. When something is new for a function, ``Batching`` says who of its waiting tasks
runs together or waits for whom, by what all of them are then expected to cost; here the batch gets the best offer that
fits a worker with a warm process, or waits where waiting for room is cheaper. ``Warming`` has the processes ready,
``Admission`` gives up what cannot be answered in time. docs/serving/headway.md, "Configurations".
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from math import log

from headway.serving.actions import Action, DropRequest, RunBatch, WakeAt
from headway.serving.policies.headway.admission import Admission, Scarcity
from headway.serving.policies.headway.batching import Batching, Choice, Lot
from headway.serving.policies.headway.offers import Menu, Outlook, makes_of, menus_of
from headway.serving.fleet import FREE, places
from headway.serving.policies.headway.warming import Warming
from headway.serving.requeststate import RequestState, Stage
from headway.serving.state import ServingState
from headway.serving.workerstate import WorkerState
from headway.units import MILLISECOND, SECOND

SOON = 2 * MILLISECOND
"""What is overdue is expected within this."""
RETRY = 500 * MILLISECOND
"""How long tasks without room wait at most before they are looked at again."""
NEVER = 1 << 62
ASIDE = 8
"""How many tasks of a function may find no room before the others are not tried any more."""
COARSE = 1.5
"""Tables are made for rates of this to whole powers."""
KEPT = 24
"""Tables that are remembered."""
RANK = lambda s, c: abs(s * 16 - c * 7)


class Configuring:
    """The central half of the policy."""

    def __init__(self, drop: bool = True, worth: float = 5.0, patience: float = 2.0, spare: float = 2.0, scarcity: bool = True, waitroom: int = 1, valdrop: float=0.99, dear: float = 1.0) -> None:
        """``drop``: give up what is too late. ``worth``: what an answer in time is worth, in costs of its graph at the
        cheapest. ``patience``: the deadline of requests without one, in lengths of their graph. ``spare``: processes
        in hand, in deviations of the number that is busy."""
        self.drop = drop
        self.worth = worth
        self.patience = patience
        self.spare = spare
        self.scarcity = scarcity
        self.waitroom = waitroom
        self.valdrop=valdrop; self.dear=dear

    def bind(self, state: ServingState) -> None:
        """Offers, tables and empty memories."""
        catalogue = state.catalogue
        functions = len(catalogue.functions)
        self._menus = menus_of(state)
        _, self._make = makes_of(state.fleet.workers)
        self._capable = [
            [worker.id for worker in state.workers if any(self._make[worker.id] in menu.makes for menu in offers)]
            for offers in self._menus
        ]
        self._worths = [
            self.worth * sum(float((self._menus[task.function][0].usd / self._menus[task.function][0].size).min()) for task in graph.tasks)
            for graph in catalogue.graphs
        ]
        least = [min(row[index] for row in state.latency.base) for index in range(functions)]
        self._grace = [
            round(self.patience * graph.critical_path([least[task.function] for task in graph.tasks]))
            for graph in catalogue.graphs
        ]
        self._entries = [graph.entries for graph in catalogue.graphs]
        self._openers: list[list[tuple[int, int]]] = [[] for _ in range(functions)]
        for index, graph in enumerate(catalogue.graphs):
            for position in graph.entries:
                self._openers[graph.tasks[position].function].append((index, position))
        self._admission = Admission(state, self._menus)
        self._warming = Warming(state, self._capable, self._worths, self.spare)
        self._scarcity = Scarcity(self.worth*self.dear)
        self._queues: list[list[Lot]] = [[] for _ in range(functions)]
        self._coming: list[dict[tuple[int, int], Lot]] = [{} for _ in range(functions)]
        self._gaps: list[float] = [0.0] * functions
        self._latest: list[int] = [-1] * functions
        self._allowed = list(self._grace)
        self._wakes: list[int] = [0] * functions
        self._short: dict[int, int] = {}
        self._known: dict[tuple, list[Batching | None]] = {}
        self._looked = 0
        self._renew(0, state)

    # --- an instant ---------------------------------------------------------------------------------------------

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Go on with every function for which something is new."""
        new = self._news(now, state)
        for request in state.landed:
            if request in state.requests:
                yield from self._warming.first(now, state, state.requests[request].request.graph)
        yield from self._warming.look(now, state, self._short)
        changed = self.scarcity and self._scarcity.look(now, state, sum(len(self._queues[f]) for f in self._short))
        if changed or now - self._looked > SECOND:
            self._looked = now
            self._renew(now, state)
        for _, function in sorted((self._queues[function][0].deadline, function) for function in new if self._queues[function]):
            yield from self._go_on(now, state, function)

    def _news(self, now: int, state: ServingState) -> dict[int, None]:
        """The functions that something is new for."""
        new: dict[int, None] = {}
        for request in state.landed:
            rs = state.requests[request]
            graph = rs.request.graph
            self._warming.landed(now, graph)
            if rs.request.deadline:
                allowed = self._allowed[graph]
                self._allowed[graph] += round(0.1 * (rs.request.deadline - now - allowed))
            for task in self._entries[graph]:
                function = self._join(rs, task)
                if self._latest[function] >= 0:
                    gap = now - self._latest[function]
                    known = self._gaps[function]
                    self._gaps[function] = gap if not known else known + 0.1 * (gap - known)
                self._latest[function] = now
                new[function] = None
        for request, task in state.ended:
            found = state.requests.get(request)
            if found is not None:
                for after in found.graph.successors[task]:
                    if found.stage[after] == Stage.READY:
                        function = self._join(found, after)
                        self._coming[function].pop((request, after), None)
                        new[function] = None
        if state.displaced:
            self._start_over(state)
            new.update((function, None) for function, queue in enumerate(self._queues) if queue)
        if state.touched or state.displaced:
            new.update(dict.fromkeys(self._short))
        new.update((function, None) for function, time in enumerate(self._wakes) if 0 < time <= now)
        return new

    def _join(self, rs: RequestState, task: int) -> int:
        """A task is ready: it queues for its function."""
        function = rs.graph.tasks[task].function
        insort(self._queues[function], Lot(self._deadline(rs), rs.request.id, rs.request.graph, task))
        return function

    def _start_over(self, state: ServingState) -> None:
        """A worker is gone: what waits and what comes is read from the state again."""
        for queue in self._queues:
            queue.clear()
        for (_, task), requests in state.ready.items():
            for request in requests:
                self._join(state.requests[request], task)
        lost = set(state.displaced)
        for function, coming in enumerate(self._coming):
            self._coming[function] = {key: lot for key, lot in coming.items() if key[0] not in lost}

    def _deadline(self, rs: RequestState) -> int:
        given = rs.request
        return given.deadline or given.arrival + self._grace[given.graph]

    def _renew(self, now: int, state: ServingState) -> None:
        """Have the tables for the rates and prices of today; those that were made lately are remembered."""
        rates = [self._warming.rate(now, function) for function in range(len(self._menus))]
        total = sum(rates) * SECOND
        key = (*self._scarcity.steps, round(log(total) / log(COARSE)) if total > 1e-3 else NEVER)
        found = self._known.pop(key, None)
        if found is None:
            waits = {}
            for function, rate in enumerate(rates):
                for menu in self._menus[function]:
                    if menu.size > 1:
                        waits[function, menu.size] = (menu.size - 1) / 2 / rate if rate else float(NEVER)
            outlook = Outlook(state, self._menus, self._worths, waits, self.drop, self._scarcity.worth)
            found = [Batching(offers, usd, outlook) if offers else None for offers, usd in zip(self._menus, outlook.usd, strict=True)]
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
        self._known[key] = found
        self._batching = found

    # --- a function -------------------------------------------------------------------------------------------------

    def _go_on(self, now: int, state: ServingState, function: int) -> Iterator[Action]:
        """Run what should run now; say when to look again at what waits."""
        batching = self._batching[function]
        assert batching is not None
        self._wakes[function] = 0
        self._short.pop(function, None)
        queue = self._queues[function]
        if self.drop:
            for lot in [lot for lot in queue if self._given_up(now, state, lot)]:
                queue.remove(lot)
                if lot.request in state.requests:
                    yield DropRequest(lot.request)
        aside: list[Lot] = []
        while queue:
            choice = batching.choose(now, queue, self._companions(now, state, function))
            if choice.until > now:
                self._wakes[function] = choice.until
                yield WakeAt(choice.until)
                break
            action = self._fit(now, state, function, choice)
            for lot in choice.lots:
                queue.remove(lot)
            if action is not None:
                yield action
                self._note(state, function, action)
                continue
            aside += choice.lots
            if len(aside) >= ASIDE:
                break
        if aside:
            for lot in aside:
                insort(queue, lot)
            self._short[function] = len(aside)
            if not self._wakes[function] and any(state.workers[index].up for index in self._capable[function]):
                self._wakes[function] = now + RETRY
                yield WakeAt(now + RETRY)

    def _given_up(self, now: int, state: ServingState, lot: Lot) -> bool:
        """Whether a task shall not run any more."""
        rs = state.requests.get(lot.request)
        if rs is None:
            return True
        if not rs.request.deadline:
            return False
        if self._admission.hopeless(now, lot.graph, lot.task, lot.deadline, self._warming.there):
            return True
        return self._scarcity.steps != (0, 0) and self._batching[rs.graph.tasks[lot.task].function].alone(lot, now) >= self.valdrop * self._worths[lot.graph]

    def _companions(self, now: int, state: ServingState, function: int) -> list[Lot]:
        """Tasks that will join those that wait: whose predecessors run, and as many as are expected to arrive."""
        found = []
        coming = self._coming[function]
        for key, lot in list(coming.items()):
            if key[0] not in state.requests:
                del coming[key]
            else:
                found.append(lot if lot.when > now else lot._replace(when=now + SOON))
        openers = self._openers[function]
        gap = self._gaps[function]
        if openers and gap and state.to_come:
            since = now - self._latest[function]
            gap = max(gap, since - gap)
            for step in range(1, 8):
                graph, task = openers[step % len(openers)]
                when = now + round(gap * step)
                found.append(Lot(when + self._allowed[graph], -1, graph, task, when))
        found.sort(key=lambda lot: lot.when)
        return found

    def _note(self, state: ServingState, function: int, action: RunBatch) -> None:
        """Remember when the successors of a batch can run."""
        batch = state.workers[action.worker].running[state.leases]
        self._warming.ran(function, batch.end - batch.began, len(batch.tasks))
        for request, task in batch.tasks:
            rs = state.requests[request]
            for after in rs.graph.successors[task]:
                others = rs.graph.predecessors[after]
                if all(rs.stage[other] >= Stage.RUNNING for other in others):
                    target = rs.graph.tasks[after].function
                    lot = Lot(self._deadline(rs), request, rs.request.graph, after, batch.end)
                    known = self._coming[target].get((request, after))
                    self._coming[target][request, after] = lot if known is None or known.when < lot.when else known

    # --- a batch ----------------------------------------------------------------------------------------------------

    def _fit(self, now: int, state: ServingState, function: int, choice: Choice) -> RunBatch | None:
        """The best offer that some worker has room for; None: it is better to wait, or there is none."""
        batching = self._batching[function]
        assert batching is not None
        menu = batching.menu(len(choice.lots))
        rooms = self._rooms(now, state, function, choice.lots)
        best, found = float("inf"), None
        for delay in sorted({room[0] for room in rooms}):
            values = choice.values
            if delay:
                values = batching.values(choice.lots, now + delay) + delay / menu.times * menu.usd
            here = [room for room in rooms if room[0] == delay]
            for offer in values.argsort(kind="stable").tolist():
                if values[offer] >= best:
                    break
                worker = self._roomiest(here, menu, offer)
                if worker is not None:
                    best, found = float(values[offer]), (offer, worker)
                    break
        if found is None:
            return None
        if self.waitroom and best > choice.values.min() * 1.000001 and (self.waitroom == 1 or self._scarcity.steps == (0, 0)):
            offer = int(choice.values.argmin())
            when = self._room_at(now, state, function, menu, offer)
            if when < NEVER and best > batching.values(choice.lots, when)[offer]:
                return None
        offer, worker = found
        tasks = tuple((lot.request, lot.task) for lot in choice.lots)
        evict = self._victims(state, worker, function, len(tasks))
        return RunBatch(worker.id, tasks, menu.cpus[offer], menu.slices[offer], evict)

    def _rooms(self, now, state, function, lots):
        """Workers with a process: (delay, slices free, CPUs free, worker)."""
        kind = state.catalogue.functions[function]
        found = []
        for index in self._capable[function]:
            worker = state.workers[index]
            if worker.up and worker.slices_free and worker.cpus_free and (not kind.cold_start or worker.idle.get(function)):
                found.append((0, worker.slices_free, worker.cpus_free, worker))
        return found

    def _roomiest(self, rooms, menu, offer):
        cpus, slices, make = menu.cpus[offer], menu.slices[offer], menu.makes[offer]
        best, found = None, None
        for _, slices_free, cpus_free, worker in rooms:
            if slices_free < slices or cpus_free < cpus or self._make[worker.id] != make:
                continue
            if worker.worker.gpu.geometry != FREE and places(worker.worker.gpu, slices, worker.taken) is None:
                continue
            rank = RANK(slices_free-slices, cpus_free-cpus)
            if best is None or rank < best:
                best, found = rank, worker
        return found

    def _room_at(self, now: int, state: ServingState, function: int, menu: Menu, offer: int) -> int:
        """When a worker with a process has room for an offer, if nobody else takes it."""
        cpus, slices, make = menu.cpus[offer], menu.slices[offer], menu.makes[offer]
        best = NEVER
        for index in self._capable[function]:
            worker = state.workers[index]
            if self._make[index] != make or not worker.up:
                continue
            cpus_free, taken, warm = worker.cpus_free, worker.taken, bool(worker.idle.get(function))
            for batch in sorted(worker.running.values(), key=lambda batch: batch.end):
                cpus_free += batch.cpus
                taken &= ~batch.mask
                warm = warm or batch.function == function
                if batch.end >= best:
                    break
                if warm and cpus_free >= cpus and places(worker.worker.gpu, slices, taken) is not None:
                    best = max(batch.end, now + SOON)
                    break
        return best

    def _victims(self, state, worker, function, count):
        return ()
