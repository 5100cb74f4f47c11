"""What is wrong is a HeadwayError of one line, the same that the command line prints."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import headway as hw
from headway.cli import main
from headway.errors import printable

JOBS = "submit_s,work_s,gpus\n0,60,1\n5,30,2\n"
SIZE = {"nodes": 1, "gpus_per_node": 2}
FLAGS = ["--nodes", "1", "--gpus-per-node", "2"]
OWN = """
from headway.jobs.policies.parts import Order
class Broken(Order):
    name = "broken"
    def key(self, now, js):
        return 1 / 0
"""


def jobs(**settings: Any) -> hw.Work:
    return hw.Jobs("jobs.csv", **{**SIZE, **settings})


def simulate(*more: str) -> list[str]:
    return ["jobs", "simulate", "jobs.csv", *FLAGS, *more]


def compare(policies: str, *more: str) -> list[str]:
    return ["jobs", "compare", "jobs.csv", *FLAGS, "--policies", policies, *more]


CASES: dict[str, tuple[list[str], Callable[[], Any]]] = {
    "no trace": (["jobs", "simulate", "no.csv", *FLAGS], lambda: hw.simulate(hw.Jobs("no.csv", **SIZE))),
    "a policy": (simulate("--policy", "srtff"), lambda: hw.simulate(jobs(), "srtff")),
    "an option": (simulate("--policy", "tiresias(queue=2)"), lambda: hw.simulate(jobs(), "tiresias(queue=2)")),
    "no nodes": (simulate("--set", "cluster.nodes=0"), lambda: hw.simulate(jobs(), nodes=0)),
    "a key": (simulate("--set", "cluster.node=2"), lambda: hw.simulate(jobs(), set={"cluster.node": 2})),
    "a line": (simulate("--set", "nonsense"), lambda: hw.simulate(jobs(), set=["nonsense"])),
    "a type": (simulate("--set", "cluster.nodes=x"), lambda: hw.simulate(jobs(), nodes="x")),
    "nothing": (simulate("--load", " "), lambda: hw.simulate(jobs(), load=" ")),
    "a load": (simulate("--load", "fast"), lambda: hw.simulate(jobs(), load="fast")),
    "failures": (simulate("--failures", "mtbf"), lambda: hw.simulate(jobs(), failures="mtbf")),
    "twice": (compare("fifo,srtf,fifo"), lambda: hw.compare(jobs(), "fifo,srtf,fifo")),
    "a baseline": (compare("fifo,srtf", "--baseline", "x"), lambda: hw.compare(jobs(), ["fifo", "srtf"], baseline="x")),
    "a folder": (simulate("--out", "full"), lambda: hw.simulate(jobs(), out="full")),
    "several": (compare("fifo,srtf", "--out", "full"), lambda: hw.compare(jobs(), ["fifo", "srtf"], out=Path("full"))),
    "too large": (
        ["jobs", "simulate", "jobs.csv", "--nodes", "1", "--gpus-per-node", "1"],
        lambda: hw.simulate(jobs(gpus_per_node=1)),
    ),
    "no size": (["jobs", "simulate", "jobs.csv"], lambda: hw.simulate(hw.Jobs("jobs.csv"))),
    "own": (simulate("--policy", "./own.py:Broken"), lambda: hw.simulate(jobs(), "./own.py:Broken")),
    "no file": (simulate("--policy", "./no.py:Broken"), lambda: hw.simulate(jobs(), "./no.py:Broken")),
    "a scenario": (["fleet", "simulate", "compas"], lambda: hw.simulate(hw.Fleet("compas"))),
    "a rate": (["fleet", "simulate", "compass", "--rate", "0"], lambda: hw.simulate(hw.Fleet("compass", rate=0.0))),
    "a program": (["gpu", "simulate", "resnet5"], lambda: hw.simulate(hw.Gpu("resnet5"))),
    "no time": (["gpu", "simulate", "vgg16", "--seconds", "0"], lambda: hw.simulate(hw.Gpu("vgg16", seconds=0))),
    "no history": (["jobs", "backtest", "jobs.csv", *FLAGS], lambda: hw.backtest(jobs())),
    "no config": (
        ["jobs", "backtest", "jobs.csv", *FLAGS, "--config", "no.conf"],
        lambda: hw.backtest(jobs(), config=Path("no.conf")),
    ),
    "a graph": (["fleet", "plan", "translatoin", "--rate", "4"], lambda: hw.plan("translatoin", rate=4)),
    "a graph of its own": (
        ["fleet", "plan", "mine.toml", "--rate", "4", "--scenario", "esg"],
        lambda: hw.plan(Path("mine.toml"), rate=4, scenario="esg"),
    ),
    "above": (["gpu", "predict", "vgg16", "matmul@0"], lambda: hw.predict("vgg16", "matmul@0")),
    "an aim": (["gpu", "predict", "vgg16", "matmul", "--slo", "0.5"], lambda: hw.predict("vgg16", "matmul", slo=0.5)),
    "no run": (["audit", "nowhere"], lambda: hw.open("nowhere")),
    "a file": (["audit", "full"], lambda: hw.open("full")),
    "no experiment": (["run", "no.toml"], lambda: hw.run("no.toml")),
    "no scale": (["run", "plain.toml"], lambda: hw.run("plain.toml")),
    "a scale": (["run", "other.toml"], lambda: hw.run(Path("other.toml"))),
    "an axis": (
        ["jobs", "sweep", "jobs.csv", *FLAGS[:0], "--gpus-per-node", "2", "--vary", "run.seed=1,2", "-o", "s"],
        lambda: hw.sweep(hw.Jobs("jobs.csv", gpus_per_node=2), "s", {"run.seed": [1, 2]}),
    ),
}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "plain.toml").write_text('[trace]\npath = "jobs.csv"\n')
    (tmp_path / "other.toml").write_text('scale = "job"\n')


def line_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that fails with status 2; return the one line that it says."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    told = capsys.readouterr()
    assert ended.value.code == 2
    assert told.out == ""
    assert told.err.startswith("headway: ")
    assert told.err.count("\n") == 1
    return told.err.removeprefix("headway: ").rstrip("\n")


@pytest.mark.parametrize("case", CASES)
def test_both_faces_say_the_same_line(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, python = CASES[case]
    line = line_of(arguments, capsys)
    with pytest.raises(hw.HeadwayError) as problem:
        python()
    assert printable(" ".join(str(problem.value).split())) == line
    told = capsys.readouterr()
    assert told.out == told.err == ""


def test_questions_to_a_run_fail_with_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    hw.compare(jobs(), ["fifo", "srtf"], out="runs")
    run = hw.open("runs/fifo")
    asked: dict[str, tuple[list[str], Callable[[], Any]]] = {
        "story": (["story", "runs/fifo", "99"], lambda: run.story(99)),
        "explain": (["explain", "runs/fifo", "1", "--at", "9d"], lambda: run.explain(1, at="9d")),
        "whatif": (["whatif", "runs/fifo", "--at", "1s", "--load", "x"], lambda: run.whatif("1s", load="x")),
        "report": (["report", "runs/fifo", "-o", "own.py"], lambda: run.report("own.py")),
        "inside": (["report", "runs/fifo", "-o", "runs/fifo/x.html"], lambda: run.report("runs/fifo/x.html")),
        "export": (["export", "runs/fifo"], lambda: run.export()),
        "exported": (["export", "runs/fifo", "--csv", "full"], lambda: run.export(csv="full")),
        "a trace": (["export", "runs/fifo", "--perfetto", "a.txt"], lambda: run.export(perfetto=Path("a.txt"))),
        "several": (["audit", "runs"], lambda: hw.open("runs")),
    }
    for name, (arguments, python) in asked.items():
        line = line_of(arguments, capsys)
        with pytest.raises(hw.HeadwayError) as problem:
            python()
        assert str(problem.value) == line, name


@pytest.mark.parametrize(
    ("python", "line"),
    [
        (lambda: hw.simulate(jobs(), by="tenant"), "unknown setting 'by'"),
        (lambda: hw.simulate(hw.Gpu("vgg16"), warmup="10%"), "setting warmup is one of jobs, not of gpu"),
        (lambda: hw.simulate(jobs(), nodse=3), "unknown setting 'nodse'; did you mean 'nodes'?"),
        (lambda: hw.simulate(jobs(), nodes=object()), "setting nodes: a object is neither text, a number, a list nor"),
        (lambda: hw.simulate("jobs.csv"), r"what is scheduled is hw.Jobs(…), hw.Fleet(…) or hw.Gpu(…), not a str"),
        (lambda: hw.predict("vgg16", "matmul", slow=1.1), "unknown setting 'slow'; did you mean 'slo'?"),
        (lambda: hw.plan("translation", rate=4, slow="3s"), "unknown setting 'slow'; did you mean 'slo'?"),
        (lambda: hw.Jobs(42), "a trace is a file, a polars or pandas frame or hw.synthetic(…), not a int"),
        (
            lambda: hw.Jobs(pl.Series([1])),
            "a trace is a file, a polars or pandas frame or hw.synthetic(…), not a Series",
        ),
        (lambda: hw.simulate(jobs(), 7), "policy int: <class 'int'> is no Order"),
        (lambda: hw.compare(jobs(), []), "no policies: name at least one"),
        (lambda: hw.compare(jobs(), ["fifo"], processes=0), "processes is 0: it must be a whole number of at least 1"),
        (lambda: hw.compare(jobs(), ["fifo"], processes="2"), "processes is '2': it must be a whole number"),
        (lambda: hw.compare(jobs(), ["fifo", "srtf"])["las"], "unknown run 'las' (valid: fifo, srtf)"),
        (lambda: hw.simulate(jobs()).table("job"), "unknown table 'job'; did you mean 'jobs'?"),
        (lambda: hw.simulate(jobs()).figure("jtc"), "unknown figure 'jtc'; did you mean 'jct'?"),
        (lambda: hw.simulate(jobs()).requests(), "unknown table 'requests'"),
        (lambda: hw.simulate(jobs()).whatif("1s", nodes=3), "unknown change 'nodes'"),
        (lambda: hw.simulate(jobs(), seeds=0), "seeds"),
        (lambda: hw.simulate(jobs(), seeds="two"), "seeds"),
        (lambda: hw.sweep(jobs(), "s", {"cluster.nodes": 3}), "vary cluster.nodes is 3: it must be a list of values"),
        (lambda: hw.run("plain.toml", nodes=3), "unknown setting 'nodes'"),
        (lambda: hw.work("job"), "unknown scale 'job'; did you mean 'jobs'?"),
        (lambda: hw.Work("job", {}), "unknown scale 'job'; did you mean 'jobs'?"),
    ],
)
def test_what_only_python_can_get_wrong_is_one_line_too(python: Callable[[], Any], line: str) -> None:
    with pytest.raises(hw.HeadwayError) as problem:
        python()
    assert line in str(problem.value)
    assert "\n" not in str(problem.value)


def test_times_may_be_numbers_of_seconds() -> None:
    run = hw.simulate(jobs())
    for at in (20, 20.0, timedelta(seconds=20), "20s"):
        assert run.whatif(at, add_nodes=1).record()["at_s"] == 20
        assert run.explain(1, at=at).record()["at_s"] == 20


@pytest.mark.parametrize(
    ("python", "line"),
    [
        (lambda run: run.whatif(None, add_nodes=1), "at is None: it must be a time in the run"),
        (lambda run: run.whatif(True), "at is True: it must be a time in the run"),
        (lambda run: run.whatif(-1, add_nodes=1), "--at '-1' must not be negative"),
        (lambda run: run.whatif(float("nan"), add_nodes=1), "--at 'nan' is not understood"),
        (lambda run: run.whatif(1, folder=3, add_nodes=1), "folder is 3: it must be a path"),
        (lambda run: run.explain(1, at=[1]), "at is [1]: it must be a time in the run"),
        (lambda run: run.explain(1, at=1e6), "the run ends at"),
        (lambda run: run.explain(1, draws="x"), "draws is 'x': it must be a whole number"),
        (lambda run: run.save(3), "folder is 3: it must be a path"),
        (lambda run: run.report(3), "path is 3: it must be a path"),
        (lambda run: hw.open(3), "folder is 3: it must be a path"),  # type: ignore[arg-type]
        (lambda run: hw.run(3), "path is 3: it must be a path"),  # type: ignore[arg-type]
        (lambda run: hw.simulate(jobs(), set=3), "set is 3: it must be a mapping"),
        (lambda run: hw.sweep(jobs(), "s", ["policy.name"]), "vary is ['policy.name']: it must be a mapping"),  # type: ignore[arg-type]
        (lambda run: hw.sweep(jobs(), 3, {"policy.name": ["fifo"]}), "folder is 3: it must be a path"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_time_and_no_path_is_one_line(python: Callable[[Any], Any], line: str) -> None:
    with pytest.raises(hw.HeadwayError) as problem:
        python(hw.simulate(jobs()))
    assert line in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_comparison_has_so_many_runs_and_can_be_gone_through() -> None:
    found = hw.compare(jobs(), ["fifo", "srtf"])
    for kind in (hw.HeadwayError, IndexError):
        with pytest.raises(kind, match="run 7: there are 2 runs, counted from 0"):
            found[7]
    assert [run.row["policy"] for run in found] == ["fifo", "srtf"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("python", "line"),
    [
        (lambda: hw.Jobs(), "no jobs: give a file, a polars or pandas frame, or hw.synthetic(…)"),
        (lambda: hw.Jobs("jobs.csv", workers=3), "setting workers is one of fleet, not of jobs"),
        (lambda: hw.synthetic(10, lod=3), "unknown key of [trace.synthetic] 'lod'; did you mean 'load'?"),
        (lambda: hw.synthetic(-1), "synthetic jobs -1 must lie in 1 to"),
        (lambda: hw.synthetic("many"), "trace.synthetic.jobs is 'many': expected a whole number"),  # type: ignore[arg-type]
        (lambda: hw.synthetic(10, kind="bogus"), "unknown kind 'bogus' (valid: synergy, synthetic)"),
        (lambda: hw.environment(jobs(), "nope"), "unknown policy 'nope'"),
        (lambda: hw.environment(hw.Fleet("compass"), "nope"), "unknown serving policy 'nope'"),
        (lambda: hw.Fleet("nope"), "unknown scenario 'nope'"),
        (lambda: hw.environment(hw.Gpu("nope", "nope2")), "unknown program 'nope'"),
    ],
)
def test_what_is_scheduled_is_refused_when_it_is_made(python: Callable[[], Any], line: str) -> None:
    with pytest.raises(hw.HeadwayError) as problem:
        python()
    assert line in str(problem.value)
