"""Pods as jobs: what becomes a job, what is left out, what is refused, and how gangs are put together."""

import gzip
import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from headway.errors import TraceError
from headway.jobs.model.job import Job, Outcome
from headway.jobs.traces import Trace, guess, load
from headway.jobs.traces.registry import READERS
from headway.units import HOUR, MINUTE, SECOND

SAMPLES = Path(__file__).parents[2] / "samples"
DAY = "2024-05-06T"
_uids = count()


def at(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    return f"{DAY}{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}Z"


def a_pod(
    name: str,
    start: int | None = 10,
    end: int | None = 110,
    *,
    created: int = 0,
    phase: str = "Succeeded",
    requests: dict[str, str] | None = None,
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod that ran from ``start`` to ``end`` seconds after midnight."""
    asked = {"nvidia.com/gpu": "1"} if requests is None else requests
    told: dict[str, Any] = {"phase": phase}
    if start is not None:
        told["startTime"] = at(start)
    if start is not None and end is not None:
        told["containerStatuses"] = [{"state": {"terminated": {"startedAt": at(start), "finishedAt": at(end)}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": f"u{next(_uids)}", "creationTimestamp": at(created)}
        | (metadata or {}),
        "spec": {"containers": [{"resources": {"requests": asked}}], **spec},
        "status": told | (status or {}),
    }


def read(path: Path, *items: Any, strict: bool = False) -> Trace:
    file = path / "pods.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    return load(file, "kubernetes", strict=strict, skip_bad_rows=True)


def labelled(**labels: str) -> dict[str, Any]:
    return {"labels": {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}}


def gang(name: str) -> dict[str, Any]:
    return {"labels": {"scheduling.x-k8s.io/pod-group": name}}


# --- the sample -----------------------------------------------------------------------------------------------------


def test_the_sample_becomes_the_jobs_it_describes() -> None:
    trace = load(SAMPLES / "pods.json", strict=True)
    assert (trace.format, trace.rows, trace.dropped) == ("kubernetes", 8, ())
    assert trace.jobs == (
        Job(
            0, 0, 4 * HOUR, gpus=8, nodes=2, name="vision/resnet", tenant="vision", gpu_types=("a100-sxm4-80gb",),
            cpu_milli=16_000, memory_bytes=128 * 2**30, priority=1000, qos="batch",
        ),
        Job(
            1, 10 * MINUTE, 30 * MINUTE, name="speech/asr-tune-x7k2p", tenant="speech", cpu_milli=6500,
            memory_bytes=16 * 2**30 + 512 * 10**6 + 2**30 + 128 * 2**20, estimate=2 * HOUR,
        ),
        Job(
            2, 20 * MINUTE, 5 * MINUTE, gpu_milli=428, name="vision/sweep-mig-4", tenant="vision", cpu_milli=2000,
            memory_bytes=8 * 2**30, outcome=Outcome.FAILS, outcome_after=5 * MINUTE,
        ),
        Job(
            3, 30 * MINUTE, 4 * HOUR, gpu_milli=500, name="speech/notebook-ada-0", tenant="speech", cpu_milli=1000,
            memory_bytes=4 * 2**30, qos="research",
        ),
        Job(
            4, HOUR, HOUR, gpus=8, nodes=1, name="speech/lm-pretrain-5hq8z", tenant="speech", cpu_milli=32_000,
            memory_bytes=256 * 2**30, priority=-10, qos="preemptible", outcome=Outcome.CANCELLED, outcome_after=HOUR,
        ),
        Job(
            5, 2 * HOUR, 9 * MINUTE, gpus=0, name="vision/render-0-k0", tenant="vision", cpu_milli=4000,
            memory_bytes=2 * 2**30,
        ),
        Job(
            6, 2 * HOUR, 9 * MINUTE, gpus=0, name="vision/render-1-k1", tenant="vision", cpu_milli=4000,
            memory_bytes=2 * 2**30,
        ),
    )  # fmt: skip
    assert trace.notes == (
        "pods that still ran: 1; their work is counted until the latest time in the file",
        "pods that restarted containers: 1; each is one run, from its first start to its end",
        "pods that were evicted, preempted or deleted: 1; cancelled after what they ran",
    )


def test_the_format_is_told_by_the_beginning_packed_or_not(tmp_path: Path) -> None:
    packed = tmp_path / "pods.json.gz"
    packed.write_bytes(gzip.compress((SAMPLES / "pods.json").read_bytes(), mtime=0))
    assert guess(packed) == guess(SAMPLES / "pods.json") == "kubernetes"
    assert load(packed).jobs == load(SAMPLES / "pods.json").jobs
    assert [reader.NAME for reader in READERS].count("kubernetes") == 1


# --- gangs ----------------------------------------------------------------------------------------------------------


def test_a_gang_is_one_job_from_its_first_start_to_its_last_end(tmp_path: Path) -> None:
    (job,) = read(
        tmp_path,
        a_pod("a", 20, 100, created=5, requests={"nvidia.com/gpu": "4", "cpu": "1"}, metadata=gang("g")),
        a_pod("b", 22, 130, created=3, requests={"nvidia.com/gpu": "4", "cpu": "2"}, metadata=gang("g")),
    ).jobs
    assert job == Job(0, 0, 110 * SECOND, gpus=8, nodes=2, name="ns/g", tenant="ns", cpu_milli=3000)


def test_members_that_shared_a_node_or_differ_are_left_to_the_placement(tmp_path: Path) -> None:
    two, four = {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "4"}
    jobs = read(
        tmp_path,
        a_pod("a", requests=two, metadata=gang("shared"), nodeName="n1"),
        a_pod("b", requests=two, metadata=gang("shared"), nodeName="n1"),
        a_pod("c", requests=two, metadata=gang("differ")),
        a_pod("d", requests=four, metadata=gang("differ")),
        a_pod("e", metadata=gang("single GPUs")),
        a_pod("f", metadata=gang("single GPUs")),
    ).jobs
    assert [(job.name, job.gpus, job.nodes) for job in jobs] == [
        ("ns/shared", 4, 0),
        ("ns/differ", 6, 0),
        ("ns/single GPUs", 2, 0),
    ]


def test_a_launcher_without_gpus_does_not_count_as_a_node(tmp_path: Path) -> None:
    two = {"nvidia.com/gpu": "2"}
    pods = [a_pod(name, requests=two, metadata=gang("mpi"), nodeName=name) for name in "ab"]
    (job,) = read(tmp_path, a_pod("launcher", requests={"cpu": "1"}, metadata=gang("mpi")), *pods).jobs
    assert (job.gpus, job.nodes, job.cpu_milli) == (4, 2, 1000)


def test_parts_of_gpus_in_a_gang_add_up_to_whole_ones(tmp_path: Path) -> None:
    third = {"nvidia.com/mig-3g.20gb": "1"}
    (job,) = read(tmp_path, *(a_pod(name, requests=third, metadata=gang("g")) for name in "abc")).jobs
    assert (job.gpus, job.gpu_milli, job.nodes) == (2, 1000, 0)


def test_a_replaced_member_counts_once_and_its_replacement_decides_the_outcome(tmp_path: Path) -> None:
    def member(name: str, index: str, start: int, end: int, phase: str) -> dict[str, Any]:
        labels = labelled(**{"training.kubeflow.org/job-name": "j", "training.kubeflow.org/replica-index": index})
        return a_pod(name, start, end, created=start, phase=phase, metadata=labels)

    (job,) = read(
        tmp_path,
        member("w0", "0", 10, 500, "Succeeded"),
        member("w1", "1", 12, 60, "Failed"),
        member("w1-again", "1", 70, 490, "Succeeded"),
    ).jobs
    assert (job.gpus, job.work, job.outcome) == (2, 490 * SECOND, Outcome.FINISHES)


def test_a_gang_ends_as_its_worst_member_does(tmp_path: Path) -> None:
    (job,) = read(tmp_path, a_pod("a", metadata=gang("g")), a_pod("b", metadata=gang("g"), phase="Failed")).jobs
    assert (job.outcome, job.outcome_after) == (Outcome.FAILS, job.work)


def test_gangs_of_two_namespaces_are_two_jobs(tmp_path: Path) -> None:
    jobs = read(tmp_path, a_pod("a", metadata=gang("g")), a_pod("b", metadata=gang("g") | {"namespace": "m"})).jobs
    assert [job.tenant for job in jobs] == ["ns", "m"]


@pytest.mark.parametrize(("second", "jobs"), [((20, 120), 1), ((110, 200), 2)])
def test_an_indexed_job_is_a_gang_only_if_its_pods_ran_at_the_same_time(
    tmp_path: Path, second: tuple[int, int], jobs: int
) -> None:
    def indexed(index: str) -> dict[str, Any]:
        return labelled(**{"batch.kubernetes.io/job-name": "j", "batch.kubernetes.io/job-completion-index": index})

    found = read(tmp_path, a_pod("j-0", 10, 100, metadata=indexed("0")), a_pod("j-1", *second, metadata=indexed("1")))
    assert len(found.jobs) == jobs


# --- what is left out, what is bad ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "rule"),
    [
        (a_pod("x", None, None, phase="Pending"), "never started (it is Pending): how long it would run is not known"),
        (a_pod("x", requests={}), "asks for no GPU, no CPU and no memory"),
        (a_pod("x", 10, 10), "ran for less than a second: there is nothing to run"),
        (a_pod("x", 10, None, phase="Failed"), "ended, but nothing says when"),
        (
            a_pod("x", metadata={"ownerReferences": [{"kind": "DaemonSet"}]}),
            "is a pod of a DaemonSet: it belongs to its node, it is no job",
        ),
        (
            a_pod("x", metadata={"annotations": {"kubernetes.io/config.mirror": "1"}}),
            "is a pod of a Node: it belongs to its node, it is no job",
        ),
    ],
)
def test_what_cannot_be_a_job_is_left_out_with_a_reason_even_where_bad_pods_are_refused(
    tmp_path: Path, item: dict[str, Any], rule: str
) -> None:
    trace = read(tmp_path, a_pod("sound"), item, strict=True)
    assert [job.name for job in trace.jobs] == ["ns/sound"]
    assert trace.rows == 2
    assert [str(each) for each in trace.dropped] == [f"line 2: pod 'ns/x' {rule}"]
    with pytest.raises(TraceError, match="none of its 1 pods can be a job; the first: item 1: pod 'ns/x'"):
        read(tmp_path, item)


@pytest.mark.parametrize(
    ("item", "explained"),
    [
        (a_pod(""), "metadata.name '' is missing: a pod needs a name"),
        (a_pod("x", requests={"cpu": "lots"}), "cpu 'lots' is no quantity like 500m, 2, 1e3 or 64Gi"),
        (a_pod("x", requests={"nvidia.com/gpu": "500m"}), "nvidia.com/gpu '500m' must be a whole number of devices"),
        (
            a_pod("x", metadata={"creationTimestamp": "2024-05-06T08:00:00"}),
            "metadata.creationTimestamp '2024-05-06T08:00:00' is not understood: expected datetime with a timezone",
        ),
        (a_pod("x", 100, 50), "finishedAt '2024-05-06T00:00:50+00:00' is before startedAt 2024-05-06T00:01:40+00:00"),
        ("text", "object 'text' is not understood: expected object, got str"),
    ],
)
def test_a_bad_pod_is_dropped_or_refused(tmp_path: Path, item: Any, explained: str) -> None:
    trace = read(tmp_path, item, a_pod("sound"))
    assert [job.name for job in trace.jobs] == ["ns/sound"]
    assert trace.rows == 2
    assert str(trace.dropped[0]).startswith(f"line 1: {explained}")
    with pytest.raises(TraceError, match=r"pods\.json: item 1: "):
        read(tmp_path, item, a_pod("sound"), strict=True)
    with pytest.raises(TraceError, match="all 1 pods are bad; the first is item 1"):
        read(tmp_path, item)


def test_a_file_of_something_else_says_what_it_holds(tmp_path: Path) -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 2}}
    with pytest.raises(TraceError, match=r"holds no pod \(it holds: Deployment\); write one with kubectl get pods"):
        read(tmp_path, deployment)
    with pytest.raises(TraceError, match=r"holds no pod \(it holds: nothing\)"):
        read(tmp_path)
    trace = read(tmp_path, {**deployment, "spec": 3}, a_pod("p"), strict=True)
    assert trace.rows == 1
    assert trace.notes == ("objects that are no pods: 1; passed over (Deployment)",)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pods.json"
    file.write_bytes((SAMPLES / "pods.json").read_bytes()[:5000])
    with pytest.raises(TraceError, match="the JSON is truncated: it ends in the middle of an object"):
        load(file)


# --- time -----------------------------------------------------------------------------------------------------------


def test_a_pod_that_still_runs_has_worked_until_the_latest_time_in_the_file(tmp_path: Path) -> None:
    jobs = read(tmp_path, a_pod("a", 10, None, phase="Running"), a_pod("b", 20, 500, created=1)).jobs
    assert [job.work for job in jobs] == [490 * SECOND, 480 * SECOND]
    assert jobs[0].outcome is Outcome.FINISHES


def test_a_pod_that_is_being_deleted_is_cancelled_then(tmp_path: Path) -> None:
    (job,) = read(tmp_path, a_pod("a", 10, None, phase="Running", metadata={"deletionTimestamp": at(70)})).jobs
    assert (job.outcome, job.work) == (Outcome.CANCELLED, 60 * SECOND)


def test_times_in_other_zones_are_the_same_moments(tmp_path: Path) -> None:
    moved = {"creationTimestamp": "2024-05-06T02:00:30+02:00"}
    jobs = read(tmp_path, a_pod("a"), a_pod("b", metadata=moved)).jobs
    assert [job.submit for job in jobs] == [0, 30 * SECOND]


def test_of_several_versions_of_a_pod_the_last_counts(tmp_path: Path) -> None:
    file = tmp_path / "watch.json"
    early = a_pod("a", 10, None, phase="Running")
    late = a_pod("a", 10, 300, metadata={"uid": early["metadata"]["uid"]})
    again = a_pod("a", 400, 460, created=350)
    events = [{"type": "ADDED", "object": early}, {"type": "MODIFIED", "object": late}, again]
    file.write_text("\n".join(json.dumps(event, indent=4) for event in events))
    trace = load(file)
    assert [(job.name, job.work // SECOND) for job in trace.jobs] == [("ns/a", 290), ("ns/a#2", 60)]
    assert trace.rows == 3
    assert trace.notes == ("earlier versions of pods: 1; passed over, the last of each counts",)


def test_nodes_in_the_same_file_tell_how_gpus_are_shared(tmp_path: Path) -> None:
    labels = {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}
    trace = read(tmp_path, a_pod("a", nodeName="n1"), a_pod("b", nodeName="n2"), node)
    assert [(job.gpus, job.gpu_milli) for job in trace.jobs] == [(1, 250), (1, 1000)]
    assert (trace.rows, trace.notes) == (2, ())
    shared = a_pod("a", requests={"nvidia.com/gpu.shared": "1"})
    trace = read(tmp_path, shared)
    assert trace.jobs[0].gpu_milli == 500
    assert trace.notes == ("pods that share a GPU in a way the file does not explain: 1; half a GPU each",)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(1, 500)), min_size=1, max_size=8))
def test_jobs_come_in_order_and_work_as_long_as_their_pods_ran(
    tmp_path_factory: pytest.TempPathFactory, pods: list[tuple[int, int, int]]
) -> None:
    items = [
        a_pod(f"p{number}", created + wait, created + wait + run, created=created)
        for number, (created, wait, run) in enumerate(pods)
    ]
    jobs = read(tmp_path_factory.mktemp("pods"), *items, strict=True).jobs
    assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)
    assert jobs[0].submit == 0
    assert {job.name: job.work // SECOND for job in jobs} == {
        f"ns/p{number}": pod[2] for number, pod in enumerate(pods)
    }
