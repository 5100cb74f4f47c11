"""What lies between workers, and where instances go on a GPU: the places that the hardware has, no two at once."""

import pytest
from hypothesis import given, strategies as st

from headway.fleet.model.fleet import GIB, MIG, MIG_PLACES, MIG_SPAN, Fleet, Gpu, Links, Worker, find_slices
from headway.units import SECOND

H200 = Gpu("H200", 141 * 10**9, 7, MIG)
FREE_7 = Gpu("A100", 80 * 10**9, 7)
LINKS = Links(within_host=100 * GIB, within_rack=10 * GIB, between_racks=GIB, latency=5)
FLEET = Fleet(
    (
        Worker("a", FREE_7, host=0, rack=0),
        Worker("b", FREE_7, host=0, rack=0),
        Worker("c", FREE_7, host=1, rack=0),
        Worker("d", FREE_7, host=2, rack=1),
    ),
    LINKS,
)


@pytest.mark.parametrize(
    ("source", "target", "time"),
    [
        (0, 0, 0),
        (0, 1, 5 + SECOND // 100),
        (0, 2, 5 + SECOND // 10),
        (0, 3, 5 + SECOND),
        (3, 0, 5 + SECOND),
        (-1, 3, 5 + SECOND // 10),
    ],
)
def test_bytes_take_longer_the_farther_they_go(source: int, target: int, time: int) -> None:
    assert FLEET.copy_time(source, target, GIB) == time


def test_weights_come_from_the_host_or_by_way_of_it_from_disk() -> None:
    fleet = Fleet((), Links(host_to_gpu=10 * GIB, disk_to_host=2 * GIB))
    assert fleet.fetch_time(GIB) == SECOND // 10
    assert fleet.fetch_time(GIB, from_disk=True) == SECOND // 10 + SECOND // 2


def test_free_slices_are_interchangeable() -> None:
    assert find_slices(FREE_7, 3, 0b0101010) == (0, 0b0010101)
    assert find_slices(FREE_7, 4, 0b0101010) == (0, 0b1010101)
    assert find_slices(FREE_7, 5, 0b0101010) is None
    assert find_slices(FREE_7, 0, 0b1111111) == (0, 0)


@pytest.mark.parametrize(
    ("slices", "taken", "place"),
    [
        (7, 0, (0, 0xFF)),
        (7, 1, None),
        (4, 0, (0, 0x0F)),
        (3, 0, (4, 0xF0)),  # leaves room for an instance of 4 at the bottom
        (3, 0xF0, (0, 0x0F)),
        (3, 0x11, None),
        (2, 0, (4, 0x30)),
        (1, 0, (6, 0x40)),
        (1, 0x7F, None),
        (5, 0, None),  # there is no such instance
        (6, 0, None),
        (0, 0xFF, (0, 0)),
    ],
)
def test_mig_instances_go_where_the_hardware_has_them(slices: int, taken: int, place: tuple[int, int] | None) -> None:
    assert find_slices(H200, slices, taken) == place


@given(st.lists(st.sampled_from([1, 2, 3, 4, 7])))
def test_mig_instances_never_overlap_and_are_refused_only_when_no_place_is_left(wanted: list[int]) -> None:
    taken = 0
    for slices in wanted:
        found = find_slices(H200, slices, taken)
        spans = [((1 << MIG_SPAN[slices]) - 1) << first for first in MIG_PLACES[slices]]
        if found is None:
            assert all(span & taken for span in spans)
        else:
            first, mask = found
            assert mask in spans
            assert mask & taken == 0
            assert (mask & -mask).bit_length() - 1 == first
            taken |= mask


@given(st.integers(1, 7), st.integers(0, 127))
def test_free_slices_are_as_many_as_asked_for_and_not_taken(slices: int, taken: int) -> None:
    found = find_slices(FREE_7, slices, taken)
    if found is None:
        assert slices > 7 - taken.bit_count()
    else:
        assert found[1].bit_count() == slices
        assert found[1] & taken == 0
        assert found[1] < 1 << 7
