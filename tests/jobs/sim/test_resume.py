"""A run taken up at any time and continued writes the rest of its tape, whatever it is made of.

The tests are parametrised over the registry's tables, as the conformance suite is: a new part is covered by being
registered.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from headway.core.tape import Tape
from headway.errors import TapeError
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import BACKFILLS, MIGRATIONS, ORDERS, PLACEMENTS, build
from headway.jobs.sim.resume import Moment, resume
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.conformance.checks import Make
from tests.drive import World, digest, drive, first_difference, joined, seconds_of
from tests.golden.training import POLICIES
from tests.golden.worlds import WORLDS
from tests.strategies import specs, worlds

few = settings(
    max_examples=6,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)


def moment_of(policy: ComposedPolicy, world: World, tape: Tape, at: int, *, asking: bool = True) -> Moment:
    """A world's run at a time."""
    faults = world.faults() if world.faults is not None else None
    return resume(
        world.cluster,
        world.jobs,
        tape,
        at,
        policy,
        speed=world.speed(),
        costs=world.costs,
        faults=faults,
        asking=asking,
    )


def times_of(tape: Tape) -> st.SearchStrategy[int]:
    """Before the first event, at an instant, right before and after one, between two, and after the end."""
    instants = sorted(set(tape.column("time").tolist()))
    at = st.sampled_from(instants)
    between = st.integers(0, instants[-1])
    return st.one_of(st.just(-1), at, at.map(lambda t: t - 1), at.map(lambda t: t + 1), between, st.just(1 << 62))


def check_continued(make: Make, world: World, data: st.DataObject) -> None:
    """What is continued without a change is what was recorded, and going on from a copy is no different."""
    tape = drive(make(), world).tape
    at = data.draw(times_of(tape), label="at")
    moment = moment_of(make(), world, tape, at)
    before = digest(moment.state)
    copy = moment.fork()
    for each in (copy, moment):
        whole = joined(tape.until(at), each.go_on())
        assert first_difference(tape, whole) is None
        assert whole.digest == tape.digest
        assert before == digest(moment.state) or each is moment, "what the copy did shows in the original"


@pytest.mark.parametrize("backfill", sorted(BACKFILLS))
@pytest.mark.parametrize("order", sorted(ORDERS))
@given(data=st.data(), world=worlds())
@few
def test_every_order_goes_on_as_it_did_with_every_backfill(
    order: str, backfill: str, data: st.DataObject, world: World
) -> None:
    spec = data.draw(specs(order=order, backfill=backfill, cluster=world.cluster))
    check_continued(lambda: build(spec), world, data)


@pytest.mark.parametrize("part", [*sorted(PLACEMENTS), *sorted(MIGRATIONS)])
@given(data=st.data(), world=worlds())
@settings(few, max_examples=10)
def test_every_placement_and_migration_goes_on_as_it_did(part: str, data: st.DataObject, world: World) -> None:
    kind = "placement" if part in PLACEMENTS else "migration"
    spec = data.draw(specs(**{kind: part}, cluster=world.cluster))
    check_continued(lambda: build(spec), world, data)


@given(
    data=st.data(),
    spec=specs(),
    world=worlds(faults=True),
    round_length=st.sampled_from([0, 7 * SECOND, 60 * SECOND]),
    quantum=st.sampled_from([None, 7 * SECOND]),
)
@settings(few, max_examples=30)
def test_rounds_quanta_and_faults_go_on_as_they_did(
    data: st.DataObject, spec: str, world: World, round_length: int, quantum: int | None
) -> None:
    check_continued(lambda: build(spec, round_length=round_length, quantum=quantum), world, data)


@given(data=st.data(), spec=specs(), world=worlds(quotas=True))
@settings(few, max_examples=20)
def test_quotas_go_on_as_they_did(data: st.DataObject, spec: str, world: World) -> None:
    check_continued(lambda: build(spec), world, data)


@pytest.mark.parametrize("name", sorted(WORLDS))
@pytest.mark.parametrize("spec", POLICIES)
def test_golden_runs_go_on_as_they_did(spec: str, name: str) -> None:
    world = WORLDS[name]()
    tape = drive(spec, world, bounded=False).tape
    instants = sorted(set(tape.column("time").tolist()))
    for part in (0.25, 0.7):
        at = instants[int(part * len(instants))]
        rest = moment_of(build(spec), world, tape, at).go_on()
        assert first_difference(tape, joined(tape.until(at), rest)) is None


@given(data=st.data(), world=worlds(), old=specs(), new=specs())
@settings(few, max_examples=40)
def test_another_policy_can_take_over_at_any_time(data: st.DataObject, world: World, old: str, new: str) -> None:
    tape = drive(old, world).tape
    at = data.draw(times_of(tape), label="at")
    moment = moment_of(build(new), world, tape, at, asking=False)
    rest = moment.go_on()
    ended = joined(tape.until(at), rest)
    gone = [row for row in ended if row.kind in (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED)]
    assert {row.subject for row in gone} == {job.id for job in world.jobs}
    assert moment.state.over()


def test_a_tape_of_another_experiment_is_refused() -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 5, 4), (2, 5, 4)))
    tape = drive("fifo", world).tape
    longer = replace(world, jobs=tuple(replace(job, work=job.work * 2) for job in world.jobs))
    with pytest.raises(TapeError, match=r"does not follow from its experiment: it has JobFinished\(0\) at 10s"):
        moment_of(build("fifo"), longer, tape, 1 << 62)
    other = drive("sjf", replace(world, jobs=seconds_of((0, 10, 4), (1, 6, 4), (2, 5, 4)))).tape
    with pytest.raises(TapeError, match="another policy wrote this tape"):
        moment_of(build("fifo"), replace(world, jobs=seconds_of((0, 10, 4), (1, 6, 4), (2, 5, 4))), other, 1 << 62)


def test_jobs_may_turn_out_other_than_they_were_thought_to_be() -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 5, 4), (20, 5, 4)))
    moment = moment_of(build("fifo"), world, drive("fifo", world).tape, 3 * SECOND)
    before = digest(moment.state)

    def starts(job: int, jobs: Mapping[int, Job] | None = None, *, arrivals: bool = True) -> int:
        other = moment.fork()
        for altered in (jobs or {}).values():
            other.alter(altered)
        if not arrivals:
            other.expect(())
        rows = [row for row in other.go_on() if row.kind == Kind.START and row.subject == job]
        return rows[0].time if rows else -1

    assert starts(1) == 10 * SECOND
    assert starts(1, jobs={0: replace(world.jobs[0], work=4 * SECOND)}) == 4 * SECOND
    assert starts(1, jobs={0: replace(world.jobs[0], work=30 * SECOND)}) == 30 * SECOND
    assert starts(1, jobs={0: replace(world.jobs[0], work=SECOND)}) == 3 * SECOND + 1, "it has to end after now"
    assert starts(2, arrivals=False) == -1
    assert starts(2, jobs={1: replace(world.jobs[1], work=50 * SECOND)}) == 60 * SECOND
    assert starts(2, jobs={2: replace(world.jobs[2], work=1)}) == 20 * SECOND, "a job to come may be another, too"
    assert digest(moment.state) == before, "the moment was to be left as it is"


def test_going_on_stops_when_it_is_told() -> None:
    world = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 5, 4), (2, 5, 4)))
    moment = moment_of(build("fifo"), world, drive("fifo", world).tape, 3 * SECOND)

    def started(state: TrainingState) -> bool:
        return 1 in state.running

    rest = moment.go_on(until=started)
    assert [(row.time, Kind(row.kind).name, row.subject) for row in rest] == [
        (10 * SECOND, "FINISHED", 0),
        (10 * SECOND, "START", 1),
    ]
