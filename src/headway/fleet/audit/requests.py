"""Request part of the serving audit: where tasks are, which were lost, how requests ended."""

from collections.abc import Sequence

from headway.core.audit import Auditor
from headway.fleet.audit.records import RequestRecord, WorkerRecord, least_transfer_time
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.state.warm import placed
from headway.fleet.state.workerstate import Power

_WHILE_DRAINING = (
    *(Kind.FINISHED, Kind.LOADED, Kind.FETCHED, Kind.INSTANCE_STARTED, Kind.WORKER_FAILED),
    *(Kind.EVICT, Kind.STOP_INSTANCE),
)
"""Rows that a draining worker may have: the end of what was under way, and what frees something."""


class RequestAuditor(Auditor):
    """Follows requests; what runs on workers is entered by its subclass."""

    def __init__(self, catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request]) -> None:
        super().__init__()
        self._catalogue, self._fleet = catalogue, fleet
        self._requests = {request.id: request for request in requests}
        self._workers = [WorkerRecord(worker, catalogue) for worker in fleet.workers]
        for record in self._workers:
            if (device := record.worker.device) >= 0 and fleet.links.shared:
                record.sharing = [other for other in self._workers if other.worker.device == device]
        for index in fleet.off:
            self._workers[index].up, self._workers[index].power = False, Power.OFF
        for record, begins_with in zip(self._workers, placed(catalogue, fleet), strict=True):
            record.resident = dict.fromkeys(begins_with.models, 0)
            record.idle = [(function, 0) for function in begins_with.processes]
        self._open_requests: dict[int, RequestRecord] = {}
        self._ended: dict[int, str] = {}
        """Requests that were answered or dropped, and which of the two."""
        self._whole: dict[int, None] = {}
        """Requests whose tasks are all done and whose DONE row has yet to come."""
        self._failed: list[WorkerRecord] = []
        """Workers that failed in this instant."""
        self._row = self._now = -1

    def _end_instant(self) -> None:
        for worker in self._failed:
            if not worker.up:
                self._leftovers(worker)
        for request in self._whole:
            self._find("answer", f"all tasks of request {request} are done, and it is not answered")
        self._failed, self._whole = [], {}

    def _at(self, row: list[int]) -> WorkerRecord | None:
        """Return the record of a row's worker; a finding where it is down, None where it does not exist."""
        if not 0 <= row[4] < len(self._workers):
            self._find("worker", f"worker {row[4]} does not exist")
            return None
        worker = self._workers[row[4]]
        if not worker.up and not (worker.power is Power.DRAINING and row[1] in _WHILE_DRAINING):
            self._find("worker", f"{Kind(row[1]).name} on worker {worker.worker.name}, which is down")
        return worker

    def _record_of(self, row: list[int]) -> RequestRecord | None:
        """Return the record of a row's request; None, with a finding, where it is not open or has no such task."""
        if (record := self._open_requests.get(row[2])) is None:
            how = self._ended.get(row[2], "not there")
            self._find("request", f"{Kind(row[1]).name} of request {row[2]}, which is {how}")
        elif not 0 <= row[5] < len(record.placed):
            self._find("request", f"request {row[2]} has no task {row[5]}")
            return None
        return record

    # --- requests and where their tasks are -------------------------------------------------------------------

    def _on_arrived(self, row: list[int]) -> None:
        now, _, subject, tenant, place, graph, deadline = row
        if (request := self._requests.get(subject)) is None:
            self._find("arrival", f"request {subject} is not in the workload")
            return
        if subject in self._open_requests or subject in self._ended:
            self._find("arrival", f"request {subject} arrives a second time")
            return
        if (graph, place, deadline, tenant) != (request.graph, request.ingress, request.deadline, request.tenant):
            self._find("arrival", f"request {subject} arrives as another than {request}")
        if now < request.arrival:
            self._find("arrival", f"request {subject} arrives before {request.arrival} ns")
        self._open_requests[subject] = RequestRecord(request, self._catalogue.graphs[request.graph])

    def _on_placed(self, row: list[int]) -> None:
        now, kind, request, _, place, task, value = row
        worker, record = self._at(row), self._record_of(row)
        if worker is None or record is None:
            return
        if record.begun(task):
            self._find("place", f"task {task} of request {request} is placed but has begun")
            return
        if kind == Kind.MOVE and value != record.placed[task]:
            self._find("place", f"task {task} of request {request} moves from {value}, it was at {record.placed[task]}")
        if record.placed[task] >= 0:
            self._workers[record.placed[task]].tasks.pop((request, task), None)
        record.placed[task], record.placed_at[task], record.queued[task] = place, now, False
        record.moves[task] += 1
        worker.tasks[request, task] = None

    def _on_queued(self, row: list[int]) -> None:
        now, kind, request, lease, place, task, _ = row
        worker, record = self._at(row), self._record_of(row)
        if worker is None or record is None:
            return
        if record.placed[task] != place or record.queued[task] or record.begun(task):
            self._find("queue", f"task {task} of request {request} is queued at {place}, where it is not expected")
        if kind == Kind.TASK_ARRIVED and lease != record.moves[task]:
            self._find("lease", f"task {task} of request {request} was placed {record.moves[task]} times, not {lease}")
        self._inputs(record, task, place, now, record.placed_at[task])
        record.queued[task] = True

    def _on_ready(self, row: list[int]) -> None:
        record, task = self._record_of(row), row[5]
        if record is not None and (record.unmet(task) or record.placed[task] >= 0 or record.begun(task)):
            self._find("queue", f"task {task} of request {row[2]} is called ready: it waits, is placed or has begun")

    def _inputs(self, record: RequestRecord, task: int, place: int, there: int, asked: int) -> None:
        """Check that all inputs of a task could be on a worker by ``there``; a request's own are sent when placed."""
        name = f"task {task} of request {record.request.id}"
        if unmet := record.unmet(task):
            self._find("order-of-tasks", f"{name} goes on before its predecessors {unmet} are done")
            return
        tasks, fleet = record.graph.tasks, self._fleet
        earliest = asked
        if not record.graph.predecessors[task]:
            earliest += least_transfer_time(fleet, record.request.ingress, place, tasks[task].input_bytes)
        for before in record.graph.predecessors[task]:
            transfer = least_transfer_time(fleet, record.where[before], place, tasks[before].output_bytes)
            earliest = max(earliest, record.finished[before] + transfer)
        if there < earliest:
            self._find("input", f"{name} has its inputs at {there} ns, they cannot be there before {earliest} ns")

    def _on_drop(self, row: list[int]) -> None:
        if (record := self._open_requests.get(row[2])) is None:
            self._find("request", f"request {row[2]} is dropped, which is {self._ended.get(row[2], 'not there')}")
            return
        if (done := sum(when >= 0 for when in record.finished)) != row[6]:
            self._find("drop", f"request {row[2]} is dropped with {done} tasks done, the tape says {row[6]}")
        for task, place in enumerate(record.placed):
            if place >= 0 and not record.begun(task):
                self._workers[place].tasks.pop((row[2], task), None)
        del self._open_requests[row[2]]
        self._ended[row[2]] = "dropped"

    def _on_done(self, row: list[int]) -> None:
        if (record := self._record_of(row)) is None:
            return
        if row[2] not in self._whole:
            left = [task for task, when in enumerate(record.finished) if when < 0]
            self._find("answer", f"request {row[2]} is answered, but its tasks {left} are not done")
        if row[6] != row[0] - record.request.arrival:
            self._find("answer", f"request {row[2]} took {row[0] - record.request.arrival} ns, the tape says {row[6]}")
        self._whole.pop(row[2], None)
        del self._open_requests[row[2]]
        self._ended[row[2]] = "answered"

    # --- workers that die and return --------------------------------------------------------------------------

    def _on_failed(self, row: list[int]) -> None:
        if (worker := self._at(row)) is not None:
            worker.up, worker.failed_at, worker.power = False, row[0], Power.ON
            worker.free_link(row[0])
            worker.batches, worker.resident, worker.fetches, worker.starting = {}, {}, {}, {}
            self._failed.append(worker)

    def _on_recovered(self, row: list[int]) -> None:
        if not 0 <= row[4] < len(self._workers):
            self._find("worker", f"worker {row[4]} does not exist")
        elif self._workers[row[4]].up or self._workers[row[4]].power is not Power.ON:
            self._find("worker", f"worker {self._workers[row[4]].worker.name} returns but was not gone")
        else:
            self._leftovers(self._workers[row[4]])
            self._workers[row[4]].up = True

    def _leftovers(self, worker: WorkerRecord) -> None:
        """Report tasks and processes that outlived a failed worker, and clear its record."""
        for request, task in worker.tasks:
            if request in self._open_requests:
                gone = "died" if worker.power is Power.ON else "stopped"
                self._find("lost", f"task {task} of request {request} was on {worker.worker.name}, which {gone}")
        for function, _ in worker.idle:
            self._find("instance", f"a process of function {function} outlived worker {worker.worker.name}")
        worker.empty()

    # --- workers that are started and stopped -----------------------------------------------------------------

    def _power_of(self, row: list[int], *wanted: Power) -> WorkerRecord | None:
        """Return the record of a row's worker, with a finding where its power is none of ``wanted``."""
        if not 0 <= row[4] < len(self._workers):
            self._find("worker", f"worker {row[4]} does not exist")
            return None
        worker = self._workers[row[4]]
        if worker.power not in wanted:
            self._find("power", f"{Kind(row[1]).name} of worker {worker.worker.name}, which is {worker.power.name}")
        return worker

    def _on_start_worker(self, row: list[int]) -> None:
        if (worker := self._power_of(row, Power.OFF, Power.DRAINING)) is None:
            return
        if worker.power is Power.DRAINING:
            worker.power, worker.up = Power.ON, True
            if row[3] or row[6]:
                self._find("power", f"worker {worker.worker.name} drains and is started under {row[3]}, not 0")
        else:
            worker.power, worker.start_lease, worker.starts_by = Power.STARTING, row[3], row[0] + row[6]
            if row[6] != self._fleet.startup:
                self._find("power", f"a worker starts within {row[6]} ns, the fleet's take {self._fleet.startup}")

    def _on_worker_started(self, row: list[int]) -> None:
        if (worker := self._power_of(row, Power.STARTING)) is not None:
            if row[3] != worker.start_lease or row[0] < worker.starts_by:
                due = f"start {worker.start_lease}, ready at {worker.starts_by} ns"
                self._find("power", f"worker {worker.worker.name} started under {row[3]}, expected was {due}")
            worker.power, worker.up = Power.ON, True
            worker.started_at = row[0]
            worker.free_link(row[0])

    def _on_drain_worker(self, row: list[int]) -> None:
        if (worker := self._power_of(row, Power.ON)) is not None:
            self._at(row)
            worker.power, worker.up, worker.drained_at = Power.DRAINING, False, row[0]

    def _on_stop_worker(self, row: list[int]) -> None:
        if (worker := self._power_of(row, Power.ON, Power.STARTING, Power.DRAINING)) is None:
            return
        if worker.batches:
            self._find("power", f"worker {worker.worker.name} stops while batches {list(worker.batches)} run there")
        for request, record in self._open_requests.items():
            for task, ran_at in enumerate(record.where):
                if ran_at != row[4] or record.finished[task] < max(0, worker.started_at, worker.failed_at):
                    continue  # it is not done, or went with an earlier stop or failure
                successors = record.graph.successors[task]
                if any(not record.begun(after) and record.placed[after] < 0 for after in successors):
                    held = f"the result of task {task} of request {request}, which is needed"
                    self._find("power", f"worker {worker.worker.name} stops and takes {held}")
        worker.power, worker.up = Power.OFF, False
        worker.batches, worker.resident, worker.fetches, worker.starting = {}, {}, {}, {}
        self._failed.append(worker)

    def _on_lost(self, row: list[int]) -> None:
        if (record := self._record_of(row)) is None:
            return
        _, _, request, _, _, task, finished = row
        at = record.where[task] if finished or record.running[task] else record.placed[task]
        died = 0 <= at < len(self._workers) and self._workers[at].failed_at >= max(0, record.finished[task])
        if not finished and not record.running[task] and at >= 0:  # it waited on a worker that drains
            died = died or self._workers[at].drained_at == row[0]
        if not died or bool(finished) != (record.finished[task] >= 0):
            self._find("lost", f"task {task} of request {request} is lost, its worker {at} did not take it along")
        if 0 <= at < len(self._workers):
            self._workers[at].tasks.pop((request, task), None)
        record.moves[task] += not finished and not record.running[task]
        record.placed[task] = record.where[task] = record.finished[task] = -1
        record.running[task], record.queued[task] = 0, False
