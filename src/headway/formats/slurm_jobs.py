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


class _Set(msgspec.Struct, gc=False):
    set: bool = True
    infinite: bool = False
    number: int | float | None = None


_Number = int | float | str | _Set | None


class _Resource(msgspec.Struct, gc=False):
    type: str | None = None
    name: str | None = None
    count: _Number = None


class _Resources(msgspec.Struct):
    allocated: list[_Resource] | None = None
    requested: list[_Resource] | None = None


class _Time(msgspec.Struct):
    elapsed: _Number = None
    eligible: _Number = None
    end: _Number = None
    limit: _Number = None
    start: _Number = None
    submission: _Number = None


class _Array(msgspec.Struct):
    job_id: _Number = None
    task: str | None = None
    task_id: _Number = None


class _Het(msgspec.Struct):
    job_id: _Number = None
    job_offset: _Number = None


class _Owner(msgspec.Struct):
    account: str | None = None
    user: str | None = None


class _State(msgspec.Struct):
    current: str | list[str] | None = None


class _Required(msgspec.Struct):
    cpus: _Number = msgspec.field(default=None, name="CPUs")


class _Job(msgspec.Struct):
    """What is used of a job, as either command has it; every key may be missing."""

    job_id: _Number = None
    cluster: str | None = None
    partition: str | None = None
    qos: str | None = None
    priority: _Number = None
    account: str | None = None
    association: _Owner | None = None
    user: str | None = None
    user_name: str | None = None
    array: _Array | None = None
    array_job_id: _Number = None
    array_task_id: _Number = None
    array_task_string: str | None = None
    het: _Het | None = None
    het_job_id: _Number = None
    het_job_offset: _Number = None
    time: _Time | None = None
    submit_time: _Number = None
    eligible_time: _Number = None
    start_time: _Number = None
    end_time: _Number = None
    time_limit: _Number = None
    state: _State | None = None
    job_state: str | list[str] | None = None
    tres: _Resources | None = None
    tres_req_str: str | None = None
    tres_alloc_str: str | None = None
    tres_per_node: str | None = None
    tres_per_job: str | None = None
    tres_per_task: str | None = None
    tasks: _Number = None
    required: _Required | None = None
    cpus: _Number = None
    allocation_nodes: _Number = None
    node_count: _Number = None
    nodes: Any = None
    restart_cnt: _Number = None


_NO_TIME, _NO_ARRAY, _NO_HET, _NO_OWNER, _NO_STATE = _Time(), _Array(), _Het(), _Owner(), _State()
_NO_RESOURCES, _NO_REQUIRED = _Resources(), _Required()


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
    if type(value) is int and -(2**63) < value < 2**63:
        return value
    if isinstance(value, _Set):
        value = value.number if value.set and not value.infinite else None
    elif isinstance(value, dict):
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
    time, owner, tres = job.time or _NO_TIME, job.association or _NO_OWNER, job.tres or _NO_RESOURCES
    states = words((job.state or _NO_STATE).current) or words(job.job_state)
    cells = (
        _id(job),
        job.cluster,
        _first(time.submission, job.submit_time),
        _first(time.eligible, job.eligible_time),
        _first(time.start, job.start_time),
        _first(time.end, job.end_time),
        number(time.elapsed),
        _first(time.limit, job.time_limit),
        states[0] if states else None,
        job.partition,
        job.qos,
        owner.account or job.account,
        owner.user or job.user or job.user_name,
        number(job.priority),
        _tres(tres.requested) or job.tres_req_str,
        _tres(tres.allocated) or job.tres_alloc_str,
        job.tres_per_node,
        job.tres_per_job,
        job.tres_per_task,
        number(job.tasks),
        _first((job.required or _NO_REQUIRED).cpus, job.cpus),
        None,
        _first(job.allocation_nodes, job.node_count),
        job.nodes if isinstance(job.nodes, str) else within(job.nodes, "list"),
        number(job.restart_cnt),
    )
    return tuple([None if cell is None else str(cell) for cell in cells])


def _first(value: _Number, other: _Number) -> int | None:
    found = number(value)
    return number(other) if found is None else found


def _id(job: _Job) -> str | None:
    own, parts, het = number(job.job_id), job.array or _NO_ARRAY, job.het or _NO_HET
    if array := _first(parts.job_id, job.array_job_id):
        waiting = parts.task or job.array_task_string
        task = _first(parts.task_id, job.array_task_id)
        if waiting or task is None:
            return f"{array}_[{waiting}]" if waiting else str(own)
        return f"{array}_{task}"
    if leader := _first(het.job_id, job.het_job_id):
        return f"{leader}+{_first(het.job_offset, job.het_job_offset) or 0}"
    return None if own is None else str(own)


def _tres(listed: list[_Resource] | None) -> str:
    """``[{"type": "gres", "name": "gpu", "count": 4}]`` as ``gres/gpu=4``; memory is counted in MiB."""
    parts = []
    for each in listed or ():
        count = number(each.count)
        if each.type and count is not None and count >= 0:
            parts.append(f"{each.type}/{each.name}={count}" if each.name else f"{each.type}={count}")
    return ",".join(parts)
