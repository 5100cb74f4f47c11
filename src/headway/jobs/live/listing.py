"""What a queue knows of its jobs, from its store: for the list, and for one of them."""

from dataclasses import asdict, dataclass, field
from typing import Any

from headway.core.replay import rows_of
from headway.errors import QueueError
from headway.jobs.audit.replay import placement_of
from headway.jobs.live.store import Lease, Past
from headway.jobs.model.rows import REJOINS, Kind
from headway.units import SECOND, WHOLE_GPU_MILLI

WAITING, RUNNING, ENDING, CANCELLED = "waiting", "running", "ending", "cancelled"
RUNS = "runs"
"""Said of a lease whose program is there."""
_ENDS = {int(Kind.FINISHED): "finished", int(Kind.FAILED): "failed", int(Kind.CANCELLED): CANCELLED}
_ENDS |= {int(Kind.KILL): "killed for another"}
_STARTS, _STOPS, _AGAIN = (int(Kind.START), int(Kind.MIGRATE)), tuple(map(int, REJOINS)), int(Kind.QUEUED_AGAIN)
_HANDLED = {*_STARTS, *_STOPS, _AGAIN, *_ENDS}


@dataclass(slots=True)
class Listed:
    """A job as it is listed; times in seconds."""

    id: int
    name: str
    tenant: str
    state: str
    gpus: float
    cpus: float
    memory_bytes: int
    submitted_s: float
    """Since 1970."""
    waited_s: float = 0.0
    ran_s: float = 0.0
    starts: int = 0
    preemptions: int = 0
    interruptions: int = 0
    failures: int = 0
    on_gpus: list[int] = field(default_factory=list)
    """Those that it holds."""
    command: list[str] = field(default_factory=list)
    folder: str = ""
    estimate_s: float = 0.0
    retries: int = 0
    leases: list[dict[str, Any]] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Return it as JSON, for a program."""
        return asdict(self)


def numbered(past: Past | None, job: str) -> int:
    """Return the number of a job that is named by it, or by its name; QueueError where there is none."""
    jobs = past.jobs if past is not None else ()
    for each in jobs:
        if job in (str(each.id), each.name):
            return each.id
    raise QueueError(f"job {job}: there is no such job: headway queue list --all shows them")


def listed(past: Past, now_s: float) -> list[Listed]:
    """Return every job of a run; ``now_s``: seconds since the run began, up to which waits and runs are counted."""
    jobs = [
        Listed(
            job.id,
            job.name,
            job.tenant,
            WAITING,
            job.gpu_milli / WHOLE_GPU_MILLI if job.shared else job.gpus,
            job.cpu_milli / 1000,
            job.memory_bytes,
            submitted,
            command=list(program.command),
            folder=program.folder,
            estimate_s=job.estimate / SECOND,
            retries=job.retries,
        )
        for job, program, submitted in zip(past.jobs, past.programs, past.submitted_s, strict=True)
    ]
    since = [job.submit for job in past.jobs]
    for row in rows_of(past.tape):
        if row[1] in _HANDLED and 0 <= row[2] < len(jobs):
            _enter(jobs[row[2]], since, row)
    now = round(now_s * SECOND)
    for job in jobs:
        if job.state in (WAITING, RUNNING):
            _count(job, max(0, now - since[job.id]))
    _enter_leases(jobs, past.leases)
    return jobs


def _enter(job: Listed, since: list[int], row: list[int]) -> None:
    """Enter a row of the tape."""
    time, kind = row[:2]
    if kind != _AGAIN:
        _count(job, time - since[job.id])
        since[job.id] = time
    if kind in _STARTS:
        mask = placement_of([row])[0][1]
        job.state, job.starts = RUNNING, job.starts + 1
        job.on_gpus = [gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]
        return
    job.on_gpus = []
    job.state = _ENDS.get(kind, WAITING)
    job.preemptions += kind in (int(Kind.PREEMPT), int(Kind.REQUEUE))
    job.interruptions += kind == int(Kind.EVICTED)
    job.failures += kind == int(Kind.FAILED)


def _count(job: Listed, time: int) -> None:
    if job.state == RUNNING:
        job.ran_s += time / SECOND
    elif job.state == WAITING:
        job.waited_s += time / SECOND


def _enter_leases(jobs: list[Listed], leases: tuple[Lease, ...]) -> None:
    """Enter how leases ended; a job whose program is not gone yet, and that does not run, is about to end."""
    for lease in leases:
        if not 0 <= lease.order.job < len(jobs):
            continue
        job = jobs[lease.order.job]
        told = lease.told or RUNS
        job.leases.append(
            {"lease": lease.order.lease, "gpus": list(lease.order.gpus), "reason": lease.reason, "told": told}
        )
        if not lease.gone and job.state not in (WAITING, RUNNING):
            job.state = ENDING
