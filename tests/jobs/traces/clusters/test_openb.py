"""The node list of openb as a cluster."""

from pathlib import Path

import pytest

from headway.errors import ExperimentError
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.traces.clusters import file as cluster_file, openb
from headway.jobs.traces.clusters.records import NodeRecord

SAMPLES = Path(__file__).parents[3] / "samples"
HEADER = "sn,cpu_milli,memory_mib,gpu,model\n"


def test_nodes_keep_their_names_types_and_sizes() -> None:
    found = openb.cluster((SAMPLES / "openb-nodes.csv").read_text(), "cluster x").nodes
    assert found[0] == NodeRecord("sample-node-0", 8, "T4", 64, 256 * 2**30)
    assert found[2] == NodeRecord("sample-node-2", 2, "V100M32", 96, 384 * 2**30)
    assert found[3] == NodeRecord("sample-node-3", 0, "gpu", 32, 128 * 2**30)


def test_the_file_is_recognised_and_becomes_a_cluster() -> None:
    table, notes, *_ = cluster_file.read([str(SAMPLES / "openb-nodes.csv")])
    built = cluster_table.build(table)
    assert [(node.name, node.gpus, node.gpu_type) for node in built.nodes] == [
        ("sample-node-0", 8, "T4"),
        ("sample-node-1", 8, "T4"),
        ("sample-node-2", 2, "V100M32"),
        ("sample-node-3", 0, "gpu"),
    ]
    assert notes == ()
    assert not openb.describes("name,cpu_milli\n")


def test_columns_may_stand_in_any_order_and_blank_lines_are_skipped() -> None:
    text = "model,gpu,memory_mib,cpu_milli,sn,rack\nG2,8,1024,2000,a,7\n\n,0,1024,2999,b,7\n"
    assert openb.cluster(text, "x").nodes == (
        NodeRecord("a", 8, "G2", 2, 2**30),
        NodeRecord("b", 0, "gpu", 2, 2**30),
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,1000,10,eight,T4\n", "line 2: gpu 'eight' must be a whole number, 0 or more"),
        ("a,1000,10,-1,T4\n", "line 2: gpu '-1' must be a whole number, 0 or more"),
        ("a,1000,nan,1,T4\n", "line 2: memory_mib 'nan' must be a whole number, 0 or more"),
        ("a,1000,1e99,1,T4\n", "line 2: memory_mib '1e99' must be a whole number, 0 or more"),
        ("a,500,10,1,T4\n", "line 2: cpu_milli '500' is less than one whole"),
        ("a,1000,10,1,T4\na,1000,10,1,T4\n", "line 3: sn 'a' occurs twice: names must be unique"),
        (",1000,10,1,T4\n", "line 2: sn is empty: a node needs a name"),
        ("a,1000\n", "line 2: has 2 fields, the header 5"),
        ("", "there is a header but no node"),
    ],
)
def test_a_bad_list_is_refused_with_the_line_and_the_rule(rows: str, message: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        openb.cluster(HEADER + rows, "cluster nodes.csv")
    assert str(caught.value) == f"cluster nodes.csv: {message}"
