"""The server: one loop of asyncio that holds state, policy and scheduler, and drives worker processes.

Whatever happens (a request, an answer of a worker, a time that the policy asked for) goes into the inbox of the live
fleet, and the scheduler is let go until nothing is left to decide. There are no threads: nothing interrupts a decision.
"""

import asyncio
import os
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from shutil import rmtree
from typing import Any

from headway.core.clock import Clock
from headway.core.scheduler import Scheduler
from headway.core.tape import TapeWriter
from headway.errors import (
    RequestError,
    RequestLateError,
    RequestRefusedError,
    ServeError,
    TaskFailedError,
    UnknownGraphError,
    unknown_name,
)
from headway.fleet.live.fleet import GIVEN_UP, LiveFleet
from headway.fleet.live.options import Options
from headway.fleet.live.refining import Refining
from headway.fleet.live.refusals import retry_after_s, unpacked
from headway.fleet.live.tally import LATE, Tally, answer_of, hung, status_of_workers, too_short, what_is_late
from headway.fleet.live.workers import payload
from headway.fleet.live.workers.messages import NO_LEASE, Answer, Beat, Hello, Rejected, Setup
from headway.fleet.live.workers.payload import Packer, Payload
from headway.fleet.live.workers.process import Connection, Engine, local_engine
from headway.fleet.model.actions import Action
from headway.fleet.model.events import Event, WorkerFailed, WorkerRecovered
from headway.fleet.model.request import Request
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Batch
from headway.units import SECOND, counted

_STOPS = "the server stops"
_ENDED_KEPT = 10_000
"""Deadlines of so many requests that have ended are kept before they are thrown out."""
TICK_S = 0.1
"""How often deadlines, hung workers and the tape are looked at."""


class Server:
    """Serves the graphs of an application."""

    def __init__(
        self,
        state: ServingState,
        policy: ServingPolicy,
        tape: TapeWriter,
        options: Options,
        slos: tuple[int, ...] = (),
        record: Callable[[Request], None] = lambda request: None,
        log: Callable[[str], None] = lambda line: None,
        engine: Engine | None = None,
    ) -> None:
        """``policy`` is bound to the state; ``slos``: by graph the deadline of requests that give none, 0 for none.

        ``record`` is told each request, ``log`` what an operator should know. ``engine`` runs the workers.
        """
        self._engine = engine or local_engine(options.app)
        self.state, self.policy, self.tape, self.options = state, policy, tape, options
        self._slos, self._record, self._log = slos or (0,) * len(state.catalogue.graphs), record, log
        self.graphs = tuple(graph.name for graph in state.catalogue.graphs)
        self._numbers = {name: number for number, name in enumerate(self.graphs)}
        self._names = [function.name for function in state.catalogue.functions]
        self.clock = Clock()
        self.fleet = LiveFleet(state, self.clock, self._send)
        self.fleet.on_ran = self._on_ran
        self.scheduler = Scheduler[Event, Action](state, policy, self.fleet, tape, exact=False)
        self.tally = Tally()
        self.refining = Refining(state, self.fleet.happen)
        self.ready = self.draining = False
        self.failure = ""  # why the server cannot go on
        self._prefix = f"{payload.NAME}-{os.getpid()}-{os.urandom(4).hex()}"  # no other server ever had it
        self._host_folder = payload.FOLDER / f"{self._prefix}-host"
        self._packer = Packer(f"{self._prefix}-front" if self._engine.shares_memory else "")
        self.processes = [self._process(index) for index in range(len(state.workers))]
        self._restarted: dict[int, float] = {}
        """Workers that were started again and are not ready, and until when they may take for it."""
        self.beats: list[Beat] = [Beat(0)] * len(self.processes)
        self._next_id = 0
        self._problems: dict[int, str] = {}  # by worker: why it could not be set up
        self._killed: dict[int, str] = {}  # by worker: for what it was killed
        self.on_flush: Callable[[], None] = lambda: None
        """Called before the tape is flushed: what its rows are about is written first."""
        self.tenants: dict[str, int] = {"": 0}
        """The number of each tenant by its name."""
        self._turn_asked = False
        self._alarm: asyncio.TimerHandle | None = None
        self._deadlines: list[tuple[int, int]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def _process(self, index: int) -> Connection:
        options, catalogue = self.options, self.state.catalogue
        booked_bytes = self.state.workers[index].worker.gpu.memory_bytes

        def setup(start: int) -> Setup:
            return Setup(
                app=str(options.app),
                worker=index,
                functions=tuple(self._names),
                models=tuple(model.name for model in catalogue.models),
                memory_bytes=booked_bytes + options.context_bytes,
                device=options.devices[index % len(options.devices)],
                prefix=f"{self._prefix}-{index}-{start}" if self._engine.shares_memory else "",
                cpus=options.cpus[index % len(options.cpus)],
                host_folder=str(self._host_folder),
                weights_folder=str(options.folder / "weights"),
                booked_bytes=booked_bytes,
                model_bytes=tuple(model.size_bytes for model in catalogue.models),
                warm=options.warm,
            )

        environment = options.environments[index % len(options.environments)]
        return self._engine.connect(
            setup, lambda answer: self._on_answer(index, answer), lambda: self._on_gone(index), environment
        )

    async def start(self) -> None:
        """Start all workers; return when every one of them is ready."""
        if left := payload.sweep_dead():
            self._log(f"removed {counted(left, 'file')} that a killed server had left in {payload.FOLDER}")
        self._host_folder.mkdir(mode=0o700, exist_ok=True)
        loop = asyncio.get_running_loop()
        until = loop.time() + self.options.start_within_s
        try:
            for worker in self.processes:
                await worker.start()
            least = self.options.least_workers or len(self.processes)
            while sum(worker.hello is not None for worker in self.processes) < least:
                if any(count for count in self.tally.worker_ends.values()):
                    told = self._problems.get(index := next(iter(self.tally.worker_ends)), "what it said is above")
                    raise ServeError(f"worker {index} ended before it was ready: {told}")
                if loop.time() > until:
                    raise ServeError(f"the workers are not ready within {self.options.start_within_s:g} s")
                await asyncio.sleep(0.01)
        except BaseException:
            await self._stop_workers(0.0)
            raise
        self.ready = True
        for index, worker in enumerate(self.processes):
            if worker.hello is None:
                self.fleet.happen(WorkerFailed(index))  # until it comes
        self._ask_turn()
        self._keep(self._watch())

    async def drain(self) -> None:
        """Take no more requests; return when those that are open have ended."""
        self.draining = True
        while self.fleet.open and not self.failure:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """End what is open with a reason, stop the workers, and leave nothing behind; the tape stays open."""
        self.ready, self.draining = False, True
        self._turn()  # what has arrived has done so on the tape before it fails
        for request in list(self.fleet.open):
            self.fleet.fail(request, _STOPS)
        self._turn()
        for task in self._tasks:
            task.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        await self._stop_workers(5.0)

    async def _stop_workers(self, within_s: float) -> None:
        await asyncio.gather(*(worker.stop(within_s) for worker in self.processes))
        self._engine.close()
        payload.sweep(self._prefix)
        rmtree(self._host_folder, ignore_errors=True)

    def _keep(self, work: Any) -> None:
        self._tasks.add(task := asyncio.get_running_loop().create_task(work))
        task.add_done_callback(self._on_task_ended)

    def _on_task_ended(self, task: "asyncio.Task[None]") -> None:
        """Fail where a mistake of ours ended a task that the server cannot do without."""
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._fail(f"the server cannot go on: {type(problem).__name__}: {problem}")

    # --- requests ---------------------------------------------------------------------------------------------

    def submit(
        self, graph: str, value: Any, *, deadline_ns: int | None = None, tenant: str = "", priority: int = 0
    ) -> "asyncio.Future[Any]":
        """Let a request arrive; the future has its answer, or a ``RequestError``. A deadline is from now on."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if (number := self._numbers.get(graph)) is None:
            future.set_exception(UnknownGraphError(unknown_name("graph", graph, self.graphs)))
            return future
        if (reason := self._refusal()) is not None:
            self.tally.refused[graph] += 1
            future.set_exception(RequestRefusedError(reason, retry_after_s(self.state)))
            return future
        try:
            packed = self._packer.pack(value)
        except Exception as problem:  # noqa: BLE001  # a value of the user's own, or shared memory is full
            self.tally.refused[graph] += isinstance(problem, OSError)
            future.set_exception(unpacked(problem, retry_after_s(self.state)))
            return future
        now, given = self.clock(), self._slos[number] if deadline_ns is None else deadline_ns
        due, who = now + given if given else 0, self.tenants.setdefault(tenant, len(self.tenants))
        request = Request(self._next_id, number, now, self._entry(), due, who, priority=priority)
        self._next_id += 1
        heappush(self._deadlines, (now + (given + self.options.grace if given else self.options.timeout), request.id))
        self.tally.accepted[graph] += 1
        self._record(request)
        self.fleet.arrive(request, packed, lambda *end: self._on_end(request, future, *end))
        self._ask_turn()
        return future

    def _entry(self) -> int:
        """Return the worker whose view decides about a request first: each in turn."""
        return max(self.state.entry_worker(self._next_id % len(self.processes)), 0)

    def _refusal(self) -> str | None:
        if self.failure:
            return self.failure
        if self.draining or not self.ready:
            return "the server takes no requests: it " + ("drains" if self.draining else "is starting")
        if len(self.fleet.open) >= self.options.most_open:
            return f"{len(self.fleet.open):,} requests are open, as many as the server takes"
        return None

    def _on_end(
        self, request: Request, future: "asyncio.Future[Any]", results: list[Payload] | None, reason: str
    ) -> None:
        name, tally, now = self.graphs[request.graph], self.tally, self.clock()
        if results is not None:
            try:
                value = answer_of(self.state.catalogue.graphs[request.graph], results)
            except Exception as problem:  # noqa: BLE001  # a value of the user's own may be unreadable: its request fails
                reason = f"the result cannot be read: {type(problem).__name__}: {problem}"
            else:
                tally.answered[name] += 1
                tally.in_time[name] += not request.deadline or now <= request.deadline
                tally.latencies.append(now - request.arrival)
                if not future.done():
                    future.set_result(value)
                return
        error: RequestError
        if reason == GIVEN_UP and (impossible := too_short(self.state, request, self.options.guesses)):
            reason = impossible
        if reason in (GIVEN_UP, _STOPS, self.failure):  # it may be sent again, also under its key
            error = RequestRefusedError(reason, retry_after_s(self.state))
            tally.refused[name] += 1
        elif reason.startswith(LATE):
            error = RequestLateError(reason)
            tally.late[name] += 1
        else:
            error = TaskFailedError(reason)
            tally.failed[name] += 1
        if not future.done():
            future.set_exception(error)

    # --- the loop ---------------------------------------------------------------------------------------------

    def _ask_turn(self) -> None:
        if not self._turn_asked:
            self._turn_asked = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Let the scheduler decide about all that has happened, and set the alarm for when it wants to be asked."""
        self._turn_asked = False
        if self.failure:
            return
        try:
            self.scheduler.drain()
        except Exception as problem:  # noqa: BLE001  # a mistake of a policy must not leave requests without an answer
            self._fail(f"the policy {self.policy.name} failed: {type(problem).__name__}: {problem}")
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if (due := self.fleet.due) is not None:
            wait_s = max(0, due - self.clock()) / SECOND
            self._alarm = asyncio.get_running_loop().call_later(wait_s, self._turn)

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self._log(reason)
        for request in list(self.fleet.open):
            self.fleet.fail(request, reason)

    async def _watch(self) -> None:
        """Look at deadlines, hung workers and the tape, over and over; without this the server has failed."""
        while True:
            await asyncio.sleep(TICK_S)
            self._end_late()
            self._end_hung()
            try:
                if self.tape.due and not self.failure:
                    self.on_flush()
                    self.tape.flush()
            except OSError as problem:
                self._fail(f"the run cannot be kept: {problem}")

    def _end_late(self) -> None:
        now = self.clock()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, request = heappop(self._deadlines)
            if request in self.fleet.open:
                self.fleet.fail(request, what_is_late(self.state, request, now))
                self._ask_turn()
        if len(self._deadlines) > 2 * len(self.fleet.open) + _ENDED_KEPT:  # a client may give each a deadline of days
            self._deadlines = [each for each in self._deadlines if each[1] in self.fleet.open]
            heapify(self._deadlines)

    # --- workers ----------------------------------------------------------------------------------------------

    def _send(self, worker: int, order: Any) -> None:
        self.processes[worker].send(order)

    def _on_answer(self, worker: int, answer: Answer) -> None:
        if isinstance(answer, Beat):
            self.beats[worker] = answer
        elif isinstance(answer, Hello):
            self._restarted.pop(worker, None)
            if self.ready and not self.state.workers[worker].up:
                self.fleet.happen(WorkerRecovered(worker))
                self._log(f"worker {worker} is back (process {answer.pid})")
                self._turn()  # before anything else is heard of it: that it is gone again may come right after
        elif isinstance(answer, Rejected) and answer.stale:  # its tasks go on elsewhere, as when a process is killed
            self._kill(worker, f"does not agree with the server ({answer.reason})")
        elif isinstance(answer, Rejected) and answer.lease == NO_LEASE:
            self._log(f"worker {worker}: {answer.reason}")
            self._problems[worker] = answer.reason
        else:
            self.fleet.on_answer(worker, answer)
            self._ask_turn()

    def _on_gone(self, worker: int) -> None:
        if self.processes[worker].stopping:
            return
        self.tally.worker_ends[worker] += 1
        self.beats[worker], why = Beat(0), self._killed.pop(worker, "")
        if self.ready:
            if self.state.workers[worker].up:
                self.fleet.lose(worker, why)
                self._ask_turn()
            self._keep(self._restart(worker))

    async def _restart(self, worker: int) -> None:
        process = self.processes[worker]
        self._log(f"worker {worker} ended ({await process.ended()}) and is started again")
        payload.sweep(f"{self._prefix}-{worker}-{process.starts}", self.fleet.blocks())
        while not process.stopping:
            await asyncio.sleep(process.pause_s)
            try:
                await process.start()
                if not self.options.least_workers:
                    self._restarted[worker] = asyncio.get_running_loop().time() + self.options.start_within_s
                return
            except OSError as problem:
                self._log(f"worker {worker} cannot be started ({problem}): it is tried again")

    def _end_hung(self) -> None:
        time = asyncio.get_running_loop().time()
        late = f"is not ready within {self.options.start_within_s:g} s"
        unready = [(worker, late) for worker, until in self._restarted.items() if time > until]
        for worker, why in [*unready, *hung(self.state, self.clock(), self.options.hang_after, self.tally)]:
            self._kill(worker, why)

    def _kill(self, worker: int, why: str) -> None:
        self._restarted.pop(worker, None)
        self._killed[worker] = why
        self._log(f"worker {worker} {why}: it is killed")
        self.processes[worker].kill()

    def _on_ran(self, worker: int, batch: Batch, run_ns: int) -> None:
        """Compare what a batch took with its profile, and with what is expected by now; of one that loaded, its run."""
        took = self.clock() - batch.began
        if expected := self.refining.profiled(worker, batch):
            self.tally.note_run(self._names[batch.function], (run_ns if batch.start > batch.began else took) / expected)
        self.refining.note(worker, batch, took)

    def status(self) -> dict[str, Any]:
        """Return counts, latencies and the state of each worker; times in seconds."""
        fleet = self.fleet
        return {
            "policy": self.policy.name,
            "ready": self.ready and not self.failure,
            "draining": self.draining,
            "failure": self.failure,
            "uptime_s": self.clock() / SECOND,
            "open": len(fleet.open),
            **self.tally.shown(self.graphs),
            **fleet.counts(),
            "workers": status_of_workers(self.state, self.processes, self.beats),
        }
