"""Waits for a decision: told as such by stories, explanations, pages, tables and traces."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headway as hw
from headway.core.tape import Tape
from headway.fleet.model.rows import Kind
from headway.fleet.show.history.attempts import Attempt, BatchRun
from headway.fleet.show.history.waits import Decisions, Wait
from headway.fleet.show.perfetto import FLEET_PID, trace_events


def tape(*decisions: tuple[int, int, int, int]) -> Tape:
    """A tape of decisions: (desk, begin, until, waited)."""
    rows = [(begin, Kind.DECIDE, -1, 0, desk, waited, until) for desk, begin, until, waited in decisions]
    return Tape(np.array(rows, dtype=np.int64).reshape(-1, 7))


def taken(ready: int, begin: int, worker: int = 0, **more: Any) -> Attempt:
    return Attempt(0, 0, ready, batch_run=BatchRun(1, worker, 0, begin, 1, 1), **more)


def test_a_wait_that_ends_with_a_decision_is_for_it_as_long_as_its_row_says() -> None:
    waits = Decisions(tape((-1, 70, 100, 20))).waits(taken(10, 100), 100, 0)
    assert list(waits) == [Wait("wait", 0, 10, 50), Wait("controller", 0, 50, 100)]
    whole = Decisions(tape((-1, 70, 100, 65))).waits(taken(10, 100), 100, 0)
    assert list(whole) == [Wait("controller", 0, 10, 100)], "never before it was ready"
    none = Decisions(tape((-1, 70, 99, 20))).waits(taken(10, 100), 100, 0)
    assert list(none) == [Wait("wait", 0, 10, 100)]


def test_a_decision_that_a_controller_came_straight_from_was_in_the_way_too() -> None:
    decisions = Decisions(tape((0, 20, 60, 0), (0, 60, 100, 0), (1, 5, 60, 0)))
    assert list(decisions.waits(taken(40, 100), 100, 0)) == [Wait("controller", 0, 40, 100)]
    assert list(decisions.waits(taken(10, 100), 100, 0)) == [Wait("wait", 0, 10, 20), Wait("controller", 0, 20, 100)]


def test_the_controller_of_the_worker_that_a_request_reached_places_it_and_inputs_come_after() -> None:
    decisions = Decisions(tape((3, 10, 50, 0), (2, 60, 90, 5), (1, 40, 50, 40)))
    attempt = taken(10, 90, worker=2, placed=50, queues=[(2, 55, 90)])
    assert list(decisions.waits(attempt, 90, 3)) == [
        Wait("controller", 2, 10, 50),
        Wait("transfer", 2, 50, 55),
        Wait("controller", 2, 55, 90),
    ]


@pytest.fixture(scope="module", params=["decentralised", "central"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run with a slow controller and plenty of workers."""
    work = hw.Fleet("compass", workers=8, rate=1, requests=60, controller="50ms", control=request.param)
    return hw.simulate(work, "compass", out=str(tmp_path_factory.mktemp("fleet") / "run"))


def test_all_parts_add_up_and_what_a_controller_cost_is_the_same_everywhere(run: Any) -> None:
    table = run.requests()
    for number, latency, told in table.select("request", "latency_s", "controller_s").iter_rows():
        record, story = run.explain(number).record(), run.story(number).record()
        assert sum(record["parts_ns"].values()) == round(latency * 1e9) == round(sum(story["spent_s"].values()) * 1e9)
        assert record["parts_ns"]["controller"] == round(told * 1e9) == round(story["spent_s"]["controller"] * 1e9)
        assert record["parts_ns"]["controller"] >= 100_000_000, "a placement and a batch, 50 ms each"


def test_words_say_for_a_decision(run: Any, tmp_path: Path) -> None:
    story = "\n".join(map(str, run.story(7).lines()))
    assert "placed after 50.0 ms of waiting for a decision" in story
    assert "ms waiting for a decision" in story.splitlines()[-1]
    explanation = "\n".join(map(str, run.explain(7).lines()))
    assert "for a decision" in explanation
    causes = {row["cause"]: row for row in run.explain().record()["causes"]}
    assert causes["controller"]["main_cause_of"] > 0
    page = run.report(tmp_path / "page.html").read_text()
    assert "waiting for a decision" in page


def test_a_trace_has_the_decisions_and_the_waits_for_them(run: Any) -> None:
    scene, kept = run.stored.scene, run.stored.tape
    made = "".join(trace_events(scene.built.catalogue, scene.built.fleet, scene.requests, kept))
    events = json.loads(made)["traceEvents"]
    decisions = [event for event in events if event["ph"] == "X" and event["cat"] == "decision"]
    assert len(decisions) == int((kept.column("kind") == Kind.DECIDE).sum()) == run.row["decisions"]
    assert {event["pid"] == FLEET_PID for event in decisions} == {scene.central()}
    assert any(event["ph"] == "b" and event["cat"] == "decision" for event in events)
