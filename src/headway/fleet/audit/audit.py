"""Audit of a serving tape: a finding for each contradiction with itself, its workload or its fleet.

Everything is recomputed from the rows with the simple records of ``records.py``: bytes, CPUs, slices and processes
of each worker, where each task is, and the earliest time at which inputs and weights could have arrived.
"""

from collections.abc import Sequence

from headway.core.audit import Finding, audited, row_ranks
from headway.core.tape import Tape
from headway.fleet.audit import tokens as audit_tokens
from headway.fleet.audit.records import BatchRecord, WorkerRecord
from headway.fleet.audit.requests import RequestAuditor
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.events import (
    ActionRejected,
    BatchFinished,
    BatchLoaded,
    FirstToken,
    InstanceStarted,
    ModelFetched,
    ModelLost,
    RequestArrived,
    RequestFailed,
    TaskArrived,
    TimeMeasured,
    Woke,
    WorkerFailed,
    WorkerRecovered,
    WorkerStarted,
)
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.state.workerstate import Power

_RANKS: dict[int, int] = {
    Kind.FINISHED: BatchFinished.rank,
    Kind.LOADED: BatchLoaded.rank,
    Kind.FIRST_TOKEN: FirstToken.rank,
    Kind.FETCHED: ModelFetched.rank,
    Kind.INSTANCE_STARTED: InstanceStarted.rank,
    Kind.WORKER_FAILED: WorkerFailed.rank,
    Kind.WORKER_RECOVERED: WorkerRecovered.rank,
    Kind.WORKER_STARTED: WorkerStarted.rank,
    Kind.TASK_ARRIVED: TaskArrived.rank,
    Kind.ARRIVED: RequestArrived.rank,
    Kind.WOKE: Woke.rank,
    Kind.REQUEST_FAILED: RequestFailed.rank,
    Kind.REJECTED: ActionRejected.rank,
    Kind.MEASURED: TimeMeasured.rank,
    Kind.MODEL_LOST: ModelLost.rank,
}
_ACTIONS = range(Kind.PLACE, Kind.TASK)


def audit(
    catalogue: Catalogue,
    fleet: Fleet,
    requests: Sequence[Request],
    tape: Tape,
    *,
    complete: bool = True,
    punctual: bool = True,
) -> list[Finding]:
    """Return the contradictions on this tape; empty when it is sound.

    ``complete``: every request must have ended. ``punctual``: runs and loads take no less than their profile says; that
    holds in virtual time only.
    """
    ranks = row_ranks(tape, _RANKS, _ACTIONS, Kind.STALE)
    return audited(tape, ranks, _Auditor(catalogue, fleet, requests, punctual), complete=complete)


class _Auditor(RequestAuditor):
    """Follows workers, and what runs there."""

    opens = (int(Kind.RUN), int(Kind.FETCH))
    follows = (int(Kind.TASK), int(Kind.COLD), int(Kind.EVICTED), int(Kind.LOAD))
    shared = slice(3, 5)

    def __init__(self, catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], punctual: bool) -> None:
        super().__init__(catalogue, fleet, requests)
        self._punctual = punctual
        self._lease = 0
        self._stopping: list[int] | None = None
        """A STOP_INSTANCE row whose EXPIRED row has yet to come."""
        self._busy_until: dict[int, int] = {}
        """By controller (-1: the one of the whole fleet): when its last decision is over."""
        self._rows = {
            Kind.ARRIVED: self._on_arrived,
            Kind.TASK_ARRIVED: self._on_queued,
            Kind.QUEUED: self._on_queued,
            Kind.READY: self._on_ready,
            Kind.LOADED: self._on_loaded,
            Kind.FIRST_TOKEN: self._on_first_token,
            Kind.FINISHED: self._on_finished,
            Kind.FETCHED: self._on_fetched,
            Kind.INSTANCE_STARTED: self._on_started,
            Kind.WORKER_FAILED: self._on_failed,
            Kind.WORKER_RECOVERED: self._on_recovered,
            Kind.WORKER_STARTED: self._on_worker_started,
            Kind.START_WORKER: self._on_start_worker,
            Kind.DRAIN_WORKER: self._on_drain_worker,
            Kind.STOP_WORKER: self._on_stop_worker,
            Kind.STALE: self._on_stale,
            Kind.PLACE: self._on_placed,
            Kind.MOVE: self._on_placed,
            Kind.EVICT: self._on_evict,
            Kind.MODEL_LOST: lambda row: self._on_evict(row) if row[6] else None,
            Kind.START_INSTANCE: self._on_start_instance,
            Kind.STOP_INSTANCE: self._on_stop_instance,
            Kind.EXPIRED: self._on_expired,
            Kind.DROP: self._on_drop,
            Kind.DONE: self._on_done,
            Kind.LOST: self._on_lost,
            Kind.DECIDE: self._on_decide,
            Kind.REQUEST_FAILED: self._on_drop,
            **dict.fromkeys((Kind.WOKE, Kind.WAKE_AT, Kind.REFUSED, Kind.REJECTED, Kind.MEASURED), lambda row: None),
        }

    def _find_open(self) -> None:
        for request in self._open_requests:
            self._find("end", f"request {request} was neither answered nor dropped")
        for request in self._requests.keys() - self._ended.keys() - self._open_requests.keys():
            self._find("end", f"request {request} of the workload never arrived")

    def _settle(self, rows: list[list[int]]) -> None:
        self._new_lease(rows[0][3])
        if (worker := self._at(rows[0])) is not None:
            enter = self._on_run if rows[0][1] == Kind.RUN else self._on_fetch
            enter(worker, rows)

    def _new_lease(self, lease: int) -> None:
        if lease <= self._lease:
            self._find("lease", f"lease {lease} is not above the last one, {self._lease}")
        self._lease = max(self._lease, lease)

    # --- batches ----------------------------------------------------------------------------------------------

    def _on_run(self, worker: WorkerRecord, group: list[list[int]]) -> None:
        now, _, subject, lease, place, function, value = group[0]
        if not 0 <= function < len(self._catalogue.functions):
            self._find("batch", f"function {function} does not exist")
            return
        kind = self._catalogue.functions[function]
        tasks = [row for row in group if row[1] == Kind.TASK]
        batch = BatchRecord(now, function, [(row[2], row[5]) for row in tasks])
        batch.cpus, batch.slices, batch.first = unpack(value)
        batch.activation_bytes = kind.activation_bytes * len(tasks)
        if not tasks or tasks[0][2] != subject:
            self._find("batch", f"batch {lease} has tasks {batch.tasks}, its first is said to be of request {subject}")
        for row in tasks:
            self._begin(batch, row)
        if worker.profiled(batch) is None:
            size = f"{len(tasks)} at {batch.cpus} CPUs, {batch.slices} slices"
            self._find("profile", f"batch {lease}: function {kind.name} has no profile for {size}")
        self._load(worker, batch, group)
        audit_tokens.begin(batch, kind, self._requests.get(subject))
        worker.batches[lease] = batch
        self._find_all(worker.overbooked(), f"batch {lease} at {place}: ")

    def _begin(self, batch: BatchRecord, row: list[int]) -> None:
        now, _, request, lease, place, task, there = row
        if (record := self._record_of(row)) is None:
            return
        name = f"task {task} of request {request}"
        if record.graph.tasks[task].function != batch.function:
            self._find(
                "batch", f"{name} is of function {record.graph.tasks[task].function}, its batch of {batch.function}"
            )
        if record.begun(task):
            self._find("twice", f"{name} begins but runs or is done already")
            return
        if record.placed[task] == -1:
            self._inputs(record, task, place, there, now)
        elif record.placed[task] != place or not record.queued[task]:
            self._find("queue", f"{name} runs at {place}, it is not queued there")
        batch.earliest = max(batch.earliest, there)
        record.running[task], record.where[task], record.queued[task] = lease, place, False
        record.placed[task] = place
        self._workers[place].tasks[request, task] = None

    def _load(self, worker: WorkerRecord, batch: BatchRecord, group: list[list[int]]) -> None:
        """Enter process and weights of a batch: what it evicts and fetches, and when it can compute at the earliest."""
        now, kind = batch.began, self._catalogue.functions[batch.function]
        ready = self._process(worker, batch, [row[6] for row in group if row[1] == Kind.COLD])
        for row in group:
            if row[1] == Kind.EVICTED:
                self._find_all(worker.evicted(row[5]))
        ready = max([ready, *(worker.resident[model] for model in kind.models if model in worker.resident)])
        loads = [row for row in group if row[1] == Kind.LOAD]
        came = max(now, worker.link_free)  # beside the start of a process
        for row in loads:
            if row[5] in worker.resident or row[5] not in kind.models:
                self._find(
                    "load", f"model {row[5]} is fetched for {kind.name} at {row[4]}: not needed, or there already"
                )
                continue
            self._link(row[5], row[6])
            came += row[6]
            worker.resident[row[5]] = came
            worker.hold_link(came)
            ready = max(ready, came)
        if missing := [model for model in kind.models if model not in worker.resident]:
            self._find("load", f"{kind.name} runs at {worker.worker.name} without its models {missing}")
        batch.earliest = max(batch.earliest, ready, now)

    def _link(self, model: int, took: int) -> None:
        needed = self._fleet.fetch_time(self._catalogue.models[model].weights_bytes)
        if took < needed:
            self._find("load", f"model {model} came in {took} ns, the link needs {needed}")

    def _process(self, worker: WorkerRecord, batch: BatchRecord, cold: list[int]) -> int:
        """Return when a process can run the batch; the one that became idle last is taken."""
        kind = self._catalogue.functions[batch.function]
        if cold:
            if len(cold) > 1 or cold[0] < kind.cold_start or not kind.cold_start:
                self._find("instance", f"a process of {kind.name} starts within {cold} ns, it takes {kind.cold_start}")
            return batch.began + cold[0]
        if kind.cold_start:
            last = max((at for at, idle in enumerate(worker.idle) if idle[0] == batch.function), default=-1)
            if last < 0:
                self._find("instance", f"{kind.name} runs at {worker.worker.name} in a process that is not there")
            else:
                worker.idle.pop(last)
        return batch.began

    def _batch(self, row: list[int]) -> BatchRecord | None:
        """Return the batch of a row, which must be running; None, with a finding, where it is not."""
        worker = self._at(row)
        batch = worker.batches.get(row[3]) if worker is not None else None
        if worker is not None and batch is None:
            self._find("lease", f"{Kind(row[1]).name} of batch {row[3]} at {worker.worker.name}, which is not there")
        return batch

    def _on_loaded(self, row: list[int]) -> None:
        if (batch := self._batch(row)) is not None:
            if self._punctual and row[0] < batch.earliest:
                self._find("early", f"batch {row[3]} computes before {batch.earliest} ns: something is missing")
            batch.loaded = row[0]
            self._came(row, self._catalogue.functions[batch.function].models)
            request = self._requests.get(batch.tasks[0][0]) if batch.tasks else None
            broken = audit_tokens.admitted(self._workers[row[4]], batch, request, row[5])
            self._find_all(broken, f"batch {row[3]}: ")

    def _on_first_token(self, row: list[int]) -> None:
        if (batch := self._batch(row)) is not None:
            broken = audit_tokens.first_token(self._workers[row[4]], batch, self._requests.get(row[2]), row)
            self._find_all(broken, f"batch {row[3]}: ")

    def _on_finished(self, row: list[int]) -> None:
        if (batch := self._batch(row)) is None:
            return
        now, _, _, lease, place, function, count = row
        worker = self._workers[place]
        if (function, count) != (batch.function, len(batch.tasks)):
            self._find(
                "batch", f"batch {lease} ends as {count} of {function}, it is {len(batch.tasks)} of {batch.function}"
            )
        if batch.loaded < 0 and batch.earliest > batch.began:
            self._find("early", f"batch {lease} ends and never had all it needs")
        kind = self._catalogue.functions[batch.function]
        began = max(batch.loaded, batch.began)
        takes = worker.profiled(batch) if kind.generate is None else None
        self._find_all(audit_tokens.ended(kind, batch, now), f"batch {lease}: ")
        if self._punctual and takes and not kind.profile.spread and now - began < takes:
            self._find("early", f"batch {lease} ran for {now - began} ns, its profile says {takes}")
        del worker.batches[lease]
        self._came(row, kind.models)
        if kind.cold_start:
            worker.idle.append((batch.function, now))
        for request, task in batch.tasks:
            known = worker.tasks.pop((request, task), 0) is None
            if known and (record := self._open_requests.get(request)) is not None and record.running[task] == lease:
                record.running[task], record.finished[task] = 0, now
                if min(record.finished) >= 0:
                    self._whole[request] = None

    # --- ahead of any task ------------------------------------------------------------------------------------

    def _on_fetch(self, worker: WorkerRecord, group: list[list[int]]) -> None:
        now, _, _, lease, place, model, value = group[0]
        if not 0 <= model < len(self._catalogue.models):
            self._find("load", f"model {model} does not exist")
            return
        for row in group[1:]:
            self._find_all(worker.evicted(row[5]) if row[1] == Kind.EVICTED else [("kind", f"{row} after a FETCH")])
        if model in worker.resident:
            self._find("load", f"model {model} is fetched to {place}, where it is")
        self._link(model, value - max(0, worker.link_free - now))
        worker.resident[model] = now + value
        worker.hold_link(now + value)
        worker.fetches[lease] = (model, now + value)
        self._find_all(worker.overbooked(), f"fetch {lease} at {place}: ")

    def _on_fetched(self, row: list[int]) -> None:
        worker = self._at(row)
        self._ahead(row, worker.fetches if worker is not None else {}, "load")
        self._came(row, (row[5],))

    def _came(self, row: list[int], models: Sequence[int]) -> None:
        """Note that models are there, which outside of virtual time may be earlier than expected."""
        if not self._punctual and 0 <= row[4] < len(self._workers):
            resident = self._workers[row[4]].resident
            resident.update({model: min(resident[model], row[0]) for model in models if model in resident})

    def _on_started(self, row: list[int]) -> None:
        if (worker := self._at(row)) is not None:
            self._ahead(row, worker.starting, "instance")
            worker.idle.append((row[5], row[0]))

    def _ahead(self, row: list[int], pending: dict[int, tuple[int, int]], rule: str) -> None:
        """Check that a fetch or start ahead of any task could have ended by now."""
        subject, earliest = pending.pop(row[3], (-1, 0))
        if subject != row[5]:
            self._find("lease", f"{Kind(row[1]).name} of {row[5]} under {row[3]}, which is not under way")
        elif self._punctual and row[0] < earliest:
            self._find(rule, f"{Kind(row[1]).name} of {row[5]} under {row[3]} before {earliest} ns")

    def _on_evict(self, row: list[int]) -> None:
        if (worker := self._at(row)) is not None:
            self._find_all(worker.evicted(row[5]))

    def _on_start_instance(self, row: list[int]) -> None:
        if (worker := self._at(row)) is None:
            return
        self._new_lease(row[3])
        if not 0 <= row[5] < len(self._catalogue.functions):
            self._find("instance", f"function {row[5]} does not exist")
            return
        needed = self._catalogue.functions[row[5]].cold_start
        if not needed or row[6] < needed:
            self._find("instance", f"a process of function {row[5]} starts within {row[6]} ns, it takes {needed}")
        worker.starting[row[3]] = (row[5], row[0] + row[6])

    def _on_stop_instance(self, row: list[int]) -> None:
        self._at(row)
        self._stopping = row

    def _on_expired(self, row: list[int]) -> None:
        now, _, _, _, place, function, since = row
        worker = self._workers[place] if 0 <= place < len(self._workers) else None
        stopped, self._stopping = self._stopping, None
        if worker is None or (function, since) not in worker.idle:
            self._find("instance", f"a process of function {function}, idle since {since} ns, is not at {place}")
            return
        worker.idle.remove((function, since))
        early = now < since + self._fleet.keep_alive
        if early and worker.up and (stopped is None or stopped[4:6] != [place, function]):
            self._find("instance", f"a process of function {function} is let go before its time")

    def _on_decide(self, row: list[int]) -> None:
        now, _, _, states, place, waited, until = row
        if not -1 <= place < len(self._workers):
            self._find("controller", f"worker {place} does not exist")
        if now < (busy := self._busy_until.get(place, 0)):
            self._find("controller", f"controller {place} begins a decision, it is busy until {busy} ns")
        if until <= now or waited < 0 or states < 0:
            self._find("controller", f"a decision until {until} ns, after a wait of {waited}, over {states} states")
        self._busy_until[place] = until

    def _on_stale(self, row: list[int]) -> None:
        _, _, request, lease, place, task, kind = row
        worker = self._workers[place] if 0 <= place < len(self._workers) else None
        if kind == Kind.TASK_ARRIVED:
            record = self._open_requests.get(request)
            live = (
                record is not None
                and 0 <= task < len(record.moves)
                and record.placed[task] >= 0
                and record.moves[task] == lease
                and not (record.queued[task] or record.begun(task) or record.unmet(task))
            )
        elif worker is None:
            live = False
        elif kind == Kind.WORKER_FAILED:
            live = worker.up or worker.power is Power.DRAINING
        elif kind == Kind.WORKER_RECOVERED:
            live = not worker.up and worker.power is Power.ON
        elif kind == Kind.WORKER_STARTED:
            live = worker.power is Power.STARTING and worker.start_lease == lease
        elif kind == Kind.LOADED:
            live = lease in worker.batches and worker.batches[lease].loaded < 0
        else:
            live = lease in worker.batches or lease in worker.fetches or lease in worker.starting
        if live:
            self._find("lease", f"an event of kind {kind} under {lease}, which is live, was called stale")
