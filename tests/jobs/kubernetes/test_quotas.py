"""ResourceQuotas of Kubernetes: limits of namespaces, and what of them is not followed."""

import json
from pathlib import Path
from typing import Any

import pytest

from headway import api as hw
from headway.errors import ExperimentError
from headway.jobs.kubernetes import cluster
from headway.jobs.rules.limits.limit import LimitRule
from tests.jobs.kubernetes.test_files import a_node


def quota(hard: dict[str, str], name: str = "q", namespace: str = "team-a", **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard, **spec}}


def listed(*items: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


def test_what_a_namespace_may_request_becomes_limits_of_its_tenant() -> None:
    hard = {"requests.nvidia.com/gpu": "8", "requests.cpu": "1500m", "memory": "2Gi", "pods": "10"}
    found = cluster(listed(quota(hard)), "cluster x")
    where = (("tenant", "team-a"),)
    assert found.limits == (
        LimitRule("ResourceQuota q requests.nvidia.com/gpu", "gpus", 8000, where),
        LimitRule("ResourceQuota q requests.cpu", "cpus", 1500, where),
        LimitRule("ResourceQuota q memory", "memory", 2 * 2**30, where),
        LimitRule("ResourceQuota q pods", "jobs", 10, where),
    )
    assert any("a job of several pods counts as one" in note for note in found.notes)


def test_what_is_not_counted_is_listed_by_name() -> None:
    hard = {
        "limits.cpu": "20",
        "count/jobs.batch": "5",
        "requests.storage": "1Ti",
        "requests.nvidia.com/mig-1g.5gb": "4",
    }
    found = cluster(listed(quota(hard)), "cluster x")
    assert found.limits == ()
    assert [each.what for each in found.unread] == [
        "limits.cpu=20 of ResourceQuota team-a/q",
        "count/jobs.batch=5 of ResourceQuota team-a/q",
        "requests.storage=1Ti of ResourceQuota team-a/q",
        "requests.nvidia.com/mig-1g.5gb=4 of ResourceQuota team-a/q",
    ]
    assert {each.where for each in found.unread} == {(("tenant", "team-a"),)}


def test_a_quota_of_priority_classes_is_about_their_jobs_and_other_scopes_are_not_followed() -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high", "urgent"]}]}
    found = cluster(
        listed(
            quota({"requests.nvidia.com/gpu": "2"}, "high", scopeSelector=selector),
            quota({"pods": "3"}, "short", scopes=["Terminating"]),
            quota({"pods": "4"}, "any", scopes=["NotBestEffort"]),
        ),
        "cluster x",
    )
    high, every = found.limits
    assert high.where == (("tenant", "team-a"), ("qos", "high"), ("qos", "urgent"))
    assert (every.most, every.where) == (4, (("tenant", "team-a"),))
    (short,) = found.unread
    assert (short.what, short.why) == (
        "pods=3 of ResourceQuota team-a/short",
        "its scope Terminating is not told apart",
    )


@pytest.mark.parametrize(
    ("hard", "line"),
    [
        ({"requests.nvidia.com/gpu": "many"}, "requests.nvidia.com/gpu 'many' is no quantity"),
        ({"pods": "1500m"}, "spec.hard.pods '1500m' must be a whole number"),
    ],
)
def test_a_quota_that_is_none_is_one_line(hard: dict[str, str], line: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        cluster(listed(quota(hard)), "cluster x")
    assert line in str(raised.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gpu_node = a_node("n1", nvidia_com__gpu="8")
    gpu_node["status"]["allocatable"] = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}
    (tmp_path / "nodes.json").write_text(listed(gpu_node))
    (tmp_path / "quotas.json").write_text(listed(quota({"requests.nvidia.com/gpu": "2", "limits.cpu": "9"})))
    rows = ["name,submit_s,work_s,gpus,tenant", *(f"j{each},0,100,2,team-a" for each in range(3)), "k,0,100,2,team-b"]
    (tmp_path / "jobs.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_a_quota_holds_in_a_run_and_what_is_not_followed_is_said(folder: Path) -> None:
    files = [str(folder / name) for name in ("nodes.json", "quotas.json")]
    run = hw.simulate(hw.Jobs(str(folder / "jobs.csv"), cluster=files), "fifo", out=str(folder / "run"))
    waits = dict(zip(*(run.table("jobs")[name].to_list() for name in ("name", "wait_s")), strict=True))
    assert waits == {"j0": 0, "j1": 100, "j2": 200, "k": 0}
    assert any(note.startswith("not followed: limits.cpu=9 of ResourceQuota team-a/q") for note in run.notes)
    assert run.row["limits"][0]["limit"] == "ResourceQuota q requests.nvidia.com/gpu@tenant:team-a"
    name = run.row["limits"][0]["limit"]
    assert hw.open(folder / "run").whatif("0s", limit={name: 8}).record()["changes"] != []


def test_quotas_alone_describe_no_cluster_and_yaml_is_refused_in_a_line(folder: Path) -> None:
    with pytest.raises(ExperimentError, match="they name no node; add a file with the nodes"):
        hw.simulate(hw.Jobs(str(folder / "jobs.csv"), cluster=str(folder / "quotas.json")), "fifo")
    (folder / "quotas.yaml").write_text("apiVersion: v1\nkind: ResourceQuotaList\nitems: []\n")
    with pytest.raises(ExperimentError, match="is YAML: print it once more with kubectl get … -o json"):
        hw.simulate(hw.Jobs(str(folder / "jobs.csv"), cluster=str(folder / "quotas.yaml")), "fifo")
