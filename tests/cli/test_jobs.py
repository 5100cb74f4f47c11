"""The command line: exact flags, one line for what is wrong, JSON and nothing else on stdout."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headway.cli import commands, main
from headway.core.tape import SCHEMA
from headway.fleet.policies.registry import POLICIES as SERVING
from headway.jobs.policies.registry import ORDERS
from headway.jobs.tables.settings import JobsMeasureTable
from headway.jobs.traces import FORMATS
from headway.runs.folder.folder import open_run
from headway.runs.measured import measured
from headway.runs.settings.files import variants
from headway.runs.settings.flags import split_policies

SIZE = ["--nodes", "2", "--gpus-per-node", "8"]
KEYS = [
    *("policy", "jobs", "finished", "jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s", "makespan_s"),
    *("gpu_utilisation", "fragmentation_mean", "preemptions", "migrations", "lost_gpu_hours", "events"),
    *("wall_s", "jobs_per_s", "peak_rss_bytes"),
]
ROWS = {
    "ok": "0,60,1,a\n5,60,2,b\n9,60,8,c\n9,600,16,d\n10,60,4,e\n",
    "repeated": "0,60,1,a\n5,60,2,a\n",
    "unsorted": "5,60,1,a\n0,60,2,b\n",
    "negative": "0,-60,1,a\n0,60,2,b\n",
    "huge": "0,60,1,a\n0,60,200,big\n",
    "bare": "",
    "hopeless": "0,0,1,a\n0,60,-2,b\n",
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A folder with a few small traces, as the working folder."""
    for name, rows in ROWS.items():
        (tmp_path / f"{name}.csv").write_text(f"submit_s,work_s,gpus,name\n{rows}")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "latin.csv").write_text("submit_s,work_s,gpus,name\n0,60,1,caf\xe9\n", encoding="latin-1")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress((tmp_path / "ok.csv").read_bytes(), mtime=0)[:-10])
    return tmp_path


class Ended:
    """How a command ended: its status and what it wrote."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        """All of stdout, as JSON."""
        return json.loads(self.out)


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Ended:
    """Run a command in this process."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return Ended(int(ended.value.code or 0), out, err)


def test_the_flags_of_the_common_case_all_work_together(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = trace / "run"
    ended = call(
        capsys,
        *("jobs", "simulate", trace / "ok.csv", "--format", "headway", *SIZE, "--policy", "fifo+none+best-fit"),
        *("--preemption", "on", "--preemption-cost", "0s"),
        *("--migration", "costed", "--migration-cost", "60s", "--estimates", "factor:3", "--set", "policy.quantum=5m"),
        *("--failures", "mtbf=30d,repair=4h", "--cpus-per-node", "64", "--memory-per-node", "500GB", "--load", "1.2"),
        *("--seed", "3", "--out", out, "--json", "--skip-infeasible", "--strict", "--set", "run.seed=4"),
    )
    assert ended.status == 0, ended.err
    assert list(ended.json)[: len(KEYS)] == KEYS
    assert ended.json["finished"] == 5
    assert ended.json["policy"].startswith("fifo+migrate")
    assert sorted(path.name for path in out.iterdir()) == [
        "experiment.toml", "jobs.parquet", "result.json", "tape.parquet",
    ]  # fmt: skip
    assert json.loads((out / "result.json").read_text()) == ended.json
    assert "seed = 4" in (out / "experiment.toml").read_text()


def test_simulate_prints_one_object_with_numbers_that_can_be_checked_by_hand(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (trace / "two.csv").write_text("submit_s,work_s,gpus\n0,100,8\n10,50,8\n")
    row = call(capsys, "jobs", "simulate", trace / "two.csv", "--nodes", 1, "--gpus-per-node", 8, "--json").json
    assert (row["jobs"], row["finished"], row["makespan_s"]) == (2, 2, 150)
    assert (row["jct_mean_s"], row["wait_mean_s"], row["gpu_utilisation"]) == (120, 45, 1)
    assert row["jobs_per_s"] == pytest.approx(2 / row["wall_s"])
    assert row["peak_rss_bytes"] > 10**7


def test_compare_prints_a_list_in_the_order_asked_and_stores_each_run(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = call(
        capsys,
        *("jobs", "compare", trace / "ok.csv", "--format", "headway", *SIZE, "--policies", "srtf,fifo,sjf+fit"),
        *("--json", "--out", trace / "runs"),
    )
    assert [row["policy"] for row in ended.json] == ["srtf", "fifo", "sjf+fit"]
    assert sorted(path.name for path in (trace / "runs").iterdir()) == ["fifo", "runs.json", "sjf+fit", "srtf"]
    assert call(capsys, "audit", trace / "runs" / "sjf+fit").status == 0
    again = call(capsys, "jobs", "compare", trace / "ok.csv", *SIZE, "--policies", "fifo,sjf", "--out", trace / "runs")
    assert again.status == 2
    assert "already holds" in again.err


def test_processes_give_the_same_digests_as_one(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("jobs", "compare", trace / "ok.csv", *SIZE, "--policies", "fifo,srtf", "--json")
    one, two = (call(capsys, *arguments, "--processes", count).json for count in (1, 2))
    assert [row["digest"] for row in one] == [row["digest"] for row in two]


def test_text_is_a_table_with_notes_on_the_other_stream(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "jobs", "simulate", trace / "huge.csv", *SIZE, "--skip-infeasible")
    assert ended.status == 0
    assert ended.out.split()[:2] == ["policy", "jobs"]
    assert len(ended.out.strip().splitlines()) == 2
    assert ended.err == "note: 1 job skipped that could never run\n"
    compared = call(capsys, "jobs", "compare", trace / "ok.csv", *SIZE, "--policies", "fifo,sjf")
    assert [line.split()[0] for line in compared.out.strip().splitlines()] == ["policy", "fifo", "sjf"]


@pytest.mark.parametrize("flag", [[], ["--no-strict"], ["--set", "trace.strict=false"]])
def test_bad_rows_are_dropped_and_explained_and_files_sorted(
    trace: Path, capsys: pytest.CaptureFixture[str], flag: list[str]
) -> None:
    dropped = call(capsys, "jobs", "simulate", trace / "negative.csv", *SIZE, *flag, "--skip-bad-rows", "--json")
    assert dropped.json["jobs"] == 1
    assert dropped.err == "note: 1 of 2 rows dropped: line 2: work_s '-60' must be above 0\n"
    repeated = call(capsys, "jobs", "simulate", trace / "repeated.csv", *SIZE, *flag, "--skip-bad-rows", "--json")
    assert repeated.json["jobs"] == 1
    assert "line 3: name 'a' occurs twice: ids must be unique" in repeated.err
    unsorted = call(capsys, "jobs", "simulate", trace / "unsorted.csv", *SIZE, *flag)
    assert unsorted.status == 0
    assert "the file is not sorted by submit time: sorted" in unsorted.err


def test_the_first_bad_rows_are_explained_and_the_rest_counted(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{at},{'x' if at else 60},1\n" for at in range(1500))
    (trace / "bad.csv").write_text(f"submit_s,work_s,gpus\n{rows}")
    asked = (*SIZE, "--policies", "fifo,sjf", "--skip-bad-rows", "--json")
    ended = call(capsys, "jobs", "compare", trace / "bad.csv", *asked)
    assert [row["jobs"] for row in ended.json] == [1, 1]
    reasons = "; ".join(f"line {line}: work_s 'x' is not a number" for line in (3, 4, 5))
    more = f"; and 1,496 more; headway trace inspect {trace / 'bad.csv'} shows them"
    assert ended.err == f"note: 1,499 of 1,500 rows dropped: {reasons}{more}\n"


def test_overload_is_said(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{10 * i},100,8\n" for i in range(50))
    (trace / "much.csv").write_text(f"submit_s,work_s,gpus\n{rows}")
    ended = call(capsys, "jobs", "simulate", trace / "much.csv", *SIZE, "--json")
    assert ended.status == 0
    assert "overload" in ended.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["absent.csv", *SIZE], "trace absent.csv: there is no such file"),
        (["ok.csv", "--format", "hedway", *SIZE], "did you mean 'headway'? (valid: "),
        (["ok.csv", "--format", "synergy", *SIZE], "column 'job_id' is missing"),
        (["repeated.csv", *SIZE, "--strict"], "line 3: name 'a' occurs twice: ids must be unique"),
        (["unsorted.csv", *SIZE, "--strict"], "is not sorted: line 3 was submitted before the one above it"),
        (["negative.csv", *SIZE, "--strict"], "line 2: work_s '-60' must be above 0"),
        (["negative.csv", *SIZE, "--set", "trace.strict=true"], "line 2: work_s '-60' must be above 0"),
        (["hopeless.csv", *SIZE], "all 2 rows are bad; the first is line 2: work_s '0' must be above 0"),
        (["cut.csv.gz", "--format", "headway", *SIZE], "the gzip data is truncated"),
        (["latin.csv", *SIZE], "line 2 is not UTF-8 text (byte 0xe9)"),
        (["empty.csv", "--format", "headway", *SIZE], "the file is empty"),
        (["bare.csv", *SIZE], "there is a header but no row"),
        (["huge.csv", *SIZE], "job big can never run: it wants 200 GPUs; the largest job that fits has 16"),
        ([".", "--format", "headway", *SIZE], "is a directory"),
        (SIZE, "no jobs: name a trace"),
        (["ok.csv"], "the cluster has no size: give nodes (--nodes and --gpus-per-node, or --cluster FILE)"),
        ([], "no jobs: name a trace (headway jobs simulate TRACE"),
        ([], "and a cluster: --cluster FILE, or --nodes and --gpus-per-node"),
        (["ok.csv", *SIZE, "--policy", "compass"], "policy compass is one of fleet, not of jobs (valid: drf, fifo"),
        (["ok.csv", "--nodes", "2.5", "--gpus-per-node", "4"], "--nodes: '2.5' is not a whole number"),
        (["ok.csv", "--nodes=2.5", "--gpus-per-node", "4"], "--nodes: '2.5' is not a whole number"),
        (["ok.csv", *SIZE, "--confidence", "x"], "--confidence: 'x' is not a number"),
        (["ok.csv", *SIZE, "--confidence", "95"], "confidence 95 must be 0 (no intervals), or lie in 0.5 to 0.999"),
        (["ok.csv", "--nodes", "2"], "give gpus_per_node"),
        (["ok.csv", "--nodes", "-1", "--gpus-per-node", "8"], "nodes -1 must lie in 1 to"),
        (["ok.csv", "--nodes", "0", "--gpus-per-node", "8"], "nodes 0 must lie in 1 to"),
        (["ok.csv", "--nodes", "1000000000", "--gpus-per-node", "8"], "nodes 1000000000 must lie in"),
        (["ok.csv", "--nodes", "two", "--gpus-per-node", "8"], "--nodes"),
        (["ok.csv", "--nodes", "2", "--gpus-per-node", "0"], "gpus_per_node 0 must lie in 1 to"),
        (["ok.csv", *SIZE, "--policy", "srft"], "did you mean 'srtf'?"),
        (["ok.csv", *SIZE, "--policy", "fifo+bestfit"], "did you mean 'best-fit'?"),
        (["ok.csv", *SIZE, "--policy", ""], "--policy is empty"),
        (["ok.csv", *SIZE, "--set", "policy.backfill=nne"], "unknown backfill 'nne'; did you mean 'none'?"),
        (["ok.csv", *SIZE, "--set", "policy.placement=best"], "unknown placement 'best'; did you mean 'best-fit'?"),
        (["ok.csv", *SIZE, "--preemption", "yes"], "unknown preemption 'yes'"),
        (["ok.csv", *SIZE, "--preemption-cost", "-1s"], "preemption cost '-1s' must not be negative"),
        (["ok.csv", *SIZE, "--migration", "cheap"], "unknown migration 'cheap'"),
        (["ok.csv", *SIZE, "--migration-cost", "soon"], "migration cost 'soon' is not understood"),
        (["ok.csv", *SIZE, "--set", "policy.quantum=5x"], "quantum '5x' is not understood"),
        (["ok.csv", *SIZE, "--estimates", "factor:0"], "estimate factor '0' must be above 0"),
        (["ok.csv", *SIZE, "--failures", "mtfb=3d"], "did you mean 'mtbf'?"),
        (["ok.csv", *SIZE, "--failures", "repair=3d"], "failures needs mtbf"),
        (["ok.csv", *SIZE, "--failures", "mtbf=0s"], "must be above 0"),
        (["ok.csv", *SIZE, "--failures", "mtbf=30d,repair=0s"], "must be above 0"),
        (
            ["ok.csv", *SIZE, "--failures", "mtbf=1s,repair=1h"],
            "mtbf 1s: nodes that take 1h to repair would hardly ever be up: mtbf must be at least repair / 100",
        ),
        (["ok.csv", *SIZE, "--failures", "mtbf=30d,mtbf=1d"], "mtbf is given twice"),
        (["ok.csv", *SIZE, "--failures", "mtbf="], "mtbf has no value"),
        (
            ["ok.csv", *SIZE, "--policy", "fifo+fit", "--set", "policy.backfill=easy"],
            "policy 'fifo+fit' already names the backfill fit; policy.backfill=easy contradicts it",
        ),
        (
            ["ok.csv", *SIZE, "--policy", "fifo+spread", "--set", "policy.placement=best-fit"],
            "already names the placement spread; policy.placement=best-fit contradicts it",
        ),
        (
            ["ok.csv", *SIZE, "--policy", "fifo+migrate", "--migration", "off"],
            "already names the migration migrate; policy.migration=off contradicts it",
        ),
        (
            ["ok.csv", *SIZE, "--policy", "fifo+migrate", "--migration", "free"],
            "already names the migration migrate; policy.migration=free contradicts it",
        ),
        (
            ["ok.csv", *SIZE, "--policy", "srtf+no-preempt", "--preemption", "on"],
            "already names the preemption off; policy.preemption=on contradicts it",
        ),
        (
            ["ok.csv", *SIZE, "--policy", "srtf+quantum(5m)", "--set", "policy.quantum=1m"],
            "already names the quantum 5m; policy.quantum=1m contradicts it",
        ),
        (["ok.csv", *SIZE, "--cpus-per-node", "-4"], "cpus_per_node -4 must lie in"),
        (["ok.csv", *SIZE, "--memory-per-node", "-5GB"], "memory_per_node '-5GB' is not understood"),
        (["ok.csv", *SIZE, "--load", "0"], "load factor '0' must be above 0"),
        (["ok.csv", *SIZE, "--load", "-1"], "load factor '-1' must be above 0"),
        (["ok.csv", *SIZE, "--load", "nan"], "load factor 'nan' is not a number"),
        (["ok.csv", *SIZE, "--load", "1e300"], "is too large"),
        (["ok.csv", *SIZE, "--seed", "-1"], "seed -1 must lie in 0"),
        (["ok.csv", *SIZE, "--out", "ok.csv"], "is a file, not a folder"),
        (["ok.csv", *SIZE, "--out", "ok.csv/run"], "cannot be"),
        (["ok.csv", *SIZE, "--set", "policy.nme=x"], "unknown key of [policy] 'nme'; did you mean 'name'?"),
        (["ok.csv", *SIZE, "--set", "polcy=x"], "did you mean 'policy'?"),
        (["ok.csv", *SIZE, "--set", "what"], "--set 'what' is not understood"),
        (["ok.csv", *SIZE, "--nods", "3"], "--nods"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(trace)
    ended = call(capsys, "jobs", "simulate", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert ended.err.startswith("headway: ")
    assert line in ended.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["simulte"], "simulte"),
        (["jobs", "compare", "ok.csv", *SIZE], "--policies"),
        (["jobs", "compare", "ok.csv", *SIZE, "--policies", "fifo,,sjf"], "is not understood"),
        (["jobs", "compare", "ok.csv", *SIZE, "--policies", "fifo,sfj"], "did you mean 'sjf'?"),
        (["jobs", "compare", "ok.csv", *SIZE, "--policies", "slurm"], "that of a Slurm site is slurm:slurm.conf"),
        (["trace", "inspect", "nodes.txt"], "trace nodes.txt: lists nodes, not jobs: give it with --cluster"),
        (["run", "absent.toml"], "there is no such file"),
        (["run", "broken.toml"], "experiment broken.toml: cannot be read"),
        (["run", "unknown.toml"], "unknown key of [cluster] 'ndes'; did you mean 'nodes'?"),
        (["audit", "absent"], "run folder absent: there is no such folder"),
        (["replay", "."], "holds no run"),
        (["story", "run", "zzz"], "job 'zzz' is not in this run: none of its 5 jobs is called so"),
        (["story", "run"], "JOB"),
        (["audit", "corrupt"], "the tape cannot be read"),
    ],
)
def test_every_command_says_in_one_line_what_is_wrong(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(trace)
    (trace / "broken.toml").write_text("x = = 3")
    (trace / "nodes.txt").write_text("NodeName=n1 CPUTot=64 Gres=gpu:a100:8 State=IDLE\n   Partitions=batch\n")
    (trace / "unknown.toml").write_text('scale = "jobs"\n[cluster]\nndes = 3\n')
    call(capsys, "jobs", "simulate", "ok.csv", *SIZE, "--out", "run")
    (trace / "corrupt").mkdir()
    (trace / "corrupt" / "tape.parquet").write_text("no tape")
    ended = call(capsys, *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert line in ended.err


def test_two_runs_do_not_share_a_folder(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("jobs", "simulate", trace / "ok.csv", *SIZE, "--out", trace / "run")
    assert call(capsys, *arguments).status == 0
    tape = (trace / "run" / "tape.parquet").read_bytes()
    second = call(capsys, *arguments)
    assert (second.status, second.out) == (2, "")
    assert second.err.endswith("already holds a run: choose another folder or remove it\n")
    assert (trace / "run" / "tape.parquet").read_bytes() == tape


def test_a_stored_run_can_be_audited_replayed_and_told(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trace / "run"
    call(capsys, "jobs", "simulate", trace / "ok.csv", *SIZE, "--policy", "srtf", "--out", folder)
    assert "nothing wrong" in call(capsys, "audit", folder).out
    assert "identical" in call(capsys, "replay", folder).out
    story = call(capsys, "story", folder, "d")
    assert story.status == 0
    assert "(d)" in story.out
    assert call(capsys, "story", folder, "3", "--json").json["name"] == "d"
    text = (folder / "experiment.toml").read_text()
    (folder / "experiment.toml").write_text(text.replace('name = "srtf"', 'name = "fifo"'))
    other = call(capsys, "replay", folder)
    assert other.status == 1
    assert other.err.startswith("different: ")


def test_policies_lists_every_part_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    parts = call(capsys, "policies", "--json").json
    kinds = {"order", "backfill", "placement", "migration", "allocation", "serving", "kernels", "preemption", "timing"}
    assert {part["kind"] for part in parts} == kinds
    assert all(part["description"] for part in parts)
    names = {part["name"] for part in parts}
    assert {
        "fifo",
        "sjf",
        "srtf",
        "none",
        "fit",
        "best-fit",
        "migrate",
        "preempt",
        "no-preempt",
        "quantum",
        "round",
    } <= names
    table = call(capsys, "policies").out
    assert all(name in table for name in names)


def test_run_takes_an_experiment_and_overrides(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace / "e.toml"
    path.write_text(
        'scale = "jobs"\n'
        '[trace]\nsynthetic = {jobs = 30}\n[cluster]\nnodes = 8\ngpus_per_node = 8\n[policy]\nname = "sjf"\n'
    )
    single = call(capsys, "run", path, "--json", "--set", "policy.backfill=fit", "--set", "trace.synthetic.jobs=40")
    assert (single.json["policy"], single.json["jobs"]) == ("sjf+fit", 40)
    path.write_text(path.read_text() + '[[variants]]\nname = "a"\n[[variants]]\nname = "b"\nset.policy.name = "fifo"\n')
    rows = call(capsys, "run", path, "--json", "--out", trace / "runs").json
    assert [(row["variant"], row["policy"]) for row in rows] == [("a", "sjf"), ("b", "fifo")]
    assert sorted(path.name for path in (trace / "runs").iterdir()) == ["a", "b", "runs.json"]


def test_the_demo_compares_at_least_six_policies_on_a_thousand_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "demo", "--jobs", "150", "--json")
    assert len({row["policy"] for row in ended.json}) >= 6
    assert all(row["jobs"] == 150 for row in ended.json)


def test_the_jobs_of_the_demo_keep_the_cluster_busy_for_a_week_and_nobody_outlasts_it() -> None:
    document = commands.demo_work(commands.DEMO_JOBS).document
    ((_, each),) = variants({**document, "policy": {"name": "fifo+fit"}}, "demo")
    row = measured(msgspec.structs.replace(each, measure=JobsMeasureTable(confidence=0.0))).row
    assert 0.7 <= row["gpu_utilisation_while_arriving"] <= 0.95
    arriving = row["makespan_s"] - row["tail_s"]
    assert 5 * 86_400 <= arriving <= 10 * 86_400
    assert row["tail_s"] < arriving / 2
    assert row["overload"] is None
    assert 0 < row["wait_mean_s"] < row["jct_mean_s"] / 2, "there is a queue, and it is no scandal"


@pytest.mark.parametrize(
    "command", ["", "jobs simulate", "jobs compare", "run", "demo", "policies", "story", "replay", "audit"]
)
def test_help_explains_every_command(capsys: pytest.CaptureFixture[str], command: str) -> None:
    ended = call(capsys, *command.split(), "--help")
    assert ended.status == 0
    assert f"headway {command}" in ended.out or not command
    assert "NotImplemented" not in ended.out


def test_commas_inside_brackets_belong_to_options() -> None:
    assert split_policies("fifo, tiresias(thresholds=1h/10h,queues=3)+easy,sjf") == [
        "fifo", "tiresias(thresholds=1h/10h,queues=3)+easy", "sjf",
    ]  # fmt: skip


def test_the_format_is_told_by_the_columns(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "headway": "submit_s,work_s,gpus\n0,60,1\n",
        "helios-csv": "job_id,arrival_s,service_sec,gpu_count\na,0,60,1\n",
        "philly-csv": "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,60,1,60,vc\n",
        "synergy": "job_id,model,arrival_s,total_iters,iter_time_s_at_fair_share,gpus\na,m,0,60,1,1\n",
    }
    assert set(files) <= set(FORMATS)
    for name, text in files.items():
        (trace / "some.csv").write_text(text)
        told, given = (
            call(capsys, "jobs", "simulate", trace / "some.csv", *SIZE, "--json", *flag).json
            for flag in ((), ("--format", name))
        )
        assert told["digest"] == given["digest"]
        assert told["makespan_s"] == 60
    (trace / "some.csv").write_text("a,b\n1,2\n")
    assert "name it with --format" in call(capsys, "jobs", "simulate", trace / "some.csv", *SIZE).err


def program(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    """The program in a process of its own."""
    source = str(Path(__file__).resolve().parents[2] / "src")
    return subprocess.Popen(
        [sys.executable, "-m", "headway", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source, **environment},
    )


def test_ctrl_c_says_how_far_it_got_and_leaves_a_tape(trace: Path) -> None:
    path = trace / "long.toml"
    path.write_text('scale = "jobs"\n[trace]\nsynthetic = {jobs = 80000}\n[cluster]\nnodes = 128\ngpus_per_node = 8\n')
    folder = trace / "run"
    with program("run", path, "--out", folder, "--json") as running:
        while not (folder / "tape.arrow").exists() or not (folder / "tape.arrow").stat().st_size > 10**5:
            assert running.poll() is None
            sleep(0.01)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate()
    assert running.returncode == 130
    assert out == ""
    assert err.startswith("headway: stops after the step in progress; a second Ctrl-C ends it now\n")
    assert err.count("\n") == 2
    assert f"the tape is {folder / 'tape.parquet'}" in err
    stored = open_run(folder)
    assert len(stored.tape) > 0
    assert not stored.complete


def test_a_closed_pipe_is_quiet() -> None:
    with program("policies", "--json") as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.stderr is not None
        assert running.stderr.read() == ""


def test_a_traceback_is_shown_only_on_request(trace: Path) -> None:
    with program("audit", trace / "absent", HEADWAY_DEBUG="1") as running:
        _, err = running.communicate()
    assert "Traceback" in err
    assert "TapeError" in err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "--version")
    assert (ended.status, ended.out, ended.err) == (0, "headway 0.1.0\n", "")


def test_a_narrow_terminal_gets_fewer_columns_and_a_note(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("jobs", "compare", trace / "ok.csv", *SIZE, "--policies", "fifo,fifo+conservative+consolidate")
    piped = call(capsys, *arguments)
    assert "jobs/s" in piped.out
    assert piped.err == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    wide = call(capsys, *arguments)
    assert all(name in wide.out for name in ("tail", "GPU use", "jobs/s"))
    assert wide.err == (
        "note: GPU use: while jobs arrive, from the first submission to the last; "
        "tail: from there to the last completion\n"
    )
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setenv("TERM", "dumb")  # 80 columns and no colours
    narrow = call(capsys, *arguments)
    assert max(map(len, narrow.out.splitlines())) <= 80
    assert "fifo+conservative+consolidate" in narrow.out
    assert "jobs/s" not in narrow.out
    assert "…" not in narrow.out
    assert "columns do not fit: a wider terminal or --json shows them\n" in narrow.err
    assert "tail" not in narrow.out
    assert "tail:" not in narrow.err, "a column that is not shown is not explained"


def test_a_picture_that_cannot_be_written_is_refused_before_anything_runs(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for picture, line in (("no/such/x.svg", "there is no folder"), ("x.png", "must end in .svg")):
        ended = call(
            capsys,
            *("jobs", "compare", trace / "ok.csv", *SIZE, "--policies", "fifo,sjf", "--out", trace / "runs"),
            *("--picture", trace / picture),
        )
        assert (ended.status, ended.out) == (2, "")
        assert line in ended.err
        assert not (trace / "runs").exists()


def test_a_picture_may_lie_in_the_folder_of_the_runs(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = trace / "runs"
    arguments = ("jobs", "compare", trace / "ok.csv", *SIZE, "--policies", "fifo,sjf", "--out", runs)
    assert call(capsys, *arguments, "--picture", runs / "x.svg").status == 0
    assert (runs / "x.svg").read_text().startswith("<svg")


def test_preemptions_that_cost_nothing_are_said(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (trace / "two.csv").write_text("submit_s,work_s,gpus\n0,1000,16\n10,5,16\n")
    arguments = ("jobs", "simulate", trace / "two.csv", *SIZE, "--policy", "srtf", "--json")
    free = call(capsys, *arguments, "--preemption-cost", "0s")
    assert free.json["preemptions"] == 1
    assert free.err == "note: preemptions cost nothing here: --preemption-cost 60s charges them\n"
    assert call(capsys, *arguments, "--preemption-cost", "60s").err == ""


def test_groups_that_the_results_do_not_have_are_a_note(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "jobs", "simulate", trace / "ok.csv", *SIZE, "--by", "tenant")
    assert ended.status == 0
    assert len(ended.out.strip().splitlines()) == 2
    assert ended.err.startswith("note: --by tenant: no tenants in the results")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_an_exception_in_a_policy_of_the_user_is_one_line(
    trace: Path, capsys: pytest.CaptureFixture[str], processes: int
) -> None:
    (trace / "mine.py").write_text(
        "from headway.jobs.policies.orders.fifo import Fifo\n\n\n"
        'class Mine(Fifo):\n    name = "mine-broken"\n\n'
        "    def key(self, *given):\n        return given[0].nothing_of_the_kind\n"
    )
    spec = f"{trace / 'mine.py'}:Mine"
    ended = call(
        capsys,
        *("jobs", "compare", trace / "ok.csv", *SIZE, "--policies", f"{spec},fifo", "--processes", processes),
    )
    ORDERS.pop("mine-broken", None)  # of this process, for the tests after this one
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("headway: policy mine-broken: AttributeError in mine.py, line 8: ")
    assert ended.err.endswith("(HEADWAY_DEBUG=1 shows all)\n")
    assert ended.err.count("\n") == 1


def test_a_run_that_failed_leaves_nothing_in_the_way_of_the_next(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (trace / "later.py").write_text(
        "from headway.jobs.policies.orders.fifo import Fifo\n\n\nclass Later(Fifo):\n    name = 'later'\n\n"
        "    def key(self, now, js):\n        return 1 / (1 - js.id)\n"
    )
    (trace / "empty").mkdir()
    for folder in ("fresh/run", "empty"):
        out = ("jobs", "simulate", trace / "ok.csv", *SIZE, "--out", trace / folder)
        assert call(capsys, *out, "--policy", f"{trace}/later.py:Later").status == 2
        assert call(capsys, *out).status == 0
    assert not list(trace.glob("*/.claim"))


def test_so_is_one_in_a_serving_policy_of_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from headway.fleet.policies.compass.hash import Hash\n\n\n"
        'class Mine(Hash):\n    name = "mine-broken"\n\n'
        "    def decide(self, now, state):\n        return state.nothing_of_the_kind\n"
    )
    ended = call(capsys, "fleet", "simulate", "compass", "--requests", 10, "--policy", f"{tmp_path / 'mine.py'}:Mine")
    SERVING.pop("mine-broken", None)  # of this process, for the tests after this one
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith("headway: policy mine-broken: AttributeError in mine.py, line 8: ")


@pytest.mark.parametrize(
    ("problem", "status", "line"),
    [
        (ValueError("odd"), 1, "headway: internal error: ValueError: odd; HEADWAY_DEBUG=1 shows all\n"),
        (KeyboardInterrupt(), 130, "headway: stopped\n"),
    ],
)
def test_what_ends_a_command_in_the_middle_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    problem: BaseException,
    status: int,
    line: str,
) -> None:
    def ends(_: object, **_more: object) -> None:
        raise problem

    monkeypatch.setattr("headway.runs.folder.stored.open_run", ends)
    ended = call(capsys, "audit", "run")
    assert (ended.status, ended.out, ended.err) == (status, "", line)


def test_a_run_that_was_cut_short_is_said_and_an_empty_one_refused(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trace / "run"
    call(capsys, "jobs", "simulate", trace / "ok.csv", *SIZE, "--out", folder)
    assert call(capsys, "audit", folder).err == ""
    (folder / "result.json").unlink()
    rows = len(open_run(folder).tape)
    for command in ("audit", "replay"):
        ended = call(capsys, command, folder)
        assert ended.status == 0
        told = f"the run is not complete: it was cut short at 12m 09s, after {rows} rows"
        assert ended.err == f"note: {told}; what is there was checked\n"
    for arguments in (("story", folder, "a"), ("explain", folder, "a"), ("report", folder, "-o", trace / "r.html")):
        ended = call(capsys, *arguments)
        assert ended.status == 0
        assert f"{told}; " in ended.err
    (folder / "tape.parquet").unlink()
    pa.ipc.new_stream(str(folder / "tape.arrow"), SCHEMA).close()
    for arguments in (("audit", folder), ("replay", folder), ("story", folder, "a")):
        ended = call(capsys, *arguments)
        assert (ended.status, ended.out) == (2, "")
        assert "holds no step yet" in ended.err


def test_a_story_names_other_jobs_as_the_trace_does(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (trace / "named.csv").write_text("submit_s,work_s,gpus,name\n0,60,16,7\n1,60,16,8\n2,60,1,0\n")
    folder = trace / "run"
    call(capsys, "jobs", "simulate", trace / "named.csv", *SIZE, "--out", folder)
    assert "head-of-line: job 8 ahead of it" in call(capsys, "story", folder, "0").out
    told = call(capsys, "story", folder, "0", "--json").json
    assert told["name"] == "0"
    assert [cause["jobs"] for cause in told["stretches"][0]["causes"] if cause["kind"] == "head-of-line"] == [["8"]]


def test_a_package_that_is_missing_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "headway.runs.blame")
    ended = call(capsys, "policies")
    assert (ended.status, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert ended.err.startswith("headway: internal error: ModuleNotFoundError: ")
