"""A pass: with nobody above at work launches do not ask; a first one above, and a hold, are obeyed at the next one."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.gpu.share.block.block import Slot
from tests.native.harness import NATIVE, Built, Run, compiled
from tests.native.mini_broker import MiniBroker

QUIET = {"silence_ns": 2_000_000_000, "credit_ppm": 0, "absorb_ppm": 0, "floor_ppm": 0, "sample_every": 256}
BUSY = ("--kernel", "small:2", "--for-ms", "1500", "--gap-us", "20", "--sync-every", "0")
AT_ONCE = 1
"""The launch that was on its way from the gate to the driver when the other one came."""


def held_from(built: Built, share: Path, folder: Path, stop: Callable[[Slot, Slot], None]) -> tuple[Run, int, int]:
    """Run a program with a pass beside one that is silent; once it goes, do ``stop`` to the two slots.

    Return the run, how many launches had gone without asking by then, and when it was done.
    """
    with MiniBroker(share, {5: QUIET}) as broker:
        above = broker.block.slots[broker.neighbour(busy_s=0)]
        above.pulse.launch_ns = above.pulse.busy_ns = 1  # long ago
        client = built.start(folder, share, *BUSY, priority=5, name="low")
        broker.until(lambda slot: slot.ledger.passed > 2_000, "low")
        own = next(slot for slot in broker.block.slots if slot.name == b"low")
        passed = own.ledger.passed
        stop(own, above)
        at = time.monotonic_ns()
        broker.until(lambda slot: slot.want.fill_ns > 0, "low")
        time.sleep(0.2)
        above.pulse.launch_ns = above.pulse.busy_ns = 1
        own.rules.hold = 0
        run = client.end()
    return run, passed, at


def comes_back(own: Slot, above: Slot) -> None:
    """Launch something long above."""
    now = time.monotonic_ns()
    above.pulse.next_ns = above.pulse.busy_ns = now + 1_000_000_000
    above.pulse.launch_ns = now


def watched(own: Slot, above: Slot) -> None:
    """Hold those below while the one above does next to nothing."""
    own.rules.hold = 1
    above.pulse.next_ns = time.monotonic_ns() + 1_000_000_000
    above.pulse.launch_ns = time.monotonic_ns()


@pytest.mark.parametrize("stop", [comes_back, watched])
def test_the_first_launch_above_is_obeyed_at_the_next_one(
    built: Built, share: Path, tmp_path: Path, stop: Callable[[Slot, Slot], None]
) -> None:
    run, passed, at = held_from(built, share, tmp_path, stop)
    assert passed > 2_000
    assert run.did["errors"] == 0
    later = [row for row in run.calls("cuLaunchKernel") if at < row["at"] < at + 150_000_000]
    assert len(later) <= AT_ONCE
    assert run.calls("cuLaunchKernel")[-1]["at"] > at, "it went on after that"


def test_a_hold_is_obeyed_by_who_has_a_pass_already(built: Built, share: Path, tmp_path: Path) -> None:
    """Nobody above is at work: held programs go on, but ask each time, and so with little in flight."""
    with MiniBroker(share, {5: QUIET}) as broker:
        client = built.start(tmp_path, share, *BUSY, priority=5, name="low")
        broker.until(lambda slot: slot.ledger.passed > 1_000, "low")
        own = next(slot for slot in broker.block.slots if slot.name == b"low")
        own.rules.hold = 1
        time.sleep(0.01)  # one that was on its way
        before = (own.ledger.passed, own.ledger.kernels)
        broker.until(lambda slot: slot.ledger.kernels > before[1] + 1_000, "low")
        assert own.ledger.passed == before[0]
        client.end()


def test_what_goes_on_a_pass_is_in_flight_and_ends_it(built: Built, share: Path, tmp_path: Path) -> None:
    """A program that launches faster than the GPU works asks again before more is in flight than may be."""
    with MiniBroker(share, {5: QUIET | {"idle_depth_ns": 1_000_000}}) as broker:
        run = built.run(
            tmp_path, share, "--kernel", "some:20", "--launch", "3000", "--sync-every", "0", priority=5, name="low"
        )
        seen = broker.wait(1)[0]
    assert run.did["errors"] == 0
    assert seen.ledger["passed"] > 0
    assert seen.ledger["waits"] > 0
    first = run.calls("cuLaunchKernel")[0]["at"]
    for number, row in enumerate(run.calls("cuLaunchKernel")):
        assert number * 20_000 - (row["at"] - first) < 3_000_000, "at most what may be in flight, and some more"


def test_a_launch_above_between_the_look_and_the_pass_ends_it(tmp_path: Path) -> None:
    probe = compiled(tmp_path / "pass", [NATIVE / "test" / "pass_probe.cpp"], "-fsanitize=undefined")
    assert subprocess.run([probe], capture_output=True, text=True, check=True).stdout == "1 0\n"
