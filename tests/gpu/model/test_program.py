"""Programs, what they do alone, and what is known of them before they run."""

import pytest

from headway.errors import ExperimentError
from headway.gpu.model.device import Device
from headway.gpu.model.expected import FIRST, UNKNOWN, learn
from headway.gpu.model.kernel import COPY, Kernel
from headway.gpu.model.program import Client, Launch, Program
from tests.gpu.worlds import TINY, program


def test_a_request_is_a_run_of_launches_up_to_a_wait() -> None:
    kernels = (Kernel("a", 1),)
    made = Program("p", kernels, (Launch(0, 1, 1), Launch(0, 1, 1, True), Launch(0, 1, 1, True), Launch(0, 1, 1)))
    assert made.request_starts == (0, 2, 3)
    assert made.request_of == (0, 0, 1, 2)
    client = Client("c", made, first=1)
    assert [client.request(number) for number in range(5)] == [1, 2, 0, 0, 1]
    assert [client.ends_request(number) for number in range(4)] == [True, True, False, True]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"priority": 10}, "priority 10 is not between 0 and 9"),
        ({"think": -1}, "must not be negative"),
        ({"first": 1}, "has no request 1"),
    ],
)
def test_a_wrong_client_is_refused(change: dict[str, int], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        Client("c", program((1, 1, 1)), **change)


def test_a_wrong_program_or_device_is_refused() -> None:
    with pytest.raises(ExperimentError, match="it launches nothing"):
        Program("p", (Kernel("a", 1),), ())
    with pytest.raises(ExperimentError, match="launch 0 is of kernel 3"):
        Program("p", (Kernel("a", 1),), (Launch(3, 1, 1),))
    with pytest.raises(ExperimentError, match="launch 0 takes no time"):
        Program("p", (Kernel("a", 1),), (Launch(0, 0, 1),))
    with pytest.raises(ExperimentError, match="device: sms is 0"):
        Device(sms=0)
    with pytest.raises(ExperimentError, match="device: switch is -1"):
        Device(switch=-1)


@pytest.mark.parametrize(
    ("blocks", "per_sm", "width", "tail", "waves"),
    [(1, 1, 250_000, 250_000, 1), (4, 1, 10**6, 10**6, 1), (6, 1, 10**6, 500_000, 2), (8, 2, 10**6, 10**6, 1)],
)
def test_what_blocks_make_of_a_kernel(blocks: int, per_sm: int, width: int, tail: int, waves: int) -> None:
    kernel = Kernel("k", blocks, per_sm)
    assert (TINY.width_ppm(kernel), TINY.tail_ppm(kernel), TINY.waves(kernel)) == (width, tail, waves)


def test_a_copy_takes_no_blocks_and_what_is_not_known_takes_all() -> None:
    assert TINY.width_ppm(Kernel("copy", 100, 1, COPY)) == 1
    assert TINY.width_ppm(Kernel("?", 0, 0)) == 1_000_000


def test_what_is_learnt_of_a_program() -> None:
    client = Client("c", program((5, 2, 10), (100, 2, 20), (1, 2, 30)), think=50)
    known = learn(client, TINY)
    # Launches at 5, 105, 106; runs 15-25, 115-135, 137-167; the wait is over at 170.
    assert known.lasts == (10, 20, 30)
    first, second, third = known.step(0, FIRST, 0), known.step(1, 0, 1), known.step(2, 1, 2)
    assert (first.gap, first.idle, first.slack, first.waits) == (100, 90, 88, False)
    assert (second.gap, second.idle, second.slack) == (1, 2, 0)
    assert (third.think, third.slack, third.waits) == (55, 0, True)
    assert known.step(0, 2, 2) == UNKNOWN
