"""Contention that no wait shows: found and charged to the kernel that causes it, and to no other."""

from dataclasses import replace
from math import exp
from random import Random
from typing import Any

import pytest

from headway.gpu.control.contention import LEAST_ROWS, Contention, Row, Sample, Samples, fit
from headway.gpu.control.dial import MILLION, MS, Dial
from headway.gpu.control.holds import Measured
from headway.gpu.control.slowdown import Hold, Step, Value
from tests.gpu.stub_pair import HIGH, KERNELS_BELOW, StubKernels

MILD, HARSH = KERNELS_BELOW
AIM = 1.05


def rows(
    truth: tuple[float, float], count: int, seed: int = 1, reckoned: float = 0.3, noise: float = 0.01
) -> list[Row]:
    """Made-up holds: two kernels run beside for a drawn share of the time each."""
    random, made = Random(seed), []
    for number in range(count):
        shares = [0.1 * exp(random.gauss(0, 0.6)) for _ in truth]
        lost = sum(map(lambda each, share: each * share, truth, shares)) + random.gauss(0, noise)
        made.append(Row(number, lost, reckoned * sum(shares), {MILD: shares[0], HARSH: shares[1]}))
    return made


@pytest.mark.parametrize("seed", range(5))
def test_of_two_kernels_the_one_that_contends_is_found(seed: int) -> None:
    found = fit(rows((0.3, 0.9), 60, seed))
    assert found[HARSH].value == pytest.approx(0.6, abs=0.15)  # beyond what is reckoned
    assert found[HARSH].value > 4 * found[HARSH].error
    assert found[MILD].value < 0.1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("truth", [(0.0, 0.0), (0.3, 0.3), (0.1, 0.1)])
def test_where_nothing_contends_nothing_is_charged(seed: int, truth: tuple[float, float]) -> None:
    contention = Contention()
    for row in rows(truth, 80, seed):
        contention.add(row)
        contention.learn()
    assert contention.charged_ppm == {}


def test_one_that_contends_is_charged_once_that_is_sure_and_the_other_is_not() -> None:
    contention = Contention()
    made = rows((0.05, 0.9), 60)
    for row in made[: LEAST_ROWS - 1]:
        contention.add(row)
    contention.learn()
    assert contention.charged_ppm == {}, "too few holds"
    for row in made[LEAST_ROWS - 1 :]:
        contention.add(row)
    contention.learn()
    assert list(contention.charged_ppm) == [HARSH]
    # Delays as reckoned are a sixth of that here, by the other kernel: the rest of 0.9 is contention.
    assert contention.charged_ppm[HARSH] == pytest.approx(850_000, rel=0.2)
    before = dict(contention.charged_ppm)
    assert contention.eased({}, 1.0) < 0.6, "what is dearer goes less often"
    assert contention.eased(before, 1.0) == 1.0


def test_what_was_known_before_is_charged_at_once_and_forgotten_where_it_is_no_longer_so() -> None:
    contention = Contention()
    contention.recall({HARSH: 600_000})
    assert contention.charged_ppm == {HARSH: 600_000}
    for row in rows((0.3, 0.9), 40):
        contention.add(row)
    contention.learn()
    assert contention.charged_ppm[HARSH] == pytest.approx(600_000, rel=0.3)
    other = Contention()
    other.recall({HARSH: 600_000})
    for row in rows((0.1, 0.1), 80):
        other.add(row)
    other.learn()
    assert other.charged_ppm.get(HARSH, 0) < 100_000


def test_the_charge_of_a_kernel_that_has_become_rare_is_forgotten_where_nothing_confirms_it() -> None:
    contention = Contention()
    contention.recall({HARSH: 600_000})
    for at in range(900):  # half an hour, a hold every two seconds, in which next to nothing of it ran and nobody lost
        contention.add(Row(at * 2_000_000_000, 0.0, 0.0, {HARSH: 0.0005, MILD: 0.2}))
        contention.learn()
    assert contention.charged_ppm.get(HARSH, 0) < 60_000


def test_a_few_holds_that_are_far_off_do_not_make_a_charge() -> None:
    made = rows((0.1, 0.1), 60, noise=0.003)
    for at in (5, 25, 45):
        made[at] = made[at]._replace(lost=0.6)
    assert all(value < 3 * error for value, error in fit(made).values())


def test_nothing_to_fit_is_nothing_found() -> None:
    assert fit([]) == {}
    assert fit([Row(at, 0.1, 0.0, {}) for at in range(30)]) == {}


# --- from counters to rows ---------------------------------------------------------------------------------------


def counters(*times_ms: int, **changes: Any) -> Samples:
    """Samples at these times: client 4 has run one millisecond in ten beside, and half of that was reckoned."""
    samples = Samples()
    for at in times_ms:
        made = Sample(at * MS, {(4, 7): at * MS // 10}, at * MS // 20, {4: "low"})
        samples.add(made._replace(**changes) if at == times_ms[-1] else made)
    return samples


HOLD = Hold(200 * MS, 202 * MS, 210 * MS)
STEPS = [Step(at * 10 * MS, (at * 10 + 10) * MS, 5) for at in range(40)]
TOLD = Measured(400 * MS, 0.0, Value(0.05, 4, 0.0), HOLD)


def test_a_hold_tells_of_the_time_around_it_by_the_counters_of_then() -> None:
    row = counters(*range(0, 401, 25)).row(TOLD, STEPS)
    assert row is not None
    assert row.lost == pytest.approx(1 - exp(-0.05))
    assert row.beside == {("low", 7): pytest.approx(0.1, rel=0.01)}
    assert row.reckoned == pytest.approx(0.05, rel=0.01)
    paused = counters(*range(0, 401, 25)).row(TOLD, STEPS[::2])  # half of the time the program above is in no step
    assert paused is not None
    assert paused.beside["low", 7] == pytest.approx(0.2, rel=0.01)


def test_counters_that_do_not_tell_make_no_row() -> None:
    times = tuple(range(0, 401, 25))
    known = counters(*times)
    assert known.row(replace(TOLD, hold=None), STEPS) is None
    assert known.row(TOLD, []) is None, "no steps"
    assert counters(*times[8:]).row(TOLD, STEPS) is None, "not from the beginning"
    assert counters(*times[:8]).row(TOLD, STEPS) is None, "not to the end"
    late = (*times[:9], 320)
    assert counters(*late, programs={4: "other"}).row(TOLD, STEPS) is None, "another program"
    assert counters(*late, beside_ns={(4, 7): 1}).row(TOLD, STEPS) is None, "counters that shrink"
    assert counters(*late, beside_ns={(4, 7): 1 << 62}).row(TOLD, STEPS) is None, "nobody's numbers"
    assert counters(*late, harm_ns=-(1 << 40)).row(TOLD, STEPS) is None


# --- with the dial -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [3, 8])
def test_beside_one_that_contends_a_harmless_kernel_gets_more_and_the_aim_is_kept(seed: int) -> None:
    random = Random(seed)
    made: dict[str, Any] = {
        "truth": (random.uniform(0, 0.1), random.uniform(0.6, 1.5)),
        "reckoned": random.uniform(0.1, 0.4),
        "step_ns": round(random.uniform(2, 8) * MS),
        "noise": random.uniform(0.005, 0.02),
        "spread": random.uniform(0.4, 0.7),
        "seed": seed,
    }
    had = []
    for learns in (False, True):
        pair = StubKernels(Dial(), learns=learns, **made)
        pair.run(90)
        before = list(pair.beside_ns)
        pair.run(30)
        had.append([now - then for now, then in zip(pair.beside_ns, before, strict=True)])
        assert pair.felt(30) < AIM + 0.02
    # Where the boldness is at its most there is no more to give.
    assert pair.felt(30) > AIM - 0.02 or pair.dial.boldness_ppm(HIGH) > 3 * MILLION
    assert list(pair.learnt.charged_ppm) == [HARSH]
    assert had[1][0] > 1.5 * had[0][0], "more of the harmless one"
    assert had[1][1] < had[0][1], "and less of the other"


def test_beside_harmless_kernels_the_dial_is_as_without_learning() -> None:
    for truth in ((0.0, 0.0), (0.3, 0.3)):
        felt = []
        for learns in (False, True):
            pair = StubKernels(Dial(), learns=learns, truth=truth)
            pair.run(40)
            felt.append(pair.felt(20))
        assert pair.learnt.charged_ppm == {}
        assert felt[0] == felt[1]
