"""One place decides for the whole fleet: batch, CPUs, slices and worker of each task, in time and at true cost.

Tasks stay in the pool until they run. When something is new for a function, ``Batching`` says who of its waiting tasks
runs together or waits for whom, by what all of them are then expected to cost; here the batch gets the best offer that
fits a worker with a warm process, or waits where waiting for room is cheaper. ``Warming`` has the processes ready,
``Admission`` gives up what cannot be answered in time. docs/serving/headway.md, "Configurations".
"""

from bisect import insort
from collections.abc import Iterator
from math import log

from headway.serving.actions import Action, DropRequest, RunBatch, WakeAt
from headway.serving.policies.headway.admission import Admission, Scarcity
from headway.serving.policies.headway.batching import Batching, Choice, Forecast, QueueEntry
from headway.serving.policies.headway.candidates import Candidate, Releases, best_fit
from headway.serving.policies.headway.offers import MISSED, CostTables, menus_of, worker_types_of
from headway.serving.policies.headway.warming import NEVER, Warming, carried, inputs_of, inputs_take, weights_take
from headway.serving.requeststate import RequestState, Stage
from headway.serving.state import ServingState
from headway.serving.workerstate import WorkerState
from headway.units import MILLISECOND, REFERENCE_SPEED_PPM, SECOND

RETRY = 500 * MILLISECOND
"""How long tasks without room wait at most before they are looked at again."""
LONGEST = 10 * SECOND
"""How long a task waits for companions at most."""
ASIDE = 8
"""How many tasks of a function may find no room before the others are not tried any more."""
SWEEP = 5 * MILLISECOND
"""How often a long queue is searched for what should be given up."""
COARSE = 1.5
"""Tables are made for arrivals a second of this to whole powers."""
KEPT = 12
"""Tables that are remembered."""
WORTH = 5.0
"""What an answer in time is worth, in costs of its graph at the cheapest."""
PATIENCE = 2.0
"""The deadline of requests without one, in lengths of their graph."""
SPARE = 2.0
"""Processes in hand, in deviations of the number that is busy."""
ODDS = 0.99
"""The share of what a miss costs that the rest of a request may be expected to cost while there is too little of
anything."""


class Central:
    """The central half of the policy."""

    def __init__(self, drop: bool = True) -> None:
        """``drop``: give up what is too late."""
        self.drop = drop

    def bind(self, state: ServingState) -> None:
        """Compute offers and tables; begin with empty memories."""
        graphs, functions = state.catalogue.graphs, range(len(state.catalogue.functions))
        self._menus = menus_of(state)
        self._worker_type = worker_types_of(state.fleet.workers)
        self._capable = [
            [
                worker.id
                for worker in state.workers
                if any(self._worker_type[worker.id] in menu.worker_types for menu in offers)
            ]
            for offers in self._menus
        ]
        cheapest = [float(offers[0].usd.min()) / offers[0].size if offers else 0.0 for offers in self._menus]
        self._worths = [WORTH * sum(cheapest[task.function] for task in graph.tasks) for graph in graphs]
        least = [min(row[function] for row in state.latency.base) for function in functions]
        self._grace = [
            round(PATIENCE * graph.critical_path([least[task.function] for task in graph.tasks])) for graph in graphs
        ]
        self._entries = [graph.entries for graph in graphs]
        calls = [
            (task.function, (index, at)) for index, graph in enumerate(graphs) for at, task in enumerate(graph.tasks)
        ]
        self._callers = [[caller for called, caller in calls if called == function] for function in functions]
        """By function: its tasks, as (graph, task)."""
        self._admission = Admission(state, self._menus)
        self._scarcity = Scarcity(WORTH)
        self._warming = Warming(state, self._capable, self._worths, SPARE)
        self._forecast = Forecast(state, self._grace)
        self._releases = Releases(len(state.workers))
        self._queues: list[list[QueueEntry]] = [[] for _ in functions]
        """By function: its tasks in the pool, tightest first."""
        self._late: list[list[QueueEntry]] = [[] for _ in functions]
        """Those that are answered late whatever is done, and are not dropped."""
        self._again = 0
        self._wakes = [0] * len(functions)
        self._swept = [-SWEEP] * len(functions)
        self._short: dict[int, None] = {}
        """Functions with tasks that found no room."""
        self._known: dict[tuple[float, float, int], list[Batching]] = {}
        self._renewed = 0
        self._renew(0, state)

    # --- an instant ---------------------------------------------------------------------------------------------

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Go on with every function for which something is new, the tightest first."""
        self._releases.invalidate()
        new = self._news(now, state)
        for request in state.landed:
            yield from self._warming.ensure_one(now, state, state.requests[request].request.graph)
        yield from self._warming.adjust(now, state, self._lacking())
        if self._scarcity.update(now, state) or now - self._renewed > SECOND:
            self._renew(now, state)
        waiting = [(self._queues[function][0].deadline, function) for function in new if self._queues[function]]
        for _, function in sorted(waiting):
            if self._queues[function]:
                yield from self._serve(now, state, function)
        if not self._short and not self._scarcity.is_scarce:
            for function, late in enumerate(self._late):
                if late:
                    yield from self._catch_up(now, state, function)
        if any(self._late) and self._again <= now and any(worker.up for worker in state.workers):
            self._again = now + RETRY
            yield WakeAt(self._again)

    def _lacking(self) -> set[int]:
        """Return the functions with tasks that wait for room or a process."""
        short = (function for function in self._short if self._queues[function])  # they may have been dropped since
        return {*short, *(function for function, late in enumerate(self._late) if late)}

    def _news(self, now: int, state: ServingState) -> dict[int, None]:
        """Return the functions that something is new for."""
        new: dict[int, None] = {}
        for request in state.landed:
            rs = state.requests[request]
            graph = rs.request.graph
            self._warming.on_request_arrived(now, graph)
            for task in self._entries[graph]:
                function = rs.graph.tasks[task].function
                self._forecast.on_request_arrived(now, graph, function, self._deadline(rs))
                self._join(rs, task)
                new[function] = None
        joined: set[tuple[int, int]] = set()
        for request, task in state.ended:
            if (found := state.requests.get(request)) is not None:
                for after in found.graph.successors[task]:
                    if found.stage[after] == Stage.READY and (request, after) not in joined:
                        joined.add((request, after))  # the last two of its predecessors may end at once
                        self._join(found, after)
                        new[found.graph.tasks[after].function] = None
        if state.displaced:
            self._start_over(state)
            new.update((function, None) for function, queue in enumerate(self._queues) if queue)
        if state.touched:
            new.update(self._short)
        new.update((function, None) for function, time in enumerate(self._wakes) if 0 < time <= now)
        return new

    def _deadline(self, rs: RequestState) -> int:
        given = rs.request
        return given.deadline or given.arrival + self._grace[given.graph]

    def _join(self, rs: RequestState, task: int) -> None:
        """Queue a task that is ready for its function."""
        function, request = rs.graph.tasks[task].function, rs.request.id
        self._forecast.on_task_ready(function, request, task)
        insort(self._queues[function], QueueEntry(self._deadline(rs), request, rs.request.graph, task))

    def _start_over(self, state: ServingState) -> None:
        """Read what waits from the pool again, because a worker is gone."""
        self._short.clear()
        for queue in (*self._queues, *self._late):
            queue.clear()
        for (_, task), requests in state.ready.items():
            for request in requests:
                self._join(state.requests[request], task)
        self._forecast.forget(set(state.displaced))

    def _renew(self, now: int, state: ServingState) -> None:
        """Have the tables for the rates and prices of today; those that were made lately are remembered."""
        self._renewed = now
        rates = [self._warming.rate(now, function) for function in range(len(self._menus))]
        total_per_second = sum(rates) * SECOND
        pace = round(log(total_per_second) / log(COARSE)) if total_per_second > 1e-3 else -NEVER
        key = (*self._scarcity.multipliers, pace)
        if (found := self._known.pop(key, None)) is None:
            waits = {
                (function, menu.size): (menu.size - 1) / 2 / rate if rate else float(NEVER)
                for function, rate in enumerate(rates)
                for menu in self._menus[function]
                if menu.size > 1
            }
            costs = CostTables(state, self._menus, self._worths, waits, self.drop, self._scarcity.multipliers)
            found = [Batching(offers, usd, costs) for offers, usd in zip(self._menus, costs.usd, strict=True)]
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
        self._known[key] = found
        self._batching = found

    # --- a function ---------------------------------------------------------------------------------------------

    def _serve(self, now: int, state: ServingState, function: int) -> Iterator[Action]:
        """Run what should run now; say when to look again at what waits."""
        batching, queue = self._batching[function], self._queues[function]
        self._wakes[function] = 0
        self._short.pop(function, None)
        yield from self._give_up(now, state, function)
        aside: list[QueueEntry] = []
        while queue and len(aside) < ASIDE:
            if next(self._usable_workers(state, function), None) is None:
                aside += queue[:ASIDE]
                del queue[:ASIDE]
                break
            choice = batching.choose(now, queue, self._forecast.upcoming(now, function) if len(queue) < ASIDE else ())
            if choice.until - now > LONGEST:
                choice = batching.choose(now, queue, ())  # nobody is worth such a wait, even to who is late anyway
            if choice.until > now:
                self._wakes[function] = choice.until
                break
            entries, action = self._fit_some(now, state, function, choice)
            for entry in entries:
                queue.remove(entry)
            if action is None:
                aside += entries
            else:
                yield action
                self._on_batch_started(now, state, function, action)
        if aside:
            self._short[function] = None
            self._warming.note_demand(now, function, len(aside) + len(queue))
            for entry in aside:
                insort(queue, entry)
            if not self._wakes[function] and any(state.workers[index].up for index in self._capable[function]):
                self._wakes[function] = now + RETRY
        if self._wakes[function]:
            yield WakeAt(self._wakes[function])

    def _give_up(self, now: int, state: ServingState, function: int) -> Iterator[Action]:
        """Drop or set apart the requests that wait in vain."""
        queue = self._queues[function]
        if len(queue) > ASIDE and now - self._swept[function] < SWEEP:
            return
        self._swept[function] = now
        ready_from, calm = self._warming.ready_from, not self._scarcity.is_scarce
        latest = max(self._admission.earliest(now, *caller, ready_from) for caller in self._callers[function])
        for entry in list(queue):
            if calm and entry.deadline >= latest:
                break  # the others have more time yet
            rs = state.requests.get(entry.request)
            if rs is None or not rs.request.deadline or not self._in_vain(now, function, entry):
                continue
            if not self.drop:
                queue.remove(entry)
                self._late[function].append(entry)
                continue
            for task, stage in enumerate(rs.stage):
                if stage == Stage.READY:
                    self._queues[rs.graph.tasks[task].function].remove(
                        QueueEntry(entry.deadline, entry.request, entry.graph, task)
                    )
            self._forecast.forget({entry.request})
            yield DropRequest(entry.request)

    def _catch_up(self, now: int, state: ServingState, function: int) -> Iterator[Action]:
        """Run those that are late at the least cost, while nobody else waits for room."""
        late, batching = self._late[function], self._batching[function]
        while late:
            count = max((size for size in batching.sizes if size <= len(late)), default=1)
            choice = Choice(tuple(late[:count]), batching.menu(count).usd, now)
            _, action = self._fit(now, state, function, choice, hurry=False)
            if action is None:
                return
            del late[:count]
            yield action
            self._on_batch_started(now, state, function, action)

    def _in_vain(self, now: int, function: int, entry: QueueEntry) -> bool:
        """Return whether a request misses its deadline anyway.

        Or, with too little for all, costs more than it is worth.
        """
        if self._admission.is_hopeless(now, entry.graph, entry.task, entry.deadline, self._warming.ready_from):
            return True
        if not self._scarcity.is_scarce:
            return False
        worth = self._worths[entry.graph] * (ODDS if entry.task in self._entries[entry.graph] else ODDS * MISSED)
        return self._batching[function].alone(entry, now) >= worth

    def _on_batch_started(self, now: int, state: ServingState, function: int, action: RunBatch) -> None:
        """Remember what a batch takes, and when its successors can run."""
        batch = state.workers[action.worker].running[state.leases]
        self._releases.invalidate((action.worker,))
        self._warming.on_batch_started(now, function, batch.end, len(batch.tasks))
        for request, task in batch.tasks:
            rs = state.requests[request]
            self._forecast.on_task_started(batch, rs, task, self._deadline(rs))

    # --- a batch ------------------------------------------------------------------------------------------------

    def _fit_some(
        self, now: int, state: ServingState, function: int, choice: Choice
    ) -> tuple[tuple[QueueEntry, ...], RunBatch | None]:
        """Return the chosen batch, or a smaller one where what is free does not suit so many.

        None: it is better to wait.
        """
        batching, entries = self._batching[function], choice.entries
        best, found = self._fit(now, state, function, choice)
        chosen = entries
        if best > choice.values.min():
            for size in (size for size in batching.sizes if size < len(entries)):
                values = batching.values(entries[:size], now)
                apart = sum(batching.alone(entry, now) for entry in entries[size:])
                if values.min() + apart < best:
                    value, action = self._fit(now, state, function, Choice(entries[:size], values, now))
                    if value + apart < best:
                        best, found, chosen = value + apart, action, entries[:size]
        waits = found is None or self._worth_waiting(now, state, function, choice, best)
        return (entries, None) if waits else (chosen, found)

    def _fit(
        self, now: int, state: ServingState, function: int, choice: Choice, *, hurry: bool = True
    ) -> tuple[float, RunBatch | None]:
        """Return the best offer that some worker has room for, and what that comes to; None: there is none."""
        batching, entries = self._batching[function], choice.entries
        menu = batching.menu(len(entries))
        candidates = self._candidate_workers(now, state, function, choice)
        best, found = float("inf"), None
        for delay in sorted({candidate.delay for candidate in candidates}):
            values = choice.values
            if delay:
                held = delay / menu.times * menu.usd
                values = batching.values(entries, now + delay) + held if hurry else choice.values + held
            here = [candidate for candidate in candidates if candidate.delay == delay]
            cpus = max(candidate.worker.cpus_free for candidate in here)
            slices = max(candidate.worker.slices_free for candidate in here)
            for offer in values.argsort(kind="stable").tolist():
                if values[offer] >= best:
                    break
                if menu.cpus[offer] > cpus or menu.slices[offer] > slices:
                    continue
                if (candidate := best_fit(here, menu, offer, self._worker_type)) is not None:
                    best, found = float(values[offer]), (offer, candidate)
                    break
        if found is None:
            return best, None
        offer, candidate = found
        tasks = tuple((entry.request, entry.task) for entry in entries)
        return best, RunBatch(candidate.worker.id, tasks, menu.cpus[offer], menu.slices[offer], candidate.evict)

    def _worth_waiting(self, now: int, state: ServingState, function: int, choice: Choice, value: float) -> bool:
        """Return whether the best offer is so much better that it pays to wait until there is room for it."""
        wanted = int(choice.values.argmin())
        if value <= choice.values[wanted]:
            return False
        batching = self._batching[function]
        menu = batching.menu(len(choice.entries))
        when = self._releases.room_at(now, state, function, menu, wanted, self._worker_type)
        return when < NEVER and value > batching.values(choice.entries, when)[wanted]

    def _usable_workers(self, state: ServingState, function: int) -> Iterator[WorkerState]:
        """Yield workers with CPUs and slices left where a process of a function waits for work, or none is needed."""
        bit, workers = 1 << function if state.catalogue.functions[function].cold_start else 0, state.workers
        for index in self._capable[function]:
            worker = workers[index]
            if worker.warm & bit == bit and worker.slices_free > 0 and worker.cpus_free > 0 and worker.up:
                yield worker

    def _candidate_workers(self, now: int, state: ServingState, function: int, choice: Choice) -> list[Candidate]:
        """Return workers that could take a batch, were it small enough."""
        kind = state.catalogue.functions[function]
        near = all(not carried(state, entry.graph, entry.task) for entry in choice.entries)
        needs_memory = bool(kind.mask or kind.activation_bytes)
        if near and not needs_memory and not state.latency.interference:
            return [Candidate(0, worker, ()) for worker in self._usable_workers(state, function)]
        time = int(self._batching[function].menu(len(choice.entries)).times[choice.values.argmin()])
        inputs = dict.fromkeys(each for entry in choice.entries for each in inputs_of(state, entry.request, entry.task))
        found = []
        for worker in self._usable_workers(state, function):
            evict = self._warming.victims(now, state, worker, function, len(choice.entries)) if needs_memory else ()
            if evict is None:
                continue
            delay = 0 if near else inputs_take(state, inputs, worker.id)
            if kind.mask:
                delay = max(delay, weights_take(now, state, worker, kind.mask))
            if state.latency.interference:
                beside = state.latency.beside(function, [batch.function for batch in worker.running.values()])
                delay += time * (beside - REFERENCE_SPEED_PPM) // REFERENCE_SPEED_PPM
            found.append(Candidate(max(delay, 0) // MILLISECOND * MILLISECOND, worker, evict))
        return found
