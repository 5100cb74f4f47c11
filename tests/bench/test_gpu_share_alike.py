"""Programs as they are on another machine: what they take alone there is what was measured, and no more is used."""

import pytest

from bench.gpu_share_alike import alike, factor, gate_ns, rate, request_ms, scaled
from headway.kernels.device import Device
from headway.kernels.kernel import Kernel
from headway.kernels.program import Client, Launch, Program

US, MS = 1_000, 1_000_000
DEVICE = Device()
KERNEL = (Kernel("k", 10, 1),)
ABOVE = Program("above", KERNEL, tuple(Launch(0, 20 * US, 5 * US, at == 99) for at in range(100)))
BELOW = Program("below", KERNEL, tuple(Launch(0, 10 * US, 15 * US) for _ in range(300)))


def clients(think: int = 0) -> tuple[Client, ...]:
    return Client("above", ABOVE, think=think), Client("below", BELOW, 1)


@pytest.mark.parametrize("think", [0, 5 * MS])
@pytest.mark.parametrize(("p50_ms", "low_per_s"), [(4.0, 250.0), (1.5, 300.0), (2.1, 640.0)])
def test_alone_they_take_what_was_measured(think: int, p50_ms: float, low_per_s: float) -> None:
    row = {"low": "below", "alone": {"p50_ms": p50_ms}, "low_alone_per_s": [low_per_s]}
    above, below = alike(row, clients(think), DEVICE)
    assert request_ms(above.program, DEVICE, think) == pytest.approx(p50_ms, rel=0.01)
    assert 3 * rate(below.program, DEVICE) == pytest.approx(min(low_per_s, 3 * rate(BELOW, DEVICE)), rel=0.02)
    assert [each.duration for each in below.program.launches] == [15 * US] * 300


def test_one_that_keeps_the_gpu_busy_stays_as_it_is() -> None:
    row = {"low": "below", "alone": {"p50_ms": 2.0}, "low_alone_per_s": [10_000.0]}
    assert alike(row, clients(), DEVICE)[1].program == BELOW


def test_the_factor_is_the_nearest_where_none_fits() -> None:
    assert factor(lambda f: f, 2.0) == pytest.approx(2.0, abs=0.001)
    assert factor(lambda f: f, 99.0) == pytest.approx(5.0, abs=0.001)
    assert scaled(BELOW, 0.00001).launches[0].gap == 1


def test_what_it_costs_to_ask_is_taken_from_the_row() -> None:
    assert gate_ns({"ask_ns": 2_800.0, "ns_a_launch": 400.0}, 7) == 2_400
    assert gate_ns({"ask_ns": 100.0, "ns_a_launch": 400.0}, 7) == 0
    assert gate_ns({"ask_ns": None, "ns_a_launch": 400.0}, 7) == 7
