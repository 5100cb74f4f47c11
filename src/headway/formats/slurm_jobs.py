"""Jobs as Slurm's JSON tells them, as the cells that ``sacct --parsable2`` would print.

``sacct --json`` and ``squeue --json`` (or ``scontrol show jobs --json``) name things differently, and each version a
little otherwise: a number may be plain or ``{"set": true, "infinite": false, "number": 5}``, a state a word or a list.
Steps are inside their jobs and are not looked at.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from headway.errors import InputError

COLUMNS = (
    *("JobID", "Cluster", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw", "State", "Partition"),
    *("QOS", "Account", "User", "Priority", "ReqTRES", "AllocTRES", "ReqGRES", "JobGRES", "TaskGRES", "NTasks"),
    *("ReqCPUS", "ReqNodes", "NNodes", "NodeList", "Restarts"),
)
"""The cells of a job; those in ``*GRES`` are for each node, for the job and for each task."""


class _Job(msgspec.Struct):
    """What is used of a job; every key may be missing, and may hold anything."""

    job_id: Any = None
    cluster: Any = None
    partition: Any = None
    qos: Any = None
    priority: Any = None
    account: Any = None
    association: Any = None
    user: Any = None
    user_name: Any = None
    array: Any = None
    array_job_id: Any = None
    array_task_id: Any = None
    array_task_string: Any = None
    het: Any = None
    het_job_id: Any = None
    het_job_offset: Any = None
    time: Any = None
    submit_time: Any = None
    eligible_time: Any = None
    start_time: Any = None
    end_time: Any = None
    time_limit: Any = None
    state: Any = None
    job_state: Any = None
    tres: Any = None
    tres_req_str: Any = None
    tres_alloc_str: Any = None
    tres_per_node: Any = None
    tres_per_job: Any = None
    tres_per_task: Any = None
    tasks: Any = None
    required: Any = None
    cpus: Any = None
    allocation_nodes: Any = None
    node_count: Any = None
    nodes: Any = None
    restart_cnt: Any = None


class _File(msgspec.Struct):
    jobs: list[_Job]


def read(data: bytes) -> Iterator[tuple[str | None, ...]]:
    """A tuple of cells a job, in the order of ``COLUMNS``; ``InputError`` says why the text is none."""
    try:
        jobs = msgspec.json.decode(data, type=_File).jobs
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        reason = str(problem).splitlines()[0]
        raise InputError(f"is not the JSON of sacct, squeue or scontrol show jobs ({reason})") from None
    return map(_cells, jobs)


def number(value: Any) -> int | None:
    """A number, plain or as an object that says whether it is set; None for neither, and for an infinite one."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite", False) else None
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 20 else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**63:
        return None
    return int(value)


def words(value: Any) -> list[str]:
    """A text or a list of texts as a list."""
    found = value if isinstance(value, list) else [value]
    return [each for each in found if isinstance(each, str)]


def within(value: Any, *keys: str) -> Any:
    """What lies under nested keys; None where one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _cells(job: _Job) -> tuple[str | None, ...]:
    time = job.time if isinstance(job.time, dict) else {}
    limit = within(time, "limit") if "limit" in time else job.time_limit
    states = words(within(job.state, "current")) or words(job.job_state)
    cells = (
        _id(job),
        job.cluster,
        _first(time.get("submission"), job.submit_time),
        _first(time.get("eligible"), job.eligible_time),
        _first(time.get("start"), job.start_time),
        _first(time.get("end"), job.end_time),
        number(time.get("elapsed")),
        number(limit),
        states[0] if states else None,
        job.partition,
        job.qos,
        within(job.association, "account") or job.account,
        within(job.association, "user") or job.user or job.user_name,
        number(job.priority),
        _tres(within(job.tres, "requested")) or job.tres_req_str,
        _tres(within(job.tres, "allocated")) or job.tres_alloc_str,
        job.tres_per_node,
        job.tres_per_job,
        job.tres_per_task,
        number(job.tasks),
        _first(within(job.required, "CPUs"), job.cpus),
        None,
        _first(job.allocation_nodes, job.node_count),
        job.nodes if isinstance(job.nodes, str) else within(job.nodes, "list"),
        number(job.restart_cnt),
    )
    return tuple(str(cell) if isinstance(cell, int | str) else None for cell in cells)


def _first(*values: Any) -> int | None:
    return next((found for found in map(number, values) if found is not None), None)


def _id(job: _Job) -> str | None:
    own = number(job.job_id)
    array = _first(within(job.array, "job_id"), job.array_job_id)
    if array:
        task = _first(within(job.array, "task_id"), job.array_task_id)
        waiting = within(job.array, "task") or job.array_task_string
        if task is not None and not waiting:
            return f"{array}_{task}"
        return f"{array}_[{waiting}]" if waiting else str(own)
    het = _first(within(job.het, "job_id"), job.het_job_id)
    offset = _first(within(job.het, "job_offset"), job.het_job_offset)
    return f"{het}+{offset}" if het and offset is not None else None if own is None else str(own)


def _tres(listed: Any) -> str:
    """``[{"type": "gres", "name": "gpu", "count": 4}]`` as ``gres/gpu=4``; memory is counted in MiB."""
    parts = []
    for each in listed if isinstance(listed, list) else []:
        kind, name, count = within(each, "type"), within(each, "name"), number(within(each, "count"))
        if isinstance(kind, str) and count is not None:
            parts.append(f"{kind}/{name}={count}" if name else f"{kind}={count}")
    return ",".join(parts)
