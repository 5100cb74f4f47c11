"""Statistics on the command line, and sweeps: what is done stays done, whatever is killed."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from headway.cli import main
from headway.errors import ExperimentError, TapeError
from headway.formats import toml
from headway.runs import identity
from headway.runs.identity import grid_with_absolute_paths
from headway.runs.sweep import sweep
from headway.runs.sweep.sweep import Store
from tests.processes import at_work, gone, program, slow_policy, until

SAMPLES = Path(__file__).parents[2] / "samples"
MINE = """
from headway.jobs.policies.orders.fifo import Fifo


class Mine(Fifo):
    name = "mine-in-a-grid"
"""
SIZE = ("--nodes", "2", "--gpus-per-node", "8")
DRAWN: toml.Document = {
    "scale": "jobs",
    "trace": {"synthetic": {"jobs": 120}},
    "cluster": {"nodes": 6, "gpus_per_node": 8},
}


class Ended(NamedTuple):
    status: Any
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """The program, in this process."""

    def called(*arguments: object) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ended(ended.value.code, out, err)

    return called


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A hundred jobs in bursts on which policies differ."""
    rows = "".join(f"{600 * (i // 10)},{200 + 131 * i % 4000},{2 ** (i % 4)}\n" for i in range(100))
    path = tmp_path / "jobs.csv"
    path.write_text(f"submit_s,work_s,gpus\n{rows}")
    return path


# --- intervals, baselines, windows, seeds -----------------------------------------------------------------------


def test_a_run_says_how_sure_its_numbers_are(trace: Path, call: Callable[..., Ended]) -> None:
    row = call("jobs", "simulate", trace, *SIZE, "--json").json
    for stem in ("jct_mean", "jct_p50", "jct_p99", "wait_mean"):
        assert row[f"{stem}_low_s"] <= row[f"{stem}_s"] <= row[f"{stem}_high_s"]
    assert (row["confidence"], row["seeds"], row["measured_jobs"]) == (0.95, 1, 100)
    wider = call("jobs", "simulate", trace, *SIZE, "--json", "--confidence", "0.99").json
    assert wider["jct_mean_high_s"] - wider["jct_mean_low_s"] > row["jct_mean_high_s"] - row["jct_mean_low_s"]
    none = call("jobs", "simulate", trace, *SIZE, "--json", "--confidence", "0").json
    assert none["jct_mean_low_s"] is none["confidence"] is None
    assert "95 %" in call("jobs", "simulate", trace, *SIZE).out
    assert "95 %" not in call("jobs", "simulate", trace, *SIZE, "--confidence", "0").out


def test_policies_are_compared_with_the_baseline_that_is_named(trace: Path, call: Callable[..., Ended]) -> None:
    arguments = ("jobs", "compare", trace, *SIZE, "--policies", "fifo,fifo+easy,srtf")
    rows = call(*arguments, "--baseline", "srtf", "--json").json
    assert [row["baseline"] for row in rows] == ["srtf"] * 3
    assert rows[2]["jct_change"] is None
    assert rows[0]["jct_change"] == pytest.approx(rows[0]["jct_mean_s"] / rows[2]["jct_mean_s"] - 1)
    assert rows[0]["jct_change_low"] <= rows[0]["jct_change"] <= rows[0]["jct_change_high"]
    assert "vs srtf" in call(*arguments, "--baseline", "srtf").out
    assert "vs first" in call(*arguments).out
    wrong = call(*arguments, "--baseline", "strf")
    assert (wrong.status, wrong.out) == (2, "")
    assert "unknown baseline 'strf'; did you mean 'srtf'?" in wrong.err


def test_no_time_is_said_to_be_below_0(tmp_path: Path, call: Callable[..., Ended]) -> None:
    rows = "".join(f"{100 * (i // 2 if i in (6, 7) else i)},50,8\n" for i in range(40))
    (tmp_path / "jobs.csv").write_text(f"submit_s,work_s,gpus\n{rows}")
    row = call("jobs", "simulate", tmp_path / "jobs.csv", "--nodes", "1", "--gpus-per-node", "8", "--json").json
    assert 0 == row["wait_mean_low_s"] < row["wait_mean_s"] < row["wait_mean_high_s"]


def test_a_change_is_over_the_jobs_that_both_could_run(tmp_path: Path, trace: Path, call: Callable[..., Ended]) -> None:
    path = tmp_path / "sizes.toml"
    small = {"name": "small", "set": {"cluster.gpus_per_node": 4}}
    path.write_text(
        toml.write(
            {
                "scale": "jobs",
                "trace": {"path": str(trace), "skip_infeasible": True, "same_jobs": False},
                "cluster": {"nodes": 1, "gpus_per_node": 8},
                "variants": [{"name": "large"}, small],
            }
        )
    )
    ended = call("run", path, "--json")
    large, little = ended.json
    assert little["skipped"] > 0
    assert little["jct_change_over"] == f"{little['jobs']} jobs in common"
    assert little["jct_change_low"] <= little["jct_change"] <= little["jct_change_high"]
    assert little["jct_change"] != pytest.approx(little["jct_mean_s"] / large["jct_mean_s"] - 1)
    assert f"note: small: its change against large is over {little['jobs']} jobs in common" in ended.err


def test_a_window_is_measured_and_the_rest_only_loads_the_system(trace: Path, call: Callable[..., Ended]) -> None:
    whole = call("jobs", "simulate", trace, *SIZE, "--json").json
    part = call("jobs", "simulate", trace, *SIZE, "--json", "--measure-jobs", "40:60").json
    assert (part["jobs"], part["measured_jobs"], part["completed"]) == (100, 20, 20)
    assert part["digest"] == whole["digest"]
    assert part["jct_mean_s"] != whole["jct_mean_s"]
    trimmed = call("jobs", "simulate", trace, *SIZE, "--json", "--warmup", "10%").json
    assert trimmed["measured_jobs"] == 90
    wrong = call("jobs", "simulate", trace, *SIZE, "--measure-jobs", "4000:5000")
    assert (wrong.status, wrong.err.count("\n")) == (2, 1)
    assert "the workload has 100 jobs" in wrong.err


def test_seeds_are_runs_and_their_means_have_intervals(tmp_path: Path, call: Callable[..., Ended]) -> None:
    path = tmp_path / "drawn.toml"
    path.write_text(toml.write(DRAWN | {"variants": [{"name": "a"}, {"name": "b", "set": {"policy.name": "srtf"}}]}))
    three = call("run", path, "--seeds", "3", "--out", tmp_path / "runs", "--json", "--processes", "2").json
    assert [[run["seed"] for run in row["runs"]] for row in three] == [[0, 1, 2], [0, 1, 2]]
    means = [run["jct_mean_s"] for run in three[0]["runs"]]
    assert len(set(means)) == 3
    assert three[0]["jct_mean_s"] == pytest.approx(sum(means) / 3)
    assert three[0]["jct_mean_low_s"] <= three[0]["jct_mean_s"] <= three[0]["jct_mean_high_s"]
    assert three[1]["jct_change_low"] <= three[1]["jct_change"] <= three[1]["jct_change_high"]
    assert sorted(each.name for each in (tmp_path / "runs" / "b").iterdir()) == ["seed-0", "seed-1", "seed-2"]
    one = call("run", path, "--set", "run.seed=2", "--json").json
    assert one[1]["digest"] == three[1]["runs"][2]["digest"]


def test_where_nothing_is_drawn_there_is_one_run(trace: Path, call: Callable[..., Ended]) -> None:
    arguments = ("jobs", "simulate", trace, *SIZE, "--seeds", "5", "--json")
    ended = call(*arguments)
    assert "runs" not in ended.json
    assert "nothing is drawn here: every seed gives the same run" in ended.err
    assert call(*arguments, "--policy", "fifo+random").json["seeds"] == 5
    assert call(*arguments, "--failures", "mtbf=2h").json["seeds"] == 5


# --- sweeps -----------------------------------------------------------------------------------------------------


def test_a_grid_is_every_combination_for_every_seed() -> None:
    document = {**DRAWN, "measure": {"seeds": 2}, "sweep": {"policy": {"name": ["fifo", "srtf"]}}}
    document["sweep"]["cluster"] = {"nodes": [6, 8, 10]}
    axes = sweep.axes_of(document)
    cells = sweep.cells_of(document, axes, "test")
    assert axes == {"policy.name": ["fifo", "srtf"], "cluster.nodes": [6, 8, 10]}
    assert len(cells) == len({cell.digest for cell in cells}) == 12
    assert {cell.seed for cell in cells} == {0, 1}
    assert cells[0].name == "fifo, nodes=6, seed 0"


def test_a_cell_is_new_when_what_it_depends_on_changes_and_only_then(trace: Path, tmp_path: Path) -> None:
    def digest(**tables: Any) -> str:
        cluster = {"nodes": 2, "gpus_per_node": 8}
        document = {"scale": "jobs", "trace": {"path": str(trace)}, "cluster": cluster, **tables}
        (cell,) = sweep.cells_of(document, {}, "test")
        return cell.digest

    before = digest()
    assert digest(measure={"baseline": "fifo", "seeds": 3}) == before
    assert digest(run={"seed": 7}) == before  # nothing is drawn
    assert digest(run={"seed": 7}, failures={"mtbf": "1h"}) != digest(failures={"mtbf": "1h"})
    assert digest(costs={"preemption": "5s"}) != before
    trace.rename(tmp_path / "moved.csv")
    assert digest(trace={"path": str(tmp_path / "moved.csv")}) == before
    trace.write_text((tmp_path / "moved.csv").read_text() + "90000,5,1\n")
    assert digest() != before


def test_a_grid_is_found_again_from_any_folder(tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    for name in ("a.csv", "b.csv"):
        Path(name).write_text(trace.read_text())
    Path("nodes.txt").write_text((SAMPLES / "scontrol-nodes.txt").read_text())
    Path("mine.py").write_text(MINE)
    Path("slurm.conf").write_text("SchedulerType=sched/builtin\nPriorityType=priority/basic\n")
    document: toml.Document = {
        "scale": "jobs",
        "cluster": {"file": ["nodes.txt"]},
        "measure": {"baseline": "slurm:slurm.conf"},
    }
    axes: dict[str, list[Any]] = {
        "policy.name": ["fifo", "mine.py:Mine+easy", "slurm:slurm.conf"],
        "trace.path": ["a.csv", "./b.csv"],
    }
    document, axes = grid_with_absolute_paths(document, axes)
    before = sweep.cells_of(document, axes, "test")
    sweep.check_baseline(before, document["measure"]["baseline"])
    Store(tmp_path / "s").keep_grid(document, axes)
    monkeypatch.chdir(elsewhere)
    kept = toml.read(tmp_path / "s" / sweep.GRID_NAME)
    after = sweep.cells_of(kept, sweep.axes_of(kept), "test")
    assert [cell.digest for cell in after] == [cell.digest for cell in before]
    assert [cell.values for cell in after] == [cell.values for cell in before]
    sweep.check_baseline(after, kept["measure"]["baseline"])
    monkeypatch.chdir(here)
    kept["measure"]["baseline"] = "slurm:slurm.conf"  # as a flag says it, beside the grid that was kept
    sweep.check_baseline(before, grid_with_absolute_paths(kept, axes)[0]["measure"]["baseline"])


def test_a_cell_goes_by_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = sweep.cells_of(DRAWN, {}, "test")
    monkeypatch.setattr(identity, "code", lambda: "edited")
    (after,) = sweep.cells_of(DRAWN, {}, "test")
    assert before.digest != after.digest


@pytest.mark.parametrize(
    ("axes", "line"),
    [
        ({"run.seed": [1, 2]}, "cannot vary: use --seed and --seeds"),
        ({"cluster.nodes": []}, "has no values"),
        ({"cluster.nodes": [6, 8, 6]}, "has the value 6 twice"),
        ({"policy.name": ["fifo", "lifo"]}, "unknown"),
        ({"cluster.nods": [6]}, "did you mean 'nodes'"),
        ({"cluster.nodes": ["six"]}, "whole number"),
        ({f"costs.x{i}": list(range(10)) for i in range(6)}, "1,000,000 combinations"),
    ],
)
def test_a_grid_that_is_none_is_one_line(axes: dict[str, list[Any]], line: str) -> None:
    with pytest.raises(ExperimentError, match=line):
        sweep.cells_of(DRAWN, axes, "test")


def test_what_is_done_is_not_done_again(tmp_path: Path, trace: Path, call: Callable[..., Ended]) -> None:
    out = tmp_path / "sweep"
    arguments = ("jobs", "sweep", trace, "--gpus-per-node", "8", "--policies", "fifo,srtf", "-o", out)
    first = call(*arguments, "--nodes", "2,4", "--processes", "2", "--baseline", "srtf")
    assert first.status == 0, first.err
    assert "change against srtf" in first.out
    files = {path: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}
    assert len(files) == 4
    again = call(*arguments, "--nodes", "2,4,8", "--processes", "1", "--json")
    assert "4 of 6 cells are done already" in again.err
    assert all(path.stat().st_mtime_ns == time for path, time in files.items())
    assert len(list((out / "cells").glob("*.json"))) == 6
    assert [row["values"] for row in again.json][:2] == [
        {"policy.name": "fifo", "cluster.nodes": 2},
        {"policy.name": "fifo", "cluster.nodes": 4},
    ]
    srtf = again.json[3]
    assert srtf["jct_change_low"] <= srtf["jct_change"] <= srtf["jct_change_high"]
    assert call("jobs", "sweep", "-o", out, "--json").json == again.json  # by the grid that lies in the folder
    table = pl.read_parquet(out / "results.parquet")
    assert table.height == pl.read_csv(out / "results.csv").height == 6
    assert table["jct_mean_s"].null_count() == 0
    next(iter(files)).write_text("{")  # half a file, as no writer of ours leaves it
    assert "5 of 6 cells are done already" in call("jobs", "sweep", "-o", out).err


def test_a_cell_is_the_run_that_simulate_makes(tmp_path: Path, trace: Path, call: Callable[..., Ended]) -> None:
    words = (trace, "--gpus-per-node", "8", "--nodes", "2")
    sweeping = ("jobs", "sweep", *words, "--policies", "fifo,srtf", "-o", tmp_path / "s", "--json", "--processes", "1")
    rows = call(*sweeping).json
    alone = call("jobs", "simulate", *words, "--policy", "srtf", "--json").json
    assert rows[1]["digest"] == alone["digest"]
    assert rows[1]["jct_mean_low_s"] == alone["jct_mean_low_s"]
    again = call(*sweeping, "--keep-runs")
    assert "run again, for their tapes were not kept: 2 cells that are done" in again.err
    assert [row["digest"] for row in again.json] == [row["digest"] for row in rows]
    kept = list((tmp_path / "s" / "runs").iterdir())
    assert len(kept) == 2
    assert call("audit", kept[0]).status == 0
    assert "2 of 2 cells are done already" in call(*sweeping, "--keep-runs").err


def test_a_cell_that_fails_is_recorded_and_run_again_only_on_request(
    tmp_path: Path, trace: Path, call: Callable[..., Ended]
) -> None:
    words = ("jobs", "sweep", trace, "--gpus-per-node", "1", "--nodes", "1,8", "-o", tmp_path / "s")
    failed = call(*words, "--processes", "1")
    assert failed.status == 1
    assert "failed: nodes=1, seed 0: job " in failed.err
    assert "1 of 2 cells cannot be played as they are" in failed.err
    assert "--retry" not in failed.err, "a refusal stays one"
    assert "2 of 2 cells are done already" in call(*words).err
    assert "1 of 2 cells are done already" in call(*words, "--retry", "--processes", "1").err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "there is no grid"),
        (("--policies", "fifo", "--engine", "rays"), "unknown --engine 'rays'; did you mean 'ray'?"),
        (("--policies", "fifo", "--address", "auto"), "needs --engine ray"),
        (("--policies", "fifo", "--engine", "ray", "--keep-runs"), "needs --engine local"),
        (("--vary", "cluster.nodes"), "write it like cluster.nodes=40,80"),
        (("--policies", "fifo,srtf", "--baseline", "las"), "policy.name has the values fifo, srtf"),
        (("--policies", "fifo", "--baseline", "las"), "nothing varies"),
        (("--loads", "0.8,."), "--loads '.' is not a number above 0: write it like --loads 0.8,0.9"),
        (("--vary", "cluster.tenancy=walls,x"), "unknown tenancy 'x'"),
        (("--cluster", "c.toml", "--policies", "fifo"), "the cluster has both files and nodes: give one"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_one_line(
    tmp_path: Path, trace: Path, call: Callable[..., Ended], words: tuple[str, ...], line: str
) -> None:
    given = (trace, *SIZE) if words else ()
    ended = call("jobs", "sweep", *given, *words, "-o", tmp_path / "s")
    assert (ended.status, ended.out) == (2, "")
    assert line in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_a_folder_of_something_else_or_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TapeError, match="no sweep"):
        Store(tmp_path)
    store = Store(tmp_path / "new")
    with store.locked(), pytest.raises(TapeError, match="another sweep is at work"), Store(tmp_path / "new").locked():
        pass
    with pytest.raises(TapeError, match="is a file"):
        Store(tmp_path / "notes.txt")


def test_what_those_who_were_killed_left_is_cleared_away(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    left = [store.cells / ".headway-0123456789abcdef.part", store.folder / ".headway-fedcba9876543210.part"]
    for path in left:
        path.write_text("{")
    (store.cells / "0123.json").write_text("{}")
    with store.locked():
        assert not any(path.exists() for path in left)
        assert sorted(path.name for path in store.cells.iterdir()) == [".lock", "0123.json"]


def record(seed: int, mean: float, jobs: str = "same") -> sweep.Record:
    """What a cell of so long a mean JCT came to."""
    batches = [[mean * (1 + i % 3), 1] for i in range(30)]
    times = dict.fromkeys(("jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s", "makespan_s"), mean)
    row = {"seed": seed, "digest": "", "stopped": False, "jobs": 30, "gpu_utilisation": 1.0, "peak_rss_bytes": 1}
    row["confidence"] = 0.95
    return {"row": {**row, **times}, "batches": batches, "measured": jobs, "notes": [], "error": ""}


FAILED: sweep.Record = {"row": None, "batches": [], "measured": "", "notes": [], "error": "out of luck"}


@pytest.mark.parametrize(
    ("mine", "change", "over"),
    [
        ({0: 10.1, 1: 10.9, 2: 9.1, 3: 101.0}, 131.1 / 130 - 1, None),
        ({0: 10.1, 1: 10.9, 2: 9.1}, 30.1 / 30 - 1, "3 seeds in common"),
        ({3: 50.0}, -0.5, "1 seed in common"),
    ],
)
def test_a_change_is_over_the_seeds_that_neither_side_lost(
    tmp_path: Path, mine: dict[int, float], change: float, over: str | None
) -> None:
    document: toml.Document = {**DRAWN, "measure": {"seeds": 4}}
    cells, store = sweep.cells_of(document, {"policy.name": ["fifo", "srtf"]}, "test"), Store(tmp_path)
    for cell in cells:
        means = {0: 10.0, 1: 11.0, 2: 9.0, 3: 100.0} if dict(cell.values)["policy.name"] == "fifo" else mine
        store.write(cell, record(cell.seed, means[cell.seed]) if cell.seed in means else FAILED)
    _, row = sweep.results(cells, store, "", 0.95)
    assert row["jct_change"] == pytest.approx(change)
    assert row["jct_change_over"] == over
    if len(mine) > 1:
        assert row["jct_change_low"] <= row["jct_change"] <= row["jct_change_high"]


def test_cells_that_measured_different_jobs_are_not_paired(tmp_path: Path) -> None:
    cells, store = sweep.cells_of(DRAWN, {"cluster.nodes": [6, 8]}, "test"), Store(tmp_path)
    for cell, jobs, mean in zip(cells, ("same", "other"), (10.0, 5.0), strict=True):
        store.write(cell, record(0, mean, jobs))
    row = sweep.results(cells, store, "", 0.95)[1]
    assert (row["jct_change"], row["jct_change_low"], row["jct_change_over"]) == (-0.5, None, "different jobs")
    store.write(cells[1], record(0, 5.0))
    row = sweep.results(cells, store, "", 0.95)[1]
    assert (row["jct_change_low"], row["jct_change_over"]) == (pytest.approx(-0.5), None)


def test_whatever_is_killed_a_sweep_goes_on_where_it_was(tmp_path: Path, call: Callable[..., Ended]) -> None:
    slow, out = tmp_path / "policy", tmp_path / "s"
    grid, cells = tmp_path / "grid.toml", out / "cells"
    document: toml.Document = {**DRAWN, "measure": {"seeds": 2}}
    grid.write_text(toml.write(document | {"sweep": {"policy": {"name": ["fifo", slow_policy(slow)]}}}))
    with program("jobs", "sweep", "--grid", grid, "-o", out, "--processes", "2") as running:
        until(lambda: len(at_work(slow)) == 2, running)  # the first two cells are done
        first = at_work(slow)
        os.kill(min(first), signal.SIGKILL)
        until(lambda: at_work(slow) - first, running)  # another one in its place
        running.kill()
    until(lambda: all(map(gone, at_work(slow))))
    done = {path.name: path.read_bytes() for path in cells.glob("*.json")}
    assert len(done) == 2
    assert all(json.loads(text)["error"] == "" for text in done.values())
    before = at_work(slow)
    with program("jobs", "sweep", "-o", out, "--processes", "2") as running:
        until(lambda: len(at_work(slow) - before) == 2, running)
        running.send_signal(signal.SIGINT)
        printed, err = running.communicate()
    assert all(map(gone, at_work(slow)))
    assert (running.returncode, printed) == (130, "")
    assert f"stopped with 2 of 4 cells to do: headway jobs sweep -o {out} goes on" in err
    (slow / "go").touch()
    ended = call("jobs", "sweep", "-o", out, "--json", "--processes", "1")
    assert ended.status == 0
    assert [row["seeds"] for row in ended.json] == [2, 2]
    assert ended.json[0]["runs"][0]["digest"] == ended.json[1]["runs"][0]["digest"]
    assert all((cells / name).read_bytes() == text for name, text in done.items())


@pytest.mark.parametrize(
    ("flag", "value"), [("--loads", "abc"), ("--loads", "0"), ("--nodes", "3.5"), ("--nodes", "-1")]
)
def test_what_is_no_number_is_refused_before_any_cell_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "jobs",
                "sweep",
                "--set",
                "trace.synthetic={jobs=50}",
                "--policies",
                "fifo",
                flag,
                value,
                "-o",
                str(tmp_path / "s"),
            ]
        )
    assert ended.value.code == 2
    assert "is not a number above 0" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
