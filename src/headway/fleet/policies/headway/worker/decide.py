"""Decentralised half of the policy: every worker decides for itself, with its own view of the others.

An instant has four parts. Requests that arrived, or lost tasks, are planned by the worker that they reached. The worker
where a task ended reconsiders where its successors go. Workers with a queue look for others with free capacity. Then
each worker where something changed starts batches and fetches models ahead.
"""

from collections.abc import Iterator, Sequence

from headway.fleet.model.actions import Action, DropRequest, MoveTask, PlaceRequest, RunBatch
from headway.fleet.policies.headway.worker.batch import choose
from headway.fleet.policies.headway.worker.order import FleetTables, Mix, Order
from headway.fleet.policies.headway.worker.placing import Placer
from headway.fleet.policies.headway.worker.recovery import Recovery
from headway.fleet.policies.headway.worker.residency import Processes, Residency
from headway.fleet.policies.headway.worker.views import Plan
from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import TaskId, WorkerState
from headway.units import MILLISECOND

LOOK_AGAIN = 20 * MILLISECOND
"""A worker with a queue reads the others' rows again after this, or with their next push."""
HOPE = 1.0
"""A request is started if it is expected to be late by at most this multiple of its best time: estimates err."""
_TRIED = 4
"""How many tasks of a queue are tried when the first does not fit into memory."""


class Decentralised:
    """Decides for each worker with that worker's view."""

    def __init__(self, evict: str, prefetch: int, *, drop: bool) -> None:
        self.evict = evict
        self.prefetch = prefetch
        self.drop = drop

    def bind(self, state: ServingState) -> None:
        """Compute the tables; start without plans."""
        self._tables = FleetTables(state)
        self._mixes = [Mix(self._tables) for _ in state.workers]
        self._order = Order(self._tables)
        self._placer = Placer(state, self._tables, self._mixes, ahead=self.prefetch > 0)
        self._residency = Residency(self.evict, self.prefetch, self._tables, self._mixes)
        self._processes = Processes(self._tables, self._mixes)
        self._recovery = Recovery()
        self._plans: dict[int, Plan] = {}
        self._looked = [-1] * len(state.workers)
        self.states_evaluated = 0
        """Places for a task that plans have looked at."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Yield the actions of an instant: plan requests, move tasks, serve workers."""
        if self._tables.version != state.latency.version:
            self._tables.follow(state)
        for request in state.landed:
            rs = state.requests[request]
            self._mixes[rs.request.ingress].note(rs.request.graph)
            yield from self._start_processes_here(now, state.workers[rs.request.ingress], rs.request.graph)
        for request in self._recovery.to_plan(state):
            yield from self._place(now, state, state.requests[request])
        for request, task in state.ended:
            yield from self._send_successors(now, state, request, task)
        yield from self._balance(now, state)
        for index in list(state.touched):
            if state.workers[index].up:
                yield from self._serve(now, state, state.workers[index])

    # --- requests ---------------------------------------------------------------------------------------------

    def _place(self, now: int, state: ServingState, rs: RequestState) -> Iterator[Action]:
        """Plan the tasks of a request that are placed nowhere, or drop it."""
        viewer = state.entry_worker(rs.request.ingress)
        request = rs.request
        if (plan := self._plans.get(request.id)) is None:
            plan = self._plans[request.id] = Plan(len(rs.stage))
        if viewer < 0:
            self._recovery.planned(state, rs, tuple(rs.worker))
            return
        workers = self._placer.plan(now, state, rs, viewer, plan)
        self.states_evaluated += len(workers) * len(state.workers)
        late = request.deadline + HOPE * self._tables.best_times[request.graph]
        if self.drop and request.deadline and (plan.finish > late or self._lost(now, rs)):
            # for those that come after it
            wanted = self._placer.plan(now, state, rs, viewer, Plan(len(rs.stage)), warm=True)
            yield from self._start_processes(now, state, rs, viewer, wanted)
            yield from self._give_up(rs)
            return
        functions = self._tables.functions[request.graph]
        new = [(task, functions[task], worker) for task, worker in enumerate(workers) if worker != rs.worker[task]]
        self._placer.views.note(now, state, plan, viewer, [entry for entry in new if entry[2] >= 0])
        self._recovery.planned(state, rs, workers)
        yield PlaceRequest(request.id, workers)
        yield from self._start_processes(now, state, rs, viewer, workers)

    def _start_processes_here(self, now: int, worker: WorkerState, graph: int) -> Iterator[Action]:
        """Start processes for a graph on the worker that a request reached."""
        if worker.up:
            for action in self._processes.on_request_arrived(now, worker, graph):
                yield action
                ready = now + self._tables.cold_starts[action.function]
                self._placer.views.note_started(worker.id, worker.id, action.function, ready)

    def _start_processes(
        self, now: int, state: ServingState, rs: RequestState, viewer: int, workers: Sequence[int]
    ) -> Iterator[Action]:
        """Start a process on each worker of a plan that has none; the planner notes it."""
        functions, views = self._tables.functions[rs.request.graph], self._placer.views
        for task, index in enumerate(workers):
            cold = self._tables.cold_starts[functions[task]]
            if cold and index >= 0 and rs.stage[task] < Stage.RUNNING and state.workers[index].up:
                if views.start_delay(now, state, viewer, index, functions[task]) == cold:
                    views.note_started(viewer, index, functions[task], now + cold)
                yield from self._processes.ensure(state.workers[index], functions[task])

    def _lost(self, now: int, rs: RequestState) -> bool:
        """Return whether not even idle workers could answer a request by its deadline."""
        tails = self._tables.tails[rs.request.graph]
        left = max((tails[task] for task, stage in enumerate(rs.stage) if stage < Stage.RUNNING), default=0)
        return now + left > rs.request.deadline

    def _give_up(self, rs: RequestState) -> Iterator[Action]:
        """Drop a request; its plan is kept until then, for it may be needed while the decision is taken."""
        yield DropRequest(rs.request.id)
        self._plans.pop(rs.request.id, None)

    def _send_successors(self, now: int, state: ServingState, request: int, task: int) -> Iterator[Action]:
        """Move the successors of a task that ended to where they are best placed now."""
        if (rs := state.requests.get(request)) is None:
            self._plans.pop(request, None)
            return
        if self.drop and rs.request.deadline and self._lost(now, rs):
            yield from self._give_up(rs)
            return
        viewer, plan = rs.worker[task], self._plans[request]
        if viewer < 0 or not state.workers[viewer].up:
            return
        for after in rs.graph.successors[task]:
            if rs.stage[after] in (Stage.SENT, Stage.QUEUED):
                worker = self._placer.find_better(now, state, rs, after, viewer, plan)
                if worker is not None:
                    yield self._move(now, state, rs, after, worker, viewer)

    def _move(self, now: int, state: ServingState, rs: RequestState, task: int, worker: int, viewer: int) -> MoveTask:
        function = self._tables.functions[rs.request.graph][task]
        self._placer.views.note(now, state, self._plans[rs.request.id], viewer, [(task, function, worker)])
        return MoveTask(rs.request.id, task, worker)

    def _balance(self, now: int, state: ServingState) -> Iterator[Action]:
        """Move queued tasks to workers where they would end earlier, once an interval."""
        interval = now // max(state.push_interval, LOOK_AGAIN)
        for worker in state.deciding:
            if not worker.queue or not (worker.running or worker.starting):
                continue
            if self._looked[worker.id] == interval:
                continue
            self._looked[worker.id] = interval
            queue = self._order.queue(now, state, worker)
            for (request, task), target in self._placer.find_moves(now, state, worker.id, queue):
                if (rs := state.requests.get(request)) is not None:  # it may end while an earlier move is decided
                    yield self._move(now, state, rs, task, target, worker.id)

    # --- workers ----------------------------------------------------------------------------------------------

    def _serve(self, now: int, state: ServingState, worker: WorkerState) -> Iterator[Action]:
        """Start the batches that fit on a worker; then fetch one model ahead."""
        on_cpus = self._tables.on_cpus
        while worker.queue and (worker.slices_free or on_cpus) and worker.cpus_free:
            queue = self._order.queue(now, state, worker)
            if not worker.slices_free:  # what needs none may still run
                queue = [key for key in queue if on_cpus >> state.requests[key[0]].graph.functions[key[1]] & 1]
            if (hopeless := self._find_hopeless(now, state, queue)) is not None:
                yield from self._give_up(hopeless)
                continue
            batch = self._next(now, state, worker, self._processes.ready(state, worker, queue))
            if batch is None:
                break
            yield batch
        yield from self._processes.waiting(state, worker)
        yield from self._residency.ahead(now, state, worker, lambda: self._coming(now, state, worker))

    def _find_hopeless(self, now: int, state: ServingState, queue: Sequence[TaskId]) -> RequestState | None:
        first = (state.requests[request] for request, _ in queue[:_TRIED])
        return next((rs for rs in first if self.drop and rs.request.deadline and self._lost(now, rs)), None)

    def _next(self, now: int, state: ServingState, worker: WorkerState, queue: Sequence[TaskId]) -> RunBatch | None:
        """Return a batch of the most urgent task that fits, with others of its function that it should run with."""
        for key in queue[:_TRIED]:
            function = self._tables.functions[state.requests[key[0]].request.graph][key[1]]
            if (choice := choose(now, state, self._tables, worker, queue, key)) is None:
                continue
            tasks, cell = choice
            kind = state.catalogue.functions[function]
            weights = self._tables.weights(kind.mask & ~worker.memory.resident)[0]
            for count in dict.fromkeys((len(tasks), 1)):
                if state.latency.run_time(worker.id, function, count, cell.cpus, cell.slices) is None:
                    continue
                need = weights + kind.activation_bytes * count
                if need <= worker.memory.free_bytes:
                    return RunBatch(worker.id, tasks[:count], cell.cpus, cell.slices)
                coming = [other for other in self._coming(now, state, worker) if other not in tasks]
                if (evict := self._residency.room(now, state, worker, need, kind.mask, coming)) is not None:
                    return RunBatch(worker.id, tasks[:count], cell.cpus, cell.slices, evict)
        return None

    def _coming(self, now: int, state: ServingState, worker: WorkerState) -> list[TaskId]:
        """Return the tasks placed on a worker in the order in which they will run: queued, then on their way."""
        plans = self._plans
        sent = sorted(worker.sent, key=lambda key: (plans[key[0]].arrivals[key[1]], key))
        return [*self._order.queue(now, state, worker), *sent]
