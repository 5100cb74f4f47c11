"""A training job as it was submitted: what it asks for, how much work it is, how it will end.

A job is a fixed description; what happens to it during a run is kept in ``state.JobState``. ``work`` and
``outcome`` are the truth that an executor plays out; policies are shown ``estimate`` (through the state), never those.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from headway.errors import TraceError
from headway.jobs.model.submission import Terms, broken_terms
from headway.units import DAY, MINUTE, WHOLE_GPU_MILLI

_LONGEST_WRITING = 100 * 365 * DAY


class Outcome(IntEnum):
    """How a job ends once it has run for ``outcome_after`` of its work."""

    FINISHES = 0
    FAILS = 1
    CANCELLED = 2


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a workload.

    ``id`` is its position in the workload (sorted by submit time); ``name`` is what the trace called it.
    A GPU request is ``gpus`` whole devices, or, with ``gpus == 1`` and ``gpu_milli < 1000``, a share of one.
    """

    id: int
    submit: int
    """Nanoseconds since the run began."""
    work: int
    """Nanoseconds at reference speed until it finishes."""
    gpus: int = 1
    gpu_milli: int = WHOLE_GPU_MILLI
    """Thousandths of one device; below 1000 only when gpus is 1."""
    name: str = ""
    tenant: str = "default"
    partition: str = ""
    """Where it may run; empty means anywhere."""
    gpu_types: tuple[str, ...] = ()
    """GPU types it accepts; empty means any."""
    nodes: int = 0
    """Exactly so many nodes with the same number of GPUs on each; 0 leaves it to the placement."""
    cpu_milli: int = 0
    memory_bytes: int = 0
    estimate: int = 0
    """The run time its user announced, in nanoseconds; 0 means none was given."""
    priority: int = 0
    """Larger is more urgent."""
    qos: str = ""
    user: str = ""
    preemptible: bool = True
    checkpoint: int = 0
    """Nanoseconds on its GPUs to save a checkpoint: every so much work, and when it is preempted or moved."""
    restore: int = 0
    """Nanoseconds on its GPUs to load one again."""
    checkpoint_every: int = 30 * MINUTE
    """Work between periodic checkpoints. A failed node costs what was done since the last one; 0 loses nothing, and
    none are written."""
    communication_ppm: int = 0
    """Share of its time spent in communication when all its GPUs sit at the innermost level."""
    outcome: Outcome = Outcome.FINISHES
    outcome_after: int = 0
    """Work after which it fails or is cancelled."""
    retries: int = 0
    """How often a failed attempt is queued again, from the start."""
    patience: int = 0
    """Cancelled if it has never started this long after its submission; 0 means it waits for ever."""
    model: str = ""
    """What it trains, for profiles of sensitivity."""
    reservation: str = ""
    """The advance reservation that it runs in; empty: none."""
    terms: Terms | None = None
    """What it waits for and counts under besides; None: nothing."""
    open_end: bool = False
    """Whether it is a real program, of which nobody knew the work: it ends when it does. Its work and outcome are what
    was seen of it, or its estimate as long as it has not ended."""

    @property
    def host(self) -> tuple[int, int]:
        """Return its CPUs in thousandths and its memory, of all nodes: one without GPUs has them on each."""
        nodes = max(1, self.nodes) if not self.gpus else 1
        return self.cpu_milli * nodes, self.memory_bytes * nodes

    @property
    def width_milli(self) -> int:
        """GPUs asked for in thousandths of a device."""
        return self.gpus * self.gpu_milli

    @property
    def ends_after(self) -> int:
        """Work after which it ends, one way or another."""
        return self.work if self.outcome is Outcome.FINISHES else self.outcome_after

    def delivered(self, done: int) -> int:
        """Return the work that counts at its end: no more than it has, as ends are rounded up."""
        return done if self.open_end else min(done, self.ends_after)

    @property
    def shared(self) -> bool:
        """Return whether it asks for part of a device."""
        return self.gpu_milli < WHOLE_GPU_MILLI


def broken_rule(job: Job) -> str | None:
    """The rule that a job breaks, as a line that names the field, the value and the rule; None if it is sound."""
    if job.submit < 0:
        return f"submit {job.submit} ns is before the run began"
    if job.work <= 0:
        return f"work {job.work} ns must be above 0"
    if job.work > 1000 * 365 * 86400 * 10**9:
        return f"work {job.work} ns is over a thousand years"
    if job.gpus < 0 or job.nodes < 0:
        return f"gpus {job.gpus} and nodes {job.nodes} must not be negative"
    if not 0 < job.gpu_milli <= WHOLE_GPU_MILLI:
        return f"gpu_milli {job.gpu_milli} must lie in 1..1000"
    if job.gpu_milli < WHOLE_GPU_MILLI and job.gpus != 1:
        return f"gpu_milli {job.gpu_milli} needs gpus 1 (a share never spans devices), not {job.gpus}"
    if job.nodes and job.gpus % job.nodes:
        return f"gpus {job.gpus} cannot be divided evenly over nodes {job.nodes}"
    if min(job.cpu_milli, job.memory_bytes, job.estimate, job.checkpoint, job.restore, job.checkpoint_every) < 0:
        return "cpus, memory, estimate and checkpoint costs must not be negative"
    if job.checkpoint_every and job.work // job.checkpoint_every * job.checkpoint > _LONGEST_WRITING:
        return (
            f"checkpoint {job.checkpoint} ns after every {job.checkpoint_every} ns of work (checkpoint_every) "
            f"takes over a hundred years for work of {job.work} ns"
        )
    if job.gpus == 0 and job.cpu_milli == 0 and job.memory_bytes == 0:
        return "asks for no GPU, no CPU and no memory"
    if not 0 <= job.communication_ppm <= 1_000_000:
        return f"communication_ppm {job.communication_ppm} must lie in 0..1000000"
    if job.outcome is not Outcome.FINISHES and not 0 < job.outcome_after <= job.work:
        return f"outcome_after {job.outcome_after} must lie in 1..work ({job.work})"
    if job.open_end and not job.estimate:
        return "open_end needs an estimate: what is expected of it must not depend on how long it ran"
    if job.retries < 0 or job.patience < 0:
        return f"retries {job.retries} and patience {job.patience} must not be negative"
    return None if job.terms is None else broken_terms(job.terms)


def workload(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Jobs in order of submission (ties in the order given), numbered from 0 and checked."""
    ordered: Sequence[Job] = sorted(jobs, key=lambda job: job.submit)
    names: set[str] = set()
    numbered = []
    for position, job in enumerate(ordered):
        if (rule := broken_rule(job)) is not None:
            raise TraceError(f"job {job.name or job.id}: {rule}")
        if job.name:
            if job.name in names:
                raise TraceError(f"job {job.name}: the id occurs twice; ids must be unique")
            names.add(job.name)
        numbered.append(job if job.id == position else replace(job, id=position))
    return tuple(numbered)
