"""A run continued from a moment of it: the same without a change, and sound under every change that can be asked for."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from headway import experiment
from headway.cli import main
from headway.core.tape import FINAL_NAME, STREAM_NAME, TapeWriter
from headway.core.tape import read as read_tape
from headway.errors import ExperimentError, InfeasibleJobError, InputError, TapeError
from headway.experiment import Scene, StoredRun, changes
from headway.experiment.changes import Changes, Plan
from headway.experiment.whatif import WhatIf, moment_at, time_of, what_if
from headway.formats.cluster_table import ClusterTable, LevelTable
from headway.formats.settings import CostsTable, Experiment, FailuresTable, MaintenanceTable, PolicyTable, RunTable
from headway.metrics.training.difference import as_json, difference
from headway.metrics.training.ledger import Ledger
from headway.sim.resume import joined
from headway.training.audit import audit
from headway.training.cluster import Cluster, Level, Node, Partition, Tenant, uniform
from headway.training.job import Job, workload
from headway.training.rows import Kind
from headway.training.speed import SpeedModel
from headway.units import HOUR, MINUTE, SECOND
from tests.conformance.checks import check_delivered
from tests.drive import Run, seconds_of
from tests.strategies import specs, worlds

NOWHERE = Path("nowhere")
some = settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)


def scene_of(cluster: Cluster, jobs: tuple[Job, ...], policy: str = "fifo", **tables: Any) -> Scene:
    """A scene around a cluster and jobs that are there already."""
    described = ClusterTable(sharing_penalty=tables.pop("sharing_penalty", 0.0), levels=tables.pop("levels", []))
    return Scene(Experiment(policy=PolicyTable(name=policy), cluster=described, **tables), cluster, jobs)


def recorded(scene: Scene) -> StoredRun:
    """A scene played out, as if it had been read from a folder."""
    return StoredRun(NOWHERE, scene, experiment.play(scene).tape, complete=True)


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
        run=RunTable(seed=draw(st.integers(0, 1000))),
    )
    return recorded(scene)


@st.composite
def some_changes(draw: st.DrawFn, scene: Scene) -> Changes:
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
