"""Workers that are started and stopped: when each was on is shown by tables, traces and pages."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.metrics.rent import rented_time
from headway.fleet.model.rows import Kind
from headway.fleet.show.history.presence import OFF, ON, STARTING, Presence
from headway.fleet.show.page.figures import Times, workers
from headway.fleet.show.perfetto import FIRST_PID, trace_events
from headway.units import SECOND

SCALER = "queue(tasks=1,every=1s,window=3s,initial=1)"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run in which workers are started and stopped."""
    work = hw.Fleet("compass", workers=6, rate=3, requests=150, slo="3L", autoscale=SCALER, startup="2s", start="warm")
    return hw.simulate(work, "compass", out=str(tmp_path_factory.mktemp("fleet") / "run"))


def parts(run: Any) -> tuple[Any, ...]:
    scene = run.stored.scene
    return scene.built.catalogue, scene.built.fleet, scene.requests, run.stored.tape


def test_the_stretches_of_a_worker_have_no_gap_and_rent_is_for_all_but_off(run: Any) -> None:
    catalogue, fleet, requests, tape = parts(run)
    presence, ledger = Presence(fleet, tape), Ledger(catalogue, fleet, requests, tape)
    assert ledger.count(Kind.START_WORKER) * ledger.count(Kind.STOP_WORKER), "else nothing is tested"
    for stretches in presence.stretches:
        times = [(each.since, each.until) for each in stretches]
        assert times[0][0] == 0
        assert times[-1][1] == presence.horizon
        assert all(before[1] == after[0] for before, after in pairwise(times))
    within = [
        sum(
            each.until - max(each.since, ledger.start)
            for each in stretches
            if each.what != OFF and each.until > ledger.start
        )
        for stretches in presence.stretches
    ]
    assert within == rented_time(ledger).tolist()
    assert sum(each.what == STARTING for each in presence.of(STARTING)) == int(
        (ledger.lease[ledger.rows(Kind.START_WORKER)] > 0).sum()
    )


def test_tables_say_when_each_worker_was_rented(run: Any) -> None:
    _, fleet, _, tape = parts(run)
    presence = Presence(fleet, tape)
    table, rentals = run.table("workers"), run.table("rentals")
    rented = [sum(each.until - each.since for each in own if each.what != OFF) for own in presence.stretches]
    assert table["rented_s"].to_list() == [time / SECOND for time in rented]
    assert table["down_s"].sum() == 0, "a worker that is off is not out of service"
    stopped = rentals.filter(rentals["end_s"].is_not_null())
    assert len(stopped) == int((tape.column("kind") == Kind.STOP_WORKER).sum()) > 0
    assert (stopped["drain_s"] <= stopped["end_s"]).all()


def test_a_trace_has_no_slice_where_a_worker_was_off(run: Any) -> None:
    _, fleet, _, tape = parts(run)
    events = json.loads("".join(trace_events(*parts(run))))["traceEvents"]
    shown: dict[int, list[tuple[str, float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["cat"] == "rented":
            shown[event["pid"] - FIRST_PID].append((event["name"], event["ts"], event["ts"] + event["dur"]))
    presence = Presence(fleet, tape)
    told = {
        worker: [(e.what, e.since / 1e3, e.until / 1e3) for e in own if e.what != OFF]
        for worker, own in enumerate(presence.stretches)
    }
    for worker, stretches in told.items():
        assert [name for name, _, _ in shown[worker]] == [name for name, _, _ in stretches]
        assert [at for _, *times in shown[worker] for at in times] == pytest.approx(
            [at for _, *times in stretches for at in times]
        )
    up = [event["args"]["up"] for event in events if event["ph"] == "C" and event["name"] == "workers"]
    assert up[0] == len(fleet.workers) - len(fleet.off)
    assert max(up) == max(sum(o.since <= each.since < o.until for o in presence.of(ON)) for each in presence.of(ON))


def test_the_picture_of_the_workers_has_off_and_starting_in_their_own_colours(run: Any) -> None:
    drawn = workers(Times(*parts(run)))
    told = [trace["hovertemplate"] for trace in drawn["data"][1:]]
    assert [text.rpartition(": ")[2] for text in told] == ["off<extra></extra>", "starting<extra></extra>"]


def test_the_page_tells_of_the_colours_where_workers_were_off(run: Any, tmp_path: Path) -> None:
    page = run.report(tmp_path / "page.html").read_text()
    assert "Where it was off, and nobody paid for it, its row is grey" in page
