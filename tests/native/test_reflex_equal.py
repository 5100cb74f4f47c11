"""The shim's decision and the Python policy's are one: over any numbers, over likely ones, and over recorded tapes."""

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.gpu.model.reflex import HEAVY_NS, Look, Reason, Verdict, Waiter, choose, decide
from tests.native.harness import program

TAPES = sorted((Path(__file__).parent / "tapes").glob("*.looks"))
ROW = struct.Struct(f"<{len(Look._fields) + len(Verdict._fields)}q")
ANY = st.integers(-(2**63), 2**63 - 1)
NOW = 10_000_000_000_000
FEW = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
MANY = 200


def near(spread: int) -> st.SearchStrategy[int]:
    """A time about now."""
    return st.integers(NOW - spread, NOW + spread)


def span(longest: int) -> st.SearchStrategy[int]:
    """A duration, or a number just outside what is sound."""
    return st.integers(-1, longest) | st.sampled_from([0, longest])


LIKELY = st.builds(
    Look,
    now_ns=st.just(NOW),
    above=st.integers(0, 3),
    busy_ns=near(200_000),
    next_ns=near(200_000),
    slack_ns=span(500_000),
    filled_ns=near(200_000) | st.just(0),
    fill_ns=span(300_000),
    wave_ns=span(300_000),
    width_ppm=span(1_000_000),
    lag_ns=span(100_000),
    credit_ns=span(100_000),
    debt_ns=span(300_000),
    turn=st.integers(0, 1),
    gate=st.sampled_from([0, 1, 1, 1]),
    hold=st.sampled_from([0, 0, 0, 1]),
    threshold_ns=span(20_000),
    latency_ns=span(10_000),
    depth_ns=span(200_000),
    idle_depth_ns=span(2_000_000),
    absorb_ppm=span(1_000_000),
    overlap_ppm=span(2_000_000),
    whole=st.integers(0, 1),
    longest_ns=st.just(0) | span(300_000),
    contention_ppm=st.just(0) | span(500_000),
)
LONG = st.builds(
    lambda look, **other: look._replace(gate=1, hold=0, turn=1, above=1, **other),
    LIKELY,
    fill_ns=st.integers(400_000, 4_000_000),
    wave_ns=st.integers(400_000, 4_000_000),
    busy_ns=near(300_000),
    next_ns=near(6_000_000),
    slack_ns=span(8_000_000),
    filled_ns=near(2_000_000) | st.just(0),
    depth_ns=span(2_000_000),
    debt_ns=span(5_000_000) | st.just(0),
    lag_ns=span(1_000_000),
    credit_ns=span(5_000_000),
    longest_ns=st.just(0) | span(4_000_000),
)
"""A long kernel whose turn it is."""
LARGE = st.builds(Look, *[ANY | st.sampled_from([0, 1, 10**11, 10**18, 4 * 10**18])] * len(Look._fields))
WAITERS = st.lists(st.builds(Waiter, st.integers(0, 9), st.integers(-1, 5), st.integers(0, 3)), max_size=32)


@pytest.fixture(scope="session")
def replay(native_folder: Path) -> Path:
    """The program that decides as the shim does."""
    return program(native_folder / "replay", "replay")


def answers(replay: Path, what: str, given: bytes) -> list[int]:
    """What it says to packed numbers."""
    ran = subprocess.run([replay, what], input=given, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    return list(struct.unpack(f"<{len(ran.stdout) // 8}q", ran.stdout))


def decided(replay: Path, looks: Sequence[Look]) -> list[Verdict]:
    """The shim's verdicts."""
    numbers = [number for look in looks for number in look]
    found = answers(replay, "decide", struct.pack(f"<{len(numbers)}q", *numbers))
    return [Verdict(*found[i : i + 4]) for i in range(0, len(found), 4)]


@FEW
@given(st.lists(LIKELY, min_size=1, max_size=MANY))
def test_likely_looks_have_one_verdict(replay: Path, looks: list[Look]) -> None:
    assert decided(replay, looks) == [decide(look) for look in looks]


@FEW
@given(st.lists(LONG, min_size=1, max_size=MANY))
def test_looks_with_long_kernels_have_one_verdict(replay: Path, looks: list[Look]) -> None:
    assert decided(replay, looks) == [decide(look) for look in looks]


@FEW
@given(st.lists(LARGE, min_size=1, max_size=MANY))
def test_any_numbers_at_all_have_one_verdict(replay: Path, looks: list[Look]) -> None:
    assert decided(replay, looks) == [decide(look) for look in looks]


@FEW
@given(st.lists(st.tuples(WAITERS, st.integers(-1, 6)), min_size=1, max_size=MANY))
def test_the_choice_among_those_who_wait_is_one(replay: Path, cases: list[tuple[list[Waiter], int]]) -> None:
    packed = b"".join(
        struct.pack(
            f"<{2 + 3 * len(waiters)}q", len(waiters), room, *[number for waiter in waiters for number in waiter]
        )
        for waiters, room in cases
    )
    assert answers(replay, "choose", packed) == [choose(waiters, room) for waiters, room in cases]


def test_recorded_looks_have_the_verdicts_that_were_recorded(replay: Path) -> None:
    for tape in TAPES:
        content = tape.read_bytes()
        rows = list(ROW.iter_unpack(content[: len(content) // ROW.size * ROW.size]))
        looks = [Look(*row[: len(Look._fields)]) for row in rows]
        recorded = [Verdict(*row[len(Look._fields) :]) for row in rows]
        found = [decide(look) for look in looks]
        assert decided(replay, looks) == found, tape.name
        differ = [(look, was, now) for look, was, now in zip(looks, recorded, found, strict=True) if was != now]
        # Younger than a tape: in a gap shorter than a switch a kernel may go, if the switch is absorbed or paid for;
        long = [(was, now) for look, was, now in differ if look.fill_ns >= HEAVY_NS]
        short = [(look, was, now) for look, was, now in differ if look.fill_ns < HEAVY_NS]
        assert {(was.reason, now.go) for _, was, now in short} <= {(Reason.THRESHOLD, 1)}
        for look, _, now in short:
            assert now.reason in (Reason.ABSORBED, Reason.CREDIT)
            assert 0 < now.harm_ns <= look.threshold_ns
        # and long kernels keep away from work above, and from each other.
        assert tape.stem not in ("h200-9", "h200-10") or not differ, "no long kernel there, or the gate of now"
        for was, now in long:
            assert now.harm_ns > was.harm_ns or now.reason in (Reason.BUSY, Reason.GAP)
