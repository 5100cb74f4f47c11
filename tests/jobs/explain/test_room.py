"""What would make room: every answer can be done action by action, and none is missed where all can be tried."""

from copy import copy, deepcopy
from itertools import combinations

from hypothesis import given, settings

from headway.jobs.audit.replay import Walk
from headway.jobs.explain.room import Opening, by_moves, by_preemption
from headway.jobs.model.actions import MigrateJob, PreemptJob
from headway.jobs.model.cluster import Partition, Tenant, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.preemption.victims import fits
from headway.jobs.policies.registry import build
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.drive import World, digest, drive, seconds_of, state_at
from tests.strategies import specs, worlds


def done(state: TrainingState, opening: Opening) -> TrainingState:
    """A copy of the state in which all the actions were done; each had to be possible."""
    world = deepcopy(state, {id(state.cluster): state.cluster})
    for action in opening.actions:
        assert world.check(action) is None, action
        world.commit(0, action)
    return world


def fewest(state: TrainingState, js: JobState, rule: PlacementRule) -> int | None:
    """How many jobs have to be preempted at least, by trying all sets of them."""
    running = [each for each in state.running.values() if each.job.preemptible]
    for count in range(1, len(running) + 1):
        for chosen in combinations(running, count):
            with state.draft() as draft:
                for each in chosen:
                    draft.release(each)
                if fits(state, js, copy(rule)) is not None:
                    return count
    return None


@settings(max_examples=60)
@given(worlds(max_jobs=8), specs())
def test_what_makes_room_can_be_done_and_none_is_missed(world: World, spec: str) -> None:
    tape = drive(spec, world).tape
    walk = Walk(world.cluster, world.jobs, tape, build(spec), speed=world.speed(), costs=world.costs)
    for _ in walk:
        walk.act()
        state, rule = walk.state, copy(walk.policy.placement)
        before = digest(state)
        for _, job in list(state.queue.in_order()):
            js = state.jobs[job]
            if fits(state, js, rule) is not None:
                continue
            preempted, moved = by_preemption(state, js, rule), by_moves(state, js, rule)
            for opening in (*preempted, *moved):
                assert opening.steps
                assert job in done(state, opening).running
            assert all(isinstance(action, PreemptJob) for opening in preempted for action in opening.steps)
            assert all(isinstance(action, MigrateJob) for opening in moved for action in opening.steps)
            least = fewest(state, js, rule)
            assert bool(preempted) == (least is not None)
            if least is not None and rule.needs_one_node(state.pool, js) and not (js.cpu_milli or state.quotas):
                shares = any(each.gpu_milli < 1000 for each in state.running.values())
                assert shares or len(preempted[0].jobs) == least
        assert digest(state) == before


def at(spec: str, world: World, second: float, job: int) -> tuple[TrainingState, JobState, PlacementRule]:
    tape = drive(spec, world).tape
    policy = build(spec)
    state = state_at(world.cluster, world.jobs, tape, round(second * SECOND), policy, costs=world.costs)
    return state, state.jobs[job], policy.placement


def test_the_fewest_jobs_are_preempted_and_cheaper_ones_are_offered_too() -> None:
    # one wide job whose checkpoint is dear, four narrow ones that are cheap
    dear = Job(0, 0, 100 * SECOND, 4, checkpoint=60 * SECOND)
    cheap = [Job(0, 0, 100 * SECOND, 1, checkpoint=SECOND) for _ in range(4)]
    jobs = workload([dear, *cheap, Job(0, SECOND, SECOND, 4)])
    few, less = by_preemption(*at("fifo", World(uniform(2, 4), jobs), 1, 5))
    assert (few.jobs, few.cost) == ((0,), 4000 * 60 * SECOND)
    assert (len(less.jobs), less.cost) == (4, 4000 * SECOND)


def test_scattered_gpus_are_gathered_by_one_move_unless_walls_forbid_it() -> None:
    # two jobs that ended have left half of each of two nodes; a job wants a whole one
    parts = ((10, 2), (100, 2), (100, 2), (10, 2))
    world = World(uniform(2, 4), seconds_of(*((0, work, gpus) for work, gpus in parts), (5, 10, 4)))
    (opening,) = by_moves(*at("fifo", world, 20, 4))
    assert len(opening.jobs) == 1
    walls = (Partition("left", (0,)), Partition("right", (1,)))
    walled = [Job(0, 0, work * SECOND, gpus, partition=walls[i // 2].name) for i, (work, gpus) in enumerate(parts)]
    apart = World(uniform(2, 4, partitions=walls), workload([*walled, Job(0, 5 * SECOND, 10 * SECOND, 4)]))
    assert by_moves(*at("fifo", apart, 20, 4)) == []


def test_a_job_over_two_nodes_has_both_cleared() -> None:
    narrow = [Job(0, 0, (10 if i in (4, 5) else 100) * SECOND, 2) for i in range(6)]
    jobs = workload([*narrow, Job(0, SECOND, SECOND, 8, nodes=2)])
    state, js, rule = at("fifo", World(uniform(3, 4), jobs), 20, 6)
    (opening,) = by_preemption(state, js, rule)
    assert len(opening.jobs) == 2
    assert js.id in done(state, opening).running


def test_a_tenant_over_its_quota_makes_room_with_its_own_jobs_and_moves_do_not_help() -> None:
    cluster = uniform(2, 4, tenants=(Tenant("a", 1, 4), Tenant("b", 1, 4)))
    jobs = workload([Job(0, 0, 100 * SECOND, 4, tenant="a"), Job(0, SECOND, SECOND, 2, tenant="a")])
    state, js, rule = at("fifo", World(cluster, jobs), 1, 1)
    (opening,) = by_preemption(state, js, rule)
    assert opening.jobs == (0,)
    assert by_moves(state, js, rule) == []


def test_what_may_not_be_preempted_stays() -> None:
    jobs = workload([Job(0, 0, 100 * SECOND, 4, preemptible=False), Job(0, SECOND, SECOND, 2)])
    state, js, rule = at("fifo", World(uniform(1, 4), jobs), 1, 1)
    assert by_preemption(state, js, rule) == by_moves(state, js, rule) == []
