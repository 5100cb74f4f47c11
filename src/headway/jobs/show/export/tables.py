"""Write a run of training jobs for other programs: tables of jobs, holds, tape and timeline; a trace for Perfetto.

``docs/guides/export.md`` says what each column is.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl

from headway.core.tape import Tape
from headway.formats.dates import Calendar
from headway.jobs.metrics.fragmentation import fragmentation
from headway.jobs.metrics.groups import GROUPS, by_group
from headway.jobs.metrics.host import at_first
from headway.jobs.metrics.jobs import job_table
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.timeline import timeline
from headway.jobs.metrics.waits.by_limit import by_limit
from headway.jobs.model.rows import WORD_BITS, Kind
from headway.jobs.show.export.gpu_lanes import slots
from headway.jobs.show.export.perfetto import ENDED, trace_events, waited_before
from headway.show.export import Written, write_pieces
from headway.statistics.series import IntArray, Series
from headway.units import HOUR, REFERENCE_SPEED_PPM, SECOND, WHOLE_GPU_MILLI, seconds

_ABOUT_NODES = (Kind.NODE_FAILED, Kind.NODE_RECOVERED, Kind.NODE_DRAINED)
_ABOUT_NOBODY = (Kind.WOKE, Kind.WAKE_AT)


def write_perfetto(ledger: Ledger, path: Path, title: str = "", tell: Callable[[float], None] | None = None) -> Written:
    """Write the run as Chrome trace events; packed when the name ends in ``.gz``."""
    return write_pieces(path, trace_events(ledger, title, tell))


def tables(ledger: Ledger, tape: Tape, calendar: Calendar | None = None) -> dict[str, Callable[[], pl.DataFrame]]:
    """Return every table by its name, made when it is asked for."""
    jobs = cache(lambda: job_table(ledger))
    return {
        "jobs": lambda: _dated(
            jobs().join(_asked_for(ledger), on="id", how="left", maintain_order="left"),
            calendar,
            ("submit", "first_start", "end"),
        ),
        "holds": lambda: _dated(hold_table(ledger), calendar, ("start", "end")),
        "tape": lambda: tape_table(ledger, tape),
        "timeline": lambda: _dated(timeline_table(ledger), calendar, ("time",)),
        **{key: partial(_of_group, ledger, group, jobs) for group, key in GROUPS.items()},
        **({"limits": lambda: limit_table(ledger, tape)} if ledger.cluster.limits else {}),
        "nodes": lambda: _nodes(ledger),
    }


def limit_table(ledger: Ledger, tape: Tape) -> pl.DataFrame:
    """Return one row a limit that held jobs back, those with most waiting first."""
    schema = {"limit": pl.String, "job_hours": pl.Float64, "share": pl.Float64}
    return pl.DataFrame(by_limit(ledger, tape), schema=schema)


def _of_group(ledger: Ledger, group: str, jobs: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    return by_group(ledger, group, jobs())


def _dated(table: pl.DataFrame, calendar: Calendar | None, names: Sequence[str]) -> pl.DataFrame:
    """Return a table with the dates of the site beside these times, where there are any."""
    if calendar is None:
        return table
    dates = [
        pl.Series(name, [None if at is None else calendar.iso(seconds(at)) for at in table[f"{name}_s"]], pl.String)
        for name in names
    ]
    return table.with_columns(dates)


def _asked_for(ledger: Ledger) -> pl.DataFrame:
    """Return what the job table does not say of jobs."""
    jobs = ledger.jobs
    return pl.DataFrame(
        [
            pl.Series("id", range(len(jobs)), dtype=pl.Int64),
            pl.Series("user", [job.user for job in jobs], dtype=pl.String),
            pl.Series("qos", [job.qos for job in jobs], dtype=pl.String),
            pl.Series("priority", [job.priority for job in jobs], dtype=pl.Int64),
            pl.Series("nodes_asked", [job.nodes for job in jobs], dtype=pl.Int64),
            pl.Series("gpu_types", ["|".join(job.gpu_types) for job in jobs], dtype=pl.String),
            pl.Series("work_s", [job.work / SECOND for job in jobs], dtype=pl.Float64),
            pl.Series("estimate_s", [job.estimate / SECOND if job.estimate else None for job in jobs], pl.Float64),
        ]
    )


def hold_table(ledger: Ledger) -> pl.DataFrame:
    """Return one row for each stretch in which a job held GPUs, in order of time."""
    order = np.lexsort((ledger.hold_lease, ledger.hold_start))
    job = ledger.hold_job[order]
    _, (cpu_milli, memory_bytes, storage) = at_first(ledger)
    jobs = [ledger.jobs[number] for number in job.tolist()]
    return pl.DataFrame(
        [
            pl.Series("id", job),
            pl.Series("name", [each.name for each in jobs], dtype=pl.String),
            pl.Series("tenant", [each.tenant for each in jobs], dtype=pl.String),
            pl.Series("width", ledger.width[job] / WHOLE_GPU_MILLI),
            pl.Series("start_s", ledger.hold_start[order] / SECOND),
            pl.Series("end_s", np.where(ledger.hold_closed, ledger.hold_end / SECOND, np.nan)[order], nan_to_null=True),
            pl.Series("wait_s", waited_before(ledger)[order] / SECOND),
            pl.Series("standstill_s", ledger.standstill[order] / SECOND),
            pl.Series("speed", ledger.value[ledger.hold_row][order] / REFERENCE_SPEED_PPM),
            pl.Series("moved_here", ledger.kind[ledger.hold_row][order] == Kind.MIGRATE),
            pl.Series("ended", [ENDED[kind] for kind in ledger.hold_closed_by[order].tolist()], dtype=pl.String),
            pl.Series("lease", ledger.hold_lease[order]),
            pl.Series("gpus", _gpu_texts(ledger, order), dtype=pl.String),
            pl.Series("cpus", cpu_milli[order] / 1000),
            pl.Series("memory_bytes", memory_bytes[order]),
            pl.Series("storage_bytes_per_s", storage[order]),
        ]
    )


def _gpu_texts(ledger: Ledger, order: IntArray) -> list[str]:
    """Return the GPUs of each hold: ``n3:0-3 n4:0,2``."""
    words: dict[int, dict[int, int]] = {}
    for hold, node, mask, word in zip(
        *(column.tolist() for column in (ledger.place_hold, ledger.place_node, ledger.place_mask, ledger.place_word)),
        strict=True,
    ):
        of_hold = words.setdefault(hold, {})
        of_hold[node] = of_hold.get(node, 0) | mask << (WORD_BITS * word)

    @cache
    def spelled(node: int, mask: int) -> str:
        return f"{ledger.cluster.nodes[node].name}:{_runs(mask)}"

    return [" ".join(spelled(*place) for place in words[hold].items()) for hold in order.tolist()]


def _runs(mask: int) -> str:
    """Return the bits of a mask as runs: ``0-3,6``."""
    runs = []
    bit = 0
    while mask >> bit:
        if mask >> bit & 1:
            first = bit
            while mask >> bit + 1 & 1:
                bit += 1
            runs.append(str(first) if first == bit else f"{first}-{bit}")
        bit += 1
    return ",".join(runs)


def tape_table(ledger: Ledger, tape: Tape) -> pl.DataFrame:
    """Return the tape, row by row, with names in the place of numbers."""
    names = np.array([*(job.name or str(job.id) for job in ledger.jobs), None], dtype=object)  # the last: nobody
    nodes = np.array([*(node.name for node in ledger.cluster.nodes), None], dtype=object)
    of_node = np.isin(ledger.kind, [int(kind) for kind in _ABOUT_NODES])
    of_job = ~of_node & ~np.isin(ledger.kind, [int(kind) for kind in _ABOUT_NOBODY]) & (ledger.subject >= 0)
    named = names[np.where(of_job, ledger.subject, -1)]
    where = nodes[np.where(ledger.place >= 0, ledger.place, -1)]
    kinds = np.array([Kind(kind).name.lower() if kind in set(Kind) else str(kind) for kind in range(64)], dtype=object)
    return pl.DataFrame(
        [
            pl.Series("time_ns", ledger.time),
            pl.Series("time_s", ledger.time / SECOND),
            pl.Series("kind", kinds[ledger.kind].tolist(), dtype=pl.String),
            pl.Series("job", named.tolist(), dtype=pl.String),
            pl.Series("node", where.tolist(), dtype=pl.String),
            pl.Series("lease", ledger.lease),
            pl.Series("detail", ledger.detail),
            pl.Series("value", ledger.value),
            pl.Series("note", [tape.notes.get(row) for row in range(len(tape))], dtype=pl.String),
        ]
    )


def timeline_table(ledger: Ledger) -> pl.DataFrame:
    """Return what holds from each instant at which anything of it changes to the next."""
    lines, shares = timeline(ledger), fragmentation(ledger)
    series: dict[str, Series | None] = {
        "waiting_jobs": lines.waiting,
        "waiting_gpus": lines.waiting_gpus,
        "running_jobs": lines.running,
        "allocated_gpus": lines.allocated,
        "effective_gpus": lines.effective,
        "cpus": lines.cpus,
        "memory_bytes": lines.memory_bytes,
        "storage_bytes_per_s": lines.storage,
        "nodes_up": lines.nodes_up,
        "gpus_up": lines.gpus_up,
        "free_gpus": shares.free,
        **{f"fragmentation_{level}": line for level, line in shares.levels.items()},
    }
    times = np.unique(np.concatenate([line.times for line in series.values() if line is not None]))
    columns = [pl.Series("time_s", times / SECOND)]
    for name, line in series.items():
        if line is None:
            columns.append(pl.Series(name, [None] * len(times), dtype=pl.Float64))
        else:
            at = np.searchsorted(line.times, times, side="right")
            columns.append(pl.Series(name, np.append(0.0, line.values / line.unit)[at]))
    return pl.DataFrame(columns)


def _nodes(ledger: Ledger) -> pl.DataFrame:
    """Return one row a node: what it is, where it stands, and how long its GPUs were held."""
    cluster = ledger.cluster
    held = slots(ledger)
    hours = (ledger.hold_end - ledger.hold_start)[held.hold] * (
        ledger.gpu_milli[ledger.hold_job[held.hold]] / (WHOLE_GPU_MILLI * HOUR)
    )
    hours = np.where(ledger.gpus[ledger.hold_job[held.hold]] == 0, 0.0, hours)
    levels = [
        pl.Series(f"level_{level.name}", [node.path[depth] for node in cluster.nodes], dtype=pl.String)
        for depth, level in enumerate(cluster.outer_levels)
    ]
    partitions = [[p.name for p in cluster.partitions if node in p.nodes] for node in range(len(cluster.nodes))]
    return pl.DataFrame(
        [
            pl.Series("node", [node.name for node in cluster.nodes], dtype=pl.String),
            *levels,
            pl.Series("gpus", [node.gpus for node in cluster.nodes], dtype=pl.Int64),
            pl.Series("gpu_type", [node.gpu_type for node in cluster.nodes], dtype=pl.String),
            pl.Series("partitions", ["|".join(names) for names in partitions], dtype=pl.String),
            pl.Series("gpu_hours", np.bincount(held.node, weights=hours, minlength=len(cluster.nodes))),
        ]
    )
