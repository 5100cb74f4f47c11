"""Runs of several seeds on a page: means and intervals over seeds, as the terminal tells them; and the best of many."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.cli import console
from headway.jobs import view
from headway.jobs.metrics.summary import from_json
from headway.jobs.show.page import headline, page
from headway.jobs.show.page.measured import Comparison, Measured
from headway.jobs.show.page.page import silent
from headway.runs.folder.pages import folders, opened
from headway.show.formatting import change
from headway.statistics.replications import Row
from tests.cli.test_jobs import call
from tests.show.made import leave, opened as measured
from tests.show.pages import Page

DRAWN = (
    *("--set", "trace.synthetic.jobs=60", "--set", "trace.synthetic.load=2.5"),
    *("--nodes", "2", "--gpus-per-node", "8", "--policies", "fifo,srtf", "--seeds", "3", "--seed", "5"),
)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Two policies with three seeds each, kept in a folder; what the terminal is told of them."""
    monkeypatch.chdir(tmp_path)
    ended = call(capsys, "jobs", "compare", *DRAWN, "--out", "runs", "--report", "page.html", "--json")
    assert ended.status == 0, ended.err
    assert "means over seeds; its map and figures show seed 5\n" in ended.err
    rows: list[dict[str, Any]] = json.loads(ended.out)
    return rows


def compared() -> Comparison:
    return view.compared(opened(folders(["runs"], console.note), silent, console.note), 0)


def test_the_page_tells_what_the_terminal_tells(runs: list[dict[str, Any]]) -> None:
    both = compared()
    for run, row in zip(both.runs, runs, strict=True):
        assert run.numbers.jct_s.mean == row["jct_mean_s"]
        assert run.numbers.preemptions == row["preemptions"]
        assert run.jct_interval == (row["jct_mean_low_s"], row["jct_mean_high_s"])
        assert run.wait_interval == (row["wait_mean_low_s"], row["wait_mean_high_s"])
        assert run.numbers.jct_s.mean != run.summary.jct_s.mean
    moved = both.changes[1]
    assert moved.value == runs[1]["jct_change"]
    assert moved.interval == (runs[1]["jct_change_low"], runs[1]["jct_change_high"])


def test_the_page_says_which_numbers_are_over_seeds_and_which_seed_it_shows(runs: list[dict[str, Any]]) -> None:
    text = Path("page.html").read_text(encoding="utf-8")
    read = Page(text)
    assert "Numbers are means over the runs of 3 seeds." in read.text
    assert "Student’s t over these runs" in read.text
    assert "show the runs of seed 5" in read.text
    assert "5 to 7" in read.text
    assert "Mean time to completion, over 3 seeds" in read.text
    assert "headway story runs/fifo/seed-5 " in text
    assert change(runs[1]["jct_change"]) in read.text


def test_report_of_the_folder_makes_the_same_page(
    runs: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert runs
    assert call(capsys, "report", "runs", "-o", "again.html").status == 0
    assert Path("again.html").read_bytes() == Path("page.html").read_bytes()
    assert call(capsys, "report", "runs/srtf", "-o", "one.html").status == 0
    assert "means over the runs of 3 seeds" in Page(Path("one.html").read_text()).text
    assert call(capsys, "report", "runs/srtf/seed-6", "-o", "one.html").status == 0
    assert "means over the runs" not in Page(Path("one.html").read_text()).text


def test_a_seed_without_results_is_left_out_and_another_is_shown(
    runs: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert runs
    Path("runs/fifo/seed-5/result.json").unlink()
    both = compared()
    told = capsys.readouterr().err
    assert "note: runs/fifo: no results of seed-5: left out of means over seeds\n" in told
    assert [row["seed"] for row in both.runs[0].seeds] == [6, 7]
    assert both.runs[0].shown_folder == "runs/fifo/seed-6"
    assert both.runs[1].shown_folder == "runs/srtf/seed-5"
    shutil.rmtree("runs/fifo/seed-6")
    alone = compared().runs[0]
    assert (alone.seeds, alone.shown_folder) == ((), "runs/fifo/seed-5")


@pytest.mark.parametrize("cut", [{}, {"stopped": False}, {"stopped": False, "seed": 6}])
def test_seeds_whose_results_are_no_results_are_left_out(
    runs: list[dict[str, Any]], cut: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert runs
    for seed in (6, 7):
        path = Path(f"runs/srtf/seed-{seed}/result.json")
        path.write_text(json.dumps({"digest": json.loads(path.read_text())["digest"], **cut}))
    ended = call(capsys, "report", "runs/srtf", "-o", "again.html")
    assert ended.status == 0
    assert "no results of seed-6, seed-7: left out of means over seeds\n" in ended.err


@pytest.mark.parametrize("work", [("fleet", "compass", "--requests", "20"), ("gpu", "vgg16", "--seconds", "0.01")])
def test_a_page_of_one_seed_does_not_speak_of_means(
    work: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scale, *flags = work
    seeds = ("--seeds", "2", "--seed", "5", "--out", "run", "--report", "page.html", "--json")
    ended = call(capsys, scale, "simulate", *flags, *seeds)
    assert ended.status == 0, ended.err
    assert "note: the report shows seed 5 alone, no means over seeds\n" in ended.err
    first = json.loads(Path("run/seed-5/result.json").read_text())
    key, form = ("slowdown_mean", "{:.2f}×") if scale == "fleet" else ("slowdown_p50", "{:.3f}×")
    assert form.format(first[key]) in Page(Path("page.html").read_text(encoding="utf-8")).text


def test_results_are_read_back_as_they_were(runs: list[dict[str, Any]]) -> None:
    assert runs
    run = compared().runs[1]
    assert from_json(run.seeds[0]) == run.summary


# --- the best of many -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A run to make others of."""
    folder = tmp_path_factory.mktemp("one") / "run"
    leave(folder, {"trace": {"synthetic": {"jobs": 30}}, "cluster": {"nodes": 2, "gpus_per_node": 8}})
    return measured(folder).runs[0]


def made(one: Measured, label: str, means: Sequence[float]) -> Measured:
    """A run of several seeds with these means."""
    row: Row = json.loads((one.stored.folder / "result.json").read_text())
    seeds = tuple({**row, "seed": seed, "jct_mean_s": mean} for seed, mean in enumerate(means))
    return replace(one, label=label, seeds=seeds, drawn=True)


def test_the_more_runs_there_are_the_surer_the_best_of_them_has_to_be(one: Measured) -> None:
    base = made(one, "base", [100.0, 100.0, 100.0, 100.0])
    good = made(one, "good", [91.0, 98.0, 90.0, 94.0])  # less by 6.75 %, and at 95 % by 1 % at least
    others = [made(one, f"other {i}", [120.0 + i, 121.0, 119.0, 122.0]) for i in range(8)]
    few, many = Comparison((base, good)), Comparison((base, good, *others))
    assert few.claim_level == 0.95
    assert many.claim_level == pytest.approx(1 - 0.05 / 9)
    assert few.claim == few.changes[1] == many.changes[1]
    assert few.claim.interval is not None
    assert many.claim.interval is not None
    assert many.claim.interval[0] < few.claim.interval[0] < few.claim.interval[1] < 0 < many.claim.interval[1]
    assert "sooner than" in headline.answer(few)
    assert "about equally soon" in headline.answer(many)
    assert "best of 10 by this mean" in " ".join(headline.details(many))
    assert "best of" not in " ".join(headline.details(few))


def test_runs_that_cannot_be_told_apart_from_the_best_are_named(one: Measured) -> None:
    base = made(one, "base", [100.0, 101.0, 99.0, 100.0])
    good, close = made(one, "good", [50.0, 51.0, 49.0, 50.0]), made(one, "close", [50.5, 50.6, 49.9, 50.1])
    far = made(one, "far", [80.0, 81.0, 79.0, 80.0])
    both = Comparison((base, good, close, far))
    assert [run.label for run in both.rivals] == ["close"]
    text = Page(" ".join(headline.details(both))).text
    assert "Too close to it to call: close." in text
    assert "98.3\N{NO-BREAK SPACE}% interval" in text


def test_a_baseline_that_is_hardly_better_is_not_said_to_be(one: Measured) -> None:
    base = made(one, "base", [100.0, 101.0, 99.0, 100.0])
    close = made(one, "close", [100.5, 100.9, 100.0, 99.9])
    assert "within its uncertainty" in headline.answer(Comparison((base, close)))


def test_too_few_runs_to_tell_is_said(one: Measured) -> None:
    both = Comparison((made(one, "base", [100.0]), made(one, "good", [50.0])))
    assert both.claim.interval is None
    assert "too few jobs or runs" in " ".join(headline.details(both))
    assert Page(page.build(both)).facts()["figures"]
