"""Preemption by the rules of drawn sites, against an oracle that knows nothing of policies: only rows and rules."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hypothesis import given, settings, strategies as st

from headway.core.tape import TapeRow
from headway.jobs.audit.audit import audit
from headway.jobs.audit.replay import replay
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.summary import of_ledger
from headway.jobs.model.cluster import Partition, Qos, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.registry import build
from headway.jobs.rules.preemption.preemption import Mode, Preemption
from headway.jobs.show.story.story import story
from headway.units import SECOND
from tests.drive import World, drive

POLICIES = (
    "fifo",
    "fifo+fit",
    "sjf+easy",
    "srtf",
    "multifactor(age_weight=1000,fairshare_weight=0,qos_weight=500)+conservative(depth=50,interval=30s)+first-fit",
)
NAMES = ("a", "b", "c", "d")
_STOPS = {Kind.REQUEUE: Mode.REQUEUE, Kind.KILL: Mode.CANCEL}


@st.composite
def sites(draw: st.DrawFn, *, grace: bool = True, exempt: bool = True) -> World:
    """A few nodes, four QOSs or partitions of which some preempt others, and a dozen jobs."""
    nodes, gpus = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    by = draw(st.sampled_from(["qos", "partition"]))
    seconds = st.sampled_from([0, 0, 7, 30])
    modes = st.sampled_from([None, None, Mode.REQUEUE, Mode.REQUEUE, Mode.CANCEL, Mode.OFF])
    qos, partitions = [], []
    for place, name in enumerate(NAMES):
        terms = draw(modes), draw(seconds) * SECOND if grace else 0
        below = draw(st.lists(st.sampled_from(NAMES[:place]), unique=True, min_size=1)) if place else []
        own = draw(st.none() | seconds) if exempt else None
        qos.append(Qos(name, draw(st.integers(0, 3)), tuple(below), *terms, None if own is None else own * SECOND))
        where = (
            draw(st.lists(st.integers(0, nodes - 1), unique=True, min_size=1)) if by == "partition" else range(nodes)
        )
        partitions.append(Partition(name, tuple(sorted(where)), 0, draw(st.integers(1, 3)), *terms))
    rules = Preemption(
        by,
        draw(st.sampled_from([Mode.REQUEUE, Mode.CANCEL])),
        draw(seconds) * SECOND if exempt else 0,
        draw(st.sampled_from([0, 5, 120])) * SECOND,
        draw(st.booleans()),
    )
    jobs = [
        Job(
            0,
            draw(st.integers(0, 40)) * SECOND,
            draw(st.integers(5, 90)) * SECOND,
            draw(st.integers(1, gpus)),
            qos=draw(st.sampled_from(NAMES)),
            partition=draw(st.sampled_from(NAMES)) if by == "partition" else "",
            preemptible=draw(st.sampled_from([True, True, True, False])),
        )
        for _ in range(draw(st.integers(4, 14)))
    ]
    cluster = uniform(nodes, gpus, partitions=tuple(partitions) if by == "partition" else ())
    return World(replace(cluster, qos=tuple(qos), preemption=rules), workload(jobs))


@dataclass
class Oracle:
    """Who may stop whom, in as few words as possible."""

    world: World

    @property
    def rules(self) -> Preemption:
        """The rules of the cluster."""
        assert self.world.cluster.preemption is not None
        return self.world.cluster.preemption

    def row_of(self, job: Job) -> Qos | Partition:
        """Return the QOS or partition that says how a job is preempted."""
        rows = self.world.cluster.qos if self.rules.by == "qos" else self.world.cluster.partitions
        return next(each for each in rows if each.name == (job.qos if self.rules.by == "qos" else job.partition))

    def may(self, job: Job, victim: Job) -> bool:
        """Return whether one may preempt the other."""
        one, other = self.row_of(job), self.row_of(victim)
        lower = other.name in one.preempts if isinstance(one, Qos) else other.tier < one.tier  # type: ignore[union-attr]
        return lower and self.mode(victim) is not Mode.OFF and victim.preemptible

    def mode(self, victim: Job) -> Mode:
        """Return what becomes of a victim."""
        return self.row_of(victim).preempt_mode or self.rules.mode

    def exempt(self, victim: Job) -> int:
        """Return how long a job is exempt."""
        own = next(each for each in self.world.cluster.qos if each.name == victim.qos).exempt
        return self.rules.exempt if own is None else own


def instants(rows: list[TapeRow]) -> Iterator[list[TapeRow]]:
    """The rows of each instant."""
    found: list[TapeRow] = []
    for row in rows:
        if found and row.time != found[0].time:
            yield found
            found = []
        found.append(row)
    if found:
        yield found


@settings(max_examples=60, deadline=None)
@given(world=sites(), policy=st.sampled_from(POLICIES))
def test_victims_are_lawful_and_the_preemptor_starts_when_they_have_gone(world: World, policy: str) -> None:
    run, oracle = drive(policy, world), Oracle(world)
    started: dict[int, int] = {}
    notices: dict[int, tuple[int, int]] = {}
    again: dict[int, int] = {}
    for rows in instants([TapeRow(*row) for row in run.tape.rows.tolist()]):
        winners = set()
        for row in rows:
            if row.kind == Kind.START:
                assert row.time >= again.get(row.subject, 0)
                started[row.subject] = row.time
            elif row.kind in (Kind.REQUEUE, Kind.KILL, Kind.WARN):
                victim, by = world.jobs[row.subject], row.detail
                given_notice = notices.pop(row.subject, None)
                if given_notice is not None:
                    assert given_notice == (by, row.time)
                else:
                    assert oracle.may(world.jobs[by], victim)
                    assert row.time >= started[row.subject] + oracle.exempt(victim)
                if row.kind == Kind.WARN:
                    assert row.value - row.time == oracle.row_of(victim).grace > 0
                    notices[row.subject] = by, row.value
                else:
                    assert oracle.mode(victim) is _STOPS[Kind(row.kind)]
                    assert given_notice is not None or oracle.row_of(victim).grace == 0
                    again[row.subject] = row.time + oracle.rules.again_after
                    winners |= set() if given_notice else {by}
            elif row.kind in (Kind.FINISHED, Kind.PREEMPT):
                notices.pop(row.subject, None)
        for winner in winners - {by for by, _ in notices.values()}:
            assert started.get(winner) == rows[0].time, "others went for it"


@settings(max_examples=40, deadline=None)
@given(world=sites(grace=False, exempt=False), policy=st.sampled_from(("fifo+fit", "sjf+fit")))
def test_nobody_waits_who_could_preempt(world: World, policy: str) -> None:
    run, oracle = drive(policy, world), Oracle(world)
    cluster, live = world.cluster, {}
    partitions = {each.name: each.nodes for each in cluster.partitions}
    placed: dict[int, tuple[int, int]] = {}
    delayed: dict[int, int] = {}
    for rows in instants([TapeRow(*row) for row in run.tape.rows.tolist()]):
        now = rows[0].time
        for row in rows:
            if row.kind == Kind.ARRIVED:
                live[row.subject] = world.jobs[row.subject]
            elif row.kind == Kind.START:
                placed[row.subject] = row.place, row.time
            elif row.kind in (Kind.REQUEUE, Kind.KILL, Kind.FINISHED):
                del placed[row.subject]
                delayed[row.subject] = now + max(1, oracle.rules.again_after)  # no instant undoes its own actions
                if row.kind != Kind.REQUEUE:
                    del live[row.subject]
        for job in [job for name, job in live.items() if name not in placed and delayed.get(name, 0) <= now]:
            for node in partitions.get(job.partition, range(len(cluster.nodes))):
                here = {each: since for each, (place, since) in placed.items() if place == node}
                free = cluster.nodes[node].gpus - sum(live[each].gpus for each in here)
                could = [each for each, since in here.items() if since < now and oracle.may(job, live[each])]
                assert free + sum(live[each].gpus for each in could) < job.gpus, f"job {job.id} at {now}"


@settings(max_examples=60, deadline=None)
@given(world=sites(), policy=st.sampled_from(POLICIES))
def test_the_tape_is_sound_replays_and_every_job_is_counted_and_told(world: World, policy: str) -> None:
    run = drive(policy, world)
    assert audit(world.cluster, world.jobs, run.tape, complete=True) == []
    assert replay(world.cluster, world.jobs, run.tape, build(policy)).digest == run.tape.digest
    ledger = Ledger(run.tape, world.jobs, world.cluster)
    summary = of_ledger(ledger)
    assert summary.finished + summary.cancelled == len(world.jobs)
    assert summary.cancelled == len(run.rows(Kind.KILL))
    stopped = sum(len(run.rows(kind)) for kind in (Kind.REQUEUE, Kind.KILL, Kind.PREEMPT))
    assert summary.preemptions == stopped
    if stopped:
        job = next(row.subject for kind in (Kind.REQUEUE, Kind.KILL, Kind.PREEMPT) for row in run.rows(kind))
        told = story(world.cluster, world.jobs, run.tape, build(policy), job)
        assert told.waited == int(ledger.wait[job])
        assert "preempted" in "\n".join(told.all_lines())
