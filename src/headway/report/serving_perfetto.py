"""A run of a fleet as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process is a worker. Its threads hold batches, as many threads as ran at once, each batch with what it loaded and what
it computed below it; weights and processes that nobody waited for yet have threads of their own. Tasks that wait and
inputs under way are asynchronous slices, at the worker or, while a task may go anywhere, at the process ``fleet``.
Failures and requests that are given up are instants. Counters say how many tasks wait at each worker, how many requests
live and how many workers are up. Lines are made one at a time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count

from headway.core.tape import Tape
from headway.report.perfetto import microseconds
from headway.report.serving_passages import Ahead, Passage, Passages, Stay
from headway.serving.catalogue import Catalogue
from headway.serving.fleet import Fleet
from headway.serving.request import Request

FLEET_PID = 1
FIRST_PID = 2
Change = tuple[int, int]
"""(time, by how much)."""


def trace_events(
    catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape, title: str = ""
) -> Iterator[str]:
    """The file, piece by piece."""
    drawn = _Drawn(catalogue, fleet, Passages(catalogue, requests, tape))
    parts = (drawn.names(), drawn.batches(), drawn.fetches(), drawn.waits(), drawn.moments(), drawn.counters())
    yield f'{{"displayTimeUnit":"ms","otherData":{{"run":{json.dumps(title)}}},"traceEvents":[\n'
    for made, event in enumerate(chain.from_iterable(parts)):
        yield f",\n{event}" if made else event
    yield "\n]}\n"


class _Lanes:
    """Threads of each worker on which spans lie beside each other: as few as it can be done with."""

    def __init__(self, workers: int) -> None:
        self._free: list[list[int]] = [[] for _ in range(workers)]

    def place(self, worker: int, begin: int, end: int) -> int:
        """The lane of a span; they come in order of their beginning."""
        free = self._free[worker]
        lane = next((index for index, until in enumerate(free) if until <= begin), len(free))
        free[lane : lane + 1] = [end]
        return lane

    def used(self, worker: int) -> int:
        """How many lanes a worker has."""
        return len(self._free[worker])


class _Drawn:
    def __init__(self, catalogue: Catalogue, fleet: Fleet, passages: Passages) -> None:
        self.catalogue, self.fleet, self.passages = catalogue, fleet, passages
        workers = len(fleet.workers)
        gpu, ahead = _Lanes(workers), _Lanes(workers)
        stays = sorted(passages.stays.values(), key=lambda stay: (stay.begin, stay.lease))
        held = [(stay, stay.until(passages.horizon)) for stay in stays]
        self.stays = [(s, until, gpu.place(s.worker, s.begin, until)) for s, until in held if until > s.begin]
        asked = [each for each in passages.ahead.values() if each.end > each.begin]
        self.ahead = [(each, ahead.place(each.worker, each.begin, each.end)) for each in asked]
        self.names_of: list[list[str]] = [
            [
                *(f"GPU, {lane + 1}" if lane else "GPU" for lane in range(max(1, gpu.used(worker)))),
                *(f"ahead, {lane + 1}" if lane else "ahead" for lane in range(ahead.used(worker))),
            ]
            for worker in range(workers)
        ]
        # no thread has the number of a process: viewers take such a one for its main thread and put it first
        numbers = count(FIRST_PID + workers)
        self.threads = [{name: next(numbers) for name in names} for names in self.names_of]

    def names(self) -> Iterator[str]:
        """Processes and threads."""
        yield _named("process_name", FLEET_PID, 0, "fleet")
        yield _sorted("process", FLEET_PID, 0)
        for index, worker in enumerate(self.fleet.workers):
            pid = FIRST_PID + index
            yield _named("process_name", pid, 0, f"{worker.name} ({worker.gpu.type or 'GPU'})")
            yield _sorted("process", pid, 0)
            for name, tid in self.threads[index].items():
                yield _named("thread_name", pid, tid, name)
                yield _sorted("thread", pid, tid)

    def batches(self) -> Iterator[str]:
        """What held the GPU, and within it: loading, then computing."""
        for stay, until, lane in self.stays:
            where = self._where(stay.worker, "GPU", lane)
            ended = "done" if stay.end >= 0 else "lost" if stay.lost >= 0 else "running"
            args = {
                "batch": stay.tasks,
                "cpus": stay.cpus,
                "slices": stay.slices,
                "requests": [request for request, _ in stay.members],
                "ended": ended,
            }
            yield _slice(self.catalogue.functions[stay.function].name, "batch", stay.begin, until, where, args)
            computing = self._computes_from(stay, until)
            if computing > stay.begin:
                models = [self.catalogue.models[model].name for model, _ in stay.loads]
                told = {"models": models, "process_ms": stay.cold / 1e6}
                yield _slice("load", "load", stay.begin, computing, where, told)
            if until > computing:
                yield _slice("run", "run", computing, until, where, {})

    def _computes_from(self, stay: Stay, until: int) -> int:
        """One that was cut off before it had all it needed computed nothing; one that needed nothing did so at once."""
        if stay.start >= 0:
            return min(stay.start, until)
        return until if stay.loads or stay.cold or stay.inputs > stay.begin else stay.begin

    def fetches(self) -> Iterator[str]:
        """Weights and processes that came before anybody waited for them."""
        for each, lane in self.ahead:
            where = self._where(each.worker, "ahead", lane)
            yield _slice(self._asked(each), "ahead", each.begin, each.end, where, {})

    def _asked(self, each: Ahead) -> str:
        if each.model >= 0:
            return f"fetch {self.catalogue.models[each.model].name}"
        return f"start {self.catalogue.functions[each.function].name}"

    def waits(self) -> Iterator[str]:
        """Inputs under way to a worker, and tasks in its queue; tasks that may go anywhere wait at the fleet."""
        numbers = count(1)
        for passage in self.passages:
            for what, since, until, pid in self._waits(passage):
                if until > since:
                    task = self.passages.graphs[passage.request].tasks[passage.task].name
                    name = json.dumps(f"{what}: {task} of request {passage.request}")
                    same = f'"cat":"{what}","id":{next(numbers)},"name":{name},"pid":{pid},"tid":{pid}'
                    yield f'{{"ph":"b",{same},"ts":{microseconds(since)}}}'
                    yield f'{{"ph":"e",{same},"ts":{microseconds(until)}}}'

    def _waits(self, passage: Passage) -> Iterator[tuple[str, int, int, int]]:
        """(what, since, until, process)."""
        horizon = self.passages.horizon
        since = passage.ready
        for worker, queued, until in passage.stops:
            if 0 <= since < queued:
                yield "transfer", since, queued, FIRST_PID + worker
            since = until if until >= 0 else horizon
            yield "wait", queued, since, FIRST_PID + worker
        stay = passage.stay
        if not passage.stops and since >= 0:
            until = stay.begin if stay is not None else self._given_up(passage)
            yield "wait", since, until, FLEET_PID
        if stay is not None and stay.start > stay.begin and stay.inputs >= stay.start:
            yield "transfer", stay.begin, stay.start, FIRST_PID + stay.worker

    def _given_up(self, passage: Passage) -> int:
        """When a task that was never taken up stopped to wait."""
        dropped = self.passages.dropped.get(passage.request, self.passages.horizon)
        return passage.lost if passage.lost >= 0 else dropped

    def moments(self) -> Iterator[str]:
        """Workers that fail and come back, requests that are given up."""
        for worker, since, until in sorted(self.passages.down, key=lambda each: (each[1], each[0])):
            yield _instant("worker failed", FIRST_PID + worker, since)
            if until < self.passages.horizon:
                yield _instant("worker back", FIRST_PID + worker, until)
        for request, time in self.passages.dropped.items():
            yield _instant(f"request {request} given up", FLEET_PID, time)

    def counters(self) -> Iterator[str]:
        """Requests that live, workers that are up, tasks in each queue."""
        found = self.passages
        ended = {**{request: time for request, (time, _) in found.answered.items()}, **found.dropped}
        alive = [(time, 1) for time in found.arrived.values()] + [(time, -1) for time in ended.values()]
        yield from _counter("requests", "alive", FLEET_PID, alive)
        if found.down:
            up = [(0, len(self.fleet.workers))] + [(since, -1) for _, since, _ in found.down]
            up += [(until, 1) for _, _, until in found.down if until < found.horizon]
            yield from _counter("workers", "up", FLEET_PID, up)
        queues: list[list[Change]] = [[] for _ in self.fleet.workers]
        for passage in found:
            for worker, since, until in passage.stops:
                queues[worker] += [(since, 1)] + ([(until, -1)] if until >= 0 else [])
        for worker, changes in enumerate(queues):
            yield from _counter("queue", "tasks", FIRST_PID + worker, changes)

    def _where(self, worker: int, kind: str, lane: int) -> str:
        tid = self.threads[worker][f"{kind}, {lane + 1}" if lane else kind]
        return f'"pid":{FIRST_PID + worker},"tid":{tid}'


def _named(what: str, pid: int, tid: int, name: str) -> str:
    return f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"ts":0,"args":{{"name":{json.dumps(name)}}}}}'


def _sorted(what: str, pid: int, tid: int) -> str:
    index = tid or pid
    return f'{{"ph":"M","name":"{what}_sort_index","pid":{pid},"tid":{tid},"ts":0,"args":{{"sort_index":{index}}}}}'


def _slice(name: str, category: str, start: int, end: int, where: str, args: Mapping[str, object]) -> str:
    span = f'"ts":{microseconds(start)},"dur":{microseconds(end - start)}'
    return f'{{"ph":"X","cat":"{category}","name":{json.dumps(name)},{where},{span},"args":{json.dumps(args)}}}'


def _instant(name: str, pid: int, time: int) -> str:
    return f'{{"ph":"i","s":"p","name":{json.dumps(name)},"pid":{pid},"tid":{pid},"ts":{microseconds(time)}}}'


def _counter(name: str, what: str, pid: int, changes: Sequence[Change]) -> Iterator[str]:
    """How many there are after each instant at which that changes."""
    value = 0
    ordered = sorted(changes)
    for index, (time, change) in enumerate(ordered):
        value += change
        if index + 1 == len(ordered) or ordered[index + 1][0] > time:
            where = f'"pid":{pid},"tid":0,"ts":{microseconds(time)}'
            yield f'{{"ph":"C","name":"{name}",{where},"args":{{"{what}":{value}}}}}'
