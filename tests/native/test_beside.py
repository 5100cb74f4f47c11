"""What a program below runs beside those above is counted by kernel, and what is charged for it is asked for."""

from collections.abc import Callable
from pathlib import Path

from headway.gpu.model.reflex import Reason
from headway.gpu.share.block.block import KERNELS, Slot
from tests.native.harness import Built
from tests.native.mini_broker import MiniBroker

OWED = {"silence_ns": 60_000_000_000, "floor_ppm": 500_000, "credit_ppm": 0, "absorb_ppm": 0, "overlap_ppm": 250_000}
FLAGS = ("--kernel", "k:20", "--launch", "400", "--sleep-ms", "300")


def ended(built: Built, share: Path, folder: Path, broker: MiniBroker) -> Slot:
    """Run a program to its last launch; a copy of its slot."""
    client = built.start(folder, share, *FLAGS, priority=5)
    broker.until(lambda slot: slot.ledger.kernels >= 400)
    (slot,) = [Slot.from_buffer_copy(slot) for slot in broker.block.slots if slot.name == b"test"]
    client.end()
    return slot


def test_beside_somebody_at_work_all_of_its_time_counts_and_the_delay_that_is_reckoned(
    built: Built, share: Path, tmp_path: Path
) -> None:
    with MiniBroker(share, {5: OWED}) as broker:
        broker.neighbour()
        slot = ended(built, share, tmp_path, broker)
    (row,) = [row for row in slot.kernels if row.id]
    assert row.beside_ns == slot.ledger.harvested_ns > 0
    # One block on each SM of the stub fills it: an overlap of a quarter costs a quarter, rounded at each launch.
    width = min(1.0, row.blocks / (132 * row.per_sm))
    assert 0.9 * width / 4 < slot.ledger.harm_ns / row.beside_ns <= width / 4


def test_with_nobody_at_work_nothing_counts(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share, {5: OWED}) as broker:
        slot = ended(built, share, tmp_path, broker)
    assert sum(row.beside_ns for row in slot.kernels) == slot.ledger.harm_ns == 0


def known_as(number: int, charged_ppm: int) -> Callable[[Slot], None]:
    """Seed a slot with a kernel that is charged so much."""

    def seed(slot: Slot) -> None:
        row = slot.kernels[number % KERNELS]
        row.id, row.work_ns, row.samples, row.contention_ppm = number, 20_000, 50, charged_ppm

    return seed


def test_contention_is_paid_for(built: Built, share: Path, tmp_path: Path) -> None:
    """Where no delay is reckoned a kernel goes as one that fits; one that is charged for contention, by its credit."""
    rules = {**OWED, "floor_ppm": 0, "overlap_ppm": 0, "threshold_ns": 0}
    rules |= {"credit_ppm": 10_000, "credit_cap_ns": 1 << 20}
    with MiniBroker(share, {5: rules}) as broker:
        (number,) = [row.id for row in ended(built, share, tmp_path, broker).kernels if row.id]
    found = []
    for charged_ppm in (0, 500_000):
        with MiniBroker(share, {5: rules}, seed=known_as(number, charged_ppm)) as broker:
            broker.neighbour()
            reasons = ended(built, share, tmp_path, broker).ledger.reasons
            found.append((reasons[Reason.FITS], reasons[Reason.CREDIT]))
    assert found[0][0] > 300
    assert found[1][1] > 300
