"""Threads that need one another: what one waits for, in the driver or on the GPU, holds up no launch of another."""

import time
from pathlib import Path
from typing import Any

import pytest

from headway.gpu.model.reflex import Reason
from headway.gpu.share.block.block import FREE
from tests.native.harness import Built, Run
from tests.native.mini_broker import MiniBroker

SECOND = 1_000_000_000
MANGLED = "_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE"
WENT = (Reason.OFF, Reason.ALONE, Reason.FITS, Reason.ABSORBED, Reason.CREDIT, Reason.FLOOR)


def right(run: Run) -> bool:
    """Whether the program did what it was asked to, and nothing it passed to the driver was changed."""
    return (run.status, run.did["errors"], run.did["intact"], run.said) == (0, 0, True, "")


def named(run: Run, name: str) -> list[dict[str, Any]]:
    """The launches of a kernel."""
    return [row for row in run.calls("cuLaunchKernel") if row["name"] == name]


def test_threads_that_launch_are_counted_and_so_is_each_launch(
    built: Built, broker: MiniBroker, tmp_path: Path
) -> None:
    run = built.run(tmp_path, broker.path, "--threads", "4", "--launch", "300", "--sync-every", "10")
    assert right(run)
    ledger = broker.wait(1)[0].ledger
    assert (ledger["threads"], ledger["kernels"]) == (4, len(run.calls("cuLaunchKernel")))


@pytest.mark.parametrize("learnt", [False, True])
def test_a_kernel_that_does_not_end_holds_up_no_launch(
    built: Built, broker: MiniBroker, tmp_path: Path, learnt: bool
) -> None:
    flags = ("--verb", "stuck", "--kernel", "recv:150000", "--kernel", "small:10", "--think-us", str(int(learnt)))
    run = built.run(tmp_path, broker.path, *flags, priority=5)
    assert right(run)
    (stuck,) = [row for row in named(run, "recv") if row["end"] - row["start"] == 8 * SECOND]
    after = [row for row in named(run, "small") if row["at"] > stuck["at"]]
    assert len(after) == 7
    assert max(row["at"] for row in after) < stuck["end"] - 4 * SECOND


def test_a_copy_that_waits_for_the_gpu_holds_up_no_launch(built: Built, broker: MiniBroker, tmp_path: Path) -> None:
    run = built.run(tmp_path, broker.path, "--verb", "behind-copy", "--kernel", "small:10", priority=5)
    assert right(run)
    (copy,) = run.calls("cuMemcpyHtoD_v2")
    after = [row for row in named(run, "small") if row["at"] > copy["at"]]
    assert len(after) == 3
    assert max(row["at"] for row in after) < copy["end"] - SECOND
    ledger = broker.wait(1)[0].ledger
    assert (ledger["copies"], ledger["kernels"]) == (1, 14)


def test_a_launch_that_stays_in_the_driver_holds_up_no_other(built: Built, broker: MiniBroker, tmp_path: Path) -> None:
    run = built.run(tmp_path, broker.path, "--verb", "behind-launch", "--kernel", "small:10", priority=5)
    assert right(run)
    (lazy,) = named(run, "lazy")  # noted by the driver when its two seconds of loading are over
    small = named(run, "small")
    assert len(small) == 13
    assert max(row["at"] for row in small) < lazy["at"] - SECOND


def test_captures_of_one_thread_are_not_broken_by_launches_of_another_and_those_stay_gated(
    built: Built, share: Path, tmp_path: Path
) -> None:
    with MiniBroker(share, {5: {"sample_every": 1}}) as broker:
        flags = ("--verb", "beside-captures", "--kernel", "busy:300", "--launch", "60")
        run = built.run(tmp_path, share, *flags, priority=5)
        ledger = broker.wait(1)[0].ledger
    assert right(run)
    assert run.total("query beside a capture") > 0  # the gate looked while a capture was under way
    assert run.total("broken capture", "event in a capture") == 0
    assert run.total("cuThreadExchangeStreamCaptureMode") % 2 == 0
    assert [row["result"] for row in run.calls("cuStreamEndCapture")] == [0] * 60
    assert (ledger["captured"], ledger["kernels"]) == (60, run.did["launches"])
    # Each launch has gone through the gate, for a reason; that it waited first is another one.
    assert sum(ledger["reasons"][reason] for reason in WENT) == run.did["launches"]
    assert ledger["reasons"][Reason.DEPTH] > 0
    assert ledger["samples"] > 20  # events were believed to the end


def test_nccl_kernels_are_known_by_their_mangled_names_never_held_and_never_timed(
    built: Built, share: Path, tmp_path: Path
) -> None:
    with MiniBroker(share, {5: {"hold": 1, "silence_ns": 2 * SECOND, "sample_every": 1}}) as broker:
        broker.neighbour()
        run = built.run(tmp_path, share, "--kernel", f"{MANGLED}:20", "--launch", "30", priority=5)
        (seen,) = broker.wait(1)
    assert right(run)
    assert seen.ledger["nccl"] == seen.ledger["kernels"] == run.did["nccl"] == 30
    assert (seen.ledger["waits"], seen.ledger["samples"], sum(seen.ledger["reasons"])) == (0, 0, 0)
    (kernel,) = seen.kernels.values()
    assert (kernel["launches"], kernel["samples"]) == (30, 0)
    assert run.total("cuEventRecord") == 0


@pytest.mark.parametrize("priority", [0, 5])
def test_a_thread_that_launches_while_its_process_exits_touches_nobodys_slot(
    built: Built, broker: MiniBroker, tmp_path: Path, priority: int
) -> None:
    client = built.start(tmp_path, broker.path, "--verb", "exit", "--kernel", "small:5", priority=priority)
    (seen,) = broker.wait(1)
    assert seen.left
    slot = broker.block.slots[0]
    while client.process.poll() is None:  # the slot is free, the process is not gone yet
        assert (slot.state, slot.owner) == (FREE, 0)
        time.sleep(0.01)
    run = client.end()
    assert (run.status, run.said) == (0, "")
    later = [row for row in run.calls("cuLaunchKernel") if row["at"] > seen.ledger["beat_ns"]]
    assert len(later) > 100
    # At most the launch that was under way when the slot was left.
    assert slot.pulse.launches <= 1
    assert slot.ledger.kernels <= 1
