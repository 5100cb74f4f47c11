"""What the shim believes of a program: of its shapes, its streams, what it is owed, its contexts, its broker."""

import os
import time
from pathlib import Path

import pytest

from headway.gpu.model.reflex import Reason
from headway.gpu.share.block.block import KERNELS, LIVE, Slot
from tests.native.harness import Built, broker_process
from tests.native.mini_broker import MiniBroker
from tests.native.test_threads import named, right

MS = 1_000_000
GOING = ("cuCtxDestroy", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRelease")
"""By which a context goes."""
SHAPES = 768
"""So many kernels are known by their shape; beyond them by their name."""


@pytest.mark.parametrize("stored", [0, 512])
def test_beyond_so_many_shapes_a_kernel_is_known_by_its_name_as_its_longest(
    built: Built, share: Path, tmp_path: Path, stored: int
) -> None:
    def fill(slot: Slot) -> None:
        for index in range(stored):  # what the broker had stored of the program takes room as well
            slot.kernels[2 * index].id = 2 * index + KERNELS

    with MiniBroker(share, {5: {"sample_every": 1}}, seed=fill) as broker:
        flags = ("--verb", "shapes", "--kernel", "many:1", "--kernel", "long:3000", "--launch", "1100")
        run = built.run(tmp_path, share, *flags, priority=5)
        (seen,) = broker.wait(1)
    assert right(run)
    rows = seen.rows
    assert sum(row["launches"] for row in rows) == run.did["launches"] == 1150  # every one has a row
    many = [row for row in rows if row["name"].startswith("many")]
    (long,) = [row for row in rows if row["name"].startswith("long")]
    assert len(many) == SHAPES - stored + 1
    assert sorted(row["launches"] for row in many)[-2:] == [1, 1100 - (SHAPES - stored)]
    assert (long["launches"], long["varied"]) == (50, 1)
    assert long["samples"] > 0
    assert long["longest_ns"] > 2 * MS
    assert seen.ledger["work_ns"] > 40 * 2 * MS  # it counted as what it is


def test_a_kernel_known_by_name_waits_like_any_other(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share, {5: {"silence_ns": 60_000 * MS, "sample_every": 1}}) as broker:
        flags = ("--verb", "shapes", "--kernel", "many:1", "--kernel", "long:3000", "--launch", "1100")
        low = built.start(tmp_path, share, *flags, priority=5)
        broker.until(lambda slot: slot.ledger.kernels > 1110)
        index = broker.neighbour()
        broker.until(lambda slot: slot.want.fill_ns > 2 * MS)  # it waits, as a kernel of three milliseconds
        broker.block.clear(index)
        assert right(low.end())


def pulse_after(broker: MiniBroker, syncs: int) -> Slot:
    """The only client's slot, once it has waited so often."""
    broker.until(lambda slot: slot.ledger.syncs >= syncs)
    (slot,) = [slot for slot in broker.block.slots if slot.state == LIVE]
    return slot


def test_a_program_whose_streams_overlap_is_not_believed_busy_for_ever(
    built: Built, broker: MiniBroker, tmp_path: Path
) -> None:
    flags = ("--verb", "two-streams", "--kernel", "half:1000", "--launch", "400", "--sleep-ms", "600")
    client = built.start(tmp_path, broker.path, *flags)
    slot = pulse_after(broker, 800)
    assert slot.pulse.launches == 1600
    assert slot.pulse.busy_ns - time.monotonic_ns() <= 2 * MS  # what the other stream may still have to do
    assert right(client.end())


def test_without_a_wait_a_program_is_not_believed_busy_for_long(
    built: Built, broker: MiniBroker, tmp_path: Path
) -> None:
    flags = ("--kernel", "half:1000", "--threads", "3", "--launch", "1000", "--sync-every", "0")
    client = built.start(tmp_path, broker.path, *flags)
    broker.until(lambda slot: slot.ledger.kernels >= 3000)
    (slot,) = [slot for slot in broker.block.slots if slot.state == LIVE]
    # Three seconds of work side by side; threads may have written the two numbers at slightly different times.
    assert slot.pulse.busy_ns - slot.pulse.launch_ns <= 1000 * MS
    assert right(client.end())


def test_a_wait_for_an_old_event_does_not_mean_that_all_is_done(
    built: Built, broker: MiniBroker, tmp_path: Path
) -> None:
    flags = ("--verb", "old-event", "--kernel", "short:100", "--kernel", "long:80000", "--sleep-ms", "600")
    client = built.start(tmp_path, broker.path, *flags)
    slot = pulse_after(broker, 13)
    assert slot.pulse.busy_ns - slot.pulse.next_ns > 20 * MS  # eighty are queued behind the event it waited for
    run = client.end()
    assert right(run)
    assert named(run, "long")[-1]["end"] > run.did["end_ns"]


def test_who_did_little_for_long_is_not_owed_a_flood(built: Built, share: Path, tmp_path: Path) -> None:
    steady = {"silence_ns": 60_000 * MS, "floor_ppm": 50_000, "credit_ppm": 0, "absorb_ppm": 0}
    with MiniBroker(share, {5: steady}) as broker:
        broker.neighbour()
        kernels = ("--kernel", "tiny:10", "--kernel", "big:1000")
        flags = ("--verb", "flood", *kernels, "--for-ms", "1200", "--launch", "30")
        run = built.run(tmp_path, share, *flags, priority=5)
        ledger = broker.wait(1)[0].ledger
    assert right(run)
    assert ledger["reasons"][Reason.FLOOR] == ledger["kernels"] == run.did["launches"]
    # A twentieth of the time: thirty milliseconds' worth, less what may be owed, takes half a second.
    big = [row["at"] for row in named(run, "big")][-30:]
    assert big[-1] - big[0] > 200 * MS


@pytest.mark.parametrize("killed", [True, False])
def test_a_program_whose_broker_was_replaced_joins_the_new_one(
    built: Built, share: Path, tmp_path: Path, killed: bool
) -> None:
    flags = ("--kernel", "small:20", "--for-ms", "9000", "--gap-us", "300")
    if killed:
        with broker_process(share) as process:
            client = built.start(tmp_path, share, *flags, priority=5)
            time.sleep(0.5)
            process.kill()
    else:
        with MiniBroker(share) as first:
            client = built.start(tmp_path, share, *flags, priority=5)
            first.until(lambda slot: slot.ledger.kernels > 100)
    with MiniBroker(share) as second:
        second.until(lambda slot: slot.ledger.kernels > 200 and slot.ledger.samples > 0)
        (slot,) = [slot for slot in second.block.slots if slot.state == LIVE]
        assert (slot.owner, slot.priority, slot.seeded, slot.ledger.open) == (client.process.pid, 5, 1, 0)
        assert slot.ledger.reasons[Reason.ALONE] + slot.ledger.passed > 100  # gated again
        mapped = Path(f"/proc/{client.process.pid}/maps").read_text()
        assert mapped.count("headway-share") == 1  # the memory of the first one was given back
        before = slot.ledger.reasons[Reason.HOLD]
        slot.rules.hold, slot.rules.silence_ns = 1, 60_000 * MS
        index = second.neighbour()
        second.until(lambda slot: slot.ledger.reasons[Reason.HOLD] > before and slot.want.fill_ns > 0)
        second.block.clear(index)
        client.process.kill()
        client.end()
        assert not second.wait(1)[0].left


def test_what_is_in_flight_is_not_learnt_into_a_slot_that_was_lost(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share, {0: {"sample_every": 1, "watched": 1}}) as broker:
        flags = ("--kernel", "slow:300000", "--launch", "4", "--sync-every", "1")
        client = built.start(tmp_path, share, *flags)
        broker.until(lambda slot: slot.ledger.samples == 1)  # the second launch was timed; the third is in flight
        broker.frozen = True
        broker.block.clear(0)
        slot = broker.block.slots[0]
        slot.owner, slot.state = os.getpid(), LIVE  # another program's now
        run = client.end()
        learnt = [(row.samples, row.work_ns, row.longest_ns) for row in slot.kernels]
        steps = [row.work_ns for row in slot.steps]
        broker.block.clear(0)
    assert right(run)
    assert set(learnt) == {(0, 0, 0)}
    assert set(steps) == {0}


@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("way", ["direct", "dlsym", "proc0", "old0", "runtime0"])
def test_events_of_a_context_that_is_gone_are_forgotten(
    built: Built, share: Path, tmp_path: Path, way: str, priority: int
) -> None:
    with MiniBroker(share, {priority: {"sample_every": 1, "watched": 1}}) as broker:
        flags = ("--verb", "contexts", "--kernel", "some:200", "--launch", "40", "--reach", way)
        run = built.run(tmp_path, share, *flags, priority=priority)
        ledger = broker.wait(1)[0].ledger
    assert right(run)
    assert "dead" not in run.said  # the stub aborts at a touch of an event of a dead context
    assert run.total(*(f"{name}{end}" for name in GOING for end in ("", "_v2"))) == 3
    assert run.total(*GOING) == (2 if way == "runtime0" else 0)  # the functions of before CUDA 11
    assert ledger["kernels"] == 160
    assert ledger["samples"] > 60  # not only in the first context


@pytest.mark.parametrize("priority", [0, 5])
def test_work_begun_across_the_end_of_a_context_is_dropped_and_the_next_context_is_learnt_in(
    built: Built, share: Path, tmp_path: Path, priority: int
) -> None:
    with MiniBroker(share, {priority: {"sample_every": 1, "watched": 1}}) as broker:
        run = built.run(
            tmp_path, share, "--verb", "across", "--kernel", "some:200", "--launch", "20", priority=priority
        )
        (seen,) = broker.wait(1)
    assert right(run), run.said
    assert run.total("loading") == 3
    assert seen.ledger["kernels"] == 3 * 46
    assert seen.ledger["samples"] > 60
    ((_, row),) = seen.kernels.items()
    assert row["longest_ns"] < 50 * MS  # none took the 100 ms that those across the end stayed in the driver


@pytest.mark.parametrize("priority", [0, 5])
def test_no_event_is_made_while_a_context_goes(built: Built, share: Path, tmp_path: Path, priority: int) -> None:
    words = ("--verb", "beside-resets", "--kernel", "some:20", "--launch", "30")
    samples = 0
    for attempt in range(3):  # an event that falls into a reset ends all timing of a run
        block, folder = share.with_name(f"block-{attempt}"), tmp_path / str(attempt)
        folder.mkdir()
        with MiniBroker(block, {priority: {"sample_every": 1, "watched": 1}}) as broker:
            run = built.run(folder, block, *words, priority=priority)
            samples += broker.wait(1)[0].ledger["samples"]
        assert right(run), run.said
        assert run.total("cuDevicePrimaryCtxReset_v2") == 30
    assert samples > 0  # at the latest in the context that stayed


def test_releasing_a_context_that_stays_leaks_no_events(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share, {0: {"sample_every": 1, "watched": 1}}) as broker:
        run = built.run(tmp_path, share, "--verb", "retained", "--kernel", "some:5", "--launch", "50")
        ledger = broker.wait(1)[0].ledger
    assert right(run), run.said
    made, destroyed = run.total("cuEventCreate"), run.total("cuEventDestroy_v2")
    assert ledger["kernels"] == 500
    assert made > 50
    assert made - destroyed <= 20  # those of the last round, not of all fifty


@pytest.mark.parametrize("way", ["dlsym", "proc0", "proc2", "nested"])
def test_a_base_name_that_means_two_functions_leads_to_the_one_that_was_asked_for(
    built: Built, broker: MiniBroker, tmp_path: Path, way: str
) -> None:
    run = built.run(tmp_path, broker.path, "--reach", way, "--verb", "every", "--launch", "1")
    assert right(run)
    assert [row["call"] for row in run.calls("cuCtxSynchronize")] == [
        "cuCtxSynchronize",
        *["cuCtxSynchronize_v2", "cuCtxSynchronize"] * 2,
    ]
    assert broker.wait(1)[0].ledger["syncs"] == run.did["syncs"] + 4
