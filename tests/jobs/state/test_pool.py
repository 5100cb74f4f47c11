"""Free resources: ``take`` and ``give`` undo each other, and what is looked up is what a count would give."""

from hypothesis import given, settings, strategies as st

from headway.jobs.model.cluster import Cluster, Node, uniform
from headway.jobs.model.events import JobArrived
from headway.jobs.model.job import Job
from headway.jobs.model.rows import WORD_BITS, Kind, placement_rows
from headway.jobs.policies.registry import build
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Pool, host_share, members
from headway.jobs.state.state import TrainingState
from tests.drive import World, digest, fresh_state
from tests.strategies import worlds


def arrived(world: World) -> TrainingState:
    """A state in which everybody waits."""
    state = fresh_state(build("fifo+fit"), world)
    for job in world.jobs:
        state.apply(job.submit, JobArrived(job))
    return state


@given(world=worlds(faults=False))
@settings(max_examples=40)
def test_give_takes_back_what_take_did_in_any_order(world: World) -> None:
    state = arrived(world)
    pool, rule = state.pool, build("fifo").placement
    before = digest(state)
    taken = []
    for js in state.jobs.values():
        if (placement := rule.place(pool, js)) is not None:
            pool.take(js, placement)
            taken.append((js, placement))
    assert (digest(state) == before) == (not taken)
    for js, placement in taken[::2] + taken[1::2]:
        pool.give(js, placement)
    assert digest(state) == before


@given(world=worlds(faults=False), closed=st.sets(st.integers(0, 4)))
@settings(max_examples=40)
def test_lookups_are_what_a_count_gives(world: World, closed: set[int]) -> None:
    state = arrived(world)
    pool, rule = state.pool, build("fifo").placement
    count = len(world.cluster.nodes)
    for node in closed & set(range(count)):
        pool.set_schedulable(node, False)
        pool.set_schedulable(node, False)
    for js in state.jobs.values():
        if (placement := rule.place(pool, js)) is not None:
            assert not closed & {node for node, _ in placement}
            pool.take(js, placement)
    is_open = [node not in closed for node in range(count)]
    for eligible in (pool.everywhere, 1, pool.everywhere >> 1):
        nodes = [node for node in range(count) if eligible >> node & 1]
        assert pool.free_among(eligible) == sum(pool.free_count[node] for node in nodes if is_open[node])
        assert pool.largest_among(eligible) == max((pool.capacity[node] for node in nodes), default=0)
        for least in range(pool.largest + 1):
            expected = [node for node in nodes if is_open[node] and pool.free_count[node] >= least]
            assert list(members(pool.with_free(least, eligible))) == expected


def test_a_share_closes_its_gpu_to_whole_jobs_and_opens_it_again() -> None:
    pool = Pool(uniform(1, 2))
    half, third = (_job(Job(0, 0, 1, gpu_milli=milli)) for milli in (500, 300))
    pool.take(half, ((0, 0b10),))
    assert (pool.free_mask, pool.free_gpus, pool.shares) == ([0b01], 1, [{1: 500}])
    pool.take(third, ((0, 0b10),))
    assert (pool.shares, pool.sharing) == ([{1: 200}], 1)
    pool.give(half, ((0, 0b10),))
    pool.give(third, ((0, 0b10),))
    assert (pool.free_mask, pool.free_gpus, pool.shares, pool.sharing) == ([0b11], 2, [{}], 0)


def test_a_used_up_gpu_is_not_on_offer() -> None:
    pool = Pool(uniform(1, 1))
    pool.take(_job(Job(0, 0, 1, gpu_milli=600)), ((0, 1),))
    pool.take(_job(Job(0, 0, 1, gpu_milli=400)), ((0, 1),))
    assert pool.sharing == 0
    assert pool.shares == [{0: 0}]


@given(cpu_milli=st.integers(0, 10**6), gpus=st.integers(0, 64), data=st.data())
def test_parts_of_a_job_get_at_least_their_part_of_its_host(cpu_milli: int, gpus: int, data: st.DataObject) -> None:
    js = _job(Job(0, 0, 1, gpus, cpu_milli=cpu_milli + 1))
    first = data.draw(st.integers(0, gpus))
    parts = [host_share(js, count)[0] for count in (first, gpus - first)]
    if gpus:
        assert cpu_milli + 1 <= sum(parts) <= cpu_milli + 2
    else:
        assert parts == [cpu_milli + 1] * 2, "a job without GPUs has all of its host where it is"


@given(masks=st.lists(st.integers(1, 2**200 - 1), min_size=1, max_size=4))
def test_a_placement_of_any_size_can_be_put_together_again_from_its_rows(masks: list[int]) -> None:
    placement = tuple(enumerate(masks))
    rows = list(placement_rows(9, int(Kind.START), 3, 4, placement, 77))
    assert rows[0][:5] == (9, int(Kind.START), 3, 4, 0)
    assert rows[0][6] == 77
    found = [0] * len(masks)
    found[0] = rows[0][5]
    for row in rows[1:]:
        assert row[1] == Kind.PLACE
        assert 0 < row[5] < 2**WORD_BITS
        found[row[4]] |= row[5] << (WORD_BITS * row[6])
    assert found == masks


def test_nodes_without_gpus_can_be_there() -> None:
    pool = Pool(Cluster((Node("cpu", 0, cpu_milli=8000), Node("gpu", 4))))
    assert pool.free_gpus == 4
    assert list(members(pool.with_free(0, pool.everywhere))) == [0, 1]
    assert list(members(pool.with_free(1, pool.everywhere))) == [1]


def _job(job: Job) -> JobState:
    state = fresh_state(build("fifo"), World(uniform(1, 64), (job,)))
    state.apply(0, JobArrived(job))
    return state.jobs[0]
