"""Stories of programs on a shared GPU: they add up to the tape, and each request says what it waited for."""

import pytest
from hypothesis import given, settings, strategies as st

from headway.core.tape import Tape
from headway.errors import TapeError
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.model.rows import Kind
from headway.gpu.show.story import SLOWEST, Story, story
from headway.units import SECOND
from tests.gpu.worlds import TINY, Run, drive, program, worlds

ABOVE = Client("h", program((5, 4, 100), (5, 4, 50), name="h"), 0, think=50, requests=8)
BELOW = Client("l", program((6, 4, 80), (6, 2, 30), name="l"), 1, requests=3)
CLIENTS = (ABOVE, BELOW)


@pytest.fixture(scope="module")
def mps() -> Run:
    return drive("mps", CLIENTS)


@pytest.fixture(scope="module")
def gated() -> Run:
    return drive("strict", CLIENTS)


def told(run: Run, subject: str, tape: Tape | None = None) -> Story:
    return story(CLIENTS, TINY, run.tape if tape is None else tape, subject)


@settings(max_examples=25)
@given(worlds(), st.sampled_from(["mps", "strict", "headway"]), st.floats(0, 1))
def test_every_program_and_request_has_a_story_that_agrees_with_the_tape(
    world: tuple[tuple[Client, ...], Device], policy: str, share: float
) -> None:
    clients, device = world
    run = drive(policy, clients, device)
    cut = run.tape.until(round(share * int(run.tape.column("time")[-1])))
    for index, client in enumerate(clients):
        ends = [row for row in cut if row.kind == Kind.REQUEST_ENDED and row.subject == index]
        waits = [row for row in cut if row.kind == Kind.HELD_UP and row.subject == index]
        found = story(clients, device, cut, client.name)
        assert found.requests == len(ends)
        assert found.lines()[0].startswith(f"{client.name}, priority {client.priority}: {len(ends)} requests")
        assert len(found.told) == min(SLOWEST, len(ends))
        slowest = sorted((row.time - row.value for row in ends), reverse=True)
        assert [each.took for each in found.told] == slowest[:SLOWEST]
        each = [story(clients, device, cut, f"{client.name}:{number}").told[0] for number in range(len(ends))]
        assert [(one.number, one.began, one.took) for one in each] == [
            (number, row.value, row.time - row.value) for number, row in enumerate(ends)
        ]
        assert sum(one.gated for one in each) <= found.gated
        assert sum(delay for one in each for _, _, delay in one.held) <= sum(row.value for row in waits)


def test_a_request_says_behind_whom_it_waited(mps: Run) -> None:
    (request,) = told(mps, "h:0").told
    within = [row for row in mps.rows(Kind.HELD_UP, 0) if row.lease < 2]
    assert sum(delay for _, _, delay in request.held) == sum(row.value for row in within) > 0
    assert {(by, kernel) for by, kernel, _ in request.held} == {("l", f"l{row.place}") for row in within}
    assert request.launches == 2
    line = told(mps, "h:0").lines()[1]
    assert line.startswith("  request 0 at ")
    assert "× alone; 2 launches; behind " in line
    assert " of l " in line


def test_a_program_that_is_held_back_says_how_long_and_why(gated: Run) -> None:
    waits = {row.lease: row.time for row in gated.rows(Kind.REACHED, 1)}
    held = [row.time - waits[row.lease] for row in gated.rows(Kind.LET_GO, 1)]
    found = told(gated, "l")
    assert found.gated == sum(held) > 0
    assert sum(found.reasons.values()) == sum(1 for each in held if each)
    assert " at the gate in all; let go: " in found.lines()[1]
    assert told(gated, "h").gated == 0


def test_the_record_is_the_story_in_seconds(mps: Run) -> None:
    found = told(mps, "h")
    record = found.record()
    assert list(record) == [
        *("client", "priority", "requests", "latency_p50_s", "latency_p99_s", "latency_alone_p50_s", "gated_s"),
        *("reasons", "told"),
    ]
    assert record["latency_p50_s"] == found.p50 / SECOND
    assert record["told"][0]["latency_s"] == found.told[0].took / SECOND
    assert [each["request"] for each in record["told"]] == [each.number for each in found.told]


def test_one_that_ended_no_request_says_so(mps: Run) -> None:
    nothing = mps.tape.until(0)
    assert told(mps, "h", nothing).lines() == ["h, priority 0: 0 requests"]
    assert told(mps, "h", nothing).record()["latency_p50_s"] is None
    with pytest.raises(TapeError, match="request '0' of h is not in this run: it ended none"):
        told(mps, "h:0", nothing)


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("x", r"unknown program 'x' \(valid: h, l\)"),
        ("", r"unknown program ''"),
        ("x:0", r"unknown program 'x'"),
        ("h:8", "request '8' of h is not in this run: its 8 requests go from 0 to 7"),
        ("h:-1", "request '-1' of h is not in this run"),
        ("h:", "request '' of h is not in this run"),
        ("h:first", "request 'first' of h is not in this run"),
    ],
)
def test_what_is_not_in_the_run_is_one_line(mps: Run, subject: str, said: str) -> None:
    with pytest.raises(TapeError, match=said) as refused:
        told(mps, subject)
    assert "\n" not in str(refused.value)


def test_a_colon_in_the_name_of_a_program_is_part_of_it() -> None:
    clients = (Client("my:1", ABOVE.program, 0, requests=2), Client("my", BELOW.program, 1, requests=2))
    tape = drive("mps", clients).tape
    assert story(clients, TINY, tape, "my:1").client == "my:1"
    assert story(clients, TINY, tape, "my:1:1").told[0].number == 1
    assert story(clients, TINY, tape, "my:0").client == "my"
