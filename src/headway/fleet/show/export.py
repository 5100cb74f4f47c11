"""Make tables of a fleet's run for notebooks: requests, tasks, batches, workers and their rentals."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from headway.core.tape import Tape
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.metrics.summary import critical_paths
from headway.fleet.metrics.tokens import generates, token_times
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import NO_GROUPS, Groups, Request
from headway.fleet.show.history.history import PARTS, TaskHistory
from headway.fleet.show.history.presence import DRAINING, FAILED, ON, STARTING, Presence
from headway.units import SECOND

TOKENS = ("prompt_tokens", "output_tokens", "ttft_s", "tpot_s", "first_token_s")
"""Columns about tokens, which the tables have where a function generates."""


def tables(
    catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape, groups: Groups = NO_GROUPS
) -> dict[str, Callable[[], pl.DataFrame]]:
    """Return each table by name; times are seconds since the run began, what does not exist is empty."""
    history = TaskHistory(catalogue, fleet, requests, tape)
    arrived = [request for request in requests if request.id in history.arrived]
    generating = generates(catalogue)
    return {
        "requests": lambda: _requests(catalogue, fleet, arrived, history).with_columns(
            **_named(arrived, groups),
            **(_of_tokens(Ledger(catalogue, fleet, requests, tape)) if generating else {}),
        ),
        "tasks": lambda: _without(_tasks(fleet, history), generating),
        "batches": lambda: _without(_batches(catalogue, fleet, history), generating),
        "workers": lambda: _workers(fleet, history),
        "rentals": lambda: _rentals(fleet, history.presence),
    }


def _without(table: pl.DataFrame, generating: bool) -> pl.DataFrame:
    """Return a table without its columns about tokens where no function generates."""
    return table if generating else table.drop(TOKENS, strict=False)


def _s(time: int | None) -> float | None:
    return None if time is None or time < 0 else time / SECOND


def _requests(catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], history: TaskHistory) -> pl.DataFrame:
    least = critical_paths(catalogue, LatencyModel(catalogue, fleet))
    answered = [history.answered.get(each.id, (-1, 0))[0] for each in requests]
    dropped = [history.dropped.get(each.id, -1) for each in requests]
    spent = [history.spent(each.id) if time >= 0 else {} for each, time in zip(requests, answered, strict=True)]
    latency = [time - each.arrival if time >= 0 else None for each, time in zip(requests, answered, strict=True)]
    path = [int(least[each.graph]) for each in requests]
    ends = list(zip(answered, dropped, strict=True))
    columns: dict[str, list[object]] = {
        "request": [each.id for each in requests],
        "graph": [catalogue.graphs[each.graph].name for each in requests],
        "tenant": [each.tenant for each in requests],
        "ingress": [fleet.workers[each.ingress].name for each in requests],
        "arrival_s": [_s(each.arrival) for each in requests],
        "deadline_s": [_s(each.deadline or None) for each in requests],
        "outcome": ["answered" if done >= 0 else "dropped" if gone >= 0 else "unfinished" for done, gone in ends],
        "end_s": [_s(max(done, gone)) for done, gone in ends],
        "latency_s": [_s(each) for each in latency],
        "critical_path_s": [_s(each) for each in path],
        "slowdown": [None if a is None else a / max(b, 1) for a, b in zip(latency, path, strict=True)],
        "in_time": [
            None if not each.deadline else 0 <= done <= each.deadline
            for each, done in zip(requests, answered, strict=True)
        ],
    }
    columns |= {f"{part}_s": [_s(each.get(part)) for each in spent] for part in PARTS}
    floats = [*(name for name in columns if name.endswith("_s")), "slowdown"]
    types = {"in_time": pl.Boolean, "graph": pl.String, "ingress": pl.String, "outcome": pl.String}
    whole = {"request": pl.Int64, "tenant": pl.Int64}
    return pl.DataFrame(columns, schema_overrides={**dict.fromkeys(floats, pl.Float64), **types, **whole})


def _named(requests: Sequence[Request], groups: Groups) -> dict[str, pl.Series]:
    """Return columns of classes and of named tenants, where there are any."""
    columns = {}
    if groups.classes:
        columns["class"] = pl.Series([groups.classes[each.class_id] for each in requests], dtype=pl.String)
        columns["priority"] = pl.Series([each.priority for each in requests], dtype=pl.Int64)
    if groups.tenants:
        columns["tenant_name"] = pl.Series([groups.tenants[each.tenant] for each in requests], dtype=pl.String)
    return columns


def _of_tokens(ledger: Ledger) -> dict[str, pl.Series]:
    """Return columns of the tokens of the requests that arrived, and how long they took."""
    times, here = token_times(ledger), ledger.arrived
    measured = {"ttft_s": (times.to_first_s, times.seen), "tpot_s": (times.per_token_s, times.several)}
    return {
        "prompt_tokens": pl.Series(ledger.prompt_tokens[here], dtype=pl.Int64),
        "output_tokens": pl.Series(ledger.output_tokens[here], dtype=pl.Int64),
        **{
            name: pl.Series(np.where(known, values, np.nan)[here], dtype=pl.Float64).fill_nan(None)
            for name, (values, known) in measured.items()
        },
    }


def _tasks(fleet: Fleet, history: TaskHistory) -> pl.DataFrame:
    """Return one row for each attempt at a task."""
    schema = {
        "request": pl.Int64,
        "task": pl.String,
        "worker": pl.String,
        "batch": pl.Int64,
        "ready_s": pl.Float64,
        "queued_s": pl.Float64,
        "begin_s": pl.Float64,
        "start_s": pl.Float64,
        "first_token_s": pl.Float64,
        "end_s": pl.Float64,
        "lost_s": pl.Float64,
    }
    names = [worker.name for worker in fleet.workers]
    rows = [
        (
            attempt.request,
            history.graphs[attempt.request].tasks[attempt.task].name,
            names[batch_run.worker]
            if batch_run is not None
            else names[attempt.queues[-1][0]]
            if attempt.queues
            else None,
            None if batch_run is None else batch_run.lease,
            _s(attempt.ready),
            _s(attempt.queues[-1][1]) if attempt.queues else None,
            *(
                (None,) * 4
                if batch_run is None
                else map(_s, (batch_run.begin, batch_run.start, batch_run.first_token, batch_run.end))
            ),
            _s(attempt.lost),
        )
        for attempt, batch_run in ((attempt, attempt.batch_run) for attempt in history)
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _batches(catalogue: Catalogue, fleet: Fleet, history: TaskHistory) -> pl.DataFrame:
    schema = {
        "batch": pl.Int64,
        "worker": pl.String,
        "function": pl.String,
        "tasks": pl.Int64,
        "cpus": pl.Int64,
        "slices": pl.Int64,
        "begin_s": pl.Float64,
        "start_s": pl.Float64,
        "first_token_s": pl.Float64,
        "end_s": pl.Float64,
        "lost_s": pl.Float64,
        "load_s": pl.Float64,
        "cold_start_s": pl.Float64,
        "models_loaded": pl.Int64,
        "models_evicted": pl.Int64,
    }
    rows = [
        (
            batch_run.lease,
            fleet.workers[batch_run.worker].name,
            catalogue.functions[batch_run.function].name,
            *(batch_run.tasks, batch_run.cpus, batch_run.slices),
            *map(_s, (batch_run.begin, batch_run.start, batch_run.first_token, batch_run.end, batch_run.lost)),
            sum(time for _, time in batch_run.loads) / SECOND,
            batch_run.cold / SECOND,
            len(batch_run.loads),
            len(batch_run.evicted),
        )
        for batch_run in history.batch_runs.values()
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _workers(fleet: Fleet, history: TaskHistory) -> pl.DataFrame:
    """Return one row a worker: what it is, and how long it was rented, held, computed and was down."""
    count = len(fleet.workers)
    batches, held, ran, down, rented = ([0] * count for _ in range(5))
    for batch_run in history.batch_runs.values():
        batches[batch_run.worker] += 1
        held[batch_run.worker] += (batch_run.until(history.horizon) - batch_run.begin) * batch_run.slices
        if batch_run.end >= 0:
            ran[batch_run.worker] += (batch_run.end - batch_run.start) * batch_run.slices
    for worker, what, since, until in history.presence.of(STARTING, ON, DRAINING, FAILED):
        rented[worker] += until - since
        down[worker] += until - since if what == FAILED else 0
    workers = fleet.workers
    return pl.DataFrame(
        {
            "worker": [each.name for each in workers],
            "gpu": [each.gpu.type for each in workers],
            "memory_bytes": [each.gpu.memory_bytes for each in workers],
            "slices": [each.gpu.slices for each in workers],
            "cpus": [each.cpus for each in workers],
            "host": [each.host for each in workers],
            "rack": [each.rack for each in workers],
            "hour_usd": [fleet.hour_usd(each) for each in workers],
            "batches": batches,
            "held_slice_s": [each / SECOND for each in held],
            "computed_slice_s": [each / SECOND for each in ran],
            "rented_s": [each / SECOND for each in rented],
            "down_s": [each / SECOND for each in down],
        }
    )


def _rentals(fleet: Fleet, presence: Presence) -> pl.DataFrame:
    """Return one row for each time that a worker was rented: from its start until it was off."""
    schema = dict.fromkeys(("begin_s", "ready_s", "drain_s", "end_s"), pl.Float64)
    rows = []
    for rent, stopped in presence.rented():
        ready = next((each.since for each in rent if each.what == ON), None)
        drain = rent[-1].since if rent[-1].what == DRAINING else None
        times = (rent[0].since, ready, drain, rent[-1].until if stopped else None)
        rows.append((fleet.workers[rent[0].worker].name, *map(_s, times)))
    return pl.DataFrame(rows, schema={"worker": pl.String, **schema}, orient="row")
