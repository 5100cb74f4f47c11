"""The GPU in virtual time against timelines computed by hand: four SMs, latency 10, next kernel after 2, a wait 3."""

from dataclasses import replace

import pytest

from headway.gpu.model.kernel import GRAPH, Kernel
from headway.gpu.model.program import Client, Launch, Program
from headway.gpu.model.reflex import Reason
from headway.gpu.model.rows import Kind
from tests.gpu.worlds import TINY, Run, drive, program


def spans(run: Run, client: int) -> list[tuple[int, int]]:
    """When each kernel of a client ran."""
    return [(row.value, row.time) for row in run.rows(Kind.FINISHED, client)]


HALF = Client("h", program((5, 2, 100), name="h"), 0, requests=1)
"""Launches at 5 a kernel of two blocks that takes 100: from 15 to 115, and the wait is over at 118."""


def low(*launches: tuple[int, int, int], per_sm: int = 1) -> Client:
    """A client below that has one request."""
    return Client("l", program(*launches, name="l", per_sm=per_sm), 1, requests=1)


def test_alone() -> None:
    run = drive("mps", [replace(HALF, requests=2, think=7)])
    assert run.times(Kind.LAUNCHED, 0) == [5, 130]
    assert spans(run, 0) == [(15, 115), (140, 240)]
    assert run.times(Kind.REQUEST_ENDED, 0) == [118, 243]
    assert [row.value for row in run.rows(Kind.REQUEST_ENDED)] == [0, 125], "the second one began after the thinking"


def test_kernels_of_one_stream_come_one_after_another() -> None:
    run = drive("mps", [low((1, 4, 50), (1, 4, 20))])
    assert spans(run, 0) == [(11, 61), (63, 83)]


def test_two_that_fit_beside_each_other_overlap() -> None:
    run = drive("mps", [HALF, low((1, 2, 50))])
    assert (spans(run, 0), spans(run, 1)) == ([(15, 115)], [(11, 61)])


def test_what_they_cost_each_other() -> None:
    run = drive("mps", [HALF, low((1, 2, 50))], replace(TINY, overlap_ppm=1_000_000))
    # Each slows the other to two thirds: from 15 on the lower one has 46 left, which take 69; the other did 46 then.
    assert spans(run, 1) == [(11, 84 + 1)]  # rounded up
    assert spans(run, 0) == [(15, 85 + 54)]


def test_a_kernel_waits_for_the_blocks_of_another_one() -> None:
    run = drive("mps", [HALF, low((1, 4, 50))])
    assert spans(run, 0) == [(61, 161)]
    (held,) = run.rows(Kind.HELD_UP)
    assert (held.time, held.subject, held.detail, held.place, held.value) == (61, 0, 1, 0, 46)


def test_late_blocks_of_a_single_wave_end_late() -> None:
    run = drive("mps", [HALF, low((1, 4, 50), (1, 4, 50))])
    # The second one below starts at 63 on the two SMs that are left; its other two blocks come at 113.
    assert spans(run, 1) == [(11, 61), (63, 163)]


def test_without_priority_the_last_wave_must_begin_first() -> None:
    run = drive("mps", [HALF, low((1, 10, 90))])  # three waves of 30, the last one of two blocks
    assert spans(run, 0) == [(11 + 60, 71 + 100)]
    assert spans(run, 1) == [(11, 101)]


def test_with_priority_a_wave_is_enough() -> None:
    run = drive("mps-priority", [HALF, low((1, 12, 90))])  # three waves of 30
    assert spans(run, 0) == [(41, 141)]
    assert spans(run, 1) == [(11, 151)]  # 60 left at 41, 50 of them done at half speed until 141, 10 at full speed


def test_a_graph_gives_way_between_its_kernels_without_priority_too() -> None:
    graph = Client("l", Program("l", (Kernel("graph", 9, 1, GRAPH),), (Launch(0, 1, 90, True),)), 1, requests=1)
    assert spans(drive("mps", [HALF, graph], replace(TINY, nodes=3, node_ppm=1_000_000)), 0) == [(41, 141)]


def test_a_kernel_of_a_graph_takes_its_share_of_the_gpu() -> None:
    graph = Client("l", Program("l", (Kernel("graph", 9, 1, GRAPH),), (Launch(0, 1, 90, True),)), 1, requests=1)
    run = drive("mps", [HALF, graph], replace(TINY, nodes=3, node_ppm=500_000))
    assert (spans(run, 0), spans(run, 1)) == ([(15, 115)], [(11, 101)])


@pytest.mark.parametrize("spec", ["mps", "mps-priority"])
def test_blocks_of_a_persistent_kernel_stay_until_they_run_out_of_tiles(spec: str) -> None:
    device = replace(TINY, rounds=10, last_ppm=500_000)
    run = drive(spec, [HALF, low((1, 4, 50))], device)
    # Nine rounds of 5 each end at 56: half of the SMs have no tile left. The two blocks start there.
    assert (spans(run, 0), spans(run, 1)) == ([(56, 156)], [(11, 61)])


def test_beside_blocks_that_stay_more_of_its_own_share_an_sm() -> None:
    device = replace(TINY, rounds=10, last_ppm=500_000)
    above = Client("h", program((5, 4, 100), name="h", per_sm=4), 0, requests=1)  # alone a block on each SM
    assert spans(drive("mps", [above, low((1, 4, 50))], device), 0) == [(56, 256)]


def test_with_priority_large_blocks_get_the_places_of_small_ones_too() -> None:
    """Measured: beside blocks of which 16 fit on an SM, blocks that take one take 1.12 times as long, not 4.6 times."""
    small = low((1, 24, 90), per_sm=2)  # three waves of 30, two blocks on each SM
    assert spans(drive("mps-priority", [HALF, small]), 0) == [(41, 141)]


@pytest.mark.parametrize("spec", ["mps", "mps-priority"])
def test_between_the_kernels_of_a_graph_others_get_in_whatever_their_priority(spec: str) -> None:
    """Measured: beside matrix products a graph is 20 times as slow, with client priority or without."""
    graph = Client("h", Program("h", (Kernel("graph", 9, 1, GRAPH),), (Launch(0, 5, 90, True),)), 0, requests=1)
    run = drive(spec, [graph, low((20, 4, 50))], replace(TINY, nodes=3, node_ppm=1_000_000))
    # Its first kernel ends at 45; the one below has the GPU until 95, and the other two kernels come after it.
    assert (spans(run, 0), spans(run, 1)) == ([(15, 155)], [(45, 95)])


def test_who_had_the_gpu_for_longer_than_a_slice_gives_it_up_at_once() -> None:
    late = Client("h", program((205, 2, 50), name="h"), 0, requests=1)
    run = drive("time-slicing", [late, low((1, 4, 300))])
    assert spans(run, 0) == [(225, 275)]


def test_slices_take_turns_and_switches_cost() -> None:
    run = drive("time-slicing", [HALF, low((1, 4, 300))])
    # Below runs from 11; its slice ends at 101; above runs from 111 to 211 and then has nothing: below again from 221.
    assert spans(run, 0) == [(111, 211)]
    assert spans(run, 1) == [(11, 221 + 210)]
    assert run.rows(Kind.HELD_UP, 0) == [] or run.rows(Kind.HELD_UP, 0)[0].value == 96


def test_a_gated_launch_blocks_its_thread_and_all_that_comes_after() -> None:
    run = drive("strict", [HALF, low((6, 4, 50), (1, 4, 20))])
    # It comes to the gate at 6, when the one above has just launched; that ends at 115.
    assert run.times(Kind.REACHED, 1) == [6, 116]
    assert run.times(Kind.LET_GO, 1) == [115, 175]
    assert spans(run, 1) == [(125, 175), (185, 205)]


def test_asking_costs_the_thread_of_a_gated_client_and_nobody_else() -> None:
    clients, asking = [replace(HALF, requests=2, think=900), low((6, 4, 50), (1, 4, 20))], replace(TINY, gate=7)
    plain, run = (drive("fikit(threshold=0s)", clients, device) for device in (TINY, asking))
    assert {row.detail for row in run.rows(Kind.LET_GO, 1)} == {Reason.FITS}
    assert run.times(Kind.REACHED, 1)[1] == plain.times(Kind.REACHED, 1)[1] + 7
    assert run.times(Kind.LAUNCHED, 0) == plain.times(Kind.LAUNCHED, 0)
    assert drive("mps", clients, asking).times(Kind.LAUNCHED, 1)[:2] == [6, 7]


def test_while_nobody_above_is_at_work_a_launch_does_not_ask() -> None:
    run = drive("strict", [HALF, low((6, 4, 50), (1, 4, 20))], replace(TINY, gate=7))
    assert {row.detail for row in run.rows(Kind.LET_GO, 1)} == {Reason.ALONE}
    assert run.times(Kind.REACHED, 1) == [6, 116]


def test_a_full_stream_makes_the_thread_wait() -> None:
    run = drive("mps", [low((1, 4, 50), (1, 4, 50), (1, 4, 50))], replace(TINY, queue=1))
    assert run.times(Kind.LAUNCHED, 0) == [1, 61, 121]


def test_nothing_is_launched_from_the_horizon_on() -> None:
    endless = Client("l", program((1, 4, 50), (1, 4, 50)), 1)
    run = drive("mps", [endless], horizon=120)
    assert run.times(Kind.LEFT, 0) == [120]
    assert max(run.times(Kind.LAUNCHED, 0)) < 120
    assert run.state.over()


@pytest.mark.parametrize("spec", ["mps", "time-slicing", "headway"])
def test_the_same_seed_writes_the_same_tape(spec: str) -> None:
    clients = [HALF, low((1, 4, 50), (3, 9, 70))]
    assert drive(spec, clients).tape.digest == drive(spec, clients).tape.digest
