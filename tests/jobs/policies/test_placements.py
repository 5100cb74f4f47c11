"""Placements: what each prefers, and what all have to agree on: whether a job fits, and that it can be done."""

from copy import copy

import pytest
from hypothesis import given, strategies as st

from headway.errors import ExperimentError
from headway.jobs.model.cluster import Cluster, Level, Node, Partition, uniform
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Placement
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.policies.placements.consecutive import Consecutive, runs
from headway.jobs.policies.placements.consolidate import Consolidate
from headway.jobs.policies.placements.fgd import Fgd
from headway.jobs.policies.placements.first_fit import FirstFit
from headway.jobs.policies.placements.fragmentation import FreeNode, Shape, fragmentation, shape_of, unusable_milli
from headway.jobs.policies.placements.random_fit import RandomFit
from headway.jobs.policies.placements.spread import Spread
from headway.jobs.policies.registry import PLACEMENTS, build, describe, options_of
from headway.jobs.state.feasible import placement_refusal
from headway.jobs.state.jobstate import Account, JobState
from headway.jobs.state.state import TrainingState

RULES: dict[str, PlacementRule] = {
    **{name: rule() for name, rule in PLACEMENTS.items()},
    "spread(split=true)": Spread(split=True),
    "consolidate(up_to=any)": Consolidate(up_to="any"),
    "fgd(typical)": Fgd(typical=("0.5:2", "1:3:4", "4:1:16:100GB")),
}


def state_of(cluster: Cluster) -> TrainingState:
    policy: ComposedPolicy = build("fifo")
    state = TrainingState(cluster, to_come=0, arrangement=policy)
    policy.bind(state)
    return state


def waiting(state: TrainingState, job: Job) -> JobState:
    return JobState(job, Account("t"), state.eligible(job.partition, job.gpu_types), 0)


def job(gpus: int = 1, number: int = 0, **fields: object) -> Job:
    return Job(number, 0, 1, gpus, **fields)  # type: ignore[arg-type]


def occupied(cluster: Cluster, *used: int) -> TrainingState:
    """A state in which the first GPUs of each node are in use, as many as given."""
    state = state_of(cluster)
    for node, count in enumerate(used):
        if count:
            state.pool.take(waiting(state, job(count)), ((node, (1 << count) - 1),))
    return state


def shape(placement: Placement | None) -> dict[int, int] | None:
    return None if placement is None else {node: mask.bit_count() for node, mask in placement}


# --- what all agree on ------------------------------------------------------------------------------------------------

TYPES = ("a", "b")


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Unlike nodes in two zones of racks, some with islands, some with CPUs and memory that are counted."""
    inner = draw(st.booleans())
    counted = draw(st.booleans())
    nodes = tuple(
        Node(
            name=f"n{index}",
            gpus=draw(st.integers(0, 8)),
            gpu_type=draw(st.sampled_from(TYPES)),
            cpu_milli=draw(st.none() | st.integers(0, 16_000)) if counted else None,
            memory_bytes=draw(st.none() | st.integers(0, 64)) if counted else None,
            path=(f"z{index // 4}", f"r{index // 2}"),
            island_gpus=(4, 2) if inner else (),
        )
        for index in range(draw(st.integers(1, 7)))
    )
    levels = (Level("zone"), Level("rack"), Level("node"), *((Level("half"), Level("pair")) if inner else ()))
    some = tuple(range(0, len(nodes), 2))
    return Cluster(nodes, levels, partitions=(Partition("even", some),))


@st.composite
def jobs(draw: st.DrawFn, number: int) -> Job:
    kind = draw(st.sampled_from(["share", "whole", "whole", "shaped", "cpu"]))
    host = (
        {"cpu_milli": draw(st.integers(0, 20_000)), "memory_bytes": draw(st.integers(0, 80))}
        if draw(st.booleans())
        else {}
    )
    where = {
        "partition": draw(st.sampled_from(["", "", "even"])),
        "gpu_types": draw(st.sampled_from([(), (), ("a",), ("a", "b")])),
    }
    if kind == "share":
        return job(1, number, gpu_milli=draw(st.sampled_from([100, 250, 500, 700, 999])), **host, **where)
    if kind == "cpu":
        return job(0, number, cpu_milli=draw(st.integers(1, 9_000)), nodes=draw(st.integers(0, 2)), **where)
    if kind == "shaped":
        nodes = draw(st.integers(1, 3))
        return job(nodes * draw(st.integers(1, 5)), number, nodes=nodes, **host, **where)
    return job(draw(st.integers(1, 24)), number, **host, **where)


@given(st.data())
def test_every_rule_finds_a_feasible_place_exactly_when_first_fit_does(data: st.DataObject) -> None:
    state = state_of(data.draw(clusters()))
    for node in data.draw(st.lists(st.integers(0, len(state.cluster.nodes) - 1), max_size=2)):
        state.pool.set_schedulable(node, False)
    judge = FirstFit()
    for number in range(data.draw(st.integers(1, 8))):
        js = waiting(state, data.draw(jobs(number)))
        wanted = judge.place(state.pool, js)
        found = {name: rule.place(state.pool, js) for name, rule in RULES.items()}
        for name, placement in found.items():
            assert placement is None or placement_refusal(state, js, placement) is None, name
            splits = name in ("spread(split=true)", "consolidate(up_to=any)")
            assert (placement is None) == (wanted is None) or (splits and wanted is None), name
        chosen = found[data.draw(st.sampled_from(sorted(found)))]
        if chosen is not None:
            state.pool.take(js, chosen)


@given(st.data())
def test_first_fit_finds_whatever_an_exhaustive_search_finds(data: st.DataObject) -> None:
    state = state_of(data.draw(clusters()))
    pool = state.pool
    for number in range(data.draw(st.integers(1, 4))):
        js = waiting(state, data.draw(jobs(number)))
        placement = FirstFit().place(pool, js)
        if placement is None:
            for node in range(len(pool.bits)):
                mask = pool.free_mask[node]
                if js.gpu_milli < 1000:
                    options = [((node, 1 << gpu),) for gpu in range(pool.capacity[node])]
                elif js.nodes <= 1 and mask.bit_count() >= js.gpus:
                    options = [((node, sum(sorted(1 << g for g in range(8) if mask >> g & 1)[: js.gpus])),)]
                else:
                    options = []
                assert all(placement_refusal(state, js, option) is not None for option in options)
        else:
            pool.take(js, placement)


@pytest.mark.parametrize("name", RULES)
def test_asking_changes_nothing(name: str) -> None:
    state = occupied(uniform(4, 8), 3, 0, 8, 5)
    before = (list(state.pool.free_mask), list(state.pool.buckets), state.pool.free_gpus)
    js = waiting(state, job(2, 7))
    assert RULES[name].place(state.pool, js) == RULES[name].place(state.pool, js)
    assert before == (state.pool.free_mask, state.pool.buckets, state.pool.free_gpus)


@pytest.mark.parametrize("name", ["first-fit", "best-fit", "consecutive", "spread", "consolidate", "fgd", "random"])
def test_a_job_that_one_empty_node_could_hold_is_never_split(name: str) -> None:
    state = occupied(uniform(2, 8), 5, 5)
    assert RULES[name].place(state.pool, waiting(state, job(4))) is None
    assert shape(RULES[name].place(state.pool, waiting(state, job(3)))) in ({0: 3}, {1: 3})


def test_a_job_that_only_lacks_cpus_on_one_node_is_divided_over_two() -> None:
    state = state_of(uniform(2, 8, cpus_per_node=10))
    js = waiting(state, job(4, cpu_milli=16_000))
    for name, rule in RULES.items():
        placement = rule.place(state.pool, js)
        assert placement is not None, name
        assert placement_refusal(state, js, placement) is None, name
        assert len(placement) == 2, name


# --- what each prefers ------------------------------------------------------------------------------------------------


def test_each_rule_has_its_own_node() -> None:
    state = occupied(uniform(4, 8), 4, 6, 0, 5)
    two = waiting(state, job(2))
    assert shape(FirstFit().place(state.pool, two)) == {0: 2}
    assert shape(BestFit().place(state.pool, two)) == {1: 2}
    assert shape(Spread().place(state.pool, two)) == {2: 2}
    assert shape(Spread(split=True).place(state.pool, waiting(state, job(6)))) == {0: 1, 2: 5}


def test_larger_jobs_go_over_nodes_in_order_or_over_as_few_as_possible() -> None:
    state = occupied(uniform(4, 8), 4, 0, 6, 0)
    wide = waiting(state, job(18))
    assert shape(FirstFit().place(state.pool, wide)) == {0: 4, 1: 8, 2: 2, 3: 4}
    assert shape(BestFit().place(state.pool, wide)) == {1: 8, 3: 8, 2: 2}
    assert shape(Spread().place(state.pool, wide)) == {1: 8, 3: 8, 0: 2}


@given(st.integers(0, (1 << 40) - 1))
def test_runs_are_the_longest_stretches_of_neighbours(nodes: int) -> None:
    found = list(runs(nodes))
    assert sum(found) == nodes
    assert found == sorted(found)
    texts = [text for text in f"{nodes:b}"[::-1].split("0") if text]
    assert [run.bit_count() for run in found] == [len(text) for text in texts]


def test_consecutive_takes_the_shortest_run_that_is_enough() -> None:
    state = occupied(uniform(9, 4), 0, 0, 0, 4, 2, 4, 0, 0, 4)  # runs of three, one and two nodes
    place = Consecutive().place
    assert shape(place(state.pool, waiting(state, job(2)))) == {4: 2}
    assert shape(place(state.pool, waiting(state, job(4)))) == {6: 4}  # node 4 has two left
    assert shape(place(state.pool, waiting(state, job(8, nodes=2)))) == {6: 4, 7: 4}
    assert shape(place(state.pool, waiting(state, job(12, nodes=3)))) == {0: 4, 1: 4, 2: 4}
    assert shape(place(state.pool, waiting(state, job(16, nodes=4)))) == {0: 4, 1: 4, 2: 4, 6: 4}
    assert place(state.pool, waiting(state, job(24, nodes=6))) is None
    assert shape(place(state.pool, waiting(state, job(10)))) == {0: 4, 1: 4, 2: 2}  # over as many as it takes


def test_consecutive_takes_the_first_of_runs_that_are_equal() -> None:
    state = occupied(uniform(5, 4), 4, 1, 4, 0, 4)
    assert shape(Consecutive().place(state.pool, waiting(state, job(1)))) == {1: 1}


def test_consecutive_takes_nodes_of_lower_weight_first() -> None:
    cluster = Cluster(tuple(Node(f"n{index}", 4, weight=weight) for index, weight in enumerate((5, 5, 1, 1, 1))))
    state, place = state_of(cluster), Consecutive().place
    assert shape(place(state.pool, waiting(state, job(2)))) == {2: 2}  # two heavier ones would be a shorter run
    assert shape(place(state.pool, waiting(state, job(16, nodes=4)))) == {2: 4, 3: 4, 4: 4, 0: 4}


def test_shares_go_to_the_first_the_fullest_or_the_emptiest_gpu() -> None:
    state = state_of(uniform(2, 2))
    for number, (node, gpu, milli) in enumerate([(0, 0, 300), (1, 1, 600)]):
        state.pool.take(waiting(state, job(1, number, gpu_milli=milli)), ((node, 1 << gpu),))
    share = waiting(state, job(1, 9, gpu_milli=400))
    assert FirstFit().place(state.pool, share) == ((0, 1),)
    assert BestFit().place(state.pool, share) == ((1, 2),)
    assert Spread().place(state.pool, share) == ((0, 2),)


def test_random_reaches_every_node_and_depends_on_the_seed_and_the_job_alone() -> None:
    state = occupied(uniform(4, 8), 0, 8, 0, 0)
    places = [RandomFit().place(state.pool, waiting(state, job(2, number))) for number in range(60)]
    assert {node for place in places if place for node, _ in place} == {0, 2, 3}
    assert places[10:] == [RandomFit().place(state.pool, waiting(state, job(2, number))) for number in range(10, 60)]
    assert places != [RandomFit(seed=1).place(state.pool, waiting(state, job(2, number))) for number in range(60)]


RACKS = [("zone", 4), ("rack", 2)]


def test_consolidate_takes_the_smallest_domain_then_the_fullest_of_its_kind() -> None:
    state = occupied(uniform(8, 8, nodes_per_group=RACKS), 0, 0, 1, 0, 2, 2, 0, 0)
    assert shape(Consolidate().place(state.pool, waiting(state, job(4)))) == {4: 4}
    assert shape(Consolidate().place(state.pool, waiting(state, job(12)))) == {4: 6, 5: 6}
    assert shape(Consolidate().place(state.pool, waiting(state, job(16)))) == {0: 8, 1: 8}
    assert shape(Consolidate().place(state.pool, waiting(state, job(26)))) == {6: 8, 7: 8, 4: 6, 5: 4}
    assert shape(Consolidate().place(state.pool, waiting(state, job(12, nodes=2)))) == {4: 6, 5: 6}


def test_consolidate_prefers_a_full_island_to_a_full_node() -> None:
    state = state_of(uniform(2, 8, island_gpus=(4,)))
    state.pool.take(waiting(state, job(4)), ((0, 0b00110011),))
    assert Consolidate().place(state.pool, waiting(state, job(3))) == ((1, 0b00000111),)
    assert BestFit().place(state.pool, waiting(state, job(3))) == ((0, 0b01001100),)
    assert Consolidate().place(state.pool, waiting(state, job(2))) == ((0, 0b00001100),)


def test_consolidate_waits_or_spreads_as_up_to_says() -> None:
    state = occupied(uniform(4, 8, nodes_per_group=RACKS), 5, 5, 3, 5)
    four, nine = waiting(state, job(4)), waiting(state, job(9))
    assert shape(Consolidate().place(state.pool, four)) == {2: 4}
    assert shape(Consolidate(up_to="any").place(state.pool, nine)) == {2: 5, 0: 3, 1: 1}
    assert Consolidate(up_to="rack").place(state.pool, nine) is None
    six = waiting(state, job(6))
    assert Consolidate().place(state.pool, six) is None
    assert shape(Consolidate(up_to="rack").place(state.pool, six)) == {0: 3, 1: 3}
    with pytest.raises(ExperimentError, match="unknown level"):
        Consolidate(up_to="row").place(state.pool, four)
    with pytest.raises(ExperimentError, match="from the node outwards"):
        Consolidate(up_to="island").place(state_of(uniform(1, 8, island_gpus=(4,))).pool, four)


# --- fragmentation gradient descent -----------------------------------------------------------------------------------


def test_what_a_typical_job_cannot_use_follows_the_paper() -> None:
    node = FreeNode(whole=2, parts_milli=(300, 700), cpu_milli=4000)
    assert unusable_milli(node, Shape(1, 500)) == 300
    assert unusable_milli(node, Shape(1, 800)) == 1000
    assert unusable_milli(node, Shape(2)) == 1000
    assert unusable_milli(node, Shape(3)) == 3000
    assert unusable_milli(node, Shape(1, cpu_milli=5000)) == 3000
    assert unusable_milli(FreeNode(0, (300, 400)), Shape(1, 500)) == 700


def test_fragmentation_is_the_share_of_free_gpus_that_is_expected_to_be_unusable() -> None:
    nodes = [FreeNode(4), FreeNode(1, (500,))]
    assert fragmentation(nodes, [(Shape(4), 1)]) == pytest.approx(1500 / 5500)
    assert fragmentation(nodes, [(Shape(4), 1), (Shape(1), 3)]) == pytest.approx((1500 + 3 * 500) / (4 * 5500))
    assert fragmentation(nodes, [(Shape(1, eligible=0b10), 1)]) == pytest.approx(4500 / 5500)
    assert fragmentation([FreeNode(0)], [(Shape(1), 1)]) == 0.0
    assert fragmentation(nodes, []) == 0.0


def test_a_job_over_several_nodes_counts_with_its_part_on_one() -> None:
    state = state_of(uniform(4, 8))
    assert shape_of(waiting(state, job(16, nodes=4, cpu_milli=8000)), 8).gpus == 4
    assert shape_of(waiting(state, job(16, nodes=4, cpu_milli=8000)), 8).cpu_milli == 2000
    assert shape_of(waiting(state, job(20)), 8).gpus == 8


def free_nodes(state: TrainingState) -> list[FreeNode]:
    pool = state.pool
    parts = [tuple(sorted(free for free in shares.values() if free)) for shares in pool.shares]
    counts = zip(pool.free_count, parts, pool.cpu_free, pool.memory_free, strict=True)
    return [FreeNode(*fields) for fields in counts]


@given(st.data())
def test_fgd_never_adds_more_fragmentation_than_another_rule(data: st.DataObject) -> None:
    """The greedy step is optimal: of all places for a job on one node it has the least of the exact measure."""
    typical = [(Shape(1, 500), 2), (Shape(1, cpu_milli=4000), 3), (Shape(4, 1000, 16_000, 10), 1)]
    fgd = Fgd(typical=("0.5:2", "1:3:4", "4:1:16:10"))
    state = state_of(uniform(4, 6, cpus_per_node=24, memory_per_node_bytes=64))
    for number in range(data.draw(st.integers(1, 12))):
        gpus = data.draw(st.sampled_from([0, 1, 1, 2, 4, 6]))
        milli = data.draw(st.sampled_from([250, 500, 1000])) if gpus == 1 else 1000
        js = waiting(state, job(gpus, number, gpu_milli=milli, cpu_milli=data.draw(st.integers(1, 9)) * 1000))
        lost = {}
        for name in ("first-fit", "best-fit", "spread", "random", "fgd"):
            placement = (fgd if name == "fgd" else RULES[name]).place(state.pool, js)
            if placement is not None:
                state.pool.take(js, placement)
                free = free_nodes(state)
                lost[name] = fragmentation(free, typical) * sum(node.free_milli for node in free)
                state.pool.give(js, placement)
        if lost:
            assert lost["fgd"] <= min(lost.values()) + 1e-6
        placement = RULES[data.draw(st.sampled_from(["spread", "random", "best-fit"]))].place(state.pool, js)
        if placement is not None:
            state.pool.take(js, placement)


def test_fgd_keeps_a_large_hole_for_typical_large_jobs_where_best_fit_does_not() -> None:
    state = occupied(uniform(2, 8), 4, 2)
    one = waiting(state, job(1))
    assert shape(BestFit().place(state.pool, one)) == {0: 1}
    assert shape(Fgd(typical=("4:9", "1:1")).place(state.pool, one)) == {1: 1}


def test_fgd_learns_from_the_jobs_it_is_shown_each_once() -> None:
    state = occupied(uniform(2, 8), 4, 2)
    rule = Fgd()
    for number in range(5):
        for _ in range(3):
            rule.place(state.pool, waiting(state, job(4, number)))
    assert rule.place(state.pool, waiting(state, job(1, 99))) == ((1, 0b100),)


def test_a_copy_of_fgd_knows_what_it_knew_and_keeps_what_it_learns() -> None:
    state = occupied(uniform(2, 8), 4, 2)
    rule = Fgd()
    rule.place(state.pool, waiting(state, job(1, 0)))
    asked = copy(rule)
    for number in range(1, 9):
        asked.place(state.pool, waiting(state, job(4, number)))
    one = waiting(state, job(1, 99))
    assert shape(asked.place(state.pool, one)) == {1: 1}
    assert shape(rule.place(state.pool, one)) == {0: 1}


@pytest.mark.parametrize(
    ("rule", "wanted", "single"),
    [
        (BestFit(), job(4), True),
        (BestFit(), job(5), False),
        (BestFit(), job(5, nodes=1), True),
        (BestFit(), job(4, nodes=2), False),
        (Spread(), job(4), True),
        (Spread(split=True), job(4), False),
        (Spread(split=True), job(4, nodes=1), True),
        (Spread(split=True), job(1), True),
        (Consolidate(), job(4), True),
        (Consolidate(up_to="any"), job(4), False),
        (Consolidate(up_to="any"), job(1), True),
        (Consolidate(up_to="any"), job(2, nodes=1), True),
    ],
)
def test_a_rule_knows_which_jobs_need_one_node(rule: PlacementRule, wanted: Job, single: bool) -> None:
    state = state_of(uniform(2, 4))
    assert rule.needs_one_node(state.pool, waiting(state, wanted)) is single
    state = occupied(uniform(2, 4), 2, 2)
    placement = rule.place(state.pool, waiting(state, wanted))
    assert placement is None or len(placement) == 1 or not single


@pytest.mark.parametrize("text", ["4", "4:x", "1.5:2", "0:1", "1:0", "1:1:1:1:1", "1:1:-1"])
def test_a_typical_job_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match="GPUS:WEIGHT"):
        Fgd(typical=(text,))


def test_options_are_written_as_they_are_read() -> None:
    for spec in (
        "spread(split=true)",
        "consolidate(up_to=rack)",
        "fgd(typical=1:70/0.5:10, shapes=8)",
        "random(seed=3)",
    ):
        assert describe(build(f"fifo+{spec}").placement) == spec
    assert options_of(Fgd()) == {"typical": (), "shapes": 64}
    with pytest.raises(ExperimentError, match="shapes=0"):
        Fgd(shapes=0)
