"""A run continued from a moment of it: the same without a change, and sound under every change that can be made."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings, strategies as st

from headway.cli import main
from headway.core.tape import FINAL_NAME, STREAM_NAME, TapeWriter, read as read_tape
from headway.errors import ExperimentError, InfeasibleJobError, InputError
from headway.jobs.ask import changes
from headway.jobs.ask.changes import Changes, Plan
from headway.jobs.ask.whatif import WhatIf, moment_at, time_of, what_if
from headway.jobs.audit.audit import audit
from headway.jobs.experiment.scene import JobsScene
from headway.jobs.metrics.difference import as_json, difference
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.cluster import Cluster, Level, Node, Partition, Tenant, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import SpeedModel
from headway.jobs.show.terminal.whatif import tables
from headway.jobs.tables.cluster import ClusterTable, LevelTable
from headway.jobs.tables.settings import (
    CostsTable,
    Experiment,
    FailuresTable,
    JobsRunTable,
    MaintenanceTable,
    PolicyTable,
)
from headway.runs.domain import StoredRun
from headway.runs.folder.folder import open_run
from headway.runs.play import play
from headway.runs.settings.changes import check_writable
from headway.units import SECOND
from tests.conformance.checks import check_delivered
from tests.drive import Run, joined, seconds_of
from tests.strategies import specs, worlds

NOWHERE = Path("nowhere")
some = settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)


def scene_of(cluster: Cluster, jobs: tuple[Job, ...], policy: str = "fifo", **tables: Any) -> JobsScene:
    """A scene around a cluster and jobs that are there already."""
    described = ClusterTable(sharing_penalty=tables.pop("sharing_penalty", 0.0), levels=tables.pop("levels", []))
    return JobsScene(Experiment(policy=PolicyTable(name=policy), cluster=described, **tables), cluster, jobs)


def recorded(scene: JobsScene) -> StoredRun:
    """A scene played out, as if it had been read from a folder."""
    return StoredRun(NOWHERE, scene, play(scene).tape, complete=True, result={})


def asked(stored: StoredRun, at: int, *, skip: bool = False, **wanted: Any) -> WhatIf:
    """What follows from changes."""
    return what_if(stored, at, Changes(**wanted), skip_infeasible=skip)


def ends(found: WhatIf) -> dict[int, float]:
    """When each job ends with the changes, in seconds."""
    kinds = (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED)
    return {row.subject: row.time / SECOND for row in found.after.tape if row.kind in kinds}


def starts(found: WhatIf) -> dict[int, list[int]]:
    """The nodes that each job starts on after the changes, in order."""
    nodes: dict[int, list[int]] = {}
    for row in found.continuation:
        if row.kind == Kind.START:
            nodes.setdefault(row.subject, []).append(row.place)
    return nodes


# --- any change, any time, any policy -----------------------------------------------------------------------------


@st.composite
def stored_runs(draw: st.DrawFn) -> StoredRun:
    """A small run of any kind."""
    world = draw(worlds(faults=False))
    failures = FailuresTable()
    if draw(st.booleans()):
        works = [MaintenanceTable(nodes=[0], start="20s", length="20s", lead=draw(st.sampled_from([0, 5])))]
        failures = FailuresTable(
            mtbf=draw(st.sampled_from(["", "400s"])), repair="15s", maintenance=draw(st.sampled_from([[], works]))
        )
    costs = draw(st.sampled_from([CostsTable(migration="5s"), CostsTable(preemption="3s", migration="5s")]))
    scene = scene_of(
        world.cluster,
        world.jobs,
        draw(specs(cluster=world.cluster)),
        sharing_penalty=world.sharing_penalty_ppm / 1_000_000,
        failures=failures,
        costs=costs,
        run=JobsRunTable(seed=draw(st.integers(0, 1000))),
    )
    return recorded(scene)


@st.composite
def some_changes(draw: st.DrawFn, scene: JobsScene) -> Changes:
    """One to three changes that make sense for a scene."""
    types = sorted({node.gpu_type for node in scene.cluster.nodes})
    tenants = sorted({job.tenant for job in scene.jobs})
    names = [node.name for node in scene.cluster.nodes]
    possible = {
        "add_nodes": st.sampled_from([["1"], ["2xA100:4"], ["1", "1xH100:2"]]),
        "policy": specs(cluster=scene.cluster),
        "quota": st.dictionaries(st.sampled_from(tenants), st.none() | st.integers(0, 6), min_size=1),
        "limit": st.dictionaries(st.sampled_from(tenants), st.none() | st.integers(1, 8), min_size=1),
        "gpu_speed": st.dictionaries(st.sampled_from(types), st.sampled_from([0.5, 2.0]), min_size=1),
        "upgrade": st.sampled_from([{types[0]: "H100"}, {types[-1]: "A100"}]),
        "failures": st.sampled_from([{}, {"mtbf": "60s", "repair": "5s"}]),
        "load": st.sampled_from(["1.3", "0.5", "10"]),
        "overrides": st.sampled_from([["costs.preemption=1s"], ["cluster.sharing_penalty=0.5"], ["policy.round=7s"]]),
    }
    if len(names) > 1:
        possible["remove_nodes"] = st.sampled_from([names[0], names[-1], "1", str(len(names) - 1)])
    chosen = draw(st.lists(st.sampled_from(sorted(possible)), min_size=1, max_size=3, unique=True))
    return Changes(**{key: draw(possible[key], label=key) for key in chosen})


@given(data=st.data(), stored=stored_runs())
@some
def test_whatever_changes_the_run_goes_on_to_a_sound_end(data: st.DataObject, stored: StoredRun) -> None:
    last = int(stored.tape.column("time")[-1])
    assume(last > 1)
    at = data.draw(st.integers(0, last - 1), label="at")
    wanted = data.draw(some_changes(stored.scene), label="changes")
    try:
        found = what_if(stored, at, wanted, skip_infeasible=True)
    except (ExperimentError, InfeasibleJobError) as refused:
        event(re.sub(r"\d+", "N", str(refused))[:60])
        return
    assert found.after.tape.until(at).digest == stored.tape.until(at).digest
    here = [row for row in found.after.tape if row.kind == Kind.ARRIVED]
    assert {row.subject for row in here} | set(found.left_out) == {job.id for job in stored.scene.jobs}
    assert set(ends(found)) >= {job.id for job in stored.scene.jobs} - set(found.left_out)
    if not found.left_out:
        check_delivered(Run(found.after.tape, None, None, found.after.scene.jobs))  # type: ignore[arg-type]
    before = Ledger(found.before, found.jobs, stored.scene.cluster)
    as_json(difference(before, Ledger(found.after.tape, found.after.scene.jobs, found.after.scene.cluster), at))


@given(data=st.data(), stored=stored_runs())
@some
def test_the_audit_finds_nothing_wherever_one_cluster_describes_the_run(data: st.DataObject, stored: StoredRun) -> None:
    last = int(stored.tape.column("time")[-1])
    assume(last > 1)
    at = data.draw(st.integers(0, last - 1), label="at")
    wanted = data.draw(some_changes(stored.scene), label="changes")
    nodes_only = replace(wanted, quota={}, limit={}, gpu_speed={}, upgrade={}, overrides=())
    try:
        found = what_if(stored, at, nodes_only, skip_infeasible=True)
    except (ExperimentError, InfeasibleJobError):
        return
    same_costs = found.plan.scene.costs() == stored.scene.costs()
    assume(not found.left_out and same_costs)
    # with the nodes that go still there, and without quotas, which shrink with them
    nodes = (*stored.scene.cluster.nodes, *found.plan.scene.cluster.nodes[len(stored.scene.cluster.nodes) :])
    whole = replace(found.plan.scene.cluster, nodes=nodes, tenants=())
    penalty = stored.scene.speed().sharing_penalty_ppm
    findings = audit(
        whole,
        found.after.scene.jobs,
        found.after.tape,
        speed=SpeedModel(whole, sharing_penalty_ppm=penalty),
        costs=stored.scene.costs(),
        complete=True,
    )
    assert findings == []


@given(stored=stored_runs(), data=st.data())
@some
def test_without_a_change_the_rest_of_the_tape_comes_out_again(stored: StoredRun, data: st.DataObject) -> None:
    last = int(stored.tape.column("time")[-1])
    at = data.draw(st.integers(-1, last + 1), label="at")
    found = asked(stored, at)
    assert found.plan.nothing
    assert found.after.tape.digest == found.before.digest == stored.tape.digest
    assert joined(stored.tape.until(at), moment_at(stored.scene, stored.tape, at).go_on()).digest == stored.tape.digest


# --- each change, on runs that can be worked out by hand ----------------------------------------------------------

BUSY = seconds_of((0, 100, 4), (1, 100, 4), (2, 100, 4), (50, 10, 2))
"""Four GPUs are busy until 100, 200, 300; the last one waits for all of them under fifo."""


def busy(policy: str = "fifo", **tables: Any) -> StoredRun:
    """One node of four GPUs with more than it can take."""
    return recorded(scene_of(uniform(1, 4), BUSY, policy, **tables))


def test_added_nodes_serve_those_who_wait() -> None:
    found = asked(busy(), 60 * SECOND, add_nodes=["1"])
    assert ends(found) == pytest.approx({0: 100, 1: 160, 2: 200, 3: 170})
    assert starts(found)[1] == [1]
    assert found.plan.scene.cluster.nodes[1] == Node("added-1", 4)
    assert found.plan.told == ("1 node added with 4 GPUs of type gpu",)


def test_jobs_on_a_removed_node_are_evicted_and_go_on_elsewhere() -> None:
    two = recorded(scene_of(uniform(2, 4), seconds_of((0, 100, 4), (0, 100, 4)), costs=CostsTable(preemption="5s")))
    found = asked(two, 40 * SECOND, remove_nodes="n0")
    assert ends(found) == pytest.approx({1: 100, 0: 165})
    kinds = [(Kind(row.kind).name, row.subject) for row in found.continuation][:2]
    assert kinds == [("NODE_DRAINED", 0), ("EVICTED", 0)]
    assert [node.gpus for node in found.plan.scene.cluster.nodes] == [0, 4]
    assert asked(two, 40 * SECOND, remove_nodes="1").plan.removed == (1,), "the last ones, by count"


def test_a_removed_node_neither_fails_nor_comes_back() -> None:
    failing = scene_of(
        uniform(2, 4), seconds_of((0, 500, 4), (1, 500, 4)), failures=FailuresTable(mtbf="50s", repair="5s")
    )
    found = asked(recorded(failing), 30 * SECOND, remove_nodes="n1")
    later = [row for row in found.continuation if row.kind in (Kind.NODE_FAILED, Kind.NODE_RECOVERED)]
    assert later
    assert {row.subject for row in later} == {0}


def test_another_policy_is_asked_at_once() -> None:
    found = asked(busy(), 60 * SECOND, policy="srtf")
    assert ends(found) == pytest.approx({3: 70, 0: 110, 1: 210, 2: 310})
    assert found.after.policy == "srtf"
    assert found.plan.same_cluster


def test_a_limit_holds_back_and_a_quota_lets_in() -> None:
    jobs = workload(
        [Job(0, 0, 100 * SECOND, 2, tenant="a"), *(Job(0, i, 100 * SECOND, 1, tenant="b") for i in range(1, 5))]
    )
    stored = recorded(scene_of(uniform(1, 4), jobs))
    assert ends(asked(stored, 50 * SECOND, limit={"b": 1})) == pytest.approx({0: 100, 1: 100, 2: 100, 3: 200, 4: 300})
    tenants = (Tenant("a", guaranteed_gpus=3, borrow=True), Tenant("b", guaranteed_gpus=1, borrow=True))
    more = recorded(scene_of(replace(uniform(1, 4), tenants=tenants), jobs, "fifo+fit"))
    reclaimed = asked(more, 50 * SECOND, quota={"a": 0, "b": 4})
    assert [row.subject for row in reclaimed.continuation if row.kind == Kind.PREEMPT] == [0], "it is borrowed now"
    assert ends(reclaimed) == pytest.approx({0: 150, 1: 100, 2: 100, 3: 150, 4: 150})


def test_a_faster_gpu_type_shortens_what_runs_and_what_is_to_come() -> None:
    found = asked(busy(), 50 * SECOND, gpu_speed={"gpu": 2.0})
    assert ends(found) == pytest.approx({0: 75, 1: 125, 2: 175, 3: 180})
    assert not found.plan.same_cluster


def test_an_upgrade_replaces_the_machines_under_the_jobs() -> None:
    found = asked(busy(), 50 * SECOND, upgrade={"gpu": "h100"}, gpu_speed={"h100": 2.0})
    kinds = [Kind(row.kind).name for row in found.continuation][:3]
    assert kinds == ["NODE_DRAINED", "EVICTED", "NODE_RECOVERED"]
    assert ends(found) == pytest.approx({0: 75, 1: 125, 2: 175, 3: 180})
    slow = asked(busy(), 50 * SECOND, upgrade={"gpu": "h100"})
    assert slow.plan.notes == ("GPUs of type h100 run at reference speed; --gpu-speed h100=2 says otherwise",)


@pytest.mark.parametrize(
    "wanted",
    [
        {"upgrade": {"gpu": "gpu"}},
        {"failures": {}},
        {"quota": {"a": 3}, "limit": {"a": None}},
        {"gpu_speed": {"gpu": 0.5}},
        {"load": "1"},
        {"policy": "fifo"},
        {"overrides": ["costs.preemption=5s"]},
    ],
)
def test_what_is_as_it_was_changes_nothing(wanted: dict[str, Any]) -> None:
    tenants = (Tenant("a", guaranteed_gpus=3),)
    cluster = replace(uniform(1, 4), tenants=tenants, gpu_speed_ppm={"gpu": 500_000})
    jobs = workload([Job(0, 0, 100 * SECOND, 2, tenant="a")])
    stored = recorded(scene_of(cluster, jobs, costs=CostsTable(preemption="5s")))
    found = asked(stored, 0, **wanted)
    assert found.plan.nothing
    assert found.plan.notes == ()
    assert found.after.tape.digest == stored.tape.digest, "no job is evicted for it, to wait for ever"


def test_types_can_be_swapped() -> None:
    cluster = replace(uniform(2, 4), nodes=(Node("n0", 4, "old"), Node("n1", 4, "new")))
    jobs = workload([Job(0, 0, 100 * SECOND, 4, gpu_types=("old",))])
    found = asked(recorded(scene_of(cluster, jobs)), 50 * SECOND, upgrade={"old": "new", "new": "old"})
    assert starts(found) == {0: [1]}
    assert ends(found) == pytest.approx({0: 100})


def test_failures_can_begin_and_end() -> None:
    calm = busy()
    assert not [row for row in calm.tape if row.kind == Kind.NODE_FAILED]
    shaken = asked(calm, 60 * SECOND, failures={"mtbf": "30s", "repair": "1s"})
    assert [row for row in shaken.continuation if row.kind == Kind.NODE_FAILED]
    assert shaken.plan.same_cluster
    again = recorded(shaken.after.scene)
    down = next(row for row in again.tape if row.kind == Kind.NODE_FAILED)
    quiet = asked(again, down.time, failures={})
    assert [row.subject for row in quiet.continuation if row.kind == Kind.NODE_RECOVERED] == [0], "it is still repaired"
    assert not [row for row in quiet.continuation if row.kind == Kind.NODE_FAILED]


def test_load_brings_later_arrivals_nearer() -> None:
    stored = recorded(scene_of(uniform(1, 4), seconds_of((0, 1, 1), (100, 1, 1), (300, 1, 1))))
    arrivals = [row.time for row in asked(stored, 100 * SECOND, load="2").after.tape if row.kind == Kind.ARRIVED]
    assert arrivals == [0, 100 * SECOND, 200 * SECOND]
    assert asked(stored, 50 * SECOND, load="1").plan.nothing
    crowded = asked(stored, 100 * SECOND, load="1000").after.tape
    assert len(crowded) == len(stored.tape)
    late = asked(stored, 300 * SECOND, load="2").plan
    assert late.nothing
    assert late.notes == ("--load 2 changes nothing: no job arrives after that time",)


def test_costs_and_rounds_can_be_set() -> None:
    stored = busy("srtf")
    dear = asked(stored, 10 * SECOND, overrides=["costs.preemption=20s"])
    assert ends(dear)[0] == pytest.approx(ends(asked(stored, 10 * SECOND))[0] + 20)
    slow = asked(stored, 10 * SECOND, overrides=["policy.round=30s"])
    assert ends(slow)[3] == pytest.approx(70)
    assert slow.plan.told == ("policy.round 30s instead of none",)


def test_new_nodes_join_the_partitions_and_racks_of_those_they_are_copies_of() -> None:
    nodes = tuple(Node(f"n{i}", 4, "a100" if i < 2 else "v100", path=(f"rack{i // 2}",)) for i in range(3))
    partitions = (Partition("left", (0, 1)), Partition("right", (2,)), Partition("all", (0, 1, 2)))
    cluster = Cluster(nodes, (Level("rack"), Level("node")), partitions)
    scene = scene_of(cluster, seconds_of((0, 1, 1)), levels=[LevelTable(name="rack", nodes_per_domain=2)])

    def planned(*texts: str) -> Plan:
        return changes.plan(scene, 0, Changes(add_nodes=texts))

    usual = planned("2").scene.cluster
    assert [node.path for node in usual.nodes[3:]] == [("rack1",), ("rack2",)]
    assert [p.nodes for p in usual.partitions] == [(0, 1, 3, 4), (2,), (0, 1, 2, 3, 4)]
    assert [node.gpu_type for node in usual.nodes[3:]] == ["a100", "a100"]
    mixed = planned("1xv100:8", "1@right", "1xh100").scene.cluster
    assert [(node.name, node.gpu_type, node.gpus) for node in mixed.nodes[3:]] == [
        ("added-1", "v100", 8),
        ("added-2", "v100", 4),
        ("added-3", "h100", 4),
    ]
    assert [p.nodes for p in mixed.partitions] == [(0, 1, 5), (2, 3, 4), (0, 1, 2, 3, 5)]


def test_quotas_shrink_with_the_cluster() -> None:
    tenants = (Tenant("a", guaranteed_gpus=6), Tenant("b", guaranteed_gpus=2), Tenant("c"))
    scene = scene_of(replace(uniform(2, 4), tenants=tenants), workload([Job(0, 0, SECOND, tenant="a")]))
    planned = changes.plan(scene, 0, Changes(remove_nodes="1"))
    assert [tenant.guaranteed_gpus for tenant in planned.scene.cluster.tenants] == [3, 1, None]
    assert "guaranteed GPUs lowered in proportion, from 8 to 4 in all" in planned.told
    more = changes.plan(scene, 0, Changes(add_nodes=["1"]))
    assert "tenants that may not borrow hold no more GPUs than before" in more.notes[0]


def test_jobs_that_could_never_run_are_named_or_left_out() -> None:
    jobs = seconds_of((0, 100, 8), (1, 10, 4), (200, 10, 8), (210, 10, 4))
    stored = recorded(scene_of(uniform(2, 4), jobs))
    with pytest.raises(InfeasibleJobError, match=r"job 0 can never run: .*\(2 such jobs in all\); --skip-infeasible"):
        asked(stored, 50 * SECOND, remove_nodes="1")
    found = asked(stored, 50 * SECOND, remove_nodes="1", skip=True)
    assert found.left_out == (0, 2)
    assert ends(found) == pytest.approx({0: 50, 1: 60, 3: 220})
    told = compared(stored, found)
    assert (told["jobs"], told["left_out"]) == (2, 2)
    assert told["gain"] == [], "job 1 starts at once either way: without the change, too, nobody is before it"
    assert told["before"]["jct_mean_s"] == told["after"]["jct_mean_s"] == (59 + 10) / 2
    with pytest.raises(InfeasibleJobError, match="no job that is left could ever run"):
        asked(recorded(scene_of(uniform(2, 4), seconds_of((0, 100, 8)))), SECOND, remove_nodes="1", skip=True)


def compared(stored: StoredRun, found: WhatIf) -> dict[str, Any]:
    """The difference that changes make."""
    before, after, whole = (
        Ledger(tape, jobs, cluster)
        for tape, jobs, cluster in (
            (found.before, found.jobs, stored.scene.cluster),
            (found.after.tape, found.after.scene.jobs, found.plan.scene.cluster),
            (found.recorded, found.jobs, stored.scene.cluster),
        )
    )
    return as_json(difference(before, after, found.at, found.left_out, whole))


def cells(told: dict[str, Any], title: str) -> list[list[str]]:
    """The rows of a table as they are shown."""
    table = next(table for table in tables(told) if str(table.title or "").startswith(title))
    return list(map(list, zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True)))


def test_who_can_never_run_loses_and_nobody_gains_by_it() -> None:
    # wide jobs of a block everybody under fifo until 100, 210 and so on; on one node they could never run
    wide = [Job(0, 110 * i * SECOND, 100 * SECOND, 8, tenant="a") for i in range(12)]
    narrow = [Job(0, (110 * i + 1) * SECOND, 10 * SECOND, 1, tenant="b") for i in range(12)]
    stored = recorded(scene_of(uniform(2, 4), workload([*wide, *narrow])))
    found = asked(stored, 50 * SECOND, remove_nodes="1", skip=True)
    assert len(found.left_out) == 12
    told = compared(stored, found)
    assert (told["jobs"], told["left_out"], told["better"]) == (12, 12, 0)
    assert told["change"]["jct_mean_s"] == 0
    first, second = told["tenants"]
    assert (first["tenant"], first["jobs"], first["left_out"], first["jct_before_s"]) == ("a", 0, 12, None)
    assert (second["tenant"], second["jobs"], second["left_out"]) == ("b", 12, 0)
    assert len(told["lose"]) == 10
    lost = {"job": "0", "tenant": "a", "gpus": 8, "never_runs": True, "jct_before_s": 100, "jct_after_s": None}
    assert told["lose"][0] == lost | {"wait_before_s": 0, "wait_after_s": None}
    assert cells(told, "by tenant")[0] == ["a", "0", "12", "–", "–", "", "", "–", "–", ""]
    assert cells(told, "jobs that lose")[0] == ["0", "a", "8", "1m 40s", "–", "never runs"]


def test_times_are_rounded_to_what_is_shown() -> None:
    jobs = seconds_of((0, 100, 4), (0, 60, 4), (60, 10, 4))
    stored = recorded(scene_of(uniform(1, 4), jobs))
    found = asked(stored, 60 * SECOND, add_nodes=["1"])
    told = compared(stored, found)
    gains = {row["job"]: (row["jct_before_s"], row["jct_after_s"]) for row in told["gain"]}
    assert gains == {"1": (160, 120), "2": (110, 50)}, "to the microsecond, though changes take nanoseconds"
    assert cells(told, "jobs that gain") == [
        ["2", "default", "4", "1m 50s", "50s", "-1m 00s"],
        ["1", "default", "4", "2m 40s", "2m 00s", "-40s"],
    ]
    row = told["gain"][0]
    long = {**told, "gain": [{**row, "jct_before_s": 86399.7, "jct_after_s": 59.998}], "tenants": [], "lose": []}
    assert cells(long, "jobs that gain")[0][3:] == ["1d 0h", "1m 00s", "-23h 59m"]


def test_the_difference_in_numbers() -> None:
    jobs = workload(replace(job, tenant=tenant) for job, tenant in zip(BUSY, "aabb", strict=True))
    stored = recorded(scene_of(uniform(1, 4), jobs))
    found = asked(stored, 100 * SECOND, add_nodes=["1"])
    before, after = (
        Ledger(tape, jobs, cluster)
        for tape, cluster in ((found.before, stored.scene.cluster), (found.after.tape, found.plan.scene.cluster))
    )
    told = as_json(difference(before, after, found.at))
    assert (told["jobs"], told["completed"], told["better"], told["worse"]) == (3, 3, 2, 0)
    # from 100 on: job 1 until 200 either way; 2 until 300, then 200; 3 until 310, then 210
    assert told["before"]["jct_mean_s"] == pytest.approx((199 + 298 + 260) / 3)
    assert told["after"]["jct_mean_s"] == pytest.approx((199 + 198 + 160) / 3)
    assert told["change"]["jct_mean_s"] == pytest.approx(557 / 757 - 1)
    assert (told["before"]["gpus"], told["after"]["gpus"]) == (4, 8)
    assert told["before"]["gpu_utilisation"] == 1, "up to 210 both ways, when the first of the two is over"
    assert told["after"]["gpu_utilisation"] == pytest.approx((4 * 200 + 2 * 10) / (8 * 110))
    assert [(row["tenant"], row["jobs"]) for row in told["tenants"]] == [("a", 1), ("b", 2)]
    assert told["tenants"][1]["wait_change"] == pytest.approx((98 + 150) / (198 + 250) - 1)
    assert {row["job"] for row in told["gain"]} == {"2", "3"}
    assert told["lose"] == []
    assert told["confidence"] == 0.95
    assert told["jct_change_low"] is told["jct_change_high"] is None, "three jobs have no interval"
    assert "95 %" not in "".join(str(column.header) for table in tables(told) for column in table.columns)


def test_the_interval_of_a_change_is_paired_job_by_job() -> None:
    # from a second to a day, and each is exactly twice as fast: no doubt about the change, whatever the lengths
    jobs = seconds_of(*((100_000 * i, 10 ** (i % 5), 4) for i in range(40)))
    stored = recorded(scene_of(uniform(1, 4), jobs))
    found = asked(stored, 50_000 * SECOND, gpu_speed={"gpu": 2.0})
    ledgers = [Ledger(tape, jobs, stored.scene.cluster) for tape in (found.before, found.after.tape)]
    told = as_json(difference(*ledgers, found.at))
    assert told["jobs"] == 39
    assert (told["jct_change_low"], told["jct_change_high"]) == pytest.approx((-0.5, -0.5))
    assert told["tenants"][0]["jct_change_high"] == pytest.approx(-0.5)
    none = as_json(difference(*ledgers, found.at), 0)
    assert (none["confidence"], none["jct_change_low"], none["tenants"][0]["jct_change_low"]) == (None, None, None)


def test_nanoseconds_are_no_loss() -> None:
    stored = busy()
    found = asked(stored, 50 * SECOND, upgrade={"gpu": "h100"})
    assert ends(found)[0] > 100, "it was evicted and started again"
    ledgers = [Ledger(tape, BUSY, stored.scene.cluster) for tape in (found.before, found.after.tape)]
    told = as_json(difference(*ledgers, found.at))
    assert (told["better"], told["worse"], told["lose"]) == (0, 0, [])


# --- what is wrong is one line ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ({"remove_nodes": "n9"}, "--remove-nodes: unknown node 'n9'; did you mean 'n1'?"),
        ({"remove_nodes": "n0,n1"}, "would take all 2 nodes of the cluster; at least one has to stay"),
        ({"remove_nodes": "2"}, "--remove-nodes 2: would take all 2 nodes of the cluster; at least one has to stay"),
        ({"remove_nodes": "0"}, "--remove-nodes 0 must lie in 1 to"),
        ({"remove_nodes": "9" * 5000}, "--remove-nodes 999999999999999999… is too large"),
        ({"add_nodes": ["9" * 5000]}, "--add-nodes 999999999999999999… is too large"),
        ({"add_nodes": ["1:" + "9" * 5000]}, "--add-nodes: GPUs 999999999999999999… is too large"),
        ({"add_nodes": ["many"]}, "--add-nodes 'many' is not understood"),
        ({"add_nodes": ["0"]}, "--add-nodes 0 must lie in 1 to"),
        ({"add_nodes": ["1@debug"]}, "--add-nodes: no partition 'debug': the cluster has none"),
        ({"policy": "strf"}, "did you mean 'srtf'"),
        ({"quota": {"bob": 3}}, "--quota bob: unknown tenant 'bob' (valid: default)"),
        ({"quota": {"default": 900}}, "guaranteed_gpus sum to 900"),
        ({"limit": {"default": -1}}, "--limit default -1 must lie in 0"),
        ({"gpu_speed": {"h100": 2}}, "--gpu-speed h100: unknown GPU type 'h100' (valid: gpu)"),
        ({"gpu_speed": {"gpu": 0}}, "--gpu-speed gpu 0 must lie in"),
        ({"upgrade": {"v100": "h100"}}, "--upgrade v100=h100: unknown GPU type 'v100'"),
        ({"load": "fast"}, "load factor 'fast' is not a number"),
        ({"load": "0"}, "must be above 0"),
        ({"load": "5000"}, "load 5000 must lie in"),
        ({"load": "1e999999999"}, "load factor '1e999999999' is too large"),
        ({"overrides": ["cluster.sharing_penalty=7"]}, "sharing_penalty 7.0 must lie in 0 to 1"),
        ({"failures": {"mtbf": "0s"}}, "failures mtbf '0s' must be above 0"),
        ({"overrides": ["trace.load=2"]}, "--set trace.load: cannot change in the middle of a run"),
        ({"overrides": ["cluster.nodes=2"]}, "--set cluster.nodes: cannot change in the middle of a run"),
        ({"overrides": ["policy.nam=fifo"]}, "did you mean 'name'"),
    ],
)
def test_what_cannot_be_changed_is_said_in_one_line(wanted: dict[str, Any], line: str) -> None:
    stored = recorded(scene_of(uniform(2, 4), seconds_of((0, 10, 1), (5, 10, 1))))
    with pytest.raises(InputError, match=re.escape(line)) as refused:
        asked(stored, SECOND, **wanted)
    assert "\n" not in str(refused.value)


def test_the_only_node_has_to_stay() -> None:
    with pytest.raises(ExperimentError, match="would take the only node of the cluster; at least one has to stay"):
        asked(busy(), SECOND, remove_nodes="1")


def test_a_limit_is_called_a_limit() -> None:
    with pytest.raises(InfeasibleJobError, match="the largest job that fits the limit of tenant default has 3"):
        asked(busy(), SECOND, limit={"default": 3})
    with pytest.raises(InfeasibleJobError, match="the largest job that fits the quota of tenant default has 3"):
        asked(busy(), SECOND, quota={"default": 3})


def test_one_is_not_many() -> None:
    cluster = replace(uniform(2, 1), nodes=(Node("n0", 1, "old"), Node("n1", 1, "new")))
    stored = recorded(scene_of(cluster, seconds_of((0, 10, 1), (5, 10, 1))))
    found = asked(stored, SECOND, upgrade={"old": "h100"}, add_nodes=["1"], limit={"default": 1}, load="2")
    assert found.plan.told == (
        "1 node of type old gets h100 GPUs",
        "1 node added with 1 GPU of type h100",
        "limit of default: 1 GPU instead of none",
        "1 job arrives 2 times as fast",
    )
    assert asked(stored, SECOND, remove_nodes="1").plan.told == ("1 of 2 nodes removed (1 GPU): n1",)


def test_a_time_is_a_duration_a_part_or_the_end() -> None:
    stored = busy()
    assert int(stored.tape.column("time")[-1]) == 310 * SECOND
    assert time_of("5m", stored) == 300 * SECOND
    assert time_of(" 50% ", stored) == 155 * SECOND
    for text in ("end", "100%", "310s", "9d"):
        with pytest.raises(InputError, match="the run ends at 5m 10s; nothing is left to continue"):
            time_of(text, stored)
    for text in ("half", "-5s", "101%", "x%", ""):
        with pytest.raises(InputError, match="--at"):
            time_of(text, stored)
    with pytest.raises(InputError, match=r"--at 'banana' is not understood: .*2d.*50%.*end"):
        time_of("banana", stored)
    cut = replace(stored, tape=stored.tape.until(250 * SECOND), complete=False)
    assert time_of("end", cut) == 100 * SECOND, "the step before the last one, which may be half a step"
    assert time_of("100%", cut) == 100 * SECOND
    with pytest.raises(InputError, match="the run was cut short at 3m 20s"):
        time_of("200s", cut)


def test_a_run_that_was_cut_short_can_be_taken_up_again() -> None:
    whole = busy("srtf")
    cut = replace(whole, tape=whole.tape.until(150 * SECOND), complete=False)
    found = asked(cut, time_of("end", cut))
    assert found.after.tape.digest == found.before.digest == whole.tape.digest
    more = asked(cut, 60 * SECOND, add_nodes=["1"])
    assert more.before.digest == whole.tape.digest
    assert more.after.tape.digest == asked(whole, 60 * SECOND, add_nodes=["1"]).after.tape.digest


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A stored run of a small drawn workload."""
    document = ["--set", "trace.synthetic={jobs=200, load=1.2, gpus=32}", "--nodes", "4", "--gpus-per-node", "8"]
    folder = tmp_path / "run"
    assert command("jobs", "simulate", *document, "--policy", "srtf", "--skip-infeasible", "--out", str(folder)) == 0
    return folder


def command(*arguments: str) -> int:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("flags", "run"),
    [
        ([], True),
        (["--policy", "fifo+easy"], True),
        (["--load", "1.5"], True),
        (["--failures", "mtbf=2d,repair=1h"], True),
        (["--add-nodes", "2"], False),
        (["--remove-nodes", "1", "--skip-infeasible"], False),
        (["--limit", "tenant00=8", "--skip-infeasible"], False),
        (["--gpu-speed", "gpu=2"], False),
        (["--set", "costs.preemption=10s"], False),
    ],
)
def test_what_is_stored_is_never_what_an_audit_calls_broken(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], run: bool
) -> None:
    out = tmp_path / "out"
    assert command("whatif", str(run_folder), "--at", "30%", *flags, "--json", "--out", str(out)) == 0
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert told["jobs"] > 20
    assert bool(told["changes"]) == bool(flags)
    assert (out / "whatif.json").exists() == bool(flags)
    if flags:
        assert json.loads((out / "whatif.json").read_text()) == told
    assert command("audit", str(out)) == (0 if run else 2)
    said = capsys.readouterr()
    if run:
        assert "nothing wrong" in said.out
        assert "cut short" not in said.err
        assert read_tape(out).digest == told["digest"]
        assert open_run(out).complete
    else:
        assert "holds no run" in said.err
        assert len(read_tape(out / "continuation"))
        assert "its cluster changed on the way" in printed.err
    status = command("whatif", str(out), "--at", "50%")
    assert status == (2 if flags else 0)
    if flags:
        line = "was itself continued under changes" if run else "holds no run but what followed changes"
        refused = capsys.readouterr().err
        assert line in refused
        assert refused.endswith(f"take the run it came from, {run_folder}\n")
    if not run:
        page = str(tmp_path / "page.html")
        for place in (out, out / "continuation"):
            assert command("report", str(place), "-o", page) == 2
            said = capsys.readouterr()
            assert re.fullmatch(
                r"headway: .* is a what-if without a run, .*: take the run it came from, .*\n", said.err
            )


def test_a_report_of_several_runs_leaves_what_ifs_without_one_out(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("whatif", str(run_folder), "--at", "30%", "--add-nodes", "1", "--out", str(tmp_path / "more")) == 0
    capsys.readouterr()
    assert command("report", str(tmp_path), "-o", str(tmp_path / "page.html")) == 0
    assert f"note: {tmp_path / 'more'} is a what-if without a run" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["whatif", "--at", "1h"], ["explain", "0"], ["story", "0"], ["audit"], ["replay"]])
def test_a_folder_that_holds_runs_says_which(
    run_folder: Path, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    above = run_folder.parent / "seeds"
    for seed in (0, 2, 10, 11):
        shutil.copytree(run_folder, above / f"seed-{seed}")
    capsys.readouterr()
    assert command(verb[0], str(above), *verb[1:]) == 2
    named = ", ".join(str(above / f"seed-{seed}") for seed in (0, 2, 10))
    assert capsys.readouterr().err == (
        f"headway: {above} holds no run itself, but runs are in it: take one of {named} and 1 more\n"
    )


def test_where_nothing_can_be_written_is_noticed_before_the_work(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("headway.jobs.ask.questions.what_if", lambda *_, **__: pytest.fail("it works already"))
    capsys.readouterr()
    place = tmp_path / "file" / "out"
    assert command("whatif", str(run_folder), "--at", "1h", "--policy", "fifo", "--out", str(place)) == 2
    assert capsys.readouterr().err == f"headway: --out {place}: cannot be written (Not a directory)\n"
    check_writable(tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists(), "nothing of the attempt is left"


def test_what_was_continued_under_changes_is_explained_up_to_them(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command("whatif", str(run_folder), "--at", "1h", "--policy", "fifo", "--out", str(out)) == 0
    found = open_run(out)
    waiting = int(Ledger(found.tape, found.scene.jobs, found.scene.cluster).wait.argmax())
    capsys.readouterr()
    assert command("explain", str(out), str(waiting)) == 2
    assert re.fullmatch(
        r"headway: run folder .*: was continued under changes from 1h 00m on and cannot be taken up after that: .*\n",
        capsys.readouterr().err,
    )
    assert command("explain", str(out), "0", "--at", "30m") == 0


@pytest.mark.parametrize(
    ("flags", "broken"),
    [
        (["--policy", "fifo"], "headway.jobs.ask.whatif._change"),
        (["--add-nodes", "2"], "headway.jobs.ask.whatif._change"),
        (["--add-nodes", "2"], "headway.core.tape.pq.write_table"),
    ],
)
def test_what_is_interrupted_leaves_nothing_half_written(
    run_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    broken: str,
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(broken, interrupted)
    out = tmp_path / "out"
    assert command("whatif", str(run_folder), "--at", "1h", *flags, "--out", str(out)) == 130
    assert capsys.readouterr().err.endswith("headway: stopped\n")
    assert not out.exists()
    out.mkdir()
    assert command("whatif", str(run_folder), "--at", "1h", *flags, "--out", str(out)) == 130
    assert list(out.iterdir()) == []


def test_other_failures_are_said_to_be_one_draw(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("whatif", str(run_folder), "--at", "20%", "--failures", "mtbf=2d,repair=1h") == 0
    assert "note: failures are drawn: the difference is that of one draw." in capsys.readouterr().err
    assert command("whatif", str(run_folder), "--at", "20%", "--policy", "fifo") == 0
    assert "one draw" not in capsys.readouterr().err


def test_jobs_that_are_left_out_are_said_beside_the_headline(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert command("whatif", str(run_folder), "--at", "20%", "--remove-nodes", "3", "--skip-infeasible") == 0
    printed = capsys.readouterr()
    line = re.search(
        r"later\n(\d+) jobs? can never run after the change and (is|are) left out of both sides: \d+.*\n\n", printed.out
    )
    assert line
    assert re.search(r"^tenant +jobs +never run +JCT before", printed.out, re.MULTILINE)
    assert "never runs" in printed.out.partition("jobs that lose most")[2]
    assert f"note: before is the run continued without {line[1]} job" in printed.err


def test_the_tables_of_a_what_if(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("whatif", str(run_folder), "--at", "20%", "--remove-nodes", "n1", "--skip-infeasible") == 0
    printed = capsys.readouterr()
    assert re.search(r"^From .* on: 1 of 4 nodes removed \(8 GPUs\): n1$", printed.out, re.MULTILINE)
    for piece in ("JCT mean", "wait p99", "GPU use from there on", "by tenant", "tenant00", "jobs that lose most"):
        assert piece in printed.out
    assert re.search(r"^JCT mean .* \+\d+\.\d %  \[[+-]\d+\.\d, \+\d+\.\d\]$", printed.out, re.MULTILINE)
    assert re.search(r"^tenant .* change +95 % +wait before", printed.out, re.MULTILINE)
    assert command("whatif", str(run_folder), "--at", "99.9%", "--policy", "fifo") == 0
    assert "an earlier --at concerns more of them" in capsys.readouterr().err
    assert command("whatif", str(run_folder), "--at", "20%") == 0
    assert "the rest of the tape is the same, row for row" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--at", "9000d"], "--at 9000d: the run ends at"),
        (["--at", "1h", "--quota", "tenant00"], "--quota 'tenant00' is not understood"),
        (["--at", "1h", "--quota", "tenant00=4.5"], "--quota tenant00=4.5: '4.5' is not a whole number"),
        (["--at", "1h", "--gpu-speed", "gpu=x"], "--gpu-speed gpu=x: 'x' is not a number"),
        (["--at", "1h", "--out", ""], "--out is empty"),
        (["--at", "1h", "--limit", "tenant00=1", "--limit", "tenant00=2"], "--limit: tenant00 is given twice"),
        (["--at", "1h", "--policy", ""], "--policy is empty"),
        (["--at", "1h", "--failures", "mtbf"], "--failures 'mtbf': 'mtbf' is not understood"),
        (["--at", "1h", "--out", "."], "already holds"),
    ],
)
def test_a_slip_on_the_command_line_is_one_line(
    run_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flags: list[str], line: str
) -> None:
    monkeypatch.chdir(run_folder)
    capsys.readouterr()
    assert command("whatif", str(run_folder), *flags) == 2
    printed = capsys.readouterr()
    assert line in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not printed.out


def test_a_run_that_was_killed_is_finished(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tape = read_tape(run_folder)
    (run_folder / FINAL_NAME).unlink()
    (run_folder / "result.json").unlink()
    writer = TapeWriter(run_folder)
    for row in tape.until(int(tape.column("time")[-1]) // 2):
        writer.append(row)
    writer.flush()
    assert (run_folder / STREAM_NAME).exists()
    out = tmp_path / "finished"
    assert command("whatif", str(run_folder), "--at", "end", "--out", str(out), "--json") == 0
    assert "cut short" in capsys.readouterr().err
    assert read_tape(out).digest == tape.digest
    assert command("audit", str(out)) == 0


def test_the_document_names_everything_that_is_printed(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert command("whatif", str(run_folder), "--at", "20%", "--remove-nodes", "1", "--skip-infeasible", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    page = (Path(__file__).parents[3] / "docs" / "guides" / "whatif.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", page.partition("## What comes out")[2].partition("## What `--out`")[0]))
    groups = [told, told["before"], *told["tenants"], *told["gain"], *told["lose"]]
    of_logs = {"at", "caveats", "verdict", "partitions", "qos", "gpu_types"}
    """What jobs of a log have besides: dates, a verdict, and groups whose members differ."""
    assert of_logs <= listed
    assert {key for group in groups for key in group} == listed - of_logs
