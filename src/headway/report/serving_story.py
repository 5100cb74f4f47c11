"""What happened to one request: each task's way through the fleet, and where the time went, from the tape alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.core.tape import Tape, TapeRow
from headway.serving.catalogue import Catalogue
from headway.serving.fleet import Fleet
from headway.serving.latency import LatencyModel
from headway.serving.request import Request
from headway.serving.rows import Kind, unpack
from headway.units import format_size, to_seconds

_MOST_NEIGHBOURS = 3


@dataclass(slots=True)
class Stay:
    """A batch on its worker."""

    lease: int
    worker: int
    function: int
    begin: int
    cpus: int
    slices: int
    tasks: int = 0
    start: int = -1
    """When it began to compute."""
    end: int = -1
    lost: int = -1
    """When its worker failed under it."""
    loads: list[tuple[int, int]] = field(default_factory=list)
    """(model, how long it took)."""
    cold: int = 0
    evicted: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Passage:
    """One task of the request, as it was answered: when it was ready, where it waited, when it ran."""

    task: int
    ready: int = -1
    queued: int = -1
    stay: Stay | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A moment of the story."""

    time: int
    text: str


@dataclass(frozen=True, slots=True)
class RequestStory:
    """The whole of it."""

    request: Request
    graph: str
    steps: tuple[Step, ...]
    answered: int
    """When; -1: never."""
    dropped: int
    least: int
    """The critical path, had nothing been in the way."""
    spent: dict[str, int]
    """Nanoseconds of the chain of tasks that decided when it was answered: run, wait, load, transfer."""

    def lines(self) -> Iterator[str]:
        """For a terminal."""
        request = self.request
        deadline = "" if not request.deadline else f", to be answered within {_ms(request.deadline - request.arrival)}"
        yield f"request {request.id}: {self.graph}, arrived at {to_seconds(request.arrival):.3f} s{deadline}"
        for step in self.steps:
            yield f"  {'+' + _ms(step.time - request.arrival):>12}  {step.text}"
        if self.answered >= 0:
            latency = self.answered - request.arrival
            late = ""
            if request.deadline:
                over = self.answered - request.deadline
                late = f", {_ms(over)} late" if over > 0 else f", {_ms(-over)} before its deadline"
            times = f"{latency / self.least:.2f} times its critical path of {_ms(self.least)}"
            yield f"answered after {_ms(latency)}: {times}{late}"
            where = ", ".join(f"{_ms(time)} {what}" for what, time in self.spent.items() if time)
            yield f"the chain that decided it: {where}"
        elif self.dropped >= 0:
            yield f"dropped after {_ms(self.dropped - request.arrival)}"
        else:
            yield "not answered: the run ended first"

    def record(self) -> dict[str, Any]:
        """For a program."""
        return {
            "request": self.request.id,
            "graph": self.graph,
            "arrival_s": to_seconds(self.request.arrival),
            "deadline_s": to_seconds(self.request.deadline) if self.request.deadline else None,
            "answered_s": to_seconds(self.answered) if self.answered >= 0 else None,
            "dropped_s": to_seconds(self.dropped) if self.dropped >= 0 else None,
            "critical_path_s": to_seconds(self.least),
            "spent_s": {what: to_seconds(time) for what, time in self.spent.items()},
            "steps": [{"time_s": to_seconds(step.time), "text": step.text} for step in self.steps],
        }


def story(catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape, number: int) -> RequestStory:
    """The story of the request with this number."""
    request = next(each for each in requests if each.id == number)
    return _Teller(catalogue, fleet, request, tape).tell()


def stays_of(tape: Tape) -> dict[int, Stay]:
    """All batches of a run by lease."""
    stays: dict[int, Stay] = {}
    told = (Kind.RUN, Kind.TASK, Kind.LOAD, Kind.COLD, Kind.EVICTED, Kind.LOADED, Kind.FINISHED, Kind.WORKER_FAILED)
    for values in tape.of(*told).tolist():
        row = TapeRow(*values)
        if row.kind == Kind.WORKER_FAILED:
            for each in stays.values():
                if each.worker == row.place and each.end < 0 and each.lost < 0:
                    each.lost = row.time
        elif row.kind == Kind.RUN:
            cpus, slices, _ = unpack(row.value)
            stays[row.lease] = Stay(row.lease, row.place, row.detail, row.time, cpus, slices, start=row.time)
        elif (stay := stays.get(row.lease)) is None:
            continue  # a fetch ahead
        elif row.kind == Kind.TASK:
            stay.tasks += 1
        elif row.kind == Kind.LOAD:
            stay.loads.append((row.detail, row.value))
        elif row.kind == Kind.COLD:
            stay.cold = row.value
        elif row.kind == Kind.EVICTED:
            stay.evicted.append(row.detail)
        elif row.kind == Kind.LOADED:
            stay.start = row.time
        else:
            stay.end = row.time
    return stays


class _Teller:
    def __init__(self, catalogue: Catalogue, fleet: Fleet, request: Request, tape: Tape) -> None:
        self.catalogue, self.fleet, self.request, self.tape = catalogue, fleet, request, tape
        self.graph = catalogue.graphs[request.graph]
        self.steps: list[Step] = []
        self.passages = [Passage(task) for task in range(len(self.graph.tasks))]
        self.answered = self.dropped = -1
        self.stays = stays_of(tape)

    def tell(self) -> RequestStory:
        rows = self.tape.rows[self.tape.column("subject") == self.request.id]
        for values in rows.tolist():
            self._read(TapeRow(*values))
        self.steps.sort(key=lambda step: step.time)
        latency = LatencyModel(self.catalogue, self.fleet)
        times = [min(base[task.function] for base in latency.base) for task in self.graph.tasks]
        least = self.graph.critical_path(times)
        answers = (self.answered, self.dropped)
        return RequestStory(self.request, self.graph.name, tuple(self.steps), *answers, least, self._spent())

    def _read(self, row: TapeRow) -> None:
        name = self.graph.tasks[row.detail].name if 0 <= row.detail < len(self.graph.tasks) else ""
        if row.kind == Kind.ARRIVED:
            self._say(row.time, f"came in at {self._worker(row.place)}")
            for task in self.graph.entries:
                self.passages[task].ready = row.time
        elif row.kind == Kind.PLACE:
            self._say(row.time, f"{name} is placed on {self._worker(row.place)}")
        elif row.kind == Kind.MOVE:
            came = "" if row.value < 0 else f" instead of {self._worker(row.value)}"
            self._say(row.time, f"{name} is placed on {self._worker(row.place)}{came}")
        elif row.kind in (Kind.QUEUED, Kind.TASK_ARRIVED):
            self.passages[row.detail].queued = row.time
            self._say(row.time, f"{name} is queued at {self._worker(row.place)}")
        elif row.kind == Kind.READY:
            self.passages[row.detail].ready = row.time
        elif row.kind == Kind.LOST:
            what = "its result is lost" if row.value else "it is lost"
            self._say(row.time, f"{name}: {what} with its worker, and must run again")
        elif row.kind == Kind.TASK:
            self._ran(row, name)
        elif row.kind == Kind.DROP:
            self.dropped = row.time
            self._say(row.time, "is given up")
        elif row.kind == Kind.DONE:
            self.answered = row.time

    def _ran(self, row: TapeRow, name: str) -> None:
        stay = self.stays[row.lease]
        passage = self.passages[row.detail]
        passage.stay = stay
        since = max(passage.queued, passage.ready)
        waited = f" after {_ms(row.time - since)} in the queue{self._behind(stay, since)}" if row.time > since else ""
        self._say(row.time, f"{name} is taken up by {self._worker(row.place)}{waited}; {self._given(stay)}")
        before = self._before_start(stay)
        if before:
            self._say(stay.start, f"{name} has {before}")
        if stay.end >= 0:
            self._say(stay.end, f"{name} is done, in {_ms(stay.end - stay.start)}")

    def _given(self, stay: Stay) -> str:
        batch = "alone" if stay.tasks == 1 else f"in a batch of {stay.tasks}"
        cpus = "1 CPU" if stay.cpus == 1 else f"{stay.cpus} CPUs"
        whole = self.fleet.workers[stay.worker].gpu.slices
        share = "the whole GPU" if stay.slices == whole else f"{stay.slices} of {whole} slices"
        return f"{batch}, {cpus}, {share}"

    def _before_start(self, stay: Stay) -> str:
        parts = []
        if stay.cold:
            parts.append(f"its process after {_ms(stay.cold)}")
        for model, time in stay.loads:
            weights = self.catalogue.models[model]
            parts.append(f"the weights of {weights.name} ({format_size(weights.size_bytes)}) after {_ms(time)}")
        if stay.evicted:
            parts.append(
                "room where " + ", ".join(self.catalogue.models[model].name for model in stay.evicted) + " was"
            )
        if not parts and stay.start > stay.begin:
            parts.append(f"its inputs after {_ms(stay.start - stay.begin)}")
        return ", ".join(parts)

    def _behind(self, stay: Stay, since: int) -> str:
        """What its worker did meanwhile."""
        others = [
            other
            for other in self.stays.values()
            if other.worker == stay.worker
            and other.lease != stay.lease
            and other.begin < stay.begin
            and other.end > since
        ]
        if not others:
            return ""
        names = [self.catalogue.functions[other.function].name for other in others[:_MOST_NEIGHBOURS]]
        more = f" and {len(others) - _MOST_NEIGHBOURS} more" if len(others) > _MOST_NEIGHBOURS else ""
        return f" behind {', '.join(names)}{more}"

    def _spent(self) -> dict[str, int]:
        """Back from the task that ended last: which predecessor it waited for, and what each did with its time."""
        spent = {"run": 0, "wait": 0, "load": 0, "transfer": 0}
        done = [passage for passage in self.passages if passage.stay is not None and passage.stay.end >= 0]
        if self.answered < 0 or not done:
            return spent
        passage: Passage | None = max(done, key=_end)
        while passage is not None and passage.stay is not None:
            stay = passage.stay
            before = [self.passages[task] for task in self.graph.predecessors[passage.task]]
            last = max(before, key=_end) if before else None
            ready = _end(last) if last is not None else self.request.arrival
            queued = passage.queued if passage.queued >= ready else ready
            spent["run"] += stay.end - stay.start
            spent["load"] += stay.start - stay.begin
            spent["wait"] += max(0, stay.begin - queued)
            spent["transfer"] += max(0, queued - ready)
            passage = last
        return spent

    def _say(self, time: int, text: str) -> None:
        self.steps.append(Step(time, text))

    def _worker(self, index: int) -> str:
        return self.fleet.workers[index].name if 0 <= index < len(self.fleet.workers) else "a client"


def _end(passage: Passage) -> int:
    return passage.stay.end if passage.stay is not None else -1


def _ms(time: int) -> str:
    return f"{time / 1e6:,.1f} ms"
