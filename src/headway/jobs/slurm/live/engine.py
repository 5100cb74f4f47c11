"""Engine of a Slurm: a job of the queue is a job of Slurm's, held there until the policy has it start.

A start sets nodes, CPUs, memory and the lease (in the comment) while the job is held, and releases it. A stop is a
signal, the grace period, and ``requeuehold``. What Slurm says of a job is enough to go on after a kill of the queue;
how a program ended stands in its folder too, for Slurm forgets jobs. Which GPUs of a node a job gets is Slurm's to say.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import msgspec

from headway.errors import QueueError, SlurmError
from headway.files import write_whole
from headway.jobs.live.engine import SAVED, Ended, Order
from headway.jobs.live.local.engine import logs_of
from headway.jobs.live.store import Program
from headway.jobs.model.job import Job
from headway.jobs.slurm.live.amounts import cpus_per_node, mebibytes_per_node, plain_name
from headway.jobs.slurm.live.board import Board
from headway.jobs.slurm.live.rows import JobRow
from headway.jobs.slurm.live.script import BEGAN, EXIT, GIVEN, LEASE, SAVED_MARK, script_of
from headway.jobs.slurm.live.tag import GIVEN_BACK, Tag, is_free

MISSING_S = 5.0
"""A job that Slurm does not list for so long is gone."""
REST_S = 1.0
"""A job is not released sooner after its end: a node refuses it in the same second (Job already killed)."""
TOLD_S = 10.0
"""A program whose folder says for so long that it has ended has, whatever Slurm says."""
_LOST = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED")


@dataclass(slots=True)
class _Watch:
    """A lease that Slurm was told of."""

    order: Order
    released_s: float = field(default_factory=monotonic)
    started: bool = False
    stopping: bool = False
    at_once: bool = False
    kill_s: float | None = None
    """When it is ended by force, by the monotonic clock; None: it was not signalled."""
    missing_s: float | None = None
    """Since when Slurm does not list it."""
    told_s: float | None = None
    """Since when its folder says that it has ended, although Slurm has it running."""
    divided: bool = False
    """Whether it is stopped to be started again with another share, under the same lease."""
    saved_s: float | None = None
    """When one that is divided anew was requeued, held; None: it was not."""
    problem: str = ""
    """What Slurm answered when it could not be dealt with; empty: nothing was wrong."""


class SlurmEngine:
    """Runs programs as jobs of Slurm."""

    def __init__(
        self,
        board: Board,
        folder: Path,
        entry: Callable[[int], tuple[Job, Program]],
        nodes: Sequence[str],
        *,
        start_s: float,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``entry``: a job of the queue by its number.

        ``start_s``: one that was released and has not started after this is held again.
        """
        self._board, self._client, self._folder = board, board.client, folder
        self._entry, self._nodes, self._start_s, self._log = entry, nodes, start_s, log
        self._watched: dict[int, _Watch] = {}
        self._ended_s: dict[int, float] = {}
        """By job of the queue: when its last run was seen to have ended, by the monotonic clock."""
        self._void: list[int] = []
        """Leases that were never released and are to end."""
        self.held_again = 0
        """Releases after which Slurm did not start the job in time."""

    # --- submitting -------------------------------------------------------------------------------------------

    def enlist(self, job: Job, program: Program) -> Program:
        """Submit a program to Slurm, held; return it with Slurm's number."""
        place = logs_of(self._folder, job.id)[0].parent
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(place / LEASE, "0", QueueError)  # it may be given back, or released by hand, before it is launched
        out, err = (str(path).replace("%", "%%") for path in logs_of(self._folder, job.id))
        nodes = max(1, job.nodes)
        options = ["--hold", f"--comment={Tag(self._board.queue, job.id)}", "--requeue", "--open-mode=append"]
        options += [f"--job-name={plain_name(job.name)}", f"--output={out}", f"--error={err}", f"--chdir={place}"]
        options += [f"--nodes={nodes}", f"--ntasks={nodes}", f"--cpus-per-task={cpus_per_node(job.cpu_milli, nodes)}"]
        options += [f"--gres=gpu:{job.gpus // nodes}"] if job.gpus else []
        options += [f"--partition={job.partition}"] if job.partition else []
        options += [f"--mem={mebibytes_per_node(job.memory_bytes, nodes)}M"] if job.memory_bytes else []
        number = self._client.submit(options, script_of(program, place, job.id, SAVED))
        self._board.changed(job.id)
        return msgspec.structs.replace(program, slurm=number)

    # --- starting ---------------------------------------------------------------------------------------------

    def launch(self, order: Order) -> None:
        """Set what a lease gives a job that is held, and release it."""
        number = self._make_held(order)
        if number is None:
            return
        place = logs_of(self._folder, order.job)[0].parent
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(place / LEASE, str(order.lease), QueueError)
        (place / GIVEN).unlink(missing_ok=True)
        for name in (EXIT, SAVED_MARK):  # of an earlier run under the same lease
            self._file(order, name).unlink(missing_ok=True)
        self._board.changed(order.job)
        self._client.update(number, self._values(order))
        self._client.release(number)
        self._board.changed(order.job)
        self._watched[order.lease] = _Watch(order)

    def _make_held(self, order: Order) -> int | None:
        """Return Slurm's number of a job that is held now; None where it is not to be released (again)."""
        found = self._board.current(order.job)
        if found is None:
            return self._make_held_untagged(order)
        row, tag = found
        if tag.lease == order.lease and not row.held and not row.ended:
            self._watched[order.lease] = _Watch(order, started=row.runs)
            return None
        if row.runs:
            if self._exit(Order(tag.lease, order.job)) is not None:  # a controller that was away missed its end
                self._client.requeue_held(row.id)
            raise QueueError(f"its last run is not gone yet: Slurm's job {row.id} is {row.state}")
        if row.state == "COMPLETED":  # it had started when it was to be held, and is done
            self._watched[order.lease] = _Watch(order, started=True)
            return None
        if monotonic() - self._ended_s.get(order.job, -REST_S) < REST_S:
            raise QueueError(f"Slurm's job {row.id} has just ended, and nodes refuse it in the same second")
        if row.ended:
            self._client.requeue_held(row.id)
        elif not row.held:
            self._client.hold(row.id)
        return row.id

    def _make_held_untagged(self, order: Order) -> int | None:
        """Return Slurm's number of a job whose tag Slurm does not have; one that it has forgotten is submitted again.

        One that is none of the queue's any more, or of which only its user has the script, is not: it is watched, and
        the next looks tell how it ended.
        """
        job = order.job
        entered, program = self._entry(job)
        row = self._board.numbered(program.slurm)
        if program.external and row is not None and row.waits and is_free(row.comment):  # its tag could not be set
            if not row.held:
                self._client.hold(row.id)
            return row.id
        if program.external or self.is_slurms(job) or self.finished_apart(job):
            self._watched[order.lease] = _Watch(order, started=True)
            return None
        number = self.enlist(entered, program).slurm
        self._log(f"job {job}: Slurm did not know it any more (it was {program.slurm}); submitted again as {number}")
        return number

    def is_slurms(self, job: int) -> bool:
        """Return whether a job whose tag Slurm does not have was given back, or taken back by its user."""
        program = self._entry(job)[1]
        row = self._board.numbered(program.slurm)
        if row is not None and (row.comment == GIVEN_BACK or (program.external and not is_free(row.comment))):
            return True
        return logs_of(self._folder, job)[0].with_name(GIVEN).exists()

    def finished_apart(self, job: int) -> bool:
        """Return whether a job whose tag Slurm does not have has ended well, by its folder or by Slurm."""
        row = self._board.numbered(self._entry(job)[1].slurm)
        if row is not None and row.state == "COMPLETED" and self.is_slurms(job):
            return True
        try:
            last = int(logs_of(self._folder, job)[0].with_name(LEASE).read_text())
        except (OSError, ValueError):
            return False
        return self._exit(Order(last, job)) == 0

    def _values(self, order: Order) -> dict[str, str]:
        nodes = [self._nodes[node] for node, _ in order.placement]
        values = {"StartTime": "now", "ReqNodeList": ",".join(nodes)} if nodes else {"StartTime": "now"}
        job, program = self._entry(order.job)
        asked = (job.cpu_milli, job.memory_bytes)
        if program.external and not order.again and order.host == asked:  # as its user has it
            return values | {"Comment": str(Tag(self._board.queue, order.job, order.lease))}
        if order.cpu_milli:
            each = cpus_per_node(order.cpu_milli, len(nodes))
            values |= {"NumCPUs": str(each * max(1, len(nodes))), "MinCPUsNode": str(each)}
            if not program.external:
                values["CPUsPerTask"] = str(each)
        if order.memory_bytes:
            values["MinMemoryNode"] = str(mebibytes_per_node(order.memory_bytes, len(nodes)))
        return values | {"Comment": str(Tag(self._board.queue, order.job, order.lease))}

    def adopt(self, order: Order) -> bool:
        """Watch what an earlier queue has released; return whether it had."""
        found = self._board.current(order.job)
        if self._exit(order) is not None:
            pass  # it has ended, and Slurm may say anything
        elif found is None:
            if not self._file(order, BEGAN).exists():
                return False
        elif found[1].lease != order.lease or found[0].held:
            return False
        self._watched[order.lease] = _Watch(order, started=found is None or found[0].runs)
        return True

    def regrant(self, order: Order) -> None:
        """Divide anew: Slurm changes nothing of a job that runs, so it is stopped and started again."""
        if (watch := self._watched.get(order.lease)) is not None and watch.order.host != order.host:
            watch.order, watch.divided = order, True

    # --- ending -----------------------------------------------------------------------------------------------

    def stop(self, lease: int, *, at_once: bool = False) -> None:
        """Ask what runs under a lease to end; one that was not released never will be."""
        if (watch := self._watched.get(lease)) is None:
            if lease not in self._void:
                self._void.append(lease)
            return
        watch.stopping, watch.at_once = True, watch.at_once or at_once

    def poll(self) -> list[Ended]:
        """Return what has ended, by the last look at Slurm."""
        ended = [Ended(lease, lost=True, reason="it was never released") for lease in self._void]
        self._void = []
        if not self._board.away:
            for watch in list(self._watched.values()):
                if not self._board.fresh(watch.order.job):
                    continue
                try:
                    found = self._looked_at(watch)
                except (OSError, QueueError, SlurmError) as problem:  # it is tried again at the next look
                    if not watch.problem:
                        self._log(f"lease {watch.order.lease} of job {watch.order.job}: {problem}; tried again")
                    watch.problem = str(problem)
                    continue
                if found is not None:
                    ended.append(found)
                    self._ended_s[watch.order.job] = monotonic()
                    del self._watched[watch.order.lease]
        return ended

    def _looked_at(self, watch: _Watch) -> Ended | None:
        found, lease = self._board.of(watch.order.job), watch.order.lease
        if found is None:
            return self._missing(watch)
        watch.missing_s = None
        row, tag = found
        if watch.saved_s is not None:
            return self._divided(watch)
        if row.runs:
            watch.started = True
            self._press(watch, row)
            return self._overdue(watch)
        if row.ended:
            return self._ended(watch, row)
        done = self._exit(watch.order)
        if done in (0, SAVED):  # it had ended by itself, whatever Slurm made of it since
            if not row.held:
                self._client.hold(row.id)
            return Ended(lease, done)
        if tag.lease != lease or row.held:
            how = "killed after its grace period" if watch.kill_s is not None else "it is held in Slurm again"
            return Ended(lease, -9 if watch.kill_s is not None else 0, lost=watch.kill_s is None, reason=how)
        return self._not_started(watch, row)

    def _divided(self, watch: _Watch) -> Ended | None:
        """Start a job again that has saved to get another share, unless it is to stop."""
        if watch.stopping:
            return Ended(watch.order.lease, SAVED)
        if monotonic() - (watch.saved_s or 0.0) >= REST_S:
            self.launch(watch.order)
        return None

    def _overdue(self, watch: _Watch) -> Ended | None:
        """Look at a job that runs, says Slurm: a controller that was away may have missed its end."""
        if (status := self._exit(watch.order)) is None:
            return None
        watch.told_s = watch.told_s or monotonic()
        return Ended(watch.order.lease, status) if monotonic() - watch.told_s > TOLD_S else None

    def _exit(self, order: Order) -> int | None:
        """Return how the program of a lease ended, by its folder; None where that does not say."""
        try:
            return int(self._file(order, EXIT).read_text())
        except (OSError, ValueError):
            return None

    def _not_started(self, watch: _Watch, row: JobRow) -> Ended | None:
        """Look at a job that was released and waits: it is held again where it ran before, or waits too long."""
        waited = monotonic() - watch.released_s
        if not (watch.started or watch.stopping or waited > self._start_s):
            return None
        self._client.hold(row.id)
        self._board.changed(watch.order.job)
        now = self._board.current(watch.order.job)
        if now is None or not now[0].held:  # it has started meanwhile: Slurm takes the order, and holds nothing
            return None
        if watch.started:
            how = "Slurm has requeued it: its node failed, or somebody did"
        elif watch.stopping:
            how = "it is held before it started"
        else:
            self.held_again += 1
            how = f"Slurm has not started it within {self._start_s:g} s ({row.reason}): held again"
        return Ended(watch.order.lease, lost=True, reason=how)

    def _press(self, watch: _Watch, row: JobRow) -> None:
        """Ask a job that runs to end, as far as that is due."""
        if not (watch.stopping or watch.divided) or row.state == "COMPLETING":
            return
        program = self._entry(watch.order.job)[1]
        if watch.kill_s is None and not watch.at_once:
            self._client.signal(row.id, "TERM", batch=not program.external)
            watch.kill_s = monotonic() + program.grace_s
        elif watch.at_once or (watch.kill_s is not None and monotonic() >= watch.kill_s):
            watch.kill_s = watch.kill_s or monotonic()
            self._client.requeue_held(row.id)
            self._board.changed(watch.order.job)

    def _ended(self, watch: _Watch, row: JobRow) -> Ended | None:
        """Return how a job ended that has; what goes on later waits in Slurm, held."""
        ended = self._how(watch.order, row)
        again = ended.status == SAVED or ended.lost or (ended.status != 0 and watch.stopping)
        if not again or ended.cancelled:
            return ended
        if not row.requeues:
            return Ended(ended.lease, ended.status or 1, reason=f"{ended.told()}; it may not be requeued")
        self._client.requeue_held(row.id)
        self._board.changed(watch.order.job)
        self._ended_s[watch.order.job] = monotonic()
        if watch.divided and not watch.stopping and ended.status == SAVED:
            watch.saved_s = monotonic()
            return None
        return ended

    def _how(self, order: Order, row: JobRow) -> Ended:
        lease = order.lease
        if row.state == "CANCELLED":
            return Ended(lease, -15, cancelled=True, reason="cancelled in Slurm")
        if row.state in _LOST and self._exit(order) not in (0, SAVED):
            return Ended(lease, lost=True, reason=f"Slurm says {row.state}")
        if row.status != SAVED and self._file(order, SAVED_MARK).exists():
            return Ended(lease, SAVED, reason=f"saved, exit status {row.status}")
        if row.state in _LOST:
            return Ended(lease, self._exit(order) or 0)
        if row.state in ("COMPLETED", "FAILED"):
            return Ended(lease, row.status or int(row.state == "FAILED"))
        return Ended(lease, row.status or 1, reason=f"Slurm says {row.state}")

    def _missing(self, watch: _Watch) -> Ended | None:
        """Look at a job that Slurm does not list: its folder may say how it ended."""
        now, job = monotonic(), watch.order.job
        if self.finished_apart(job):
            return Ended(watch.order.lease, 0)
        if self.is_slurms(job):
            row = self._board.numbered(self._entry(job)[1].slurm)
            how = f", which says {row.state}" if row is not None and row.ended else ""
            return Ended(watch.order.lease, cancelled=True, reason=f"given back to Slurm{how}")
        watch.missing_s = watch.missing_s or now
        if now - watch.missing_s < MISSING_S:
            return None
        order, forgot = watch.order, "Slurm does not know it any more"
        if (status := self._exit(order)) is not None:
            return Ended(order.lease, status)
        if self._entry(order.job)[1].external:
            return Ended(order.lease, 1, reason=f"{forgot}, nor how it ended")
        return Ended(order.lease, lost=True, reason=forgot)

    # --- what is known of a program ---------------------------------------------------------------------------

    def progress(self, lease: int) -> float | None:
        """Return the share that a program wrote to the file that ``HEADWAY_PROGRESS`` names."""
        if (watch := self._watched.get(lease)) is None:
            return None
        try:
            share = float(self._file(watch.order, "progress").read_bytes()[:64])
        except (OSError, ValueError):
            return None
        return share if 0 <= share <= 1 else None

    def forget(self, lease: int) -> None:
        """Do nothing: how leases ended is little."""

    def _file(self, order: Order, name: str) -> Path:
        return logs_of(self._folder, order.job)[0].with_name(f"{name}-{order.lease}")
