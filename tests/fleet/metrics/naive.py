"""The numbers of a serving run by a plain walk over its rows: slow, and written without a look at the ledger."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from headway.core.tape import Tape
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.state.warm import placed
from headway.units import HOUR, SECOND
from tests.fleet.worlds import World


class Walked:
    """What a walk over the rows of a tape collects."""

    def __init__(self, world: World, tape: Tape) -> None:
        self.world = world
        self.arrived: dict[int, int] = {}
        self.done: dict[int, int] = {}
        self.dropped: dict[int, int] = {}
        self.batches: dict[int, dict[str, Any]] = {}
        self.resident: dict[tuple[int, int], bool] = {}
        """(worker, model) to whether it was fetched ahead and nobody used it yet."""
        self.held_bytes = 0
        self.byte_ns = 0
        self.idle_ns: dict[int, float] = defaultdict(float)
        self.idle: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.starting: dict[int, tuple[int, int, int]] = {}
        """Processes under way: the function, since when, and where."""
        self.counts: dict[str, int] = defaultdict(int)
        self.now = 0
        for worker, begins_with in enumerate(placed(world.catalogue, world.fleet)):
            for model in begins_with.models:
                self.resident[worker, model] = False
                self.held_bytes += world.catalogue.models[model].size_bytes
            for function in begins_with.processes:
                self.idle[worker, function].append(0)
        for row in tape:
            if self.arrived:  # the span begins with the first arrival
                self.byte_ns += self.held_bytes * (row.time - self.now)
            self.now = row.time
            self._enter(row)
        for batch in self.batches.values():
            batch.setdefault("end", self.now)
            batch.setdefault("fate", "open")
        for function, when, _ in self.starting.values():
            self.idle_ns[function] += self.now - when
        for batch in self.batches.values():
            self.idle_ns[batch["function"]] += min(batch["cold"], batch["end"] - batch["began"])
        for (_, function), since in self.idle.items():
            self.idle_ns[function] += sum(self.now - when for when in since)

    def _enter(self, row: Any) -> None:
        kind, catalogue = row.kind, self.world.catalogue
        if kind == Kind.ARRIVED:
            self.arrived[row.subject] = row.time
        elif kind == Kind.DONE:
            self.done[row.subject] = row.time
        elif kind == Kind.DROP:
            self.dropped[row.subject] = row.time
        elif kind == Kind.RUN:
            cpus, slices, _ = unpack(row.value)
            batch = {"began": row.time, "from": row.time, "worker": row.place, "function": row.detail}
            self.batches[row.lease] = {**batch, "cpus": cpus, "slices": slices, "tasks": [], "loads": 0, "cold": 0}
            for model in catalogue.functions[row.detail].models:
                if self.resident.get((row.place, model)):
                    self.counts["prefetches_used"] += 1
                    self.resident[row.place, model] = False
            if catalogue.functions[row.detail].cold_start and self.idle[row.place, row.detail]:
                self.idle_ns[row.detail] += row.time - self.idle[row.place, row.detail].pop()
        elif kind == Kind.TASK:
            self.batches[row.lease]["tasks"].append((row.subject, row.detail))
            self.held_bytes += catalogue.functions[self.batches[row.lease]["function"]].activation_bytes
        elif kind == Kind.COLD:
            self.batches[row.lease]["cold"] = row.value
        elif kind in (Kind.LOAD, Kind.FETCH):
            self.held_bytes += catalogue.models[row.detail].size_bytes
            self.counts["bytes_fetched"] += catalogue.models[row.detail].size_bytes
            self.resident[row.place, row.detail] = kind == Kind.FETCH
            if kind == Kind.LOAD:
                self.batches[row.lease]["loads"] += 1
        elif kind in (Kind.EVICT, Kind.EVICTED):
            self.counts["evictions"] += 1
            self.held_bytes -= catalogue.models[row.detail].size_bytes
            del self.resident[row.place, row.detail]
        elif kind == Kind.LOADED:
            self.batches[row.lease]["from"] = row.time
            self.batches[row.lease]["loaded"] = True
        elif kind == Kind.FINISHED:
            self._ends(self.batches[row.lease], row.time, "finished")
            if catalogue.functions[row.detail].cold_start:
                self.idle[row.place, row.detail].append(row.time)
        elif kind == Kind.START_INSTANCE:
            self.starting[row.lease] = (row.detail, row.time, row.place)
        elif kind == Kind.INSTANCE_STARTED:
            self.idle_ns[row.detail] += row.time - self.starting.pop(row.lease)[1]
            self.idle[row.place, row.detail].append(row.time)
        elif kind == Kind.EXPIRED:
            self.idle[row.place, row.detail].remove(row.value)
            self.idle_ns[row.detail] += min(row.time, row.value + self.world.fleet.keep_alive) - row.value
        elif kind in (Kind.WORKER_FAILED, Kind.STOP_WORKER):
            for batch in self.batches.values():
                if batch["worker"] == row.place and "end" not in batch:
                    self._ends(batch, row.time, "lost")
            for lease in [lease for lease, (_, _, place) in self.starting.items() if place == row.place]:
                function, when, _ = self.starting.pop(lease)
                self.idle_ns[function] += row.time - when
            for key in [key for key in self.resident if key[0] == row.place]:
                self.held_bytes -= catalogue.models[key[1]].size_bytes
                del self.resident[key]
        elif kind == Kind.LOST:
            self.counts["lost"] += row.value

    def _ends(self, batch: dict[str, Any], now: int, fate: str) -> None:
        batch["end"], batch["fate"] = now, fate
        activation = self.world.catalogue.functions[batch["function"]].activation_bytes
        self.held_bytes -= activation * len(batch["tasks"])


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Linear between the two nearest ranks."""
    if not values:
        return None
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def naive(world: World, tape: Tape, skipped: int) -> dict[str, Any]:
    """All numbers but those a graph; the first ``skipped`` requests are not measured."""
    walk = Walked(world, tape)
    measured = [r for r in world.requests[skipped:] if r.id in walk.arrived]
    done = [r for r in measured if r.id in walk.done]
    latencies = [(walk.done[r.id] - r.arrival) / SECOND for r in done]
    slow = [(walk.done[r.id] - r.arrival) / ideal(world, r.graph) for r in done]
    in_time = [r for r in done if not r.deadline or walk.done[r.id] <= r.deadline]
    ends = [walk.done.get(r.id, walk.dropped.get(r.id, walk.now)) for r in measured]
    span = max(ends) - min(r.arrival for r in measured) if measured else 0
    whole = walk.now - min(walk.arrived.values()) if walk.arrived else 0
    bound = [
        r for r in measured if r.deadline and (r.id in walk.done or r.id in walk.dropped or r.deadline <= walk.now)
    ]
    batches = list(walk.batches.values())
    workers = world.fleet.workers
    return {
        "requests": len(walk.arrived),
        "measured": len(measured),
        "completed": len(walk.done),
        "dropped": len(walk.dropped),
        "dropped_warmup": sum(r.id in walk.dropped for r in world.requests[:skipped]),
        "unfinished": len(walk.arrived) - len(walk.done) - len(walk.dropped),
        "slowdown_mean": sum(slow) / len(slow) if slow else None,
        "slowdown_p50": percentile(slow, 50),
        "slowdown_p95": percentile(slow, 95),
        "latency_mean_s": sum(latencies) / len(latencies) if latencies else None,
        "latency_p50_s": percentile(latencies, 50),
        "latency_p95_s": percentile(latencies, 95),
        "latency_p99_s": percentile(latencies, 99),
        "goodput_per_s": len(in_time) * SECOND / span if span else 0.0,
        "slo_hit_rate": sum(r in in_time for r in bound) / len(bound) if bound else None,
        **_of_tasks(walk, measured),
        "lost_tasks": sum(len(b["tasks"]) for b in batches if b["fate"] == "lost") + walk.counts["lost"],
        "tasks": sum(len(b["tasks"]) for b in batches if b["fate"] == "finished"),
        "batch_mean": sum(len(b["tasks"]) for b in batches) / len(batches) if batches else None,
        "batch_p50": statistics.median(len(b["tasks"]) for b in batches) if batches else None,
        "batch_max": max(len(b["tasks"]) for b in batches) if batches else None,
        "cold_starts": sum(b["cold"] > 0 for b in batches),
        "bytes_fetched": walk.counts["bytes_fetched"],
        "evictions": walk.counts["evictions"],
        "prefetches": sum(row.kind == Kind.FETCH for row in tape),
        "prefetches_used": walk.counts["prefetches_used"],
        "moves": sum(row.kind == Kind.MOVE for row in tape),
        "workers_used": len({b["worker"] for b in batches}),
        **_of_machines(walk, batches, whole),
        **_costs(walk, batches, [r.id for r in measured]),
        "makespan_s": whole / SECOND,
        **_rented(walk, tape, [r for r in world.requests if r.id in walk.done]),
    } | {"cost_fleet_usd": _rent(workers, world) * whole / HOUR}


def _rented(walk: Walked, tape: Tape, answered: Sequence[Any]) -> dict[str, Any]:
    """Rent, worker by worker: a meter that runs from its start, or the first arrival, until it is stopped."""
    fleet, first = walk.world.fleet, min(walk.arrived.values(), default=walk.now)
    since = {worker: first for worker in range(len(fleet.workers)) if worker not in fleet.off}
    rent, total = 0.0, 0
    intervals = []
    for row in tape:
        if row.kind == Kind.START_WORKER:
            since.setdefault(row.place, row.time)
        elif row.kind == Kind.STOP_WORKER:
            intervals.append((row.place, row.time - since.pop(row.place)))
    for worker, time in [*intervals, *((worker, walk.now - begun) for worker, begun in since.items())]:
        rent += _rent([fleet.workers[worker]], walk.world) * time / HOUR
        total += time
    in_time = [r for r in answered if not r.deadline or walk.done[r.id] <= r.deadline]
    whole = walk.now - first
    return {
        "cost_rent_usd": rent,
        "workers_mean": total / whole if whole else None,
        "hits_per_usd": len(in_time) / rent if rent else None,
    }


def _of_machines(walk: Walked, batches: list[dict[str, Any]], whole: int) -> dict[str, Any]:
    workers = walk.world.fleet.workers
    slices = sum(w.gpu.slices for w in workers) * whole
    held = sum(b["slices"] * (b["end"] - b["began"]) for b in batches)
    used = [b for b in batches if b.get("loaded") or b["fate"] == "finished"]
    computed = sum(b["slices"] * (b["end"] - b["from"]) for b in used)
    return {
        "gpu_utilisation": held / slices if slices else 0.0,
        "effective_gpu_utilisation": computed / slices if slices else 0.0,
        "memory_utilisation": walk.byte_ns / whole / sum(w.gpu.memory_bytes for w in workers) if whole else 0.0,
    }


def _costs(walk: Walked, batches: list[dict[str, Any]], measured: Sequence[int]) -> dict[str, Any]:
    prices, workers = walk.world.fleet.prices, walk.world.fleet.workers
    chosen, done = set(measured), set(walk.done)

    def usd_hour(cpus: int, slices: int) -> float:
        return cpus * prices.cpu_hour + slices * prices.slice_hour

    held = paid = 0.0
    calls: dict[int, list[int]] = {}
    for b in batches:
        worker = workers[b["worker"]]
        usd = usd_hour(b["cpus"], b["slices"]) * (b["end"] - b["began"]) / HOUR
        usd = usd if worker.hour_usd is None else usd * worker.hour_usd / usd_hour(worker.cpus, worker.gpu.slices)
        held += usd
        own = [request for request, _ in b["tasks"]]
        paid += usd * sum(request in chosen for request in own) / len(own)
        calls.setdefault(b["function"], []).extend(own)
    idle = 0.0
    for function, ns in walk.idle_ns.items():
        memory = walk.world.catalogue.functions[function].instance_bytes / 2**30
        usd = ns / HOUR * memory * prices.memory_gib_hour
        payers = calls.get(function, [r.id for r in walk.world.requests])
        idle += usd
        paid += usd * sum(request in chosen for request in payers) / len(payers)
    answered = len(chosen & done)
    return {
        "cost_total_usd": held + idle,
        "cost_keepalive_usd": idle,
        "cost_per_request_usd": paid / answered if answered else None,
    }


def _rent(workers: Any, world: World) -> float:
    prices = world.fleet.prices
    return sum(
        w.cpus * prices.cpu_hour + w.gpu.slices * prices.slice_hour if w.hour_usd is None else w.hour_usd
        for w in workers
    )


def _of_tasks(walk: Walked, measured: list[Any]) -> dict[str, Any]:
    functions, graphs = walk.world.catalogue.functions, walk.world.catalogue.graphs
    ids = {r.id for r in measured}
    hits = counted = kept = edges = 0
    at: dict[tuple[int, int], int] = {}
    for batch in walk.batches.values():
        for request, task in batch["tasks"]:
            at[request, task] = batch["worker"]
            if request in ids and functions[batch["function"]].models:
                counted += 1
                hits += not batch["loads"]
    for r in measured:
        if r.id in walk.done:
            for source, target in graphs[r.graph].edges:
                edges += 1
                kept += at[r.id, source] == at[r.id, target]
    return {
        "cache_hit_rate": hits / counted if counted else None,
        "edges_kept": kept / edges if edges else None,
    }


def ideal(world: World, graph: int) -> int:
    """The critical path at the least configuration, each task on the type of GPU where it is shortest."""
    latency, ends = world.latency(), dict[int, int]()
    for task in world.catalogue.graphs[graph].order:
        function = world.catalogue.graphs[graph].tasks[task].function
        before = [ends[b] for b in world.catalogue.graphs[graph].predecessors[task]]
        tables = [latency.cells(worker, function) for worker in range(len(world.fleet.workers))]
        ends[task] = max(before, default=0) + min(cells[min(cells)] for cells in tables)
    return max(ends.values())
