"""experiments/synergy-*.toml: each runs in small, and bench/synergy.py keeps and tells what they gave."""

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bench import synergy
from headway.jobs.tables.settings import Experiment
from headway.runs.measured import measured
from headway.runs.settings import files as experiment
from tests.docs.pages import ROOT

FILES = sorted((ROOT / "experiments").glob("synergy-*.toml"))
SMALL = ["measure.confidence=0", "trace.skip_infeasible=true"]
JOBS = "".join(
    f"{number},{model},{600 * number},{20_000 + 900 * number},0.6,{(1, 1, 2, 4)[number % 4]}\n"
    for number, model in enumerate(["alexnet", "gnmt", "m5", "res18", "lstm", "deepspeech"] * 4)
)
ROWS = {
    "synergy": f"job_id,model,arrival_s,total_iters,iter_time_s_at_fair_share,gpus\n{JOBS}",
    "philly-csv": "timestamp,duration,num_gpus,gpu_time,cluster\n"
    + "".join(f"2017-10-03 09:{n:02}:00,{3000 + 97 * n}.0,{1 + n % 2},1.0,a\n" for n in range(30)),
    "helios-csv": "job_id,arrival_s,service_sec,gpu_count\n"
    + "".join(f"{n}#{n},{60 * n}.0,{3000 + 97 * n}.0,{1 + n % 2}\n" for n in range(30)),
}
"""Made-up workloads in the formats that the files ask for."""


def _sets(path: Path, folder: Path) -> list[str]:
    """What makes an experiment small: few jobs on two nodes, all measured."""
    document = tomllib.loads(path.read_text())
    given = [*SMALL, "cluster.nodes=2"]
    if "measure" in document:
        given.append("measure.jobs=10:30")
    if "path" not in document["trace"]:
        return [*given, "trace.synergy.jobs=40"]
    trace = folder / "trace.csv"
    trace.write_text(ROWS[document["trace"]["format"]])
    return [*given, f"trace.path={trace}"]


def test_there_is_a_file_for_every_figure_and_a_figure_for_every_file() -> None:
    assert {f"synergy-{name}.toml" for name, _, _ in synergy.FIGURES.values()} == {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_line_of_a_figure_runs_in_small_and_finishes_its_jobs(path: Path, tmp_path: Path) -> None:
    found = experiment.read(path, _sets(path, tmp_path))
    assert len({label for label, _ in found}) == len(found) > 1
    for label, each in found:
        row = measured(each, label).row
        assert row["finished"] == row["measured_jobs"] > 0, label
        assert row["jct_mean_s"] > row["wait_mean_s"] >= 0, label


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_lines_differ_in_what_they_are_named_for(path: Path, tmp_path: Path) -> None:
    for label, each in experiment.read(path, _sets(path, tmp_path)):
        assert each.policy.allocation in label or each.policy.allocation in ("drf", "tetris"), label


def _small(figure: str, label: str = "") -> list[synergy.Cell]:
    sets = [*SMALL, "trace.synergy.jobs=30", "cluster.nodes=2"]
    return [cell for cell in synergy.cells(figure, {}, [1], sets) if label in cell.label]


def test_a_run_is_kept_and_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(each: Experiment, label: str = "") -> Any:
        made.append(label)
        return measured(each, label)

    monkeypatch.setattr(synergy, "measured", counted)
    chosen = _small("ratio fifo", "3 CPUs")
    first = [synergy.Results(tmp_path).of(cell) for cell in chosen]
    assert len(made) == len(chosen) == len({cell.key for cell in chosen})
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"key": "cut sho')  # as a kill leaves it
    assert [synergy.Results(tmp_path).of(cell) for cell in chosen] == first
    assert len(made) == len(chosen)
    again = synergy.Results(tmp_path, ["tune"])
    assert [again.of(cell)["digest"] for cell in chosen] == [row["digest"] for row in first]
    assert made[len(chosen) :] == ["3 CPUs a GPU, tune"]


def test_runs_of_other_code_are_made_anew_when_asked_for(tmp_path: Path) -> None:
    (cell,) = _small("ratio fifo", "3 CPUs a GPU, tune")
    synergy.Results(tmp_path).of(cell)
    line = json.loads((tmp_path / "runs.jsonl").read_text())
    assert cell.key in synergy.Results(tmp_path, current=True).rows
    (tmp_path / "runs.jsonl").write_text(json.dumps(line | {"code": "other"}) + "\n")
    assert cell.key in synergy.Results(tmp_path).rows
    assert cell.key not in synergy.Results(tmp_path, current=True).rows


def test_groups_hold_runs_that_differ_in_the_allocation_alone() -> None:
    chosen = _small("ratio fifo")
    groups = {cell.group: {other.allocation for other in chosen if other.group == cell.group} for cell in chosen}
    assert len(groups) == 4
    assert all(names == {cell.allocation for cell in chosen} for names in groups.values())


def test_a_figure_without_its_data_is_left_out_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(synergy.cells("philly", {}, [1])) == []
    assert "philly.csv.gz" in capsys.readouterr().err


def test_the_verdict_names_each_bar_that_is_missed() -> None:
    assert synergy.verdict(1.004, 1.02, 0.05) == ""
    assert synergy.verdict(0.97, 1.0, 0.5) == ""
    assert "0.5 %" in synergy.verdict(1.006, 1.0, 0.05)
    assert "3 %" in synergy.verdict(0.98, 1.0, 0.11)
    assert "2 %" in synergy.verdict(0.9, 1.03, 0.5)


def test_tables_tell_times_better_than_proportional(tmp_path: Path) -> None:
    results = synergy.Results(tmp_path)
    pairs = [(cell, results.of(cell)) for cell in _small("ratio fifo", "3 CPUs")]
    rows = {line["allocation"]: line for line in synergy.table(pairs)}
    assert (rows["proportional"]["times_better_mean"], rows["proportional"]["times_better_p99"]) == ("1.00", "1.00")
    by = {cell.allocation: row for cell, row in pairs}
    wanted = by["proportional"]["jct_mean_s"] / by["tune"]["jct_mean_s"]
    assert rows["tune"]["times_better_mean"] == f"{wanted:.2f}"
    assert {(line["order"], line["setting"], line["seeds"]) for line in rows.values()} == {
        ("fifo", "3 CPUs a GPU", "1")
    }


def test_the_command_writes_files_with_the_columns_of_the_published_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = [word for given in [*SMALL, "trace.synergy.jobs=30", "cluster.nodes=2"] for word in ("--set", given)]
    monkeypatch.setattr("sys.argv", ["synergy", "ratio fifo", "--out", str(tmp_path), *sets])
    assert synergy.main() == 0
    assert f"{tmp_path / 'figures.csv'}: 12 rows" in capsys.readouterr().out
    kept = ROOT / "docs/background/results/synergy"
    for name, few in (("figures.csv", 12), ("headway-against-tune.csv", 4)):
        made, published = ((folder / name).read_text().splitlines() for folder in (tmp_path, kept))
        assert made[0] == published[0]
        assert len(made) == 1 + few


def test_the_published_lines_are_named_as_the_figures_are() -> None:
    """By figure, order, setting and allocation; what needs a file of data is not drawn here."""
    with (ROOT / "docs/background/results/synergy/figures.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if not synergy.FIGURES[row["figure"]][2]]
    published = {(row["figure"], row["order"], row["setting"], row["allocation"]) for row in rows}
    drawn = [figure for figure, (_, _, wants) in synergy.FIGURES.items() if not wants]
    all_ = {(c.figure, c.order, c.setting, c.allocation) for figure in drawn for c in synergy.cells(figure, {}, [1])}
    assert len(published) == len(rows)
    assert published <= all_
