"""The audit: checks that a tape does not contradict itself, its workload or its cluster. One finding for each error.

Everything is recomputed from the rows by the plain, slow records of ``jobs/model/accounting.py``: the holder of each
GPU, the work delivered to each job, the time for which it must still make no progress (restoring a checkpoint, say).
What is held under limits is summed up in ``jobs/rules/limits/audit.py``, what is reserved in
``jobs/rules/reservations/audit.py``; the preemption that a cluster declares is checked in
``jobs/rules/preemption/audit.py``, that no job comes before it is eligible in ``jobs/rules/eligibility/audit.py``. What
a policy guarantees needs the policy too: quotas (``guarantees.py``) and proportional shares
(``proportional_share.py``).
"""

from collections.abc import Callable, Iterable, Sequence

from headway.core.audit import MOST_FINDINGS, Auditor, Finding, audited, row_ranks
from headway.core.tape import Tape
from headway.jobs.audit.end_audit import wrong_end
from headway.jobs.audit.event_ranks import RANKS
from headway.jobs.audit.guarantees import unkept_promises
from headway.jobs.audit.replay import grant_of, placement_of
from headway.jobs.model.accounting import Books, Life
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.rules.eligibility.audit import EligibilityBooks, has_terms
from headway.jobs.rules.limits.audit import LimitBooks
from headway.jobs.rules.preemption.audit import STOPS, PreemptionBooks
from headway.jobs.rules.reservations.audit import ReservationBooks

_START, _MIGRATE, _REALLOCATE = int(Kind.START), int(Kind.MIGRATE), int(Kind.REALLOCATE)
_COST, _PAUSE = int(Kind.COST), int(Kind.PAUSE)
_ACTIONS = (_START, Kind.PREEMPT, *STOPS, _MIGRATE, _REALLOCATE, Kind.WAKE_AT, Kind.REFUSED)


def audit(
    cluster: Cluster,
    jobs: Sequence[Job],
    tape: Tape,
    *,
    policy: ComposedPolicy | None = None,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
    complete: bool = False,
    punctual: bool = True,
    completions: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[Finding]:
    """Return the errors of a tape; empty when it is sound.

    With ``policy``, which is fresh, the guarantees are checked too. With ``complete`` every job has to end. With
    ``punctual`` jobs have to end at the nanosecond at which their work is done, or, with ``completions``, at the next
    multiple of that; this holds in virtual time only. ``progress`` is called with the row from time to time.
    """
    clerk = _Clerk(cluster, jobs, speed or SpeedModel(cluster), costs or Costs(), punctual, completions or 1)
    ranks = row_ranks(tape, RANKS, _ACTIONS, Kind.STALE)
    found = audited(tape, ranks, clerk, complete=complete, progress=progress)
    if policy is not None and not found:
        broken = unkept_promises(cluster, jobs, tape, policy, speed=speed, costs=costs)
        found = sorted(broken, key=lambda finding: finding.row)[:MOST_FINDINGS]
    return found


class _Clerk(Auditor):
    """Recomputes the state of jobs and nodes row by row, and compares it with the tape."""

    opens = (_START, _MIGRATE, _REALLOCATE)
    follows = (int(Kind.PLACE), _COST, int(Kind.GRANT), int(Kind.STORAGE), _PAUSE)
    shared = slice(2, 4)

    def __init__(
        self,
        cluster: Cluster,
        jobs: Sequence[Job],
        speed: SpeedModel,
        costs: Costs,
        punctual: bool,
        completions: int = 1,
    ) -> None:
        super().__init__()
        self._jobs = jobs
        self._speed = speed
        self._costs = costs
        self._punctual = punctual
        self._completions = completions
        self._books = Books(cluster)
        self._limits = LimitBooks(cluster) if cluster.limits or has_terms(jobs, "throttle") else None
        self._reserved = ReservationBooks(cluster) if cluster.reservations else None
        self._entrance = EligibilityBooks(jobs)
        self._lives: dict[int, Life] = {}
        self._alive: dict[int, Job] = {}
        self._preemption = PreemptionBooks(cluster, self._alive) if cluster.preemption is not None else None
        self._arrived = bytearray(len(jobs))
        self._lease = 0
        self._emptied: set[int] = set()
        """Nodes that failed or were emptied in this instant."""
        self._failed_node = False
        self._interrupted: int | None = None
        """A job whose run is gone: an EVICTED row has to follow."""
        self._to_queue_again: int | None = None
        """A job whose failed attempt has to be followed by QUEUED_AGAIN."""
        self._shared: set[tuple[int, int]] = set()
        """(node, mask) of shared GPUs touched in this instant, where sharing costs speed."""
        self._rows = {
            Kind.ARRIVED: self._on_arrived,
            Kind.FINISHED: self._on_ended,
            Kind.FAILED: self._on_ended,
            Kind.CANCELLED: self._on_ended,
            Kind.WITHDRAWN: lambda row: self._find_all(self._entrance.withdraw(row, self._arrived)),
            Kind.NODE_FAILED: self._on_node,
            Kind.NODE_RECOVERED: self._on_node,
            Kind.NODE_DRAINED: self._on_node,
            Kind.STALE: self._on_stale,
            Kind.PREEMPT: self._on_preempt,
            **dict.fromkeys(STOPS, self._on_stopped_for_another),
            Kind.EVICTED: self._on_evicted,
            Kind.RESPEED: self._on_respeed,
            Kind.QUEUED_AGAIN: self._on_queued_again,
            Kind.INTERRUPTED: self._on_interrupted,
            Kind.PROGRESSED: self._on_progressed,
            **dict.fromkeys((Kind.WOKE, Kind.WAKE_AT, Kind.REFUSED), lambda row: None),
        }

    def _expect(self, kind: int) -> None:
        if self._to_queue_again is not None and kind != Kind.QUEUED_AGAIN:
            self._find("retry", f"job {self._to_queue_again} has retries left and was not queued again")
            self._to_queue_again = None
        if self._interrupted is not None and kind != Kind.EVICTED:
            self._find("evict", f"job {self._interrupted} was interrupted and not queued again")
            self._interrupted = None

    def _find_open(self) -> None:
        for job, life in self._lives.items():
            if not life.lease and self._limits is not None and self._limits.waits_for_ever(self._now, life.job):
                continue
            self._find("end", f"job {job} {'runs' if life.lease else 'waits'} at the end of the tape")
        for job in range(len(self._jobs)):
            if not self._arrived[job]:
                self._find("end", f"job {job} of the workload never arrived")

    def _end_instant(self) -> None:
        for node in self._emptied:
            for job in sorted(self._books.on_node[node]):
                self._find("evict", f"job {job} still runs on node {node}, which went down")
        self._emptied.clear()
        if self._preemption is not None:
            self._find_unlawful(self._preemption.end_instant(self._now))
        if self._shared:
            for life in self._lives.values():
                if life.lease and life.job.shared and life.placement[0] in self._shared:
                    self._check_speed(life)
            self._shared.clear()

    # --- arrivals and ends ------------------------------------------------------------------------------------

    def _on_arrived(self, row: list[int]) -> None:
        job = row[2]
        if not 0 <= job < len(self._jobs):
            self._find("arrival", f"job {job} is not in the workload of {len(self._jobs)}")
            return
        if self._arrived[job]:
            self._find("arrival", f"job {job} arrives a second time")
        if row[0] < self._jobs[job].submit:
            self._find("arrival", f"job {job} arrives before it is submitted at {self._jobs[job].submit} ns")
        self._find_all(self._entrance.arrive(row[0], self._jobs[job]))
        self._arrived[job] = 1
        self._lives[job] = Life(self._jobs[job])
        self._alive[job] = self._jobs[job]
        if self._limits is not None:
            self._limits.arrive(self._jobs[job])

    def _on_ended(self, row: list[int]) -> None:
        now, kind, job = row[:3]
        life = self._lives.get(job)
        if life is None:
            self._find("end", f"job {job} ends but neither waits nor runs")
            return
        self._find_all(wrong_end(life, row, self._completions if self._punctual else None))
        self._stop(now, life)
        life.attempt += kind == Kind.FAILED
        if kind == Kind.FAILED and life.attempt <= life.job.retries:
            life.done = life.saved = life.debt = 0
            self._to_queue_again = job
        else:
            self._end(now, life, kind)

    def _end(self, now: int, life: Life, kind: int) -> None:
        del self._lives[life.job.id]
        del self._alive[life.job.id]
        self._entrance.end(now, life.job.id, kind)
        if self._limits is not None:
            self._limits.leave(life.job)

    def _on_queued_again(self, row: list[int]) -> None:
        expected, self._to_queue_again = self._to_queue_again, None
        life = self._lives.get(row[2])
        if expected != row[2] or life is None or life.attempt != row[6]:
            self._find("retry", f"job {row[2]} is queued again as attempt {row[6]} without a failure before it")

    def _on_stale(self, row: list[int]) -> None:
        life = self._lives.get(row[2])
        if life is not None and life.lease == row[3] and (row[3] or row[6] == Kind.CANCELLED):
            self._find("lease", f"job {row[2]}: an event under its live lease {row[3]} is recorded as stale")

    # --- starting and stopping --------------------------------------------------------------------------------

    def _settle(self, rows: list[list[int]]) -> None:
        if rows[0][1] == _REALLOCATE:
            self._regranted(rows)
            return
        now, kind, job, lease, _, _, speed = rows[0]
        verb = "starts" if kind == _START else "moves"
        life = self._lives.get(job)
        if lease <= self._lease:
            self._find("lease", f"job {job} {verb} under lease {lease}, not above the last one, {self._lease}")
        self._lease = max(self._lease, lease)
        if life is None or bool(life.lease) != (kind == _MIGRATE):
            self._find(
                "start",
                f"job {job} {verb} but "
                f"{'neither waits nor runs' if life is None else 'runs' if life.lease else 'does not run'}",
            )
            if life is None:
                return
        if kind == _MIGRATE and not life.job.preemptible:
            self._find("preempt", f"job {job} moves but is not preemptible")
        owed = life.debt
        if life.lease:
            owed = max(0, life.base - max(now, life.writing)) + self._costs.of_migration(life.job)
            life.settle(now)
            life.saved = life.done
            self._stop(now, life)
        paid = sum(row[6] for row in rows if row[1] == _COST)
        if paid != owed:
            self._find("cost", f"job {job} {verb} and stands still for {paid} ns, it owes {owed}")
        life.lease, life.base, life.speed, life.debt, life.changed = lease, now + paid, speed, 0, now
        life.since = now
        life.writing = 0
        life.placement = placement_of(rows)
        life.grant = grant_of(rows) or (life.asked if kind == _START else life.grant)
        self._find_all(self._books.wrong_place(life.job, life.placement), f"job {job} {verb}: ")
        self._find_all(self._books.take(life), f"job {job} {verb}: ")
        self._entrance.start(now, job)
        if self._preemption is not None and kind == _START:
            self._find_unlawful(self._preemption.start(now, job))
        if kind == _START and (over := self._books.over_quota(life.job)) is not None:
            self._find("quota", f"job {job} starts: {over}")
        if self._reserved is not None:
            for broken in self._reserved.start(now, life, owed, life.placement, moved=kind == _MIGRATE):
                self._find("reservation", f"job {job} {verb}: {broken}")
        if self._limits is not None:
            for exceeded in self._limits.start(
                now, life.job, (node for node, _ in life.placement), moved=kind == _MIGRATE
            ):
                self._find("limit", f"job {job} starts: {exceeded}")
        self._check_speed(life)
        self._touch(life)

    def _regranted(self, rows: list[list[int]]) -> None:
        now, speed = rows[0][0], rows[0][6]
        life, grant = self._running(rows[0], "is reallocated"), grant_of(rows)
        if life is None or grant is None:
            self._find("grant", f"job {rows[0][2]} is reallocated, but no GRANT row follows")
            return
        self._find_all(self._books.regrant(life, grant), f"job {life.job.id} is reallocated: ")
        paid = sum(row[6] for row in rows if row[1] == _PAUSE)
        owed = 0 if life.changed == now else self._costs.reallocation
        life.changed = now
        if paid != owed:
            self._find("cost", f"job {life.job.id} stands still for {paid} ns, it owes {owed}")
        if speed != life.speed or paid:
            life.settle(now, paid)
            life.speed = speed
        self._check_speed(life)

    def _stop(self, now: int, life: Life) -> None:
        if life.lease:
            self._books.give(life)
            if self._limits is not None:
                self._limits.stop(now, life.job)
            if self._preemption is not None:
                self._preemption.stop(life.job.id)
            life.lease = 0
            self._touch(life)

    def _touch(self, life: Life) -> None:
        if self._speed.sharing_costs and life.job.shared and life.placement:
            self._shared.add(life.placement[0])

    def _check_speed(self, life: Life) -> None:
        job = life.job
        if any(node >= len(self._books.on_node) for node, _ in life.placement):
            return
        beside = self._books.beside(life, self._lives) if job.shared else (0, ())
        speed = self._speed.of(job, life.placement, life.grant, *beside)
        if speed != life.speed:
            self._find("speed", f"job {job.id} runs at {life.speed} ppm, the model says {speed}")

    def _on_preempt(self, row: list[int]) -> None:
        life = self._running(row, "is preempted")
        if life is None:
            return
        if not life.job.preemptible:
            self._find("preempt", f"job {row[2]} is preempted but is not preemptible")
        life.settle(row[0])
        if life.done != row[6]:
            self._find("service", f"job {row[2]} was delivered {life.done} ns of work, the tape says {row[6]}")
        self._stop(row[0], life)
        life.saved = life.done
        life.debt = self._costs.of_preemption(life.job)

    def _on_stopped_for_another(self, row: list[int]) -> None:
        life = self._running(row, "is preempted")
        if life is None or self._preemption is None:
            self._find("preempt", f"job {row[2]} is preempted, and the cluster declares no preemption")
            return
        now, kind, job, _, _, _, value = row
        if not life.job.preemptible:
            self._find("preempt", f"job {job} is preempted but is not preemptible")
        self._find_unlawful(self._preemption.row(row, life.job, life.since, life.placement))
        if kind == Kind.WARN:
            return
        life.settle(now)
        if life.done != value:
            self._find("service", f"job {job} was delivered {life.done} ns of work, the tape says {value}")
        self._stop(now, life)
        life.done = life.saved = life.debt = 0
        if kind == Kind.KILL:
            self._end(row[0], life, kind)

    def _find_unlawful(self, texts: Iterable[str]) -> None:
        self._find_all(("preempt", text) for text in texts)

    def _on_evicted(self, row: list[int]) -> None:
        life = self._running(row, "is evicted")
        if life is None:
            return
        node, lost, kept = row[4:]
        was_interrupted, self._interrupted = self._interrupted == row[2], None
        gone = was_interrupted or node in self._emptied
        if not gone or row[2] not in self._books.on_node[node]:
            self._find("evict", f"job {row[2]} is evicted from node {node}, which did not go down or where it is not")
        life.settle(row[0])
        expected = life.lost_to_failure(row[0]) if self._failed_node else 0
        if kept != life.done - expected or lost != expected:
            self._find(
                "service", f"job {row[2]} keeps {kept} and loses {lost} ns of {life.done}, of which {expected} are lost"
            )
        self._stop(row[0], life)
        life.done = life.done - expected
        life.saved = life.saved if self._failed_node else life.done
        after_failure = life.job.restore if life.done else 0
        life.debt = after_failure if self._failed_node else self._costs.of_preemption(life.job)

    def _on_interrupted(self, row: list[int]) -> None:
        if self._running(row, "is interrupted") is not None:
            self._interrupted = row[2]
            self._failed_node = not row[6]

    def _on_progressed(self, row: list[int]) -> None:
        life = self._lives.get(row[2])
        if life is None or life.lease != row[3]:
            self._find("lease", f"job {row[2]} progresses under lease {row[3]}, which is not its live one")

    def _on_respeed(self, row: list[int]) -> None:
        life = self._running(row, "changes speed")
        if life is not None:
            life.settle(row[0])
            life.speed = row[6]
            self._touch(life)

    def _running(self, row: list[int], verb: str) -> Life | None:
        life = self._lives.get(row[2])
        if life is None or not life.lease:
            self._find("start", f"job {row[2]} {verb} but does not run")
            return None
        if life.lease != row[3]:
            self._find("lease", f"job {row[2]} {verb} under lease {row[3]}, its live one is {life.lease}")
        return life

    # --- nodes ------------------------------------------------------------------------------------------------

    def _on_node(self, row: list[int]) -> None:
        _, kind, node, _, _, _, value = row
        if not 0 <= node < len(self._books.on_node):
            self._find("node", f"node {node} does not exist")
            return
        self._failed_node = kind == Kind.NODE_FAILED
        if kind == Kind.NODE_RECOVERED:
            self._books.closed.discard(node)
            return
        self._books.closed.add(node)
        if kind == Kind.NODE_FAILED or value:
            self._emptied.add(node)
