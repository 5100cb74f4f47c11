"""A report is one file that says what the runs say, whatever is in them, and asks nothing of a network."""

import json
import re
import shutil
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, strategies as st

from headway.cli import main
from headway.jobs.show.page import figures, headline, page, sections
from headway.jobs.show.page.measured import Comparison, Measured
from headway.show.downsample import MOST_CDF_POINTS, bucketed, cdf
from headway.show.formatting import duration, percent
from headway.show.page import MARK, get_plotlyjs
from headway.statistics.series import Series
from headway.units import SECOND, format_duration, seconds
from tests.show.made import BUSY, leave, opened
from tests.show.pages import Page

EVIL = "\"</script><script>window.pwned=1</script>\" & <img src=x onerror=window.pwned=2> {{facts}} %{x} 'q'"
PALETTE = re.compile(r"@([a-z]\w*)(?:/([\d.]+))?")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One workload under three policies."""
    place = tmp_path_factory.mktemp("runs")
    return {name: leave(place / name, BUSY, name) for name in ("fifo", "las", "srtf")}


@pytest.fixture(scope="module")
def compared(folders: dict[str, Path]) -> Comparison:
    """Those side by side."""
    return opened(*folders.values())


@pytest.fixture(scope="module")
def built(compared: Comparison) -> str:
    """Their page."""
    return page.build(compared)


def coloured(value: Any) -> Any:
    """A figure with colours in the place of their names."""
    if isinstance(value, str) and PALETTE.fullmatch(value):
        return "rgba(1,2,3,0.5)"
    if isinstance(value, dict):
        return {key: coloured(each) for key, each in value.items()}
    return [coloured(each) for each in value] if isinstance(value, list) else value


# --- the page -------------------------------------------------------------------------------------------------


def test_a_page_answers_every_question(built: str) -> None:
    read = Page(built)
    ids = {attributes["id"] for _, attributes in read.elements if "id" in attributes}
    assert {"answer", *(anchor for anchor, _, _ in page.QUESTIONS)} <= ids
    for _, question, _ in page.QUESTIONS:
        assert question in read.text


def test_a_page_refers_to_nothing_outside_of_itself(built: str) -> None:
    for tag, attributes in Page(built).elements:
        for name in ("src", "href", "data", "poster", "action", "srcset"):
            address = attributes.get(name) or ""
            assert not address or address.startswith(("#", "data:")), (tag, name, address)
    own = built.replace(get_plotlyjs(), "")
    assert not re.search(r"https?://|@import|url\(", own)


def test_a_browser_is_told_to_ask_nothing_of_a_network_and_to_run_no_script_but_the_pages_own(built: str) -> None:
    read = Page(built)
    (policy,) = [a["content"] for _, a in read.elements if a.get("http-equiv") == "Content-Security-Policy"]
    kinds = [attributes.get("type") for tag, attributes in read.elements if tag == "script"]
    run = [text for text, kind in zip(read.scripts, kinds, strict=True) if kind is None]
    hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in run]
    assert len(hashes) == 3
    assert policy is not None
    assert policy.split("; ")[:2] == ["default-src 'none'", f"script-src {' '.join(hashes)}"]
    assert built.index("Content-Security-Policy") < built.index("<title")


def test_every_figure_is_one_that_plotly_knows_and_has_a_place(built: str) -> None:
    read = Page(built)
    drawn = read.facts()["figures"]
    for figure in drawn.values():
        go.Figure(coloured(figure))
    places = [attributes for _, attributes in read.elements if "data-figure" in attributes]
    assert {place["data-figure"] for place in places} == set(drawn)
    assert all(place["role"] == "img" and place["aria-label"] for place in places)


def test_every_colour_that_a_figure_names_is_in_the_palette(built: str) -> None:
    named = set(PALETTE.findall(json.dumps(Page(built).facts())))
    style = built[: built.index("</style>")]
    assert named
    for name, _ in named:
        assert style.count(f"--{name}:") == 3, name  # light, dark by setting, dark by choice


def test_the_same_runs_give_the_same_bytes(folders: dict[str, Path], built: str) -> None:
    assert page.build(opened(*folders.values())) == built


def test_where_the_runs_lie_is_not_in_the_page(folders: dict[str, Path], built: str) -> None:
    assert str(folders["fifo"].parent) not in built


def test_plotly_is_there_once(built: str) -> None:
    assert built.count(get_plotlyjs()) == 1


def test_names_from_a_trace_stay_text(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    quoted = EVIL.replace('"', '""')
    rows = [f'"{quoted} {i}",{i},{600 + i},{1 + i % 4},"{quoted} {i % 3}"' for i in range(30)]
    trace.write_text("\n".join(["name,submit_s,work_s,gpus,tenant", *rows, ""]))
    document = {
        "trace": {"path": str(trace), "format": "headway"},
        "cluster": {"nodes": 2, "gpus_per_node": 4, "partitions": [{"name": EVIL, "nodes": [0]}]},
    }
    text = page.build(opened(leave(tmp_path / "run", document)), EVIL)
    read = Page(text)
    assert len(read.scripts) == 6  # the facts, two payloads, plotly, the map, the page
    assert not [tag for tag, _ in read.elements if tag == "img"]
    assert "<script>window" not in text
    assert read.facts()["figures"]
    assert EVIL[:20] in read.text
    names = json.dumps(read.facts()["figures"])
    assert "<img" not in names  # plotly reads a little HTML in texts


# --- the numbers ----------------------------------------------------------------------------------------------


def test_the_headline_is_computed_from_the_runs(compared: Comparison) -> None:
    best, base = compared.runs[compared.best], compared.baseline
    means = [run.summary.jct_s.mean for run in compared.runs]
    assert best.summary.jct_s.mean == min(mean for mean in means if mean is not None)
    said = headline.answer(compared)
    moved, interval = compared.claim.value, compared.claim.interval
    assert moved is not None
    assert interval is not None
    assert interval[0] <= moved <= interval[1]
    assert best.label in said
    assert base.label in said
    if interval[1] < 0:
        assert f"{-100 * moved:.0f}" in said
        assert "sooner" in said


def test_a_baseline_that_is_best_is_said_to_be_unbeaten(compared: Comparison) -> None:
    turned = Comparison(compared.runs, compared.best)
    assert turned.best == compared.best
    assert headline.answer(turned).startswith("No other policy finishes jobs sooner")


def test_use_is_told_of_the_time_in_which_jobs_arrive_and_the_tail_apart(compared: Comparison, built: str) -> None:
    best, base = compared.runs[compared.best].summary, compared.baseline.summary
    assert best.gpu_utilisation_while_arriving is not None
    used = percent(best.gpu_utilisation_while_arriving, 0)
    assert used != percent(best.gpu_utilisation, 0), "else this test could not tell the two apart"
    text = Page(built).text
    assert f"GPUs are {used} in use while jobs arrive" in text
    assert f"The last job ends {duration(best.tail_s)} after the last arrival" in text
    assert f"{used}GPUs in use while jobs arrive" in text.replace("\n", "")
    assert "Use is counted while jobs arrive" in text
    assert f"tail {format_duration(seconds(base.tail_s or 0))}" in text
    assert percent(base.gpu_utilisation_while_arriving) in text
    alone = Page(page.build(Comparison(compared.runs[:1]))).text
    assert "While jobs arrive, for " in alone
    assert f"the GPUs are {percent(base.gpu_utilisation_while_arriving, 0)} in use" in alone


def test_jobs_that_arrive_all_at_once_have_their_use_told_over_the_makespan(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus\n0,100,2\n0,300,1\n0,50,2\n")
    batch = {"trace": {"path": str(tmp_path / "jobs.csv")}, "cluster": {"nodes": 1, "gpus_per_node": 2}}
    text = Page(page.build(opened(leave(tmp_path / "run", batch)))).text
    assert "All jobs arrive at once, so use is counted over the makespan." in text
    assert "while jobs arrive" not in text.lower()


def test_the_table_has_the_intervals_and_marks_the_best(compared: Comparison, built: str) -> None:
    table = built[built.index('<section id="table"') : built.index('<section id="map"')]
    assert table.count('class="best"') >= 2
    assert "95\N{NO-BREAK SPACE}%" in table
    for run in compared.runs:
        assert f"{run.summary.preemptions:,}</td>" in table


def test_the_longest_times_of_the_first_screen_are_in_the_unit_of_the_table(compared: Comparison, built: str) -> None:
    assert {(run.numbers.jct_s.p99 or 0.0) > 48 * 3600 for run in compared.runs} == {True}, (
        "days, if shown by themselves"
    )
    shown = re.search(r"<dd>([\d.,]+)\s(\w+)</dd><dt>99th percentile of completion</dt>", built)
    assert shown is not None
    assert shown[2] == "h"
    assert f"<td>{shown[1]}&nbsp;h</td>" in built


def test_the_parts_of_what_was_lost_add_up(compared: Comparison) -> None:
    for run in compared.runs:
        lost = sum(run.lost.values()) - run.lost[figures.FAILED]
        assert lost == pytest.approx(run.summary.lost_gpu_hours)
        assert run.lost[figures.FAILED] == pytest.approx(run.summary.failed_gpu_hours)


def test_waiting_time_by_cause_adds_up_to_all_waiting(compared: Comparison, built: str) -> None:
    drawn = Page(built).facts()["figures"]["causes-runs"]["data"]
    for index, run in enumerate(compared.runs):
        waited = sum(trace["x"][index] for trace in drawn)
        assert waited == pytest.approx(run.ledger.wait.sum() / SECOND / 3600, rel=2e-3)


def test_the_jobs_that_waited_longest_come_with_a_command(compared: Comparison, built: str) -> None:
    longest = compared.runs[0].table.sort(["wait_s", "id"], descending=[True, False]).row(0, named=True)
    assert f"<code>headway story fifo {longest['id']}</code>" in built


def test_of_an_array_the_task_that_waited_longest_stands_for_all(tmp_path: Path) -> None:
    names = ["7_1", "7_2", "7_3", "8", "here:9_1", "here:9_2", "there:9_1"]
    rows = "".join(f"{name},0,{3600 + i},8\n" for i, name in enumerate(names))
    (tmp_path / "jobs.csv").write_text(f"name,submit_s,work_s,gpus\n{rows}")
    trace = {"path": str(tmp_path / "jobs.csv"), "format": "headway"}
    leave(tmp_path / "run", {"trace": trace, "cluster": {"nodes": 1, "gpus_per_node": 8}})
    shown = sections.longest(opened(tmp_path / "run").runs[0])
    assert re.findall(r'<th scope="row">(.*?)</th>', shown) == [
        "there:9_1",
        "here:9_2 <small>and 1 more task of the array</small>",
        "8",
        "7_3 <small>and 1 more task of the array</small>",
    ], "7_1 did not wait"


# --- odd runs -------------------------------------------------------------------------------------------------


def jobs_file(folder: Path, text: str) -> dict[str, Any]:
    """The table of a trace with these rows."""
    (folder / "jobs.csv").write_text(f"submit_s,work_s,gpus,gpu_milli,tenant,cpus\n{text}")
    return {"path": str(folder / "jobs.csv"), "format": "headway"}


@pytest.mark.parametrize(
    ("rows", "cluster", "said"),
    [
        ("0,60,1,,a,1\n", {"nodes": 1, "gpus_per_node": 1}, "no job waits"),
        ("0,60,1,300,a,1\n1,60,1,300,b,1\n2,9,1,500,b,1\n", {"nodes": 1, "gpus_per_node": 1}, "waits"),
        (
            "0,60,0,,a,1\n1,60,1,,b,1\n",
            {"node_groups": [{"nodes": 2, "gpus": 0}, {"nodes": 1, "gpus": 3}]},
            "no job waits",
        ),
        ("0,60,0,,a,1\n", {"node_groups": [{"nodes": 2, "gpus": 0}]}, "no job waits"),
        ("0,60,70,,a,1\n0,60,70,,a,1\n", {"nodes": 1, "gpus_per_node": 70}, "waits"),
    ],
    ids=["one job", "shares", "nodes without GPUs", "no GPU at all", "a wide node"],
)
def test_odd_runs_have_a_page(tmp_path: Path, rows: str, cluster: dict[str, Any], said: str) -> None:
    run = leave(tmp_path / "run", {"trace": jobs_file(tmp_path, rows), "cluster": cluster})
    read = Page(page.build(opened(run)))
    assert said in read.text
    for figure in read.facts()["figures"].values():
        go.Figure(coloured(figure))


def test_a_run_that_was_cut_short_says_so(folders: dict[str, Path], tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(folders["fifo"], cut)
    (cut / "result.json").unlink()
    both = opened(cut)
    stored = both.runs[0].stored
    half = stored.tape.until(int(stored.tape.column("time")[-1]) // 4)
    run = Measured("cut", "cut", type(stored)(stored.folder, stored.scene, half, False, {}))  # type: ignore[call-arg]
    read = Page(page.build(Comparison((run,))))
    assert "Cut short" in read.text
    assert read.facts()["maps"]["0"]


def test_a_run_whose_policy_is_gone_has_a_page_without_causes(folders: dict[str, Path], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    shutil.copytree(folders["fifo"], gone)
    settings = (gone / "experiment.toml").read_text()
    (gone / "experiment.toml").write_text(settings.replace('name = "fifo"', 'name = "./gone.py:Mine"'))
    text = Page(page.build(opened(gone))).text
    assert "Why jobs waited cannot be told" in text
    assert "gone.py:Mine" in text
    assert "is not run unless you trust it: --trust" in text


def test_only_measured_jobs_are_counted(tmp_path: Path) -> None:
    whole, part = leave(tmp_path / "whole", BUSY), leave(tmp_path / "part", {**BUSY, "measure": {"jobs": "50:120"}})
    both = opened(part)
    assert np.isfinite(both.runs[0].jct).sum() == both.runs[0].summary.completed <= 70
    reference = opened(whole).runs[0].jct
    assert np.array_equal(both.runs[0].jct[50:120], reference[50:120], equal_nan=True)
    assert "70 of 150 jobs measured" in Page(page.build(both)).text


def test_runs_over_different_jobs_are_not_compared_job_by_job(folders: dict[str, Path], tmp_path: Path) -> None:
    other = {**BUSY, "trace": {"synthetic": {"jobs": 40, "load": 1.0}}}
    both = opened(folders["fifo"], leave(tmp_path / "other", other))
    assert not both.same_jobs
    assert both.changes[1].interval is None
    text = Page(page.build(both)).text
    assert "did not serve the same jobs" in text
    assert "2 runs over different jobs" in text


def test_maps_without_room_are_left_out_and_that_is_said(compared: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_MAP_BYTES", 500)
    read = Page(page.build(compared))
    assert read.facts()["maps"] == {}
    assert "No map of fifo, las and srtf" in read.text


# --- fewer points ---------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e7), max_size=3000))
def test_a_distribution_keeps_its_shape_in_a_few_points(values: list[float]) -> None:
    given_values = np.array(values)
    x, share = cdf(given_values, 1.0)
    assert len(x) <= MOST_CDF_POINTS
    assert all(a < b for a, b in pairwise(x.tolist()))
    for at, part in zip(x.tolist(), share.tolist(), strict=True):
        assert part == pytest.approx((np.maximum(given_values, 1.0) <= at).mean())
    if values:
        assert share[-1] == 1.0


def test_a_long_distribution_lies_within_a_hair_of_the_whole_one() -> None:
    values = np.random.default_rng(1).lognormal(6, 2.5, 100_000)
    x, share = cdf(values, 1.0)
    at = np.geomspace(1, values.max(), 5000)
    whole = np.searchsorted(np.sort(values), at, side="right") / len(values)
    assert len(x) <= MOST_CDF_POINTS
    assert np.abs(np.interp(np.log(at), np.log(x), share) - whole).max() < 0.004


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(-5, 9)), max_size=40, unique_by=lambda each: each[0]),
    st.integers(0, 300),
    st.integers(1, 400),
    st.integers(1, 9),
)
def test_means_and_extremes_over_stretches_are_exact(
    steps: list[tuple[int, int]], start: int, length: int, count: int
) -> None:
    steps = sorted(steps)
    series = Series(np.array([t for t, _ in steps], dtype=np.int64), np.array([v for _, v in steps], dtype=np.int64))
    found = bucketed(series, start * count, (start + length) * count, count)
    for index, (low, high) in enumerate(pairwise(found.edges.tolist())):
        assert found.mean[index] == pytest.approx(series.mean(int(low), int(high)), abs=1e-9)
        values = [series.at(time) for time in range(int(low), int(high) + 1)]
        assert found.low[index] == min(values)
        assert found.high[index] == max(values)


def test_durations_are_said_in_the_unit_that_fits() -> None:
    said = [duration(value).replace("\N{NO-BREAK SPACE}", " ") for value in (0, 0.0021, 1.5, 119, 121, 7300, 180_000)]
    assert said == ["0 s", "2.10 ms", "1,500 ms", "119 s", "2.02 min", "2.03 h", "2.08 d"]
    assert duration(None) == "–"


# --- the command ----------------------------------------------------------------------------------------------


def run(*arguments: str) -> int:
    """The exit status of the program."""
    with pytest.raises(SystemExit) as ended:
        main(["report", *arguments])
    return int(ended.value.code or 0)


def test_the_command_writes_a_report_of_all_runs_in_a_folder(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    assert run(str(folders["fifo"].parent), "-o", str(target), "--baseline", "srtf", "--title", "A <b>title</b>") == 0
    text = target.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert MARK in text[:400]
    assert "A &lt;b&gt;title&lt;/b&gt;" in text
    assert [each["label"] for each in Page(text).facts()["runs"]] == ["fifo", "las", "srtf"]
    told = capsys.readouterr()
    assert told.out == ""
    assert "3 runs" in told.err
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_report_is_written_over_and_nothing_else_is(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mine.html"
    target.write_text("my notes")
    assert run(str(folders["fifo"]), "-o", str(target)) == 2
    assert "--force" in capsys.readouterr().err
    assert target.read_text() == "my notes"
    assert run(str(folders["fifo"]), "-o", str(target), "--force") == 0
    first = target.read_bytes()
    assert run(str(folders["fifo"]), "-o", str(target)) == 0
    assert target.read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}", "-o", "{tmp}/none/report.html"], "there is no folder"),
        (["{run}", "-o", "{tmp}"], "is a folder"),
        (["{tmp}/nothing"], "there is no such folder"),
        (["{tmp}"], "holds no run"),
        (["{run}", "{run}"], "is given twice"),
        (["{run}", "--baseline", "fofo"], "did you mean 'fifo'"),
    ],
    ids=["no folder", "a folder", "no run", "an empty folder", "twice", "no such baseline"],
)
def test_mistakes_are_one_line(
    folders: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*(text.format(run=folders["fifo"], tmp=tmp_path) for text in arguments)) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_of_the_runs_of_several_seeds_the_first_is_shown(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a/seed-2", "a/seed-10", "b"):
        shutil.copytree(folders["fifo"], tmp_path / "runs" / name)
    target = tmp_path / "report.html"
    assert run(str(tmp_path / "runs"), "-o", str(target)) == 0
    assert "map and figures show seed 3" in capsys.readouterr().err
    text = target.read_text()
    assert [each["label"] for each in Page(text).facts()["runs"]] == ["fifo (a)", "fifo (b)"]
    assert "headway story runs/a/seed-2 " in text
