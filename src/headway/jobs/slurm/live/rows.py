"""Typed rows of what Slurm's commands print: jobs of ``squeue``, nodes of ``scontrol show node``."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from headway.errors import SlurmError
from headway.jobs.slurm.output import cells, lists
from headway.jobs.slurm.output.scontrol import gone, records

FIELDS = (
    *("JobID", "ArrayJobID", "ArrayTaskID", "State", "Reason", "UserName", "Account", "Partition", "QOS"),
    *("PriorityLong", "SubmitTime", "EligibleTime", "StartTime", "EndTime", "TimeLimit", "NodeList", "ReqNodes"),
    *("NumNodes", "NumCPUs", "MinMemory", "tres-alloc", "Requeue", "BatchFlag", "RestartCnt", "exit_code"),
    *("NumTasks", "tres-per-node", "tres-per-job", "tres-per-task", "Reservation", "Name", "Comment"),
)
"""Fields that ``squeue`` is asked for, by its own names."""
RUNNING = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
PENDING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_HELD = ("JobHeldUser", "JobHeldAdmin", "job requeued in held state")
_MOST = 2**31
_MANY = 2**14
"""Cells whose values are kept: thousands of jobs share most of theirs, and a queue reads them every second."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job, as ``squeue`` lists it; times in seconds since 1970, None where there is none."""

    id: int
    array: str
    """The job and task of an array, ``17_3`` or ``17_5-9``; empty: none."""
    state: str
    reason: str
    user: str
    account: str
    partition: str
    qos: str
    priority: int
    submit_s: float | None
    eligible_s: float | None
    start_s: float | None
    """When it started; of one that waits, when Slurm expects it to."""
    end_s: float | None
    limit: int
    """Time limit in nanoseconds; 0: none."""
    nodes: tuple[str, ...]
    """Those that it runs, or ran, on."""
    wanted_nodes: tuple[str, ...]
    node_count: int
    cpus: int
    memory: str
    """Least memory of a node, or of a CPU, as Slurm writes it."""
    gpus: int
    gpu_types: tuple[str, ...]
    memory_bytes: int
    """Of the whole job."""
    requeues: bool
    """Whether it may be requeued."""
    batch: bool
    restarts: int
    status: int
    """Exit status of one that has ended; below 0 the signal that ended it."""
    reservation: str
    name: str
    comment: str
    per_node: str = ""
    """What it asks for on each node, as Slurm writes it: ``gres:gpu:a100:2``."""
    per_job: str = ""

    @property
    def waits(self) -> bool:
        """Return whether it waits in Slurm's queue, held or not."""
        return self.state in PENDING

    @property
    def held(self) -> bool:
        """Return whether it waits and cannot start until it is released."""
        return self.waits and (self.priority == 0 or self.reason in _HELD)

    @property
    def runs(self) -> bool:
        """Return whether it holds nodes."""
        return self.state in RUNNING

    @property
    def ended(self) -> bool:
        """Return whether it neither waits nor holds nodes."""
        return not self.waits and not self.runs


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node, as ``scontrol show node`` prints it."""

    name: str
    state: str
    cpus: int
    memory_bytes: int
    gpus: int
    used_cpus: int
    used_memory_bytes: int
    used_gpus: int
    reason: str

    @property
    def takes_jobs(self) -> bool:
        """Return whether it is neither down nor drained."""
        return not gone(self.state)


def jobs(text: str, separator: str) -> Iterator[JobRow]:
    """Yield the jobs of a listing whose every field is followed by ``separator``, which no field contains."""
    parts = text.split(separator)
    width = len(FIELDS)
    if len(parts) % width != 1:
        raise SlurmError(f"squeue printed {len(parts) - 1:,} fields, no multiple of {width}: is it another version?")
    tres: dict[str, cells.Resources] = {}
    for at in range(0, len(parts) - 1, width):
        cell = dict(zip(FIELDS, map(str.strip, parts[at : at + width]), strict=True))
        text = cell["tres-alloc"]
        if text not in tres:  # thousands of jobs share a few of them
            tres[text] = cells.tres(text) or cells.Resources()
        yield _job(cell, tres[text])


def _job(cell: dict[str, str], resources: cells.Resources) -> JobRow:
    gpus = _gpus(cell, resources)
    array = "" if cells.absent(cell["ArrayTaskID"]) else f"{cell['ArrayJobID']}_{cell['ArrayTaskID']}"
    return JobRow(
        id=_number(cell["JobID"]),
        array=array,
        state=cell["State"].split()[0].rstrip("+") if cell["State"] else "UNKNOWN",
        reason=_text(cell["Reason"]),
        user=cell["UserName"],
        account=_text(cell["Account"]),
        partition=_text(cell["Partition"]),
        qos=_text(cell["QOS"]),
        priority=_number(cell["PriorityLong"]),
        submit_s=seconds(cell["SubmitTime"]),
        eligible_s=seconds(cell["EligibleTime"]),
        start_s=seconds(cell["StartTime"]),
        end_s=seconds(cell["EndTime"]),
        limit=_limit(cell["TimeLimit"]),
        nodes=_hosts(cell["NodeList"]),
        wanted_nodes=_hosts(cell["ReqNodes"]),
        node_count=_nodes(cell, resources),
        cpus=_number(cell["NumCPUs"].partition("-")[0]),
        memory=cell["MinMemory"],
        gpus=gpus.gpus or 0,
        gpu_types=gpus.gpu_types,
        memory_bytes=resources.memory_bytes or 0,
        requeues=cell["Requeue"] == "1",
        batch=cell["BatchFlag"] == "1",
        restarts=_number(cell["RestartCnt"]),
        status=status(cell["exit_code"]),
        reservation=_text(cell["Reservation"]),
        name=cell["Name"],
        comment=_text(cell["Comment"]),
        per_node=_text(cell["tres-per-node"]),
        per_job=_text(cell["tres-per-job"]),
    )


def _gpus(cell: dict[str, str], counted: cells.Resources) -> cells.Resources:
    """Return the GPUs of a job: as they were counted, or where a site does not count them, as they were asked for."""
    if counted.gpus is not None:
        return counted
    times = {"tres-per-node": "NumNodes", "tres-per-task": "NumTasks", "tres-per-job": ""}
    for key, of in times.items():
        asked = cells.gres(cell[key])
        if asked is not None and asked.gpus:
            number = 1 if not of else _nodes(cell, counted) if of == "NumNodes" else _number(cell[of].partition("-")[0])
            return cells.Resources(asked.gpus * max(1, number), asked.gpu_types)
    return counted


def _nodes(cell: dict[str, str], counted: cells.Resources) -> int:
    """Return the nodes of a job: as they were counted; squeue guesses too many for tasks of several CPUs."""
    return counted.nodes or _number(cell["NumNodes"].partition("-")[0])


@lru_cache(_MANY)
def _limit(cell: str) -> int:
    return cells.span(cell) or 0


@lru_cache(_MANY)
def _hosts(cell: str) -> tuple[str, ...]:
    return lists.hosts(cell)


@lru_cache(_MANY)
def _text(cell: str) -> str:
    return "" if cells.absent(cell) else cell


def _number(cell: str) -> int:
    plain = cell.strip()
    return min(int(plain), _MOST) if plain.isdecimal() and len(plain) < 20 else 0


@lru_cache(_MANY)
def seconds(cell: str) -> float | None:
    """Return a time of Slurm, printed in UTC, in seconds since 1970; None where there is none."""
    if cells.absent(cell):
        return None
    try:
        return datetime.fromisoformat(cell).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


@lru_cache(_MANY)
def status(cell: str) -> int:
    """Return an exit status from Slurm's numbers: ``85:0`` or ``0:15``, or the one number that wait(2) has."""
    if cell.isdecimal():
        code, signal = int(cell) >> 8, int(cell) & 127
    else:
        code, signal = (int(part) if part.isdecimal() else 0 for part in (*cell.split(":"), "0")[:2])
    return -signal if signal else code


def nodes(text: str) -> list[NodeRow]:
    """Return the nodes that ``scontrol show node -o`` prints."""
    return [_node(record) for _, record in records(text) if "NodeName" in record]


def _node(record: dict[str, str]) -> NodeRow:
    total = cells.tres(record.get("CfgTRES", "")) or cells.Resources()
    used = cells.tres(record.get("AllocTRES", "")) or cells.Resources()
    return NodeRow(
        record["NodeName"],
        record.get("State", ""),
        total.cpus or _number(record.get("CPUTot", "")),
        total.memory_bytes or _number(record.get("RealMemory", "")) * 2**20,
        (total.gpus if total.gpus is not None else (cells.gres(record.get("Gres", "")) or cells.Resources()).gpus) or 0,
        used.cpus or _number(record.get("CPUAlloc", "")),
        used.memory_bytes or _number(record.get("AllocMem", "")) * 2**20,
        used.gpus or 0,
        _text(record.get("Reason", "")),
    )
