"""State of a fleet and its requests; it changes only by ``apply(event)`` and ``commit(action)``.

Besides workers and requests the state holds what is new in this instant, so that the cost of ``decide`` depends on what
changed: ``landed`` (requests that arrived), ``ended`` (tasks that finished), ``displaced`` (requests that lost tasks),
``touched`` (workers where something was queued, ended, freed or fetched), ``rejected`` (actions that had been stale and
did not happen; what they were about is also in ``displaced`` and ``touched``). ``ready`` holds the tasks that could run
anywhere, by graph and task, oldest first. ``apply`` and ``commit`` return the inputs that they sent, None where there
are none; the loop hands them to the executor.
"""

from collections import deque
from collections.abc import Callable, Sequence

from headway.core.tape import Row as TapeRow
from headway.fleet.model.actions import (
    NOWHERE,
    Action,
    DecideUntil,
    DrainWorker,
    DropRequest,
    EvictModel,
    FetchModel,
    MoveTask,
    PlaceRequest,
    RunBatch,
    StartInstance,
    StartWorker,
    StopInstance,
    StopWorker,
    WakeAt,
)
from headway.fleet.model.catalogue import Catalogue, models_in
from headway.fleet.model.events import (
    ActionRejected,
    BatchFinished,
    BatchLoaded,
    Event,
    FirstToken,
    FromOutside,
    InstanceStarted,
    ModelFetched,
    RequestArrived,
    Sent,
    TaskArrived,
    Woke,
    WorkerFailed,
    WorkerRecovered,
    WorkerStarted,
)
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.state import (
    batches,
    failures as losses,
    feasible,
    live_events as outside,
    power,
    stage_store as store,
    warm,
)
from headway.fleet.state.requeststate import QUEUED, READY, RUNNING, SENT, RequestState
from headway.fleet.state.workerstate import Row, TaskId, WorkerState, sharing

CENTRAL = -1
"""The viewer that sees every row as it is."""
_ARRIVED, _TASK_ARRIVED, _PLACE, _QUEUED = map(int, (Kind.ARRIVED, Kind.TASK_ARRIVED, Kind.PLACE, Kind.QUEUED))
"""Kinds of the frequent rows; see ``batches``."""


class ServingState:
    """All that a policy may know about a fleet, and the rows that each worker may read of the others."""

    def __init__(
        self,
        catalogue: Catalogue,
        fleet: Fleet,
        latency: LatencyModel | None = None,
        *,
        to_come: int = 0,
        push_interval: int = 0,
        central: bool = False,
        preloaded: bool = True,
    ) -> None:
        """``push_interval`` 0 or ``central``: rows are always fresh. ``preloaded``: hosts hold all weights that fit."""
        self.catalogue = catalogue
        self.fleet = fleet
        self.latency = latency or LatencyModel(catalogue, fleet)
        self.push_interval = push_interval
        self.central = central
        self.to_come = to_come
        self.workers = [WorkerState(index, worker, catalogue) for index, worker in enumerate(fleet.workers)]
        self.sharing = sharing(self.workers)
        self.linked = self.sharing if fleet.links.shared else [[worker] for worker in self.workers]
        """By worker: those that share its link to host memory, itself among them."""
        self.requests: dict[int, RequestState] = {}
        """Open requests: arrived, neither answered nor dropped."""
        self.ready: dict[tuple[int, int], dict[int, int]] = {}
        """By graph and task: requests whose task could run anywhere, and since when; oldest first."""
        self.landed: list[int] = []
        self.ended: list[TaskId] = []
        self.displaced: list[int] = []
        self.touched: dict[int, None] = {}
        self.rejected: list[ActionRejected] = []
        self.deciding = self.workers
        """The workers that decide: all; with a controller for each worker its own alone."""
        self.journal: Callable[[TapeRow], None] = lambda row: None
        """Called with each row of the tape; does nothing where the run is not recorded."""
        self.leases = 0
        self.reads = 0
        """Rows of other workers that were read."""
        self.stale_reads = 0
        self.stale_ns = 0
        """Total age of the rows that were stale when they were read."""
        self.pushed: list[Row] | None = None
        """All rows as of their last push: the same list until the end of an interval, unless a worker fails or
        recovers. None: none was read yet in this interval, or rows are always fresh."""
        self._pushed_in = self._changed_in = -1
        self._changed = 0
        """How many workers have changed in the interval ``_changed_in``."""
        self.expiries: deque[tuple[int, int, int, int]] = deque()
        """(when, worker, function, idle since) of idle processes, in order."""
        self._now = -1
        self.preloaded = preloaded
        for worker in self.workers:
            power.fill_host(self, worker)
        if fleet.warm:
            for worker, begins_with in zip(self.workers, warm.placed(catalogue, fleet), strict=True):
                batches.begin_warm(self, worker, begins_with)
        if fleet.off:
            power.begin_off(self)

    # --- what a policy reads ----------------------------------------------------------------------------------

    def rows(self, viewer: int, now: int) -> Sequence[Row]:
        """Return the rows of all workers as ``viewer`` sees them: its own now, the others' as of their last push."""
        if self.central or viewer == CENTRAL or not self.push_interval:
            return [worker.current_row or worker.row() for worker in self.workers]
        epoch = now // self.push_interval
        if self.pushed is None or epoch != self._pushed_in:
            self._pushed_in = epoch
            self.pushed = [
                worker.published if worker.epoch == epoch else worker.current_row or worker.row()
                for worker in self.workers
            ]
        rows = self.pushed.copy()
        viewer_state = self.workers[viewer]
        rows[viewer] = viewer_state.current_row or viewer_state.row()
        self.reads += len(rows) - 1
        stale = (self._changed if epoch == self._changed_in else 0) - (viewer_state.epoch == epoch)
        if stale:
            self.stale_reads += stale
            self.stale_ns += stale * (now - epoch * self.push_interval)
        return rows

    def entry_worker(self, ingress: int) -> int:
        """Return the worker that receives a request: ``ingress``, or the next one that is up; -1 if none is."""
        count = len(self.workers)
        around = ((ingress + step) % count for step in range(count))
        return next((index for index in around if self.workers[index].up), NOWHERE)

    @property
    def now(self) -> int:
        """Return the time of the instant in progress."""
        return self._now

    @property
    def pushes(self) -> int:
        """Return how many rows were pushed."""
        return sum(worker.pushes for worker in self.workers)

    def over(self) -> bool:
        """Return whether no request is open, and none is to come."""
        return not self.requests and not self.to_come

    # --- changes ----------------------------------------------------------------------------------------------

    def advance(self, now: int) -> None:
        """Begin an instant: clear what was new, and stop idle processes whose keep-alive has ended."""
        self._now = now
        if self.landed:
            self.landed = []
        if self.ended:
            self.ended = []
        if self.displaced:
            self.displaced = []
        if self.touched or self.rejected:
            self.touched, self.rejected = {}, []
        expiries = self.expiries
        while expiries and expiries[0][0] <= now:
            _, index, function, since = expiries.popleft()
            worker = self.workers[index]
            if (idle := worker.idle.get(function)) and idle[0] == since:
                self.touch(worker, now)
                batches.stop_idle(self, now, worker, function, 0)

    def touch(self, worker: WorkerState, now: int) -> None:
        """Prepare a worker's row for a change."""
        epoch = now // self.push_interval if self.push_interval else now
        if epoch == worker.epoch:
            worker.current_row = None
        else:
            worker.touch(epoch)
            if epoch != self._changed_in:
                self._changed_in, self._changed = epoch, 0
            self._changed += 1

    def apply(self, now: int, event: Event) -> list[Sent] | None:
        """Apply an event; return the inputs that it sent, None where there are none."""
        if now != self._now:
            self.advance(now)
        if type(event) is BatchFinished:  # frequent events first; `type() is` is faster than isinstance
            return batches.on_batch_finished(self, now, event)
        if type(event) is TaskArrived:
            self._on_task_arrived(now, event)
        elif type(event) is RequestArrived:
            self._on_request_arrived(now, event.request)
        elif type(event) is BatchLoaded:
            batches.on_batch_loaded(self, now, event)
        elif isinstance(event, ModelFetched):
            batches.on_model_fetched(self, now, event)
        elif isinstance(event, InstanceStarted):
            batches.on_instance_started(self, now, event)
        elif isinstance(event, FirstToken):
            batches.on_first_token(self, now, event)
        elif isinstance(event, WorkerFailed):
            losses.on_worker_failed(self, now, self.workers[event.worker])
            self.pushed = None
        elif isinstance(event, WorkerRecovered):
            losses.on_worker_recovered(self, now, self.workers[event.worker])
            self.pushed = None
        elif isinstance(event, WorkerStarted):
            power.on_worker_started(self, now, event)
        elif isinstance(event, FromOutside):
            outside.apply(self, now, event)
        else:
            assert isinstance(event, Woke)
            self.journal((now, Kind.WOKE, -1, 0, -1, 0, 0))
        return None

    def check(self, action: Action) -> str | None:
        """Return why this action cannot be committed now; None when it can."""
        return feasible.refusal(self, action)

    def commit(self, now: int, action: Action) -> list[Sent] | None:
        """Commit an action that ``check`` allowed; return the inputs that it sent, None where there are none."""
        if now != self._now:
            self.advance(now)
        if type(action) is RunBatch:
            batches.run(self, now, action)
        elif type(action) is PlaceRequest:
            return self._place_all(now, action)
        elif type(action) is MoveTask:
            state = self.requests[action.request]
            self.journal((now, Kind.MOVE, action.request, 0, action.worker, action.task, state.worker[action.task]))
            sent = self._place(now, state, action.task, action.worker)
            return [sent] if sent is not None else None
        elif isinstance(action, FetchModel):
            batches.fetch(self, now, action)
        elif isinstance(action, EvictModel):
            worker_state = self.workers[action.worker]
            self.touch(worker_state, now)
            worker_state.memory.remove(action.model)
            self.journal((now, Kind.EVICT, -1, 0, action.worker, action.model, 0))
        elif isinstance(action, StartInstance):
            batches.start_instance(self, now, action)
        elif isinstance(action, StopInstance):
            worker_state = self.workers[action.worker]
            self.touch(worker_state, now)
            self.journal((now, Kind.STOP_INSTANCE, -1, 0, action.worker, action.function, 0))
            batches.stop_idle(self, now, worker_state, action.function, -1)
        elif isinstance(action, DropRequest):
            losses.drop(self, now, action.request)
        elif isinstance(action, DecideUntil):
            self.journal((now, Kind.DECIDE, -1, action.states, action.controller, action.waited, action.time))
        elif isinstance(action, StartWorker | DrainWorker | StopWorker):
            power.commit(self, now, action)
        else:
            assert isinstance(action, WakeAt)
            self.journal((now, Kind.WAKE_AT, -1, 0, -1, 0, action.time))
        return None

    def refused(self, now: int, action: Action) -> TapeRow:
        """Return the row that records a refusal of this action."""
        kind = feasible.KINDS[type(action)]
        return (now, Kind.REFUSED, getattr(action, "request", -1), 0, getattr(action, "worker", -1), 0, kind)

    # --- requests and their tasks -----------------------------------------------------------------------------

    def _on_request_arrived(self, now: int, request: Request) -> None:
        self.to_come -= 1
        graph = self.catalogue.graphs[request.graph]
        state = self.requests[request.id] = RequestState(request, graph)
        self.journal((now, _ARRIVED, request.id, request.tenant, request.ingress, request.graph, request.deadline))
        self.landed.append(request.id)
        for task in graph.entries:
            self.make_ready(now, state, task)

    def make_ready(self, now: int, state: RequestState, task: int) -> None:
        """Make a task ready: its predecessors are done, and it is placed nowhere."""
        state.stage[task] = READY
        state.since[task] = now
        key = (state.request.graph, task)
        if (queue := self.ready.get(key)) is None:
            queue = self.ready[key] = {}
        queue[state.request.id] = now

    def remove_ready(self, state: RequestState, task: int) -> None:
        """Remove a task from the ready ones: it is placed, run or dropped."""
        del self.ready[state.request.graph, task][state.request.id]

    def unplace(self, now: int, state: RequestState, task: int) -> None:
        """Remove a task from its worker; it must not have started."""
        index = state.worker[task]
        if index == NOWHERE:
            return
        worker = self.workers[index]
        self.touch(worker, now)
        function = state.graph.functions[task]
        key = (state.request.id, task)
        if key in worker.queue:
            del worker.queue[key]
            worker.queued -= self.latency.base[index][function]
        else:
            del worker.sent[key]
            worker.reserved -= self.latency.base[index][function]
        worker.remove_need(self.catalogue.functions[function].models)
        state.worker[task] = NOWHERE

    def _place_all(self, now: int, action: PlaceRequest) -> list[Sent] | None:
        """Place each task of a request that is given a new worker and has not started; return the inputs sent."""
        state = self.requests[action.request]
        journal, placed, stages = self.journal, state.worker, state.stage
        caused = None
        for task, worker in enumerate(action.workers):
            if worker != NOWHERE and worker != placed[task] and stages[task] < RUNNING:
                journal((now, _PLACE, action.request, 0, worker, task, 0))
                if (sent := self._place(now, state, task, worker)) is not None:
                    caused = [*caused, sent] if caused else [sent]
        return caused

    def _place(self, now: int, state: RequestState, task: int, index: int) -> Sent | None:
        if state.stage[task] is READY:
            self.remove_ready(state, task)
        elif state.worker[task] != NOWHERE:
            self.unplace(now, state, task)
        worker, function = self.workers[index], state.graph.functions[task]
        self.touch(worker, now)
        state.worker[task] = index
        state.moves[task] += 1
        worker.sent[state.request.id, task] = None
        worker.reserved += self.latency.base[index][function]
        worker.add_need(self.catalogue.functions[function].models)
        state.due[task] = self.inputs_arrive_at(now, state, task, index)
        return None if state.waits[task] else self.deliver(now, state, task)

    def inputs_arrive_at(self, now: int, state: RequestState, task: int, index: int) -> int:
        """Send the inputs that exist to a worker; return when the last of them arrives."""
        graph = state.graph
        if not (before := graph.predecessors[task]):
            return now + self.fleet.copy_time(state.request.ingress, index, graph.tasks[task].input_bytes)
        if self.fleet.store is not None:
            return store.read_inputs(self, now, state, task, index)
        arrives, coming = now, state.coming
        for other in before:
            if (copies := state.copies[other]) and not copies >> index & 1:
                size, copy_time = graph.tasks[other].output_bytes, self.fleet.copy_time
                coming[other, index] = min(
                    max(now, coming.get((other, source), 0)) + copy_time(source, index, size)
                    for source in models_in(copies)
                )
                state.copies[other] = copies | 1 << index
            if coming:
                arrives = max(arrives, coming.get((other, index), 0))
        return arrives

    def deliver(self, now: int, state: RequestState, task: int) -> Sent | None:
        """Queue a placed task whose predecessors are done; return its inputs where they are still on their way."""
        arrives = state.due[task]
        if arrives <= now:
            self._enqueue(now, state, task)
            self.journal((now, _QUEUED, state.request.id, 0, state.worker[task], task, 0))
            return None
        state.stage[task] = SENT
        return arrives, TaskArrived(state.request.id, task, state.moves[task])

    def _on_task_arrived(self, now: int, event: TaskArrived) -> None:
        state = self.requests.get(event.request)
        task = event.task
        if state is None or state.moves[task] != event.lease or state.stage[task] != SENT:
            self.journal((now, Kind.STALE, event.request, event.lease, -1, task, Kind.TASK_ARRIVED))
            return
        self.journal((now, _TASK_ARRIVED, event.request, event.lease, state.worker[task], task, 0))
        self._enqueue(now, state, task)

    def _enqueue(self, now: int, state: RequestState, task: int) -> None:
        index = state.worker[task]
        worker = self.workers[index]
        self.touch(worker, now)
        key = (state.request.id, task)
        base = self.latency.base[index][state.graph.functions[task]]
        del worker.sent[key]
        worker.reserved -= base
        worker.queue[key] = now
        worker.queued += base
        state.stage[task] = QUEUED
        self.touched[index] = None
