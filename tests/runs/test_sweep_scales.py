"""Sweeps of a fleet and of a GPU: the same grid, folder and comparison as for jobs."""

import contextlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from headway.cli import main
from headway.fleet.scenarios import file as scenario_file
from headway.formats import toml
from headway.gpu.programs import load as kernel_programs
from headway.runs import identity
from headway.runs.settings.files import typed


class Ended:
    """How a command ended: its status and what it wrote."""

    def __init__(self, status: Any, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Ended]


class Grid(NamedTuple):
    """A sweep of four cells: two policies, the first of them the baseline, and two values of something else."""

    words: tuple[str, ...]
    policies: tuple[str, str]
    axis: tuple[str, str]
    wider: tuple[str, str]
    last: tuple[str, str]
    """The second of the two values, for a single run."""
    labels: tuple[str, str]
    number: str

    @property
    def scale(self) -> str:
        return self.words[0]


FLEET = Grid(
    ("fleet", "compass", "--requests", "60"),
    ("hash", "compass"),
    ("--workers", "3,5"),
    ("--workers", "3,5,8"),
    ("--workers", "5"),
    ("workers=3", "workers=5"),
    "slowdown_mean",
)
GPU = Grid(
    ("gpu", "resnet50", "matmul", "--seconds", "0.05"),
    ("mps", "strict"),
    ("--vary", "gpu.think=0ms,5ms"),
    ("--vary", "gpu.think=0ms,5ms,9ms"),
    ("--think", "5ms"),
    ("think=0ms", "think=5ms"),
    "slowdown_p50",
)
JOBS = ("jobs", "sweep", "--set", "trace.synthetic.jobs=9", "--policies", "fifo,srtf")


def sweeping(grid: Grid, *more: str) -> list[str]:
    """The command of a sweep into the folder s."""
    scale, *work = grid.words
    return [scale, "sweep", *work, "--policies", ",".join(grid.policies), "-o", "s", "--processes", "1", *more]


@pytest.fixture(scope="module", params=[FLEET, GPU], ids=["fleet", "gpu"])
def once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Grid, Path]:
    """A grid and the folder of its sweep, for all tests."""
    folder = tmp_path_factory.mktemp("once")
    with contextlib.chdir(folder), pytest.raises(SystemExit) as ended:
        main(sweeping(request.param, *request.param.axis))
    assert ended.value.code == 0
    return request.param, folder / "s"


@pytest.fixture
def swept(once: tuple[Grid, Path], call: Call, tmp_path: Path) -> Grid:
    """A grid whose sweep lies in the folder s, which is the test's own."""
    shutil.copytree(once[1], tmp_path / "s")
    return once[0]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The program, in this process and in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def called(*arguments: object) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return Ended(ended.value.code, *capsys.readouterr())

    return called


def test_a_sweep_is_taken_up_again_and_keeps_its_results(swept: Grid, call: Call) -> None:
    done = {path: path.read_bytes() for path in Path("s/cells").glob("*.json")}
    assert len(done) == 4
    again = call(*sweeping(swept, *swept.wider), "--json")
    assert "4 of 6 cells are done already" in again.err
    assert all(path.read_bytes() == text for path, text in done.items())
    assert call(swept.scale, "sweep", "-o", "s", "--json").json == again.json  # by the grid that lies in the folder
    assert len({json.dumps(row["values"]) for row in again.json}) == len(again.json) == 6
    table = pl.read_parquet("s/results.parquet")
    assert table.height == pl.read_csv("s/results.csv").height == 6
    assert table[swept.number].null_count() == 0
    assert table["error"].to_list() == [""] * 6


def test_cells_are_compared_with_the_baseline_that_is_named(swept: Grid, call: Call) -> None:
    first, second = swept.policies
    rows = call(swept.scale, "sweep", "-o", "s", "--json").json
    assert [row["baseline"] for row in rows] == [first] * 4
    for mine, other in zip(rows[2:], rows[:2], strict=True):
        assert other["slowdown_change"] is None
        assert mine["slowdown_change"] == pytest.approx(mine[swept.number] / other[swept.number] - 1)
        assert mine["values"] | {"policy.name": first} == other["values"]
    turned = call(swept.scale, "sweep", "-o", "s", "--baseline", second, "--json")
    assert "4 of 4 cells are done already" in turned.err
    assert [row["slowdown_change"] is None for row in turned.json] == [False, False, True, True]
    wrong = call(swept.scale, "sweep", "-o", "s", "--baseline", "none")
    assert (wrong.status, wrong.out) == (2, "")
    assert f"policy.name has the values {first}, {second}" in wrong.err


def test_a_cell_is_the_run_that_simulate_makes_and_its_tape_can_be_kept(swept: Grid, call: Call) -> None:
    scale, *work = swept.words
    kept = call(scale, "sweep", "-o", "s", "--keep-runs", "--processes", "1", "--json")
    assert "run again, for their tapes were not kept: 4 cells that are done" in kept.err
    alone = call(scale, "simulate", *work, *swept.last, "--policy", swept.policies[1], "--json").json
    assert kept.json[3]["digest"] == alone["digest"]
    assert kept.json[3][swept.number] == alone[swept.number]
    runs = sorted(Path("s/runs").iterdir())
    assert len(runs) == 4
    assert "nothing wrong" in call("audit", runs[0]).out
    assert "identical" in call("replay", runs[0]).out
    assert "4 of 4 cells are done already" in call(scale, "sweep", "-o", "s", "--keep-runs").err


def test_every_line_of_the_table_says_which_cell_it_is(swept: Grid, call: Call) -> None:
    printed = call(swept.scale, "sweep", "-o", "s").out
    for policy in swept.policies:
        assert [f"{policy}, {label}" in printed for label in swept.labels] == [True, True]
    if swept.scale == "fleet":
        assert "vs hash" in printed
        assert "vs compass" in call("fleet", "sweep", "-o", "s", "--baseline", "compass").out


@pytest.mark.parametrize("grid", [FLEET, GPU], ids=["fleet", "gpu"])
def test_seeds_are_cells_and_their_means_have_intervals(grid: Grid, call: Call) -> None:
    ended = call(*sweeping(grid, "--policies", grid.policies[0], "--seeds", "2", "--json"))
    (row,) = ended.json
    assert [run["seed"] for run in row["runs"]] == [0, 1]
    assert row[grid.number] == pytest.approx(sum(run[grid.number] for run in row["runs"]) / 2)
    assert row[f"{grid.number}_low"] <= row[grid.number] <= row[f"{grid.number}_high"]


@pytest.mark.parametrize("seeds", ["0", "-1", "1000000"])
@pytest.mark.parametrize("words", [sweeping(FLEET), sweeping(GPU), (*JOBS, "-o", "s")], ids=["fleet", "gpu", "jobs"])
def test_a_number_of_seeds_that_cannot_be_is_one_line(call: Call, words: Sequence[str], seeds: str) -> None:
    ended = call(*words, "--set", f"measure.seeds={seeds}")
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "must lie in 1 to 1,000" in ended.err
    assert not Path("s").exists()


def test_a_folder_of_another_scale_is_refused(swept: Grid, call: Call) -> None:
    ended = call("jobs", "sweep", "-o", "s")
    assert (ended.status, ended.out) == (2, "")
    assert f"is about {swept.scale}, and this is a sweep of jobs" in ended.err


# --- what a cell depends on -------------------------------------------------------------------------------------


def digest(**tables: Any) -> str:
    """What a cell with these tables goes by."""
    return identity.digest(identity.with_absolute_paths(typed(dict(tables), "test")))


def test_a_cell_of_a_fleet_goes_by_the_scenario_its_base_and_its_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("under.toml").write_text('base = "compass"\n[workload]\nrate = 2.0\n')
    Path("mine.toml").write_text('base = "under.toml"\nmeasured = "times.toml"\n')
    Path("times.toml").write_text("a = 1\n")

    def now(scenario: str = "mine.toml") -> str:
        return digest(scale="fleet", serving={"scenario": scenario})

    before = now()
    assert before == now(str(tmp_path / "mine.toml")) != now("compass")
    seen = {before}
    for name, text in (
        ("times.toml", "a = 2\n"),
        ("under.toml", 'base = "compass"\n[workload]\nrate = 3.0\n'),
        ("mine.toml", 'base = "under.toml"\n'),
    ):
        Path(name).write_text(text)
        assert now() not in seen, name
        seen.add(now())


def test_a_cell_of_a_gpu_goes_by_the_contents_of_its_traces_and_their_priorities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = kernel_programs.FOLDER
    Path("a.parquet").write_bytes((shipped / "matmul.parquet").read_bytes())

    def now(low: str) -> str:
        return digest(scale="gpu", gpu={"high": ["resnet50"], "low": [low]})

    before, above = now("a.parquet"), now("a.parquet@3")
    assert before == now(str(tmp_path / "a.parquet"))
    assert len({before, now("a.parquet@3"), now("a.parquet@4"), now("matmul"), now("matmul@3")}) == 5
    Path("a.parquet").write_bytes((shipped / "vgg16.parquet").read_bytes())
    assert now("a.parquet") != before
    assert now("a.parquet@3") not in (above, now("a.parquet"))


def test_shipped_scenarios_and_programs_belong_to_the_code(tmp_path: Path) -> None:
    seen = set()
    for name in ("fleet/scenarios/shipped/compass.toml", "profiling/pairs.json", "gpu/programs/shipped/bert.parquet"):
        (tmp_path / name).parent.mkdir(parents=True)
        for text in ("one", "two"):
            (tmp_path / name).write_text(text)
            seen.add(identity.code_of(tmp_path))
    assert len(seen) == 6


def test_names_stay_names_and_files_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("compass", "resnet50"):  # folders that happen to be called so
        Path(name).mkdir()
    Path("a.parquet").write_bytes((kernel_programs.FOLDER / "matmul.parquet").read_bytes())
    fleet: toml.Document = {
        "scale": "fleet",
        "serving": {"scenario": "compass"},
        "workload": {"arrivals": "gamma:1.5"},
    }
    assert identity.grid_with_absolute_paths(fleet, {"workload.arrivals": ["gamma:0.5", "uniform:0.1,0.2"]}) == (
        fleet,
        {"workload.arrivals": ["gamma:0.5", "uniform:0.1,0.2"]},
    )
    assert identity.with_absolute_paths(typed(dict(fleet), "test")).serving.scenario == "compass"
    gpu: toml.Document = {"scale": "gpu", "gpu": {"high": ["resnet50"], "low": ["./a.parquet@3"]}}
    document, axes = identity.grid_with_absolute_paths(gpu, {"gpu.low": [["matmul@2"], ["a.parquet", "a.parquet@4"]]})
    own = str(tmp_path / "a.parquet")
    assert document["gpu"] == {"high": ["resnet50"], "low": [f"{own}@3"]}
    assert axes == {"gpu.low": [["matmul@2"], [own, f"{own}@4"]]}


@pytest.mark.parametrize(
    ("key", "value"), [("trace.path", 5), ("cluster.file", [5]), ("measure.baseline", 5), ("trace.path", "a\0b")]
)
def test_what_no_file_can_be_called_is_one_line(call: Call, tmp_path: Path, key: str, value: Any) -> None:
    document: toml.Document = {
        "scale": "jobs",
        "cluster": {"nodes": 1, "gpus_per_node": 8} if key != "cluster.file" else {},
        "sweep": {"policy": {"name": ["fifo", "srtf"]}},
    }
    toml.put(document, key, value)
    (tmp_path / "grid.toml").write_text(toml.write(document))
    ended = call("jobs", "sweep", "--grid", "grid.toml", "-o", "s")
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "internal error" not in ended.err


def test_scenarios_say_which_files_they_are_read_from(tmp_path: Path) -> None:
    assert scenario_file.files_of("compass") == [scenario_file.FOLDER / "compass.toml"]
    (tmp_path / "mine.toml").write_text('base = "esg"\n')
    found = scenario_file.files_of(str(tmp_path / "mine.toml"))
    assert found[:2] == [tmp_path / "mine.toml", scenario_file.FOLDER / "esg.toml"]
