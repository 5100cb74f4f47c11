"""The programmes of ``opt`` against brute force: every choice of cells, every arrangement of a few jobs on nodes."""

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given, settings, strategies as st

from headway.jobs.model.cluster import uniform
from headway.jobs.model.events import JobArrived
from headway.jobs.model.job import Job, workload
from headway.jobs.model.resources import Grant
from headway.jobs.model.sensitivity import Matrix, Profile
from headway.jobs.model.speed import SpeedModel
from headway.jobs.policies.allocations.synergy.opt import Opt
from headway.jobs.policies.allocations.synergy.pareto_fronts import ParetoFronts
from headway.jobs.policies.allocations.synergy.programs import (
    Cell,
    JobGroup,
    Resources,
    choose,
    rearrange,
    undominated,
    within,
)
from headway.jobs.policies.registry import build
from headway.jobs.state.state import TrainingState
from headway.units import SECOND

Groups = Sequence[tuple[tuple[Cell, ...], int]]

small = settings(max_examples=40, deadline=None)
amounts = st.integers(0, 6)
cell = st.builds(Cell, st.builds(Grant, amounts, amounts, st.integers(0, 2)), st.integers(1, 12))
kinds = st.lists(cell, min_size=1, max_size=4).map(lambda cells: undominated(cells))
rooms = st.tuples(st.integers(0, 25), st.integers(0, 25), st.integers(0, 9))


def choices(cells: Sequence[Cell], count: int) -> Iterator[tuple[Cell, ...]]:
    """Every way to give so many jobs of a kind their cells."""
    return combinations_with_replacement(cells, count)


def taken(chosen: Sequence[Cell]) -> Resources:
    """What cells take together."""
    return tuple(sum(each.grant[r] for each in chosen) for r in range(3))  # type: ignore[return-value]


def most(groups: Groups, capacity: Resources) -> int | None:
    """The best of all choices that fit."""
    worths = []
    for picked in product(*(choices(cells, count) for cells, count in groups)):
        chosen = [each for some in picked for each in some]
        if within(taken(chosen), capacity):
            worths.append(sum(each.worth for each in chosen))
    return max(worths, default=None)


@given(groups=st.lists(st.tuples(kinds, st.integers(1, 3)), min_size=1, max_size=3), capacity=rooms)
@small
def test_programme_one_finds_what_brute_force_finds(groups: Groups, capacity: Resources) -> None:
    found, best = choose(groups, capacity), most(groups, capacity)
    assert (found.worth if found else None) == best
    if found is not None:
        assert found.bound == best
        picked = [
            c
            for (cells, _), row in zip(groups, found.counts, strict=True)
            for c, n in zip(cells, row, strict=True)
            for _ in range(n)
        ]
        assert within(taken(picked), capacity)
        assert sum(each.worth for each in picked) == best
        assert [sum(row) for row in found.counts] == [count for _, count in groups]


@given(groups=st.lists(st.tuples(kinds, st.integers(1, 3)), min_size=1, max_size=3), capacity=rooms)
@small
def test_an_answer_that_is_good_enough_says_how_good_at_least(groups: Groups, capacity: Resources) -> None:
    found, best = choose(groups, capacity, gap=0.2), most(groups, capacity)
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert found.worth <= best <= found.bound
        assert found.bound - found.worth <= 0.2 * found.bound


@given(cells=st.lists(cell, min_size=1, max_size=6), room=rooms)
@small
def test_cells_that_are_dropped_were_never_needed(cells: list[Cell], room: Resources) -> None:
    kept = undominated(cells)
    assert set(kept) <= set(cells)
    assert [each.worth for each in kept] == sorted(each.worth for each in kept)
    for count in (1, 2):
        assert most([(tuple(cells), count)], room) == most([(kept, count)], room)


@given(several=st.lists(kinds, min_size=0, max_size=4), room=rooms)
@small
def test_the_front_of_a_node_finds_what_brute_force_finds(several: list[tuple[Cell, ...]], room: Resources) -> None:
    fronts = ParetoFronts((25, 25, 9))
    numbers = tuple(sorted(fronts.number(cells) for cells in several))
    found = fronts.best(numbers, room)
    groups = [(fronts.kinds[number], 1) for number in numbers]
    assert (found[0] if found else None) == most(groups, room)
    if found is not None:
        chosen = [fronts.kinds[number][index] for number, index in zip(numbers, found[1], strict=True)]
        assert sum(each.worth for each in chosen) == found[0]
        assert within(taken(chosen), room)


@given(several=st.lists(kinds, min_size=1, max_size=4), room=rooms)
@small
def test_a_front_that_was_thinned_out_still_fits_and_is_nearly_as_good(
    several: list[tuple[Cell, ...]], room: Resources
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.jobs.policies.allocations.synergy.pareto_fronts.MOST_CHOICES", 3)
        patch.setattr("headway.jobs.policies.allocations.synergy.pareto_fronts.LEVELS", 8)
        fronts = ParetoFronts((25, 25, 9))
        numbers = tuple(sorted(fronts.number(cells) for cells in several))
        found = fronts.best(numbers, room)
    groups = [(fronts.kinds[number], 1) for number in numbers]
    best = most(groups, room)
    if within(taken([cells[0] for cells, _ in groups]), room):
        assert found is not None
    if found is not None:
        assert best is not None
        assert found[0] <= best
        chosen = [fronts.kinds[number][index] for number, index in zip(numbers, found[1], strict=True)]
        assert sum(each.worth for each in chosen) == found[0]
        assert within(taken(chosen), room)


# --- programme 2 ----------------------------------------------------------------------------------------------


def arrangements(groups: Sequence[JobGroup], nodes: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every number of each group on each node."""
    rows = []
    for group in groups:
        total = sum(group.here)
        rows.append([row for row in product(range(total + 1), repeat=nodes) if sum(row) == total])
    return product(*rows)


def net(
    groups: Sequence[JobGroup], spaces: Sequence[Resources], gpus: Sequence[int], counts: tuple[tuple[int, ...], ...]
) -> int | None:
    """What an arrangement is worth, less its moves; None where it is impossible."""
    total = 0
    for node, room in enumerate(spaces):
        here = [(group.cells, row[node]) for group, row in zip(groups, counts, strict=True)]
        wide = sum(group.gpus * row[node] for group, row in zip(groups, counts, strict=True))
        best = most(here, room)
        if best is None or wide > gpus[node]:
            return None
        total += best
    for group, row in zip(groups, counts, strict=True):
        if any(count < stay for count, stay in zip(row, group.stay, strict=True)):
            return None
        total -= group.price * sum(max(0, count - was) for count, was in zip(row, group.here, strict=True))
    return total


groups_of_jobs = st.builds(
    lambda cells, gpus, here, stay, price: JobGroup(
        cells, gpus, here, (min(here[0], stay[0]), min(here[1], stay[1])), price
    ),
    *(kinds, st.integers(1, 2), st.tuples(st.integers(0, 2), st.integers(0, 2))),
    *(st.tuples(st.integers(0, 1), st.integers(0, 1)), st.integers(0, 4)),
)


@given(
    groups=st.lists(groups_of_jobs, min_size=1, max_size=3),
    spaces=st.tuples(rooms, rooms),
    gpus=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
@small
def test_programme_two_finds_what_brute_force_finds(
    groups: list[JobGroup], spaces: tuple[Resources, Resources], gpus: tuple[int, int]
) -> None:
    found = rearrange(groups, spaces, gpus)
    nets = [net(groups, spaces, gpus, counts) for counts in arrangements(groups, 2)]
    best = max((each for each in nets if each is not None), default=None)
    assert (net(groups, spaces, gpus, found) if found else None) == best


# --- amounts as they are in life ------------------------------------------------------------------------------

bytes_of = st.integers(1, 150 * 10**9)
big_cell = st.builds(Cell, st.builds(Grant, st.integers(1, 9999), bytes_of, st.just(0)), st.integers(1, 3_000_000))
big_kinds = st.lists(big_cell, min_size=1, max_size=3).map(lambda cells: undominated(cells))


@given(
    groups=st.lists(st.tuples(big_kinds, st.integers(1, 2)), min_size=1, max_size=3),
    capacity=st.tuples(st.integers(1, 40_000), st.integers(1, 600 * 10**9), st.just(0)),
)
@small
def test_odd_numbers_of_bytes_are_never_too_much_and_the_bound_holds(groups: Groups, capacity: Resources) -> None:
    best = most(groups, capacity)
    for gap in (0.0, 0.05):
        found = choose(groups, capacity, gap=gap)
        if found is None:
            assert best is None
            continue
        assert best is not None
        assert found.worth <= best <= found.bound
        chosen = [
            c
            for (cells, _), row in zip(groups, found.counts, strict=True)
            for c, n in zip(cells, row, strict=True)
            for _ in range(n)
        ]
        assert within(taken(chosen), capacity)


def test_the_solver_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for seed in range(12):
        steps = [(7919 * seed + 104_729 * index) % 1_000_003 for index in range(8)]
        cells = undominated([Cell(Grant(500 + step % 4001, 10**9 + 99_991 * step), 1 + step) for step in steps])
        other = undominated([Cell(Grant(400 + step % 3001, 10**9 + 88_883 * step), 1 + step // 2) for step in steps])
        room = (9000 + 37 * seed, 180 * 10**9 + seed, 0)
        choose([(cells, 3), (other, 2)], room, branches=30)
        rearrange(
            [JobGroup(cells, 1, (2, 1), (0, 0), 7), JobGroup(other, 1, (0, 2), (0, 1), 9)],
            [room, room],
            [4, 4],
            branches=10,
        )
    assert capfd.readouterr().out == ""


# --- a whole decision -----------------------------------------------------------------------------------------


@st.composite
def profiles(draw: st.DrawFn) -> dict[str, Profile]:
    """Matrices that never fall."""
    found = {}
    for model in ("a", "b"):
        matrix: list[tuple[int, ...]] = []
        for _ in range(3):
            row: list[int] = []
            for column in range(2):
                least = max(row[-1] if row else 300_000, matrix[-1][column] if matrix else 0)
                row.append(least + draw(st.sampled_from([0, 100_000, 700_000])))
            matrix.append(tuple(row))
        found[model] = Profile(model, (1000, 2000, 4000), (10**9, 4 * 10**9), tuple(matrix))
    return found


@given(
    known=profiles(),
    asked=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([1, 1, 2])), min_size=1, max_size=6),
    machine=st.tuples(st.integers(4, 12), st.integers(4, 16)),
    options=st.sampled_from(["", "(between=false)", "(by_gpus=true)"]),
)
@small
def test_jobs_that_stay_where_they_are_have_the_best_of_all_divisions(
    known: dict[str, Profile], asked: list[tuple[str, int]], machine: tuple[int, int], options: str
) -> None:
    cluster = uniform(2, 4, cpus_per_node=machine[0], memory_per_node_bytes=machine[1] * 10**9)
    jobs = workload(Job(0, 0, SECOND, gpus, model=model) for model, gpus in asked)
    policy = build(f"fifo+fit+opt{options}")
    speed = SpeedModel(cluster, sensitivity=Matrix(known), profiles=known)
    state = TrainingState(cluster, to_come=len(jobs), arrangement=policy, speed=speed)
    policy.bind(state)
    for job in jobs:
        state.apply(0, JobArrived(job))
    for action in policy.decide(0, state):
        assert state.check(action) is None
        state.commit(0, action)
    allocation = policy.allocation
    assert isinstance(allocation, Opt)
    total = 0
    for node, here in enumerate(state.on_node):
        alone = [js for js in here.values() if len(js.placement) == 1]
        if len(alone) < len(here):
            return
        groups = [(allocation.models.kinds.cells(js, js.placement), 1) for js in alone]
        best = most(groups, allocation.models.capacity[node])
        assert best is not None
        held = [
            next(c.worth for c in cells if c.grant == js.grant) for js, (cells, _) in zip(alone, groups, strict=True)
        ]
        assert sum(held) == best
        total += best
    assert allocation.divisions[-1].achieved_ppm == total <= allocation.divisions[-1].bound_ppm
