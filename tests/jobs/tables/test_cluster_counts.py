"""Files of clusters with numbers that cannot be, and files that were tampered with: a cluster, or one line."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.cli import main
from headway.errors import InputError
from headway.jobs.slurm.output import cells as slurm
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.traces.clusters import file as cluster_file

SAMPLES = Path(__file__).parents[2] / "samples"
FILES = (
    "scontrol-nodes.txt",
    "scontrol-partitions.txt",
    "sinfo-nodes.txt",
    "sinfo.json",
    "nodes.json",
    "openb-nodes.csv",
)
ODD = (
    "-8",
    "-1",
    "+8",
    "8.5",
    "²",
    "9" * 30,
    "1e400",
    "nan",
    "null",
    "",
    "x",
    "[",
    "]",
    ":",
    ",",
    "=",
    "|",
    "\n",
    "\x00",
)


def _read(folder: Path, text: str) -> str:
    """The line with which a file is refused; empty where it is a cluster."""
    path = folder / "cluster.txt"
    path.write_text(text, encoding="utf-8")
    try:
        table, *_ = cluster_file.read([str(path)])
        cluster_table.build(table)
    except InputError as refused:
        return str(refused)
    return ""


def _kubernetes(allocatable: dict[str, object], **metadata: object) -> str:
    about = {"metadata": {"name": "n1", **metadata}, "status": {"allocatable": allocatable}}
    node = {"apiVersion": "v1", "kind": "Node", **about}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [node]})


SHARED = {"labels": {"nvidia.com/gpu.count": "-8"}, "annotations": {"hami.io/node-nvidia-register": "x"}}
JSON_NODE = {"name": "n1", "gres": "gpu:a100:8", "cpus": 64, "real_memory": 1000}
GROUP = {"nodes": {"nodes": ["n1"]}, "partition": {"name": "p"}, "gres": {"total": "gpu:8"}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("NodeName=n1 Gres=gpu:a100:-8 CPUTot=64", "line 1: Gres 'gpu:a100:-8' is not understood"),
        ("NodeName=n1 Gres=gpu:-8 CPUTot=64", "Gres 'gpu:-8' is not understood"),
        ("NodeName=n1 Gres=gpu:a100:2,gpu:h100:-2(S:0-1) CPUTot=64", "is not understood"),
        ("NodeName=n1 Gres=gpu:a100:1.5 CPUTot=64", "Gres 'gpu:a100:1.5' is not understood"),
        ("NodeName=n1 Gres=gpu:a100: CPUTot=64", "Gres 'gpu:a100:' is not understood"),
        ("NodeName=n1 CPUTot=64 CfgTRES=cpu=64,gres/gpu=-8", "CfgTRES 'cpu=64,gres/gpu=-8' is not understood"),
        ("NodeName=n1 Gres=gpu:8 CPUTot=-64", "CPUTot '-64' is not a whole number"),
        ("NodeName=n1 Gres=gpu:8 RealMemory=-5", "RealMemory '-5' is not a whole number"),
        ("NodeName=n1 Gres=gpu:8 Weight=-1", "Weight '-1' is not a whole number"),
        ("PartitionName=p Nodes=n1 PriorityJobFactor=-1", "PriorityJobFactor '-1' is not a whole number"),
        ("NODELIST PARTITION CPUS MEMORY GRES STATE\nn1 p 64 1000 gpu:a100:-8 idle", "Gres 'gpu:a100:-8'"),
        ("NODELIST PARTITION CPUS MEMORY GRES STATE\nn1 p -64 1000 gpu:8 idle", "CPUS '-64' is not a whole number"),
        ("NODELIST PARTITION CPUS MEMORY GRES STATE\nn1 p 64", "line 2: ends before the column GRES"),
        (json.dumps({"nodes": [{**JSON_NODE, "gres": "gpu:a100:-8"}]}), "node 1: Gres 'gpu:a100:-8'"),
        (json.dumps({"nodes": [{**JSON_NODE, "cpus": -64}]}), "node 1: cpus -64 must be a whole number, 0 or more"),
        (json.dumps({"nodes": [{**JSON_NODE, "real_memory": "lots"}]}), "node 1: memory 'lots' must be a whole number"),
        (json.dumps({"nodes": [{**JSON_NODE, "real_memory": {"set": True, "number": -1}}]}), "must be a whole number"),
        (json.dumps({"sinfo": [{**GROUP, "cpus": {"minimum": -4}}]}), "group 1: cpus -4 must be a whole number"),
        (_kubernetes({"nvidia.com/gpu": "-8"}), "nvidia.com/gpu '-8' must not be negative"),
        (_kubernetes({"nvidia.com/gpu": -8}), "nvidia.com/gpu '-8' must not be negative"),
        (_kubernetes({"cpu": "-500m"}), "cpu '-500m' must not be negative"),
        (_kubernetes({"nvidia.com/gpu": 4}, **SHARED), "nvidia.com/gpu.count '-8' must be a whole number, 0 or more"),
        ("sn,cpu_milli,memory_mib,gpu,model\nn1,1000,1000,-8,V100\n", "line 2: gpu '-8' must be a whole number, 0 or"),
        ("sn,cpu_milli,memory_mib,gpu,model\nn1,-1000,1000,8,V100\n", "line 2: cpu_milli '-1000' must be a whole"),
    ],
)  # fmt: skip
def test_a_count_that_cannot_be_is_refused_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    assert line in _read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "gpus", "types"),
    [
        ("gpu:a100:8", 8, ("a100",)),
        ("gpu:a100", 1, ("a100",)),
        ("gpu", 1, ()),
        ("gpu:1g.5gb:7(S:0)", 7, ("1g.5gb",)),
        ("gpu:rtx-3090:4", 4, ("rtx-3090",)),
        ("gres/gpu:2", 2, ()),
    ],
)
def test_names_of_types_are_no_counts(text: str, gpus: int, types: tuple[str, ...]) -> None:
    found = slurm.gres(text)
    assert found is not None
    assert (found.gpus, found.gpu_types) == (gpus, types)


@given(count=st.integers(max_value=-1), kind=st.sampled_from(("", "a100:", "1g.5gb:")))
def test_no_negative_count_is_ever_understood(count: int, kind: str) -> None:
    assert slurm.gres(f"gpu:{kind}{count}") is None
    assert slurm.tres(f"cpu=1,gres/gpu={count}") is None


def test_the_command_line_refuses_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nodes.txt").write_text("NodeName=n1 Gres=gpu:a100:-8 CPUTot=64\n")
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus\n0,60,1\n")
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "simulate", str(tmp_path / "jobs.csv"), "--cluster", str(tmp_path / "nodes.txt")])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert "Gres 'gpu:a100:-8' is not understood: it should be like gpu:a100:4" in err


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(FILES),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(ODD)), min_size=1, max_size=4),
)
def test_a_file_that_was_tampered_with_is_a_cluster_or_one_line(
    tmp_path: Path, name: str, cuts: list[tuple[float, int, str]]
) -> None:
    text = (SAMPLES / name).read_text(encoding="utf-8")
    for place, length, odd in cuts:
        at = int(place * len(text))
        text = text[:at] + odd + text[at + length :]
    assert "\n" not in _read(tmp_path, text)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(FILES),
    which=st.integers(0, 400),
    odd=st.sampled_from(ODD),
)
def test_one_number_replaced_is_a_cluster_or_one_line(tmp_path: Path, name: str, which: int, odd: str) -> None:
    text = (SAMPLES / name).read_text(encoding="utf-8")
    numbers = list(re.finditer(r"\d+", text))
    found = numbers[which % len(numbers)]
    assert "\n" not in _read(tmp_path, text[: found.start()] + odd + text[found.end() :])
