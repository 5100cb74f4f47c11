"""The report of fleets' runs: it says what the runs say, whatever is in them, and asks nothing of a network."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings, strategies as st

from headway.core.tape import Tape
from headway.fleet.metrics.summary import summarise
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.rows import Kind
from headway.fleet.show.page import figures
from headway.fleet.show.page.page import LONGEST, Shown, best_of, build
from headway.runs.measured import numbers
from headway.runs.play import run as play
from headway.runs.settings.files import typed
from tests.fleet.restless import Restless
from tests.fleet.worlds import Run, World, drive, worlds
from tests.jobs.show.page.test_page import EVIL, coloured
from tests.show import test_browser as browsing
from tests.show.pages import Page

browser = browsing.browser
SMALL: dict[str, Any] = {
    "serving": {"scenario": "compass"},
    "workload": {"requests": 80, "rate": 2.0},
    "failures": {"every": "10s", "repair": "3s"},
}


def played(policy: str, document: dict[str, Any] | None = None) -> Shown:
    """A run as the program shows it."""
    whole = {"scale": "fleet", **(SMALL if document is None else document), "policy": {"name": policy}}
    result = play(typed(whole, "test"))
    scene = result.scene
    return Shown(numbers(result).row, scene.built.catalogue, scene.built.fleet, scene.requests, result.tape)


def shown_of(run: Run, until: int | None = None) -> Shown:
    world = run.world
    tape = run.tape if until is None else run.tape.until(until)
    row = summarise(world.catalogue, world.fleet, world.requests, tape, latency=world.latency(), policy="restless")
    return Shown({**row, "scenario": "s", "seed": 0}, world.catalogue, world.fleet, world.requests, tape)


@pytest.fixture(scope="module")
def runs() -> list[Shown]:
    """One workload under three policies, with workers that fail."""
    return [played(policy) for policy in ("hash", "jit", "compass(adjust=off)")]


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Shown]]:
    """Names that are scripts everywhere that a user's file has names, as a page; two workers of the same name."""
    place = tmp_path_factory.mktemp("evil")
    kind = {"gpu": f"<b>{EVIL}", "memory": "14GB", "name": EVIL}
    scenario = {
        "base": "compass",
        "graphs": {EVIL: {"chain": ["vit", "nli-caption"]}, f"{EVIL}2": {"chain": ["opt-answer", "nli-answer"]}},
        "fleet": {"workers": [kind, {**kind, "memory": "15GB"}]},
        "workload": {"slo": "20L"},
    }
    (place / "mine.py").write_text(f"def scenario(experiment):\n    return {scenario!r}\n")
    document = {"serving": {"scenario": str(place / "mine.py")}, "workload": {"requests": 40, "rate": 0.5}}
    found = [played(policy, document) for policy in ("hash", "compass")]
    named = [dataclasses.replace(run, row={**run.row, "variant": f"{EVIL} {i}"}) for i, run in enumerate(found)]
    (place / "page.html").write_text(build(named, 0, EVIL), encoding="utf-8")
    return place / "page.html", named


# --- what it says -------------------------------------------------------------------------------------------------


def test_the_same_runs_give_the_same_bytes_with_the_numbers_of_the_runs(runs: list[Shown]) -> None:
    text = build(runs, 0, "a title")
    assert text == build(runs, 0, "a title")
    page = Page(text)
    best = min(runs, key=lambda run: run.row["slowdown_mean"])
    assert f"{best.row['slowdown_mean']:.2f} times the critical path" in page.text
    for run in runs:
        assert run.label in page.text
        assert f"{run.row['slowdown_mean']:.2f}×" in page.text
        assert f"p95 {run.row['slowdown_p95']:.2f}×" in page.text
    assert "The first 8 requests of each run are the warm-up" in page.text
    assert "lost with workers" in page.text
    assert "out of service" in page.text
    assert "dropped" not in page.text
    assert text.count('class="best"') >= 2
    assert page.facts()["runs"][0]["line"]["dash"] == "dash"


def test_nothing_on_it_is_loaded_from_anywhere(runs: list[Shown]) -> None:
    text = build(runs[:1])
    page = Page(text)
    assert "default-src 'none'" in text
    for tag, given_to in page.elements:
        assert not {"src", "srcset", "action", "data"} & set(given_to), tag
        if address := given_to.get("href"):
            assert address.startswith(("#", "data:")), address


def test_the_figures_are_about_the_requests_that_the_table_is_about(runs: list[Shown]) -> None:
    for run in runs:
        times = figures.Times(run.catalogue, run.fleet, run.requests, run.tape, run.skip)
        assert len(times.measured) == run.row["measured"] == 72
        assert float(times.latency_s.mean()) == pytest.approx(run.row["latency_mean_s"])
        assert float(np.percentile(times.slowdown, 95)) == pytest.approx(run.row["slowdown_p95"])
        assert sum(times.parts.values()) == pytest.approx(run.row["latency_mean_s"])
        width = 10**12
        held = sum(
            batch_run.until(times.history.horizon) - batch_run.begin for batch_run in times.history.batch_runs.values()
        )
        assert figures.held(times, width)[:, 0].sum() * width == pytest.approx(held)


def test_every_figure_is_one_that_plotly_draws(runs: list[Shown]) -> None:
    page = Page(build([*runs, *(dataclasses.replace(runs[0], row={**run.row, "slo_hit_rate": 0.5}) for run in runs)]))
    drawn = page.facts()["figures"]
    assert {"latency", "slowdown", "spent", "over-time", "workers-0", "graphs-slow"} <= set(drawn)
    for figure in drawn.values():
        assert go.Figure(coloured(figure)).data  # it checks every property
    places = {given_to["data-figure"] for _, given_to in page.elements if "data-figure" in given_to}
    assert places == set(drawn)


def test_with_deadlines_the_most_in_time_is_best_and_at_the_same_share_the_cheapest() -> None:
    def run(hits: float | None, cost: float | None, slow: float | None) -> Shown:
        row = {"slo_hit_rate": hits, "cost_per_request_usd": cost, "slowdown_mean": slow}
        return Shown(row, None, None, (), None)  # type: ignore[arg-type]

    assert best_of([run(0.9, 1.0, 1.0), run(0.99, 9.0, 9.0)]) == 1
    assert best_of([run(0.99, 2.0, 1.0), run(0.9901, 1.0, 9.0)]) == 1
    assert best_of([run(0.0, None, None), run(0.0, 1.0, 9.0)]) == 1
    assert best_of([run(None, 1.0, 2.0), run(0.9, 1.0, 1.5)]) == 1
    assert best_of([run(None, None, None), run(None, 1.0, 1.5)]) == 1


def test_pipelines_in_time_and_late_requests_are_shown(evil: tuple[Path, list[Shown]]) -> None:
    page = Page(build(evil[1]))
    drawn = page.facts()["figures"]
    assert {"graphs-late", "graphs-slow"} <= set(drawn)
    assert len(drawn["graphs-late"]["layout"]["yaxis"]["ticktext"]) == 6
    assert "% in time" in page.text


# --- whatever is in them ------------------------------------------------------------------------------------------


def test_names_are_text_and_the_same_name_twice_is_two_rows(evil: tuple[Path, list[Shown]]) -> None:
    text = evil[0].read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.scripts) == 4
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object")]
    assert "window.pwned=1</script>" in page.text
    workers = page.facts()["figures"]["workers-0"]["layout"]["yaxis"]
    assert workers["tickvals"] == [0, 1]
    assert len(set(workers["ticktext"])) == 2
    assert not re.search(r"<(?!/?(b|extra)\b)", json.dumps(page.facts()["figures"]))
    assert "Content-Security-Policy" in text


@settings(max_examples=12)
@given(worlds(), st.integers(0, 3), st.floats(0, 1))
def test_any_run_cut_anywhere_makes_a_page(world: World, seed: int, share: float) -> None:
    run = drive(Restless(seed), world)
    until = round(share * int(run.tape.column("time")[-1]))
    both = [shown_of(run), shown_of(run, until)]
    page = Page(build(both, 1))
    assert "Infinity" not in page.scripts[0]
    assert "NaN" not in page.scripts[0]
    ids = [given_to["id"] for _, given_to in page.elements if given_to.get("id")]
    assert len(ids) == len(set(ids))
    for _, given_to in page.elements:
        if (address := given_to.get("href") or "").startswith("#"):
            assert address[1:] in ids


def test_a_run_without_an_answer_says_so(runs: list[Shown]) -> None:
    run = runs[0]
    cut = run.tape.until(int(run.tape.of(Kind.ARRIVED)[0, 0]))
    row = summarise(
        run.catalogue,
        run.fleet,
        run.requests,
        cut,
        latency=LatencyModel(run.catalogue, run.fleet),
        warmup=0.1,
        policy="hash",
    )
    row = {**run.row, **row, "stopped": True}
    for shown in ([_with(run, row, cut)], [_with(run, row, cut), run]):
        page = Page(build(shown))
        drawn = page.facts()["figures"]
        assert ("latency" in drawn) == (len(shown) > 1)
        assert "hash was stopped before its end." in page.text
        assert "1 request (100.0 %) had no answer when the run ended." in page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "No request was answered" in Page(build([_with(run, row, cut)])).text
    assert "no request was answered" in page.text  # its bar


def _with(run: Shown, row: dict[str, Any], tape: Tape) -> Shown:
    return dataclasses.replace(run, row=row, tape=tape)


def test_what_was_given_up_and_runs_of_other_requests_are_said(runs: list[Shown]) -> None:
    dropped = dataclasses.replace(runs[1], row={**runs[1].row, "dropped": 5})
    other = dataclasses.replace(runs[2], requests=tuple(each._replace(tenant=1) for each in runs[2].requests))
    text = Page(build([runs[0], dropped, other])).text.replace("\N{NO-BREAK SPACE}", " ")
    assert "jit dropped 5 requests of 80 (6.2 %): these are in no latency" in text
    assert "The runs did not serve the same requests" in text


def test_drops_in_the_warm_up_are_told_beside_what_is_in_time(runs: list[Shown]) -> None:
    graphs = [{**each, "slo_hit_rate": 1.0, "dropped": 3} for each in runs[0].row["graphs"]]
    late = {**runs[0].row, "slo_hit_rate": 1.0, "dropped": 5, "dropped_warmup": 4, "graphs": graphs}
    text = build([dataclasses.replace(runs[0], row=late)])
    page = Page(text)
    words = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "in time, 5 of 80 dropped" in words, "the answer"
    assert "dropped, of all" in words, "the table"
    assert "4 requests of them in the warm-up, which is not measured" in words
    assert "Dropped requests are counted in it too." in words
    hovered = page.facts()["figures"]["graphs-late"]["data"][0]["text"]
    assert hovered[0].startswith(", 3 of ")


def test_one_worker_and_250_have_rows_and_not_too_many_labels(runs: list[Shown]) -> None:
    for count in (1, 250):
        document = {"serving": {"scenario": "compass", "workers": count}, "workload": {"requests": 30, "rate": 0.2}}
        run = played("hash", document)
        drawn = figures.workers(figures.Times(run.catalogue, run.fleet, run.requests, run.tape))
        assert len(drawn["data"][0]["z"]) == count
        assert len(drawn["layout"]["yaxis"]["ticktext"]) <= figures.MOST_LABELS
        assert drawn["layout"]["height"] <= 900
        assert "× T4" in Page(build([run])).text
    assert len(re.findall(r"<tr><td>\d+</td>", build([run]))) <= LONGEST


def test_long_names_of_runs_are_cut_apart(runs: list[Shown]) -> None:
    named = [dataclasses.replace(run, row={**run.row, "variant": "x" * 200 + str(i)}) for i, run in enumerate(runs)]
    page = Page(build(named))
    labels = [run["label"] for run in page.facts()["runs"]]
    assert len(set(labels)) == 3
    assert max(map(len, labels)) <= 40


# --- in a browser -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(browsing.CHROMIUM is None, reason="there is no chromium: scripts/system installs it")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_renders_in_the_colours_of_the_page(browser: Any, evil: tuple[Path, list[Shown]], scheme: str) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 800}, color_scheme=scheme)
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda problem: complaints.append(str(problem)))
    page.goto(evil[0].as_uri())
    page.evaluate("() => headway.ready")
    drawn = page.evaluate(
        """() => [...document.querySelectorAll('.plot')].filter(each => each.offsetParent)
            .map(each => each.querySelectorAll('svg .trace, svg .bars path, svg .hm image').length)"""
    )
    assert len(drawn) == 7
    assert min(drawn) > 0
    shown = "[...document.querySelectorAll('[data-figure^=workers]')].find(each => each.offsetParent)"
    scale = page.evaluate(f"() => {shown}.data[0].colorscale.map(stop => stop[1])")
    style = "() => ['free', 'accent'].map(n => getComputedStyle(document.documentElement).getPropertyValue('--' + n))"
    assert scale == [colour.strip() for colour in page.evaluate(style)]
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 1200
    assert page.evaluate("() => window.pwned") is None
    assert [url.partition(":")[0] for url in asked if not url.startswith("blob:")] == ["file"]
    assert complaints == []
    page.close()


def test_the_page_of_a_live_run_does_not_say_that_it_is_simulated(runs: list[Shown]) -> None:
    assert "Everything here is simulated" in build(runs)
    live = build([dataclasses.replace(runs[0], live=True)])
    assert "Everything here is simulated" not in live
    assert "This was served for real" in live
