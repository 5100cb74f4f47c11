"""The audit of kernel tapes: what is sound passes under every policy, and each rule is broken and found by name."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from headway.core.audit import Finding
from headway.core.tape import COLUMNS, Tape
from headway.gpu.audit import audit
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.model.rows import Kind
from headway.gpu.policies.registry import POLICIES
from tests.gpu.worlds import TINY, Run, drive, program, worlds

TIME, KIND, SUBJECT, LEASE, PLACE, DETAIL, VALUE = range(len(COLUMNS))
Rows = npt.NDArray[np.int64]
OURS = [name for name, policy in POLICIES.items() if policy.__module__.startswith("headway.")]
ABOVE = Client("h", program((5, 4, 100), (5, 4, 50), name="h"), 0, think=50, requests=3)
BELOW = Client("l", program((6, 4, 80), (6, 2, 30), name="l"), 1, requests=3)
CLIENTS = (ABOVE, BELOW)


@cache
def played(policy: str) -> Run:
    """Two programs of three requests; the one below has to ask under policies with a gate."""
    return drive(policy, CLIENTS)


def audited(rows: Rows, device: Device = TINY, *, complete: bool = True) -> list[Finding]:
    return audit(CLIENTS, device, Tape(rows), complete=complete)


def rules(rows: Rows, device: Device = TINY, *, complete: bool = True) -> set[str]:
    return {finding.rule for finding in audited(rows, device, complete=complete)}


def of_kind(rows: Rows, kind: Kind, client: int | None = None) -> Iterator[int]:
    yield from np.flatnonzero((rows[:, KIND] == kind) & ((rows[:, SUBJECT] == client) | (client is None))).tolist()


# --- sound tapes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", OURS)
@settings(max_examples=25)
@given(world=worlds(), share=st.floats(0, 1))
def test_a_sound_tape_has_no_finding_and_neither_has_its_beginning(
    policy: str, world: tuple[tuple[Client, ...], Device], share: float
) -> None:
    clients, device = world
    tape = drive(policy, clients, device).tape
    assert audit(clients, device, tape) == []
    beginning = Tape(tape.rows[: round(share * len(tape))])
    assert audit(clients, device, beginning, complete=False) == []


@pytest.mark.parametrize("policy", OURS)
@settings(max_examples=10)
@given(world=worlds(), horizon=st.integers(1, 3_000))
def test_a_run_that_ends_by_the_clock_is_sound(
    policy: str, world: tuple[tuple[Client, ...], Device], horizon: int
) -> None:
    clients, device = world
    assert audit(clients, device, drive(policy, clients, device, horizon).tape) == []


def test_the_tapes_that_are_broken_below_have_a_row_of_every_kind() -> None:
    kinds = {kind for policy in ("headway", "strict") for kind in played(policy).tape.column("kind").tolist()}
    assert kinds == set(Kind) - {Kind.REFUSED}


# --- broken ones --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "kind", "column", "change", "rule"),
    [
        ("mps", Kind.LAUNCHED, TIME, -1, "cpu time"),
        ("mps", Kind.LAUNCHED, LEASE, 1, "order"),
        ("mps", Kind.LAUNCHED, PLACE, 1, "kernel"),
        ("mps", Kind.LAUNCHED, SUBJECT, 2, "client"),
        ("mps", Kind.LAUNCHED, SUBJECT, -2, "client"),
        ("headway", Kind.REACHED, TIME, -1, "cpu time"),
        ("headway", Kind.REACHED, LEASE, 1, "order"),
        ("headway", Kind.REACHED, PLACE, 1, "kernel"),
        ("headway", Kind.LET_GO, LEASE, 1, "gate"),
        ("headway", Kind.LET_GO, PLACE, 1, "kernel"),
        ("headway", Kind.LET_GO, KIND, Kind.LAUNCHED - Kind.LET_GO, "gate"),
        ("mps", Kind.FINISHED, LEASE, 1, "order"),
        ("mps", Kind.FINISHED, PLACE, 1, "kernel"),
        ("mps", Kind.FINISHED, DETAIL, -1, "kernel"),
        ("mps", Kind.FINISHED, TIME, -1, "work"),
        ("mps", Kind.FINISHED, VALUE, -500, "stream"),
        ("mps", Kind.FINISHED, VALUE, 1, "work"),
        ("mps", Kind.REQUEST_ENDED, TIME, -1, "request"),
        ("mps", Kind.REQUEST_ENDED, LEASE, 1, "request"),
        ("mps", Kind.REQUEST_ENDED, VALUE, -1, "request"),
        ("mps", Kind.REQUEST_ENDED, VALUE, 10_000, "request"),
        ("mps", Kind.LEFT, LEASE, -1, "left"),
        ("strict", Kind.HELD_UP, DETAIL, 5, "held up"),
        ("strict", Kind.HELD_UP, PLACE, 9, "held up"),
        ("strict", Kind.HELD_UP, VALUE, -10_000, "held up"),
        ("strict", Kind.HELD_UP, LEASE, 50, "held up"),
        ("headway", Kind.WAKE_AT, VALUE, -10_000, "wake"),
        ("headway", Kind.WOKE, TIME, 1, "wake"),
        ("headway", Kind.WOKE, KIND, 92, "kind"),
        ("mps", Kind.FINISHED, TIME, -5_000, "time"),
    ],
)
def test_a_changed_number_is_found(policy: str, kind: Kind, column: int, change: int, rule: str) -> None:
    sound = played(policy).tape.rows
    for row in of_kind(sound, kind):
        rows = sound.copy()
        rows[row, column] += change
        if rule in rules(rows):
            return
    raise AssertionError(f"no {kind.name} row could be changed so that {rule!r} is found")


@pytest.mark.parametrize(
    ("policy", "kind", "rule"),
    [
        ("mps", Kind.LAUNCHED, "order"),
        ("headway", Kind.REACHED, "gate"),
        ("headway", Kind.LET_GO, "gate"),
        ("mps", Kind.FINISHED, "order"),
        ("mps", Kind.REQUEST_ENDED, "wait"),
        ("mps", Kind.LEFT, "end"),
        ("headway", Kind.WAKE_AT, "wake"),
    ],
)
def test_a_row_that_is_missing_is_found(policy: str, kind: Kind, rule: str) -> None:
    rows = played(policy).tape.rows
    assert any(rule in rules(np.delete(rows, row, axis=0)) for row in of_kind(rows, kind))


@pytest.mark.parametrize(
    ("policy", "kind", "rule"),
    [
        ("mps", Kind.LAUNCHED, "order"),
        ("headway", Kind.REACHED, "gate"),
        ("headway", Kind.LET_GO, "gate"),
        ("mps", Kind.FINISHED, "order"),
        ("mps", Kind.REQUEST_ENDED, "request"),
        ("mps", Kind.LEFT, "left"),
    ],
)
def test_a_row_that_is_there_twice_is_found(policy: str, kind: Kind, rule: str) -> None:
    rows = played(policy).tape.rows
    assert all(rule in rules(np.insert(rows, row, rows[row], axis=0)) for row in of_kind(rows, kind))


def test_a_launch_past_the_gate_is_found() -> None:
    rows = played("headway").tape.rows.copy()
    second = list(of_kind(rows, Kind.REACHED, 1))[1]
    let_go = next(row for row in of_kind(rows, Kind.LET_GO, 1) if row > second)
    rows[second] = [*rows[second, :1], Kind.LAUNCHED, *rows[second, SUBJECT:]]
    assert "went past the gate" in " ".join(finding.text for finding in audited(np.delete(rows, let_go, axis=0)))


def test_a_launch_of_a_client_that_left_is_found() -> None:
    rows = played("mps").tape.rows
    gone = next(of_kind(rows, Kind.LEFT, 0))
    last = list(of_kind(rows, Kind.LAUNCHED, 0))[-1]
    late = rows[last].copy()
    late[TIME], late[LEASE] = rows[-1, TIME] + 1_000, rows[last, LEASE] + 1
    assert gone < len(rows)
    texts = [finding.text for finding in audited(np.vstack([rows, late])) if finding.rule == "left"]
    assert texts == [f"launch {late[LEASE]} comes after its client left"]


def test_a_wake_that_nobody_asked_for_is_found() -> None:
    rows = played("mps").tape.rows
    wake = [rows[-1, TIME] + 1, Kind.WOKE, -1, 0, 0, 0, 0]
    (finding,) = audited(np.vstack([rows, wake]))
    assert (finding.row, finding.rule) == (len(rows), "wake")
    assert "had not asked" in finding.text


@pytest.mark.parametrize("policy", OURS)
def test_a_tape_that_was_cut_is_found_where_the_run_is_said_to_be_complete(policy: str) -> None:
    rows = played(policy).tape.rows
    for end in range(len(rows) - 1):
        assert "end" in rules(rows[:end])
        assert rules(rows[:end], complete=False) == set()


def test_more_launches_than_a_stream_takes_are_found() -> None:
    shallow = Device(**{name: getattr(TINY, name) for name in ("sms", "latency", "follow", "wait", "slice")}, queue=1)
    assert "queue" in rules(played("mps").tape.rows, shallow)
    assert "queue" not in rules(played("mps").tape.rows)


def test_rows_out_of_order_within_an_instant_are_found() -> None:
    rows = played("headway").tape.rows
    together = [row for row in of_kind(rows, Kind.LET_GO) if rows[row - 1, TIME] == rows[row, TIME]]
    swapped = rows.copy()
    swapped[[together[0] - 1, together[0]]] = rows[[together[0], together[0] - 1]]
    assert "order" in rules(swapped)


@settings(max_examples=60)
@given(st.data())
def test_any_launch_end_or_request_that_moves_to_an_earlier_time_is_found(data: st.DataObject) -> None:
    """Nobody shares the GPU under this policy: whatever waits for time to pass comes as soon as it can."""
    rows = played("exclusive").tape.rows.copy()
    kinds = (Kind.LAUNCHED, Kind.FINISHED, Kind.REQUEST_ENDED)
    row = data.draw(st.sampled_from(np.flatnonzero(np.isin(rows[:, KIND], kinds)).tolist()))
    rows[row, TIME] -= data.draw(st.integers(1, max(1, int(rows[row, TIME]))))
    assert audited(rows) != []
