"""How the cost of runs grows: points are known by their names, rows are kept, limits are kept and told."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import adapter, growth_run
from bench.cases import Place
from bench.growth import AUDITED, CLUSTERS, POLICIES, Point, case_of, cases, point_of, points
from bench.growth_figure import OTHERS, SERIES, figure, svg, tables
from bench.growth_rows import Row, Rows, exponent, read, why_not
from bench.run import ROOT, CaseFailedError, Figures, Measuring, TimeLimitError
from headway.core.scheduler import Scheduler
from headway.errors import InputError
from headway.show.frames import figure as plotly_figure


def row(size: int, took_s: float | None = 1.0, policy: str = "fifo", series: str = "jobs", **more: Any) -> Row:
    jobs, gpus = (size, 1000) if series == "jobs" else (10 * size, size)
    numbers: dict[str, Any] = {}
    if took_s is not None:
        numbers = {"wall_s": took_s, "cpu_s": took_s, "jobs_per_s": jobs / took_s, "peak_bytes": 10**8}
        numbers |= {"decisions": 2 * jobs, "tape_bytes": 60 * jobs, "took_s": took_s}
    return Row(series=series, policy=policy, jobs=jobs, gpus=gpus, limit_s=60.0, code="abc", **(numbers | more))


# --- points ---------------------------------------------------------------------------------------------------


def test_a_point_is_known_by_its_name() -> None:
    every = [*points(), *points(quick=True)]
    assert [point_of(point.name) for point in every] == every
    assert {(point.series, point.policy) for point in every} == {(s, p) for s in SERIES for p in POLICIES}
    assert [point.gpus for point in every if point.policy == "las" and point.series == "gpus"][: len(CLUSTERS)] == [
        8 * nodes for nodes in CLUSTERS
    ]
    assert set(cases()) == {point.name for point in points()}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_of_a_point_ends_and_every_decision_is_counted(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[Scheduler[Any, Any]] = []
    whole = Scheduler.run

    def run(self: Scheduler[Any, Any], progress: Any = None) -> None:
        whole(self, progress)
        loops.append(self)

    monkeypatch.setattr(Scheduler, "run", run)
    prepared = adapter.Prepared(Point("gpus", policy, 160, 2).document())
    tape = prepared.play()
    assert prepared.ended(tape) == 160
    assert [adapter.decisions(tape)] == [loop.steps for loop in loops]


@pytest.mark.parametrize(("mark", "asked"), [("", []), (AUDITED, [("audit", "run")])])
def test_the_tape_is_audited_where_the_name_says_so(mark: str, asked: list[tuple[str, str]], tmp_path: Path) -> None:
    commands: list[tuple[str, str]] = []
    stand_in = SimpleNamespace(
        Prepared=lambda *_: SimpleNamespace(
            play=lambda folder: SimpleNamespace(digest="d"), ended=lambda tape: 160, scene=None
        ),
        command=lambda what, folder: commands.append((what, Path(folder).name)),
    )
    ready = case_of(f"growth/jobs fifo 160 2{mark}").prepare(stand_in, Place(tmp_path, tmp_path))
    assert ready.told(ready.step()) == (160, "d")
    assert commands == asked


# --- rows -----------------------------------------------------------------------------------------------------


def test_rows_come_back_as_they_were_written_and_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "growth.csv"
    rows = Rows(path, 60)
    kept = [row(1000), row(3000, None, note="not run: a reason, with a comma")]
    for each in kept:
        rows.add(each)
    whole = path.read_text()
    path.write_text(whole + "jobs,fifo,100")
    assert read(path) == kept
    Rows(path, 60)
    assert path.read_text() == whole


def test_what_a_limit_kept_out_is_tried_again_with_a_higher_one(tmp_path: Path) -> None:
    path = tmp_path / "growth.csv"
    rows = Rows(path, 60)
    rows.add(row(1000))
    rows.add(row(3000, None, note="not run: about 90 CPU s are expected, and the limit is 60"))
    assert [each.size for each in Rows(path, 60).known] == [1000, 3000]
    assert [each.size for each in Rows(path, 61).known] == [1000]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "series,policy,jobs,gpus\njobs,fifo,many,10\n"])
def test_a_file_of_something_else_is_refused_and_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="name another file with --out"):
        Rows(path, 60)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("smaller", "note"),
    [
        ([], ""),
        ([row(1000, 10.0)], ""),  # with one known, as many times longer as larger: 50 s
        ([row(1000, 13.0)], "not run: about 65 CPU s are expected, and the limit is 60"),
        ([row(100, 0.1), row(1000, 10.0)], "not run: about 250 CPU s are expected, and the limit is 60"),
        ([row(100, 9.0), row(1000, 10.0)], ""),  # starting takes most of it: never less than proportional
        ([row(100, 1.0), row(1000, None, note="ended")], "not run: the smaller point with 1,000 jobs on 1,000 GPUs"),
    ],
)
def test_a_point_that_would_pass_the_limit_is_not_begun(smaller: list[Row], note: str) -> None:
    found = why_not(Point("jobs", "fifo", 5000, 125), smaller, 60)
    assert found.startswith(note)
    assert bool(found) == bool(note)


def test_the_power_is_that_of_the_last_two_points() -> None:
    assert exponent([row(1000, 1.0)]) is None
    assert exponent([row(1, 1.0), row(1000, 1.0), row(10_000, 100.0)]) == pytest.approx(2)


# --- measuring ------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The points that were measured; ten thousand jobs take too long, two thousand fail."""
    found: list[str] = []

    def measured(figures: Sequence[Figures], _: Any, __: Any, ___: Any, times: int, limit_s: float) -> None:
        (each,) = figures
        found.append(each.case)
        jobs = point_of(each.case).jobs
        if jobs == 10_000 and limit_s < 100:
            raise TimeLimitError("too long")
        if jobs == 2_000:
            raise CaseFailedError("1,999 jobs instead of 2,000")
        each.count, each.digest, each.numbers = jobs, "0123456789abcdef", {"decisions": 7, "tape_bytes": 8}
        each.cpu_s, each.wall_s, each.peak_bytes = [jobs / 1e6] * times, [jobs / 1e6] * times, 9

    monkeypatch.setattr(growth_run, "measured", measured)
    monkeypatch.setattr(growth_run, "draw", lambda rows, path: [])
    return found


def measure(path: Path, *sizes: int, limit_s: float = 60) -> int:
    return growth_run.run([case_of(Point("jobs", "fifo", jobs, 125).name) for jobs in sizes], path, limit_s, 1)


def test_the_smallest_point_is_audited_and_what_is_known_is_not_measured_again(
    asked: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "growth.csv"
    assert measure(path, 1000) == 0
    assert asked == ["growth/jobs fifo 1000 125 audited", "growth/jobs fifo 1000 125"]
    asked.clear()
    assert measure(path, 1000, 3000) == 0
    assert asked == ["growth/jobs fifo 3000 125"]
    (first, second) = read(path)
    assert (first.jobs, first.cpu_s, first.jobs_per_s, first.decisions, first.tape_bytes) == (1000, 0.001, 1e6, 7, 8)
    assert (second.jobs, second.digest, second.peak_bytes, second.note) == (3000, "0123456789ab", 9, "")


def test_a_series_stops_at_the_limit_and_says_so(asked: list[str], tmp_path: Path) -> None:
    path = tmp_path / "growth.csv"
    assert measure(path, 1000, 10_000, 30_000) == 0
    assert [each.note for each in read(path)] == [
        "",
        "ended after 60 CPU s, the limit",
        "not run: the smaller point with 10,000 jobs on 1,000 GPUs has no result",
    ]
    asked.clear()
    assert measure(path, 1000, 10_000, 30_000, limit_s=100) == 0
    assert asked == ["growth/jobs fifo 10000 125", "growth/jobs fifo 30000 125"]
    assert [each.note for each in read(path)] == ["", "", ""]


def test_a_point_that_fails_leaves_no_row_and_fails_the_command(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "growth.csv"
    assert measure(path, 1000, 2000, 3000) == 1
    assert [each.jobs for each in read(path)] == [1000, 3000]
    complaints = capsys.readouterr().err
    assert "1,999 jobs instead of 2,000" in complaints
    assert "1 of 3 points failed" in complaints


def test_a_process_is_ended_after_its_limit(tmp_path: Path) -> None:
    running = Measuring(Figures("growth/jobs tune 10000 125", "jobs"), ROOT, ROOT, tmp_path, 0.5)
    with pytest.raises(TimeLimitError, match="growth/jobs tune 10000 125: took more CPU time than it was given"):
        running.begin()
    running.end()


def test_the_command_measures_in_processes_and_draws(tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    given = ["--growth", "--quick", "--case", "gpus fifo 1040 ", "--out", str(path)]
    done = subprocess.run([sys.executable, ROOT / "bench" / "run.py", *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = read(path)
    assert found.point == Point("gpus", "fifo", 1040, 13)
    assert found.note == ""
    for number in (found.wall_s, found.cpu_s, found.jobs_per_s, found.peak_bytes, found.decisions, found.tape_bytes):
        assert number is not None
        assert number > 0
    assert "| `fifo` |" in done.stdout
    assert "plotly" in path.with_suffix(".html").read_text()
    ElementTree.parse(path.with_suffix(".svg"))


# --- tables and the figure ------------------------------------------------------------------------------------

ROWS = [
    *(row(1000, 0.1), row(10_000, 2.0), row(100_000, None, note="ended after 60 CPU s, the limit")),
    *(row(1000, 0.2, "las"), row(10_000, None, "las", note="not run: about 90 CPU s are expected")),
    *(row(104, 0.1, "las", "gpus"), row(304, 0.3, "las", "gpus")),
]


def test_a_table_says_what_was_measured_and_what_was_not() -> None:
    lines = list(tables(ROWS))
    assert "| policy | 1,000 | 10,000 | 100,000 | power | peak MB | tape, bytes a job |" in lines
    assert "| `fifo` | 10,000 | 5,000 | ended after 60 CPU s | 1.30 | 100 | 60 |" in lines
    assert "| `las` | 5,000 | not run |  |  | 100 | 60 |" in lines


def test_the_figure_holds_what_was_measured_beside_other_simulators() -> None:
    drawn = figure(ROWS)
    plotly_figure(drawn)  # against plotly's own schema
    lines = {(trace["name"], trace["xaxis"]): (trace["x"], trace["y"]) for trace in drawn["data"]}
    assert lines["fifo", "x"] == ([1000, 10_000], [10_000, 5000])
    assert lines["las", "x2"][0] == [104, 304]
    assert [trace["y"] for trace in drawn["data"] if trace["xaxis"] == "x3"] == [list(ends) for ends in OTHERS.values()]
    inside = ElementTree.fromstring(svg(drawn))
    texts = [each.text for each in inside.iter("{http://www.w3.org/2000/svg}text")]
    assert {"fifo", "las", "Gavel", "AnalySIM", *SERIES.values()} <= set(texts)
    assert len(list(inside.iter("{http://www.w3.org/2000/svg}circle"))) == 5
