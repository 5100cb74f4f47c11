"""The audit of serving tapes: what is sound passes, and each rule is broken by hand once and found by its name."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.core.audit import MOST_FINDINGS, Finding
from headway.core.tape import COLUMNS, Tape
from headway.fleet.audit.audit import audit
from headway.fleet.model.catalogue import Catalogue, Configuration, Model, Profile
from headway.fleet.model.fleet import MIG, Fleet
from headway.fleet.model.rows import Kind, pack
from headway.units import SECOND
from tests.fleet.rich import CATALOGUE, FLEET, WORLD, rich

TIME, KIND, SUBJECT, LEASE, PLACE, DETAIL, VALUE = range(len(COLUMNS))
Rows = npt.NDArray[np.int64]


def audited(rows: Rows, *, catalogue: Catalogue = CATALOGUE, fleet: Fleet = FLEET, **options: Any) -> list[Finding]:
    return audit(catalogue, fleet, options.pop("requests", WORLD.requests), Tape(rows), **options)


def rules(rows: Rows, **options: Any) -> set[str]:
    return {finding.rule for finding in audited(rows, **options)}


def of_kind(kind: Kind) -> Iterator[int]:
    yield from np.flatnonzero(rich().tape.column("kind") == int(kind)).tolist()


def test_the_tape_that_is_broken_below_is_sound_and_has_a_row_of_every_kind() -> None:
    tape = rich().tape
    assert audited(tape.rows) == []
    workers = {Kind.START_WORKER, Kind.WORKER_STARTED, Kind.DRAIN_WORKER, Kind.STOP_WORKER}
    live = {Kind.REJECTED, Kind.REQUEST_FAILED, Kind.MEASURED, Kind.MODEL_LOST}
    elsewhere = {Kind.REFUSED, Kind.DECIDE, Kind.FIRST_TOKEN, *workers, *live}  # each has a test of its own
    assert set(tape.column("kind").tolist()) == set(Kind) - elsewhere
    assert {1, 0} == {row.value for row in rich().rows(Kind.LOST)}
    stale = {row.value for row in rich().rows(Kind.STALE)}
    assert {Kind.FINISHED, Kind.LOADED, Kind.TASK_ARRIVED, Kind.FETCHED, Kind.INSTANCE_STARTED} <= stale


@pytest.mark.parametrize(
    ("kind", "column", "change", "rule"),
    [
        (Kind.ARRIVED, SUBJECT, 100, "arrival"),
        (Kind.ARRIVED, SUBJECT, -1, "arrival"),
        (Kind.ARRIVED, DETAIL, 1, "arrival"),
        (Kind.ARRIVED, VALUE, 1, "arrival"),
        (Kind.ARRIVED, TIME, -1, "arrival"),
        (Kind.TASK_ARRIVED, TIME, -1, "input"),
        (Kind.TASK_ARRIVED, LEASE, 1, "lease"),
        (Kind.TASK_ARRIVED, PLACE, 1, "queue"),
        (Kind.TASK_ARRIVED, DETAIL, 7, "request"),
        (Kind.QUEUED, DETAIL, 1, "order-of-tasks"),
        (Kind.LOADED, TIME, -1, "early"),
        (Kind.LOADED, LEASE, 10_000, "lease"),
        (Kind.FINISHED, TIME, -1, "early"),
        (Kind.FINISHED, LEASE, 10_000, "lease"),
        (Kind.FINISHED, VALUE, 1, "batch"),
        (Kind.FINISHED, PLACE, 1, "lease"),
        (Kind.FETCHED, DETAIL, 1, "lease"),
        (Kind.FETCHED, TIME, -1, "load"),
        (Kind.INSTANCE_STARTED, TIME, -1, "instance"),
        (Kind.INSTANCE_STARTED, LEASE, -1, "lease"),
        (Kind.WORKER_FAILED, PLACE, 1, "lost"),
        (Kind.WORKER_FAILED, PLACE, 9, "worker"),
        (Kind.WORKER_RECOVERED, PLACE, 1, "worker"),
        (Kind.STALE, VALUE, -1, "order"),
        (Kind.PLACE, PLACE, 9, "worker"),
        (Kind.MOVE, VALUE, 1, "place"),
        (Kind.RUN, LEASE, -1, "lease"),
        (Kind.RUN, DETAIL, 1, "batch"),
        (Kind.RUN, VALUE, 50, "cpus"),
        (Kind.RUN, VALUE, 7 << 16, "slices"),
        (Kind.RUN, VALUE, 1 << 32, "slices"),
        (Kind.RUN, VALUE, 2 << 16, "profile"),
        (Kind.TASK, SUBJECT, 1, "batch"),
        (Kind.TASK, VALUE, -1, "input"),
        (Kind.TASK, DETAIL, 1, "order-of-tasks"),
        (Kind.LOAD, VALUE, -1_000_000_000, "load"),
        (Kind.LOAD, DETAIL, 1, "load"),
        (Kind.COLD, VALUE, -1, "instance"),
        (Kind.EVICTED, DETAIL, 1, "evict"),
        (Kind.EVICT, DETAIL, 1, "evict"),
        (Kind.FETCH, VALUE, -1_000_000_000, "load"),
        (Kind.START_INSTANCE, VALUE, -1, "instance"),
        (Kind.EXPIRED, VALUE, 1, "instance"),
        (Kind.EXPIRED, DETAIL, 1, "instance"),
        (Kind.DROP, VALUE, 1, "drop"),
        (Kind.DONE, VALUE, 1, "answer"),
        (Kind.DONE, SUBJECT, 2, "answer"),
        (Kind.LOST, VALUE, 1, "lost"),
        (Kind.LOST, SUBJECT, 1, "lost"),
        (Kind.READY, DETAIL, -1, "queue"),
        (Kind.WOKE, KIND, 10, "kind"),
    ],
)
def test_a_changed_number_is_found(kind: Kind, column: int, change: int, rule: str) -> None:
    for row in of_kind(kind):
        rows = rich().tape.rows.copy()
        rows[row, column] += change
        if rule in rules(rows):
            return
    raise AssertionError(f"no {kind.name} row could be changed so that {rule!r} is found")


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (Kind.ARRIVED, "request"),
        (Kind.TASK_ARRIVED, "queue"),
        (Kind.QUEUED, "queue"),
        (Kind.LOADED, "early"),
        (Kind.FINISHED, "order-of-tasks"),
        (Kind.FETCHED, "evict"),
        (Kind.INSTANCE_STARTED, "instance"),
        (Kind.WORKER_FAILED, "lost"),
        (Kind.WORKER_RECOVERED, "worker"),
        (Kind.PLACE, "queue"),
        (Kind.RUN, "kind"),
        (Kind.TASK, "answer"),
        (Kind.LOAD, "load"),
        (Kind.COLD, "instance"),
        (Kind.EVICTED, "memory"),
        (Kind.EVICT, "load"),
        (Kind.FETCH, "load"),
        (Kind.EXPIRED, "instance"),
        (Kind.STOP_INSTANCE, "instance"),
        (Kind.DROP, "end"),
        (Kind.DONE, "answer"),
        (Kind.LOST, "lost"),
        (Kind.LOST, "twice"),
    ],
)
def test_a_row_that_is_missing_is_found(kind: Kind, rule: str) -> None:
    assert any(rule in rules(np.delete(rich().tape.rows, row, axis=0)) for row in of_kind(kind))


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (Kind.ARRIVED, "arrival"),
        (Kind.TASK_ARRIVED, "queue"),
        (Kind.FINISHED, "lease"),
        (Kind.FETCHED, "lease"),
        (Kind.INSTANCE_STARTED, "lease"),
        (Kind.WORKER_FAILED, "worker"),
        (Kind.WORKER_RECOVERED, "worker"),
        (Kind.RUN, "lease"),
        (Kind.TASK, "twice"),
        (Kind.LOAD, "load"),
        (Kind.EVICTED, "evict"),
        (Kind.EXPIRED, "instance"),
        (Kind.DROP, "request"),
        (Kind.DONE, "request"),
        (Kind.LOST, "lost"),
    ],
)
def test_a_row_that_is_there_twice_is_found(kind: Kind, rule: str) -> None:
    rows = rich().tape.rows
    assert any(rule in rules(np.insert(rows, row, rows[row], axis=0)) for row in of_kind(kind))


@given(st.data())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_whatever_is_written_on_a_tape_the_audit_says_so_and_goes_on(data: st.DataObject) -> None:
    rows = rich().tape.rows.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(0, len(rows) - 1))
        column = data.draw(st.integers(0, len(COLUMNS) - 1))
        rows[row, column] = data.draw(st.sampled_from([-1, 0, 1, 2, 3, 7, 22, 41, 99, 1 << 40, -(1 << 40)]))
    assert all(finding.text for finding in audited(rows))


def test_rows_in_another_order_are_found() -> None:
    rows = rich().tape.rows.copy()
    rows[-1, TIME] = 0
    assert "time" in rules(rows)
    rows = rich().tape.rows.copy()
    time, kind = rows[:, TIME], rows[:, KIND]
    first = next(i for i in of_kind(Kind.RUN) if time[i - 1] == time[i] and kind[i - 1] < Kind.PLACE)
    rows[[first - 1, first]] = rows[[first, first - 1]]
    assert "order" in rules(rows)


def test_a_live_event_that_is_called_stale_is_found() -> None:
    for kind in (Kind.FINISHED, Kind.LOADED, Kind.FETCHED, Kind.INSTANCE_STARTED, Kind.TASK_ARRIVED):
        rows = rich().tape.rows.copy()
        row = next(of_kind(kind))
        rows[row, KIND], rows[row, VALUE] = Kind.STALE, kind
        assert "lease" in rules(rows), kind


def _changed(worker: int, gpu: dict[str, Any] | None = None, **changes: Any) -> Fleet:
    old = FLEET.workers[worker]
    new = replace(old, gpu=replace(old.gpu, **(gpu or {})), **changes)
    return replace(FLEET, workers=tuple(new if i == worker else each for i, each in enumerate(FLEET.workers)))


@pytest.mark.parametrize(
    ("fleet", "rule"),
    [
        (_changed(0, {"memory_bytes": 155_000_000}), "memory"),
        (_changed(1, {"memory_bytes": 130_000_000}), "memory"),
        (_changed(2, {"memory_bytes": 60_000_000}), "memory"),
        (_changed(1, cpus=1), "cpus"),
        (_changed(2, {"slices": 3}), "slices"),
        (_changed(2, {"geometry": MIG}), "slices"),
        (replace(FLEET, links=replace(FLEET.links, host_to_gpu=10**9)), "load"),
        (replace(FLEET, links=replace(FLEET.links, between_racks=10**8)), "input"),
        (replace(FLEET, keep_alive=SECOND), "instance"),
        (replace(FLEET, workers=FLEET.workers[:2]), "worker"),
    ],
)
def test_a_run_that_breaks_the_rules_of_its_fleet_is_found(fleet: Fleet, rule: str) -> None:
    assert rule in rules(rich().tape.rows, fleet=fleet)


def _with(function: int, **changes: Any) -> Catalogue:
    changed = replace(CATALOGUE.functions[function], **changes)
    functions = tuple(changed if i == function else each for i, each in enumerate(CATALOGUE.functions))
    return replace(CATALOGUE, functions=functions)


@pytest.mark.parametrize(
    ("catalogue", "rule"),
    [
        (_with(0, activation_bytes=70 * 10**6), "memory"),
        (_with(0, models=(0, 1)), "load"),
        (_with(1, cold_start=10 * SECOND), "instance"),
        (_with(2, cold_start=0), "instance"),
        (_with(0, profile=Profile({"": {Configuration(1, 1, 1): 1}})), "profile"),
        (_with(0, profile=Profile({"": dict.fromkeys(CATALOGUE.functions[0].profile.on(""), SECOND)})), "early"),
        (replace(CATALOGUE, models=(*CATALOGUE.models[:2], Model("c", 100 * 10**6))), "memory"),
    ],
)
def test_a_run_that_breaks_the_rules_of_its_catalogue_is_found(catalogue: Catalogue, rule: str) -> None:
    assert rule in rules(rich().tape.rows, catalogue=catalogue)


def test_what_takes_less_than_its_profile_is_found_unless_time_is_real_or_it_has_a_spread() -> None:
    slow = dict.fromkeys(CATALOGUE.functions[0].profile.on(""), SECOND)
    assert rules(rich().tape.rows, catalogue=_with(0, profile=Profile({"": slow}))) == {"early"}
    assert rules(rich().tape.rows, catalogue=_with(0, profile=Profile({"": slow})), punctual=False) == set()
    assert rules(rich().tape.rows, catalogue=_with(0, profile=Profile({"": slow}, 0.1))) == set()


def test_an_unfinished_tape_is_sound_as_far_as_it_goes() -> None:
    for share in (0.2, 0.5, 0.8):
        part = rich().tape.until(int(rich().tape.column("time")[-1] * share))
        assert audited(part.rows, complete=False) == []
        assert rules(part.rows) == {"end"}


def test_a_request_that_never_comes_is_found() -> None:
    more = (*WORLD.requests, WORLD.requests[-1]._replace(id=99))
    assert rules(rich().tape.rows, requests=more) == {"end"}


def test_findings_have_a_row_a_time_and_a_text_and_there_are_not_too_many() -> None:
    rows = rich().tape.rows.copy()
    (at, *_) = of_kind(Kind.RUN)
    rows[at, VALUE] = pack(50, 1, 0)
    first = audited(rows)[0]
    assert first.row >= at
    assert str(first).startswith(f"row {first.row} at {rows[at, TIME]} ns, {first.rule}: ")
    assert len(audited(np.tile(rows, (40, 1)))) == MOST_FINDINGS
