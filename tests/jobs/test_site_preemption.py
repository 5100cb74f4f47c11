"""Tiers, and the preemption that a cluster declares: who comes first, who is stopped for whom, when and how."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headway.core.tape import Tape, TapeRow, TapeWriter
from headway.errors import ExperimentError
from headway.jobs.ask.other_cluster import renewed, transferred
from headway.jobs.audit.audit import audit
from headway.jobs.explain.explain import why_waiting
from headway.jobs.metrics.jobs import job_table, lost_gpu_seconds
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.summary import of_ledger
from headway.jobs.model.actions import KillJob, RequeueJob, WarnJob
from headway.jobs.model.causes import CauseKind
from headway.jobs.model.cluster import Cluster, Partition, Qos, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import build
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.rules.preemption.preemption import Mode, Preemption
from headway.jobs.show.story.story import story
from headway.jobs.sim.resume import resume
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.drive import Run, World, drive, state_at

HIGH = Qos("high", 100, preempts=("low", "scavenger"))
LOW, SCAVENGER = Qos("low", 10), Qos("scavenger", 1)
NOW = Preemption(again_after=0)
SLURM = "multifactor(age_weight=1000,fairshare_weight=0,size_weight=0,qos_weight=0,partition_weight=0,period=1s)"
POLICIES = ("fifo", "fifo+fit", "fifo+easy", f"{SLURM}+conservative(depth=50,interval=30s)+first-fit")


def job(submit: float, work: float, gpus: int = 1, qos: str = "", **more: object) -> Job:
    """A job, times in seconds."""
    return replace(Job(0, round(submit * SECOND), round(work * SECOND), gpus, qos=qos), **more)  # type: ignore[arg-type]


def site(
    *qos: Qos,
    rules: Preemption | None = NOW,
    nodes: int = 1,
    gpus: int = 4,
    partitions: Sequence[Partition] = (),
    limits: Sequence[LimitRule] = (),
) -> Cluster:
    """A cluster with these rules."""
    plain = uniform(nodes, gpus, partitions=tuple(partitions), limits=tuple(limits))
    return replace(plain, qos=qos or (HIGH, LOW, SCAVENGER), preemption=rules)


def ran(cluster: Cluster, *jobs: Job, policy: str = "fifo+fit") -> Run:
    """An audited run to the end."""
    world = World(cluster, workload(jobs))
    run = drive(policy, world)
    assert audit(world.cluster, world.jobs, run.tape, complete=True) == []
    return run


def spans(run: Run) -> list[tuple[int, float, float, str]]:
    """(job, from, to, how it stopped), in order of their starts; seconds."""
    open_at: dict[int, int] = {}
    found = []
    for row in (TapeRow(*each) for each in run.tape.rows.tolist()):
        if row.kind == Kind.START:
            open_at[row.subject] = row.time
        elif row.subject in open_at and row.kind in (Kind.FINISHED, Kind.REQUEUE, Kind.KILL, Kind.PREEMPT):
            found.append((open_at.pop(row.subject), row.subject, row.time, Kind(row.kind).name))
    return [(job, start / SECOND, end / SECOND, how) for start, job, end, how in sorted(found)]


def at(world: World, run: Run, seconds: float) -> tuple[TrainingState, ComposedPolicy]:
    """The state of a run under fifo after a time, and its policy."""
    policy = build("fifo")
    return state_at(world.cluster, world.jobs, run.tape, round(seconds * SECOND), policy), policy


# --- tiers --------------------------------------------------------------------------------------------------------


def tiers(low: int, high: int, *, shared: bool = True) -> list[Partition]:
    return [Partition("batch", (0,), tier=low), Partition("debug", (0,) if shared else (1,), tier=high)]


@pytest.mark.parametrize("policy", [*POLICIES, "sjf", "srtf+no-preempt", "drf", "las+no-preempt"])
def test_jobs_of_a_higher_tier_go_first_whatever_their_order(policy: str) -> None:
    jobs = (job(0, 100, 4, partition="batch"), job(1, 10, 4, partition="batch"), job(2, 50, 4, partition="debug"))
    run = ran(site(rules=None, partitions=tiers(1, 10)), *jobs, policy=policy)
    assert [(who, start) for who, start, *_ in spans(run)] == [(0, 0), (2, 100), (1, 150)]
    run = ran(site(rules=None, partitions=tiers(1, 1)), *jobs, policy=policy)
    assert [(who, start) for who, start, *_ in spans(run)] == [(0, 0), (1, 100), (2, 110)]


@pytest.mark.parametrize("policy", POLICIES)
def test_tiers_of_partitions_that_share_no_node_change_nothing(policy: str) -> None:
    where = ["batch", "debug"] * 10
    jobs = [job(n, 30 + 7 * n % 50, 1 + n % 4, partition=each) for n, each in enumerate(where)]
    apart = [
        ran(site(rules=None, nodes=2, partitions=tiers(1, high, shared=False)), *jobs, policy=policy)
        for high in (1, 10)
    ]
    assert apart[0].tape.digest == apart[1].tape.digest


# --- who is stopped -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_preempts_one_of_a_listed_qos_which_starts_again_from_its_beginning(policy: str) -> None:
    run = ran(site(), job(0, 100, 4, "low"), job(40, 30, 4, "high"), policy=policy)
    assert spans(run) == [(0, 0, 40, "REQUEUE"), (1, 40, 70, "FINISHED"), (0, 70, 170, "FINISHED")]


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_is_stopped_for_a_qos_that_lists_nobody(policy: str) -> None:
    run = ran(site(), job(0, 100, 4, "low"), job(40, 30, 4, "low"), job(41, 30, 4), policy=policy)
    assert [how for *_, how in spans(run)] == ["FINISHED"] * 3


@pytest.mark.parametrize("policy", POLICIES)
def test_a_requeued_job_may_start_again_only_after_its_delay(policy: str) -> None:
    slurm = Preemption()
    run = ran(site(rules=slurm), job(0, 100, 4, "low"), job(40, 30, 4, "high"), policy=policy)
    assert slurm.again_after == 120 * SECOND
    assert spans(run) == [(0, 0, 40, "REQUEUE"), (1, 40, 70, "FINISHED"), (0, 160, 260, "FINISHED")]


@pytest.mark.parametrize("policy", POLICIES)
def test_cancel_ends_a_job_for_good(policy: str) -> None:
    qos = (HIGH, replace(LOW, preempt_mode=Mode.CANCEL))
    run = ran(site(*qos), job(0, 100, 4, "low"), job(40, 30, 4, "high"), policy=policy)
    assert spans(run) == [(0, 0, 40, "KILL"), (1, 40, 70, "FINISHED")]
    (killed,) = run.rows(Kind.KILL)
    assert (killed.value, killed.detail) == (40 * SECOND, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_qos_whose_mode_is_off_is_never_stopped(policy: str) -> None:
    qos = (HIGH, replace(LOW, preempt_mode=Mode.OFF))
    run = ran(site(*qos), job(0, 100, 4, "low"), job(40, 30, 4, "high"), policy=policy)
    assert spans(run) == [(0, 0, 100, "FINISHED"), (1, 100, 130, "FINISHED")]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_is_not_stopped_within_its_exempt_time_and_that_of_its_qos_comes_first(policy: str) -> None:
    jobs = (job(0, 100, 4, "low"), job(10, 30, 4, "high"))
    run = ran(site(rules=replace(NOW, exempt=60 * SECOND)), *jobs, policy=policy)
    assert spans(run) == [(0, 0, 60, "REQUEUE"), (1, 60, 90, "FINISHED"), (0, 90, 190, "FINISHED")]
    sooner = (HIGH, replace(LOW, exempt=20 * SECOND))
    run = ran(site(*sooner, rules=replace(NOW, exempt=60 * SECOND)), *jobs, policy=policy)
    assert spans(run)[0] == (0, 0, 20, "REQUEUE")
    never = (HIGH, replace(LOW, exempt=0))
    run = ran(site(*never, rules=replace(NOW, exempt=60 * SECOND)), *jobs, policy=policy)
    assert spans(run)[0] == (0, 0, 10, "REQUEUE")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_victim_keeps_its_gpus_until_its_grace_has_passed(policy: str) -> None:
    qos = (HIGH, replace(LOW, grace=25 * SECOND))
    run = ran(site(*qos), job(0, 100, 4, "low"), job(40, 30, 4, "high"), policy=policy)
    assert spans(run) == [(0, 0, 65, "REQUEUE"), (1, 65, 95, "FINISHED"), (0, 95, 195, "FINISHED")]
    (warned,) = run.rows(Kind.WARN)
    assert (warned.time, warned.subject, warned.detail, warned.value) == (40 * SECOND, 0, 1, 65 * SECOND)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_victim_that_ends_within_its_grace_has_finished(policy: str) -> None:
    qos = (HIGH, replace(LOW, grace=25 * SECOND))
    run = ran(site(*qos), job(0, 50, 4, "low"), job(40, 30, 4, "high"), policy=policy)
    assert spans(run) == [(0, 0, 50, "FINISHED"), (1, 50, 80, "FINISHED")]


@pytest.mark.parametrize("policy", POLICIES)
def test_during_grace_nobody_else_is_stopped_for_the_same_job(policy: str) -> None:
    qos = (HIGH, replace(LOW, grace=25 * SECOND))
    jobs = (job(0, 100, 4, "low"), job(0, 100, 4, "low"), job(40, 30, 4, "high"), job(45, 3, 1, "low"))
    run = ran(site(*qos, nodes=2), *jobs, policy=policy)
    assert [row.subject for row in run.rows(Kind.WARN)] == [0]


def test_the_lowest_qos_goes_first_then_fewer_nodes_and_nobody_who_is_not_needed() -> None:
    jobs = (job(0, 100, 2, "low"), job(0, 100, 1, "scavenger"), job(0, 100, 1, "scavenger"))
    assert _stopped(ran(site(), *jobs, job(10, 10, 1, "high"))) == [1]
    assert _stopped(ran(site(), *jobs, job(10, 10, 2, "high"))) == [1, 2]
    assert _stopped(ran(site(), *jobs, job(10, 10, 3, "high"))) == [0, 1]  # one of the scavengers is not needed
    assert _stopped(ran(site(), *jobs, job(10, 10, 4, "high"))) == [0, 1, 2]
    wide = (job(0, 100, 8, "low", nodes=2), job(0, 100, 4, "low"))
    assert _stopped(ran(site(nodes=3), *wide, job(10, 10, 4, "high"))) == [1]


def test_the_youngest_goes_first_where_the_site_says_so() -> None:
    jobs = (job(0, 100, 2, "scavenger"), job(5, 100, 2, "low"))
    assert _stopped(ran(site(), *jobs, job(10, 10, 2, "high"))) == [0]
    youngest = replace(NOW, youngest_first=True)
    assert _stopped(ran(site(rules=youngest), *jobs, job(10, 10, 2, "high"))) == [1]


def _stopped(run: Run) -> list[int]:
    return sorted({row.subject for row in run.rows(Kind.REQUEUE)})


def test_nobody_is_stopped_when_all_of_them_would_not_be_enough() -> None:
    jobs = (job(0, 100, 1), job(0, 50, 3, "low"), job(10, 10, 4, "high"))
    assert spans(ran(site(), *jobs)) == [(0, 0, 100, "FINISHED"), (1, 0, 50, "FINISHED"), (2, 100, 110, "FINISHED")]


def test_a_job_ahead_takes_the_free_gpus_and_the_one_behind_it_preempts_for_the_rest() -> None:
    jobs = (job(0, 100, 2, "low"), job(10, 20, 2), job(10, 20, 2, "high"))
    assert spans(ran(site(), *jobs))[:3] == [(0, 0, 10, "REQUEUE"), (1, 10, 30, "FINISHED"), (2, 10, 30, "FINISHED")]


def test_a_job_that_is_not_preemptible_stays() -> None:
    jobs = (job(0, 100, 4, "low", preemptible=False), job(10, 10, 4, "high"))
    assert spans(ran(site(), *jobs)) == [(0, 0, 100, "FINISHED"), (1, 100, 110, "FINISHED")]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_preemptor_has_to_be_within_its_limits(policy: str) -> None:
    limit = LimitRule("QOSMaxGRESPerUser", "gpus", 2000, (("qos", "high"),), ("user",))
    jobs = (job(0, 100, 4, "low"), job(10, 40, 2, "high", user="ann"), job(11, 40, 2, "high", user="ann"))
    run = ran(site(limits=[limit]), *jobs, policy=policy)
    assert [each for each in spans(run) if each[0]] == [(1, 10, 50, "FINISHED"), (2, 51, 91, "FINISHED")]
    assert (0, 50, 51, "REQUEUE") in spans(run), "it comes first, and is preempted a second later"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_higher_tier_preempts_on_shared_nodes_only(policy: str) -> None:
    partitions = [Partition("batch", (0, 1), tier=1), Partition("debug", (1,), tier=5)]
    jobs = (job(0, 100, 4, partition="batch"), job(0, 100, 4, partition="batch"), job(10, 10, 4, partition="debug"))
    run = ran(site(rules=replace(NOW, by="partition"), nodes=2, partitions=partitions), *jobs, policy=policy)
    (row,) = run.rows(Kind.REQUEUE)
    (start,) = [each for each in run.rows(Kind.START) if each.subject == 2]
    assert (row.subject, row.time, start.time, start.place) == (1, 10 * SECOND, 10 * SECOND, 1)
    equal = [replace(each, tier=5) for each in partitions]
    run = ran(site(rules=replace(NOW, by="partition"), nodes=2, partitions=equal), *jobs, policy=policy)
    assert not run.rows(Kind.REQUEUE)


def test_mode_and_grace_of_the_partition_hold_where_tiers_preempt() -> None:
    partitions = [
        Partition("batch", (0,), tier=1, preempt_mode=Mode.CANCEL, grace=5 * SECOND),
        Partition("debug", (0,), tier=5),
    ]
    rules = replace(NOW, by="partition")
    run = ran(
        site(rules=rules, partitions=partitions), job(0, 100, 4, partition="batch"), job(10, 10, 4, partition="debug")
    )
    assert spans(run) == [(0, 0, 15, "KILL"), (1, 15, 25, "FINISHED")]


def test_the_age_of_a_requeued_job_begins_anew() -> None:
    jobs = (job(0, 1000, 4, "low"), job(20, 1000, 4, "low"), job(40, 10, 4, "high"))
    cluster = site(rules=Preemption(again_after=5 * SECOND))
    aged = ran(cluster, *jobs, policy=f"{SLURM}+none")
    assert [who for who, *_ in spans(aged)] == [0, 2, 1, 0], "job 1 is older than job 0, which was requeued"
    assert [who for who, *_ in spans(ran(cluster, *jobs, policy="fifo"))] == [0, 2, 0, 1]


# --- actions that are not allowed; loops --------------------------------------------------------------------------


def test_what_the_rules_do_not_allow_is_refused_with_the_reason() -> None:
    world = World(site(), workload((job(0, 100, 2, "low"), job(0, 100, 2, "high"), job(5, 10, 4, "high"))))
    run = drive("fifo+no-preempt", World(replace(world.cluster, preemption=None), world.jobs))
    state = at(world, run, 0)[0]
    assert "QOS low may not preempt QOS high" in str(state.check(RequeueJob(1, 0)))
    assert "its mode is requeue" in str(state.check(KillJob(0, 1)))
    assert "job 9 is not there" in str(state.check(WarnJob(0, 9, 50)))
    assert state.check(RequeueJob(0, 1)) is None
    plain, _ = at(World(uniform(1, 4), world.jobs), run, 0)
    assert "the cluster declares no preemption" in str(plain.check(RequeueJob(0, 1)))


def test_qos_that_preempt_each_other_in_a_circle_are_refused() -> None:
    with pytest.raises(ExperimentError, match="QOS a preempts itself: a preempts a"):
        site(Qos("a", preempts=("a",)))
    with pytest.raises(ExperimentError, match="QOS a preempts itself: a preempts b preempts a"):
        site(Qos("a", preempts=("b",)), Qos("b", preempts=("a",)))


# --- why a job waits ----------------------------------------------------------------------------------------------


def test_a_job_says_that_it_waits_for_grace_and_its_victim_by_whom_it_was_preempted() -> None:
    qos = (HIGH, replace(LOW, grace=25 * SECOND))
    world = World(site(*qos, rules=Preemption()), workload((job(0, 100, 4, "low"), job(40, 30, 4, "high"))))
    run = drive("fifo", world)
    state, policy = at(world, run, 41)
    causes = why_waiting(41 * SECOND, state, policy, state.jobs[1])
    assert "grace: waits for grace of job 0, until 1m 05s" in [str(cause) for cause in causes]
    state, policy = at(world, run, 70)
    (cause,) = why_waiting(70 * SECOND, state, policy, state.jobs[0])
    assert (cause.kind, cause.jobs) == (CauseKind.REQUEUED, (1,))
    assert str(cause) == "requeued: preempted by job 1 of QOS high: it may start again at 3m 05s"


# --- the audit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ({"rules": replace(NOW, exempt=41 * SECOND)}, "after 40000000000 ns, it is exempt for 41000000000"),
        ({"rules": replace(NOW, again_after=SECOND * 40)}, "job 0 starts before 80000000000 ns"),
        ({"rules": replace(NOW, mode=Mode.CANCEL)}, "by REQUEUE, its mode is cancel"),
        ({"rules": replace(NOW, by="partition")}, "the tier of partition  is not above that of"),
        ({"rules": None}, "the cluster declares no preemption"),
        ({"qos": (replace(HIGH, preempts=()), LOW)}, "QOS high does not preempt low"),
        ({"qos": (HIGH, replace(LOW, grace=SECOND))}, "its grace is 1000000000 ns"),
    ],
)
def test_the_audit_finds_what_other_rules_would_not_allow(other: dict[str, Any], line: str) -> None:
    run = ran(site(), job(0, 100, 4, "low"), job(40, 30, 4, "high"))
    cluster = site(*other.pop("qos", ()), **other)
    assert any(line in finding.text for finding in audit(cluster, run.jobs, run.tape)), line


def test_the_audit_finds_a_notice_that_is_not_kept_and_a_victim_for_nobody() -> None:
    cluster = site(HIGH, replace(LOW, grace=25 * SECOND))
    run = ran(cluster, job(0, 100, 4, "low"), job(40, 30, 4, "high"))
    late = [row for row in run.tape.rows.tolist() if row[1] not in (Kind.REQUEUE, Kind.START) or row[0] < 65 * SECOND]
    late = [row for row in late if row[0] <= 65 * SECOND]
    found = audit(cluster, run.jobs, tape_of(late))
    assert any("job 0 still runs at 65000000000 ns; it was given notice for job 1" in each.text for each in found)
    plain = ran(site(), job(0, 100, 4, "low"), job(40, 30, 4, "high"))
    rows = [
        row for row in plain.tape.rows.tolist() if not (row[1] == Kind.START and row[2] == 1) and row[0] <= 40 * SECOND
    ]
    found = audit(site(), plain.jobs, tape_of(rows))
    assert any("others went for job 1, and it does not start" in each.text for each in found)


def tape_of(rows: Sequence[Sequence[int]]) -> Tape:
    """A tape of these rows."""
    writer = TapeWriter()
    for row in rows:
        writer.append(tuple(row))  # type: ignore[arg-type]
    return writer.close()


# --- what people are told -----------------------------------------------------------------------------------------


def test_the_story_names_who_preempted_the_job_and_what_became_of_it() -> None:
    qos = (HIGH, replace(LOW, grace=25 * SECOND))
    run = ran(site(*qos), job(0, 100, 4, "low", name="long"), job(40, 30, 4, "high", name="urgent"), policy="fifo")
    cluster = site(*qos)
    victim = "\n".join(story(cluster, run.jobs, run.tape, build("fifo"), 0).all_lines())
    assert "preempted by job urgent of QOS high (starts from its beginning, 25s after notice)" in victim
    urgent = "\n".join(story(cluster, run.jobs, run.tape, build("fifo"), 1).all_lines())
    assert "grace: waits for grace of job long, until 1m 05s" in urgent


def test_a_job_that_was_preempted_for_good_is_counted_as_such() -> None:
    cluster = site(HIGH, replace(LOW, preempt_mode=Mode.CANCEL))
    run = ran(cluster, job(0, 100, 4, "low"), job(40, 30, 4, "high"))
    ledger = Ledger(run.tape, run.jobs, cluster)
    table, summary = job_table(ledger), of_ledger(ledger)
    assert table["outcome"].to_list() == ["preempted", "finished"]
    assert table["preemptions"].to_list() == [1, 0]
    assert table["lost_gpu_s"].to_list() == [160, 0]
    assert (summary.finished, summary.cancelled, summary.unfinished, summary.preemptions) == (1, 1, 0, 1)
    told = story(cluster, run.jobs, run.tape, build("fifo+fit"), 0)
    assert told.outcome == "preempted"
    assert any("preempted by job 1 of QOS high (for good)" in line for line in told.all_lines())


def test_work_that_a_requeue_throws_away_is_lost() -> None:
    run = ran(
        site(), job(0, 100, 4, "low", checkpoint=5 * SECOND, checkpoint_every=10 * SECOND), job(40, 30, 4, "high")
    )
    ledger = Ledger(run.tape, run.jobs, site())
    # Of 40 s it wrote for 10 s (after 10 s and 20 s of work) and worked for 30 s; then it begins anew.
    (requeued,) = run.rows(Kind.REQUEUE)
    assert requeued.value == 30 * SECOND
    assert lost_gpu_seconds(ledger).tolist() == [4 * (30 + 10 + 9 * 5), 0]


# --- a run that goes on under other rules -------------------------------------------------------------------------


@pytest.mark.parametrize("at_s", [41, 70])
def test_a_run_that_goes_on_keeps_notices_and_delays(at_s: int) -> None:
    cluster = site(HIGH, replace(LOW, grace=25 * SECOND), rules=Preemption())
    run = ran(cluster, job(0, 100, 4, "low"), job(40, 30, 4, "high"), policy="fifo")
    moment = resume(cluster, run.jobs, run.tape, at_s * SECOND, build("fifo"))
    policy = renewed(moment.policy, build("fifo"))
    moment.state, _ = transferred(at_s * SECOND, moment.state, replace(cluster), policy)
    moment.policy = policy
    moment.executor.move_to(moment.state)
    rest = [row for row in run.tape.rows.tolist() if row[0] > at_s * SECOND and row[1] in (Kind.START, Kind.FINISHED)]
    again = [row for row in moment.go_on().rows.tolist() if row[1] in (Kind.START, Kind.FINISHED)]
    assert again == rest


def test_without_the_rules_nobody_has_to_go_any_more() -> None:
    cluster = site(HIGH, replace(LOW, grace=25 * SECOND), rules=Preemption())
    run = ran(cluster, job(0, 100, 4, "low"), job(40, 30, 4, "high"), policy="fifo")
    moment = resume(cluster, run.jobs, run.tape, 41 * SECOND, build("fifo"))
    policy = renewed(moment.policy, build("fifo"))
    moment.state, _ = transferred(41 * SECOND, moment.state, replace(cluster, preemption=None), policy)
    moment.policy = policy
    moment.executor.move_to(moment.state)
    ends = {row[2]: row[0] / SECOND for row in moment.go_on().rows.tolist() if row[1] == Kind.FINISHED}
    assert ends == {0: 100, 1: 130}


def test_of_equal_priorities_the_job_that_was_requeued_later_starts_later() -> None:
    # Job 0 is stopped at 10 s for job 1, which ends at 30 s. Job 2 came at 5 s, before job 0 was requeued; job 3 after.
    flat = SLURM.replace("age_weight=1000", "age_weight=0")
    jobs = (job(0, 50, 4, "low"), job(10, 20, 4, "high"), job(5, 7, 4, "low"), job(15, 7, 4, "low"))
    run = ran(site(), *jobs, policy=flat)
    assert spans(run) == [
        *((0, 0, 10, "REQUEUE"), (2, 10, 30, "FINISHED")),
        *((1, 30, 37, "FINISHED"), (0, 37, 87, "FINISHED"), (3, 87, 94, "FINISHED")),
    ]
