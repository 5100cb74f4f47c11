"""The simulated headway at a first meeting: it begins at the floor and learns by holds, as the live one."""

import pytest

from headway.gpu import predict as predicting
from headway.gpu.model.device import Device
from headway.gpu.model.kernel import Kernel
from headway.gpu.model.program import Client, Launch, Program
from headway.gpu.model.reflex import Reason
from headway.gpu.model.rows import Kind
from headway.gpu.policies.headway import Headway
from headway.units import MILLISECOND, SECOND
from tests.gpu.worlds import drive

US = 1_000
ABOVE = Program(
    "above",
    (Kernel("short", 132, 1), Kernel("long", 1320, 2)),
    tuple(Launch(1, 20 * US, 200 * US, at == 4) for at in range(5))
    + tuple(Launch(0, 20 * US, 100 * US, at == 2) for at in range(3)),
)
BELOW = Program("below", (Kernel("fill", 132, 2),), tuple(Launch(0, 10 * US, 40 * US) for _ in range(20)))
CLIENTS = (Client("above", ABOVE, think=200 * US), Client("below", BELOW, 1))


class Told(Headway):
    """Keeps what its dial said last, while both were there."""

    said: list[tuple[int, int]]

    def decide(self, now, state):  # type: ignore[no-untyped-def]
        """Decide, and note boldness and holds."""
        yield from super().decide(now, state)
        if not any(client.left for client in state.clients):
            found = self.dial.slowdown(0)
            self.said.append((self.dial.boldness_ppm(0), found.holds if found else 0))


def test_it_begins_at_the_floor_and_grows_by_holds() -> None:
    policy = Told(met=False)
    policy.said = []
    run = drive(policy, CLIENTS, Device(), 4 * SECOND)
    early = {row.detail for row in run.rows(Kind.LET_GO, 1) if 2 * MILLISECOND < row.time < 400 * MILLISECOND}
    assert early == {Reason.FLOOR}
    assert policy.said[0] == (0, 0)
    assert policy.said[-1][0] >= 50_000, "several holds showed nothing"
    assert policy.said[-1][1] >= 3
    assert {row.detail for row in run.rows(Kind.LET_GO, 1)} > {Reason.FLOOR, Reason.FITS}


def test_steps_are_known_by_what_they_launch() -> None:
    run = drive("headway(met=off)", CLIENTS, Device(), 20 * MILLISECOND)
    above = run.state.clients[0]
    (long, of_long), (short, of_short) = above.expected.kinds
    assert (long, short) == (5, 3)
    assert of_long != of_short
    assert [request for _, _, request, _ in above.whole[:4]] == [0, 1, 0, 1]
    for began, ended, request, cpu in above.whole:
        assert ended - began >= above.expected.took[request]
        assert cpu == (80 * US, 40 * US)[request], "between its launches"


@pytest.mark.parametrize("met", [True, False])
def test_a_long_run_keeps_a_bounded_number_of_steps_and_the_dial_reads_each_once(
    monkeypatch: pytest.MonkeyPatch, met: bool
) -> None:
    told: list[tuple[float, ...]] = []

    class Counted(Headway):
        def decide(self, now, state):  # type: ignore[no-untyped-def]
            yield from super().decide(now, state)
            told.append((self.dial.boldness_ppm(0), self._felt[0].read, state.clients[0].epoch))

    drive(Counted(met=met), CLIENTS, Device(), SECOND)
    before = list(told)
    told.clear()
    monkeypatch.setattr("headway.gpu.model.state.WHOLE_STEPS", 64)
    run = drive(Counted(met=met), CLIENTS, Device(), SECOND)
    assert run.state.clients[0].epoch > 10 * 64
    assert 64 <= len(run.state.clients[0].whole) <= 2 * 64
    assert told == before, "what is dropped was read long ago"


def test_a_first_meeting_is_predicted_from_the_floor_on_and_not_kept() -> None:
    said: list[str] = []
    kept: list[object] = []
    first = predicting.predict(
        "vgg16", "resnet101-b64", seconds=0.1, first=200 * MILLISECOND, write=kept.append, say=said.append
    )
    met = predicting.predict("vgg16", "resnet101-b64", seconds=0.1, write=kept.append)
    assert first["modes"]["gate"]["low_share"] < 0.05 < met["modes"]["gate"]["low_share"]
    assert first["modes"]["mps"] == met["modes"]["mps"]
    assert len(kept) == 1
    assert any("--first" in line for line in said)


def test_a_first_meeting_lasts_at_most_ten_minutes() -> None:
    with pytest.raises(Exception, match="seconds 700 must be above 0 and at most 600"):
        predicting.predict("vgg16", "matmul", seconds=0.1, first=700 * SECOND, write=lambda _: None)
