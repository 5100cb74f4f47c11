"""Kubernetes' own rules: quantities, requests, the names of GPUs, and what a pod tells about itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from headway.errors import TraceError
from headway.jobs.kubernetes import ObjectError, Slicing, objects, pod
from headway.jobs.kubernetes.nodes import gpu_type
from headway.jobs.kubernetes.objects import Item
from headway.jobs.kubernetes.resources import (
    Container,
    GpuRequest,
    Resources,
    effective,
    gpu_request,
    marked,
    thousandths,
)

SAMPLES = Path(__file__).parents[2] / "samples"
SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def asks(restart: str | None = None, **requests: str) -> Container:
    return Container(Resources(requests=dict(requests)), restart)


def read(document: Any) -> list[Item | ObjectError]:
    return list(objects(json.dumps(document).encode(), "x", TraceError))


def a_pod(**changes: Any) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "ns", "creationTimestamp": "2024-05-06T08:00:00Z", **changes.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": {}, **changes}


def ended_at(start: str, end: str) -> dict[str, Any]:
    return {"state": {"terminated": {"startedAt": f"2024-05-06T{start}Z", "finishedAt": f"2024-05-06T{end}Z"}}}


def record(**changes: Any) -> Any:
    (item,) = read(a_pod(**changes))
    assert isinstance(item, Item)
    return pod(item)


# --- quantities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 500),
        ("64Gi", 64 * 2**30 * 1000),
        ("1e3", 1_000_000),
        ("1E3", 1_000_000),
        ("1E", None),
        ("2k", 2_000_000),
        ("128974848", 128_974_848_000),
        ("129M", 129_000_000_000),
        ("0.5", 500),
        (".5", 500),
        ("5.", 5_000),
        ("12e-1", 1_200),
        ("100u", 1),
        ("1n", 1),
        ("0", 0),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, value: int | None) -> None:
    if value is None:
        with pytest.raises(ObjectError, match="is too large"):
            thousandths(text)
    else:
        assert thousandths(text) == value


@given(st.integers(0, 2000), st.sampled_from(sorted(SUFFIXES)))
def test_whole_numbers_with_any_suffix_are_exact(number: int, suffix: str) -> None:
    assert thousandths(f"{number}{suffix}") == number * SUFFIXES[suffix] * 1000


@pytest.mark.parametrize("text", ["", "x", "5x", "5 Gi", "1Kib", "1e", "0x10", "1e9999", "nan", "9" * 50, "1_000", "٣"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ObjectError, match="is no quantity like 500m, 2, 1e3 or 64Gi"):
        thousandths(text)


def test_a_negative_quantity_is_refused() -> None:
    with pytest.raises(ObjectError, match="cpu '-1' must not be negative"):
        thousandths("-1", "cpu")


# --- requests -------------------------------------------------------------------------------------------------------


def test_containers_add_up_and_init_containers_count_by_the_widest() -> None:
    assert effective([asks(cpu="1"), asks(cpu="2")], [asks(cpu="2"), asks(cpu="4")]) == {"cpu": 4000}
    assert effective([asks(cpu="3"), asks(cpu="2")], [asks(cpu="4")]) == {"cpu": 5000}


def test_a_sidecar_stays_beside_what_comes_after_it() -> None:
    sidecar = asks("Always", cpu="1")
    assert effective([asks(cpu="2")], [sidecar]) == {"cpu": 3000}
    assert effective([asks(cpu="2")], [sidecar, asks(cpu="4")]) == {"cpu": 5000}
    assert effective([asks(cpu="2")], [asks(cpu="4"), sidecar]) == {"cpu": 4000}


def test_a_limit_without_a_request_is_the_request() -> None:
    both = Container(Resources(requests={"cpu": "1"}, limits={"cpu": "4", "nvidia.com/gpu": 2}))
    assert effective([both]) == {"cpu": 1000, "nvidia.com/gpu": 2000}


def test_overhead_comes_on_top_and_the_whole_pods_request_replaces_the_sum() -> None:
    assert effective([asks(cpu="1")], overhead={"cpu": "250m"}) == {"cpu": 1250}
    asked = effective([asks(cpu="1", memory="1Ki")], pod=Resources(requests={"cpu": "3"}))
    assert asked == {"cpu": 3000, "memory": 1024 * 1000}


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=6), st.lists(st.integers(0, 9), max_size=3))
def test_a_pod_asks_for_as_much_as_its_containers_hold_at_any_moment(
    before: list[tuple[int, bool]], after: list[int]
) -> None:
    moments, staying = [0], 0
    for size, stays in before:
        moments.append(staying + size)
        staying += size if stays else 0
    moments.append(staying + sum(after))
    asked = effective(
        [asks(cpu=str(size)) for size in after],
        [asks("Always" if stays else None, cpu=str(size)) for size, stays in before],
    )
    assert asked.get("cpu", 0) == max(moments) * 1000


# --- GPUs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "gpus", "milli"),
    [
        ({"nvidia.com/gpu": "2"}, 2, 1000),
        ({"amd.com/gpu": "4"}, 4, 1000),
        ({"gpu.intel.com/i915": "1"}, 1, 1000),
        ({"example.org/gpu": "8"}, 8, 1000),
        ({"nvidia.com/mig-3g.20gb": "1"}, 1, 428),
        ({"nvidia.com/mig-7g.80gb": "1"}, 1, 1000),
        ({"nvidia.com/mig-1g.10gb.me": "2"}, 1, 284),
        ({"nvidia.com/mig-1c.3g.40gb": "1"}, 1, 428),
        ({"nvidia.com/mig-2g.12gb": "1"}, 1, 500),
        ({"nvidia.com/mig-4g.40gb": "4"}, 3, 1000),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}, 1, 300),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30", "nvidia.com/gpumem-percentage": "50"}, 1, 500),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpucores": "30"}, 2, 1000),
        ({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-cores": "25"}, 1, 250),
        ({"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "60"}, 1, 600),
        ({"koordinator.sh/gpu": "200", "nvidia.com/gpu": "2"}, 2, 1000),
        ({"alibabacloud.com/gpu-milli": "460", "alibabacloud.com/gpu-count": "1"}, 1, 460),
        ({"alibabacloud.com/gpu-milli": "1000", "alibabacloud.com/gpu-count": "4"}, 4, 1000),
        ({"cpu": "3", "memory": "1Gi", "rdma/hca": "1"}, 0, 1000),
        ({"nvidia.com/gpu": "0"}, 0, 1000),
    ],
)
def test_gpus_by_every_name_become_devices_or_a_share(asked: dict[str, str], gpus: int, milli: int) -> None:
    found = gpu_request({name: thousandths(value) for name, value in asked.items()})
    assert found == GpuRequest(gpus, milli)


def test_a_share_that_the_file_does_not_explain_is_half_a_gpu_and_says_so() -> None:
    for name in ("nvidia.com/gpumem", "aliyun.com/gpu-mem", "nvidia.com/gpu.shared"):
        assert gpu_request({name: 3_000}) == GpuRequest(1, 500, guessed=True)
    assert gpu_request({"nvidia.com/gpu.shared": 1000}, Slicing(replica_milli=250)) == GpuRequest(1, 250)
    assert gpu_request({"nvidia.com/gpu": 1000}, Slicing(device_milli=142)) == GpuRequest(1, 142)


def test_annotations_ask_for_fractions() -> None:
    assert gpu_request(marked({"gpu-fraction": "0.25", "team": "x"})) == GpuRequest(1, 250)
    assert gpu_request(marked({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"})) == GpuRequest(2)
    assert gpu_request(marked({"gpu-memory": "4096"})) == GpuRequest(1, 500, guessed=True)
    assert marked(None) == {}


def test_part_of_a_device_by_count_is_refused() -> None:
    with pytest.raises(ObjectError, match=r"nvidia.com/gpu '1500m' must be a whole number of devices"):
        gpu_request({"nvidia.com/gpu": 1500})


@pytest.mark.parametrize(
    ("label", "short"),
    [
        ("NVIDIA-A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA-A100-SXM4-80GB-SHARED", "a100-sxm4-80gb"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100-sxm4-40gb"),
        ("Tesla-T4", "t4"),
        ("nvidia-tesla-v100", "v100"),
        ("AMD_Instinct_MI300X_OAM", "mi300x-oam"),
        ("", "gpu"),
    ],
)
def test_products_are_named_in_short(label: str, short: str) -> None:
    assert gpu_type(label) == short


# --- pods -----------------------------------------------------------------------------------------------------------


def test_the_gpu_types_of_a_pod_are_those_its_selector_or_affinity_lists() -> None:
    product = "nvidia.com/gpu.product"
    chosen = record(spec={"nodeSelector": {product: "Tesla-T4", "kubernetes.io/os": "linux"}})
    assert (chosen.gpu_types, chosen.unmodelled) == (("t4",), ())

    def required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
        listed = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
        return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": listed}}}

    of = {"key": product, "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"]}
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
    assert record(spec=required([of])).gpu_types == ("h100-80gb-hbm3", "h200")
    assert record(spec=required([of], [zone])).gpu_types == (), "the second alternative takes any GPU"
    assert record(spec=required([of, zone])).unmodelled == ("node affinity",)
    assert record(spec={"affinity": {"podAntiAffinity": {"x": []}}}).unmodelled == ("pod anti-affinity",)
    assert record(spec={"nodeSelector": {"rack": "7"}}).unmodelled == ("a node selector",)
    assert record(spec={"resourceClaims": [{"name": "gpu"}]}).unmodelled == ("resource claims",)


@pytest.mark.parametrize(
    "key",
    ["scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", "kueue.x-k8s.io/pod-group-name"],
)
def test_gangs_are_named_by_a_label(key: str) -> None:
    assert record(metadata={"labels": {key: "g"}}).gang == "g"


def test_gangs_are_named_by_an_annotation_or_the_schedulers_own_field() -> None:
    assert record(metadata={"annotations": {"scheduling.k8s.io/group-name": "g"}}).gang == "g"
    assert record(spec={"schedulingGroup": {"podGroupName": "g"}}).gang == "g"
    both = {"training.kubeflow.org/job-name": "weak", "scheduling.x-k8s.io/pod-group": "strong"}
    assert record(metadata={"labels": both}).gang == "strong"


def test_replicas_of_a_service_and_plain_jobs_are_no_gang() -> None:
    replica = {"labels": {"scheduling.k8s.io/group-name": "g"}, "ownerReferences": [{"kind": "ReplicaSet"}]}
    assert record(metadata=replica).gang == ""
    assert record(metadata={"labels": {"batch.kubernetes.io/job-name": "j"}}).gang == ""
    indexed = {"batch.kubernetes.io/job-name": "j", "batch.kubernetes.io/job-completion-index": "3"}
    found = record(metadata={"labels": indexed})
    assert (found.gang, found.gang_if_at_once, found.rank) == ("j", True, "3")


@pytest.mark.parametrize(
    ("status", "began", "ended"),
    [
        ({"phase": "Pending"}, None, None),
        ({"phase": "Running", "startTime": "2024-05-06T08:00:10Z"}, 10, None),
        ({"phase": "Running", "startTime": "2024-05-06T10:00:10.5+02:00"}, 10.5, None),
        (
            {"phase": "Running", "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2024-05-06T08:00:07Z"}]},
            7, None,
        ),
        (
            {"phase": "Failed", "containerStatuses": [
                ended_at("08:00:05", "08:00:30"), ended_at("08:00:06", "08:00:20")]},
            5, 30,
        ),
        (
            {"phase": "Failed", "startTime": "2024-05-06T08:00:01Z", "initContainerStatuses": [
                {"state": {"terminated": {"finishedAt": "2024-05-06T08:00:09Z"}}}]},
            1, 9,
        ),
        (
            {"phase": "Failed", "startTime": "2024-05-06T08:00:01Z", "containerStatuses": [
                {"state": {"terminated": {"startedAt": None, "finishedAt": "1970-01-01T00:00:00Z"}}}]},
            1, None,
        ),
    ],
)  # fmt: skip
def test_start_and_end_are_found_where_they_are_told(
    status: dict[str, Any], began: float | None, ended: float | None
) -> None:
    found = record(status=status)
    assert (found.started is None, found.ended is None) == (began is None, ended is None)
    if began is not None:
        assert found.started - found.created == began * 10**9
    if ended is not None:
        assert found.ended - found.created == ended * 10**9


def test_an_evicted_pod_ended_when_it_was_disrupted() -> None:
    disrupted = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2024-05-06T08:00:50Z"}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2024-05-06T08:01:00Z"}
    status = {"phase": "Failed", "startTime": "2024-05-06T08:00:01Z", "conditions": [ready, disrupted]}
    found = record(status=status)
    assert (found.stopped, found.ended - found.created) == (True, 50 * 10**9)
    found = record(status={**status, "reason": "Evicted", "conditions": [ready]})
    assert (found.stopped, found.ended - found.created) == (True, 60 * 10**9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": {"name": ""}}, "metadata.name '' is missing: a pod needs a name"),
        ({"metadata": {"creationTimestamp": None}}, "metadata.creationTimestamp '' is missing"),
        (
            {"spec": {"containers": [{"resources": {"requests": {"cpu": "2 cores"}}}]}},
            "cpu '2 cores' is no quantity like 500m, 2, 1e3 or 64Gi",
        ),
        (
            {"status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {
                "startedAt": "2024-05-06T08:10:00Z", "finishedAt": "2024-05-06T08:09:00Z"}}}]}},
            "finishedAt '2024-05-06T08:09:00+00:00' is before startedAt 2024-05-06T08:10:00+00:00",
        ),
        (
            {"status": {"phase": "Failed", "startTime": "2024-05-06T09:00:00Z", "containerStatuses": [
                {"state": {"terminated": {"finishedAt": "2024-05-06T08:09:00Z"}}}]}},
            "status: its end '2024-05-06T08:09:00+00:00' is before its start 2024-05-06T09:00:00+00:00",
        ),
    ],
)  # fmt: skip
def test_a_pod_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ObjectError) as caught:
        record(**changes)
    assert str(caught.value) == message
