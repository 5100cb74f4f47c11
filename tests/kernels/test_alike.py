"""Programs on another machine: alone they take what is said of it, and nothing else of them changes."""

import json

import pytest

from headway.experiment import kernels as wiring
from headway.kernels.alike import MILLION, MOST_PPM, factor, request, scaled
from headway.kernels.device import Device
from headway.kernels.kernel import Kernel
from headway.kernels.program import Launch, Program
from tests.kernels.test_wiring import call

US, MS = 1_000, 1_000_000
DEVICE = Device()
KERNEL = (Kernel("k", 10, 1),)
ABOVE = Program("above", KERNEL, tuple(Launch(0, 20 * US, 5 * US, at == 99) for at in range(100)))
BELOW = Program("below", KERNEL, tuple(Launch(0, 10 * US, 15 * US) for _ in range(300)))
PREDICT = ("share", "predict", "vgg16", "matmul", "--seconds", "0.01")


@pytest.mark.parametrize("think", [0, 5 * MS])
@pytest.mark.parametrize("wanted_ms", [1.5, 2.1, 4.0])
def test_a_request_takes_what_is_wanted(think: int, wanted_ms: float) -> None:
    found = factor(lambda ppm: request(scaled(ABOVE, ppm), DEVICE, think), wanted_ms * MS)
    made = scaled(ABOVE, found)
    assert request(made, DEVICE, think) == pytest.approx(wanted_ms * MS, rel=0.001)
    assert [each.duration for each in made.launches] == [each.duration for each in ABOVE.launches]
    assert [each.waits for each in made.launches] == [each.waits for each in ABOVE.launches]


def test_a_factor_of_one_changes_nothing() -> None:
    assert scaled(ABOVE, MILLION) == ABOVE
    assert scaled(BELOW, 1).launches[0].gap == 1


def test_the_factor_is_the_nearest_where_none_fits() -> None:
    assert factor(lambda ppm: ppm, 2 * MILLION) == pytest.approx(2 * MILLION, rel=0.001)
    assert factor(lambda ppm: ppm, 99 * MILLION) == pytest.approx(MOST_PPM, rel=0.001)


def test_one_that_never_waits_has_no_request() -> None:
    assert request(BELOW, DEVICE, 0) == 0


def test_requests_longer_than_what_is_played_count_too() -> None:
    slow = Program("slow", KERNEL, (Launch(0, 900 * MS, 5 * US, True),))
    assert request(slow, DEVICE, 0) == pytest.approx(900 * MS, rel=0.001)


def test_predict_scales_all_programs_to_what_the_one_above_takes() -> None:
    found = wiring.predict("vgg16", "resnet101-b64", seconds=0.05, alone=round(1.67 * MS), write=lambda _: None)
    before = wiring.predict("vgg16", "resnet101-b64", seconds=0.05, write=lambda _: None)
    assert before["cpu_factor"] == 1
    assert found["cpu_factor"] > 1.2
    assert found["busy_share_alone"] < before["busy_share_alone"]


def test_predict_says_what_it_took_processors_for(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, *PREDICT, "--alone", "1.5ms")
    assert status == 0
    assert "a request alone takes 1.5ms: processors are taken to need 1." in out
    factor_ = json.loads(call(capsys, *PREDICT, "--alone", "1.5ms", "--json")[1])["cpu_factor"]
    assert f"need {factor_:.2f} times as long" in out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ("--alone", "0.1ms"),
            "--alone 0.1ms: a request of vgg16 takes 1.15ms in its trace; with a processor five times",
        ),
        (("--alone", "0s"), "--alone 0s: a request takes some time"),
        (("--alone", "soon"), "--alone"),
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
    status, _, err = call(capsys, "share", "predict", "matmul", "vgg16", "--alone", "5ms", "--seconds", "0.01")
    assert status == 2
    assert "matmul never waits for the GPU in its trace" in err
