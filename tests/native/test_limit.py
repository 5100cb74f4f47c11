"""A program with a limit on SMs: its kernels never count as wider than that, and their waves as those on fewer SMs."""

import struct
from pathlib import Path

import pytest

from headway.gpu.model.reflex import Look, Verdict
from tests.native.harness import Built
from tests.native.mini_broker import SMS, MiniBroker

ROW = struct.Struct(f"<{len(Look._fields) + len(Verdict._fields)}q")
OWED = {"silence_ns": 60_000_000_000, "floor_ppm": 500_000, "credit_ppm": 0, "absorb_ppm": 0}


def looked(built: Built, share: Path, folder: Path, grid: int, limit: str) -> tuple[Look, int, int]:
    """Run a kernel of so many blocks beside somebody at work; the last look, blocks on an SM, the limit in the slot."""
    tape = folder / "looks"
    with MiniBroker(share, {5: OWED}) as broker:
        broker.neighbour()
        flags = ("--kernel", "k:20", "--grid", str(grid), "--launch", "60", "--sleep-ms", "300")
        client = built.start(folder, share, *flags, priority=5, HEADWAY_SMS=limit, HEADWAY_LOOKS=str(tape))
        broker.until(lambda slot: slot.ledger.kernels >= 60)
        (ppm,) = [slot.sms_ppm for slot in broker.block.slots if slot.name == b"test"]
        client.end()
        (row,) = broker.wait(1)[0].rows
    looks = [Look(*numbers[: len(Look._fields)]) for numbers in ROW.iter_unpack(tape.read_bytes())]
    return looks[-1], row["per_sm"], ppm


@pytest.mark.parametrize("limit", ["300000", "1000000", "0", "", "-5", "x"])
def test_a_kernel_is_as_wide_as_its_blocks_and_no_wider_than_its_program_may_be(
    built: Built, share: Path, tmp_path: Path, limit: str
) -> None:
    limited = limit == "300000"
    own = 40 if limited else SMS  # a limit is rounded up to whole SMs
    seen, per_sm, ppm = looked(built, share, tmp_path, 10 * SMS, limit)
    assert ppm == (300_000 if limited else 0)
    assert seen.width_ppm == own * 1_000_000 // SMS
    waves = -(-10 * SMS // (own * per_sm))
    assert seen.wave_ns == (seen.fill_ns // waves + 1 if waves > 1 else seen.fill_ns)


def test_a_narrow_kernel_is_as_wide_as_before(built: Built, share: Path, tmp_path: Path) -> None:
    seen, per_sm, _ = looked(built, share, tmp_path, 13, "300000")
    assert seen.width_ppm == 13 * 1_000_000 // (SMS * per_sm)
