"""Convert jobs from Slurm's JSON to the cells that ``sacct --parsable2`` would print.

``sacct --json`` and ``squeue --json`` (or ``scontrol show jobs --json``) name things differently, and each version a
little otherwise: a number may be plain or ``{"set": true, "infinite": false, "number": 5}``, a state a word or a list.
Steps are inside their jobs and are not looked at.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from headway.errors import InputError

TEXTS = (
    *("JobID", "Cluster", "State", "Partition", "QOS", "Account", "User", "ReqTRES", "AllocTRES"),
    *("ReqGRES", "JobGRES", "TaskGRES", "NodeList", "Reason", "Reservation"),
)
"""Columns of text; those in ``*GRES`` are for each node, for the job and for each task."""
NUMBERS = (
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw"),
    *("Priority", "NTasks", "ReqCPUS", "NNodes", "Restarts"),
)
"""Columns of whole numbers; times are in seconds since 1970, the limit in minutes."""
Column = Sequence[str | None] | Sequence[int | None]
_MOST = 2**63
_MARK = b"\xef\xbb\xbf"


class _Set(msgspec.Struct, gc=False):
    set: bool = True
    infinite: bool = False
    number: int | float | None = None


_Number = int | float | str | _Set | None


class _Resource(msgspec.Struct, gc=False):
    type: str | None = None
    name: str | None = None
    count: _Number = None


class _Resources(msgspec.Struct, gc=False):
    allocated: list[_Resource] | None = None
    requested: list[_Resource] | None = None


class _Time(msgspec.Struct, gc=False):
    elapsed: _Number = None
    eligible: _Number = None
    end: _Number = None
    limit: _Number = None
    start: _Number = None
    submission: _Number = None


class _Array(msgspec.Struct, gc=False):
    job_id: _Number = None
    task: str | None = None
    task_id: _Number = None


class _Het(msgspec.Struct, gc=False):
    job_id: _Number = None
    job_offset: _Number = None


class _Owner(msgspec.Struct, gc=False):
    account: str | None = None
    user: str | None = None


class _State(msgspec.Struct, gc=False):
    current: str | list[str] | None = None
    reason: str | None = None


class _Named(msgspec.Struct, gc=False):
    name: str | None = None


class _Required(msgspec.Struct, gc=False):
    cpus: _Number = msgspec.field(default=None, name="CPUs")


class _Job(msgspec.Struct, gc=False):
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
    state_reason: str | None = None
    reservation: _Named | str | None = None
    resv_name: str | None = None
    tres: msgspec.Raw = msgspec.Raw()
    """``_Resources`` as text: most jobs ask for the same as some other, and each different text is read once."""
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


_NO_TIME, _NO_ARRAY, _NO_HET, _NO_OWNER = _Time(), _Array(), _Het(), _Owner()
_NO_REQUIRED = _Required()


class _File(msgspec.Struct, gc=False):
    jobs: list[_Job]


_resources = msgspec.json.Decoder(_Resources | None).decode


def read(data: bytes | memoryview) -> dict[str, Column]:
    """Return the cells of all jobs, by the columns ``TEXTS`` and ``NUMBERS``; raise ``InputError`` if unreadable.

    Columns and not rows, because a hundred thousand rows of 25 cells each take longer to make than the text to decode.
    """
    try:
        jobs = msgspec.json.decode(data[3:] if data[:3] == _MARK else data, type=_File).jobs
        return {**_times(jobs), **_numbers(jobs), **_texts(jobs)} if jobs else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        reason = str(problem).splitlines()[0]
        raise InputError(f"is not the JSON of sacct, squeue or scontrol show jobs ({reason})") from None


def number(value: Any) -> int | None:
    """Return a number, plain or as an object that says whether it is set; None for neither, and for an infinite one."""
    if type(value) is _Set:
        value = value.number if value.set and not value.infinite else None
    if type(value) is int and -_MOST < value < _MOST:
        return value
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite", False) else None
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 20 else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:
        return None
    return int(value)


def words(value: Any) -> list[str]:
    """Return a text or a list of texts as a list."""
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]


def within(value: Any, *keys: str) -> Any:
    """Return what lies under nested keys; None where one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _times(jobs: list[_Job]) -> dict[str, Column]:
    times = [job.time or _NO_TIME for job in jobs]
    return {
        "Submit": _either([time.submission for time in times], jobs, "submit_time"),
        "Eligible": _either([time.eligible for time in times], jobs, "eligible_time"),
        "Start": _either([time.start for time in times], jobs, "start_time"),
        "End": _either([time.end for time in times], jobs, "end_time"),
        "ElapsedRaw": _whole([time.elapsed for time in times]),
        "TimelimitRaw": _either([time.limit for time in times], jobs, "time_limit"),
    }


def _numbers(jobs: list[_Job]) -> dict[str, Column]:
    return {
        "Priority": _whole([job.priority for job in jobs]),
        "NTasks": _whole([job.tasks for job in jobs]),
        "ReqCPUS": _either([(job.required or _NO_REQUIRED).cpus for job in jobs], jobs, "cpus"),
        "NNodes": _either([job.allocation_nodes for job in jobs], jobs, "node_count"),
        "Restarts": _whole([job.restart_cnt for job in jobs]),
    }


def _texts(jobs: list[_Job]) -> dict[str, Column]:
    owners = [job.association or _NO_OWNER for job in jobs]
    tres = _tres(jobs)
    return {
        "JobID": _ids(jobs),
        "Cluster": [job.cluster for job in jobs],
        "State": [_state(job) for job in jobs],
        "Partition": [job.partition for job in jobs],
        "QOS": [job.qos for job in jobs],
        "Account": _filled([owner.account for owner in owners], jobs, "account"),
        "User": _filled([owner.user for owner in owners], jobs, "user", "user_name"),
        "ReqTRES": _filled([requested for requested, _ in tres], jobs, "tres_req_str"),
        "AllocTRES": _filled([allocated for _, allocated in tres], jobs, "tres_alloc_str"),
        "ReqGRES": [job.tres_per_node for job in jobs],
        "JobGRES": [job.tres_per_job for job in jobs],
        "TaskGRES": [job.tres_per_task for job in jobs],
        "Reason": [(job.state.reason if job.state else None) or job.state_reason for job in jobs],
        "Reservation": [_reservation(job) for job in jobs],
        "NodeList": [job.nodes if isinstance(job.nodes, str) else _list(job.nodes) for job in jobs],
    }


def _whole(values: Sequence[_Number]) -> Sequence[int | None]:
    """Return whole numbers, None where there is none; an array, which is faster, if all are plain or all set."""
    plain: Sequence[Any] = values
    if isinstance(values[0], _Set):
        plain = [value.number if type(value) is _Set and value.set and not value.infinite else None for value in values]
    try:
        return array("q", plain)
    except (TypeError, OverflowError):
        return [None if value is None else number(value) for value in values]


def _either(values: Sequence[_Number], jobs: list[_Job], other_key: str) -> Sequence[int | None]:
    """Return whole numbers; where there is none, the one that another version keeps elsewhere."""
    whole = _whole(values)
    if isinstance(whole, array) or None not in whole:
        return whole
    return [number(getattr(job, other_key)) if value is None else value for value, job in zip(whole, jobs, strict=True)]


def _filled(texts: Sequence[str | None], jobs: list[_Job], *others: str) -> Sequence[str | None]:
    """Return texts; where one is empty, what the job says elsewhere."""
    for other in others:
        if not all(texts):
            texts = [text or getattr(job, other) for text, job in zip(texts, jobs, strict=True)]
    return texts


def _state(job: _Job) -> str | None:
    told = (job.state.current if job.state else None) or job.job_state
    return (told[0] if told else None) if isinstance(told, list) else told


def _reservation(job: _Job) -> str | None:
    told = job.reservation
    return (told.name if isinstance(told, _Named) else told) or job.resv_name


def _list(nodes: Any) -> str | None:
    names = within(nodes, "list")
    return None if names is None else str(names)


def _ids(jobs: list[_Job]) -> list[str | None]:
    own = _whole([job.job_id for job in jobs])
    arrays = _either([(job.array or _NO_ARRAY).job_id for job in jobs], jobs, "array_job_id")
    leaders = _either([(job.het or _NO_HET).job_id for job in jobs], jobs, "het_job_id")
    return [
        _id(job, array or 0, leader or 0) if array or leader else None if number is None else str(number)
        for job, number, array, leader in zip(jobs, own, arrays, leaders, strict=True)
    ]


def _id(job: _Job, array: int, leader: int) -> str:
    """Return the id of a task of an array, or of a component of a heterogeneous job."""
    parts, het = job.array or _NO_ARRAY, job.het or _NO_HET
    if not array:
        return f"{leader}+{_first(het.job_offset, job.het_job_offset) or 0}"
    waiting = parts.task or job.array_task_string
    task = _first(parts.task_id, job.array_task_id)
    if waiting or task is None:
        return f"{array}_[{waiting}]" if waiting else str(number(job.job_id))
    return f"{array}_{task}"


def _first(value: _Number, other: _Number) -> int | None:
    first = number(value)
    return number(other) if first is None else first


def _tres(jobs: list[_Job]) -> list[tuple[str, str]]:
    """Return what each job requested and what it was given."""
    known: dict[bytes, tuple[str, str]] = {b"": ("", "")}
    parts: list[tuple[str, str]] = []
    for job in jobs:
        text = bytes(job.tres)
        if text not in known:
            try:
                told = _resources(text) or _Resources()
            except msgspec.ValidationError as problem:
                rule, _, rest = str(problem).partition(" - at `$")
                place = f"$.jobs[{len(parts)}].tres{rest.rstrip('`')}"
                raise msgspec.ValidationError(f"{rule} - at `{place}`") from None
            known[text] = _spelt(told.requested), _spelt(told.allocated)
        parts.append(known[text])
    return parts


def _spelt(listed: list[_Resource] | None) -> str:
    """Return ``[{"type": "gres", "name": "gpu", "count": 4}]`` as ``gres/gpu=4``; memory is counted in MiB."""
    parts = []
    for each in listed or ():
        count = number(each.count)
        if each.type and count is not None and count >= 0:
            parts.append(f"{each.type}/{each.name}={count}" if each.name else f"{each.type}={count}")
    return ",".join(parts)
