"""Files of Kubernetes objects: what is read, what is refused, and nodes as a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest

from headway.errors import ExperimentError, TraceError
from headway.jobs.kubernetes import ObjectError, Slicing, cluster, describes, objects, pod, slicing
from headway.jobs.kubernetes.objects import Item
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.traces.clusters import file as cluster_file
from headway.jobs.traces.clusters.records import NodeRecord

SAMPLES = Path(__file__).parents[2] / "samples"


def read(document: Any) -> list[Item | ObjectError]:
    return list(objects(json.dumps(document).encode(), "x", TraceError))


def a_pod(**changes: Any) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "ns", "creationTimestamp": "2024-05-06T08:00:00Z", **changes.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": {}, **changes}


def a_node(name: str, labels: dict[str, str] | None = None, **allocatable: str) -> dict[str, Any]:
    given = {key.replace("__", "/").replace("_", "."): value for key, value in allocatable.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi", **given}},
    }


def nodes_of(*items: dict[str, Any]) -> tuple[NodeRecord, ...]:
    return cluster(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}), "cluster x").nodes


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_list_an_object_several_of_them_and_watch_events_are_all_read() -> None:
    one = a_pod()
    text = json.dumps(one)
    for data in (
        {"kind": "List", "items": [one]},
        {"kind": "PodList", "items": [{**one, "kind": ""}]},
        one,
        [one],
        {"type": "ADDED", "object": one},
    ):
        (item,) = read(data)
        assert isinstance(item, Item)
        assert (item.kind, item.metadata.name) == ("Pod", "p")
    assert len(list(objects(f"{text}\n{text}\n\n{text}".encode(), "x", TraceError))) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"metadata": {"creationTimestamp": "2024-05-06T08:00:00"}},
            "metadata.creationTimestamp '2024-05-06T08:00:00' is not understood: expected datetime with a timezone",
        ),
        (
            {"metadata": {"creationTimestamp": "yesterday"}},
            "metadata.creationTimestamp 'yesterday' is not understood: invalid RFC3339 encoded datetime",
        ),
        ({"metadata": {"name": 7}}, "metadata.name '7' is not understood: expected str, got int"),
        ({"spec": {"containers": {}}}, "spec.containers '{}' is not understood: expected array | null, got object"),
    ],
)
def test_an_object_of_the_wrong_shape_is_explained_and_the_others_are_read(
    changes: dict[str, Any], message: str
) -> None:
    bad, good = read({"kind": "List", "items": [a_pod(**changes), a_pod()]})
    assert str(bad).startswith(message)
    assert isinstance(good, Item)
    assert [str(each) for each in read(a_pod(**changes))] == [str(bad)]


def test_conditions_are_read_where_something_depends_on_them() -> None:
    broken = {"conditions": [{"type": "Ready", "lastTransitionTime": "soon"}], "startTime": "2024-05-06T08:01:00Z"}
    ended = {"terminated": {"startedAt": "2024-05-06T08:01:00Z", "finishedAt": "2024-05-06T09:00:00Z"}}
    done = a_pod(status={**broken, "phase": "Succeeded", "containerStatuses": [{"state": ended}]})
    runs = a_pod(status={**broken, "phase": "Running"})
    for document in ({"kind": "List", "items": [done, runs]}, [done, runs], {"kind": "List", "items": [done, runs, 3]}):
        first, second, *_ = read(document)
        assert isinstance(first, Item)
        assert isinstance(second, Item)
        assert pod(first).ended is not None
        with pytest.raises(ObjectError, match=r"status.conditions\[0\].lastTransitionTime 'soon' is not understood"):
            pod(second)


def test_pods_that_spell_their_resources_alike_or_not_are_read_alike() -> None:
    spec = {"containers": [{"resources": {"requests": {"cpu": "2", "nvidia.com/gpu": 1}}}]}
    listed = {"kind": "List", "items": [a_pod(spec=spec), a_pod(spec=spec), a_pod(spec={"containers": [{}]})]}
    for text in (
        json.dumps(listed),
        json.dumps(listed, indent=4),
        json.dumps({**listed, "items": [*listed["items"], 3]}),
    ):
        found = [pod(item) for item in objects(text.encode(), "x", TraceError) if isinstance(item, Item)]
        assert [(each.gpus, each.cpu_milli) for each in found] == [(1, 2000), (1, 2000), (0, 0)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"kind": "List", "items": [{"kind": "Po', "the JSON is truncated: it ends in the middle of an object"),
        (b'{"kind": "List", "items": [', "the JSON is truncated: it ends in the middle of an object"),
        (b'{"kind": "List",\n "items": x}', "line 2 is not JSON (Expecting value)"),
        (b'{"kind": "List", "items": 3}', "items of the List must be a list"),
        (b'{"jobs": []}', "is not a Kubernetes object: \"{'jobs': []}\" has no kind"),
        (b"17", "is not a Kubernetes object: '17' has no kind"),
        (b'{"kind": "\xff"}', "is not UTF-8 text"),
        (b"[" * 100_000, "is not a Kubernetes object: it is nested too deeply"),
    ],
)
def test_a_file_that_is_no_list_of_objects_is_refused_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        list(objects(data, "trace x", TraceError))
    assert str(caught.value) == f"trace x: {message}"


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_the_sample_becomes_a_cluster_with_pools_as_partitions() -> None:
    table, notes, *_ = cluster_file.read([str(SAMPLES / "nodes.json")])
    built = cluster_table.build(table)
    assert [(node.name, node.gpus, node.gpu_type, node.cpu_milli) for node in built.nodes] == [
        ("gpu-0", 8, "a100-sxm4-80gb", 63_000),
        ("gpu-1", 8, "a100-sxm4-80gb", 63_000),
        ("gpu-2", 4, "t4", 31_000),
        ("gpu-3", 4, "a100-sxm4-80gb", 63_000),
        ("cpu-0", 0, "gpu", 63_000),
    ]
    assert built.nodes[2].memory_bytes == 128 * 2**30
    assert {partition.name: partition.nodes for partition in built.partitions} == {
        "a100": (0, 1), "t4": (2,), "mig": (3,), "general": (4,),
    }  # fmt: skip
    assert notes == ("nodes that are cordoned or not ready count all the same: gpu-1, cpu-0",)


def test_shared_gpus_are_counted_as_the_devices_they_are() -> None:
    product = "nvidia.com/gpu.product"
    sliced = {product: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}
    timed = {product: "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "10"}
    renamed = {product: "Tesla-T4", "nvidia.com/gpu.replicas": "4"}
    found = nodes_of(
        a_node("single", sliced, nvidia_com__gpu="56"),
        a_node("timed", timed, nvidia_com__gpu="40"),
        a_node("renamed", renamed, **{"nvidia.com/gpu.shared": "16"}),
    )
    assert [node.gpus for node in found] == [8, 4, 4]
    assert (slicing(sliced).device_milli, slicing(timed).device_milli) == (142, 100)
    assert slicing(renamed) == Slicing(1000, 250)
    virtual = a_node("virtual", {"nvidia.com/gpu.count": "2"}, nvidia_com__gpu="20")
    virtual["metadata"]["annotations"] = {"hami.io/node-nvidia-register": "[]"}
    assert nodes_of(virtual)[0].gpus == 2


def test_capacity_stands_in_for_what_allocatable_leaves_out() -> None:
    node = a_node("n")
    node["status"] = {"capacity": {"cpu": "4", "nvidia.com/gpu": "2"}, "allocatable": {"nvidia.com/gpu": "1"}}
    found = cluster(json.dumps(node), "cluster x")
    assert found.nodes == (NodeRecord("n", 1, "gpu", 4, None),)
    assert found.notes == ("nodes whose allocatable GPUs are fewer than they have count with those: n",)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (a_pod(), "holds no node (Pod): write one with kubectl get nodes -o json"),
        (
            {"apiVersion": "v1", "kind": "List", "items": []},
            "holds no node (nothing): write one with kubectl get nodes",
        ),
        ({"apiVersion": "v1", "kind": "Node"}, "item 1: metadata.name is missing: a node needs a name"),
        (a_node("n", cpu="many"), "cpu 'many' is no quantity like 500m, 2, 1e3 or 64Gi"),
        ({**a_node("n"), "status": 7}, "item 1: status '7' is not understood: expected object, got int"),
    ],
)
def test_a_file_without_sound_nodes_is_refused_in_one_line(document: Any, message: str) -> None:
    text = json.dumps(document)
    assert describes(text)
    with pytest.raises(ExperimentError) as caught:
        cluster(text, "cluster x")
    assert str(caught.value).startswith(f"cluster x: {message}")


def test_a_bad_pod_beside_the_nodes_does_not_matter() -> None:
    assert [node.name for node in nodes_of(a_pod(spec=7), a_node("n"))] == ["n"]
