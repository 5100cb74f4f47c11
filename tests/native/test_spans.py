"""Whole steps in the ring of a slot, and the requests that a program marks itself."""

import ctypes
from itertools import pairwise
from pathlib import Path

from headway.gpu.share.block import slot_steps
from headway.gpu.share.block.block import LIVE, SPANS, Slot
from tests.native.harness import Built
from tests.native.mini_broker import MiniBroker
from tests.native.test_threads import right

MS = 1_000_000


def only(broker: MiniBroker) -> Slot:
    """The slot of the only client."""
    (slot,) = [slot for slot in broker.block.slots if slot.state == LIVE]
    return slot


def test_a_step_is_from_the_first_launch_after_a_wait_to_the_end_of_the_wait_that_closes_it(
    built: Built, broker: MiniBroker, tmp_path: Path
) -> None:
    flags = ("--kernel", "some:300", "--launch", "70", "--sync-every", "7", "--think-us", "2000", "--sleep-ms", "800")
    client = built.start(tmp_path, broker.path, *flags)
    broker.until(lambda slot: slot.ledger.spans >= 10)
    steps, count = slot_steps.read(only(broker), 0)
    assert slot_steps.read(only(broker), count) == ([], count)
    run = client.end()
    assert right(run)
    assert len(steps) == count == 10
    assert {(step.launches, step.marked) for step in steps} == {(7, False)}
    assert len({step.kind for step in steps}) == 1
    assert all(step.end_ns - step.begin_ns >= 7 * 250_000 for step in steps)
    assert all(0 < step.cpu_ns < (step.end_ns - step.begin_ns) // 2 for step in steps), "it waits most of the time"
    pauses = [after.begin_ns - before.end_ns for before, after in pairwise(steps)]
    assert min(pauses) >= 2 * MS, "the pause between requests is nobody's"


def test_the_time_in_which_a_program_does_not_wait_is_that_of_its_processor(
    built: Built, broker: MiniBroker, tmp_path: Path
) -> None:
    flags = ("--kernel", "some:20", "--launch", "50", "--sync-every", "5", "--gap-us", "1000", "--sleep-ms", "800")
    client = built.start(tmp_path, broker.path, *flags)
    broker.until(lambda slot: slot.ledger.spans >= 10)
    steps, _ = slot_steps.read(only(broker), 0)
    assert right(client.end())
    for step in steps:
        assert 4 * MS <= step.cpu_ns <= step.end_ns - step.begin_ns, "four pauses between five launches"


def test_steps_of_other_kernels_are_of_another_kind(built: Built, broker: MiniBroker, tmp_path: Path) -> None:
    flags = ("--kernel", "a:20", "--kernel", "b:20", "--kernel", "c:20", "--launch", "60", "--sync-every", "2")
    client = built.start(tmp_path, broker.path, *flags, "--sleep-ms", "800")
    broker.until(lambda slot: slot.ledger.spans >= 30)
    steps, _ = slot_steps.read(only(broker), 0)
    assert right(client.end())
    assert len({step.kind for step in steps}) == 3  # ab, ca, bc
    assert steps[0].kind == steps[3].kind


def test_requests_are_marked_by_calls_and_by_nvtx_ranges(built: Built, broker: MiniBroker, tmp_path: Path) -> None:
    flags = ("--verb", "marked", "--kernel", "a:100", "--kernel", "b:100", "--launch", "6", "--sleep-ms", "800")
    client = built.start(tmp_path, broker.path, *flags)
    broker.until(lambda slot: slot.ledger.spans >= 18)
    steps, _ = slot_steps.read(only(broker), 0)
    assert right(client.end())
    marked = [step for step in steps if step.marked]
    plain = [step for step in steps if not step.marked]
    assert [step.launches for step in marked] == [4] * 6
    assert [step.launches for step in plain] == [2] * 12
    for number, request in enumerate(marked):
        first, second = plain[2 * number : 2 * number + 2]
        assert request.begin_ns <= first.begin_ns
        waited = sum(step.end_ns - step.begin_ns - step.cpu_ns for step in (first, second))
        assert request.end_ns - request.begin_ns - request.cpu_ns == waited, "the waits of its two steps"
        assert second.end_ns <= request.end_ns


def test_without_a_broker_a_mark_does_nothing(built: Built, tmp_path: Path) -> None:
    run = built.run(tmp_path, tmp_path / "nothing", "--verb", "marked", "--launch", "6")
    assert (run.status, run.did["errors"], run.did["intact"]) == (0, 0, True)
    assert run.said.startswith("headway: no broker here")


def _written(slot: Slot, number: int, begin: int, end: int) -> None:
    span = slot.spans[(number - 1) % SPANS]
    span.begin_ns, span.end_ns, span.launches, span.number = begin, end, 1, number


def test_what_the_ring_has_lost_or_is_not_plausible_is_left_out() -> None:
    slot = Slot()
    for number in range(1, SPANS + 101):
        _written(slot, number, number * MS, number * MS + 5)
    slot.ledger.spans = SPANS + 100
    steps, count = slot_steps.read(slot, 50)
    assert count == SPANS + 100
    assert [step.begin_ns // MS for step in steps] == list(range(101, SPANS + 101))
    slot.spans[7].number = 0  # being written
    _written(slot, SPANS + 50, 9 * MS, 9 * MS)  # takes no time
    _written(slot, SPANS + 51, -(2**62), 2**62)
    assert len(slot_steps.read(slot, 0)[0]) == SPANS - 3
    slot.ledger.spans = 3  # another process in the same slot
    assert slot_steps.read(slot, SPANS + 100) == ([], 3)
    assert ctypes.sizeof(slot.spans) == 40 * SPANS
