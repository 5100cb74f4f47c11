"""The page of a broker's tape: it says what the tape says, names are text, and a browser draws all of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from headway.core.tape import Tape, write
from headway.gpu.share.recorded.metrics import shared_run, summarise
from headway.gpu.share.recorded.page import FIGURES, QUESTIONS, Shown, build
from headway.gpu.share.tape import folders as tape_folders
from headway.gpu.share.tape.rows import ShareKind as K
from headway.runs.folder.folder import open_run
from headway.runs.folder.pages import Place, page_of
from headway.units import SECOND
from tests.gpu.share.recorded.test_metrics import hand_made, made, with_limits
from tests.jobs.show.page.test_page import coloured
from tests.show.pages import Page
from tests.show.test_browser import CHROMIUM, EVIL, FLAGS

ABOUT = {"gpu": 0, "gpu_name": EVIL, "driver": "1", "mode": "mps", "version": "0", "began": "2026-01-01T00:00:00Z"}


def shown(tape: Tape, label: str = "headway", complete: bool = True) -> Shown:
    """A tape as the page shows it."""
    run = shared_run(tape)
    return Shown(label, summarise(run), run, ABOUT, complete)


def evil() -> Tape:
    """A tape whose names are scripts, with rules of the dial."""
    tape = hand_made()
    notes = {row: json.dumps([EVIL, EVIL]) if text.startswith("[") else EVIL for row, text in tape.notes.items()}
    rows = [*tape.rows.tolist(), [10 * SECOND, int(K.RULED), 0, 0, 0, 0, 20_000]]
    notes[len(rows) - 1] = "boldness_ppm"
    return Tape(np.array(rows, dtype=np.int64), notes)


def test_it_answers_and_shows_value_interval_harvest_and_who_delayed_whom() -> None:
    text = build([shown(hand_made())], 0, "a title")
    assert text == build([shown(hand_made())], 0, "a title")
    page = Page(text)
    assert "api took 1.13 times as long as alone, aim 1.1; 1,000\N{NO-BREAK SPACE}ms of GPU time harvested" in page.text
    assert "0.950× to 1.050×" in page.text
    assert "gemm" in page.text
    assert "2.50 ms" in page.text
    assert "died" in page.text
    assert "its broker still runs, or was killed" not in page.text
    ids = {given["id"] for _, given in page.elements if given.get("id")}
    assert {anchor for anchor, _, _ in QUESTIONS} <= ids


def test_limits_charges_and_the_aim_for_p99_are_shown_where_there_are_any() -> None:
    before, text = (Page(build([shown(tape)])).text for tape in (hand_made(), with_limits()))
    for line in (
        "1.1×, p99 1.15×",
        "1.200× (1.080× to 1.300×)",
        "limited to 30 % of the SMs",
        "copy_kernel",
        "24.3\N{NO-BREAK SPACE}%",
    ):
        assert line in text
        assert line not in before
    assert "kernels charged for contention" not in before
    assert "gone_kernel" not in text


def test_an_open_end_and_what_is_not_there_are_said() -> None:
    lonely = made((1, K.JOINED, 0, 0, 0, 5, 7, json.dumps(["one", ""])), (2, K.COUNTED, 0, 5, 0, 0, 7, ""))
    text = Page(build([shown(lonely, complete=False)])).text
    for line in (
        "No slow-down was measured",
        "Nothing was harvested",
        "No kernel delayed a program above",
        "All pairs stayed at the floor",
        "its broker still runs, or was killed",
    ):
        assert line in text


def test_figures_are_what_plotly_draws() -> None:
    for name, make in FIGURES.items():
        drawn = coloured(make(shared_run(evil())))
        assert drawn["data"], name
        go.Figure(drawn)


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two run folders, one whole and one of a broker that was killed."""
    made_ = []
    for name in ("whole", "open"):
        folder = tmp_path / name
        tape_folders.begin(folder, ABOUT)
        write(evil(), folder)
        made_.append(folder)
    tape_folders.finish(made_[0], evil())
    return made_


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: scripts/system installs it")
def test_a_browser_draws_each_run_and_asks_for_nothing(folders: list[Path], tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    assert [open_run(folder).complete for folder in folders] == [True, False]
    said: list[str] = []
    text = page_of([Place(folder, folder.name) for folder in folders], lambda what, share: None, said.append)
    assert any("the tape has no end, for the broker still runs or was killed" in line for line in said)
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    asked: list[str] = []
    complaints: list[str] = []
    with sync_playwright() as driver:
        browser: Any = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1000, "height": 800})
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.goto(path.as_uri())
        page.evaluate("() => headway.ready")
        for run in (0, 1):
            page.evaluate(f"() => headway.look({run})")
            drawn = page.evaluate(
                """() => [...document.querySelectorAll('.plot')].filter(each => each.offsetParent)
                    .map(each => [each.dataset.figure, each.querySelectorAll('svg .trace').length])"""
            )
            assert {name for name, _ in drawn} == {f"{name}-{run}" for name in FIGURES}
            assert min(count for _, count in drawn) > 0
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 1000
        assert page.evaluate("() => window.pwned") is None
        browser.close()
    assert [url.partition(":")[0] for url in asked if not url.startswith("blob:")] == ["file"]
    assert complaints == []
