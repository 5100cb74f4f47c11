"""The ``[cluster]`` table: all that a cluster can be made of."""

from headway.formats import toml
from headway.jobs.model.cluster import Node, Partition, Tenant
from headway.jobs.tables import cluster as cluster_table


def test_every_kind_of_node_and_level_can_be_described() -> None:
    table = toml.typed(
        {
            "node_groups": [
                {"nodes": 2, "gpus": 8, "gpu_type": "a100", "cpus": 96, "memory": "1TB", "storage": "2GB/s"},
                {"nodes": 2, "gpus": 4, "gpu_type": "v100"},
            ],
            "gpu_speed": {"v100": 0.5},
            "levels": [{"name": "rack", "nodes_per_domain": 2, "bandwidth": "12.5GB/s"}],
            "islands": [4],
            "partitions": [{"name": "big", "nodes": "0-1"}, {"name": "old", "nodes": [3, 2]}],
            "tenants": [{"name": "t", "weight": 2, "guaranteed_gpus": 8, "limit_gpus": 16, "borrow": True}],
        },
        cluster_table.ClusterTable,
        "test",
    )
    cluster = cluster_table.build(table)
    first = Node("n0", 8, "a100", 96_000, 10**12, 2 * 10**9, ("rack0",), (4,))
    assert cluster.nodes[0] == first
    assert [node.path for node in cluster.nodes] == [("rack0",), ("rack0",), ("rack1",), ("rack1",)]
    assert [level.name for level in cluster.levels] == ["rack", "node", "island"]
    assert cluster.levels[0].bandwidth_bytes_per_second == 12_500_000_000
    assert cluster.partitions == (Partition("big", (0, 1)), Partition("old", (2, 3)))
    assert cluster.tenants == (Tenant("t", 2, 8, 16, True),)
    assert cluster.gpu_speed_ppm == {"v100": 500_000}
