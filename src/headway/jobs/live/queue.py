"""The queue: one loop that holds state, policy and scheduler, and has programs run by an engine.

Whatever happens (a submission, the end of a program, a time that the policy asked for) is decided about in a turn: the
rows of all that was decided are written to the store, and only then is any of it carried out. There are no threads.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from headway.core.clock import RunClock
from headway.core.scheduler import Scheduler
from headway.errors import QueueError
from headway.gpu.share.shim.launch import HIGHEST, LOWEST, USUAL
from headway.jobs.live import reasons
from headway.jobs.live.cluster import LiveCluster
from headway.jobs.live.engine import Engine, Order, Site
from headway.jobs.live.messages import Submit
from headway.jobs.live.store import Past, Program, Store
from headway.jobs.model.actions import Action
from headway.jobs.model.events import Event, NodeDrained, NodeRecovered
from headway.jobs.model.job import Job, broken_rule
from headway.jobs.model.rows import Kind
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.state.never_feasible import infeasible
from headway.jobs.state.state import TrainingState
from headway.units import DAY, HOUR, WHOLE_GPU_MILLI, counted

MEASURE_S = 2.0
"""How often programs are asked how far they are."""
LONGEST_NAME = 80
MOST_WORDS = 100_000


@dataclass(frozen=True, slots=True)
class Rules:
    """What a queue assumes of jobs that do not say it."""

    estimate: int = HOUR
    """Run time, in nanoseconds."""
    cpu_milli_per_gpu: int = 1000
    """CPUs that go with a GPU, in thousandths."""
    partition: str = ""
    """Where jobs run whose users do not say it."""
    least_cpu_milli: int = 0
    """What every job has at least."""


class LiveQueue:
    """Takes jobs, and has them run as its policy decides."""

    def __init__(
        self,
        state: TrainingState,
        policy: ComposedPolicy,
        store: Store,
        engine: Engine,
        clock: RunClock,
        *,
        past: Past | None = None,
        site: Site | None = None,
        rules: Rules = Rules(),  # noqa: B008 - it is frozen
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``state`` and ``policy`` are as the run that is taken up, ``past``, has left them.

        ``site``: where the engine runs jobs beside those of others.
        """
        self.state, self.policy, self.store, self._engine = state, policy, store, engine
        self._clock, self._rules, self._log, self._site = clock, rules, log, site
        last = int(past.tape.column("time")[-1]) if past is not None and len(past.tape) else -1
        self.cluster = LiveCluster(state, clock, engine, log, last=last)
        self.scheduler = Scheduler[Event, Action](state, policy, self.cluster, store.journal, exact=False)
        self.jobs: list[Job] = list(past.jobs) if past is not None else []
        self.programs: list[Program] = list(past.programs) if past is not None else []
        self._names = {job.name for job in self.jobs}
        self.failure = ""
        """Why nothing is decided at the moment; empty: it is."""
        self.broken = False
        """Whether the policy failed, or another queue is in the way: the queue ends, and its programs go on."""
        self.draining = self.killing = False
        """Whether it takes no more jobs; whether it ends its programs too."""
        self._measured = monotonic()
        self._ended: list[int] = []
        """Leases whose ends are about to be written down."""
        if past is not None:
            self._take_up(past)

    def _take_up(self, past: Past) -> None:
        """Go on where an earlier queue was killed or stopped."""
        kind = past.tape.column("kind")
        arrived = set(past.tape.of(int(Kind.ARRIVED))[:, 2].tolist())
        for job in self.jobs:
            if job.id not in arrived:  # it was written down, and the queue killed before it arrived
                self.cluster.arrive(job)
        last = int(past.tape.column("time")[-1]) if len(kind) else -1
        for wake in past.tape.column("value")[kind == int(Kind.WAKE_AT)].tolist():
            if wake > last:
                self.cluster.wake_at(wake)
        left = [lease.order for lease in past.leases if not lease.gone]
        self.cluster.resume(left, time.time())
        if left:
            self._log(f"taken up: {counted(len(left), 'lease')} of before")
        for node in range(len(self.state.cluster.nodes)) if self._site is None else ():
            if not self.state.pool.schedulable >> node & 1:
                self.cluster.happen(NodeRecovered(node))

    # --- what clients ask -------------------------------------------------------------------------------------

    def submit(self, asked: Submit) -> int:
        """Take a job and return its number; QueueError where it can never run, or cannot be written down."""
        if self.failure:
            raise QueueError(self.failure)
        if self.draining:
            raise QueueError("the queue is stopping: submit it when it runs again")
        number = self.take(asked, _program(asked))
        self.turn()
        return number

    def take(self, asked: Submit, program: Program) -> int:
        """Write a job down, and let it arrive; return its number."""
        if not self.jobs and self.cluster.untouched:  # the run begins with its first job
            self._clock.restart()
            self.store.begin_now()
        job = self._job(asked)
        if (rule := broken_rule(job)) is not None:
            raise QueueError(f"the job cannot be taken: {rule}")
        if refused := infeasible(self.state.cluster, (job,), self.policy.placement.place):
            raise QueueError(f"the job can never run here: {refused[0].reason}")
        self._write(job, program)
        self._names.add(job.name)
        self.cluster.arrive(job)
        return job.id

    def _write(self, job: Job, program: Program) -> None:
        """Write a job down, once those know of it who run it."""
        site = self._site if self._site is not None and not program.external else None
        if site is not None:
            program = site.enlist(job, program)
        try:
            self.store.submit(job, program)
        except QueueError:
            if site is not None:
                site.dismiss(program)
            raise
        self.jobs.append(job)
        self.programs.append(program)

    def _job(self, asked: Submit) -> Job:
        number = len(self.jobs)
        name = asked.name or f"job-{number}"
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise QueueError(f"--name {name[:LONGEST_NAME]!r}: at most {LONGEST_NAME} letters, and all of them visible")
        estimate = asked.estimate or self._rules.estimate
        if asked.model and asked.model not in self.state.speed.profiles:
            known = "start the queue with --profiles FILE and a policy that divides CPUs, like las+round(1m)+tune"
            raise QueueError(f"--profile {asked.model}: the queue has no such profile: {known}")
        if asked.gpu_milli != WHOLE_GPU_MILLI and self._site is not None:
            raise QueueError(f"{asked.gpu_milli / WHOLE_GPU_MILLI:g} of a GPU: jobs on Slurm have whole GPUs")
        width = asked.gpus * asked.gpu_milli
        share = width * self._rules.cpu_milli_per_gpu // WHOLE_GPU_MILLI if asked.gpus else 1000
        return Job(
            number,
            self._clock(),
            estimate,
            asked.gpus,
            asked.gpu_milli,
            name=name if name not in self._names else f"{name}-{number}",
            tenant=asked.tenant or "default",
            user=asked.user,
            qos=asked.qos,
            gpu_types=asked.gpu_types,
            partition=asked.partition or self._rules.partition,
            nodes=asked.nodes or (1 if asked.gpus else 0),
            cpu_milli=max(self._rules.least_cpu_milli, asked.cpus * 1000 if asked.cpus >= 0 else share),
            memory_bytes=asked.memory_bytes,
            estimate=estimate,
            priority=asked.priority,
            preemptible=asked.preemptible,
            checkpoint_every=100 * 365 * DAY,
            retries=asked.retries,
            model=asked.model,
            open_end=True,
        )

    def cancel(self, job: int, *, at_once: bool = False) -> str:
        """End a job; return what it was doing. QueueError where there is none, or it has ended."""
        if not 0 <= job < len(self.jobs):
            raise QueueError(f"job {job}: there is no such job: headway queue list shows them")
        was = "ran" if job in self.state.running else "waited"
        leases = [each.order.lease for each in self.cluster.holdings if each.order.job == job]
        if not self.cluster.cancel(job) and not (leases and at_once):
            raise QueueError(f"job {job} has ended already: headway queue show {job} tells how")
        self.turn()
        for lease in leases if at_once else ():
            self._engine.stop(lease, at_once=True)
        if self.failure:
            raise QueueError(f"job {job} is ended as soon as that can be written down: {self.failure}")
        return was

    def status(self) -> dict[str, Any]:
        """Return what is going on, in numbers."""
        running = len(self.state.running)
        return {
            "policy": self.policy.name,
            "gpus": self.state.cluster.gpus,
            "failure": self.failure,
            "draining": self.draining,
            "run": self.store.run,
            "jobs": len(self.jobs),
            "waiting": len(self.state.jobs) - running,
            "running": running,
            "ending": sum(each.leaving for each in self.cluster.holdings),
            "uptime_s": self._clock() / 1e9,
            **({"slurm": self._site.status()} if self._site is not None else {}),
        }

    # --- the loop ---------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Decide about all that has happened, write it down, and carry it out."""
        if self.broken or self._lost() or not self._written() or not self._looked():
            return
        self.cluster.collect()
        if monotonic() - self._measured > MEASURE_S:
            self._measured = monotonic()
            self.cluster.measure()
        try:
            self.scheduler.drain()
            self._note_decisions()
        except Exception as problem:  # noqa: BLE001 - a mistake of a policy; half of an instant is never written down
            failed = f"the policy {self.policy.name} failed: {type(problem).__name__}: {problem}"
            self.failure = f"{failed}; programs go on: start the queue again when the policy is mended"
            self.broken = True
            self._log(self.failure)
            return
        if self._written():
            self.cluster.carry_out()

    def _lost(self) -> bool:
        """Return whether the store was deleted under the queue: it ends, as when it is stopped."""
        if self.store.gone:
            left = "programs that run go on" + ("; what waits in Slurm stays held there" if self._site else "")
            self.failure, self.broken = f"{self.store.path} is gone: the queue ends, {left}", True
            self._log(self.failure)
        return self.broken

    def _looked(self) -> bool:
        """Look at what others did; return whether the queue may go on."""
        try:
            if self._site is not None:
                self._site.look(self)
        except QueueError as problem:
            self.failure, self.broken = str(problem), True
            self._log(self.failure)
        return not self.broken

    def _note_decisions(self) -> None:
        """Log each decision with its reason, and have starts and ends of leases written down."""
        cluster, told = self.cluster, {}
        for what, job, why in reasons.lines(self._clock(), self.state, self.policy, cluster.actions):
            told[job] = why
            self._log(f"{what} job {job} ({self.jobs[job].name}): {why}")
        for ended, order in cluster.gone:
            self._log(f"lease {ended.lease} of job {order.job} is gone: {ended.told()}")
        for order in cluster.ordered:
            self._log(f"lease {order.lease} of job {order.job}{self._where(order)}")
        gone = [each for each, _ in cluster.gone]
        self.store.note([(each, told.get(each.job, "")) for each in cluster.ordered], gone)
        self._ended += [each.lease for each in gone]
        cluster.actions, cluster.ordered, cluster.gone = [], [], []

    def _where(self, order: Order) -> str:
        """Return where a job goes, as far as its engine can say: GPUs of this machine, or nodes of a site."""
        if self._site is None:
            return f" on GPUs {','.join(map(str, order.gpus))}" if order.gpus else ""
        nodes = [(self.state.cluster.nodes[node].name, mask.bit_count()) for node, mask in order.placement]
        parts = [f"{name} ({counted(gpus, 'GPU')})" for name, gpus in nodes]
        return f" on {', '.join(parts)}" if parts else ""

    def _written(self) -> bool:
        """Write down what is not; return whether nothing is left to write."""
        try:
            self.store.commit()
        except QueueError as problem:
            if not self.failure:
                self._log(str(problem))
            self.failure = str(problem)
            return False
        if self.failure:
            self._log("the store can be written again: deciding goes on")
        self.failure = ""
        for lease in self._ended:
            self._engine.forget(lease)
        self._ended = []
        return True

    def stop(self, *, kill: bool, at_once: bool = False) -> None:
        """Take no more jobs; with ``kill`` start none and end all programs, whose jobs wait for the next queue."""
        self.draining, self.killing = True, kill and bool(self.jobs)
        if self.killing:
            for node in range(len(self.state.cluster.nodes)):
                if self.state.pool.schedulable >> node & 1:
                    self.cluster.happen(NodeDrained(node))
            self.turn()
            self.cluster.stop_all(at_once=at_once)

    @property
    def over(self) -> bool:
        """Return whether a queue that is to end can: at once, or when its programs are gone where it ends them."""
        return self.broken or (self.draining and (self.idle or not self.killing))

    @property
    def idle(self) -> bool:
        """Return whether no program is there, nothing is to be decided about, and all is written down."""
        return not (len(self.cluster.holdings) or self.cluster.has_news or self.store.pending)

    @property
    def wait_s(self) -> float | None:
        """Return how long until the policy wants to be asked; None where it did not say."""
        due = self.cluster.due
        return None if due is None else max(0.0, (due - self._clock()) / 1e9)


def _program(asked: Submit) -> Program:
    if not asked.command or not asked.command[0] or len(asked.command) > MOST_WORDS:
        raise QueueError("no program is given: headway queue submit -- python train.py")
    words = (*asked.command, asked.folder, *asked.environment, *asked.environment.values())
    if any("\0" in word for word in words):
        raise QueueError("a program's arguments, folder and environment have no zero bytes")
    if not 0 <= asked.grace_s <= 7 * 86400:
        raise QueueError(f"--grace {asked.grace_s:g}s: from 0 to a week")
    first = min(LOWEST, max(HIGHEST, USUAL - asked.priority))
    return Program(asked.command, asked.folder, asked.environment, asked.grace_s, share_priority=first)
