"""Advance reservations: who keeps out of them, who runs in them, and what a run under drawn ones never does."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.jobs.audit.audit import audit
from headway.jobs.audit.replay import replay
from headway.jobs.explain.explain import why_waiting
from headway.jobs.model.actions import MigrateJob, StartJob
from headway.jobs.model.causes import CauseKind
from headway.jobs.model.cluster import Cluster, Qos, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.registry import BACKFILLS, build
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.rules.preemption.preemption import Preemption
from headway.jobs.rules.reservations.reservation import AdvanceReservation
from headway.units import HOUR, SECOND
from tests.drive import Run, World, digest, drive, state_at
from tests.jobs.counterfactual import admits

POLICIES = [f"fifo+{name}" for name in BACKFILLS]


def job(submit: float, work: float, gpus: int = 1, **more: object) -> Job:
    """A job, times in seconds."""
    return replace(Job(0, round(submit * SECOND), round(work * SECOND), gpus), **more)  # type: ignore[arg-type]


def kept(name: str, start: float, end: float, *nodes: int, **more: object) -> AdvanceReservation:
    """A reservation, times in seconds."""
    made = AdvanceReservation(name, round(start * SECOND), round(end * SECOND), nodes)
    return replace(made, **more)  # type: ignore[arg-type]


def ran(policy: str, cluster: Cluster, jobs: Sequence[Job]) -> Run:
    """A run that is audited, and replayed to the last row."""
    world = World(cluster, workload(jobs))
    run = drive(policy, world)
    assert audit(cluster, world.jobs, run.tape, complete=True) == []
    again = replay(cluster, world.jobs, run.tape, build(policy), complete=True)
    assert again.rows.tolist() == run.tape.rows.tolist()
    return run


def begun(run: Run) -> dict[int, float]:
    """When each job first started, in seconds."""
    return {name: time / SECOND for name, time in run.starts.items()}


def nodes_of(run: Run) -> dict[int, int]:
    """The node of the first start of each job."""
    return {row.subject: row.place for row in reversed(run.rows(Kind.START))}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_would_run_into_a_reservation_waits_until_it_is_over(policy: str) -> None:
    cluster = uniform(1, 4, reservations=(kept("maint", 100, 160, 0),))
    run = ran(policy, cluster, [job(0, 100, 4), job(0, 30, 1), job(10, 91, 1)])
    assert begun(run) == {0: 0, 1: 160, 2: 160}  # the first ends when it begins; the others never had time enough


@pytest.mark.parametrize("policy", ["fifo+fit", "fifo+easy", "fifo+conservative(interval=0s)"])
def test_who_ends_before_it_begins_overtakes_who_does_not(policy: str) -> None:
    cluster = uniform(1, 4, reservations=(kept("maint", 100, 160, 0),))
    run = ran(policy, cluster, [job(0, 101, 4), job(0, 100, 4), job(1, 5, 2)])
    assert begun(run) == {0: 160, 1: 0, 2: 261}


def test_it_counts_what_a_job_announces_and_not_what_it_takes() -> None:
    cluster = uniform(2, 4, reservations=(kept("maint", 100, 160, 0),))
    run = ran("fifo", cluster, [job(0, 10, 4, estimate=200 * SECOND), job(0, 300, 4, estimate=50 * SECOND)])
    assert nodes_of(run) == {0: 1, 1: 0}
    assert run.ends == {0: 10 * SECOND, 1: 300 * SECOND}  # what runs there already runs on


def test_a_job_that_names_it_runs_in_it_and_holds_nobody_back_before() -> None:
    cluster = uniform(2, 4, reservations=(kept("course", 50, 90, 1),))
    jobs = [job(0, 20, 4, reservation="course"), job(0, 40, 4), job(0, 45, 4), job(41, 500, 4)]
    run = ran("fifo", cluster, jobs)
    assert begun(run) == {0: 50, 1: 0, 2: 0, 3: 41}
    assert nodes_of(run) == {0: 1, 1: 0, 2: 1, 3: 0}


def test_two_jobs_of_a_reservation_take_turns_in_it_and_the_rest_runs_as_others_do() -> None:
    cluster = uniform(2, 4, reservations=(kept("course", 10, 40, 1),))
    jobs = [job(0, 100, 4), *(job(0, 20, 4, reservation="course") for _ in range(3))]
    run = ran("fifo+fit", cluster, jobs)
    assert begun(run) == {0: 0, 1: 10, 2: 30, 3: 50}  # the third comes too late for it


def test_a_job_of_a_flexible_one_runs_before_it_and_elsewhere() -> None:
    cluster = uniform(2, 4, reservations=(kept("course", 10, 40, 1, flex=True),))
    run = ran("fifo", cluster, [job(0, 90, 4, reservation="course"), job(0, 90, 4, reservation="course")])
    assert begun(run) == {0: 0, 1: 0}


def test_a_repeated_one_is_several_of_one_name() -> None:
    daily = tuple(kept("night", 100 * day + 50, 100 * day + 80, 0) for day in range(3))
    run = ran("fifo", uniform(1, 4, reservations=daily), [job(0, 60, 4), job(0, 60, 4, reservation="night")])
    assert begun(run) == {0: 180, 1: 50}  # the second runs on beyond it, until 110


def test_who_runs_in_one_keeps_out_of_another_unless_they_may_overlap() -> None:
    long, short = kept("course", 0, 100, 0, 1, overlaps=True), kept("maint", 50, 60, 0)
    mine = [job(0, 70, 4, reservation="course"), job(0, 70, 4, reservation="maint")]
    run = ran("fifo", uniform(2, 4, reservations=(long, short)), mine)
    assert nodes_of(run)[0] == 0
    turned = (replace(long, overlaps=False), replace(short, overlaps=True))
    run = ran("fifo", uniform(2, 4, reservations=turned), mine)
    assert nodes_of(run)[0] == 1


def test_an_action_that_breaks_into_one_is_refused_with_its_reason() -> None:
    cluster = uniform(2, 4, reservations=(kept("maint", 50, 60, 1),))
    world = World(cluster, workload([job(0, 100, 4), job(0, 100, 4)]))
    run = drive("fifo", world)
    state = state_at(cluster, world.jobs, run.tape, 0, build("fifo"))
    told = "node n1 is reserved for others before it would end, or not in its own reservation now"
    assert state.check(StartJob(1, ((1, 0b1111),))) == f"StartJob(job=1): {told}"
    assert state.check(MigrateJob(0, ((1, 0b1111),))) == f"MigrateJob(job=0): {told}"


def test_a_waiting_job_is_told_which_reservation_keeps_it_waiting() -> None:
    cluster = uniform(1, 4, reservations=(kept("maint", HOUR / SECOND, 2 * HOUR / SECOND, 0),))
    jobs = workload([job(0, 7200, 4), job(0, 60, 4, reservation="maint")])
    run = ran("fifo", cluster, jobs)
    policy = build("fifo")
    state = state_at(cluster, jobs, run.tape, 0, policy)
    (first,) = why_waiting(0, state, policy, state.jobs[0])
    assert str(first) == (
        "reserved maint: reservation maint keeps n0 from 01:00:00 to 02:00:00; it would run until 02:00:00"
    )
    second = why_waiting(0, state, policy, state.jobs[1])
    assert "reserved maint: reservation maint, which it names, begins at 01:00:00" in map(str, second)
    assert admits(0, state, policy, 0, [first])


def test_limits_and_reservations_hold_jobs_back_together() -> None:
    rule = LimitRule("most", "gpus", 4000, per=("user",))
    cluster = uniform(2, 4, reservations=(kept("course", 50, 90, 1),), limits=(rule,))
    jobs = [job(0, 60, 4, user="a", reservation="course"), job(0, 60, 4, user="a"), job(1, 10, 4, user="b")]
    assert begun(ran("fifo+fit", cluster, jobs)) == {0: 60, 1: 0, 2: 1}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([kept("a", 5, 5, 0)], "reservation a ends at 5000000000 ns, not after it starts"),
        ([kept("a", 0, 5)], "reservation a: names no node"),
        ([kept("a", 0, 5, 7)], "reservation a: names a node that does not exist"),
        (
            [kept("a", 0, 5, 1), kept("b", 4, 9, 0, 1)],
            "reservations a and b overlap on node n1: give one of them overlap",
        ),
    ],
)
def test_what_cannot_be_reserved_is_refused_in_one_line(given: list[AdvanceReservation], told: str) -> None:
    with pytest.raises(ExperimentError, match=told):
        uniform(2, 4, reservations=tuple(given))


# --- drawn reservations against a plain oracle ----------------------------------------------------------------------

_NODES, _GPUS = 3, 2
OTHERS = [
    *("srtf+easy", "fifo+conservative(interval=0s)", "las+preempt", "multifactor+fit"),
    *("srtf+easy+migrate", "fifo+fit+consolidate+migrate-free", "las+migrate-always"),
]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A few jobs, some of which name a reservation, and reservations that may lie over each other."""
    times = st.integers(0, 40)
    reserved = []
    for number in range(draw(st.integers(1, 4))):
        start = draw(times)
        nodes = draw(st.sets(st.integers(0, _NODES - 1), min_size=1))
        name = draw(st.sampled_from(("a", "b"))) if number else "a"
        flex = draw(st.booleans()) if draw(st.booleans()) else False
        reserved.append(kept(name, start, start + draw(st.integers(1, 20)), *sorted(nodes), overlaps=True, flex=flex))
    jobs = []
    for _ in range(draw(st.integers(1, 8))):
        work = draw(st.integers(1, 15))
        jobs.append(
            job(
                draw(times),
                work,
                draw(st.integers(1, 4)),
                estimate=draw(st.sampled_from((0, work, 2 * work, max(1, work // 2)))) * SECOND,
                reservation=draw(st.sampled_from(("", "", "", "a", "b", "unknown"))),
                user=draw(st.sampled_from("uv")),
                qos=draw(st.sampled_from(("low", "high"))),
                checkpoint_every=0,
            )
        )
    limits = (LimitRule("most", "gpus", 3000, per=("user",)),) if draw(st.booleans()) else ()
    jobs = [replace(each, gpus=min(each.gpus, 3)) for each in jobs] if limits else jobs
    cluster = uniform(_NODES, _GPUS, reservations=tuple(reserved), limits=limits)
    if draw(st.booleans()):
        levels = (Qos("low"), Qos("high", preempts=("low",), grace=draw(st.sampled_from((0, 2 * SECOND)))))
        cluster = replace(cluster, qos=levels, preemption=Preemption("qos", again_after=draw(times) * SECOND))
    return World(cluster, workload(jobs))


def broken(world: World, run: Run) -> list[str]:
    """What the starts of a run break: the rules as they are written, and none of their code."""
    found = []
    for time, number, places in _starts(run):
        mine = world.jobs[number]
        until = time + (mine.estimate or mine.work)
        own = [each for each in world.cluster.reservations if each.name == mine.reservation and each.end > time]
        active = [each for each in own if each.start <= time]
        flex = min(own, key=lambda each: (each.start, each.end)).flex if own else False
        for node in places:
            if own and not flex:
                if not any(node in each.nodes for each in active):
                    found.append(f"job {number} is outside of its reservation at {time}")
                continue  # drawn ones may all overlap
            for each in world.cluster.reservations:
                if each not in own and node in each.nodes and each.start < until and each.end > time:
                    found.append(f"job {number} breaks into {each.name} at {time}")
    return found


def _starts(run: Run) -> list[tuple[int, int, list[int]]]:
    rows = [row for row in run.tape.rows.tolist() if row[1] in (int(Kind.START), int(Kind.PLACE))]
    starts: dict[int, tuple[int, int, list[int]]] = {}
    for time, _, number, lease, place, _, _ in rows:
        starts.setdefault(lease, (time, number, []))[2].append(place)
    return list(starts.values())


@settings(deadline=None, max_examples=150)
@given(
    worlds(),
    st.sampled_from([*POLICIES, *OTHERS]),
)
def test_no_drawn_run_breaks_into_a_reservation_and_all_jobs_end(world: World, policy: str) -> None:
    run = ran(policy, world.cluster, world.jobs)
    assert len(run.ends) == len(world.jobs)
    if policy.startswith(("fifo", "multifactor")) and "migrate" not in policy:
        assert broken(world, run) == []


@settings(deadline=None, max_examples=60)
@given(worlds(), st.sampled_from(["fifo+fit", "fifo+easy"]))
def test_nobody_waits_while_it_could_start_for_reservations_that_are_over(world: World, policy: str) -> None:
    """At the end of each instant, who waits does not fit, or a rule of the backfill holds it back: never oversight."""
    run = ran(policy, world.cluster, world.jobs)
    times = sorted(set(run.tape.column("time").tolist()))
    for time in times[:40]:
        state = state_at(world.cluster, world.jobs, run.tape, time, asked := build(policy))
        before = digest(state)
        for js in [each for each in state.jobs.values() if each.id not in state.running]:
            causes = why_waiting(time, state, asked, js)
            assert causes
            kinds = {cause.kind for cause in causes}
            if kinds == {CauseKind.RESERVED} and js.id not in state.reserved.begins:
                assert admits(time, state, asked, js.id, causes)
            if any(cause.kind is CauseKind.RESERVED for cause in causes):
                assert js.eligible != state.eligible(js.job.partition, js.job.gpu_types)
        assert digest(state) == before
