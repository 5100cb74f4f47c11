"""Clusters: topology of any depth, and what is refused."""

import pytest

from headway.errors import ExperimentError
from headway.training.cluster import Cluster, Level, Node, Partition, uniform


def test_equal_nodes_under_two_levels_with_islands() -> None:
    cluster = uniform(12, 8, nodes_per_group=[("zone", 6), ("rack", 3)], island_gpus=(4, 2), cpus_per_node=64)
    assert [level.name for level in cluster.levels] == ["zone", "rack", "node", "island", "island1"]
    assert [level.name for level in cluster.outer_levels] == ["zone", "rack"]
    assert cluster.node_level == 2
    assert cluster.gpus == 96
    assert cluster.nodes[7].path == ("zone1", "rack2")
    assert cluster.nodes[7].name == "n07"
    assert cluster.nodes[7].cpu_milli == 64_000


@pytest.mark.parametrize(
    ("nodes", "levels", "partitions", "text"),
    [
        ((), (Level("node"),), (), "at least one node"),
        ((Node("a", 1),), (Level("rack"),), (), "'node' exactly once"),
        ((Node("a", 1),), (Level("node"), Level("node")), (), "distinct"),
        ((Node("a", 1), Node("a", 1)), (Level("node"),), (), "same name"),
        ((Node("a", -1),), (Level("node"),), (), "gpus -1"),
        ((Node("a", 1),), (Level("rack"), Level("node")), (), "needs a domain"),
        ((Node("a", 1),), (Level("node"), Level("island")), (), "an island size"),
        ((Node("a", 1),), (Level("node"),), (Partition("p", (1,)),), "partition p: names a node that does not exist"),
    ],
)
def test_what_is_no_cluster(
    nodes: tuple[Node, ...], levels: tuple[Level, ...], partitions: tuple[Partition, ...], text: str
) -> None:
    with pytest.raises(ExperimentError, match=text):
        Cluster(nodes, levels, partitions)


@pytest.mark.parametrize(("nodes", "gpus"), [(0, 8), (-1, 8), (2, -1)])
def test_a_cluster_of_nothing_cannot_be_built(nodes: int, gpus: int) -> None:
    with pytest.raises(ExperimentError, match="cannot be built"):
        uniform(nodes, gpus)
