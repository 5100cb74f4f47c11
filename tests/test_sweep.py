"""Statistics on the command line, several runs at a time, and sweeps: what is done stays done, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

import polars as pl
import pytest

from headway.cli import main
from headway.errors import ExperimentError, HeadwayError, TapeError
from headway.experiment import sweep
from headway.experiment.pool import LocalPool
from headway.experiment.sweep import Store
from headway.formats import toml
from headway.live.tasks import Done, Progress

SIZE = ("--nodes", "2", "--gpus-per-node", "8")
DRAWN: toml.Document = {"trace": {"synthetic": {"jobs": 120}}, "cluster": {"nodes": 6, "gpus_per_node": 8}}
LONG = """
[trace.synthetic]
jobs = 12000
[cluster]
nodes = 64
gpus_per_node = 8
[sweep]
policy.name = ["fifo", "sjf", "srtf", "las"]
"""


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


def program(*arguments: object) -> subprocess.Popen[str]:
    """The program in a process of its own."""
    source = str(Path(__file__).resolve().parent.parent / "src")
    return subprocess.Popen(
        [sys.executable, "-m", "headway", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )


def until(holds: Callable[[], object], running: subprocess.Popen[str]) -> None:
    """Wait for something that a program at work brings about."""
    began = monotonic()
    while not holds():
        assert running.poll() is None, running.communicate()
        assert monotonic() - began < 120
        sleep(0.02)


def children(process: int) -> list[int]:
    """The processes that a process started and that run Python's workers."""
    listed = Path(f"/proc/{process}/task/{process}/children")
    found = [int(word) for word in listed.read_text().split()] if listed.exists() else []
    return [child for child in found if b"spawn_main" in _command(child)]


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def gone(process: int) -> bool:
    """Whether it has ended; what nobody has waited for yet has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# --- intervals, baselines, windows, seeds -----------------------------------------------------------------------


def test_a_run_says_how_sure_its_numbers_are(trace: Path, call: Callable[..., Ended]) -> None:
    row = call("simulate", "--trace", trace, *SIZE, "--json").json
    for stem in ("jct_mean", "jct_p50", "jct_p99", "wait_mean"):
        assert row[f"{stem}_low_s"] <= row[f"{stem}_s"] <= row[f"{stem}_high_s"]
    assert (row["confidence"], row["seeds"], row["measured_jobs"]) == (0.95, 1, 100)
    wider = call("simulate", "--trace", trace, *SIZE, "--json", "--confidence", "0.99").json
    assert wider["jct_mean_high_s"] - wider["jct_mean_low_s"] > row["jct_mean_high_s"] - row["jct_mean_low_s"]
    none = call("simulate", "--trace", trace, *SIZE, "--json", "--no-intervals").json
    assert none["jct_mean_low_s"] is none["confidence"] is None
    assert "95 %" in call("simulate", "--trace", trace, *SIZE).out
    assert "95 %" not in call("simulate", "--trace", trace, *SIZE, "--no-intervals").out


def test_policies_are_compared_with_the_baseline_that_is_named(trace: Path, call: Callable[..., Ended]) -> None:
    arguments = ("compare", "--trace", trace, *SIZE, "--policies", "fifo,fifo+easy,srtf")
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


def test_a_window_is_measured_and_the_rest_only_loads_the_system(trace: Path, call: Callable[..., Ended]) -> None:
    whole = call("simulate", "--trace", trace, *SIZE, "--json").json
    part = call("simulate", "--trace", trace, *SIZE, "--json", "--measure-jobs", "40:60").json
    assert (part["jobs"], part["measured_jobs"], part["completed"]) == (100, 20, 20)
    assert part["digest"] == whole["digest"]
    assert part["jct_mean_s"] != whole["jct_mean_s"]
    trimmed = call("simulate", "--trace", trace, *SIZE, "--json", "--warmup", "10%").json
    assert trimmed["measured_jobs"] == 90
    wrong = call("simulate", "--trace", trace, *SIZE, "--measure-jobs", "4000:5000")
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
    arguments = ("simulate", "--trace", trace, *SIZE, "--seeds", "5", "--json")
    ended = call(*arguments)
    assert "runs" not in ended.json
    assert "nothing is drawn here: every seed gives the same run" in ended.err
    assert call(*arguments, "--placement", "random").json["seeds"] == 5
    assert call(*arguments, "--failures", "mtbf=2h").json["seeds"] == 5


# --- several processes ------------------------------------------------------------------------------------------


def work(task: Any, told: Progress | None) -> Any:
    """What the pool does here: a number is squared; other words say what goes wrong."""
    if isinstance(task, Path) and not task.exists():
        task.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "wrong":
        raise ExperimentError("this is wrong")
    if told is not None:
        told(1, 2, 3, 4)
    return task**2 if isinstance(task, int) else "again"


def test_a_pool_gives_every_result_whatever_dies(tmp_path: Path) -> None:
    heard: list[tuple[int, ...]] = []
    tasks = [2, "die", tmp_path / "once", "wrong", 5]
    found = {done.task: done for done in LocalPool(2).run(tasks, work, lambda *at: heard.append(at))}
    assert (found[0].result, found[2].result, found[4].result) == (4, "again", 25)
    assert isinstance(found[1].problem, HeadwayError)
    assert "killed by SIGKILL, 2 times" in str(found[1].problem)
    assert str(found[3].problem) == "this is wrong"
    assert (0, 1, 2, 3, 4) in heard


def test_a_pool_that_is_stopped_says_what_it_did_not_do() -> None:
    pool = LocalPool(1)
    ends: list[Done] = []
    for done in pool.run([1, 2, 3], work):
        ends.append(done)
        pool.stop()
    assert [end.task for end in ends] == [0, 1, 2]
    assert [end.stopped for end in ends] == [False, True, True]


def test_a_signal_to_the_parent_alone_stops_all_its_runs(tmp_path: Path) -> None:
    path, out = tmp_path / "long.toml", tmp_path / "runs"
    path.write_text(
        "variants = [{name = 'a'}, {name = 'b', set = {policy = {name = 'sjf'}}}]\n"
        "[trace]\nsynthetic = {jobs = 30000}\n[cluster]\nnodes = 128\ngpus_per_node = 8\n"
    )
    tapes = [out / name / "tape.arrow" for name in "ab"]
    with program("run", path, "--out", out, "--processes", "2") as running:
        until(lambda: all(tape.exists() and tape.stat().st_size > 10**5 for tape in tapes), running)
        workers = children(running.pid)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate()
    assert running.returncode == 130
    assert len(workers) == 2
    assert all(map(gone, workers))
    assert "stopped at" in err
    assert all((out / name / "tape.parquet").exists() for name in "ab")


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
        document = {"trace": {"path": str(trace)}, "cluster": {"nodes": 2, "gpus_per_node": 8}, **tables}
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
    arguments = ("sweep", "--trace", trace, "--gpus-per-node", "8", "--policies", "fifo,srtf", "-o", out)
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
    assert call("sweep", "-o", out, "--json").json == again.json  # by the grid that lies in the folder
    table = pl.read_parquet(out / "results.parquet")
    assert table.height == pl.read_csv(out / "results.csv").height == 6
    assert table["jct_mean_s"].null_count() == 0
    next(iter(files)).write_text("{")  # half a file, as no writer of ours leaves it
    assert "5 of 6 cells are done already" in call("sweep", "-o", out).err


def test_a_cell_is_the_run_that_simulate_makes(tmp_path: Path, trace: Path, call: Callable[..., Ended]) -> None:
    words = ("--trace", trace, "--gpus-per-node", "8", "--nodes", "2")
    rows = call("sweep", *words, "--policies", "fifo,srtf", "-o", tmp_path / "s", "--json", "--keep-runs").json
    alone = call("simulate", *words, "--policy", "srtf", "--json").json
    assert rows[1]["digest"] == alone["digest"]
    assert rows[1]["jct_mean_low_s"] == alone["jct_mean_low_s"]
    kept = list((tmp_path / "s" / "runs").iterdir())
    assert len(kept) == 2
    assert call("audit", kept[0]).status == 0


def test_a_cell_that_fails_is_recorded_and_run_again_only_on_request(
    tmp_path: Path, trace: Path, call: Callable[..., Ended]
) -> None:
    words = ("sweep", "--trace", trace, "--gpus-per-node", "1", "--nodes", "1,8", "-o", tmp_path / "s")
    failed = call(*words, "--processes", "1")
    assert failed.status == 1
    assert "failed: nodes=1, seed 0: InfeasibleJobError: " in failed.err
    assert "1 of 2 cells failed; --retry runs them once more" in failed.err
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
    ],
)
def test_a_sweep_that_makes_no_sense_is_one_line(
    tmp_path: Path, trace: Path, call: Callable[..., Ended], words: tuple[str, ...], line: str
) -> None:
    given = ("--trace", trace, *SIZE) if words else ()
    ended = call("sweep", *given, *words, "-o", tmp_path / "s")
    assert (ended.status, ended.out) == (2, "")
    assert line in ended.err
    assert ended.err.count("\n") == 1


def test_a_folder_of_something_else_or_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TapeError, match="no sweep"):
        Store(tmp_path)
    store = Store(tmp_path / "new")
    with store.locked(), pytest.raises(TapeError, match="another sweep is at work"), Store(tmp_path / "new").locked():
        pass
    with pytest.raises(TapeError, match="is a file"):
        Store(tmp_path / "notes.txt")


def test_whatever_is_killed_a_sweep_goes_on_where_it_was(tmp_path: Path, call: Callable[..., Ended]) -> None:
    grid, out = tmp_path / "grid.toml", tmp_path / "s"
    grid.write_text(LONG)
    cells = out / "cells"
    with program("sweep", grid, "-o", out, "--seeds", "2", "--processes", "2") as running:
        until(lambda: len(list(cells.glob("*.json"))) >= 1 and len(children(running.pid)) == 2, running)
        workers = children(running.pid)
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: set(children(running.pid)) - set(workers), running)  # another one in its place
        workers = children(running.pid)
        running.kill()
    until_gone(workers)
    done = {path.name: path.read_bytes() for path in cells.glob("*.json")}
    assert done
    assert all(json.loads(text)["error"] == "" for text in done.values())
    with program("sweep", grid, "-o", out, "--seeds", "2", "--processes", "2") as running:
        until(lambda: len(list(cells.glob("*.json"))) > len(done), running)
        workers = children(running.pid)
        running.send_signal(signal.SIGINT)
        printed, err = running.communicate()
    assert all(map(gone, workers))
    if running.returncode == 130:  # else it was done before the signal came
        assert printed == ""
        assert f"headway sweep {out / 'grid.toml'} -o {out} goes on" in err
    ended = call("sweep", "-o", out, "--json", "--processes", "2")
    assert ended.status == 0
    assert [row["seeds"] for row in ended.json] == [2] * 4
    assert all((cells / name).read_bytes() == text for name, text in done.items())


def until_gone(processes: list[int]) -> None:
    """Processes end with their parent, however it ended."""
    began = monotonic()
    while not all(map(gone, processes)):
        assert monotonic() - began < 60
        sleep(0.02)
