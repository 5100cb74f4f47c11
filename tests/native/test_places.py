"""Kernels of one name and shape whose work differs, as persistent GEMMs do: what counts is where they are launched."""

from pathlib import Path

from headway.gpu.model.reflex import Reason
from headway.gpu.share.block.block import Slot
from tests.native.harness import Built
from tests.native.mini_broker import MiniBroker

SHORT_NS, LONG_NS = 20_000, 3_000_000
SAME = ("--kernel", "gemm:20", "--kernel", "gemm:3000", "--sync-every", "2")
"""One after the other, then a wait: the first place takes 20 microseconds, the second three milliseconds."""


def known(slot: Slot) -> list[int]:
    """What the client has learnt of places that came back."""
    return sorted(step.work_ns for step in slot.steps if step.key and step.work_ns and step.samples > 5)


def test_the_same_kernel_is_known_by_its_place(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share) as broker:
        low = built.start(tmp_path, share, *SAME, "--launch", "400", priority=5, name="low")
        broker.until(lambda slot: len(known(slot)) >= 2, "low")
        slot = next(slot for slot in broker.block.slots if slot.name == b"low")
        places = known(slot)
        row = next(row for row in slot.kernels if row.id)
        varied, longest = row.varied, row.longest_ns
        low.process.kill()
        low.process.communicate()
    # A stretch of the machine's own may lie in a sample: the two are apart by far more than that.
    assert places[0] < SHORT_NS * 5
    assert LONG_NS * 0.9 < places[-1] < LONG_NS * 2
    assert varied == 1
    assert longest >= LONG_NS * 0.9


def test_a_long_one_does_not_slip_into_a_gap_because_a_short_one_has_its_name(
    built: Built, share: Path, tmp_path: Path
) -> None:
    rules = {"silence_ns": 2_000_000_000, "credit_ppm": 0, "absorb_ppm": 0, "floor_ppm": 0}
    with MiniBroker(share, {5: rules}) as broker:
        low = built.start(tmp_path, share, *SAME, "--for-ms", "60000", "--launch", "100000", priority=5, name="low")
        broker.until(lambda slot: len(known(slot)) >= 2, "low")
        gaps = (
            "--kernel",
            "short:20",
            "--for-ms",
            "1500",
            "--gap-us",
            "400",
            "--sync-every",
            "0",
            "--launch",
            "100000",
        )
        high = built.run(tmp_path, share, *gaps, name="high")
        slot = next(slot for slot in broker.block.slots if slot.name == b"low")
        fits, waited = slot.ledger.reasons[Reason.FITS], slot.ledger.waited_ns
        low.process.kill()
        low.process.communicate()
    begin, end = high.did["begin_ns"] + 50_000_000, high.did["end_ns"]
    # Few go: a long one only where the machine held the high program up for milliseconds, and one short one after it.
    assert waited > (end - begin) // 2
    assert fits < (end - begin) // LONG_NS // 2
