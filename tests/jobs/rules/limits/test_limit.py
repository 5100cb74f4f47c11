"""Limits: which apply to a job, what counts under each, who is held back and until when."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from headway.errors import ExperimentError, InfeasibleActionError
from headway.jobs.ask.other_cluster import renewed, transferred
from headway.jobs.audit.audit import audit
from headway.jobs.explain.explain import why_waiting
from headway.jobs.model.actions import StartJob
from headway.jobs.model.causes import CauseKind
from headway.jobs.model.cluster import Cluster, Tenant, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import build
from headway.jobs.rules.limits.choice import binding, choosing
from headway.jobs.rules.limits.counters import NEVER
from headway.jobs.rules.limits.engine import Limits
from headway.jobs.rules.limits.limit import NOBODY, LimitRule
from headway.jobs.state.never_feasible import infeasible
from headway.jobs.state.state import TrainingState
from headway.units import HOUR, SECOND
from tests.conformance.test_broken import Broken
from tests.drive import Run, World, digest, drive, state_at
from tests.strategies import limits

GPU_SECOND = 1000 * SECOND


def job(submit: float, work: float, gpus: int = 1, **more: object) -> Job:
    """A job, times in seconds."""
    return replace(Job(0, round(submit * SECOND), round(work * SECOND), gpus), **more)  # type: ignore[arg-type]


def ran(policy: str, jobs: Sequence[Job], *rules: LimitRule, nodes: int = 1, tenants: Sequence[Tenant] = ()) -> Run:
    """A run on nodes of 8 GPUs, audited; what waits at its end waits for ever."""
    world = World(uniform(nodes, 8, tenants=tuple(tenants), limits=rules), workload(jobs))
    run = drive(policy, world)
    assert audit(world.cluster, world.jobs, run.tape, complete=True) == []
    return run


def starts(run: Run) -> dict[int, float]:
    """When each job first started, in seconds."""
    first: dict[int, float] = {}
    for row in run.rows(Kind.START):
        first.setdefault(row.subject, row.time / SECOND)
    return first


def chosen_by(rules: Sequence[LimitRule], mine: Job, parents: Mapping[str, str]) -> list[LimitRule]:
    """The rules under which a job counts."""
    return [rule for _, rule in choosing(rules, mine, parents)]


def applying(rules: Sequence[LimitRule], mine: Job, parents: Mapping[str, str]) -> list[LimitRule]:
    """Those of them that may hold it back."""
    chosen = chosen_by(rules, mine, parents)
    return [rule for rule, holds in zip(chosen, binding(chosen, mine), strict=True) if holds]


# --- which rules apply --------------------------------------------------------------------------------------------

TREE = {"root": "", "bio": "root", "cells": "bio", "physics": "root"}


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ((), True),
        ((("account", "cells"),), True),
        ((("account", "bio"),), True),
        ((("account", "root"),), True),
        ((("tenant", "bio"),), False),
        ((("tenant", "cells"),), True),
        ((("account", "physics"),), False),
        ((("user", "alice"), ("qos", "long")), True),
        ((("user", "alice"), ("qos", "short")), False),
        ((("user", "bob"), ("user", "alice")), True),
        ((("partition", "gpu"),), False),
        ((("any", "partition:gpu"), ("any", "qos:long")), True),
        ((("any", "partition:gpu"), ("any", "account:bio")), True),
        ((("any", "partition:gpu"), ("any", "user:bob")), False),
        ((("any", "qos:long"), ("user", "bob")), False),
    ],
)
def test_a_rule_chooses_jobs_by_account_user_qos_and_partition(
    where: tuple[tuple[str, str], ...], chosen: bool
) -> None:
    rule = LimitRule("any", "gpus", 1, where)
    mine = Job(0, 0, 1, tenant="cells", user="alice", qos="long", partition="cpu")
    assert bool(applying([rule], mine, TREE)) == chosen


def test_of_rules_with_one_slot_only_those_of_the_least_level_hold() -> None:
    rules = [
        LimitRule("cluster", "gpus", 1, slot="MaxTRESPU", level=3),
        LimitRule("qos", "gpus", 2, slot="MaxTRESPU", level=1),
        LimitRule("again", "gpus", 3, slot="MaxTRESPU", level=1),
        LimitRule("other qos", "gpus", 4, (("qos", "short"),), slot="MaxTRESPU", level=0),
        LimitRule("always", "gpus", 5),
    ]
    assert [rule.name for rule in applying(rules, Job(0, 0, 1), {})] == ["qos", "again", "always"]


def test_a_job_counts_under_a_rule_that_another_of_its_slot_sets_aside() -> None:
    rules = (
        LimitRule("qos", "gpus", 4000, (("qos", "long"),), slot="user", level=0),
        LimitRule("everybody", "gpus", 3000, slot="user", level=1),
    )
    jobs = [job(0, 50, 4, qos="long"), job(1, 10, 1), job(2, 10, 1, qos="long")]
    assert starts(ran("fifo", jobs, *rules)) == {0: 0, 1: 50, 2: 50}


def test_a_rule_may_have_another_level_for_some_jobs_and_hold_nobody_else_back() -> None:
    rules = [
        LimitRule("plain", "gpus", 1, slot="GrpTRES", level=5),
        LimitRule("twice", "gpus", 2, slot="GrpTRES", level=NOBODY, levels=(("qos", "big", 1), ("partition", "p", 0))),
    ]
    assert [rule.name for rule in applying(rules, Job(0, 0, 1), {})] == ["plain"]
    assert [rule.name for rule in applying(rules, Job(0, 0, 1, qos="big"), {})] == ["twice"]
    assert [rule.name for rule in applying(rules[1:], Job(0, 0, 1), {})] == []
    assert [rule.name for rule in chosen_by(rules, Job(0, 0, 1), {})] == ["plain", "twice"], "it counts under both"


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"resource": "gpu"}, "limit x: unknown resource 'gpu'; did you mean 'gpus'? (valid: "),
        ({"resource": "memory:h100"}, "limit x: unknown resource 'memory:h100'"),
        ({"most": -1}, "limit x: a limit of -1 on gpus must be at least 0"),
        ({"resource": "wall", "most": 0}, "limit x: a limit of 0 on wall must be at least 1"),
        ({"where": (("uesr", "a"),)}, "limit x@uesr:a: unknown where 'uesr'; did you mean 'user'?"),
        ({"per": ("node",)}, "limit x: unknown per 'node'"),
        ({"half_life": HOUR}, "has no meaning for gpus, only for gpu_time"),
        (
            {"resource": "gpu_time", "used": 5, "per": ("user",)},
            "used 5 belongs to one counter: leave out per ['user']",
        ),
        ({"resource": "jobs", "per": ("job",)}, "limit x: jobs cannot be counted for each job"),
        ({"resource": "gpu_time", "per": ("job",)}, "running_gpu_time limits what one may use"),
        ({"resource": "ageing", "per": ("job",)}, "limit x: ageing cannot be counted for each job"),
        ({"resource": "gpus_per_node"}, 'limit x: gpus_per_node is about single jobs: write per = "job"'),
        ({"least": True}, 'limit x: least is for gpus, cpus, memory, nodes of single jobs: write per = "job"'),
        ({"where": (("any", "uesr:a"),)}, "any 'uesr:a' is not like qos:long"),
        ({"levels": (("account", "a", 1),)}, "limit x: unknown selector of a level 'account'"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        LimitRule(**{"name": "x", "resource": "gpus", "most": 1, **given})  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_accounts_in_a_loop_and_unknown_parents_are_refused() -> None:
    with pytest.raises(ExperimentError, match="tenant a is below itself: a under b under a: leave out one parent"):
        uniform(1, 1, tenants=(Tenant("a", parent="b"), Tenant("b", parent="a")))
    with pytest.raises(ExperimentError, match="tenant a: unknown parent 'top'"):
        uniform(1, 1, tenants=(Tenant("a", parent="top"),))


def test_two_rules_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ExperimentError, match="two limits of this name on gpus choose the same jobs"):
        uniform(1, 1, limits=(LimitRule("x", "gpus", 1), LimitRule("x", "gpus", 2)))


# --- by hand --------------------------------------------------------------------------------------------------------

PER_USER = LimitRule("QOSMaxGRESPerUser", "gpus", 3000, (("qos", "long"),), ("user",))


def _three_users() -> list[Job]:
    alice = {"user": "alice", "qos": "long"}
    return [
        job(0, 100, 2, **alice),
        job(1, 100, 2, **alice),
        job(2, 10, 1, **alice),
        job(3, 10, 2, user="bob", qos="long"),
        job(4, 10, 3, user="alice", qos="short"),
    ]


@pytest.mark.parametrize("policy", ["fifo", "fifo+fit", "fifo+easy", "fifo+conservative(interval=0s)", "srtf+easy"])
def test_a_job_that_a_limit_holds_back_blocks_nobody(policy: str) -> None:
    assert starts(ran(policy, _three_users(), PER_USER)) == {0: 0, 2: 2, 3: 3, 4: 4, 1: 100}


def test_a_refusal_names_the_limit_and_who_holds_what() -> None:
    world = World(uniform(1, 16, limits=(PER_USER,)), workload(_three_users()))
    run = drive("fifo", world)
    state = state_at(world.cluster, world.jobs, run.tape, 5 * SECOND, build("fifo"))
    refusal = state.check(StartJob(1, ((0, 0b11 << 14),)))
    assert refusal == ("StartJob(job=1): QOSMaxGRESPerUser: alice holds 3 of 3 GPUs under QOS long, it wants 2 GPUs")
    (cause, *others) = why_waiting(5 * SECOND, state, build_bound("fifo", state), state.jobs[1])
    assert cause.kind is CauseKind.LIMIT
    assert cause.level == "QOSMaxGRESPerUser"
    assert str(cause) == (
        "limit QOSMaxGRESPerUser: alice holds 3 of 3 GPUs under QOS long, it wants 2 GPUs; "
        "job 0 (2 GPUs), job 2 (1 GPU)"
    )
    assert cause.jobs == (0, 2)
    assert not others


def build_bound(spec: str, state: TrainingState) -> ComposedPolicy:
    """A policy for a state that was made with another one of the same name."""
    policy = build(spec)
    policy.bind(state)
    return policy


def test_an_account_counts_what_all_accounts_below_it_hold() -> None:
    tenants = [
        Tenant("root"),
        Tenant("bio", parent="root"),
        Tenant("cells", parent="bio"),
        Tenant("law", parent="root"),
    ]
    rule = LimitRule("GrpTRES", "gpus", 3000, (("account", "bio"),))
    jobs = [job(0, 50, 2, tenant="bio"), job(1, 50, 2, tenant="cells"), job(2, 50, 2, tenant="law")]
    assert starts(ran("fifo", jobs, rule, tenants=tenants)) == {0: 0, 2: 2, 1: 50}


def test_an_order_is_kept_among_those_that_a_limit_lets_go() -> None:
    jobs = [job(0, 50, 1, user="a"), job(1, 30, 1, user="a"), job(2, 5, 1, user="a"), job(3, 20, 1, user="a")]
    assert starts(ran("sjf", jobs, LimitRule("MaxJobs", "jobs", 1, per=("user",)))) == {0: 0, 2: 50, 3: 55, 1: 75}


def test_what_is_used_counts_to_the_nanosecond_and_holds_back_for_ever_without_decay() -> None:
    rule = LimitRule("GrpTRESMins", "gpu_time", 30 * GPU_SECOND)
    run = ran("fifo", [job(0, 10, 2), job(10, 10, 1), job(20, 5, 1)], rule)
    assert starts(run) == {0: 0, 1: 10}  # at 20 s all 30 GPU-seconds are used
    assert list(run.state.jobs) == [2]
    assert run.state.is_stuck()


def test_what_decays_lets_a_job_go_without_any_event() -> None:
    rule = LimitRule("GrpTRESMins", "gpu_time", 16 * GPU_SECOND, half_life=100 * SECOND, used=40 * GPU_SECOND)
    run = ran("fifo", [job(0, 10, 1)], rule)
    assert starts(run) == {0: 133}  # 40 × 2^(-t / 100 s) falls below 16 at 132.19 s; looked at on the second


def test_what_running_jobs_may_still_use_shrinks_as_they_run() -> None:
    rule = LimitRule("GrpTRESRunMins", "running_gpu_time", 100 * GPU_SECOND)
    jobs = [job(0, 50, 1, estimate=60 * SECOND), job(1, 10, 1, estimate=70 * SECOND)]
    assert starts(ran("fifo", jobs, rule)) == {0: 0, 1: 30}  # 60 - t + 70 fits into 100 at 30 s


def test_with_ahead_a_job_starts_only_if_it_fits_to_its_end() -> None:
    rule = LimitRule("safe", "gpu_time", 100 * GPU_SECOND, ahead=True)
    jobs = [
        job(0, 20, 1, estimate=60 * SECOND),
        job(1, 40, 1, estimate=50 * SECOND),
        job(2, 5, 1, estimate=10 * SECOND),
    ]
    # 60 + 50 > 100: job 1 waits until job 0 ends after 20 s: 20 + (the 10 of job 2, of which it used 5) + 50 fit.
    assert starts(ran("fifo", jobs, rule)) == {0: 0, 2: 2, 1: 20}


def test_jobs_beyond_the_number_that_may_be_submitted_come_in_as_others_leave() -> None:
    rule = LimitRule("MaxSubmitJobs", "submitted", 2, per=("user",))
    jobs = [job(0, 30, 8, user="b"), job(1, 10, 1, user="a"), job(2, 9, 1, user="a"), job(3, 1, 1, user="a")]
    assert starts(ran("sjf", jobs, rule)) == {0: 0, 1: 30, 2: 30, 3: 39}


def test_a_job_that_asks_for_nothing_of_it_is_not_limited() -> None:
    jobs = [job(0, 10, 2, gpu_types=("gpu",)), job(1, 10, 2), job(2, 10, 0, cpu_milli=1000)]
    assert starts(ran("fifo", jobs, LimitRule("x", "gpus:gpu", 2000), LimitRule("y", "memory", 1))) == {
        0: 0,
        1: 1,
        2: 2,
    }


def test_two_jobs_on_one_node_count_it_once() -> None:
    rule = LimitRule("GrpNodes", "nodes", 2, per=("user",))
    one = {"user": "a", "nodes": 1}
    jobs = [
        job(0, 50, 4, **one),
        job(1, 50, 4, **one),
        job(2, 50, 4, **one),
        job(3, 50, 4, **one),
        job(4, 10, 8, **one),
    ]
    run = ran("fifo", [*jobs, job(5, 10, 4, user="b", nodes=1)], rule, nodes=3)
    assert starts(run) == {0: 0, 1: 1, 2: 2, 5: 5, 3: 51, 4: 51}, "a third on one node would have been one too many"


def test_what_a_job_holds_of_each_of_its_nodes_is_limited_rounded_down() -> None:
    rules = (
        LimitRule("MaxGRESPerNode", "gpus_per_node", 3000, per=("job",)),
        LimitRule("MaxCpuPerNode", "cpus_per_node", 4000, per=("job",)),
    )
    jobs = [job(0, 10, 4, nodes=1), job(0, 10, 7, nodes=0), job(0, 10, 6, nodes=2), job(0, 10, 2, cpu_milli=5000)]
    jobs += [job(0, 10, 4, nodes=2, cpu_milli=9000), job(0, 10, 0, cpu_milli=4999)]
    found = infeasible(uniform(2, 8, limits=rules), workload(jobs))
    assert [(each.job.id, each.reason) for each in found] == [
        (0, "limit MaxGRESPerNode: it wants 4 GPUs on each node, at most 3 GPUs on each node may be had"),
        (1, "limit MaxGRESPerNode: it wants 7 GPUs on each node, at most 3 GPUs on each node may be had"),
        (3, "limit MaxCpuPerNode: it wants 5 CPUs on each node, at most 4 CPUs on each node may be had"),
    ]


def test_a_job_that_asks_for_less_than_the_least_never_starts() -> None:
    rule = LimitRule("QOSMinGRES", "gpus", 2000, (("qos", "gpu"),), ("job",), least=True)
    jobs = workload([job(0, 10, 1, qos="gpu"), job(0, 10, 2, qos="gpu"), job(0, 10, 0, cpu_milli=1000, qos="gpu")])
    found = infeasible(uniform(1, 8, limits=(rule,)), jobs)
    assert [(each.job.id, each.reason) for each in found] == [
        (0, "limit QOSMinGRES: it wants 1 GPU, at least 2 GPUs must be asked for under QOS gpu"),
        (2, "limit QOSMinGRES: it wants 0 GPUs, at least 2 GPUs must be asked for under QOS gpu"),
    ]
    assert infeasible(uniform(1, 8, limits=(replace(rule, changes=((5 * SECOND, 1000),)),)), jobs[:1]) == []
    eased = ran(
        "fifo", [job(0, 10, 1, qos="gpu"), job(1, 10, 3, qos="gpu")], replace(rule, changes=((5 * SECOND, 1000),))
    )
    assert starts(eased) == {0: 5, 1: 1}


def test_a_job_without_gpus_counts_its_cpus_on_each_of_its_nodes() -> None:
    rule = LimitRule("MaxCpu", "cpus", 8000, per=("user",))
    one = {"user": "a", "cpu_milli": 4000}
    jobs = [job(0, 50, 0, nodes=2, **one), job(1, 10, 0, nodes=1, **one), job(2, 10, 1, user="a", cpu_milli=4000)]
    assert starts(ran("fifo", jobs, rule, nodes=2)) == {0: 0, 1: 50, 2: 50}


def test_a_job_keeps_its_age_until_it_starts_and_then_the_next_one_has_it() -> None:
    rule = LimitRule("MaxJobsAccrue", "ageing", 1, per=("user",))
    jobs = [job(0, 100, 8, user="a"), job(1, 10, 8, user="a"), job(2, 10, 8, user="a"), job(3, 10, 8, user="b")]
    world = World(uniform(1, 8, limits=(rule,)), workload(jobs))
    run = drive("fifo", world)
    assert starts(run) == {0: 0, 1: 100, 2: 110, 3: 120}, "nobody is held back"
    state = state_at(world.cluster, world.jobs, run.tape, 5 * SECOND, build("fifo"))
    assert [state.jobs[each].accrues for each in (1, 2, 3)] == [0, NEVER, 0]
    state.dequeue(state.jobs[1])  # as when its reservation is looked at again
    state.jobs[1].lane = state.arrangement.lane(state.jobs[1])
    state.enqueue(state.jobs[1])
    assert [state.jobs[each].accrues for each in (1, 2, 3)] == [0, NEVER, 0]
    later = state_at(world.cluster, world.jobs, run.tape, 105 * SECOND, build("fifo"))
    assert later.jobs[2].accrues == 100 * SECOND
    moved, _ = transferred(5 * SECOND, state, replace(world.cluster, limits=()), renewed(build("fifo"), build("fifo")))
    assert moved.jobs[2].accrues == 5 * SECOND, "without the limit all ages grow"


def test_a_preempted_job_gives_back_what_counted() -> None:
    rule = LimitRule("MaxJobs", "jobs", 1, (("user", "a"),))
    jobs = [job(0, 100, 8, user="a"), job(1, 10, 8, user="b"), job(2, 5, 8, user="a")]
    run = ran("srtf", jobs, rule)
    assert starts(run) == {0: 0, 1: 1, 2: 2}


# --- jobs that can never start --------------------------------------------------------------------------------------


@pytest.mark.parametrize("denies", [False, True])
def test_a_job_that_alone_exceeds_a_limit_is_found_before_the_run(denies: bool) -> None:
    rules = (
        LimitRule("MaxTRESPerJob", "gpus", 2000, per=("job",), denies=denies),
        LimitRule("MaxWall", "wall", HOUR, denies=denies),
    )
    cluster = uniform(1, 8, limits=rules)
    jobs = workload([job(0, 10, 4), job(1, 10, 2), job(2, 10, 1, estimate=2 * HOUR)])
    found = infeasible(cluster, jobs)
    assert [(each.job.id, each.reason, each.denied) for each in found] == [
        (0, "limit MaxTRESPerJob: it wants 4 GPUs, at most 2 GPUs may be had", denies),
        (2, "limit MaxWall: it wants 2h 00m, at most 1h 00m may be had", denies),
    ]


@pytest.mark.parametrize("policy", ["fifo", "fifo+conservative", "srtf"])
def test_a_job_that_leaves_by_itself_may_wait_under_a_limit_that_never_lets_it_start(policy: str) -> None:
    rule = LimitRule("MaxTRESPerJob", "gpus", 2000, per=("job",))
    jobs = [job(0, 10, 4, patience=30 * SECOND), job(1, 10, 2)]
    assert infeasible(uniform(1, 8, limits=(rule,)), workload(jobs)) == []
    assert infeasible(uniform(1, 8, limits=(replace(rule, denies=True),)), workload(jobs))
    run = ran(policy, jobs, rule)
    assert starts(run) == {1: 1}


def test_a_limit_of_zero_shuts_out_whoever_wants_some_of_it() -> None:
    cluster = uniform(1, 8, limits=(LimitRule("closed", "gpus", 0, (("qos", "cpu"),)),))
    jobs = workload([job(0, 10, 1, qos="cpu"), job(0, 10, 1, qos="gpu"), job(0, 10, 0, cpu_milli=1000, qos="cpu")])
    assert [each.job.id for each in infeasible(cluster, jobs)] == [0]


# --- proofs -----------------------------------------------------------------------------------------------------------


class Exceeds(Broken):
    """Starts what a limit holds back."""

    def decide(self, now: int, state: TrainingState) -> list[StartJob]:  # type: ignore[override]
        waiting = [js for js in state.jobs.values() if js.id not in state.running]
        return [StartJob(js.id, place) for js in waiting if (place := self.placement.place(state.pool, js))]


def test_a_policy_that_exceeds_a_limit_is_refused() -> None:
    world = World(uniform(1, 8, limits=(PER_USER,)), workload(_three_users()))
    with pytest.raises(InfeasibleActionError, match=r"QOSMaxGRESPerUser: alice holds 2 of 3 GPUs"):
        drive(Exceeds(), world)


@pytest.mark.parametrize(
    "rule",
    [
        PER_USER,
        LimitRule("x", "jobs", 1, (("user", "alice"),)),
        LimitRule("x", "gpu_time", GPU_SECOND),
        LimitRule("x", "running_gpu_time", 300 * GPU_SECOND),
        LimitRule("x", "submitted", 2),
        LimitRule("x", "gpus", 2000, per=("job",)),
        LimitRule("x", "gpus", 2000, per=("job",), least=True),
        LimitRule("x", "gpus_per_node", 2000, per=("job",)),
        LimitRule("x", "gpu_time", GPU_SECOND, half_life=1000 * SECOND),
    ],
)
def test_the_audit_finds_a_start_beyond_a_limit(rule: LimitRule) -> None:
    free = World(uniform(1, 16), workload(_three_users()))
    run = drive("fifo", free)
    found = audit(replace(free.cluster, limits=(rule,)), free.jobs, run.tape, complete=True)
    assert {finding.rule for finding in found} == {"limit"}
    assert str(rule) in found[0].text


def test_the_audit_excuses_a_job_that_waits_at_the_end_only_if_a_limit_holds_it_back() -> None:
    rules = (LimitRule("used", "gpu_time", 4 * GPU_SECOND), LimitRule("used", "gpu_time", 400 * GPU_SECOND))
    world = World(uniform(1, 8, limits=rules[:1]), workload([job(0, 4, 1), job(5, 1, 1)]))
    run = drive("fifo", world)
    assert audit(world.cluster, world.jobs, run.tape, complete=True) == []
    found = audit(replace(world.cluster, limits=rules[1:]), world.jobs, run.tape, complete=True)
    assert [(finding.rule, finding.text) for finding in found] == [("end", "job 1 waits at the end of the tape")]


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_draft_leaves_the_counters_as_they_were(data: st.DataObject) -> None:
    rules = data.draw(limits())
    jobs = workload(
        replace(job(n, 30, 1, estimate=50 * SECOND), user="uv"[n % 2], qos="long", tenant="xy"[n % 2]) for n in range(8)
    )
    world = World(uniform(1, 8, limits=rules), jobs)
    run = drive("fifo", world)
    state = state_at(world.cluster, jobs, run.tape, 10 * SECOND, build("fifo"))
    before = digest(state)
    with state.draft() as draft:
        for js in list(state.running.values()):
            draft.release(js)
        for js in list(state.jobs.values()):
            if js.id not in state.running and (place := build("fifo").placement.place(state.pool, js)) is not None:
                draft.start(js, place)
                break
    assert digest(state) == before


# --- other limits from a moment on ------------------------------------------------------------------------------------


def test_a_run_goes_on_under_other_limits_with_what_was_used() -> None:
    rules = (PER_USER, LimitRule("used", "gpu_time", 10_000 * GPU_SECOND))
    world = World(uniform(1, 8, limits=rules), workload(_three_users()))
    run = drive("fifo", world)
    now = 50 * SECOND
    state = state_at(world.cluster, world.jobs, run.tape, now, build("fifo"))
    assert list(state.queue.aside)
    used = _levels(state, now)
    raised = replace(world.cluster, limits=(replace(PER_USER, most=9000), rules[1]))
    policy = renewed(build("fifo"), build("fifo"))
    moved, _ = transferred(now, state, raised, policy)
    assert not moved.queue.aside
    assert [id for _, id in moved.queue.in_order()] == [1]
    assert _levels(moved, now) == {of: level for of, level in used.items() if level}
    lifted, _ = transferred(now, moved, replace(raised, limits=()), renewed(policy, build("fifo")))
    assert lifted.limits is None
    assert all(js.limits is None for js in lifted.jobs.values())


def _levels(state: TrainingState, now: int) -> dict[tuple[str, tuple[str, ...]], int]:
    assert state.limits is not None
    return {(each.rule.name, each.of): each.level(now) for each in state.limits.counters.values()}


# --- against a plain simulation -----------------------------------------------------------------------------------


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Cluster, tuple[Job, ...]]:
    count = draw(st.integers(1, 10))
    made = [
        job(
            draw(st.integers(0, 30)),
            draw(st.integers(1, 30)),
            draw(st.integers(1, 4)),
            user=draw(st.sampled_from("uv")),
            qos=draw(st.sampled_from(["long", "short"])),
            tenant=draw(st.sampled_from("xa")),
            estimate=draw(st.sampled_from([30, 60])) * SECOND,
        )
        for _ in range(count)
    ]
    rules = tuple(replace(rule, half_life=0) for rule in draw(limits()) if rule.resource != "submitted")
    assume(rules)
    tenants = (Tenant("top"), Tenant("a", parent="top"), Tenant("x"))
    return uniform(1, 4, tenants=tenants, limits=rules), workload(made)


@pytest.mark.parametrize("strict", [True, False])
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(_cases())
def test_starts_are_those_of_a_plain_simulation_that_sums_up_everything(
    strict: bool, case: tuple[Cluster, tuple[Job, ...]]
) -> None:
    cluster, jobs = case
    run = drive("fifo" if strict else "fifo+fit", World(cluster, jobs))
    assert {number: round(time * SECOND) for number, time in starts(run).items()} == _plain(cluster, jobs, strict)


def _plain(cluster: Cluster, jobs: Sequence[Job], strict: bool) -> dict[int, int]:
    """Start times on one node, first come first served: every second everything is summed up anew."""
    parents = {tenant.name: tenant.parent for tenant in cluster.tenants}
    started: dict[int, int] = {}
    for second in range(600):
        now = second * SECOND
        while True:
            running = [each for each in jobs if each.id in started and started[each.id] + each.work > now]
            free = cluster.gpus - sum(each.gpus for each in running)
            for each in jobs:
                if each.id in started or each.submit > now or _stops(cluster, jobs, started, parents, each, now):
                    continue
                if each.gpus <= free:
                    started[each.id] = now
                    break
                if strict:
                    break
            else:
                break
            if each.id not in started:
                break
    return started


def _stops(
    cluster: Cluster, jobs: Sequence[Job], started: dict[int, int], parents: dict[str, str], mine: Job, now: int
) -> bool:
    """Whether a limit stops a job, by adding up all jobs that ever started."""
    for rule in applying(cluster.limits, mine, parents):
        resource, _, kind = rule.resource.partition(":")
        if resource == "ageing":
            continue
        if rule.least or resource.endswith("_per_node"):
            asked = {"gpus": mine.width_milli, "nodes": 1}.get(resource.removesuffix("_per_node"), 0)
            if kind and mine.gpu_types != (kind,):
                asked = 0
            if (asked < rule.most) if rule.least else asked > rule.most:
                return True
            continue
        held = 0
        for each in [*(other for other in jobs if other.id in started), mine]:
            alike = all(getattr(each, _FIELD[key]) == getattr(mine, _FIELD[key]) for key in rule.per)
            if (
                rule not in chosen_by(cluster.limits, each, parents)
                or not alike
                or (kind and each.gpu_types != (kind,))
            ):
                continue
            begin, end = (started[each.id], started[each.id] + each.work) if each is not mine else (now, now + 1)
            width = each.width_milli if "gpu" in resource else each.cpu_milli
            runs = begin <= now < end
            left = max(0, begin + each.estimate - now) if runs else 0
            if resource in ("gpu_time", "cpu_time"):
                held += width * (min(now, end) - begin) + (width * left if rule.ahead else 0)
            elif resource.startswith("running_"):
                held += width * left
            elif resource == "wall":
                held += each.estimate if each is mine else 0
            elif runs:
                held += {"gpus": width, "cpus": width, "memory": each.memory_bytes}.get(resource, 1)
        if resource == "nodes":
            held = min(held, 2)  # there is one node, and mine counts as if it needed another
        if resource in ("gpu_time", "cpu_time"):
            width = mine.width_milli if resource == "gpu_time" else mine.cpu_milli
            if width and held + rule.used + (0 if rule.ahead else 1) > rule.most:
                return True
        elif held > rule.most and _wants(resource, kind, mine):
            return True
    return False


_FIELD = {"user": "user", "account": "tenant", "qos": "qos", "partition": "partition", "job": "id"}


def _wants(resource: str, kind: str, mine: Job) -> bool:
    if kind:
        return mine.gpu_types == (kind,)
    return resource not in ("cpus", "memory", "running_cpu_time")


def test_the_classes_of_limits_are_found_once() -> None:
    limits_of = Limits(uniform(1, 8, limits=(PER_USER,)))
    first, again, other, none = (
        limits_of.class_of(Job(n, 0, 1, gpus, user="u", qos=qos))
        for n, (gpus, qos) in enumerate([(1, "long"), (1, "long"), (2, "long"), (1, "short")])
    )
    assert first is again
    assert other is not first
    assert none is None


def test_run_time_counts_whatever_a_job_holds() -> None:
    rule = LimitRule("GrpWall", "wall_time", 100 * GPU_SECOND, per=("account",))
    jobs = [job(0, 60, 1, tenant="a"), job(0, 60, 4, tenant="a"), job(70, 10, 1, tenant="a"), job(70, 10, tenant="b")]
    assert starts(ran("fifo+fit", jobs, rule)) == {0: 0, 1: 0, 3: 70}  # 120 of 100 seconds are used


def test_what_the_running_jobs_of_one_user_may_still_use_is_limited() -> None:
    rule = LimitRule("RunMins", "running_gpu_time", 100 * GPU_SECOND, per=("user",))
    jobs = [job(0, 50, 2, user="u"), job(0, 50, 1, user="u"), job(0, 50, 2, user="v")]
    assert starts(ran("fifo+fit", jobs, rule)) == {0: 0, 1: 25, 2: 0}  # at 25 the first may still use 50
