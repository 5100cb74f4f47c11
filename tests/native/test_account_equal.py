"""The account of a gated program is one in the shim and in the simulation: drawn, recorded and simulated sequences."""

import random
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headway.gpu.control.gate_rules import Rules
from headway.gpu.model.account import Account, Book, Terms, comes_first, tame
from headway.gpu.model.program import Client
from headway.gpu.model.reflex import LATEST_NS, LONGEST_NS, Look, Reason, Verdict, Waiter, decide
from headway.gpu.model.state import ClientState, KernelsState
from headway.gpu.policies.headway import Headway, _Gate
from headway.units import MILLISECOND
from tests.gpu.worlds import TINY, drive, program
from tests.native.test_reflex_equal import NOW, ROW, TAPES, answers, replay

__all__ = ["replay"]
USUAL = Terms(Rules().credit_ppm, Rules().credit_cap_ns, 10_000)
FIELDS = ("accrued", "credit", "debt", "served")
OF_BOOK = ("lag", "slack", "epoch")
PAUSES = (-5_000, 0, 1, 900, 30_000, 400_000, 99_999_999, 100_000_001, 10**12)
SPANS = (0, 1, 5_000, 80_000, 499_999, 500_000, 3_000_000, LONGEST_NS, 10**18)
NUMBERS = (-(2**63), -1, 0, 1, 10_000, 2_000_000, 10**11, 10**11 + 1, 2**63 - 1)
WAITS = Verdict(0, Reason.GAP, 0, 0)


class Step(NamedTuple):
    """One look at an account, and what came of it."""

    anew: int
    whose: int
    terms: Terms
    epoch: int
    look: Look
    verdict: Verdict


def stood(account: Account, book: Book) -> list[int]:
    """Return an account and the book above it as numbers, in the shim's order."""
    return [getattr(account, name) for name in FIELDS] + [getattr(book, name) for name in OF_BOOK]


def packed(steps: Iterable[Step]) -> bytes:
    """Return steps as the shim's program takes them."""
    numbers = [n for step in steps for n in (step.anew, step.whose, *step.terms, step.epoch, *step.look, *step.verdict)]
    return struct.pack(f"<{len(numbers)}q", *numbers)


class Played:
    """Accounts of the simulation below one client, led along steps, and what they say to each."""

    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}
        self.book = Book()
        self.steps: list[Step] = []
        self.said: list[int] = []

    def look(self, anew: bool, terms: Terms, epoch: int, look: Look, whose: int = 0) -> Look:
        """Look at the account; return the look with what it shows."""
        if anew:
            self.accounts, self.book = {}, Book()
        account, lag = self.accounts.setdefault(whose, Account()), 0
        earned = account.accrue(tame(terms), look.above > 0, look.fill_ns, look.now_ns)
        if look.above:
            self.book.forget(earned)
            lag = self.book.lag_in(epoch, look.now_ns, look.filled_ns, look.next_ns, look.slack_ns)
        self.said += [*stood(account, self.book), lag]
        return look._replace(lag_ns=lag, credit_ns=account.credit, debt_ns=max(0, account.debt))

    def go(self, anew: bool, terms: Terms, epoch: int, look: Look, verdict: Verdict, whose: int = 0) -> None:
        """Let the kernel go, if the verdict says so."""
        account = self.accounts[whose]
        if verdict.go:
            account.pay(look, verdict)
            self.book.delay(look.lag_ns, look.slack_ns, look, verdict)
        self.said += stood(account, self.book)
        self.steps.append(Step(int(anew), whose, terms, epoch, look, verdict))


def drawn_look(drawn: random.Random, now: int) -> Look:
    """Return a sound look about now: times and spans none below zero."""
    wave = drawn.choice(SPANS)
    times = [max(0, now + drawn.randint(-400_000, 400_000)) for _ in range(3)]
    shares = [drawn.randrange(2_000_000) for _ in range(3)]
    return Look(
        *(now, drawn.randrange(3), times[0], times[1], drawn.choice(SPANS[:-1]), drawn.choice((0, times[2]))),
        *(drawn.choice(SPANS), min(wave, LONGEST_NS), shares[0], 0, 0, 0, drawn.randrange(2)),
        *(1, 0, 4_000, drawn.choice((0, 6_000)), drawn.choice((0, 120_000)), 8_000_000, shares[1], shares[2]),
        drawn.randrange(2),
    )


def drawn_sequence(drawn: random.Random, played: Played) -> None:
    """Play accounts of three clients below one from their beginning: by the reflex's verdicts, or by any."""
    terms = Terms(*(drawn.choice(NUMBERS) for _ in range(3))) if drawn.random() < 0.5 else USUAL
    now, epoch, any_verdict = drawn.choice((1, NOW, LATEST_NS // 2)), drawn.randrange(3), drawn.random() < 0.5
    for count in range(drawn.randrange(1, 40)):
        now, anew = max(1, now + drawn.choice(PAUSES)), not count or drawn.random() < 0.02
        epoch += drawn.random() < 0.2
        whose = drawn.randrange(3)
        look = played.look(anew, terms, epoch, drawn_look(drawn, now), whose)
        verdict = decide(look)
        if any_verdict and look.credit_ns >= (cost := drawn.choice(SPANS[:-1])):
            verdict = Verdict(drawn.randrange(2), drawn.choice(list(Reason)), 0, cost)
        played.go(anew, terms, epoch, look, verdict, whose)


def equal(replay: Path, steps: list[Step], said: list[int]) -> None:
    """Hold the simulation's answers against the shim's, step by step."""
    found, each = answers(replay, "account", packed(steps)), 2 * (len(FIELDS) + len(OF_BOOK)) + 1
    assert len(found) == len(said) == each * len(steps)
    for number, step in enumerate(steps):
        part = slice(number * each, (number + 1) * each)
        assert found[part] == said[part], (number, step)


def test_drawn_sequences_leave_one_account(replay: Path) -> None:
    drawn, played = random.Random(7), Played()
    for _ in range(600):
        drawn_sequence(drawn, played)
    reasons = {step.verdict.reason for step in played.steps if step.verdict.go and step.look.above}
    assert reasons >= {Reason.FITS, Reason.ABSORBED, Reason.CREDIT, Reason.FLOOR}
    equal(replay, played.steps, played.said)


@pytest.mark.parametrize("tape", TAPES, ids=lambda tape: tape.stem)
@pytest.mark.parametrize("terms", [USUAL, Terms(1_000_000, 50_000_000, 200_000)], ids=["usual", "generous"])
def test_recorded_looks_leave_one_account(replay: Path, tape: Path, terms: Terms) -> None:
    content, played, drawn, epoch = tape.read_bytes(), Played(), random.Random(3), 0
    for row in ROW.iter_unpack(content[: len(content) // ROW.size * ROW.size]):
        epoch += drawn.random() < 0.1
        look = played.look(not played.steps, terms, epoch, Look(*row[: len(Look._fields)]))
        played.go(not played.steps, terms, epoch, look, decide(look))
    assert played.steps
    equal(replay, played.steps, played.said)


class Noting(Headway):
    """Notes each look of a simulated run at an account, and what the account and the book above then say."""

    def bind(self, state: KernelsState) -> None:
        """Begin with nothing noted."""
        super().bind(state)
        self.noted: list[tuple[Step, list[int]]] = []

    def _look(self, now: int, state: KernelsState, client: ClientState, gate: _Gate) -> Look:
        look = super()._look(now, state, client, gate)
        rules = self._rules.get(client.id) or Rules()
        terms = Terms(rules.credit_ppm, rules.credit_cap_ns, rules.floor_ppm)
        now_stood = stood(gate, self._books[0])
        said = [*now_stood, look.lag_ns, *now_stood]
        step = Step(int(not self.noted), client.id, terms, state.clients[0].epoch, look, WAITS)
        self.noted.append((step, said))
        return look

    def _go(self, state: KernelsState, gate: _Gate, client: ClientState, look: Look, verdict: Verdict) -> None:
        super()._go(state, gate, client, look, verdict)
        step, said = self.noted[-1]
        after = stood(gate, self._books[0])
        self.noted[-1] = step._replace(verdict=verdict), [*said[: len(after) + 1], *after]


def test_a_simulated_run_keeps_the_accounts_that_the_shim_would_keep(replay: Path) -> None:
    high = program((30_000, 2, 90_000), (200_000, 1, 40_000), (50_000, 2, 300_000))
    low = program(*[(1_000, 2, 60_000)] * 6, (2_000, 1, 900_000), name="q")
    more: Any = {"think": 20_000}
    clients = [Client("h", high, 0, requests=60, **more), *(Client(f"l{n}", low, 1, requests=40) for n in range(2))]
    policy = Noting(slo=1.3, floor=0.1)
    drive(policy, clients, TINY, horizon=200 * MILLISECOND)
    steps = [step for step, _ in policy.noted]
    assert {(step.whose, step.verdict.go) for step in steps if step.look.above} == {(1, 0), (1, 1), (2, 0), (2, 1)}
    equal(replay, steps, [number for _, said in policy.noted for number in said])


def test_who_comes_first_is_one(replay: Path) -> None:
    drawn, given, expected = random.Random(11), b"", []
    for _ in range(4_000):
        look = drawn_look(drawn, drawn.choice((1, NOW)))
        spans = (0, 1, look.fill_ns, 50_000, 300_000, LONGEST_NS + 1, 2**63 - 1)
        waiters = [
            Waiter(drawn.randrange(3), drawn.choice(spans), drawn.randrange(3)) for _ in range(drawn.randrange(1, 6))
        ]
        numbers = [len(waiters), *look, *(number for waiter in waiters for number in waiter)]
        given += struct.pack(f"<{len(numbers)}q", *numbers)
        expected.append(comes_first(waiters, look.now_ns, look.latency_ns, look.filled_ns, look.next_ns, look.busy_ns))
    assert set(expected) == {0, 1}
    assert answers(replay, "turn", given) == expected
