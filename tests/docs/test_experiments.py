"""docs/reference/experiments.md and the files in experiments/: valid, complete, and runnable as they are described."""

import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from headway.cli import main
from headway.errors import ExperimentError, TapeError
from headway.fleet.experiment import scene as fleet
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.formats import toml
from headway.gpu.experiment.settings import GpuExperiment
from headway.jobs.experiment.policy import MIGRATIONS, SWITCH
from headway.jobs.experiment.scene import prepare
from headway.jobs.experiment.speed import COMPLETIONS, MODELS
from headway.jobs.model.sensitivity import Matrix
from headway.jobs.policies.registry import ALLOCATIONS, build
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.tables.profiles import SHIPPED
from headway.jobs.tables.settings import Experiment
from headway.runs.folder.folder import SCHEMA_VERSION, open_run
from headway.runs.registry import DOMAINS, domain
from headway.runs.settings import files
from headway.runs.sweep.cells import POLICY, TABLE
from headway.runs.sweep.sweep import axes_of, cells_of
from tests.docs.pages import PAGES, ROOT, blocks, code, name, read, tables

PAGE = read("docs/reference/experiments.md")
MAIN, CLUSTER, LIMITS, TIERS, DIVISION, VARIANTS, GPU = (block.text for block in blocks(PAGE, "toml"))
COMMENTED = re.compile(r"^# (?=\w+ = )", re.MULTILINE)
ALL = sorted((ROOT / "experiments").glob("*.toml"))
FILES, FLEETS = ([path for path in ALL if toml.read(path)["scale"] == scale] for scale in ("jobs", "fleet"))
SAMPLES = {"philly-csv": "philly.csv", "helios-csv": "helios.csv", "synergy": "synergy.csv", "headway": "headway.csv"}
SCALES = (Experiment, ServingExperiment, GpuExperiment)
ROWS = "".join(f"{60 * i},{600 + 97 * i % 5000},{2 ** (i % 5)},{'abc'[i % 3]}\n" for i in range(60))


def _struct(kind: Any) -> Any:
    """The struct that a key holds, one or a list of them or perhaps none; None for plain values."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next(filter(None, map(_struct, get_args(kind))), None)


def _keys(kind: Any, prefix: str = "") -> Iterator[str]:
    """Every key that a struct knows, dotted."""
    for field in msgspec.structs.fields(kind):
        key = f"{prefix}{field.encode_name}"
        if (inner := _struct(field.type)) is not None:
            yield from _keys(inner, f"{key}.")
        else:
            yield key


def _given(value: Any, prefix: str = "") -> Iterator[str]:
    """Every key that a document gives, dotted."""
    items = value if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, dict):
            for key, inner in item.items():
                yield f"{prefix}{key}"
                yield from _given(inner, f"{prefix}{key}.")


def _documents() -> list[toml.Document]:
    """The blocks of the page, and once more with what is commented out as an alternative."""
    texts = (MAIN, CLUSTER, LIMITS, TIERS, DIVISION, VARIANTS, COMMENTED.sub("", MAIN))
    return [{"scale": "jobs"} | tomllib.loads(text) for text in texts]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the trace that the page speaks of."""
    (tmp_path / "jobs.csv").write_text(f"submit_s,work_s,gpus,tenant\n{ROWS}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_blocks_of_the_page_are_experiments_without_an_unknown_key() -> None:
    for document in _documents():
        assert list(files.variants(document, "docs/reference/experiments.md"))


def test_every_key_of_an_experiment_stands_in_a_block_of_the_page() -> None:
    given = {key for document in _documents() for key in _given(document)}
    assert set(_keys(Experiment)) - given == set()


def test_the_experiment_on_the_page_runs_and_leaves_the_files_that_it_names(folder: Path) -> None:
    (folder / "mine.toml").write_text(MAIN)
    with pytest.raises(SystemExit) as ended:
        main(["run", "mine.toml"])
    assert ended.value.code == 0
    comment = next(line.partition("#")[2] for line in MAIN.splitlines() if line.startswith("out = "))
    assert {path.name for path in (folder / "runs" / "mine").iterdir()} == set(re.findall(r"[\w.]+", comment))
    stored = open_run(folder / "runs" / "mine")
    assert {tenant.name for tenant in stored.scene.cluster.tenants} == {"a", "b", "c"}
    assert stored.scene.policy().name == "tiresias(thresholds=1h/10h)+easy+migrate+quantum(5m)"


def test_the_experiment_of_one_gpu_has_every_key_and_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tomllib.loads(GPU)
    assert set(_keys(GpuExperiment)) - set(_given(document)) == set()
    (folder / "pair.toml").write_text(GPU)
    with pytest.raises(SystemExit) as ended:
        main(["run", "pair.toml", "--set", "gpu.seconds=0.03"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2
    comment = next(line.partition("#")[2] for line in GPU.splitlines() if line.startswith("out = "))
    kept = [path for path in (folder / "runs" / "pair").iterdir() if path.is_dir()]
    assert {open_run(variant).scene.policy().name for variant in kept} == {"mps", "headway"}
    for variant in kept:
        assert {path.name for path in variant.iterdir()} == set(re.findall(r"[\w.]+", comment))
        assert open_run(variant).scene.experiment.gpu.slo == "1.05"


def test_the_scales_of_the_page_are_those_that_exist() -> None:
    ((_, rows),) = (found for found in tables(PAGE) if found[0][0] == "`scale`")
    assert [row[0].strip("`") for row in rows] == list(DOMAINS)
    for scale, _, own in rows:
        known = {field.encode_name for field in msgspec.structs.fields(domain(scale.strip("`")).tables)}
        listed = set(re.findall(r"`\[(\w+)\]`", own))
        assert known - {"scale", "policy", "run", "measure", "variants"} == listed


def test_a_run_folder_says_its_version_and_scale_first(folder: Path) -> None:
    (folder / "mine.toml").write_text(MAIN)
    with pytest.raises(SystemExit):
        main(["run", "mine.toml"])
    stored = (folder / "runs" / "mine" / "experiment.toml").read_text().splitlines()
    assert stored[:2] == [f"version = {SCHEMA_VERSION}", 'scale = "jobs"']
    (folder / "runs" / "mine" / "experiment.toml").write_text("\n".join(stored[1:]))
    with pytest.raises(TapeError, match="run the experiment again"):
        open_run(folder / "runs" / "mine")


def test_the_cluster_on_the_page_is_built_as_its_comments_say(folder: Path) -> None:
    document = tomllib.loads(CLUSTER) | {"trace": {"path": "jobs.csv"}}
    scene = prepare(toml.typed(document, Experiment, "page"))
    assert scene.cluster.gpus == 60 * 8 + 20 * 4
    assert scene.cluster.gpu_speed_ppm == {"v100": 400_000}
    assert [level.name for level in scene.cluster.levels] == ["node", "island"]
    assert scene.cluster.partitions[0].nodes == tuple(range(60, 80))
    assert scene.speed().sharing_penalty_ppm == 200_000


def test_the_division_on_the_page_is_prepared_as_its_comments_say(folder: Path) -> None:
    shutil.copy(SHIPPED / "gnmt.toml", folder / "mine.toml")
    document = tomllib.loads(CLUSTER) | tomllib.loads(DIVISION) | {"trace": {"path": "jobs.csv"}}
    scene = prepare(toml.typed(document, Experiment, "page"))
    assert scene.policy().name == "fifo+tune+round(5m)"
    sensitivity = scene.speed().sensitivity
    assert isinstance(sensitivity, Matrix)
    assert sensitivity.profiles["gnmt"] != scene.speed().profiles["gnmt"], "the truth is not what is believed"
    assert scene.completions() == 0
    for key, said in (("model", set(MODELS)), ("completions", set(COMPLETIONS))):
        line = re.search(rf'^{key} = "[a-z]+" +# (.+)$', DIVISION, re.MULTILINE)
        assert line is not None
        assert said <= set(re.findall(r"[a-z-]+", line[1]))


def test_the_choices_in_comments_are_those_that_exist() -> None:
    choices = {
        "tenancy": set(cluster_table.TENANCIES),
        "sizing": set(cluster_table.SIZINGS),
        "migration": set(MIGRATIONS),
        "preemption": {key for key in SWITCH if key},
        "allocation": set(ALLOCATIONS),
    }
    for key, valid in choices.items():
        line = re.search(rf'^{key} = "([a-z-]+)" +# ([^:;\n]+)', MAIN + DIVISION, re.MULTILINE)
        assert line is not None, key
        said = set(re.findall(r"[a-z-]+", line[2].partition("left out")[0])) - {"or"}
        assert said | {line[1]} == valid


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ExperimentError, match="did you mean 'gpu_speed'"):
        toml.typed({"cluster": {"gpu_speeds": {}}}, Experiment, "page")


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_dotted_key_that_a_document_names_exists(path: Path) -> None:
    found = [(field.encode_name, _struct(field.type)) for kind in SCALES for field in msgspec.structs.fields(kind)]
    tables = {table for table, kind in found if kind is not None} - ({"gpu"} if "kubernetes" in path.name else set())
    valid = {f"{table}.{field.encode_name}" for table, kind in found if kind for field in msgspec.structs.fields(kind)}
    named = re.findall(rf"(?<![\w/.-])(?:{'|'.join(tables)})\.[a-z_]+\b(?!\()", code(read(path)))
    assert {key for key in named if not key.endswith((".py", ".md", ".toml", ".json"))} - valid == set()


@pytest.mark.parametrize("path", FILES, ids=name)
def test_an_experiment_of_the_repository_is_listed_and_can_be_prepared(path: Path) -> None:
    assert f"../experiments/{path.name}" in PAGE
    trace = toml.read(path)["trace"]
    given = [f"trace.{kind}.jobs=200" for kind in ("synthetic", "synergy") if kind in trace]
    if "path" in trace:
        given = [f"trace.path={ROOT / 'tests' / 'samples' / SAMPLES[trace['format']]}"]
    found = files.read(path, [*given, "trace.skip_infeasible=true", 'measure.jobs=""'])
    assert len(found) == len({label for label, _ in found}) > 1
    for _, each in found:
        scene = prepare(each)
        assert scene.jobs
        assert build(scene.policy().name).name == scene.policy().name


@pytest.mark.parametrize("path", FLEETS, ids=name)
def test_an_experiment_with_a_fleet_is_listed_and_can_be_prepared(path: Path) -> None:
    assert f"../experiments/{path.name}" in PAGE
    document = toml.read(path)
    toml.put(document, "workload.requests", 50)
    found = _cells(document, path.name) if TABLE in document else list(files.variants(document, path.name))
    assert len(found) == len({label for label, _ in found}) > 1
    for _, each in found:
        assert len(fleet.prepare(each).requests) == 50


def _cells(document: dict[str, Any], where: str) -> list[tuple[str, Any]]:
    """The cells of a grid with its first seed, and one value of each key but the policy: all is drawn alike."""
    axes = axes_of(document)
    kept = {key: values if key == POLICY else values[:1] for key, values in axes.items()}
    toml.put(document, "measure.seeds", 1)
    return [(cell.name, cell.experiment) for cell in cells_of(document, kept, where)]


def test_the_commands_in_the_heads_of_the_files_name_the_file_and_keys_that_exist() -> None:
    for path in ALL:
        verb = r"fleet sweep --grid" if TABLE in toml.read(path) else "run"
        commands = re.findall(rf"^#   headway {verb} (\S+)(.*)$", path.read_text(), re.MULTILINE)
        assert commands, path.name
        for named, rest in commands:
            assert ROOT / named == path
            if path in FILES:
                assert files.read(path, re.findall(r"--set (\S+)", rest))


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", str(ROOT / "experiments" / "example.toml"), "--set", "trace.synthetic.jobs=150"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert len(out.splitlines()) == 1 + 4
    assert "quotas, borrowing" in out


def test_the_command_for_public_traces_runs_on_a_sample(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = re.findall(r"`headway (run experiments/[^`]+)`", PAGE)
    sample = ROOT / "tests" / "samples" / "philly.csv.gz"
    words = [word.replace("philly.csv.gz", str(sample)) for word in command.split()]
    with pytest.raises(SystemExit) as ended:
        main([str(ROOT / word) if word.startswith("experiments/") else word for word in words])
    assert ended.value.code == 0
    assert "by level" in capsys.readouterr().out


def test_the_scale_figure_of_compass_has_the_requests_that_the_results_say() -> None:
    document = toml.read(ROOT / "experiments" / "compass-scale.toml")
    heading = re.search(r"### ([\d,]+) requests at (\d+) a second", read("docs/background/results/serving.md"))
    assert heading is not None
    assert document["workload"]["requests"] == int(heading[1].replace(",", ""))
    assert document["workload"]["rate"] == int(heading[2])
