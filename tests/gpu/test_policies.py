"""What holds for every policy of kernels, whatever the programs; and what each one promises besides."""

from pathlib import Path

import pytest
from hypothesis import given, settings

from headway.errors import InfeasibleActionError, InputError
from headway.gpu.control.gate_rules import Rules
from headway.gpu.metrics import summarise
from headway.gpu.model import alone
from headway.gpu.model.account import SURPLUS_NS, Account, Terms
from headway.gpu.model.actions import Action, LetGo
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.model.reflex import Reason
from headway.gpu.model.rows import Kind
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.headway import Headway
from headway.gpu.policies.registry import POLICIES, build, describe
from headway.gpu.programs.load import load
from headway.gpu.sim.gpu import Shared
from headway.units import MILLISECOND
from tests.gpu.worlds import TINY, Run, drive, program, worlds

World = tuple[tuple[Client, ...], Device]
EVERY = pytest.mark.parametrize("spec", [*POLICIES, "xsched(in_flight=1)", "headway(slo=1.5,floor=20%)"])


@EVERY
@settings(max_examples=15)
@given(worlds())
def test_a_client_by_itself_does_what_it_does_alone(spec: str, world: World) -> None:
    client, device = world[0][0], world[1]
    run = drive(spec, [client], device)
    played = list(alone.moments(client, device))
    assert run.times(Kind.LAUNCHED, 0) == [moment.launched for moment in played]
    assert run.times(Kind.FINISHED, 0) == [moment.ended for moment in played]
    assert [row.value for row in run.rows(Kind.FINISHED, 0)] == [moment.started for moment in played]
    requests = [(row.lease, row.value, row.time) for row in run.rows(Kind.REQUEST_ENDED, 0)]
    assert requests == [tuple(request) for request in alone.requests(client, device)]


@pytest.mark.parametrize("spec", ["mps", "mps-priority", "headway"])
@settings(max_examples=25)
@given(worlds())
def test_no_more_blocks_are_on_the_gpu_than_fit(spec: str, world: World) -> None:
    clients, device = world
    settle = Shared._settle

    def checked(gpu: Shared, now: int) -> None:
        settle(gpu, now)
        assert sum(one.held for one in gpu.running) <= 1_000_000
        assert all(0 <= one.held <= one.width and one.left >= 0 for one in gpu.running)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Shared, "_settle", checked)
        run = drive(spec, clients, device)
    assert not run.gpu.gpu.running  # type: ignore[union-attr]
    assert not any(run.gpu.gpu.streams)


# --- what each one promises -----------------------------------------------------------------------------------------


def shared(spec: str, high: str, low: str, ms: int, think: int = 0) -> tuple[dict[str, float], Run]:
    """The numbers of two shipped programs under a policy."""
    clients = (Client(high, load(high), 0, think=think), Client(low, load(low), 1))
    run = drive(spec, clients, Device(), ms * MILLISECOND)
    return summarise(clients, Device(), run.tape, ms * MILLISECOND), run


def test_exclusive_slows_nobody_above_down_at_all() -> None:
    row, run = shared("exclusive", "vgg16", "resnet101-b64", 30)
    assert (row["slowdown_p50"], row["slowdown_p99"], row["low_share"]) == (1.0, 1.0, 0.0)
    assert not run.rows(Kind.HELD_UP)


def test_exclusive_lets_those_below_go_when_the_one_above_has_left() -> None:
    above, below = program((5, 2, 100)), program((1, 4, 50))
    run = drive("exclusive", [Client("h", above, 0, requests=2), Client("l", below, 1, requests=1)])
    assert run.times(Kind.LEFT, 0)[0] <= run.times(Kind.LET_GO, 1)[0]


@pytest.mark.parametrize("high", ["resnet50", "vgg16"])
def test_a_gate_protects_better_than_none(high: str) -> None:
    slow = {spec: shared(spec, high, "resnet101-b64", 30)[0] for spec in ("mps", "strict", "xsched", "headway")}
    for gated in ("strict", "xsched", "headway"):
        assert slow[gated]["slowdown_p50"] <= slow["mps"]["slowdown_p50"]
        assert slow[gated]["low_share"] > 0


def test_long_kernels_ruin_a_program_under_mps_and_not_behind_a_gate_that_predicts() -> None:
    assert shared("mps", "vgg16", "matmul", 60)[0]["slowdown_p50"] > 3
    for spec in ("fikit", "headway(floor=0)"):
        assert shared(spec, "vgg16", "matmul", 60)[0]["slowdown_p50"] < 1.02


def test_a_floor_keeps_everybody_going() -> None:
    nothing, _ = shared("headway(floor=0)", "vgg16", "matmul", 200)
    floored, run = shared("headway(floor=10%)", "vgg16", "matmul", 200)
    assert nothing["low_share"] < 0.03
    assert floored["low_share"] > 0.08
    assert Reason.FLOOR in {row.detail for row in run.rows(Kind.LET_GO)}


def test_fills_in_flight_stay_within_the_depth() -> None:
    depth, seen = Rules().depth_ns, []

    def look(now: int, state: KernelsState, action: Action) -> None:
        if isinstance(action, LetGo) and action.reason in (Reason.FITS, Reason.ABSORBED, Reason.CREDIT):
            flying = [client.busy - now for client in state.clients if client.gated and client.outstanding]
            seen.append(max(flying, default=0))

    names = ("resnet101-b64", "bert-b32", "graph")
    clients = (Client("h", load("resnet50")), *(Client(name, load(name), 1) for name in names))
    drive("headway", clients, Device(), 20 * MILLISECOND, look=look)
    assert seen
    assert max(seen) <= depth + Device().latency, "the gate's events do not know when the first of them started"


def test_clients_of_one_priority_take_turns() -> None:
    clients = (Client("h", load("resnet50")), *(Client(f"l{index}", load("resnet101-b64"), 1) for index in range(3)))
    row = summarise(clients, Device(), drive("headway", clients, Device(), 40 * MILLISECOND).tape, 40 * MILLISECOND)
    shares = [each["throughput_share"] for each in row["clients"][1:]]
    assert min(shares) > 0.7 * max(shares)


def test_strict_has_one_kernel_of_those_below_in_flight() -> None:
    def look(now: int, state: KernelsState, action: Action) -> None:
        assert not any(client.outstanding for client in state.clients)

    clients = (Client("h", load("vgg16")), Client("a", load("resnet101-b64"), 1), Client("b", load("graph"), 2))
    assert drive("strict", clients, Device(), 10 * MILLISECOND, look=look).rows(Kind.LET_GO)


def test_xsched_bounds_what_is_in_flight() -> None:
    most = 0

    def look(now: int, state: KernelsState, action: Action) -> None:
        nonlocal most
        most = max(most, state.clients[1].outstanding + 1)

    clients = (Client("h", load("vgg16"), think=3 * MILLISECOND), Client("a", load("resnet101-b64"), 1))
    drive("xsched(in_flight=3)", clients, Device(), 20 * MILLISECOND, look=look)
    assert most == 3


def test_fikit_fills_a_gap_with_the_longest_kernel_that_fits() -> None:
    above = program((5, 4, 10), (500, 4, 10), name="h")  # from 25 to 515 the GPU is idle
    low = [Client(f"l{at}", program((1, 4, each)), 1, start=10, requests=1) for at, each in enumerate((30, 400, 600))]
    run = drive("fikit(threshold=1ns)", [Client("h", above, 0, requests=1), *low])
    gone = [(row.subject, row.time) for row in run.rows(Kind.LET_GO)]
    assert [client for client, _ in gone] == [2, 1, 3]
    assert gone[0][1] < 505 < gone[2][1]
    assert not run.rows(Kind.HELD_UP, 0)


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ["mps", "headway", "headway(slo=1.2)", "headway(floor=0.05,watch=off)", "fikit(threshold=5us)"]
)
def test_a_policy_is_described_by_the_string_that_builds_it(spec: str) -> None:
    assert describe(build(describe(build(spec)))) == describe(build(spec)) == spec


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("mp", "unknown kernel policy 'mp'; did you mean 'mps'?"),
        ("headway(", "is not understood"),
        ("headway(slo)", "option slo has no value"),
        ("headway(slo=fast)", "option slo=fast is not a number"),
        ("headway(slo=0.5)", "it must lie between 1 and 100"),
        ("headway(floor=1)", "it must be at least 0 and below 1"),
        ("headway(watch=maybe)", "is not on or off"),
        ("headway(depth=3)", "unknown option 'depth'"),
        ("fikit(threshold=soon)", "option threshold 'soon' is not understood"),
        ("xsched(in_flight=0)", "must be at least 1"),
        ("mps(x=1)", "unknown option 'x'"),
    ],
)
def test_a_wrong_policy_is_refused_in_one_line(spec: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        build(spec)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_policy_that_lets_go_who_does_not_wait_is_a_bug() -> None:
    class Eager(Headway):
        def decide(self, now: int, state: KernelsState):  # type: ignore[no-untyped-def]
            yield LetGo(0, 0)

    with pytest.raises(InfeasibleActionError, match="that client waits with nothing"):
        drive(Eager(), [Client("h", program((5, 2, 10)), 0, requests=1)], TINY)


def test_the_floor_owes_no_more_than_one_kernel_and_a_bit() -> None:
    account, terms = Account(), Terms(credit_ppm=0, credit_cap_ns=0, floor_ppm=500_000)
    for beat in range(1, 100):
        account.accrue(terms, True, 2_000_000, beat * 50_000_000)
    assert account.debt == 2_000_000 + SURPLUS_NS
    shim = (Path(__file__).resolve().parents[2] / "native" / "account.h").read_text()
    assert f"constexpr int64_t kSurplus = {SURPLUS_NS};" in shim
    account.accrue(terms, False, 2_000_000, 100 * 50_000_000)
    assert account.debt == 0
