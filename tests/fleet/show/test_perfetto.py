"""Traces of fleets: valid, properly nested, what the ledger says, and read by the viewers without a complaint."""

import dataclasses
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.show.perfetto import FIRST_PID, FLEET_PID, trace_events
from headway.show.export import write_pieces
from headway.units import MILLISECOND, SECOND
from tests.fleet.restless import Restless
from tests.fleet.worlds import Run, World, chain, drive, workers, worlds
from tests.show import test_perfetto_browser as viewing

viewers, page = viewing.viewers, viewing.page
EVIL = '</script> "w" \\ \u2028'


def document_of(run: Run, until: int | None = None) -> str:
    tape = run.tape if until is None else run.tape.until(until)
    return "".join(trace_events(run.world.catalogue, run.world.fleet, run.world.requests, tape, 'a "run"'))


def events_of(run: Run, until: int | None = None) -> list[dict[str, Any]]:
    document = json.loads(document_of(run, until))
    assert document["otherData"]["run"] == 'a "run"'
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def in_ns(time_us: float) -> int:
    return round(time_us * 1000)


def spans_of(events: list[dict[str, Any]], category: str) -> list[tuple[int, int]]:
    found = [event for event in events if event["ph"] == "X" and event["cat"] == category]
    return [(in_ns(event["ts"]), in_ns(event["ts"]) + in_ns(event["dur"])) for event in found]


@settings(max_examples=15)
@given(worlds(), st.integers(0, 3), st.booleans())
def test_a_trace_is_valid_and_its_batches_are_those_of_the_ledger(world: World, seed: int, cut: bool) -> None:
    run = drive(Restless(seed), world)
    until = int(run.tape.column("time")[-1]) // 2 if cut else None
    events = events_of(run, until)
    tape = run.tape if until is None else run.tape.until(until)
    ledger = Ledger(world.catalogue, world.fleet, world.requests, tape)
    held = sorted(zip(ledger.began.tolist(), ledger.batch_end.tolist(), strict=True))
    assert sorted(spans_of(events, "batch")) == [span for span in held if span[1] > span[0]]
    computed = zip(ledger.computed_from[ledger.finished], ledger.batch_end[ledger.finished], strict=True)
    assert set(computed) <= set(spans_of(events, "run"))
    assert {event["ph"] for event in events} <= set("MXibeC")
    assert all({"ph", "name", "ts", "pid", "tid"} <= set(event) for event in events)
    _nested(events)
    failed = Counter(
        (row.place, row.time) for row in run.rows(Kind.WORKER_FAILED) if until is None or row.time <= until
    )
    told = [event for event in events if event["ph"] == "i" and event["name"] == "worker failed"]
    assert Counter((event["pid"] - FIRST_PID, in_ns(event["ts"])) for event in told) == failed


def _nested(events: list[dict[str, Any]]) -> None:
    """Slices of a thread lie within one another or apart, batches apart; every thread has a name and its own number."""
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert len({tid for _, tid in named}) == len(named)
    assert not {tid for _, tid in named} & {event["pid"] for event in events}
    lines: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = in_ns(event["ts"])
            assert event["dur"] > 0
            lines[event["pid"], event["tid"]].append((start, -start - in_ns(event["dur"]), event["cat"]))
    assert set(lines) <= named
    for spans in lines.values():
        open_ends: list[int] = []
        for start, negative, category in sorted(spans):
            end = -negative
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or (end <= open_ends[-1] and category in ("load", "run"))
            open_ends.append(end)


@settings(max_examples=15)
@given(worlds(), st.integers(0, 3))
def test_counters_never_fall_below_nothing_and_waits_are_pairs(world: World, seed: int) -> None:
    events = events_of(drive(Restless(seed), world))
    last: dict[tuple[int, str], tuple[float, int]] = {}
    for event in events:
        if event["ph"] == "C":
            (value,) = event["args"].values()
            before = last.get((event["pid"], event["name"]))
            assert value >= 0
            assert before is None or before[0] < event["ts"]
            last[event["pid"], event["name"]] = (event["ts"], value)
    assert last[FLEET_PID, "requests"][1] == 0
    assert all(value == 0 for (_, name), (_, value) in last.items() if name == "queue")
    begun = {event["id"]: event for event in events if event["ph"] == "b"}
    ended = {event["id"]: event for event in events if event["ph"] == "e"}
    assert set(begun) == set(ended)
    for number, event in begun.items():
        other = ended[number]
        same = ("cat", "name", "pid", "tid")
        assert [event[key] for key in same] == [other[key] for key in same]
        assert event["ts"] < other["ts"]
        assert event["cat"] in ("wait", "transfer")


def test_the_same_run_gives_the_same_bytes_and_an_empty_one_a_file(tmp_path: Path) -> None:
    run = made()
    assert document_of(run) == document_of(run)
    packed = [write_pieces(tmp_path / name, iter([document_of(run)])).path.read_bytes() for name in ("a.gz", "b.gz")]
    assert packed[0] == packed[1]
    assert not [event for event in events_of(run, -1) if event["ph"] not in "M"]


# --- in the viewers -----------------------------------------------------------------------------------------------


def made() -> Run:
    """A run with failures, moves, drops, fetches ahead, batches side by side, and a worker with a strange name."""
    cells = {Configuration(b, 1, s): b * 7 * MILLISECOND // s + 13 for b in (1, 2) for s in (1, 2, 4)}
    models = (Model("m0", 30_000_000), Model("m1", 50_000_000), Model("m2", 40_000_000))
    functions = tuple(Function(f"f{i}", (i,), Profile({"": cells}), cold_start=i * MILLISECOND) for i in range(3))
    catalogue = Catalogue(models, functions, (chain("line", 0, 1, 2, bytes_between=3_000_000), chain("one", 1)))
    fleet = workers(3, slices=7)
    odd = dataclasses.replace(fleet.workers[0], name=EVIL)
    fleet = dataclasses.replace(fleet, workers=(odd, *fleet.workers[1:]))
    asked = tuple(
        Request(i, i % 2, i * 3 * MILLISECOND, i % 3, (i % 5 == 4) * (i * 3 * MILLISECOND + SECOND), 0)
        for i in range(60)
    )
    outages = ((0, 50 * MILLISECOND + 1, 20 * MILLISECOND), (1, 90 * MILLISECOND, 30 * MILLISECOND))
    return drive(Restless(5), World(catalogue, fleet, asked, outages))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That run as a trace."""
    run = made()
    place = tmp_path_factory.mktemp("fleet")
    what = (run.world.catalogue, run.world.fleet, run.world.requests, run.tape)
    write_pieces(place / "run.json.gz", trace_events(*what, title="run"))
    return write_pieces(place / "run.json", trace_events(*what, title="run")).path


def kinds_of(trace: Path) -> Counter[str]:
    found = Counter(event["ph"] for event in viewing.events(trace))
    assert min(found[kind] for kind in "XibeC") > 0
    return found


@pytest.mark.skipif(viewing.CHROMIUM is None, reason="there is no chromium: scripts/system installs it")
def test_perfetto_shows_all_of_a_fleet(page: Any, exported: Path) -> None:
    kinds = kinds_of(exported)
    ask = _opened(page, exported.with_name("run.json.gz"))
    assert ask("select name, value from stats where severity in ('error', 'data_loss') and value > 0") == []
    assert page.evaluate("() => app.trace.loadingErrors") == []
    assert ask("select count(*) from slice where dur > 0") == [[kinds["X"] + kinds["b"]]]
    assert ask("select count(*) from slice where dur = 0") == [[kinds["i"]]]
    batches = ask("select count(*) from slice where category = 'batch' and depth = 0")
    assert batches == [[sum(event.get("cat") == "batch" for event in viewing.events(exported))]]
    assert ask("select count(*) from slice where category in ('load', 'run') and depth != 1") == [[0]]
    assert [row[0] for row in ask("select name from process where pid > 0 order by 1")] == viewing.named(
        exported, "process_name"
    )
    counters = ask("select distinct name from counter join track on track.id = track_id order by 1")
    assert [row[0] for row in counters] == ["queue tasks", "requests alive", "workers up"]


def _opened(page: Any, trace: Path) -> Any:
    def answer(route: Any) -> None:
        headers = {"access-control-allow-origin": "*"}
        if route.request.url.endswith("localtrace"):
            route.fulfill(path=trace, headers=headers, content_type="application/octet-stream")
        elif route.request.url.endswith("file_info"):
            route.fulfill(json={}, headers=headers)
        else:
            route.abort()

    page.route(f"{viewing.TRACE}**", answer)
    page.goto(viewing.HERE)
    page.get_by_text("fleet 1").first.wait_for(timeout=30_000)
    return lambda sql: [list(row) for row in page.evaluate(viewing.ROWS, sql)]


@pytest.mark.skipif(viewing.CHROMIUM is None, reason="there is no chromium: scripts/system installs it")
def test_what_chrome_tracing_reads_is_all_of_a_fleet(page: Any, viewers: Path, exported: Path) -> None:
    (viewer,) = viewers.glob("v*/assets/catapult_trace_viewer.html")
    page.goto(viewing.HERE + viewer.relative_to(viewers).as_posix())
    page.wait_for_function("() => typeof tr === 'object' && tr.Model && tr.importer")
    found = page.evaluate(viewing.IMPORTED, exported.read_text(encoding="utf-8"))
    kinds = kinds_of(exported)
    assert found["warnings"] == []
    assert sorted(found["processes"]) == viewing.named(exported, "process_name")
    assert set(viewing.named(exported, "thread_name")) <= set(found["threads"])
    assert (found["slices"], found["instants"]) == (kinds["X"], kinds["i"])
    assert sorted(set(found["counters"])) == ["queue", "requests", "workers"]
