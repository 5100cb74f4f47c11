"""What happens at a Slurm besides ends of leases: users submit, cancel and release jobs there; nodes come and go.

Each look makes the queue's books and Slurm's agree again, whoever changed what, and however long no queue was there.
Jobs without headway's tag are never changed. A node on which such a job runs is theirs until it ends: it takes no new
job of the queue.
"""

from collections.abc import Callable, Sequence
from time import monotonic

from headway.errors import InputError, SlurmError
from headway.jobs.live.messages import Submit
from headway.jobs.live.queue import LiveQueue
from headway.jobs.live.store import Program
from headway.jobs.model.events import JobFinished, NodeDrained, NodeRecovered
from headway.jobs.model.job import Job
from headway.jobs.slurm.live.board import Board
from headway.jobs.slurm.live.delays import Delays
from headway.jobs.slurm.live.engine import SlurmEngine
from headway.jobs.slurm.live.lock import SlurmLock
from headway.jobs.slurm.live.rows import JobRow, NodeRow
from headway.jobs.slurm.live.tag import FREE, REFUSED, Tag, is_free, lock_of

NODES_S = 3.0
"""Between two looks at the nodes; after a job has stopped they are looked at at once."""


class SlurmSite:
    """Keeps a queue and a Slurm in agreement."""

    def __init__(
        self,
        board: Board,
        engine: SlurmEngine,
        lock: SlurmLock,
        nodes: Sequence[str],
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._board, self._client, self._engine, self._lock, self._log = board, board.client, engine, lock, log
        self._nodes = {name: number for number, name in enumerate(nodes)}
        self._rows: list[NodeRow] = []
        self._nodes_s = 0.0
        self._delays = Delays()
        self._told: set[str] = set()
        self._was_away = ""
        self._seen_s = 0.0
        """The look that was dealt with last."""
        self._not_allowed: set[int] = set()
        """Jobs by Slurm's number that this user may not change."""

    def enlist(self, job: Job, program: Program) -> Program:
        """Submit a new job of the queue to Slurm, held."""
        return self._engine.enlist(job, program)

    def dismiss(self, program: Program) -> None:
        """Take back a job that the queue could not write down."""
        self._try(lambda: self._client.cancel(program.slurm))

    def close(self) -> None:
        """Let others drive this Slurm; jobs that run go on, those that wait stay held."""
        self._lock.release()

    def status(self) -> dict[str, float | int | str]:
        """Return what only a Slurm has to tell, in numbers."""
        return {
            "held_again": self._engine.held_again,
            "untagged_delayed_jobs": len(self._delays.jobs),
            "untagged_delay_s": round(self._delays.seconds, 1),
            "away": self._board.away,
        }

    def look(self, queue: LiveQueue) -> None:
        """Look at Slurm if it is time, and let the queue know what happened there; QueueError: it must end."""
        self._board.look()
        self._tell_away()
        if self._board.taken_s == self._seen_s:
            return
        self._seen_s = self._board.taken_s
        try:
            self._lock.keep(self._board.rows)
            self._settle(queue)
            self._look_at_nodes(queue)
        except SlurmError as problem:  # the rest of it is done at the next look
            self._once(str(problem))
        own = [row for row, _ in self._board.own().values()]
        others = [row for row in self._board.others() if not is_free(row.comment) and lock_of(row.comment) is None]
        self._delays.count(monotonic(), own, others, self._rows)

    def _tell_away(self) -> None:
        if bool(self._board.away) != bool(self._was_away):
            self._log(f"{self._board.away}; asked again" if self._board.away else "Slurm answers again")
        self._was_away = self._board.away

    def _once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._log(line)

    def _try(self, change: Callable[[], None]) -> bool:
        """Change a job; return whether Slurm did."""
        try:
            change()
        except SlurmError as problem:
            self._once(str(problem))
            return False
        return True

    # --- jobs -------------------------------------------------------------------------------------------------

    def _settle(self, queue: LiveQueue) -> None:
        leased = {holding.order.job for holding in queue.cluster.holdings}
        for number, (row, _) in list(self._board.own().items()):
            if not self._board.fresh(number) or number in leased:
                continue
            if number in queue.state.jobs:
                self._settle_waiting(queue, number, row)
            elif (row.waits or row.state == "RUNNING") and not queue.cluster.arrives(number):
                self._try(lambda row=row: self._client.cancel(row.id))  # type: ignore[misc]
        for row in self._board.doubled:
            if not row.ended:
                self._try(lambda row=row: self._client.cancel(row.id))  # type: ignore[misc]
        for number in [job for job in queue.state.jobs if job not in leased and self._board.fresh(job)]:
            if self._board.of(number) is None:
                self._settle_untagged(queue, number)
        free = [row for row in self._board.rows if is_free(row.comment) and not row.ended and not queue.draining]
        for row in sorted(free, key=lambda row: (row.submit_s or 0.0, row.id)):  # squeue has the last one first
            self._take(queue, row)

    def _settle_waiting(self, queue: LiveQueue, number: int, row: JobRow) -> None:
        """Look at a job that waits in the queue."""
        if row.state == "CANCELLED":
            self._withdraw(queue, number, "was cancelled in Slurm")
        elif row.waits and not row.held:
            self._try(lambda: self._client.hold(row.id))
            self._board.changed(number)
        elif row.runs and row.state != "COMPLETING":
            why = "it was released by hand, or its end is not known there yet"
            self._once(f"job {number} runs in Slurm ({row.id}) although it waits here: {why}")
        elif row.state == "COMPLETED":
            queue.cluster.happen(JobFinished(number, 0))
            self._log(f"job {number} has finished in Slurm ({row.id}), released by hand")

    def _settle_untagged(self, queue: LiveQueue, number: int) -> None:
        """Look at a job of the queue whose tag Slurm does not have: forgotten, or given back."""
        program = queue.programs[number]
        row = self._board.numbered(program.slurm)
        if self._engine.finished_apart(number):
            queue.cluster.happen(JobFinished(number, 0))
            self._log(f"job {number} has finished in Slurm ({program.slurm}) without the queue")
        elif self._engine.is_slurms(number):
            self._withdraw(queue, number, "has no tag any more: it is Slurm's now")
        elif program.external and (row is None or row.ended):
            self._withdraw(queue, number, "is not known to Slurm any more")
        elif program.external and row is not None:
            self._tag(row, number)

    def _withdraw(self, queue: LiveQueue, number: int, why: str) -> None:
        if queue.cluster.cancel(number):
            self._log(f"job {number} (Slurm's {queue.programs[number].slurm}) {why}: cancelled here")

    def _tag(self, row: JobRow, number: int) -> None:
        self._try(lambda: self._client.update(row.id, {"Comment": str(Tag(self._board.queue, number))}))
        self._board.changed(number)

    def _take(self, queue: LiveQueue, row: JobRow) -> None:
        """Take up a job that a user marked for headway, or say in its comment why not."""
        if row.id in self._not_allowed:
            return
        known = next((at for at, each in enumerate(queue.programs) if each.slurm == row.id and each.external), None)
        if known is not None and known in queue.state.jobs:
            return  # its tag is to come
        if not self._try(lambda: self._client.update(row.id, {"Comment": FREE})):
            self._not_allowed.add(row.id)
            self._log(f"Slurm's job {row.id} of {row.user} is left alone: this user may not change it")
            return
        if (why := _impossible(row)) or (not row.held and not self._try(lambda: self._client.hold(row.id))):
            self._refuse(row, why or "it is not held: sbatch --hold --comment=headway")
            return
        try:
            number = queue.take(_asked(row), _program(row))
        except InputError as problem:
            self._refuse(row, str(problem))
            return
        self._log(f"job {number} is Slurm's {row.id} ({row.name}) of {row.user}")
        if not row.requeues:
            self._log(f"job {number}: submitted with --no-requeue, so it is never preempted, and ends with its node")
        self._tag(row, number)

    def _refuse(self, row: JobRow, why: str) -> None:
        self._once(f"Slurm's job {row.id} ({row.name}) of {row.user} is not taken: {why}")
        self._try(lambda: self._client.update(row.id, {"Comment": f"{REFUSED}: {why}"}))

    # --- nodes ------------------------------------------------------------------------------------------------

    def _look_at_nodes(self, queue: LiveQueue) -> None:
        """Close nodes that take no jobs, or on which others' jobs run; open them again."""
        leased = (self._board.of(holding.order.job) for holding in queue.cluster.holdings)
        if monotonic() - self._nodes_s >= NODES_S or any(found is None or not found[0].runs for found in leased):
            self._rows, self._nodes_s = self._client.nodes(), monotonic()
        if queue.killing:
            return
        taken = {name for row in self._board.others() if row.runs for name in row.nodes}
        open_now = {row.name for row in self._rows if row.takes_jobs} - taken
        schedulable = queue.state.pool.schedulable
        for name, node in self._nodes.items():
            was = bool(schedulable >> node & 1)
            if was != (name in open_now):
                why = "others run there" if name in taken else "by Slurm"
                self._log(f"node {name} takes {'no new jobs' if was else 'jobs again'} ({why})")
                queue.cluster.happen(NodeDrained(node) if was else NodeRecovered(node))


def _impossible(row: JobRow) -> str:
    """Return why a job cannot be taken, and what is possible; empty where it can."""
    if row.array:
        return "it is an array, whose tasks cannot be held one by one: submit each task as a job of its own"
    if not row.batch:
        return "it is of salloc or srun, which waits for nobody: write it as a batch script"
    return "it runs already: submit with --hold" if row.runs else ""


def _asked(row: JobRow) -> Submit:
    return Submit(
        ("sbatch", str(row.id)),
        "/",
        {},
        row.gpus,
        cpus=row.cpus,
        memory_bytes=row.memory_bytes,
        tenant=row.account or row.user,
        estimate=row.limit,
        name=row.name if row.name.isprintable() else "",
        preemptible=row.requeues,
        nodes=row.node_count,
        partition=row.partition,
        user=row.user,
        qos=row.qos,
        gpu_types=row.gpu_types,
    )


def _program(row: JobRow) -> Program:
    return Program(("sbatch", str(row.id)), "/", {}, slurm=row.id, external=True)
