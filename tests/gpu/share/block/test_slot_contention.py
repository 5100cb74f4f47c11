"""Contention in slots: counters are read, what is learnt is written into the rows of kernels, kept, and recalled."""

from math import log
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from headway.gpu.control.holds import Measured, Watch
from headway.gpu.control.slowdown import Hold, Step, Value
from headway.gpu.share.block.block import Slot
from headway.gpu.share.block.slot_contention import SlotContention, charged

MS = 1_000_000
MILD, HARSH = 5, 9
PAIR = ("api", "low")


class Told:
    """What is asked of a dial: the holds of one program above."""

    def __init__(self) -> None:
        self.holds, self.seen, self.factors = SimpleNamespace(holding=False), Watch(), list[float]()

    def watch(self, index: int) -> Watch | None:
        return self.seen if index == 0 else None

    def repriced(self, index: int, factor: float) -> None:
        self.factors.append(factor)


def slots() -> dict[int, Slot]:
    """One program above one with two kernels."""
    high, low = Slot(), Slot()
    high.program, low.program, low.priority, low.rules.gate = b"api", b"low", 5, 1
    for number, name in ((MILD, b"mild"), (HARSH, b"harsh")):
        low.kernels[number].id, low.kernels[number].name = number, name
    return {0: high, 3: low}


def play(contention: SlotContention, dial: Told, clients: dict[int, Slot], since: int, until: int) -> None:
    """Play from one second to another: each kernel runs a drawn share of it beside, one of them slows the one above."""
    random, low = Random(since), clients[3]
    for number in range(2 * since, 2 * until):
        begin, shares = number * 500 * MS, {}
        for each in (MILD, HARSH):
            shares[each] = random.uniform(0.02, 0.2)
        contention.sample(begin, clients)
        for each, share in shares.items():
            low.kernels[each].beside_ns += round(share * 500 * MS)
        low.ledger.harm_ns += round(0.1 * sum(shares.values()) * 500 * MS)
        contention.sample(begin + 499 * MS, clients)
        dial.seen.steps.extend(Step(begin + at * 10 * MS, begin + (at + 1) * 10 * MS, 3) for at in range(50))
        lost = 0.1 * sum(shares.values()) + 0.6 * shares[HARSH] + random.gauss(0, 0.002)
        hold = Hold(begin + 250 * MS, begin + 251 * MS, begin + 255 * MS)
        dial.seen.measured.append(Measured(begin + 490 * MS, 0.0, Value(-log(1 - lost), 4, 0.0), hold))
        dial.seen.count += 1
        contention.turn(begin + 499 * MS, clients)


def test_what_is_learnt_is_written_into_the_row_of_the_kernel_kept_and_recalled() -> None:
    dial, clients = Told(), slots()
    contention = SlotContention(dial, {})  # type: ignore[arg-type]
    play(contention, dial, clients, 0, 5)
    assert charged(clients[3]) == []
    play(contention, dial, clients, 5, 45)
    low = clients[3]
    assert low.kernels[HARSH].contention_ppm == pytest.approx(600_000, rel=0.2)
    assert low.kernels[MILD].contention_ppm == 0
    assert [row["kernel"] for row in charged(low)] == ["harsh"]
    assert dial.factors[0] < 1, "the dial is told"
    kept = contention.rows()
    assert kept == {PAIR: {"contention": {f"{HARSH:016x}": low.kernels[HARSH].contention_ppm}}}
    again, fresh = SlotContention(Told(), kept), slots()  # type: ignore[arg-type]
    again.turn(10_000 * MS, fresh)
    assert fresh[3].kernels[HARSH].contention_ppm == low.kernels[HARSH].contention_ppm
    del fresh[0]
    again.turn(20_000 * MS, fresh)
    assert fresh[3].kernels[HARSH].contention_ppm == 0, "nobody above suffers any more"


@pytest.mark.parametrize("row", [{}, {"contention": 5}, {"contention": {"x": 5, "9": "y", "7": -3, "5": 1 << 40}}])
def test_what_is_stored_and_makes_no_sense_is_left_out(row: dict[str, Any]) -> None:
    clients = slots()
    SlotContention(Told(), {PAIR: row}).turn(10_000 * MS, clients)  # type: ignore[arg-type]
    assert charged(clients[3]) == []


def test_while_somebody_is_held_nothing_is_reckoned() -> None:
    dial, clients = Told(), slots()
    dial.holds.holding = True
    SlotContention(dial, {PAIR: {"contention": {"9": 500_000}}}).turn(10_000 * MS, clients)  # type: ignore[arg-type]
    assert charged(clients[3]) == []
