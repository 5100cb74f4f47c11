"""A run of a fleet as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process is a worker. Its threads hold batches, as many threads as ran at once, each batch with what it loaded and what
it computed below it; fetches ahead have a thread of their own, waiting tasks and inputs under way are asynchronous
slices. Counters say how many tasks wait at each worker and how many requests live. Lines are made one at a time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from headway.core.tape import Tape, TapeRow
from headway.report.perfetto import microseconds
from headway.report.serving_story import Stay, stays_of
from headway.serving.catalogue import Catalogue
from headway.serving.fleet import Fleet
from headway.serving.request import Request
from headway.serving.rows import Kind

FLEET_PID = 1
FIRST_PID = 2
_FETCHES = 0
"""The first of a worker's threads; batches have those after it."""


def trace_events(
    catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape, title: str = ""
) -> Iterator[str]:
    """The file, piece by piece."""
    drawn = _Drawn(catalogue, fleet, requests, tape)
    yield f'{{"displayTimeUnit":"ms","otherData":{{"run":{json.dumps(title)}}},"traceEvents":[\n'
    for made, event in enumerate(
        chain(drawn.names(), drawn.batches(), drawn.fetches(), drawn.waits(), drawn.counters())
    ):
        yield f",\n{event}" if made else event
    yield "\n]}\n"


class _Drawn:
    def __init__(self, catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape) -> None:
        self.catalogue, self.fleet, self.tape = catalogue, fleet, tape
        self.graphs = {request.id: catalogue.graphs[request.graph] for request in requests}
        self.end = int(tape.column("time")[-1]) if len(tape) else 0
        self.stays = sorted(stays_of(tape).values(), key=lambda stay: (stay.begin, stay.lease))
        self.lanes: list[int] = []
        """The lane of each batch."""
        self.most = [1] * len(fleet.workers)
        busy: list[list[int]] = [[] for _ in fleet.workers]
        for stay in self.stays:
            free = busy[stay.worker]
            lane = next((index for index, until in enumerate(free) if until <= stay.begin), len(free))
            free[lane : lane + 1] = [self._until(stay)]
            self.lanes.append(lane)
            self.most[stay.worker] = max(self.most[stay.worker], len(free))
        self.first = FIRST_PID + len(fleet.workers)
        self.base = [self.first + index * (max(self.most) + 1) for index in range(len(fleet.workers))]
        """The number of each worker's first thread: no thread has the number of a process."""

    def names(self) -> Iterator[str]:
        """Processes and threads."""
        yield _named("process_name", FLEET_PID, 0, "fleet")
        for index, worker in enumerate(self.fleet.workers):
            pid = FIRST_PID + index
            yield _named("process_name", pid, 0, f"{worker.name} ({worker.gpu.type or 'GPU'})")
            yield f'{{"ph":"M","name":"process_sort_index","pid":{pid},"tid":0,"ts":0,"args":{{"sort_index":{pid}}}}}'
            yield _named("thread_name", pid, self.base[index] + _FETCHES, "fetches ahead")
            for lane in range(self.most[index]):
                yield _named("thread_name", pid, self.base[index] + 1 + lane, f"GPU, {lane + 1}" if lane else "GPU")

    def batches(self) -> Iterator[str]:
        """What held the GPU, and within it: loading, then computing."""
        for stay, lane in zip(self.stays, self.lanes, strict=True):
            function = self.catalogue.functions[stay.function].name
            where = f'"pid":{FIRST_PID + stay.worker},"tid":{self.base[stay.worker] + 1 + lane}'
            until = self._until(stay)
            args = {"batch": stay.tasks, "cpus": stay.cpus, "slices": stay.slices, "ended": stay.end >= 0}
            yield _slice(function, "batch", stay.begin, until, where, args)
            if stay.start > stay.begin:
                models = [self.catalogue.models[model].name for model, _ in stay.loads]
                told = {"models": models, "process_ms": stay.cold / 1e6}
                yield _slice("load", "load", stay.begin, min(stay.start, until), where, told)
            if until > stay.start:
                yield _slice("run", "run", stay.start, until, where, {})

    def fetches(self) -> Iterator[str]:
        """Weights that came before anybody waited for them."""
        for row in self._rows(Kind.FETCH):
            where = f'"pid":{FIRST_PID + row.place},"tid":{self.base[row.place] + _FETCHES}'
            name = f"fetch {self.catalogue.models[row.detail].name}"
            yield _slice(name, "fetch", row.time, row.time + row.value, where, {})

    def waits(self) -> Iterator[str]:
        """Inputs under way to a worker, and tasks in its queue."""
        sent: dict[tuple[int, int], tuple[int, int]] = {}
        queued: dict[tuple[int, int], tuple[int, int]] = {}
        number = 0
        for row in self._rows(Kind.PLACE, Kind.MOVE, Kind.QUEUED, Kind.TASK_ARRIVED, Kind.TASK, Kind.DONE, Kind.DROP):
            key = (row.subject, row.detail)
            if row.kind in (Kind.PLACE, Kind.MOVE):
                sent[key] = (row.time, row.place)
            elif row.kind in (Kind.QUEUED, Kind.TASK_ARRIVED):
                queued[key] = (row.time, row.place)
                if row.kind == Kind.TASK_ARRIVED and key in sent:
                    number += 1
                    yield from self._apart("transfer", key, sent[key][0], row.time, row.place, number)
            elif row.kind == Kind.TASK and key in queued:
                since, place = queued.pop(key)
                if row.time > since:
                    number += 1
                    yield from self._apart("wait", key, since, row.time, place, number)

    def _apart(self, what: str, key: tuple[int, int], since: int, until: int, place: int, number: int) -> Iterator[str]:
        graph = self.graphs[key[0]]
        name = json.dumps(f"{what}: {graph.tasks[key[1]].name} of request {key[0]}")
        same = f'"cat":"{what}","id":{number},"name":{name},"pid":{FIRST_PID + place},"tid":{self.base[place]}'
        yield f'{{"ph":"b",{same},"ts":{microseconds(since)}}}'
        yield f'{{"ph":"e",{same},"ts":{microseconds(until)}}}'

    def counters(self) -> Iterator[str]:
        """Requests that live, and tasks in each queue."""
        alive = 0
        queues = [0] * len(self.fleet.workers)
        waiting: dict[tuple[int, int], int] = {}
        kinds = (Kind.ARRIVED, Kind.DONE, Kind.DROP, Kind.QUEUED, Kind.TASK_ARRIVED, Kind.TASK, Kind.LOST)
        for row in self._rows(*kinds):
            if row.kind in (Kind.ARRIVED, Kind.DONE, Kind.DROP):
                alive += 1 if row.kind == Kind.ARRIVED else -1
                yield _counter("requests", "alive", FLEET_PID, row.time, alive)
            elif row.kind in (Kind.QUEUED, Kind.TASK_ARRIVED):
                waiting[row.subject, row.detail] = row.place
                queues[row.place] += 1
                yield _counter("queue", "tasks", FIRST_PID + row.place, row.time, queues[row.place])
            elif (place := waiting.pop((row.subject, row.detail), -1)) >= 0:
                queues[place] -= 1
                yield _counter("queue", "tasks", FIRST_PID + place, row.time, queues[place])

    def _until(self, stay: Stay) -> int:
        return stay.end if stay.end >= 0 else stay.lost if stay.lost >= 0 else max(stay.begin, self.end)

    def _rows(self, *kinds: Kind) -> Iterator[TapeRow]:
        for values in self.tape.of(*kinds).tolist():
            yield TapeRow(*values)


def _named(what: str, pid: int, tid: int, name: str) -> str:
    return f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"ts":0,"args":{{"name":{json.dumps(name)}}}}}'


def _slice(name: str, category: str, start: int, end: int, where: str, args: Mapping[str, object]) -> str:
    span = f'"ts":{microseconds(start)},"dur":{microseconds(end - start)}'
    return f'{{"ph":"X","cat":"{category}","name":{json.dumps(name)},{where},{span},"args":{json.dumps(args)}}}'


def _counter(name: str, what: str, pid: int, time: int, value: int) -> str:
    return f'{{"ph":"C","name":"{name}","pid":{pid},"tid":0,"ts":{microseconds(time)},"args":{{"{what}":{value}}}}}'
