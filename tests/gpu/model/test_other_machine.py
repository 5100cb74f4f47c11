"""Programs on another machine: alone they take what is said of it, and nothing else of them changes."""

import json

import pytest

from headway.errors import InputError
from headway.gpu import predict as predicting
from headway.gpu.model.device import Device
from headway.gpu.model.kernel import Kernel
from headway.gpu.model.other_machine import MILLION, MOST_PPM, cpu_factor, cpu_scaled, on_other_machine, request_alone
from headway.gpu.model.program import Client, Launch, Program
from headway.gpu.programs.load import load
from tests.gpu.test_wiring import call

US, MS = 1_000, 1_000_000
DEVICE = Device()
KERNEL = (Kernel("k", 10, 1),)
ABOVE = Program("above", KERNEL, tuple(Launch(0, 20 * US, 5 * US, at == 99) for at in range(100)))
BELOW = Program("below", KERNEL, tuple(Launch(0, 10 * US, 15 * US) for _ in range(300)))
PREDICT = ("gpu", "predict", "vgg16", "matmul", "--seconds", "0.01")


@pytest.mark.parametrize("think", [0, 5 * MS])
@pytest.mark.parametrize("wanted_ms", [1.5, 2.1, 4.0])
def test_a_request_takes_what_is_wanted(think: int, wanted_ms: float) -> None:
    found = cpu_factor(lambda ppm: request_alone(cpu_scaled(ABOVE, ppm), DEVICE, think), wanted_ms * MS)
    made = cpu_scaled(ABOVE, found)
    assert request_alone(made, DEVICE, think) == pytest.approx(wanted_ms * MS, rel=0.001)
    assert [each.duration for each in made.launches] == [each.duration for each in ABOVE.launches]
    assert [each.waits for each in made.launches] == [each.waits for each in ABOVE.launches]


def test_a_factor_of_one_changes_nothing() -> None:
    assert cpu_scaled(ABOVE, MILLION) == ABOVE
    assert cpu_scaled(BELOW, 1).launches[0].gap == 1


def test_the_factor_is_the_nearest_where_none_fits() -> None:
    assert cpu_factor(lambda ppm: ppm, 2 * MILLION) == pytest.approx(2 * MILLION, rel=0.001)
    assert cpu_factor(lambda ppm: ppm, 99 * MILLION) == pytest.approx(MOST_PPM, rel=0.001)


def test_one_that_never_waits_has_no_request() -> None:
    assert request_alone(BELOW, DEVICE, 0) == 0


def test_requests_longer_than_what_is_played_count_too() -> None:
    slow = Program("slow", KERNEL, (Launch(0, 900 * MS, 5 * US, True),))
    assert request_alone(slow, DEVICE, 0) == pytest.approx(900 * MS, rel=0.001)


def test_predict_scales_all_programs_to_what_the_one_above_takes() -> None:
    found = predicting.predict("vgg16", "resnet101-b64", seconds=0.05, alone=round(1.67 * MS), write=lambda _: None)
    before = predicting.predict("vgg16", "resnet101-b64", seconds=0.05, write=lambda _: None)
    assert before["cpu_factor"] == 1
    assert found["cpu_factor"] > 1.2
    assert found["busy_share_alone"] < before["busy_share_alone"]


def test_one_that_keeps_the_gpu_busy_says_little_of_processors() -> None:
    said: list[str] = []
    found = predicting.predict("graph", "matmul", seconds=0.01, alone=MS, write=lambda _: None, say=said.append)
    assert found["cpu_factor"] == 1
    assert found["gpu_factor"] == pytest.approx(1.06, abs=0.01)  # 0.95 ms in its trace
    assert any("graph keeps the GPU busy" in line for line in said)


def test_where_the_gpu_is_the_bound_processors_are_taken_to_be_ahead_of_it() -> None:
    """Its trace is of a machine whose processors were the bound: a request took 2 ms, the GPU alone needs 1.6."""
    busy = Program("busy", KERNEL, tuple(Launch(0, 20 * US, 15 * US, at == 99) for at in range(100)))
    clients = (Client("busy", busy), Client("below", BELOW, 1))
    assert request_alone(busy, DEVICE, 0) == pytest.approx(2.03 * MS, rel=0.01)
    for wanted in (1.62 * MS, 1.75 * MS):  # the GPU's time, and more at the clocks of a busy GPU
        made, factors = on_other_machine(clients, DEVICE, round(wanted), lambda line: None)
        above = made[0].program
        assert request_alone(above, DEVICE, 0) == pytest.approx(wanted, rel=0.01)
        assert request_alone(cpu_scaled(above, 1_080_000), DEVICE, 0) == pytest.approx(wanted, rel=0.01)
        assert factors.cpu_ppm < 800_000
        assert factors.gpu_ppm == pytest.approx(MILLION * wanted / (1.62 * MS), rel=0.02)
        assert [each.duration for each in made[1].program.launches] == [15 * US] * 300
    slower = on_other_machine(clients, DEVICE, round(1.9 * MS), lambda line: None)[1]
    assert slower.gpu_ppm == MILLION
    assert 900_000 < slower.cpu_ppm < MILLION


def test_where_the_gpu_is_the_bound_processors_keep_up_in_fast_phases_and_not_in_slow_ones() -> None:
    busy = Program("busy", KERNEL, tuple(Launch(0, 20 * US, 15 * US, at == 99) for at in range(100)))
    clients = (Client("busy", busy), Client("below", BELOW, 1))
    wanted = 1.7 * MS
    made, factors = on_other_machine(clients, DEVICE, round(wanted), lambda line: None, slower=1.42)
    assert factors.slow_ppm == 333_333
    fast = cpu_scaled(made[0].program, round(MILLION / 1.42 ** (1 / 3)))
    assert request_alone(fast, DEVICE, 0) == pytest.approx(wanted, rel=0.01)
    slow = cpu_scaled(fast, 1_420_000)
    assert request_alone(slow, DEVICE, 0) > 1.2 * wanted
    assert on_other_machine(clients, DEVICE, round(1.9 * MS), lambda line: None, slower=1.42)[1].slow_ppm == 500_000
    even = on_other_machine(clients, DEVICE, round(wanted), lambda line: None, slower=1.42, even=True)
    assert even[1].slow_ppm == 0
    assert request_alone(even[0][0].program, DEVICE, 0) == pytest.approx(wanted, rel=0.01)


def test_a_program_that_slower_processors_would_bound_is_not_taken_for_one_that_the_gpu_bounds() -> None:
    """Twice the CPU time makes a request 17 % longer: of one that takes 14 % longer the CPU is the bound."""
    near = Program("near", KERNEL, tuple(Launch(0, round(9.5 * US), 15 * US, at == 99) for at in range(100)))
    assert request_alone(near, DEVICE, 0) == pytest.approx(1.62 * MS, rel=0.01)
    assert request_alone(cpu_scaled(near, 2 * MILLION), DEVICE, 0) == pytest.approx(1.9 * MS, rel=0.02)
    factors = on_other_machine((Client("near", near),), DEVICE, round(1.85 * MS), lambda line: None)[1]
    assert factors.gpu_ppm == MILLION
    assert 1_800_000 < factors.cpu_ppm < 2 * MILLION


@pytest.mark.parametrize("wanted_ms", [1.74, 1.77, 1.85, 1.95])
def test_a_program_that_the_processor_just_bounds_in_its_trace_is_not_one_that_the_gpu_bounds(wanted_ms: float) -> None:
    """A launch takes the processor 17 us and the GPU 16: a request that takes no less is the processor's still."""
    near = Program("near", KERNEL, tuple(Launch(0, 17 * US, 15 * US, at == 99) for at in range(100)))
    assert request_alone(near, DEVICE, 0) == pytest.approx(1.73 * MS, rel=0.005)
    assert request_alone(cpu_scaled(near, 200_000), DEVICE, 0) == pytest.approx(1.62 * MS, rel=0.005)
    made, factors = on_other_machine((Client("near", near),), DEVICE, round(wanted_ms * MS), lambda line: None)
    assert factors.gpu_ppm == MILLION
    assert factors.cpu_ppm == pytest.approx(MILLION * wanted_ms / 1.73, rel=0.01)
    assert request_alone(made[0].program, DEVICE, 0) == pytest.approx(wanted_ms * MS, rel=0.005)


def test_a_busy_gpu_that_takes_a_quarter_longer_is_another_one() -> None:
    clients = (Client("above", load("graph")), Client("below", BELOW, 1))
    with pytest.raises(InputError, match="is it of another program, GPU or pause between requests"):
        on_other_machine(clients, DEVICE, round(1.3 * MS), lambda line: None)


def test_what_is_of_another_machine_is_not_kept() -> None:
    kept: list[object] = []
    said: list[str] = []
    for alone in (0, round(1.3 * MS)):
        predicting.predict("vgg16", "matmul", seconds=0.3, alone=alone, write=kept.append, say=said.append)
    assert len(kept) == 1
    assert [line for line in said if line.startswith("not kept")] == [
        "not kept among pairs: --alone makes it one for another machine than that of the traces"
    ]


@pytest.mark.parametrize(
    ("high", "low", "said"),
    [
        ("vgg16", "matmul@0", "matmul@0 has priority 0, and vgg16 0: the first program must be above the others"),
        ("vgg16@3", "matmul", "matmul has priority 1, and vgg16@3 3: "),
        ("vgg16@3", "matmul@2", "(priorities are said as matmul@4)"),
    ],
)
def test_a_prediction_is_of_one_above_others(
    capsys: pytest.CaptureFixture[str], high: str, low: str, said: str
) -> None:
    status, _, err = call(capsys, "gpu", "predict", high, low, "--seconds", "0.01")
    assert status == 2
    assert said in " ".join(err.split())


def test_predict_says_what_it_took_processors_for(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, *PREDICT, "--alone", "1.5ms")
    assert status == 0
    assert "a request alone takes 1.5ms: processors are taken to need 1." in out
    assert "; for 50% of the time they are 1.42 times as slow as else" in out
    assert "; they have no slow phases" in call(capsys, *PREDICT, "--alone", "1.5ms,1.6ms")[1]
    assert out.endswith(f"{predicting.OFF_ALONE}\n")
    factor_ = json.loads(call(capsys, *PREDICT, "--alone", "1.5ms", "--json")[1])["cpu_factor"]
    assert f"need {factor_:.2f} times as long" in out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ("--alone", "0.1ms"),
            "a request of 100us alone: one of vgg16 takes 1.15ms in its trace, and ",
        ),
        (("--alone", "1.5"), "a request of 1.5s alone: one of vgg16 takes 1.15ms in its trace: did you mean 1.5ms?"),
        (("--alone", "0s"), "--alone 0s: a request takes some time"),
        (("--alone", "soon"), "--alone"),
        (("--alone", "1.5ms,1.2ms"), "--alone 1.5ms,1.2ms: the p95 is below the p50: p50 first, as in 1.2ms,1.5ms"),
        (("--alone", "1ms,2ms,3ms"), "--alone 1ms,2ms,3ms: give the p50 of a request, or its p50 and p95"),
        (("--first", "5ms"), "--first 5ms is shorter than --seconds 0.01: of a first meeting the last 0.01 s count; "),
    ],
)
def test_a_time_that_cannot_be_is_refused_in_a_line(
    capsys: pytest.CaptureFixture[str], more: tuple[str, ...], said: str
) -> None:
    status, _, err = call(capsys, *PREDICT, *more)
    assert status == 2
    assert said in " ".join(err.split())
    assert len(err.strip().splitlines()) <= 2


def test_a_program_above_without_requests_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = call(capsys, "gpu", "predict", "matmul", "vgg16", "--alone", "5ms", "--seconds", "0.01")
    assert status == 2
    assert "matmul never waits for the GPU in its trace" in err
