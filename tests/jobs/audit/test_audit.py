"""The audit finds nothing on what a run writes, and finds each thing that cannot be."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from headway.core.tape import Tape
from headway.jobs.audit.audit import audit
from headway.jobs.model.cluster import Cluster, Partition, Tenant, uniform
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import build
from headway.jobs.sim.faults import Faults, Maintenance
from headway.units import SECOND
from tests.drive import World, drive, seconds_of
from tests.strategies import specs, worlds

TIME, _, SUBJECT, LEASE, PLACE, DETAIL, VALUE = range(7)


@settings(max_examples=100)
@given(worlds(), specs(), st.sampled_from([0, 0, 5 * SECOND]))
def test_what_a_run_writes_is_sound(world: World, spec: str, round_length: int) -> None:
    tape = drive(build(spec, round_length=round_length), world).tape
    speed = SpeedModel(world.cluster, sharing_penalty_ppm=world.sharing_penalty_ppm)
    asked = build(spec, round_length=round_length)
    found = audit(world.cluster, world.jobs, tape, policy=asked, speed=speed, costs=world.costs, complete=True)
    assert found == []


@settings(max_examples=30)
@given(worlds(), specs(), st.floats(0, 1))
def test_a_tape_cut_short_is_sound_but_not_complete(world: World, spec: str, part: float) -> None:
    tape = drive(spec, world).tape
    times = tape.column("time")
    short = tape.until(int(times[int(part * (len(times) - 1))]))
    speed = SpeedModel(world.cluster, sharing_penalty_ppm=world.sharing_penalty_ppm)
    assert audit(world.cluster, world.jobs, short, speed=speed, costs=world.costs) == []
    if len(short) < len(tape) and times[len(short)] < world.jobs[-1].submit:
        assert {finding.rule for finding in audit(world.cluster, world.jobs, short, speed=speed, complete=True)} >= {
            "end"
        }


CLUSTER = uniform(2, 4, cpus_per_node=8, partitions=(Partition("left", (0,)),), tenants=(Tenant("a", limit_gpus=4),))
JOBS = workload(
    [
        Job(0, 0, 10 * SECOND, 4, cpu_milli=6000, partition="left", tenant="b"),
        Job(0, 0, 20 * SECOND, 2, tenant="a", preemptible=False),
        Job(0, SECOND, 4 * SECOND, 1, tenant="a", checkpoint=SECOND),
        Job(0, 2 * SECOND, 3 * SECOND, 2, tenant="b", outcome=Outcome.FAILS, outcome_after=SECOND, retries=1),
    ]
)
WORLD = World(CLUSTER, JOBS, lambda: Faults(2, 0, None, [Maintenance((0,), 5 * SECOND // 2, 30 * SECOND)]))


def tape() -> Tape:
    return drive("srtf+fit", WORLD).tape


def row(tape: Tape, kind: Kind, nth: int = 0) -> int:
    return int(np.flatnonzero(tape.column("kind") == kind)[nth])


def rules_after(rows: np.ndarray, cluster: Cluster = CLUSTER, jobs: tuple[Job, ...] = JOBS) -> set[str]:
    return {finding.rule for finding in audit(cluster, jobs, Tape(rows), complete=True)}


def test_the_tape_that_is_broken_below_was_sound() -> None:
    assert rules_after(tape().rows) == set()
    assert {Kind.EVICTED, Kind.QUEUED_AGAIN, Kind.NODE_DRAINED} <= set(tape().column("kind").tolist())


@pytest.mark.parametrize(
    ("kind", "nth", "column", "change", "rule"),
    [
        (Kind.START, 1, DETAIL, 1, "gpu"),  # another mask, or one GPU that is taken
        (Kind.START, 0, PLACE, 1, "place"),  # off its partition
        (Kind.START, 0, PLACE, 7, "place"),
        (Kind.START, 1, LEASE, -1, "lease"),
        (Kind.START, 0, VALUE, 1, "speed"),
        (Kind.FINISHED, 0, LEASE, 1, "lease"),
        (Kind.FINISHED, 0, VALUE, -1, "service"),
        (Kind.FINISHED, 0, TIME, -1, "service"),
        (Kind.ARRIVED, 1, SUBJECT, -1, "arrival"),
        (Kind.EVICTED, 0, VALUE, 1, "service"),
        (Kind.EVICTED, 0, PLACE, 1, "evict"),
        (Kind.QUEUED_AGAIN, 0, VALUE, 1, "retry"),
        (Kind.NODE_DRAINED, 0, SUBJECT, 9, "node"),
    ],
)
def test_a_changed_number_is_found(kind: Kind, nth: int, column: int, change: int, rule: str) -> None:
    sound = tape()
    rows = sound.rows.copy()
    at = row(sound, kind, nth)
    if (kind, column) == (Kind.START, DETAIL):
        rows[at, DETAIL] = rows[at, DETAIL] << 3
    else:
        rows[at, column] += change
    assert rule in rules_after(rows)


def test_a_row_that_is_missing_is_found() -> None:
    sound = tape()
    for kind, rule in [
        (Kind.ARRIVED, "start"),
        (Kind.EVICTED, "evict"),
        (Kind.QUEUED_AGAIN, "retry"),
        (Kind.FINISHED, "end"),
        (Kind.START, "start"),
    ]:
        assert rule in rules_after(np.delete(sound.rows, row(sound, kind), axis=0)), kind


def test_rows_in_another_order_are_found() -> None:
    sound = tape()
    rows = sound.rows.copy()
    rows[[0, 3]] = rows[[3, 0]]
    assert "order" in rules_after(rows)
    backwards = sound.rows.copy()
    backwards[-1, TIME] = 0
    assert "time" in rules_after(backwards)


def test_a_job_done_early_that_holds_on_to_its_gpus_is_found_unless_time_is_real() -> None:
    world = World(uniform(1, 1), seconds_of((0, 10, 1)))
    rows = drive("fifo", world).tape.rows.copy()
    rows[-1, TIME] += 1
    assert [f.rule for f in audit(world.cluster, world.jobs, Tape(rows))] == ["service"]
    assert audit(world.cluster, world.jobs, Tape(rows), punctual=False) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tenants": (Tenant("a", limit_gpus=2),)}, "quota"),
        ({"tenants": (Tenant("a", guaranteed_gpus=2),)}, "quota"),
        ({"tenants": (Tenant("a", guaranteed_gpus=1, borrow=True),)}, "quota"),
        ({"partitions": (Partition("left", (1,)),)}, "place"),
        ({"nodes": tuple(replace(node, cpu_milli=5000) for node in CLUSTER.nodes)}, "host"),
        ({"nodes": tuple(replace(node, gpus=3) for node in CLUSTER.nodes)}, "gpu"),
        ({"gpu_speed_ppm": {"gpu": 500_000}}, "speed"),
    ],
)
def test_a_run_that_breaks_the_rules_of_its_cluster_is_found(change: dict[str, object], rule: str) -> None:
    assert rule in rules_after(tape().rows, replace(CLUSTER, **change))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"preemptible": False}, "preempt"),
        ({"gpu_types": ("H100",)}, "place"),
        ({"nodes": 2}, "shape"),
        ({"gpus": 3}, "shape"),
    ],
)
def test_a_run_that_breaks_the_rules_of_a_job_is_found(change: dict[str, object], rule: str) -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 2, 4)))
    sound = drive("srtf", world).tape
    assert Kind.PREEMPT in sound.column("kind")
    jobs = (replace(world.jobs[0], **change), *world.jobs[1:])
    assert rule in rules_after(sound.rows, world.cluster, jobs)


def test_costs_that_were_not_paid_are_found() -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 2, 4)))
    sound = drive("srtf", world).tape
    assert {f.rule for f in audit(world.cluster, world.jobs, sound, costs=Costs(preemption=SECOND))} == {"cost"}


# --- guarantees -----------------------------------------------------------------------------------------------


class Forgetful(ComposedPolicy):
    """Never takes back what was borrowed."""

    def admit(self, now, state, js):  # type: ignore[no-untyped-def]
        found = super().admit(now, state, js)
        return found if found is None or len(found) == 1 else None


BORROWERS = uniform(
    2, 4, tenants=(Tenant("a", guaranteed_gpus=4, borrow=True), Tenant("b", guaranteed_gpus=4, borrow=True))
)
BORROWING = workload(
    [
        *(Job(0, 0, 100 * SECOND, 2, tenant="a") for _ in range(4)),
        Job(0, 10 * SECOND, 10 * SECOND, 4, tenant="b"),
    ]
)


@pytest.mark.parametrize("spec", ["fifo", "fifo+fit", "srtf+easy"])
def test_a_guarantee_that_is_not_met_at_once_is_found(spec: str) -> None:
    world = World(BORROWERS, BORROWING)
    kept = drive(spec, world).tape
    assert audit(BORROWERS, BORROWING, kept, policy=build(spec), complete=True) == []
    assert Kind.PREEMPT in kept.column("kind")

    made = build(spec)
    policy = Forgetful("forgetful", made.order, made.backfill, made.placement, preempts=False)
    broken = drive(policy, world).tape
    found = audit(BORROWERS, BORROWING, broken, policy=build(spec, preempts=False))
    assert {finding.rule for finding in found} == {"guarantee"}
    assert found[0].time == 10 * SECOND
    assert "job 4 waits within the guarantee of tenant b" in found[0].text


def test_progress_is_told_and_a_finding_reads_as_one_line() -> None:
    told: list[int] = []
    rows = tape().rows.copy()
    rows[row(tape(), Kind.FINISHED), VALUE] += 1
    found = audit(CLUSTER, JOBS, Tape(rows), progress=told.append)
    assert told == [0]
    assert [str(f).count("\n") for f in found] == [0] * len(found)
    assert "service" in str(found[0])
