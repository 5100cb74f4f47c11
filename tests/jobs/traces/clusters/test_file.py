"""Clusters from several files: nodes and partitions come together, by name."""

from pathlib import Path

import pytest

from headway.errors import ExperimentError
from headway.formats import toml
from headway.jobs.experiment.scene import prepare
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.tables.cluster import ClusterTable
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces.clusters import file as cluster_file
from headway.jobs.traces.clusters.file import Described, NodeRecord, PartitionRecord, merged, read
from headway.runs.folder.folder import open_run
from headway.runs.play import run


def node(name: str, **fields: object) -> NodeRecord:
    return NodeRecord(name, **{"gpus": 8, "gpu_type": "a100", "cpus": 64, "memory_bytes": 1 << 39, **fields})  # type: ignore[arg-type]


def test_runs_of_equal_nodes_become_groups_with_their_names() -> None:
    found = Described((node("a1"), node("a2", partitions=("p",)), node("b1", gpus=4), node("a3")))
    table = merged([found], ClusterTable())
    assert [(group.nodes, group.gpus, group.names) for group in table.node_groups] == [
        (2, 8, ["a1", "a2"]),
        (1, 4, ["b1"]),
        (1, 8, ["a3"]),
    ]
    cluster = cluster_table.build(table)
    assert [each.name for each in cluster.nodes] == ["a1", "a2", "b1", "a3"]
    assert cluster.nodes[0].memory_bytes == 1 << 39
    assert [(each.name, each.nodes) for each in cluster.partitions] == [("p", (1,))]


def test_partitions_come_from_their_own_file_and_from_the_nodes() -> None:
    nodes = Described((node("a", partitions=("x",)), node("b"), node("c", partitions=("y",))))
    partitions = Described((), (PartitionRecord("y", ("a", "elsewhere"), 7), PartitionRecord("empty", ("gone",))))
    table = merged([nodes, partitions], ClusterTable())
    assert [(each.name, each.nodes, each.priority) for each in table.partitions] == [("y", [0, 2], 7), ("x", [0], 0)]


def test_a_node_that_two_files_name_is_one_node_in_both_their_partitions() -> None:
    table = merged(
        [Described((node("a", partitions=("x",)),)), Described((node("a", partitions=("y",)),))], ClusterTable()
    )
    assert len(table.node_groups) == 1
    assert {each.name for each in table.partitions} == {"x", "y"}


def test_partitions_without_nodes_are_no_cluster() -> None:
    with pytest.raises(ExperimentError, match="no node"):
        merged([Described((), (PartitionRecord("p", ("a",)),))], ClusterTable())


def test_a_toml_file_is_a_cluster_with_or_without_its_heading(tmp_path: Path) -> None:
    for text in ("nodes = 4\ngpus_per_node = 8\n", "[cluster]\nnodes = 4\ngpus_per_node = 8\n"):
        (tmp_path / "c.toml").write_text(text)
        table, notes, *_ = read([str(tmp_path / "c.toml")])
        assert (table.nodes, table.gpus_per_node, notes) == (4, 8, ())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        (b"", "is empty"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"\x1f\x8b\x08\x00", "truncated"),
        (b"hello\n", "none of the files that describe a cluster"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "nodes.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ExperimentError, match=message):
        read([str(path)])


def test_a_cluster_file_is_written_out_in_the_stored_experiment(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('node_groups = [{ nodes = 2, gpus = 4, names = ["x", "y"] }]\n')
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus,partition\n0,60,4,gone\n1,60,4,gone\n")
    document = {
        "cluster": {"file": str(tmp_path / "c.toml"), "tenancy": "quotas"},
        "trace": {"path": str(tmp_path / "jobs.csv")},
        "run": {"out": str(tmp_path / "run")},
    }
    result = run(toml.typed(document, Experiment, "test"))
    assert any("partitions: those of 2 jobs are ignored" in note for note in result.scene.notes)
    (tmp_path / "c.toml").unlink()
    stored = open_run(tmp_path / "run")
    assert [each.name for each in stored.scene.cluster.nodes] == ["x", "y"]
    assert [tenant.guaranteed_gpus for tenant in stored.scene.cluster.tenants] == [8]


def test_files_and_a_size_at_once_are_refused() -> None:
    document = {"cluster": {"file": "c.toml", "nodes": 3}, "trace": {"path": "jobs.csv"}}
    with pytest.raises(ExperimentError, match="both files and nodes"):
        prepare(toml.typed(document, Experiment, "test"))
    document = {"cluster": {"file": "c.toml", "cpus_per_node": 3}, "trace": {"path": "jobs.csv"}}
    with pytest.raises(ExperimentError, match=r"cpus_per_node = 3 stands beside c.toml, which says what each node has"):
        prepare(toml.typed(document, Experiment, "test"))
    assert cluster_file.SOURCES is not None
