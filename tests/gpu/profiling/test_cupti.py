"""Launches and CUPTI's records: each launch gets its own times, also where one side lacks some."""

from hypothesis import given, strategies as st

from headway.gpu.profiling.cupti import join
from tests.gpu.profiling.recordings import COPY, GRAPH, KERNEL, recorded, text_of

KERNELS = {
    1: (KERNEL, text_of("alpha")),
    2: (KERNEL, text_of("beta")),
    3: (GRAPH, "graph 0"),
    4: (KERNEL, text_of("c")),
}
NAMES = {1: "alpha", 2: "beta", 4: "c"}


def test_the_kernels_of_a_graph_are_one_launch_from_the_first_to_the_last() -> None:
    activities = [(10, 20, 5, "alpha"), (30, 40, 9, "x"), (40, 70, 9, "y"), (35, 45, 9, "copy"), (80, 90, 12, "beta")]
    found = join(recorded([(1, 0, 1), (3, 5, 2), (2, 8, 1)], activities, KERNELS))
    assert list(zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)) == [(10, 20), (30, 70), (80, 90)]
    assert (found.counted, found.matched) == (3, 3)


@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=40), st.data())
def test_what_is_missing_on_one_side_shifts_nothing_else(sequence: list[int], data: st.DataObject) -> None:
    """Kernels that had not ended when the trace was taken have no times; the others have theirs."""
    launches = [(kernel, 100 * at, KERNELS[kernel][0]) for at, kernel in enumerate(sequence)]
    activities = [(100 * at + 5, 100 * at + 50, at + 1, NAMES.get(kernel, "g")) for at, kernel in enumerate(sequence)]
    assert join(recorded(launches, activities, KERNELS)).start_ns.tolist() == [
        100 * at + 5 for at in range(len(sequence))
    ]
    tail = data.draw(st.integers(0, len(sequence) - 1))
    found = join(recorded(launches, activities[: len(sequence) - tail], KERNELS))
    known = len(sequence) - tail
    assert found.start_ns.tolist() == [100 * at + 5 for at in range(known)] + [-1] * tail


def test_a_record_that_is_lost_in_the_middle_leaves_one_launch_without_times() -> None:
    sequence = [1, 2, 4, 1, 2, 4, 1, 2, 4]
    launches = [(kernel, 100 * at, 1) for at, kernel in enumerate(sequence)]
    activities = [(100 * at + 5, 100 * at + 50, at + 1, NAMES[kernel]) for at, kernel in enumerate(sequence) if at != 4]
    found = join(recorded(launches, activities, KERNELS))
    assert found.start_ns.tolist() == [-1 if at == 4 else 100 * at + 5 for at in range(9)]
    assert (found.counted, found.matched) == (8, 8)


def test_a_launch_that_went_past_the_shim_takes_nobodys_place() -> None:
    activities = [(5, 9, 1, "alpha"), (10, 19, 2, "stranger"), (20, 29, 3, "beta"), (30, 39, 4, "c")]
    found = join(recorded([(1, 0, 1), (2, 15, 1), (4, 25, 1)], activities, KERNELS))
    assert found.start_ns.tolist() == [5, 20, 30]
    assert (found.counted, found.matched) == (4, 3)


def test_what_a_program_launches_while_the_recording_ends_is_not_counted() -> None:
    """Unless the shim saw it: what was launched in time may well start late."""
    activities = [(10 * at, 10 * at + 9, at + 1, "alpha") for at in range(8)]
    launches = [(1, 10 * at, 1) for at in range(5)]
    assert join(recorded(launches, activities, KERNELS, ended_ns=31)).counted == 5
    assert join(recorded(launches[:2], activities, KERNELS, ended_ns=31)).counted == 4
    assert join(recorded(launches, activities, KERNELS)).counted == 8


def test_where_names_cannot_be_compared_the_order_counts() -> None:
    activities = [(100 * at + 5, 100 * at + 9, at + 1, "something else") for at in range(6)]
    found = join(recorded([(1, 100 * at, 1) for at in range(6)], activities, KERNELS))
    assert found.start_ns.tolist() == [100 * at + 5 for at in range(6)]


def test_a_large_copy_takes_the_first_of_its_size_after_it_was_asked_for() -> None:
    kernels = {**KERNELS, 9: (COPY, "copy of 2^21 bytes"), 8: (COPY, "copy of 2^30 bytes")}
    activities = [(3, 4, 1, "copy"), (50, 60, 2, "alpha"), (70, 75, 3, "copy")]
    found = join(recorded([(1, 40, 1), (8, 50, 3), (9, 60, 3)], activities, kernels))
    assert found.start_ns.tolist() == [50, -1, 70]
    assert found.counted == 1
