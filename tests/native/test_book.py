"""Lag is one book: what one program below has delayed those above is spent for all of them, and nobody can lock it."""

import os
import signal
import time
from pathlib import Path

from headway.gpu.share.block.block import Slot
from tests.native.harness import Built
from tests.native.mini_broker import MiniBroker

SLACK_NS = 20_000_000
LOW = ("--kernel", "some:100", "--grid", "1056", "--for-ms", "60000", "--sync-every", "1")
RULES = {"silence_ns": 60_000_000_000, "credit_ppm": 0, "floor_ppm": 0, "absorb_ppm": 1_000_000, "whole": 0}
NAMES = ("first", "second", "third")


def slot_of(broker: MiniBroker, name: str) -> Slot:
    """Return the slot of a client."""
    return next(slot for slot in broker.block.slots if slot.name == name.encode())


def settled(broker: MiniBroker, names: tuple[str, ...]) -> int:
    """Return what was harvested in all once nobody goes any more."""
    total, before = -1, -2
    while total != before:
        time.sleep(0.2)
        total, before = sum(slot_of(broker, name).ledger.harvested_ns for name in names), total
    return total


def test_three_below_spend_the_slack_above_once(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share, {5: RULES}) as broker:
        clients = [built.start(tmp_path, share, *LOW, priority=5, name=name) for name in NAMES]
        for name in NAMES:
            broker.until(lambda slot: slot.ledger.samples >= 8, name)
        # Somebody above who is busy all along and has some idle time before its next wait: all that fills may use up.
        above = broker.block.slots[broker.neighbour(busy_s=0)]
        now = time.monotonic_ns()
        above.pulse.slack_ns, above.pulse.epoch = SLACK_NS, 1
        above.pulse.next_ns = above.pulse.busy_ns = now + 60_000_000_000
        above.pulse.launch_ns = now
        try:
            spent = settled(broker, NAMES)
            assert SLACK_NS // 2 < above.book.lag_ns <= SLACK_NS
            assert SLACK_NS // 2 < spent < SLACK_NS * 3 // 2, "once, and not once each"
            # One that dies holds nothing up: after the next wait above the others go on, and have as much again.
            os.kill(clients[0].process.pid, signal.SIGKILL)
            clients[0].process.wait()
            rest = sum(slot_of(broker, name).ledger.harvested_ns for name in NAMES[1:])
            above.pulse.epoch = 2
            more = settled(broker, NAMES[1:]) - rest
            assert SLACK_NS // 2 < more < SLACK_NS * 3 // 2
        finally:
            for client in clients:
                client.process.kill()
                client.process.communicate()
