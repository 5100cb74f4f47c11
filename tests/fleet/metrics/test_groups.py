"""Numbers by class and tenant: over all groups they sum to the whole run, and each is that of a plain walk."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.core.tape import Tape
from headway.fleet.metrics.summary import summarise
from headway.fleet.model.request import Groups
from headway.fleet.model.rows import Kind
from headway.units import SECOND
from tests.fleet.restless import Restless
from tests.fleet.worlds import World, drive, worlds

GROUPS = Groups(("gold", "silver", "bronze"), ("search", "chat"))
COUNTS = ("requests", "measured", "completed", "dropped", "dropped_warmup")
WARMUP = 0.25


@st.composite
def classed(draw: st.DrawFn) -> World:
    """A world whose requests have classes and tenants."""
    world = draw(worlds())
    kinds = [(draw(st.integers(0, 2)), draw(st.integers(0, 1))) for _ in world.requests]
    pairs = zip(world.requests, kinds, strict=True)
    return replace(world, requests=tuple(r._replace(class_id=a, tenant=b, priority=a) for r, (a, b) in pairs))


def summary(world: World, tape: Tape) -> dict[str, Any]:
    return summarise(
        world.catalogue, world.fleet, world.requests, tape, latency=world.latency(), warmup=WARMUP, groups=GROUPS
    )


@given(classed(), st.integers(0, 3), st.sampled_from([1.0, 0.6]))
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_sums_over_groups_are_those_of_the_whole_run(world: World, seed: int, share: float) -> None:
    whole = drive(Restless(seed), world).tape
    found = summary(world, whole.until(int(whole.column("time")[-1] * share)))
    for kind in ("classes", "tenants"):
        if kind not in found:
            assert len({request.tenant for request in world.requests}) == 1
            continue
        rows = found[kind]
        for key in COUNTS:
            assert sum(row[key] for row in rows) == found[key], (kind, key)
        due, in_time = (sum(row[key] for row in rows) for key in ("due", "in_time"))
        assert found["slo_hit_rate"] == (in_time / due if due else None)
        assert sum(row["cost_usd"] for row in rows) == pytest.approx(found["cost_total_usd"], rel=1e-9, abs=1e-15)
    assert [row["class"] for row in found["classes"]] == list(GROUPS.classes)


@given(classed(), st.integers(0, 3))
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_every_number_of_a_class_is_that_of_a_plain_walk(world: World, seed: int) -> None:
    tape = drive(Restless(seed), world).tape
    ends = {row.subject: row.time for row in tape if row.kind == Kind.DONE}
    gone = {row.subject for row in tape if row.kind == Kind.DROP}
    skip = int(WARMUP * len(world.requests))
    for index, row in enumerate(summary(world, tape)["classes"]):
        own = [request for request in world.requests if request.class_id == index]
        measured = [request for request in own if request.id >= skip]
        late = sorted((ends[r.id] - r.arrival) / SECOND for r in measured if r.id in ends)
        assert (row["requests"], row["measured"]) == (len(own), len(measured))
        assert row["dropped"] == sum(request.id in gone for request in own)
        assert row["due"] == sum(request.deadline > 0 for request in measured)
        assert row["in_time"] == sum(0 < ends.get(r.id, r.deadline + 1) <= r.deadline for r in measured if r.deadline)
        assert row["latency_mean_s"] == (pytest.approx(sum(late) / len(late)) if late else None)
        if late:
            assert late[0] <= row["latency_p50_s"] <= row["latency_p95_s"] <= row["latency_p99_s"] <= late[-1]


def test_a_class_without_requests_has_no_numbers_and_a_lone_tenant_no_rows() -> None:
    from tests.fleet.rich import WORLD, rich

    requests = tuple(request._replace(tenant=0, class_id=0) for request in WORLD.requests)
    found = summarise(
        WORLD.catalogue, WORLD.fleet, requests, rich().tape, latency=WORLD.latency(), groups=Groups(("a", "b"))
    )
    assert "tenants" not in found
    empty = found["classes"][1]
    assert (empty["requests"], empty["due"], empty["cost_usd"]) == (0, 0, 0.0)
    assert (empty["latency_p99_s"], empty["slo_hit_rate"], empty["cost_per_request_usd"]) == (None, None, None)
    assert "classes" not in summarise(WORLD.catalogue, WORLD.fleet, requests, rich().tape, latency=WORLD.latency())
