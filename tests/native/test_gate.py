"""The gate: what fits goes, what does not waits, the highest comes first, equals take turns, a floor is kept."""

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from headway.gpu.model.reflex import Reason
from headway.gpu.share.block.block import Slot
from tests.native.harness import Built, Run
from tests.native.mini_broker import MiniBroker, Seen

STEADY = {"silence_ns": 2_000_000_000, "credit_ppm": 0, "absorb_ppm": 0, "floor_ppm": 0}
"""Nobody is taken for silent because the machine was busy for a moment."""
HELD = STEADY | {"hold": 1}


def during(low: Run, high: Run, after_ns: int = 50_000_000) -> list[dict[str, Any]]:
    """The low program's launches while the high one was at work."""
    begin, end = high.did["begin_ns"] + after_ns, high.calls("cuLaunchKernel")[-1]["at"]
    return [row for row in low.calls("cuLaunchKernel") if begin < row["at"] < end]


def of(broker: MiniBroker, count: int) -> dict[str, Seen]:
    """Who was there, by name."""
    return {seen.name: seen for seen in broker.wait(count)}


HIGH = ("--kernel", "short:20", "--for-ms", "1500", "--gap-us", "200", "--sync-every", "0")


def test_a_kernel_that_does_not_fit_waits_until_the_program_above_is_done(
    built: Built, share: Path, tmp_path: Path
) -> None:
    with MiniBroker(share, {5: STEADY | {"silence_ns": 300_000_000}}) as broker:
        slow = ("--kernel", "long:100000", "--launch", "10", "--sync-every", "1")
        low = built.start(tmp_path, share, *slow, priority=5, name="low")
        broker.until(lambda slot: slot.ledger.samples >= 2, "low")
        high = built.run(tmp_path, share, *HIGH, name="high")
        ended = low.end()
        seen = of(broker, 2)
    assert during(ended, high) == []
    assert (ended.did["launches"], ended.did["errors"], ended.did["intact"]) == (10, 0, True)
    assert seen["low"].ledger["waits"] >= 1
    assert seen["high"].ledger["waits"] == 0


def test_a_kernel_that_fits_goes(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share, {5: STEADY}) as broker:
        high = built.start(tmp_path, share, *HIGH[:-4], "--gap-us", "2000", "--sync-every", "0", name="high")
        broker.until(lambda slot: slot.ledger.kernels > 50, "high")
        low = built.run(tmp_path, share, "--kernel", "small:20", "--launch", "100", priority=5, name="low")
        high.end()
        seen = of(broker, 2)
    assert low.did["launches"] == 100
    assert seen["low"].ledger["reasons"][Reason.FITS] > 0
    assert seen["low"].ledger["harvested_ns"] > 0


def test_a_kernel_that_goes_while_nobody_is_above_counts_as_served_too(
    built: Built, share: Path, tmp_path: Path
) -> None:
    with MiniBroker(share, {5: STEADY}) as broker:
        asked = ("--kernel", "small:20", "--launch", "1000000", "--for-ms", "60000", "--gap-us", "500")
        low = built.start(tmp_path, share, *asked, priority=5, name="low")
        broker.until(lambda slot: slot.ledger.kernels > 20, "low")
        broker.until(lambda slot: 0 < slot.want.served_ns <= time.monotonic_ns(), "low")
        slot = next(slot for slot in broker.block.slots if slot.name == b"low")
        before = slot.want.served_ns
        broker.until(lambda slot: slot.want.served_ns > before, "low")
        low.process.kill()
        low.end()


def test_memsets_and_copies_of_boxes_are_timed_and_wait_like_kernels(built: Built, share: Path, tmp_path: Path) -> None:
    nothing_fits = STEADY | {"silence_ns": 300_000_000, "threshold_ns": 10**9, "depth_ns": 0}
    with MiniBroker(share, {5: nothing_fits}) as broker:
        alone = built.run(tmp_path, share, "--verb", "move", "--launch", "40", priority=5, name="alone")
        high = built.start(tmp_path, share, *HIGH, name="high")
        broker.until(lambda slot: slot.ledger.kernels > 50, "high")
        low = built.run(tmp_path, share, "--verb", "move", "--launch", "4", priority=5, name="low")
        high_ended = high.end()
        seen = of(broker, 3)
    for run, count in ((alone, 40), (low, 4)):
        assert (run.did["errors"], run.did["copies"], run.did["captured"]) == (0, count, 1)
    for name, count in (("alone", 40), ("low", 4)):
        assert (seen[name].ledger["copies"], seen[name].ledger["captured"], seen[name].ledger["nccl"]) == (count, 1, 0)
    rows = seen["alone"].kernels
    assert set(rows) == {"memset of 2^22 bytes", "copy within of 2^22 bytes"}
    for row in rows.values():
        assert row["samples"] >= 4
        assert row["kind"] == 3
        assert 100_000 < row["work_ns"] < 2_000_000, "as it was measured: of 210 microseconds"
    assert seen["low"].ledger["waits"] >= 1
    end = high_ended.calls("cuLaunchKernel")[-1]["at"]
    assert [row for row in low.calls("cuMem") if not row["captured"] and row["at"] < end] == []


def test_what_it_costs_to_ask_is_told_apart_from_the_hooks(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share, {5: HELD}) as broker:  # with nobody above held programs go, and ask each time
        asked = ("--kernel", "small:2", "--launch", "3000", "--sync-every", "50")
        low = built.run(tmp_path, share, *asked, priority=5, name="low")
        high = built.run(tmp_path, share, *asked, name="high")
        seen = of(broker, 2)
    assert (low.did["launches"], high.did["launches"]) == (3000, 3000)
    below, above = seen["low"].ledger, seen["high"].ledger
    assert below["asked"] + below["waits"] >= 3000 // 256, "one in 256, and not those that waited"
    assert below["asked_ns"] > 0
    assert (below["hooked"], above["asked"], above["asked_ns"]) == (0, 0, 0)
    assert above["hooked"] > 0


def test_in_a_pause_it_is_told_what_the_next_request_absorbs(built: Built, share: Path, tmp_path: Path) -> None:
    """Requests of five short kernels a millisecond apart, with pauses: four milliseconds in which the GPU idles."""
    rules = STEADY | {"absorb_ppm": 1_000_000, "whole": 0, "depth_ns": 1_000_000}
    asked = ("--kernel", "short:20", "--gap-us", "1000", "--sync-every", "5", "--think-us", "20000")
    with MiniBroker(share, {5: rules}) as broker:
        high = built.start(tmp_path, share, *asked, "--launch", "1000000", "--for-ms", "60000", name="high")
        broker.until(lambda slot: slot.ledger.syncs > 12, "high")
        # In the pause, and only then: the wait is over, and the next launch far away.
        broker.until(
            lambda slot: slot.pulse.next_ns > slot.pulse.launch_ns + 10_000_000 and slot.pulse.slack_ns > 0, "high"
        )
        slot = next(slot for slot in broker.block.slots if slot.name == b"high")
        slacks = sorted(step.slack_ns for step in slot.steps if step.key)
        low = built.start(tmp_path, share, "--kernel", "long:23000", "--launch", "12", priority=5, name="low")
        ended = low.end()
        seen = of(broker, 1)
        high.process.kill()
        high.process.communicate()
    assert slacks[-1] > 3_000_000
    assert ended.did["launches"] == 12
    assert seen["low"].ledger["reasons"][Reason.ABSORBED] > 0


def test_with_a_floor_nobody_starves(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share, {5: STEADY | {"floor_ppm": 200_000}}) as broker:
        slow = ("--kernel", "long:20000", "--launch", "12", "--sync-every", "1")
        low = built.start(tmp_path, share, *slow, priority=5, name="low")
        broker.until(lambda slot: slot.ledger.samples >= 2, "low")
        high = built.run(tmp_path, share, *HIGH, name="high")
        ended = low.end()
        seen = of(broker, 2)
    assert during(ended, high) != []
    assert seen["low"].ledger["reasons"][Reason.FLOOR] > 0


def test_who_is_held_waits_and_goes_on_when_released(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share, {5: HELD}) as broker:
        index = broker.neighbour()
        low = built.start(tmp_path, share, "--launch", "20", priority=5)
        broker.until(lambda slot: slot.ledger.reasons[Reason.HOLD] > 0 and slot.want.fill_ns > 0)
        with pytest.raises(subprocess.TimeoutExpired):
            low.process.wait(0.3)
        broker.block.clear(index)
        assert low.end().did["launches"] == 20


@pytest.mark.parametrize("flag", ["--launch", "--threads"])
def test_nccl_kernels_are_never_held(built: Built, share: Path, tmp_path: Path, flag: str) -> None:
    with MiniBroker(share, {5: HELD}) as broker:
        broker.neighbour()
        flags = ("--kernel", "_Z35ncclDevKernel_AllReduce_Sum_RING_LLv:20", flag, "3")
        run = built.run(tmp_path, share, *flags, priority=5)
        ledger = broker.wait(1)[0].ledger
    assert ledger["nccl"] == ledger["kernels"] == run.did["nccl"] == run.did["launches"]
    assert ledger["waits"] == 0


def test_a_capture_is_never_held_nor_touched(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share, {5: HELD | {"raised": 2, "sample_every": 1}}) as broker:
        index = broker.neighbour()
        low = built.start(tmp_path, share, "--verb", "capture-alone", "--launch", "40", priority=5)
        broker.until(lambda slot: slot.ledger.captured == 40 and slot.want.fill_ns > 0)  # the graph itself waits
        broker.block.clear(index)
        run = low.end()
    captured = [row for row in run.calls("cuLaunch") if row["captured"]]
    assert (len(captured), run.did["captured"], run.did["graphs"], run.did["errors"]) == (40, 40, 3, 0)
    assert all("priority" not in row for row in captured)
    assert run.total("event in a capture", "broken capture") == 0


def test_the_time_in_which_code_is_loaded_is_not_learnt(built: Built, broker: MiniBroker, tmp_path: Path) -> None:
    for priority in (0, 5):
        flags = ("--kernel", "lazy:300", "--load-ms", "80", "--launch", "60", "--sync-every", "1")
        built.run(tmp_path, broker.path, *flags, priority=priority, name=f"lazy{priority}")
    for seen in broker.wait(2):
        (row,) = seen.kernels.values()
        assert row["samples"] > 0
        assert seen.ledger["dropped"] >= 1
        assert 100_000 < row["work_ns"] < 40_000_000
        assert row["longest_ns"] < 80_000_000


def waiting(slot: Slot) -> bool:
    """Whether a program is at work and below another."""
    return bool(slot.ledger.kernels > 20)


def launches_of_two(built: Built, share: Path, tmp_path: Path, first: int, second: int) -> tuple[int, int]:
    """Play two programs of these priorities below a third; count the launches of each while all three are there."""
    rules = STEADY | {"depth_ns": 30_000, "threshold_ns": 0}
    with MiniBroker(share, {first: rules, second: rules}) as broker:
        gaps = ("--kernel", "short:20", "--for-ms", "2500", "--gap-us", "1000", "--sync-every", "0")
        fills = ("--kernel", "fill:200", "--for-ms", "2500", "--sync-every", "0")
        high = built.start(tmp_path, share, *gaps, name="high")
        broker.until(waiting, "high")
        low = [
            built.start(tmp_path, share, *fills, priority=priority, name=name)
            for name, priority in (("a", first), ("b", second))
        ]
        above = high.end()
        a, b = (each.end() for each in low)
        of(broker, 3)
    # Both were there from when the later one had learnt its kernel.
    begin, end = max(a.did["begin_ns"], b.did["begin_ns"]) + 300_000_000, above.calls("cuLaunchKernel")[-1]["at"]
    first_went, second_went = (
        len([row for row in run.calls("cuLaunchKernel") if begin < row["at"] < end]) for run in (a, b)
    )
    return first_went, second_went


@pytest.mark.parametrize(("first", "second"), [(3, 7), (5, 5)])
def test_the_higher_priority_comes_first_and_equals_take_turns(
    built: Built, share: Path, tmp_path: Path, first: int, second: int
) -> None:
    """Three attempts: a program that a busy machine keeps off its processors asks for no turn."""
    seen = []
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        went = launches_of_two(built, share.with_name(f"block{attempt}"), folder, first, second)
        seen.append(went)
        if min(went) * 6 >= max(went) > 0 if first == second else went[0] > 2 * went[1]:
            return
    pytest.fail(f"launches of the two in three attempts: {seen}")


def test_long_kernels_are_paid_for_one_after_another_beside_a_program_that_never_waits(
    built: Built, share: Path, tmp_path: Path
) -> None:
    paying = STEADY | {"credit_ppm": 100_000, "credit_cap_ns": 5_000_000}
    with MiniBroker(share, {5: paying}) as broker:
        low = built.start(
            tmp_path, share, "--kernel", "long:2000", "--grid", "5000", "--launch", "100000", priority=5, name="low"
        )
        broker.until(lambda slot: slot.ledger.samples >= 4, "low")
        enough = tmp_path / "enough"
        above = built.start(tmp_path, share, *HIGH, "--until", str(enough), name="high")
        # Two milliseconds of every twenty; once, if the first were never over.
        broker.until(lambda slot: slot.ledger.reasons[Reason.CREDIT] > 5, "low", seconds=60)
        enough.touch()
        high = above.end()
        low.process.kill()
        low.process.communicate()
    assert high.did["errors"] == 0


@pytest.mark.parametrize("long_us", [20_000, 250_000])
def test_beside_a_program_that_waits_longer_than_was_predicted_nothing_long_goes(
    built: Built, share: Path, tmp_path: Path, long_us: int
) -> None:
    """NCCL kernels are never timed and count as ten microseconds: that the program still waits is all that shows."""
    with MiniBroker(share, {5: STEADY | {"silence_ns": 100_000_000}}) as broker:
        waits = ("--kernel", f"ncclKernel:{long_us}", "--for-ms", "1500", "--sync-every", "1", "--gap-us", "100")
        batch = ("--kernel", "long:2000", "--launch", "100000", "--sync-every", "1")
        low = built.start(tmp_path, share, *batch, priority=5, name="low")
        broker.until(lambda slot: slot.ledger.samples >= 4, "low")
        slot = next(slot for slot in broker.block.slots if slot.name == b"low")
        before = slot.ledger.kernels
        high = built.run(tmp_path, share, *waits, name="high")
        went = slot.ledger.kernels - before
        # A wait is counted once, under what was in the way when it began.
        held = sum(slot.ledger.reasons[reason] for reason in (Reason.BUSY, Reason.GAP, Reason.DEPTH))
        low.process.kill()
        low.process.communicate()
    # It takes a moment until the high one has begun, and after its end this one is alone again.
    assert high.did["launches"] >= 6
    assert held >= 1
    assert went < 1500 // 2 // 2, "half of what it does alone"


def test_what_takes_long_beside_work_that_was_launched_ahead_is_not_learnt(
    built: Built, share: Path, tmp_path: Path
) -> None:
    """A program above that has launched ahead launches nothing for a while, and holds up those below all the same."""
    with MiniBroker(share, {5: {"overlap_ppm": 0, "sample_every": 1}}) as broker:
        batch = ("--kernel", "held:400", "--launch", "1000000", "--sync-every", "1")
        low = built.start(tmp_path, share, *batch, priority=5, name="low")
        broker.until(lambda slot: slot.ledger.samples >= 8, "low")
        slot = next(slot for slot in broker.block.slots if slot.name == b"low")
        row = next(row for row in slot.kernels if row.id)
        index, before = broker.neighbour(), slot.ledger.kernels
        broker.until(lambda slot: slot.ledger.kernels > before + 5, "low")  # it has seen the neighbour
        # What it took before somebody held it up; a busy machine may have varied it.
        row.work_ns, row.varied = 50_000, 0
        before = slot.ledger.kernels
        broker.until(lambda slot: slot.ledger.kernels > before + 100, "low")
        beside, varied, dropped = row.work_ns, row.varied, slot.ledger.dropped
        broker.block.clear(index)
        broker.until(lambda slot: row.work_ns > 100_000, "low")
        low.process.kill()
        low.process.communicate()
    assert (beside, varied) == (50_000, 0)
    assert dropped > 50
