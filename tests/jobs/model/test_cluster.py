"""Clusters: topology of any depth, and what is refused."""

import pytest

from headway.errors import ExperimentError
from headway.jobs.model.cluster import Cluster, Level, Node, Partition, Tenant, uniform


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
        ((Node("a", 1), Node("a", 1)), (Level("node"),), (), "two nodes of the cluster have the same name 'a'"),
        ((Node("a", 1),), (Level("node"),), (Partition("p", (0,)), Partition("p", ())), "two partitions .* name 'p'"),
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


@pytest.mark.parametrize(
    ("tenants", "text"),
    [
        ((Tenant("t"), Tenant("u"), Tenant("t")), "two tenants of the cluster have the same name 't'"),
        ((Tenant("t", 1, 5, 4),), "tenant t: guaranteed_gpus 5 must not be above limit_gpus 4"),
        ((Tenant("t", 1, 5), Tenant("u", 1, 4)), "guaranteed_gpus sum to 9, which is more than the cluster's 8 GPUs"),
    ],
)
def test_quotas_that_cannot_be_kept_are_refused(tenants: tuple[Tenant, ...], text: str) -> None:
    with pytest.raises(ExperimentError, match=text):
        uniform(2, 4, tenants=tenants)


def test_quotas_may_use_up_the_cluster_and_the_limit() -> None:
    cluster = uniform(2, 4, tenants=(Tenant("t", 1, 4, 4), Tenant("u", 1, 4, 8, True), Tenant("v")))
    assert [tenant.name for tenant in cluster.tenants] == ["t", "u", "v"]
