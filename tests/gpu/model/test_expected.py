"""What the shim's tables would hold of a program: steps by their place, and kernels whose time depends on it."""

import numpy as np

from headway.gpu.model.device import Device
from headway.gpu.model.expected import ANY, learn
from headway.gpu.model.kernel import Kernel
from headway.gpu.model.program import Client, Launch, Normal, Processor, Program, on_real_cpu

KERNELS = (Kernel("a", 1), Kernel("b", 1))


def normal() -> Normal:
    draw = np.random.default_rng(1)
    return lambda spread: float(draw.normal(0, spread))


def test_a_step_is_known_by_its_place() -> None:
    gaps = (10_000, 50_000, 90_000, 20_000)
    launches = tuple(Launch(int(at == 3), gap, 1000, at == 3) for at, gap in enumerate(gaps))
    known = learn(Client("c", Program("p", KERNELS, launches)), Device())
    assert [known.step(place, 0, 0).gap for place in (1, 2)] == [90_000, 20_000]
    assert known.step(1, 0, 0).slack > known.step(2, 0, 0).slack > 0
    # At a place that was never seen, by the two kernels alone.
    assert known.step(7, 0, 0) == known.steps[0][ANY, 0, 0]
    assert known.step(7, 0, 0).gap == 55_000


def test_a_kernel_of_very_different_times_is_known_by_its_place() -> None:
    launches = (Launch(0, 1000, 1000), Launch(0, 1000, 9000), Launch(1, 1000, 500, True))
    known = learn(Client("c", Program("p", KERNELS, launches)), Device())
    assert (known.lasts_at(1, 0, 0), known.lasts_at(2, 0, 1)) == (9000, 500)
    assert known.lasts_at(5, 0, 0) == 9000  # nothing is known there: it counts as its longest


def test_the_time_of_each_request_alone_is_known() -> None:
    requests = (Launch(0, 1000, 1000), Launch(1, 1000, 1000, True), Launch(1, 1000, 5000, True))
    device = Device(latency=10, follow=1, wait=100)
    known = learn(Client("c", Program("p", KERNELS, requests)), device)
    # The second launch comes 1,000 later, runs from 1,010 to 2,011; the wait takes another 100.
    assert known.took == (2111, 5110)


def test_drawn_cpu_times_are_around_the_recorded_ones() -> None:
    program = Program("p", KERNELS, (Launch(0, 10_000, 1000), Launch(1, 20_000, 2000, True)))
    drawn = on_real_cpu(program, normal(), Processor(0.2, 0.1), 2000)
    assert len(drawn.launches) == 2000
    assert [launch._replace(gap=1) for launch in drawn.launches] == [
        launch._replace(gap=1) for launch in program.launches * 1000
    ]
    first = np.log([launch.gap / 10_000 for launch in drawn.launches[::2]])
    second = np.log([launch.gap / 20_000 for launch in drawn.launches[1::2]])
    assert abs(np.median(first)) < 0.03
    assert abs(first.std() - np.hypot(0.2, 0.1)) < 0.02
    assert np.corrcoef(first, second)[0, 1] > 0.7  # a request is slow as a whole
    assert not drawn.paces, "it has no phases"
    again = on_real_cpu(program, normal(), Processor(0.2, 0.1), 2000)
    assert again == drawn


def test_a_processor_has_fast_and_slow_phases() -> None:
    launches = (Launch(0, 1_000_000, 1000), Launch(1, 1_000_000, 2000, True), Launch(1, 500_000, 2000, True))
    program = Program("p", KERNELS, launches)
    cpu = Processor(0.05, 0.05, slower=1.42, slow_share=1 / 3, phase=300_000_000)
    drawn = on_real_cpu(program, normal(), cpu, 60_000)
    paces = np.array(drawn.paces)
    assert len(paces) == len(drawn.request_starts) == 40_000
    assert abs(paces.mean() - 1 / 3) < 0.06
    changes = np.count_nonzero(np.diff(paces))
    assert 0.8 < 20_000 * 2.5e6 / changes / 300e6 < 1.25, "a phase takes 0.3 s in the mean"
    gaps = np.log([launch.gap / 500_000 for launch in drawn.launches[2::3]])
    fast, slow = gaps[paces[1::2] == 0], gaps[paces[1::2] == 1]
    assert abs(slow.mean() - fast.mean() - np.log(1.42)) < 0.01
    assert abs(fast.mean() * 2 / 3 + slow.mean() / 3) < 0.01, "as recorded, in the mean"
    assert fast.std() < 0.08
    known = learn(Client("c", drawn), Device())
    quick, lame = (known.step(0, 1, 0, pace).gap for pace in (0, 1))
    assert abs(lame / quick - 1.42) < 0.02, "the tables follow the phases"
    assert drawn.request_cpu[1] == 0
    assert drawn.request_cpu[0] == drawn.launches[1].gap


def test_requests_across_the_end_of_a_program_have_one_phase() -> None:
    """The last launch does not wait: it and the first of the next time are one request."""
    program = Program("p", KERNELS, (Launch(0, 9000, 1000), Launch(0, 9000, 1000, True), Launch(1, 9000, 1000)))
    drawn = on_real_cpu(program, normal(), Processor(0.1, 0.1, 1.42, 0.5, 100_000), 300)
    assert len(drawn.paces) == len(drawn.request_starts)
    never = Program("p", KERNELS, (Launch(0, 9000, 1000),))
    assert len(on_real_cpu(never, normal(), Processor(0.1, 0.1, 1.42, 0.5, 100_000), 300).paces) == 1
