"""Central half of the policy: choose batch, CPUs, slices and worker of each task for the whole fleet, at least cost.

Tasks stay in a pool until they run. When something changed for a function, ``Batching`` chooses which of its waiting
tasks run together, and whether they wait for more, by expected cost. This module gives the batch the best offer that
fits on a worker with a warm process, or lets it wait where that is cheaper. ``Warming`` keeps processes ready.
``Admission`` tells which requests cannot be answered in time.
See docs/reference/policies/fleet/headway.md, "Configurations".
"""

from collections.abc import Iterator
from math import log

from headway.fleet.model.actions import Action, DropRequest, RunBatch, WakeAt
from headway.fleet.policies.central.forming import FormedBatches
from headway.fleet.policies.headway.central.admission import Admission, ShadowPrices
from headway.fleet.policies.headway.central.batching import Batching, Choice, Forecast, QueueEntry
from headway.fleet.policies.headway.central.candidates import Candidate, Releases, best_fit
from headway.fleet.policies.headway.central.due import DueOrder
from headway.fleet.policies.headway.central.offers import MISSED, CostTables, menus_of, worker_types_of
from headway.fleet.policies.headway.central.warming import NEVER, Warming, carried, inputs_of, inputs_take, weights_take
from headway.fleet.policies.headway.worker.crowding import Crowding
from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import WorkerState
from headway.units import MILLISECOND, REFERENCE_SPEED_PPM, SECOND, Duration

RETRY = 500 * MILLISECOND
"""Tasks that fit on no worker are tried again after this, at the latest."""
LONGEST = Duration(10 * SECOND)
"""The longest time that a task waits for others to fill its batch."""
ASIDE = 8
"""After this many tasks of a function that fit on no worker, the rest of its queue is not tried."""
SWEEP = 5 * MILLISECOND
"""The least time between two searches of a long queue for hopeless requests."""
COARSE = 1.5
"""Cost tables are made for arrival rates that are whole powers of this, in requests a second."""
KEPT = 12
"""How many cost tables are cached."""
WORTH = 5.0
"""Value of an answer in time, as a multiple of the least cost of its graph."""
PATIENCE = 2.0
"""Deadline of requests that have none, as a multiple of their graph's critical path."""
SPARE = 2.0
"""Spare processes, in standard deviations of the number that is busy."""
ODDS = 0.99
"""While CPUs or slices are scarce, a request whose expected cost exceeds this part of its value is given up."""


class Central:
    """Decides for all workers at once."""

    def __init__(self, drop: bool = True, max_delay: int = LONGEST, *, feedback: bool = False) -> None:
        """Store the options. ``drop``: drop requests that are too late. ``feedback``: learn which batches form."""
        self.drop = drop
        self.max_delay = max_delay
        self.feedback = feedback

    def bind(self, state: ServingState) -> None:
        """Compute offers and cost tables; start with empty queues."""
        graphs, functions = state.catalogue.graphs, range(len(state.catalogue.functions))
        self._menus = menus_of(state)
        self._worker_type = worker_types_of(state.fleet.workers)
        types = [set().union(*(menu.worker_types for menu in offers)) for offers in self._menus]
        self._capable = [[w.id for w in state.workers if self._worker_type[w.id] in able] for able in types]
        cheapest = [float(offers[0].usd.min()) / offers[0].size if offers else 0.0 for offers in self._menus]
        self._worths = [WORTH * sum(cheapest[task.function] for task in graph.tasks) for graph in graphs]
        least = [min(row[function] for row in state.latency.base) for function in functions]
        paths = [graph.critical_path([least[task.function] for task in graph.tasks]) for graph in graphs]
        self._grace = [round(PATIENCE * path) for path in paths]
        self._entries = [graph.entries for graph in graphs]
        self._callers: list[list[tuple[int, int]]] = [[] for _ in functions]
        """By function: its tasks, as (graph, task)."""
        for index, graph in enumerate(graphs):
            for at, task in enumerate(graph.tasks):
                self._callers[task.function].append((index, at))
        self._crowding = Crowding(state.catalogue)
        self._least_slices = [0 if kind.on_cpus else 1 for kind in state.catalogue.functions]
        sizes = [[menu.size for menu in offers] for offers in self._menus]
        self._formed = FormedBatches(graphs, sizes) if self.feedback else None
        self._admission = Admission(state, self._menus)
        self._prices = ShadowPrices(WORTH)
        self._warming = Warming(state, self._capable, self._worths, SPARE)
        self._forecast = Forecast(state, self._grace)
        self._releases = Releases(len(state.workers))
        self._queues: list[list[QueueEntry]] = [[] for _ in functions]
        """By function: its waiting tasks, earliest deadline first, less the head start of a priority."""
        self._late: list[list[QueueEntry]] = [[] for _ in functions]
        """By function: tasks that will be late whatever is done, and are not dropped."""
        self._order = DueOrder(state)
        self._again = 0
        self._wakes = [0] * len(functions)
        self._swept = [-SWEEP] * len(functions)
        self._short: dict[int, None] = {}
        """Functions with tasks that fitted on no worker."""
        self._known: dict[tuple[float, float, int, tuple[int, ...]], list[Batching]] = {}
        self._renewed = 0
        self.states_evaluated = 0
        """Offers that were looked at."""
        self._renew(0, state)

    # --- an instant ---------------------------------------------------------------------------------------------

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Yield the actions of an instant: serve every function with something new, earliest deadline first."""
        self._releases.invalidate()
        new = self._news(now, state)
        for request in state.landed:
            yield from self._warming.ensure_one(now, state, state.requests[request].request.graph)
        yield from self._warming.adjust(now, state, self._lacking())
        if self._prices.update(now, state) or now - self._renewed > SECOND:
            self._renew(now, state)
        waiting = [(self._order.due(self._queues[function][0]), function) for function in new if self._queues[function]]
        for _, function in sorted(waiting):
            if self._queues[function]:
                yield from self._serve(now, state, function)
        if not self._short and not self._prices.are_raised:
            for function, late in enumerate(self._late):
                if late:
                    yield from self._catch_up(now, state, function)
        if any(self._late) and self._again <= now and any(worker.up for worker in state.workers):
            self._again = now + RETRY
            yield WakeAt(self._again)

    def _lacking(self) -> set[int]:
        """Return the functions with tasks that wait for a worker or a process."""
        short = (function for function in self._short if self._queues[function])  # they may have been dropped since
        return {*short, *(function for function, late in enumerate(self._late) if late)}

    def _news(self, now: int, state: ServingState) -> dict[int, None]:
        """Queue the tasks that became ready; return the functions for which something changed."""
        new: dict[int, None] = {}
        for request in state.landed:
            rs = state.requests[request]
            graph = rs.request.graph
            self._order.note(rs.request)
            self._warming.on_request_arrived(now, graph)
            for task in self._entries[graph]:
                function = rs.graph.tasks[task].function
                self._forecast.on_request_arrived(now, graph, function, self._deadline(rs))
                self._join(rs, task)
                new[function] = None
        joined: set[tuple[int, int]] = set()
        for request, task in state.ended:
            if (open_request := state.requests.get(request)) is None:
                self._order.forget(request)
            else:
                for after in open_request.graph.successors[task]:
                    if open_request.stage[after] == Stage.READY and (request, after) not in joined:
                        joined.add((request, after))  # the last two of its predecessors may end at once
                        self._join(open_request, after)
                        new[open_request.graph.tasks[after].function] = None
        if state.displaced:
            self._start_over(state)
            new.update((function, None) for function, queue in enumerate(self._queues) if queue)
        if state.touched:
            new.update(self._short)
        new.update((function, None) for function, time in enumerate(self._wakes) if 0 < time <= now)
        return new

    def _deadline(self, rs: RequestState) -> int:
        request = rs.request
        return request.deadline or request.arrival + self._grace[request.graph]

    def _join(self, rs: RequestState, task: int) -> None:
        """Put a task that is ready into the queue of its function."""
        function, request = rs.graph.tasks[task].function, rs.request.id
        self._forecast.on_task_ready(function, request, task)
        self._order.insert(self._queues[function], QueueEntry(self._deadline(rs), request, rs.request.graph, task))

    def _start_over(self, state: ServingState) -> None:
        """Fill the queues again from the pool, because a worker failed."""
        self._short.clear()
        for queue in (*self._queues, *self._late):
            queue.clear()
        for (_, task), requests in state.ready.items():
            for request in requests:
                self._join(state.requests[request], task)
        self._forecast.forget(set(state.displaced))

    def _renew(self, now: int, state: ServingState) -> None:
        """Set the cost tables for the current arrival rates and prices, from the cache where they are there."""
        self._renewed = now
        rates = [self._warming.rate(now, function) for function in range(len(self._menus))]
        total_per_second = sum(rates) * SECOND
        rate_step = round(log(total_per_second) / log(COARSE)) if total_per_second > 1e-3 else -NEVER
        most = self._formed.by_function() if self._formed is not None else ()
        key = (*self._prices.multipliers, rate_step, most)
        if (batching := self._known.pop(key, None)) is None:
            waits = {
                (function, menu.size): (menu.size - 1) / 2 / rate if rate else float(NEVER)
                for function, rate in enumerate(rates)
                for menu in self._menus[function]
                if menu.size > 1
            }
            waits |= {key: float(NEVER) for key in waits if most and key[1] > most[key[0]]}
            costs = CostTables(state, self._menus, self._worths, waits, self.drop, self._prices.multipliers)
            batching = [Batching(offers, usd, costs) for offers, usd in zip(self._menus, costs.usd, strict=True)]
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
        self._known[key] = batching
        self._batching = batching

    # --- a function ---------------------------------------------------------------------------------------------

    def _serve(self, now: int, state: ServingState, function: int) -> Iterator[Action]:
        """Yield the batches of a function that should run now, and when to try the rest again."""
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
            self.states_evaluated += batching.offers
            if choice.until - now > self.max_delay:
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
                self._order.insert(queue, entry)
            if not self._wakes[function] and any(state.workers[index].up for index in self._capable[function]):
                self._wakes[function] = now + RETRY
        if self._wakes[function]:
            yield WakeAt(self._wakes[function])

    def _give_up(self, now: int, state: ServingState, function: int) -> Iterator[Action]:
        """Drop, or set apart, the requests of a queue that are not worth running."""
        queue = self._queues[function]
        if len(queue) > ASIDE and now - self._swept[function] < SWEEP:
            return
        self._swept[function] = now
        ready_from, plentiful = self._warming.ready_from, not self._prices.are_raised
        latest = max(self._admission.earliest(now, *caller, ready_from) for caller in self._callers[function])
        for entry in list(queue):
            if plentiful and self._order.due(entry) >= latest:
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
            self._order.forget(entry.request)
            yield DropRequest(entry.request)

    def _catch_up(self, now: int, state: ServingState, function: int) -> Iterator[Action]:
        """Run late tasks at the least cost, while no other task waits for a worker."""
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
        """Return whether a request misses its deadline anyway or, under scarcity, costs more than its value."""
        if self._admission.is_hopeless(now, entry.graph, entry.task, entry.deadline, self._warming.ready_from):
            return True
        if not self._prices.are_raised:
            return False
        worth = self._worths[entry.graph] * (ODDS if entry.task in self._entries[entry.graph] else ODDS * MISSED)
        return self._batching[function].alone(entry, now) >= worth

    def _on_batch_started(self, now: int, state: ServingState, function: int, action: RunBatch) -> None:
        """Note what a started batch takes, and when its successors can run."""
        batch = state.workers[action.worker].running[state.leases]
        self._releases.invalidate((action.worker,))
        self._warming.on_batch_started(now, function, batch.end, len(batch.tasks))
        for request, task in batch.tasks:
            rs = state.requests[request]
            if self._formed is not None:
                self._formed.on_formed((rs.request.graph, task), len(batch.tasks), 1)
            self._forecast.on_task_started(batch, rs, task, self._deadline(rs))

    # --- a batch ------------------------------------------------------------------------------------------------

    def _fit_some(
        self, now: int, state: ServingState, function: int, choice: Choice
    ) -> tuple[tuple[QueueEntry, ...], RunBatch | None]:
        """Return the entries of the chosen batch, or of a smaller one that fits better, and its action.

        No action: it is better to wait.
        """
        batching, entries = self._batching[function], choice.entries
        best, best_action = self._fit(now, state, function, choice)
        chosen = entries
        if best > choice.values.min():
            for size in (size for size in batching.sizes if size < len(entries)):
                values = batching.values(entries[:size], now)
                apart = sum(batching.alone(entry, now) for entry in entries[size:])
                if values.min() + apart < best:
                    value, action = self._fit(now, state, function, Choice(entries[:size], values, now))
                    if value + apart < best:
                        best, best_action, chosen = value + apart, action, entries[:size]
        waits = best_action is None or self._worth_waiting(now, state, function, choice, best)
        return (entries, None) if waits else (chosen, best_action)

    def _fit(
        self, now: int, state: ServingState, function: int, choice: Choice, *, hurry: bool = True
    ) -> tuple[float, RunBatch | None]:
        """Return the cost of the best offer that fits on some worker, and its action; None: no offer fits."""
        batching, entries = self._batching[function], choice.entries
        menu = batching.menu(len(entries))
        candidates = self._candidate_workers(now, state, function, choice)
        best, best_offer = float("inf"), None
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
                    best, best_offer = float(values[offer]), (offer, candidate)
                    break
        if best_offer is None:
            return best, None
        offer, candidate = best_offer
        tasks = tuple((entry.request, entry.task) for entry in entries)
        return best, RunBatch(candidate.worker.id, tasks, menu.cpus[offer], menu.slices[offer], candidate.evict)

    def _worth_waiting(self, now: int, state: ServingState, function: int, choice: Choice, value: float) -> bool:
        """Return whether it is cheaper to wait until the best offer fits on a worker."""
        wanted = int(choice.values.argmin())
        if value <= choice.values[wanted] or state.catalogue.functions[function].generate is not None:
            return False  # an engine is not less crowded for who waits outside
        batching = self._batching[function]
        menu = batching.menu(len(choice.entries))
        when = self._releases.room_at(now, state, function, menu, wanted, self._worker_type)
        return when < NEVER and value > batching.values(choice.entries, when)[wanted]

    def _usable_workers(self, state: ServingState, function: int) -> Iterator[WorkerState]:
        """Yield workers with free CPUs and slices and an idle process of a function, where it needs one."""
        bit, workers = 1 << function if state.catalogue.functions[function].cold_start else 0, state.workers
        least = self._least_slices[function]
        for index in self._capable[function]:
            worker = workers[index]
            if worker.warm & bit == bit and worker.slices_free >= least and worker.cpus_free > 0 and worker.up:
                yield worker

    def _candidate_workers(self, now: int, state: ServingState, function: int, choice: Choice) -> list[Candidate]:
        """Return the workers that could take a batch if it is small enough."""
        kind = state.catalogue.functions[function]
        near = all(not carried(state, entry.graph, entry.task) for entry in choice.entries)
        needs_memory = bool(kind.mask or kind.activation_bytes)
        if near and not needs_memory and not state.latency.interference:
            return [Candidate(0, worker, ()) for worker in self._usable_workers(state, function)]
        time = int(self._batching[function].menu(len(choice.entries)).times[choice.values.argmin()])
        inputs = dict.fromkeys(
            source for entry in choice.entries for source in inputs_of(state, entry.request, entry.task)
        )
        candidates = []
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
            delay += self._crowding.delay(worker, function)
            candidates.append(Candidate(max(delay, 0) // MILLISECOND * MILLISECOND, worker, evict))
        return candidates
