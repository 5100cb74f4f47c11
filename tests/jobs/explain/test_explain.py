"""Why a job waits: for every instant of waiting, taking away the causes that are named admits the job."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from headway.jobs.audit.replay import Walk
from headway.jobs.explain.explain import why_waiting
from headway.jobs.model.causes import Cause, CauseKind
from headway.jobs.model.cluster import Cluster, Level, Node, Partition, Tenant, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.speed import SpeedModel
from headway.jobs.policies.registry import BACKFILLS, build
from headway.units import SECOND
from tests.drive import World, digest, drive, fresh_state, seconds_of, state_at
from tests.jobs.counterfactual import admits
from tests.strategies import limited, specs, worlds


def walked(spec: str, world: World, round_length: int = 0) -> Walk:
    """A run of a policy, about to be walked again."""
    run = drive(build(spec, round_length=round_length), world)
    speed = SpeedModel(world.cluster, sharing_penalty_ppm=world.sharing_penalty_ppm)
    policy = build(spec, round_length=round_length)
    return Walk(world.cluster, world.jobs, run.tape, policy, asking=True, speed=speed, costs=world.costs)


@pytest.mark.parametrize("backfill", sorted(BACKFILLS))
@settings(max_examples=60)
@given(st.data())
def test_taking_away_the_causes_admits_the_job(backfill: str, data: st.DataObject) -> None:
    world = data.draw(worlds())
    spec = data.draw(specs(backfill=backfill, cluster=world.cluster))
    # This one predicts anew when a job starts, and may stop at once what it has just started.
    walk = walked(spec, world, data.draw(st.sampled_from([0, 0, 0, 7 * SECOND])))
    for step in walk:
        walk.act()
        for _, job in list(walk.state.queue.in_order()):
            causes = why_waiting(step.time, walk.state, walk.policy, walk.state.jobs[job])
            assert admits(step.time, walk.state, walk.policy, job, causes), (step.time, job, causes)


@pytest.mark.parametrize("backfill", sorted(BACKFILLS))
@settings(max_examples=40)
@given(st.data())
def test_taking_away_the_limits_and_the_other_causes_admits_a_job(backfill: str, data: st.DataObject) -> None:
    world = data.draw(limited())
    walk = walked(data.draw(specs(backfill=backfill, cluster=world.cluster)), world)
    for step in walk:
        walk.act()
        for js in [each for each in walk.state.jobs.values() if each.id not in walk.state.running]:
            causes = why_waiting(step.time, walk.state, walk.policy, js)
            held_back = js.lane in walk.state.queue.aside
            assert held_back == any(cause.kind is CauseKind.LIMIT for cause in causes), (step.time, js.id, causes)
            assert admits(step.time, walk.state, walk.policy, js.id, causes), (step.time, js.id, causes)


@settings(max_examples=40)
@given(worlds(), specs())
def test_asking_why_changes_neither_the_state_nor_what_the_policy_does_next(world: World, spec: str) -> None:
    walk = walked(spec, world)  # ``asking``: it raises if the policy strays from the tape
    for step in walk:
        walk.act()
        before = digest(walk.state)
        for _, job in list(walk.state.queue.in_order()):
            why_waiting(step.time, walk.state, walk.policy, walk.state.jobs[job])
        assert digest(walk.state) == before


def causes_at(spec: str, cluster: Cluster, jobs: tuple[Job, ...], second: float, job: int) -> tuple[Cause, ...]:
    """Why a job waits at a time of a run; checked to be enough, and without any one of them too little."""
    now = round(second * SECOND)
    run = drive(spec, World(cluster, jobs))
    policy = build(spec)
    walk = Walk(cluster, jobs, run.tape.until(now), policy, asking=True)
    for _ in walk:
        pass
    state = walk.state
    causes = why_waiting(now, state, policy, state.jobs[job])
    assert admits(now, state, policy, job, causes)
    for cause in causes:
        assert not admits(now, state, policy, job, [other for other in causes if other is not cause]), cause
    return causes


def kinds(causes: tuple[Cause, ...]) -> list[str]:
    return [cause.title for cause in causes]


def test_a_full_cluster_is_a_lack_of_capacity() -> None:
    causes = causes_at("fifo", uniform(1, 4), seconds_of((0, 10, 3), (1, 10, 2)), 1, 1)
    assert kinds(causes) == ["capacity"]
    assert causes[0].facts == {"wanted_milli": 2000, "free_milli": 1000}


def test_scattered_gpus_are_fragmentation_at_the_outermost_level_that_has_too_few() -> None:
    nodes = tuple(Node(f"n{i}", 2, path=(f"rack{i // 2}",)) for i in range(4))
    cluster = Cluster(nodes, (Level("rack"), Level("node")))
    busy = [Job(0, 0, 10 * SECOND, 1, partition=f"p{i}") for i in range(4)]
    walls = tuple(Partition(f"p{i}", (i,)) for i in range(4))
    jobs = workload([*busy, Job(0, SECOND, SECOND, 2)])
    assert kinds(causes_at("fifo", replace(cluster, partitions=walls), jobs, 1, 4)) == ["fragmentation at node"]
    apart = tuple(replace(node, path=(f"rack{i}",)) for i, node in enumerate(nodes))
    assert kinds(causes_at("fifo", Cluster(apart, cluster.levels, walls), jobs, 1, 4)) == ["fragmentation at rack"]


@pytest.mark.parametrize(("busy", "told"), [(3, "1 of the 2 nodes that it needs has 2"), (4, "0 of the 2 nodes that")])
def test_a_job_of_several_nodes_says_how_many_of_them_there_are(busy: int, told: str) -> None:
    walls = tuple(Partition(f"p{i}", (i,)) for i in range(4))
    ahead = [Job(0, 0, 10 * SECOND, 1, partition=f"p{i}") for i in range(busy)]
    jobs = workload([*ahead, Job(0, SECOND, SECOND, 4, nodes=2)])
    causes = causes_at("fifo", replace(uniform(4, 2), partitions=walls), jobs, 1, busy)
    assert told in " ".join(cause.text for cause in causes)


def test_a_placement_that_wants_one_rack_lacks_one_rack() -> None:
    nodes = tuple(Node(f"n{i}", 2, path=(f"rack{i // 2}",)) for i in range(4))
    walls = tuple(Partition(f"p{i}", (i,)) for i in range(4))
    cluster = Cluster(nodes, (Level("rack"), Level("node")), walls)
    busy = [Job(0, 0, 10 * SECOND, 1, partition=f"p{i}") for i in (0, 2)]
    jobs = workload([*busy, Job(0, SECOND, SECOND, 4)])
    assert kinds(causes_at("fifo+consolidate(up_to=rack)", cluster, jobs, 1, 2)) == ["fragmentation at rack"]


def test_jobs_within_a_guarantee_that_a_wide_one_holds_back_count_as_ahead() -> None:
    cluster = uniform(1, 3, tenants=(Tenant("a", 1, 1, None, True), Tenant("b", 1, None, 3)))
    share = Job(0, 0, 16 * SECOND, gpu_milli=100, tenant="b")
    wide = [Job(0, SECOND, SECOND, 3, tenant=tenant) for tenant in "ba"]
    jobs = workload([share, *wide, replace(share, submit=SECOND)])
    for placement in ("best-fit", "fgd"):
        walk = walked(f"fifo+conservative+{placement}", World(cluster, jobs))
        for step in walk:
            walk.act()
            if step.time == SECOND:
                causes = why_waiting(step.time, walk.state, walk.policy, walk.state.jobs[2])
                assert [cause.facts.get("ahead") for cause in causes if cause.kind is CauseKind.ORDER] == [2]
                assert admits(step.time, walk.state, walk.policy, 2, causes)


def test_a_share_waits_for_one_gpu_with_enough_left() -> None:
    halves = [Job(0, 0, 10 * SECOND, gpu_milli=600) for _ in range(2)]
    jobs = workload([*halves, Job(0, SECOND, SECOND, gpu_milli=700)])
    assert kinds(causes_at("fifo", uniform(1, 2), jobs, 1, 2)) == ["fragmentation at gpu"]


def test_a_strict_queue_holds_back_what_would_fit() -> None:
    jobs = seconds_of((0, 10, 3), (1, 10, 2), (2, 1, 1))
    causes = causes_at("fifo", uniform(1, 4), jobs, 2, 2)
    assert kinds(causes) == ["head-of-line"]
    assert causes[0].jobs == (1,)


def test_a_reservation_holds_back_what_would_delay_it() -> None:
    jobs = seconds_of((0, 10, 3), (1, 10, 4), (2, 100, 1))
    for backfill in ("easy", "conservative"):
        causes = causes_at(f"fifo+{backfill}", uniform(1, 4), jobs, 2, 2)
        assert kinds(causes) == ["reservation"]
        assert causes[0].jobs == (1,)


def test_a_quota_keeps_out_what_would_fit() -> None:
    cluster = uniform(1, 4, tenants=(Tenant("a", guaranteed_gpus=2), Tenant("b", guaranteed_gpus=2)))
    jobs = workload([Job(0, 0, 10 * SECOND, 2, tenant="a"), Job(0, 1, SECOND, 1, tenant="a")])
    causes = causes_at("fifo+fit", cluster, jobs, 1, 1)
    assert kinds(causes) == ["quota"]
    assert causes[0].facts["held_milli"] == 2000


def test_gpus_without_cpus_are_no_use() -> None:
    cluster = uniform(1, 4, cpus_per_node=8)
    jobs = workload([Job(0, 0, 10 * SECOND, 1, cpu_milli=6000), Job(0, 1, SECOND, 1, cpu_milli=4000)])
    assert kinds(causes_at("fifo", cluster, jobs, 1, 1)) == ["host"]


def test_between_rounds_nobody_starts() -> None:
    world = World(uniform(1, 4), seconds_of((1, 1, 1)))
    policy = build("fifo", round_length=5 * SECOND)
    run = drive(policy, world)
    asked = build("fifo", round_length=5 * SECOND)
    state = state_at(world.cluster, world.jobs, run.tape, SECOND, asked)
    causes = why_waiting(SECOND, state, asked, state.jobs[0])
    assert [cause.kind for cause in causes] == [CauseKind.ROUND]
    assert causes[0].facts == {"next": 5 * SECOND}
    assert admits(SECOND, state, asked, 0, causes)
    assert not admits(SECOND, state, asked, 0, ())


def test_nodes_that_are_down_are_named_when_they_would_do() -> None:
    from headway.jobs.model.events import JobArrived, NodeFailed

    world = World(uniform(2, 4), seconds_of((0, 10, 4), (0, 10, 4)))
    policy = build("fifo")
    state = fresh_state(policy, world)
    state.apply(0, NodeFailed(0))
    for job in world.jobs:
        state.apply(0, JobArrived(job))
    for action in policy.decide(0, state):
        state.commit(0, action)
    causes = why_waiting(0, state, policy, state.jobs[1])
    assert kinds(causes) == ["nodes-down"]
    assert admits(0, state, policy, 1, causes)
