"""One job with periodic checkpoints, nanosecond by nanosecond: preempted, moved, thrown back by failed nodes, slowed
down by a neighbour and given other CPUs at drawn times. The engine, the audit and the metrics say the same."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings, strategies as st

from headway.core.scheduler import act, happen
from headway.core.tape import Tape, TapeWriter
from headway.jobs.audit.audit import audit
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.timeline import effective
from headway.jobs.model.actions import Action, MigrateJob, PreemptJob, ReallocateJob, StartJob, WakeAt
from headway.jobs.model.cluster import Cluster, Node
from headway.jobs.model.events import JobFinished, NodeFailed, NodeRecovered
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Grant
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.registry import build
from headway.jobs.show.story.story import _JOB_KINDS
from headway.jobs.show.story.stretches import Running, Timeline
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.state.state import TrainingState

SPEEDS = {"slow": 400_000, "fast": 2_300_000}
CLUSTER = Cluster(
    (Node("slow", 1, "slow", 4000), Node("fast", 1, "fast", 4000)),
    gpu_speed_ppm=SPEEDS,
)
PENALTY_PPM = 500_000
VERBS = ("stop", "move", "fail", "neighbour", "grant")


@dataclass(frozen=True)
class Case:
    """A job and the events that happen to it, with their times."""

    job: Job
    script: tuple[tuple[int, str], ...]
    pause: int


@dataclass
class Ticked:
    """The job by the plainest means: one nanosecond after the other."""

    job: Job
    pause: int
    node: int = 0
    runs: bool = False
    beside: bool = False
    done: int = 0
    """At the last change."""
    spent: int = 0
    """Nanoseconds of progress since."""
    write: int = 0
    """What is left to write."""
    still: int = 0
    saved: int = 0
    debt: int = 0
    wrote: int = 0
    stood: int = 0
    delivered: int = 0
    """Parts per million of nanoseconds of work, as GPUs at reference speed would count them."""
    kept: list[int] = field(default_factory=list)

    @property
    def speed(self) -> int:
        pace = list(SPEEDS.values())[self.node]
        return pace * (1_000_000 - PENALTY_PPM * 500 // 1000) // 1_000_000 if self.beside else pace

    @property
    def work(self) -> int:
        return self.done + self.spent * self.speed // 1_000_000

    def settle(self) -> None:
        self.done, self.spent = self.work, 0

    def tick(self) -> None:
        """One nanosecond goes by."""
        if not self.runs:
            return
        if self.write:
            self.write -= 1
            self.wrote += 1
            if not self.write:
                self.saved = max(self.saved, self.work // self.job.checkpoint_every * self.job.checkpoint_every)
        elif self.still:
            self.still -= 1
            self.stood += 1
        else:
            before = self.work
            self.spent += 1
            self.delivered += 500 * self.speed
            if self.work // self.job.checkpoint_every > before // self.job.checkpoint_every:
                self.write = self.job.checkpoint

    def start(self) -> None:
        self.runs, self.still, self.debt = True, self.debt, 0

    def stop(self) -> None:
        self.settle()
        self.saved, self.runs, self.write = self.done, False, 0
        self.debt = self.job.checkpoint + self.job.restore
        self.kept.append(self.done)

    def fail(self) -> None:
        self.beside = False
        if not self.runs:
            return
        self.done, self.spent, self.runs, self.write = self.saved, 0, False, 0
        self.debt = self.job.restore if self.done else 0
        self.kept.append(self.done)

    def move(self) -> None:
        self.settle()
        self.saved, self.write, self.node = self.done, 0, 1 - self.node
        self.still += self.job.checkpoint + self.job.restore

    def hindered(self, beside: bool) -> None:
        self.settle()
        self.beside = beside

    def change(self) -> None:
        if self.pause:
            self.settle()
            self.still += self.pause


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw any events that may happen to a job within some hundred nanoseconds."""
    job = Job(
        *(0, 0, draw(st.integers(1, 60)), 1, 500),
        cpu_milli=1000,
        checkpoint=draw(st.integers(1, 6)),
        restore=draw(st.integers(0, 4)),
        checkpoint_every=draw(st.integers(3, 25)),
    )
    times = draw(st.lists(st.integers(1, 120), unique=True, max_size=8).map(sorted))
    return Case(job, tuple((time, draw(st.sampled_from(VERBS))) for time in times), draw(st.integers(0, 3)))


def ticked(case: Case) -> tuple[int, Ticked, list[int]]:
    """When the job ends, how it stood then, and its work after each of the script's times."""
    job, script, seen, now = Ticked(case.job, case.pause), dict(case.script), [], 0
    job.start()
    while job.work < case.job.work:
        ran, verb = job.runs, script.get(now)
        if verb == "fail":
            job.fail()
        if not ran and (verb or now > max(script)):
            if verb != "fail":
                job.start()
        elif verb == "stop":
            job.stop()
        elif verb == "move" and not job.beside:
            job.move()
        elif verb == "neighbour":
            job.hindered(not job.beside)
        elif verb == "grant":
            job.change()
        if verb:
            seen.append(job.work)
        job.tick()
        now += 1
    return now, job, seen


class Played:
    """The same by the state and the executor."""

    def __init__(self, case: Case) -> None:
        self.jobs = (case.job, Job(1, 0, 10**9, 1, 500, checkpoint=2, checkpoint_every=5))
        self.speed, self.costs = (
            SpeedModel(CLUSTER, sharing_penalty_ppm=PENALTY_PPM),
            Costs(reallocation=case.pause),
        )
        policy = build("fifo")
        self.state = TrainingState(CLUSTER, to_come=2, arrangement=policy, speed=self.speed, costs=self.costs)
        policy.bind(self.state)
        writer = TapeWriter()
        self.state.journal = writer.append
        self.executor = SimulatedCluster(self.jobs, self.state)
        self.script = dict(case.script)
        self.seen: list[int] = []
        self.where, self.cpus, self.now = 0, 1000, 0
        self.play()
        self.tape = writer.close()

    def play(self) -> None:
        """To the end of the job."""
        failures = [time for time, verb in self.script.items() if verb == "fail"]
        nodes = [event(node) for event in (NodeFailed, NodeRecovered) for node in (0, 1)]
        coming = [(time, event) for time in failures for event in nodes]
        self.executor.replace_faults(None, coming, cancel=lambda _: False)
        for time in (*self.script, max(self.script, default=0) + 1):
            self.executor.execute(0, WakeAt(time))
        while (happened := self.executor.next()) is not None:
            self.now, events = happened
            ran = 0 in self.state.running
            for event in events:
                happen(self.state, self.executor, self.now, event)
            if any(isinstance(event, JobFinished) for event in events):
                return
            verb = self.script.get(self.now, "")
            for action in self.decide(verb, ran=ran):
                assert act(self.state, self.executor, self.now, action) is None, action
            if verb:
                self.seen.append(self.state.jobs[0].done_at(self.now))
        raise AssertionError("the job never ends")

    def decide(self, verb: str, *, ran: bool) -> Iterator[Action]:
        beside, place = 1 in self.state.running, ((self.where, 1),)
        if verb == "fail":
            return
        if not ran and (verb or not self.now or self.now > max(self.script)):
            self.cpus = 1000
            yield StartJob(0, place)
        elif verb == "stop":
            yield PreemptJob(0)
        elif verb == "move" and not beside:
            self.where = 1 - self.where
            yield MigrateJob(0, ((self.where, 1),))
        elif verb == "neighbour":
            yield PreemptJob(1) if beside else StartJob(1, place)
        elif verb == "grant":
            self.cpus = 3000 - self.cpus
            yield ReallocateJob(0, Grant(self.cpus, 0))


@settings(max_examples=400, deadline=None)
@given(cases())
def test_a_job_with_checkpoints_goes_on_as_if_every_nanosecond_were_played(case: Case) -> None:
    end, job, seen = ticked(case)
    played = Played(case)
    assert (played.now, played.seen) == (end, seen)
    tape = played.tape
    kept = [row.value for row in tape if row.kind in (Kind.PREEMPT, Kind.EVICTED) and row.subject == 0]
    assert kept == job.kept

    assert audit(CLUSTER, played.jobs, tape, speed=played.speed, costs=played.costs) == []
    ledger = Ledger(tape, played.jobs, CLUSTER)
    mine = ledger.hold_job == 0
    assert int(ledger.writing[mine].sum()) == job.wrote
    assert int((ledger.standstill - ledger.writing)[mine].sum()) == job.stood
    assert sum(run.writing for run in runs_of(tape, case.job)) == job.wrote


def runs_of(tape: Tape, job: Job) -> list[Running]:
    """The runs that the story of a job tells."""
    life = Timeline(CLUSTER, (job,), job)
    for row in tape:
        if row.subject == job.id and row.kind in _JOB_KINDS:
            life.add(row)
    return life.close(tape.rows[-1, 0])[0]


@settings(max_examples=100, deadline=None)
@given(cases())
def test_gpus_at_reference_speed_stand_still_while_a_checkpoint_is_written(case: Case) -> None:
    alone = replace(case, script=tuple((time, verb) for time, verb in case.script if verb != "neighbour"))
    end, job, _ = ticked(alone)
    series = effective(Ledger(Played(alone).tape, (case.job, Played(alone).jobs[1]), CLUSTER))
    lasted = np.diff(np.append(series.times, end))
    assert int((series.values * lasted).sum()) == job.delivered
