"""The openb trace itself: every pod and node is accounted for, and it runs from end to end."""

from pathlib import Path

import pytest

from headway.jobs.model.job import Outcome
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.state.never_feasible import infeasible
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces import guess, load
from headway.jobs.traces.clusters import file as cluster_file
from headway.runs.measured import measured
from headway.units import SECOND

PODS = "openb_v2023/openb_pod_list_default.csv.gz"
NODES = {"openb_v2023/openb_node_list_all_node.csv.gz": 1523, "openb_v2023/openb_node_list_gpu_node.csv.gz": 1213}


def test_every_pod_is_a_job_but_the_one_that_lived_for_no_time(real_traces: Path) -> None:
    assert guess(real_traces / PODS) == "openb"
    trace = load(real_traces / PODS, strict=True)
    assert (trace.rows, len(trace.jobs)) == (8_152, 8_151)
    assert [each.rule for each in trace.dropped] == ["is the moment it began: the pod lived for 0 s"]
    assert sum(job.shared for job in trace.jobs) == 3_077, "3,078 ask for part of a GPU; the one left out was one"
    assert sum(job.gpus == 0 for job in trace.jobs) == 1_088
    assert {job.gpus for job in trace.jobs} == {0, 1, 2, 4, 8}


def test_pods_that_never_ran_wait_as_long_as_they_did(real_traces: Path) -> None:
    jobs = load(real_traces / PODS).jobs
    assert sum(bool(job.patience) for job in jobs) == 896
    assert all(job.outcome is Outcome.CANCELLED for job in jobs if job.patience)
    assert sum(job.outcome is Outcome.FAILS for job in jobs) == 1_870
    assert jobs[-1].submit == 12_901_761 * SECOND
    assert max(job.submit + job.work for job in jobs) == 12_902_960 * SECOND


@pytest.mark.parametrize("name", NODES)
def test_every_node_is_read(real_traces: Path, name: str) -> None:
    table, notes, *_ = cluster_file.read([str(real_traces / name)])
    cluster = cluster_table.build(table)
    assert len(cluster.nodes) == NODES[name]
    assert cluster.gpus == 6_212
    assert {node.gpu_type for node in cluster.nodes if node.gpus} == {
        "P100", "G3", "V100M32", "V100M16", "G2", "T4", "A10",
    }  # fmt: skip
    assert notes == ()


def test_every_pod_could_run_on_these_nodes(real_traces: Path) -> None:
    table, *_ = cluster_file.read([str(real_traces / "openb_v2023/openb_node_list_gpu_node.csv.gz")])
    jobs = load(real_traces / PODS).jobs
    assert not infeasible(cluster_table.build(table), jobs, BestFit().place)


def test_it_runs_from_end_to_end(real_traces: Path) -> None:
    experiment = Experiment()
    experiment.trace.path = str(real_traces / PODS)
    experiment.cluster.file = str(real_traces / "openb_v2023/openb_node_list_gpu_node.csv.gz")
    experiment.policy.name = "fifo+fit"
    result = measured(experiment).row
    assert [result[key] for key in ("jobs", "finished", "failed", "cancelled", "unfinished")] == [
        8_151,
        5_385,
        1_870,
        896,
        0,
    ]
    assert result["skipped"] == 0
