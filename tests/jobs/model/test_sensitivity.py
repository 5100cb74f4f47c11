"""What CPUs, memory and storage do for a job: never less for more, exact where it was measured, bounded by the GPU."""

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import assume, given, strategies as st

from headway.errors import ProfileError
from headway.jobs.model.cluster import Cluster, Level, Node, uniform
from headway.jobs.model.job import Job
from headway.jobs.model.resources import UNCOUNTED, Grant
from headway.jobs.model.sensitivity import Matrix, Profile, Scalar, all_or_nothing, grant_per_gpu
from headway.jobs.model.speed import SpeedModel
from headway.jobs.tables.profiles import off_by, shipped

GB = 10**9
MB = 10**6
ONE = 1_000_000
PLAIN = Profile(
    "plain", (1000, 2000, 4000), (10 * GB, 30 * GB), ((200_000, 400_000), (600_000, ONE), (800_000, 2 * ONE))
)
READER = replace(PLAIN, model="reader", read_bytes_per_second=100 * MB, dataset_bytes=50 * GB, working_bytes=5 * GB)


def _rising(values: list[int]) -> tuple[int, ...]:
    return tuple(accumulate(values))


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Any matrix that never falls, some with data that is read from storage."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    steps = st.integers(1, 5000)
    cpus = _rising(draw(st.lists(steps, min_size=rows, max_size=rows)))
    memory = _rising(draw(st.lists(steps, min_size=columns, max_size=columns)))
    gains = st.lists(st.integers(0, 700_000), min_size=columns, max_size=columns)
    ppm: list[tuple[int, ...]] = []
    for _ in range(rows):
        before = ppm[-1] if ppm else (1,) * columns
        row = (low + gain for low, gain in zip(before, draw(gains), strict=True))
        ppm.append(tuple(accumulate(row, max)))
    return Profile(
        "any",
        cpus,
        memory,
        tuple(ppm),
        read_bytes_per_second=draw(st.integers(0, 1000)),
        dataset_bytes=draw(st.integers(0, 30_000)),
        working_bytes=draw(st.integers(0, 2000)),
    )


amounts = st.integers(0, 40_000)
rates = st.one_of(st.integers(0, 3000), st.just(UNCOUNTED))


@given(profiles(), amounts, amounts, rates, amounts, amounts, rates)
def test_more_of_anything_is_never_slower(
    profile: Profile, cpus: int, memory: int, storage: int, more_cpus: int, more_memory: int, more_storage: int
) -> None:
    less = profile.speed(cpus, memory, storage)
    more = (cpus + more_cpus, memory + more_memory, min(storage + more_storage, UNCOUNTED))
    assert 0 <= less <= profile.speed(*more) <= profile.most_ppm
    assert less <= profile.host_speed(cpus, memory, storage) <= profile.host_speed(*more)


@given(profiles())
def test_a_cell_is_what_was_measured_there_and_beyond_the_last_nothing_changes(profile: Profile) -> None:
    for row, cpus in enumerate(profile.cpu_milli):
        for column, memory in enumerate(profile.memory_bytes):
            assert profile.speed(cpus, memory) == profile.ppm[row][column]
    last = (profile.cpu_milli[-1], profile.memory_bytes[-1])
    assert profile.speed(last[0] + 1, last[1] * 7) == profile.speed(UNCOUNTED, UNCOUNTED) == profile.most_ppm


@given(profiles(), amounts, amounts)
def test_between_cells_lies_a_value_between_its_neighbours(profile: Profile, cpus: int, memory: int) -> None:
    def around(points: tuple[int, ...], value: int) -> tuple[int, int]:
        below = max((point for point in points if point <= value), default=0)
        return below, min((point for point in points if point >= value), default=points[-1])

    low_cpus, high_cpus = around(profile.cpu_milli, cpus)
    low_memory, high_memory = around(profile.memory_bytes, memory)
    assert profile.speed(low_cpus, low_memory) <= profile.speed(cpus, memory) <= profile.speed(high_cpus, high_memory)


def test_between_cells_it_is_a_straight_line_both_ways_and_below_the_first_it_falls_to_nothing() -> None:
    assert PLAIN.speed(1500, 30 * GB) == 700_000
    assert PLAIN.speed(2000, 20 * GB) == 800_000
    assert PLAIN.speed(3000, 20 * GB) == (600_000 + ONE + 800_000 + 2 * ONE) // 4
    assert PLAIN.speed(500, 30 * GB) == 200_000
    assert PLAIN.speed(1000, 5 * GB) == 100_000
    assert PLAIN.speed(0, 30 * GB) == PLAIN.speed(2000, 0) == 0


@given(profiles())
def test_the_demand_is_the_smallest_cell_that_has_all_the_speed_fewest_cpus_first(profile: Profile) -> None:
    demand = profile.demand
    assert profile.speed(*demand) == profile.most_ppm
    for cpus in profile.cpu_milli:
        for memory in profile.memory_bytes:
            if cpus < demand.cpu_milli or (cpus == demand.cpu_milli and memory < demand.memory_bytes):
                assert profile.speed(cpus, memory) < profile.most_ppm


# --- storage ---------------------------------------------------------------------------------------------------


def test_what_is_not_in_memory_is_read_from_storage_at_every_pass() -> None:
    assert READER.misses_ppm(30 * GB) == 500_000  # 25 of 50 GB are kept, 5 GB are the program's
    assert READER.misses_ppm(5 * GB) == READER.misses_ppm(0) == ONE
    assert READER.misses_ppm(55 * GB) == READER.misses_ppm(99 * GB) == 0
    assert READER.speed(4000, 30 * GB, 50 * MB) == ONE
    assert READER.speed(4000, 30 * GB, 25 * MB) == 500_000
    assert READER.speed(1000, 30 * GB, 50 * MB) == 400_000, "its CPUs are less"
    assert READER.speed(4000, 55 * GB, 0) == 2 * ONE
    assert READER.speed(4000, 30 * GB) == 2 * ONE, "where storage is not counted it is no bound"
    assert PLAIN.speed(4000, 30 * GB, 0) == 2 * ONE, "a program of which nothing is known reads nothing"
    assert READER.demand == Grant(4000, 30 * GB, 100 * MB)


@given(profiles(), st.integers(1, 3 * ONE), amounts)
def test_the_storage_that_a_speed_needs_allows_it_and_no_less_does(profile: Profile, ppm: int, memory: int) -> None:
    need = profile.storage_need(ppm, memory)
    if profile.read_bytes_per_second * profile.misses_ppm(memory):
        assert profile.storage_bound(memory, need) >= ppm
        assert need == 0 or profile.storage_bound(memory, need - 1) < ppm
    else:
        assert need == 0


# --- the pace of the GPUs -------------------------------------------------------------------------------------------


def test_beyond_saturation_the_host_feeds_in_proportion_to_its_cpus() -> None:
    assert PLAIN.host_speed(8000, 30 * GB) == 4 * ONE
    assert PLAIN.host_speed(4000, 30 * GB) == 2 * ONE
    assert PLAIN.host_speed(8000, 10 * GB) == 800_000, "short of memory more CPUs are of no use"
    assert READER.host_speed(8000, 30 * GB, 150 * MB) == 3 * ONE


@given(profiles(), amounts, amounts, rates, st.integers(1, 4 * ONE), st.integers(0, ONE))
def test_a_job_is_as_fast_as_its_gpus_or_its_host_whichever_is_less(
    profile: Profile, cpus: int, memory: int, storage: int, pace: int, faster: int
) -> None:
    matrix, job, grant = Matrix({"any": profile}), Job(0, 0, 1, model="any"), Grant(cpus, memory, storage)
    found = matrix.of(job, grant, pace)
    assert found <= profile.most_ppm * pace // ONE
    assert found <= profile.host_speed(*grant)
    assert found <= matrix.of(job, grant, pace + faster)
    assert matrix.of(job, grant, ONE) == profile.speed(*grant)


def cluster() -> Cluster:
    """Two racks of a slow and a fast node with four GPUs each."""
    nodes = tuple(
        Node(f"n{i}", 4, "fast" if i % 2 else "slow", 16_000, 120 * GB, path=(f"rack{i // 2}",)) for i in range(4)
    )
    return Cluster(nodes, (Level("rack", 25), Level("node", 100)), gpu_speed_ppm={"fast": 2 * ONE})


def test_matrix_topology_and_gpu_type_together_are_the_least_of_host_and_gpus() -> None:
    model = SpeedModel(cluster(), sensitivity=Matrix({"plain": PLAIN}))
    job = Job(0, 0, 1, 2, communication_ppm=500_000, model="plain")
    together, apart, fast = ((0, 0b11),), ((0, 1), (2, 1)), ((1, 0b11),)
    assert model.pace(job, together) == ONE
    assert model.pace(job, apart) == 400_000
    proportional, plenty = Grant(4000, 60 * GB), Grant(8000, 60 * GB)
    assert model.of(job, together, proportional) == ONE
    assert model.of(job, together, plenty) == 2 * ONE
    assert model.of(job, apart, proportional) == 800_000, "the network lets the GPUs do 0.4 of the 2 that they could"
    assert model.of(job, apart, plenty) == 800_000
    assert model.of(job, fast, proportional) == ONE, "faster GPUs wait for the same two CPUs each"
    assert model.of(job, fast, Grant(16_000, 60 * GB)) == 4 * ONE
    assert model.of(job, apart, Grant(2000, 60 * GB)) == 400_000, (
        "one CPU each feeds less than the network lets through"
    )


def test_what_no_node_counts_is_not_felt() -> None:
    unmetered = SpeedModel(uniform(1, 4), sensitivity=Matrix({"plain": PLAIN}))
    assert unmetered.of(Job(0, 0, 1, model="plain"), ((0, 1),), Grant(0, 0)) == 2 * ONE


def test_a_job_without_a_profile_or_without_gpus_goes_at_the_pace_of_its_gpus() -> None:
    for matrix in (Matrix({"plain": PLAIN}), Scalar({"plain": PLAIN})):
        assert matrix.of(Job(0, 0, 1, model="other"), Grant(0, 0), 700_000) == 700_000
        assert matrix.of(Job(0, 0, 1), Grant(0, 0), 700_000) == 700_000
        assert matrix.of(Job(0, 0, 1, gpus=0, cpu_milli=1, model="plain"), Grant(1, 0), ONE) == ONE


def test_a_grant_is_felt_by_the_gpu() -> None:
    assert grant_per_gpu(Grant(4000, 60 * GB, 10), 2000) == Grant(2000, 30 * GB, 5)
    assert grant_per_gpu(Grant(1000, 5 * GB, 10), 500) == Grant(2000, 10 * GB, 20)
    assert grant_per_gpu(Grant(UNCOUNTED, 8, UNCOUNTED), 4000) == Grant(UNCOUNTED, 2, UNCOUNTED)
    share = Job(0, 0, 1, gpu_milli=500, model="plain")
    assert Matrix({"plain": PLAIN}).of(share, Grant(1000, 15 * GB), ONE) == PLAIN.speed(2000, 30 * GB)


# --- all or nothing -----------------------------------------------------------------------------------------------


@given(profiles(), amounts, amounts, rates)
def test_the_scalar_is_all_or_nothing(profile: Profile, cpus: int, memory: int, storage: int) -> None:
    found = Scalar({"any": profile}).of(Job(0, 0, 1, model="any"), Grant(cpus, memory, storage), ONE)
    whole = cpus >= profile.demand.cpu_milli and memory >= profile.demand.memory_bytes
    assert found == (profile.most_ppm if whole else ONE)


def test_the_scalar_on_other_gpus_is_as_much_faster() -> None:
    scalar, job = Scalar({"plain": PLAIN}), Job(0, 0, 1, 2, model="plain")
    assert scalar.of(job, Grant(8000, 60 * GB), 500_000) == ONE
    assert scalar.of(job, Grant(7999, 60 * GB), 500_000) == 500_000


# --- profiles that are wrong, and profiles that are broken ---------------------------------------------------------


@given(profiles(), st.floats(0, 0.9), st.integers(0, 99))
def test_a_wrong_profile_is_off_by_no_more_than_it_says_and_still_never_falls(
    profile: Profile, error: float, seed: int
) -> None:
    wrong = off_by({"any": profile}, error, seed)["any"]  # a matrix that falls would be refused
    for cells, before in zip(wrong.ppm, profile.ppm, strict=True):
        for cell, true in zip(cells, before, strict=True):
            assert true * (1 - error) - 1 <= cell <= true * (1 + error) + 1
    assert off_by({"any": profile}, error, seed)["any"] == wrong


def test_wrong_profiles_do_not_remember_what_the_right_ones_said() -> None:
    right = shipped()["alexnet"]
    assert right.speed(3000, 62_500_000_000) == ONE
    assert off_by(shipped(), 0.5, 3)["alexnet"].speed(3000, 62_500_000_000) != ONE


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"model": ""}, "has no model"),
        ({"cpu_milli": ()}, "has no CPUs: measure at least one"),
        ({"memory_bytes": ()}, "has no memory sizes"),
        ({"cpu_milli": (1000, 1000, 4000)}, "CPUs must be above 0 and ascending"),
        ({"cpu_milli": (0, 1000, 4000)}, "CPUs must be above 0 and ascending"),
        ({"memory_bytes": (30, 10)}, "memory sizes must be above 0 and ascending"),
        ({"ppm": PLAIN.ppm[1:]}, "holes: measure them, for 3 rows"),
        ({"ppm": ((1, 2), (3,), (4, 5))}, "holes: measure them, for 3 rows"),
        ({"ppm": ((0, 2), (3, 4), (5, 6))}, "a cell at 1 CPU is 0 or less"),
        ({"ppm": ((1, 2), (4, 3), (5, 6))}, "falls with more memory at 2 CPUs"),
        ({"ppm": ((1, 5), (4, 4), (5, 6))}, "falls with more CPUs at 2 CPUs"),
        ({"dataset_bytes": -1}, "must not be negative"),
    ],
)
def test_a_broken_profile_says_what_is_wrong_and_what_to_do(changed: dict[str, object], rule: str) -> None:
    with pytest.raises(ProfileError, match=rule):
        replace(PLAIN, **changed)  # type: ignore[arg-type]


@given(profiles(), st.integers(1, 40_000), st.integers(1, 40_000), st.integers(100_000, 5 * ONE))
def test_more_than_enough_storage_is_as_good_as_storage_that_nobody_counts(
    profile: Profile, cpu_milli: int, memory_bytes: int, pace: int
) -> None:
    job, matrix = Job(0, 0, 1, model=profile.model), Matrix({profile.model: profile})
    plenty = matrix.of(job, Grant(cpu_milli, memory_bytes, UNCOUNTED - 1), pace)
    assert plenty == matrix.of(job, Grant(cpu_milli, memory_bytes, UNCOUNTED), pace)


@given(profiles(), st.integers(1, 40_000), st.integers(1, 40_000))
def test_what_is_believed_where_the_scalar_is_true_wants_the_same_and_gains_nothing_short_of_it(
    profile: Profile, cpu_milli: int, memory_bytes: int
) -> None:
    assume(profile.most_ppm > 1)  # with one part in a million nothing is less
    believed, enough = all_or_nothing(profile), profile.demand
    assert believed.demand[:2] == enough[:2]
    assert believed.most_ppm == profile.most_ppm
    if cpu_milli < enough.cpu_milli or memory_bytes < enough.memory_bytes:
        assert believed.speed(cpu_milli, memory_bytes) <= max(ONE, 1)
    else:
        assert believed.speed(cpu_milli, memory_bytes) == profile.most_ppm
